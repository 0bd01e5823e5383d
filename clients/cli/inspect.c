/* octet inspect and octet plan: two views of one answer. */
#include <stdio.h>
#include <string.h>

#include "view.h"
#include "wire/convert.h"
#include "wire/methods.h"

static const char *with_commas(octet_arena *arena, int64_t value)
{
    char digits[32], text[48];
    size_t used = 0;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    return octet_arena_copy(arena, text, used);
}

static int64_t elements_of(const Octet__V1__Parameter *parameter)
{
    int64_t count = 1;

    for (size_t i = 0; i < parameter->n_shape; i++)
        if (__builtin_mul_overflow(count, parameter->shape[i], &count))
            return INT64_MAX;
    return count;
}

static bool add_parameter(struct table *table, octet_arena *arena, const Octet__V1__Parameter *p)
{
    char bytes[32];
    const char *cells[] = {
        p->name,
        p->dtype ? octet_dtype_name((enum octet_dtype)p->dtype) : "-",
        view_shape(arena, p->shape, p->n_shape),
        with_commas(arena, elements_of(p)),
        octet_arena_format(arena, "%s", human_bytes(p->bytes, bytes)),
    };

    return table_add(table, cells, COLOUR_NONE);
}

static bool print_parameters(octet_arena *arena, const Octet__V1__InspectResponse *response,
                             struct output *out)
{
    static const struct column columns[] = {
        {"PARAMETER", false}, {"DTYPE", false}, {"SHAPE", false}, {"COUNT", true}, {"BYTES", true}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    char bytes[32];

    if (!table)
        return false;
    for (size_t i = 0; i < response->n_parameters; i++)
        if (!add_parameter(table, arena, response->parameters[i]))
            return false;
    const char *total[] = {
        octet_arena_format(arena, "total: %zu arrays", response->n_parameters),
        "",
        "",
        with_commas(arena, response->parameter_count),
        octet_arena_format(arena, "%s", human_bytes(response->parameter_bytes, bytes)),
    };
    if (!table_add(table, total, COLOUR_BOLD))
        return false;
    table_print(table, out);
    return true;
}

/* A line of the plan: its name, a value in people's units and in full, and what it is. */
static bool add_line(struct table *table, octet_arena *arena, const char *name, bool bytes,
                     int64_t value, const char *note, bool total)
{
    char text[32];

    bytes ? human_bytes(value, text) : human_count(value, text);
    const char *cells[] = {name, octet_arena_format(arena, "%s", text), with_commas(arena, value),
                           note};
    return table_add(table, cells, total ? COLOUR_BOLD : COLOUR_NONE);
}

/* Of a model that can be traced but not run: its sizes, without what an execution would add. */
static Octet__V1__SessionMemory estimate_memory(const Octet__V1__InspectResponse *r)
{
    Octet__V1__SessionMemory out = OCTET__V1__SESSION_MEMORY__INIT;
    const int64_t parts[] = {r->parameter_bytes, r->gradient_bytes, r->optimizer_bytes,
                             r->activation_bytes};

    out.parameters = parts[0];
    out.gradients = parts[1];
    out.moments = parts[2];
    out.activations = parts[3];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (__builtin_add_overflow(out.peak, parts[i], &out.peak))
            out.peak = INT64_MAX;
    return out;
}

static bool print_memory(octet_arena *arena, const Octet__V1__InspectResponse *r, bool infer,
                         struct output *out)
{
    static const struct column columns[] = {
        {"MEMORY", false}, {"", true}, {"BYTES", true}, {"", false}};
    const Octet__V1__SessionMemory estimate = estimate_memory(r),
                                   *m = r->memory ? r->memory : &estimate;
    const struct {
        const char *name, *note;
        int64_t value;
        bool is_of_training;
    } rows[] = {
        {"parameters",
         octet_arena_format(arena, "%s values", with_commas(arena, r->parameter_count)),
         m->parameters, false},
        {"gradients", "", m->gradients, true},
        {"optimizer", "AdamW: two moments of each value", m->moments, true},
        {"activations",
         infer ? "values, at the peak" : "values, gradients and what backward needs, at the peak",
         m->activations, false},
        {"scratch", "of the op that needs most", m->scratch, false},
    };
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    bool good = table != NULL;

