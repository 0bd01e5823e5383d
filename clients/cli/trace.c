/* octet trace: lines, table, coverage, JSON, and what differs from a second config. */
#include <stdio.h>
#include <string.h>

#include "view.h"
#include "wire/convert.h"
#include "wire/methods.h"

static void print_lines(const Octet__V1__Trace *trace, struct output *out)
{
    char line[4096];

    for (size_t i = 0; i < trace->n_interceptions; i++) {
        if (!view_is_line(trace->interceptions[i]))
            continue;
        output_write(out, line, view_line(trace->interceptions[i], line, sizeof line));
        output_write(out, "\n", 1);
    }
}

static bool add_matmul(struct table *table, octet_arena *arena, const Octet__V1__Trace *trace,
                       const Octet__V1__Interception *x)
{
    char flops[32], bytes[32];
    const char *cells[] = {
        x->module[0] ? x->module : "(root)",
        x->op,
        view_rule(arena, trace, x->rule),
        view_shape(arena, x->lhs_shape, x->n_lhs_shape),
        view_shape(arena, x->rhs_shape, x->n_rhs_shape),
        view_shape(arena, x->out_shape, x->n_out_shape),
        octet_arena_format(arena, "%lld", (long long)x->count),
        octet_arena_format(arena, "%s", human_count(x->flops, flops)),
        octet_arena_format(arena, "%s", human_bytes(x->weight_bytes, bytes)),
    };

    return table_add(table, cells, x->rule < 0 ? COLOUR_DIM : COLOUR_NONE);
}

static bool print_table(octet_arena *arena, const Octet__V1__Trace *trace, struct output *out)
{
    static const struct column columns[] = {{"MODULE", false}, {"OP", false},   {"RULE", false},
                                            {"LHS", false},    {"RHS", false},  {"OUT", false},
                                            {"COUNT", true},   {"FLOPS", true}, {"WEIGHTS", true}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);

    if (!table)
        return false;
    for (size_t i = 0; i < trace->n_interceptions; i++)
        if (!add_matmul(table, arena, trace, trace->interceptions[i]))
            return false;
    table_print(table, out);
    return true;
}

/* A bar of `cells` characters, in eighths. */
static const char *bar(octet_arena *arena, int64_t part, int64_t whole)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    enum { CELLS = 20 };
    double share = whole > 0 && whole < INT64_MAX ? (double)part / (double)whole : 0;
    int filled = (int)(share * CELLS * 8 + 0.5);
    char text[CELLS * 4 + 1];
    size_t used = 0;

    for (int i = 0; i < CELLS; i++) {
        int rest = filled - 8 * i;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s",
                                 rest >= 8  ? "█"
                                 : rest > 0 ? eighths[rest]
                                            : "·");
    }
    return octet_arena_copy(arena, text, used);
}

static bool add_coverage(struct table *table, octet_arena *arena, const char *block,
                         const int64_t figures[4], enum colour colour)
{
    char share[2][32], part[2][32], whole[2][32];

    human_count(figures[0], part[0]);
    human_count(figures[1], whole[0]);
    human_bytes(figures[2], part[1]);
    human_bytes(figures[3], whole[1]);
    const char *cells[] = {
        block,
        octet_arena_format(arena, "%s", human_share(figures[0], figures[1], share[0])),
        bar(arena, figures[0], figures[1]),
        octet_arena_format(arena, "%s of %s", part[0], whole[0]),
        octet_arena_format(arena, "%s", human_share(figures[2], figures[3], share[1])),
        bar(arena, figures[2], figures[3]),
        octet_arena_format(arena, "%s of %s", part[1], whole[1]),
    };
    return table_add(table, cells, colour);
}

