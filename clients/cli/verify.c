/* octet verify: a user's own Qwix log beside the trace.
 *
 * The log is whatever the run wrote: prefixes before Qwix's lines, other lines between them,
 * several processes' lines mixed. A line that comes again is counted once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "view.h"
#include "wire/convert.h"

struct log_counts {
    size_t lines, qwix;
};

enum { LINE_BYTES_MAX = 1 << 20, LINE_END = -1, LINE_TOO_LONG = -2 };

/* One line with its end into line[LINE_BYTES_MAX + 1], which may hold NULs. Its length, or
 * LINE_END, or LINE_TOO_LONG. */
static ssize_t line_read(FILE *file, char *line)
{
    ssize_t length = 0;
    int c;

    while ((c = getc_unlocked(file)) != EOF) {
        if (length == LINE_BYTES_MAX)
            return LINE_TOO_LONG;
        line[length++] = (char)c;
        if (c == '\n')
            break;
    }
    line[length] = '\0';
    return length ? length : LINE_END;
}

static enum octet_status read_log(struct session *session, struct line_list *list,
                                  struct log_counts *counts, struct octet_error *err)
{
    const char *path = session->arguments->log;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    enum octet_status status = OCTET_OK;
    char *line = octet_arena_alloc(session->arena, LINE_BYTES_MAX + 1);
    ssize_t length;

    if (!file)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot open '%s': %s", path,
                          strerror(errno));
    if (!line)
        status = octet_arena_exhausted(session->arena, err);
    while (status == OCTET_OK && (length = line_read(file, line)) >= 0) {
        enum line_found found = lines_read(list, line, (size_t)length);
        counts->lines++;
        counts->qwix += found == LINE_ADDED;
        if (found == LINE_NO_MEMORY)
            status = octet_arena_exhausted(session->arena, err);
        if (status == OCTET_OK)
            status = octet_cancel_check(session->cancel, err);
    }
    if (status == OCTET_OK)
        status =
            octet_cancel_check(session->cancel, err); /* a read that SIGINT ended is no error */
    if (status == OCTET_OK && length == LINE_TOO_LONG)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                            "line %zu of '%s' has more than %d bytes; that is no log",
                            counts->lines + 1, path, LINE_BYTES_MAX);
    if (status == OCTET_OK && ferror(file))
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot read '%s': %s", path,
                            strerror(errno));
    if (status == OCTET_OK && counts->qwix == 0)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                            "'%s' has no line of Qwix among %zu; it logs them at absl level DEBUG "
                            "(absl.logging.set_verbosity(absl.logging.DEBUG))",
                            path, counts->lines);
    if (file != stdin)
        fclose(file);
    return status;
}

static bool has_gmm(const struct line_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].op, "gmm") == 0)
            return true;
    return false;
}

static size_t count_gmm(const Octet__V1__Trace *trace)
{
    size_t count = 0;

    for (size_t i = 0; i < trace->n_interceptions; i++)
        count += view_is_line(trace->interceptions[i]) &&
                 strcmp(trace->interceptions[i]->op, "gmm") == 0;
    return count;
}

static void print_rule(struct output *out, int rule)
{
    if (rule < 0)
        output_text(out, "None");
    else
        output_printf(out, "%d", rule);
}

static bool print_difference(struct session *session, const struct line_difference *d)
{
    static const char *const words[] = {"missing", "extra", "different"};
    static const enum colour colours[] = {COLOUR_RED, COLOUR_YELLOW, COLOUR_RED};
    const struct line *line = d->expected ? d->expected : d->found;
    const char *text = line_text(session->arena, line, line->rule);
    struct output *out = session->out;

    if (!text)
        return false;
    output_printf(out, "%s%-9s%s  %s", output_colour(out, colours[d->kind]), words[d->kind],
                  output_colour(out, COLOUR_NONE), text);
    if (d->kind == LINE_CHANGED) {
        output_text(out, ", but the log has rule=");
        print_rule(out, d->found_rule);
    }
    output_text(out, "\n");
    return true;
}

