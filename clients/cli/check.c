/* octet check: findings of the library, and of a lock file. */
#include <string.h>

#include "findings.h"
#include "lock.h"
#include "view.h"
#include "wire/convert.h"
#include "wire/methods.h"

static enum octet_status make_request(struct session *session, Octet__V1__CheckRequest *request,
                                      struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    enum octet_status status = request_model(session, false, &request->model, err);

    if (status == OCTET_OK)
        status = request_rules(session, &request->n_rules, &request->rules, err);
    request->require = (char **)a->require.items;
    request->n_require = a->require.count;
    request->forbid = (char **)a->forbid.items;
    request->n_forbid = a->forbid.count;
    request->batch_size = a->batch;
    request->sequence_length = a->sequence;
    return status;
}

/* "44 lines traced, 93.1 % of the work and 96.0 % of the weights quantized" */
static const char *sum_up(octet_arena *arena, const Octet__V1__Trace *trace)
{
    char work[32], weights[32];
    size_t lines = 0;

    if (!trace)
        return "there is no trace of this config";
    for (size_t i = 0; i < trace->n_interceptions; i++)
        lines += view_is_line(trace->interceptions[i]);
    const Octet__V1__Coverage *c = trace->coverage;
    if (!c)
        return octet_arena_format(arena, "%zu lines traced", lines);
    return octet_arena_format(
        arena, "%zu lines traced, %s of the work and %s of the weights quantized", lines,
        human_share(c->flops_quantized, c->flops_total, work),
        human_share(c->weight_bytes_quantized, c->weight_bytes_total, weights));
}

/* The lock's verdict: a finding more, or words for the summary. */
static enum octet_status add_lock(struct session *session, Octet__V1__CheckResponse *response,
                                  struct findings *findings, struct octet_error *err)
{
    octet_arena *arena = session->arena;
    const char *path = session->arguments->lock, *changes = NULL, *words = NULL;
    enum lock_state state;
    enum octet_status status = lock_check(session, response->trace, findings_failing(findings) == 0,
                                          &state, &changes, err);

    if (status != OCTET_OK)
        return status;
    if (state == LOCK_DIFFERS) {
        Octet__V1__Finding *finding = oct_wire_new(arena, &octet__v1__finding__descriptor);
        char *message = octet_arena_format(arena, "the trace is not the locked one:\n%s", changes);
        char *remedy = octet_arena_format(
            arena, "undo the change of config or rules, or accept it: delete '%s' and run again",
            path);
        if (!finding || !message || !remedy)
            return octet_arena_exhausted(arena, err);
        finding->severity = OCTET__V1__SEVERITY__SEVERITY_ERROR;
        finding->id = (char *)"lock-differs";
        finding->subject = (char *)path;
        finding->message = message;
        finding->remedy = remedy;
        response->findings[response->n_findings++] = finding; /* room was made */
        findings->count = response->n_findings;
        return OCTET_OK;
    }
    words = state == LOCK_WRITTEN ? "locked in"
            : state == LOCK_SAME  ? "the same as in"
                                  : "for the errors' sake not locked in";
    findings->summary = octet_arena_format(arena, "%s; %s '%s'", findings->summary, words, path);
    return findings->summary ? OCTET_OK : octet_arena_exhausted(arena, err);
}

static bool make_room(octet_arena *arena, Octet__V1__CheckResponse *response)
{
    Octet__V1__Finding **list =
        OCTET_NEW_ARRAY(arena, response->n_findings + 1, Octet__V1__Finding *);

    if (!list)
        return false;
    if (response->n_findings)
        memcpy(list, response->findings, response->n_findings * sizeof *list);
    response->findings = list;
    return true;
}

static void print(struct session *session, const struct findings *findings,
                  const Octet__V1__CheckResponse *response)
{
    const char *format = session->arguments->format ? session->arguments->format : "text";
    struct output *out = session->out;

    if (strcmp(format, "github") == 0)
        findings_print_github(findings, out);
    else if (strcmp(format, "junit") == 0)
        findings_print_junit(findings, out);
    else if (strcmp(format, "json") == 0)
        (void)octet_wire_json(&response->base, output_json, out); /* out keeps the error */
    else
        findings_print_text(findings, out);
}

int run_check(struct session *session)
{
    Octet__V1__CheckRequest request = OCTET__V1__CHECK_REQUEST__INIT;
    struct findings findings = {.strict = session->arguments->strict};
    ProtobufCMessage *message;
    struct octet_error err = {0};

    if (make_request(session, &request, &err) != OCTET_OK ||
        session_call(session, "Check", &request.base, &message, &err) != OCTET_OK)
        return report(session, &err);
    Octet__V1__CheckResponse *response = (Octet__V1__CheckResponse *)message;
    findings.title = request_title(session);
    findings.summary = sum_up(session->arena, response->trace);
    if (!findings.title || !findings.summary || !make_room(session->arena, response)) {
        octet_arena_exhausted(session->arena, &err);
        return report(session, &err);
    }
    findings.items = response->findings;
    findings.count = response->n_findings;
    if (session->arguments->lock && response->trace &&
        add_lock(session, response, &findings, &err) != OCTET_OK)
        return report(session, &err);
    print(session, &findings, response);
    return findings_failing(&findings) ? EXIT_FOUND : EXIT_FINE;
}