static bool print_coverage(octet_arena *arena, const Octet__V1__Trace *trace, struct output *out)
{
    static const struct column columns[] = {{"BLOCK", false}, {"FLOPS", true},   {"", false},
                                            {"", true},       {"WEIGHTS", true}, {"", false},
                                            {"", true}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    const Octet__V1__Coverage *c = trace->coverage;

    if (!table)
        return false;
    if (c) {
        const int64_t total[4] = {c->flops_quantized, c->flops_total, c->weight_bytes_quantized,
                                  c->weight_bytes_total};
        if (!add_coverage(table, arena, "total", total, COLOUR_BOLD))
            return false;
    }
    for (size_t i = 0; c && i < c->n_by_block; i++) {
        const Octet__V1__CoverageBlock *b = c->by_block[i];
        const int64_t figures[4] = {b->flops_quantized, b->flops_total, b->weight_bytes_quantized,
                                    b->weight_bytes_total};
        if (!add_coverage(table, arena, b->block[0] ? b->block : "(root)", figures, COLOUR_NONE))
            return false;
    }
    table_print(table, out);
    output_text(out, "\nFLOPs of the matmuls of one forward pass; weights in bytes as stored\n");
    return true;
}

/* Titles of the two columns: what the second config was given, where that is short enough to say
 * it. */
static const char *against_title(octet_arena *arena, const struct arguments *a)
{
    const char *title = a->against_model ? a->against_model : "";

    for (size_t i = 0; title && i < a->against_overrides.count; i++)
        title = octet_arena_format(arena, "%s%s%s", title, title[0] ? " " : "",
                                   a->against_overrides.items[i]);
    return title && strlen(title) <= 48 ? title : "AGAINST";
}

static bool print_differences(octet_arena *arena, const struct arguments *a,
                              const Octet__V1__TraceResponse *response, struct output *out)
{
    const struct column columns[] = {
        {"MODULE", false}, {"OP", false}, {"HERE", false}, {against_title(arena, a), false}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);

    if (!table)
        return false;
    if (response->n_differences == 0) {
        fputs("octet: no difference\n", stderr);
        return true;
    }
    for (size_t i = 0; i < response->n_differences; i++) {
        const Octet__V1__Difference *d = response->differences[i];
        bool here = d->kind != OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_ONLY_AGAINST;
        bool there = d->kind != OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_ONLY_HERE;
        const char *cells[] = {
            d->module[0] ? d->module : "(root)",
            d->op,
            here ? view_rule(arena, response->trace, d->rule) : "-",
            there ? view_rule(arena, response->against, d->against_rule) : "-",
        };
        if (!table_add(table, cells, COLOUR_NONE))
            return false;
    }
    table_print(table, out);
    return true;
}

/* An empty listing is what MaxText would log, and no answer to a person. */
static void explain_nothing(const Octet__V1__Trace *trace)
{
    for (size_t i = 0; i < trace->n_interceptions; i++)
        if (trace->interceptions[i]->looked_up)
            return;
    fprintf(stderr,
            "octet: nothing is intercepted, so Qwix would log nothing (is quantization set?); "
            "--table lists every matmul\n");
}

static bool print_response(struct session *session, const Octet__V1__TraceResponse *response)
{
    const struct arguments *a = session->arguments;
    struct output *out = session->out;

    if (a->json)
        return octet_wire_json(&response->base, output_json, out) || out->error;
    view_warn_unused(response->trace);
    if (a->coverage) {
        bool good = print_coverage(session->arena, response->trace, out);
        if (good && response->against) {
            output_printf(out, "\nagainst %s\n", against_title(session->arena, a));
            good = print_coverage(session->arena, response->against, out);
        }
        return good;
    }
    if (response->against)
        return print_differences(session->arena, a, response, out);
    if (a->table)
        return print_table(session->arena, response->trace, out);
    explain_nothing(response->trace);
    print_lines(response->trace, out);
    return true;
}

static enum octet_status make_request(struct session *session, Octet__V1__TraceRequest *request,
                                      struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    enum octet_status status = request_model(session, false, &request->model, err);

    if (status == OCTET_OK && a->compare)
        status = request_model(session, true, &request->against, err);
    if (status == OCTET_OK)
        status = request_rules(session, &request->n_rules, &request->rules, err);
    request->strict = a->strict;
    request->batch_size = a->batch;
    request->sequence_length = a->sequence;
    return status;
}

int run_trace(struct session *session)
{
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    ProtobufCMessage *message;
    struct octet_error err = {0};

    if (session->arguments->compare && session->arguments->table) {
        octet_fail(&err, OCTET_INVALID_ARGUMENT, NULL,
                   "options --against and --table exclude each other");
        return report(session, &err);
    }
    if (make_request(session, &request, &err) != OCTET_OK ||
        session_call(session, "Trace", &request.base, &message, &err) != OCTET_OK)
        return report(session, &err);
    const Octet__V1__TraceResponse *response = (const Octet__V1__TraceResponse *)message;
    if (!response->trace) {
        octet_fail(&err, OCTET_INTERNAL, NULL, "the reply has no trace");
        return report(session, &err);
    }
    if (!print_response(session, response)) {
        octet_arena_exhausted(session->arena, &err);
        return report(session, &err);
    }
    return EXIT_FINE;
}