/* What a log cannot show, so that nobody takes agreement for more than it is. */
static void print_limits(struct output *out, size_t gmm_left_out)
{
    if (gmm_left_out)
        output_printf(
            out,
            "not compared: %zu gmm line%s of the trace, which Qwix does not log; and what "
            "a rule does (types, calibration): the log has its number only\n",
            gmm_left_out, gmm_left_out == 1 ? "" : "s");
    else
        output_text(out, "not compared: what a rule does (types, calibration): the log has its "
                         "number only\n");
}

/* A run on an accelerator fuses attention unless told otherwise. */
static bool lacks_attention_only(const struct line_comparison *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct line *line = c->items[i].expected;
        const char *end = line ? strrchr(line->module, '/') : NULL;
        if (c->items[i].kind != LINE_MISSING || !end || strcmp(end, "/attention_op") != 0)
            return false;
    }
    return c->count > 0;
}

static bool print_comparison(struct session *session, const struct line_comparison *c,
                             const struct line_list *found, const struct log_counts *counts,
                             size_t gmm_left_out)
{
    struct output *out = session->out;

    for (size_t i = 0; i < c->count; i++)
        if (!print_difference(session, &c->items[i]))
            return false;
    if (c->out_of_order) {
        const char *text = line_text(session->arena, c->out_of_order, c->out_of_order->rule);
        if (!text)
            return false;
        output_printf(out, "order      %s stands earlier in the log than in the trace\n", text);
    }
    output_printf(
        out,
        "%zu lines agree, %zu missing in the log, %zu extra in it, %zu with another rule\n"
        "log: %zu lines, %zu of them Qwix's, %zu of those repeated\n",
        c->same, c->missing, c->extra, c->changed, counts->lines, counts->qwix, found->repeated);
    print_limits(out, gmm_left_out);
    if (lacks_attention_only(c))
        output_text(out, "hint: only attention_op lines are missing, as in a run with a fused "
                         "kernel; compare with attention=flash\n");
    return true;
}

static enum octet_status ask(struct session *session, Octet__V1__TraceResponse **out,
                             struct octet_error *err)
{
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status = request_model(session, false, &request.model, err);

    if (status == OCTET_OK)
        status = request_rules(session, &request.n_rules, &request.rules, err);
    request.batch_size = session->arguments->batch;
    request.sequence_length = session->arguments->sequence;
    if (status == OCTET_OK)
        status = session_call(session, "Trace", &request.base, &message, err);
    if (status != OCTET_OK)
        return status;
    *out = (Octet__V1__TraceResponse *)message;
    return (*out)->trace ? OCTET_OK
                         : octet_fail(err, OCTET_INTERNAL, NULL, "the reply has no trace");
}

int run_verify(struct session *session)
{
    struct line_list found, expected;
    struct log_counts counts = {0};
    struct line_comparison comparison;
    Octet__V1__TraceResponse *response;
    struct octet_error err = {0};

    lines_start(&found, session->arena);
    lines_start(&expected, session->arena);
    if (ask(session, &response, &err) != OCTET_OK ||
        read_log(session, &found, &counts, &err) != OCTET_OK)
        return report(session, &err);
    /* Qwix logs no gmm lookups; a log that has them was made with MaxText instrumented. */
    bool with_gmm = has_gmm(&found);
    if (!lines_take_trace(&expected, response->trace, with_gmm) ||
        !lines_compare(session->arena, &expected, &found, &comparison) ||
        !print_comparison(session, &comparison, &found, &counts,
                          with_gmm ? 0 : count_gmm(response->trace))) {
        octet_arena_exhausted(session->arena, &err);
        return report(session, &err);
    }
    bool ordered = !session->arguments->strict || !comparison.out_of_order;
    return comparison.count == 0 && ordered ? EXIT_FINE : EXIT_FOUND;
}