    for (size_t i = 0; good && i < sizeof rows / sizeof *rows; i++)
        if ((!infer || !rows[i].is_of_training) && (rows[i].value || r->memory))
            good = add_line(table, arena, rows[i].name, true, rows[i].value, rows[i].note, false);
    good = good &&
           add_line(table, arena, "peak", true, m->peak,
                    octet_arena_format(arena, "in a %s of %lld x %lld tokens",
                                       infer ? "forward pass" : "training step",
                                       (long long)r->batch_size, (long long)r->sequence_length),
                    true) &&
           (!m->resident || add_line(table, arena, "between calls", true, m->resident, "", false));
    if (good)
        table_print(table, out);
    return good;
}

static bool print_work(octet_arena *arena, const Octet__V1__InspectResponse *r, bool infer,
                       const Octet__V1__Coverage *coverage, struct output *out)
{
    static const struct column columns[] = {
        {"WORK", false}, {"", true}, {"FLOPS", true}, {"", false}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    char share[32];
    int64_t both;
    bool good = table && add_line(table, arena, "forward", false, r->flops_forward,
                                  octet_arena_format(arena, "%s quantized",
                                                     human_share(coverage->flops_quantized,
                                                                 coverage->flops_total, share)),
                                  infer);

    if (__builtin_add_overflow(r->flops_forward, r->flops_backward, &both))
        both = INT64_MAX;
    if (!infer)
        good = good &&
               add_line(table, arena, "backward", false, r->flops_backward, "two products for each",
                        false) &&
               add_line(table, arena, "step", false, both, "nothing is recomputed", true);
    if (good)
        table_print(table, out);
    return good;
}

/* The parts of the model. */
static bool print_parts(octet_arena *arena, const Octet__V1__Coverage *coverage, struct output *out)
{
    static const struct column columns[] = {{"PART", false},
                                            {"FLOPS FORWARD", true},
                                            {"QUANTIZED", true},
                                            {"WEIGHTS", true},
                                            {"QUANTIZED", true}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);

    for (size_t i = 0; table && i < coverage->n_by_block; i++) {
        const Octet__V1__CoverageBlock *b = coverage->by_block[i];
        char flops[32], weights[32], share[2][32];
        const char *cells[] = {
            b->block, octet_arena_format(arena, "%s", human_count(b->flops_total, flops)),
            octet_arena_format(arena, "%s",
                               human_share(b->flops_quantized, b->flops_total, share[0])),
            octet_arena_format(arena, "%s", human_bytes(b->weight_bytes_total, weights)),
            octet_arena_format(
                arena, "%s",
                human_share(b->weight_bytes_quantized, b->weight_bytes_total, share[1]))};
        if (!table_add(table, cells, COLOUR_NONE))
            return false;
    }
    if (table)
        table_print(table, out);
    return table != NULL;
}

static enum octet_status ask(struct session *session, Octet__V1__InspectResponse **out,
                             struct octet_error *err)
{
    Octet__V1__InspectRequest request = OCTET__V1__INSPECT_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status = request_model(session, false, &request.model, err);

    request.batch_size = session->arguments->batch;
    request.sequence_length = session->arguments->sequence;
    if (session->arguments->infer)
        request.mode = OCTET__V1__SESSION_MODE__SESSION_MODE_INFER;
    if (status == OCTET_OK)
        status = session_call(session, "Inspect", &request.base, &message, err);
    if (status == OCTET_OK)
        *out = (Octet__V1__InspectResponse *)message;
    return status;
}

static int no_memory(struct session *session)
{
    struct octet_error err = {0};

    octet_arena_exhausted(session->arena, &err);
    return report(session, &err);
}

int run_inspect(struct session *session)
{
    Octet__V1__InspectResponse *response;
    struct octet_error err = {0};

    if (ask(session, &response, &err) != OCTET_OK)
        return report(session, &err);
    if (session->arguments->json)
        (void)octet_wire_json(&response->base, output_json, session->out); /* it keeps the error */
    else if (!print_parameters(session->arena, response, session->out))
        return no_memory(session);
    return EXIT_FINE;
}

static enum octet_status ask_coverage(struct session *session, Octet__V1__Coverage **out,
                                      struct octet_error *err)
{
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status = request_model(session, false, &request.model, err);

    request.batch_size = session->arguments->batch;
    request.sequence_length = session->arguments->sequence;
    if (status == OCTET_OK)
        status = session_call(session, "Trace", &request.base, &message, err);
    if (status == OCTET_OK)
        *out = ((Octet__V1__TraceResponse *)message)->trace->coverage;
    return status;
}

static bool print_plan(struct session *session, const Octet__V1__InspectResponse *response,
                       const Octet__V1__Coverage *coverage)
{
    bool infer = session->arguments->infer;

    if (response->obstacle[0]) {
        fputs("octet: warning: Octet cannot run this model: ", stderr);
        print_safe(response->obstacle);
        fputs("; the sizes are those of the plain graph\n", stderr);
    }
    if (!print_memory(session->arena, response, infer, session->out))
        return false;
    output_text(session->out, "\n");
    if (!print_work(session->arena, response, infer, coverage, session->out))
        return false;
    output_text(session->out, "\n");
    return print_parts(session->arena, coverage, session->out);
}

int run_plan(struct session *session)
{
    Octet__V1__InspectResponse *response;
    Octet__V1__Coverage *coverage = NULL;
    struct octet_error err = {0};
    enum octet_status status = ask(session, &response, &err);

    if (status == OCTET_OK && session->arguments->json) {
        (void)octet_wire_json(&response->base, output_json, session->out);
        return EXIT_FINE;
    }
    if (status == OCTET_OK)
        status = ask_coverage(session, &coverage, &err);
    if (status != OCTET_OK)
        return report(session, &err);
    return print_plan(session, response, coverage) ? EXIT_FINE : no_memory(session);
}
