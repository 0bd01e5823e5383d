/* octet bench: what was measured, as a table or as JSON; see bench.h. */
#include "bench.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "progress.h"

void bench_text(struct bench_row *row, const char *name, const char *title, const char *text)
{
    assert(row->count < BENCH_VALUES_MAX);
    row->values[row->count++] = (struct bench_value){.name = name, .title = title, .text = text};
}

void bench_number(struct bench_row *row, const char *name, const char *title, double number,
                  int digits)
{
    assert(row->count < BENCH_VALUES_MAX);
    row->values[row->count++] =
        (struct bench_value){.name = name, .title = title, .number = number, .digits = digits};
}

struct bench_row *bench_add(struct bench *bench)
{
    assert(bench->count < BENCH_ROWS_MAX);
    struct bench_row *row = &bench->rows[bench->count++];
    *row = (struct bench_row){0};
    return row;
}

static void print_json_times(struct output *out, const struct bench_row *row)
{
    if (!row->times)
        return;
    output_text(out, ",\n     \"ops\": [");
    for (size_t i = 0; i < row->time_count; i++) {
        output_printf(out, "%s{\"op\": ", i ? ", " : "");
        json_text(out, row->times[i].op);
        output_text(out, ", \"forward_ms\": ");
        json_number(out, row->times[i].forward_ms);
        output_text(out, ", \"backward_ms\": ");
        json_number(out, row->times[i].backward_ms);
        output_text(out, "}");
    }
    output_text(out, "]");
}

static void print_json(const struct bench *bench)
{
    struct output *out = bench->session->out;

    bench_print_machine(bench);
    output_text(out, ",\n  \"rows\": [");
    for (size_t r = 0; r < bench->count; r++) {
        const struct bench_row *row = &bench->rows[r];
        output_text(out, r ? ",\n    {" : "\n    {");
        for (size_t v = 0; v < row->count; v++) {
            const struct bench_value *value = &row->values[v];
            output_printf(out, "%s\"%s\": ", v ? ", " : "", value->name);
            if (value->text)
                json_text(out, value->text);
            else if (isnan(value->number))
                output_text(out, "null");
            else
                json_number(out, value->number);
        }
        print_json_times(out, row);
        output_text(out, "}");
    }
    output_text(out, "\n  ]\n}\n");
}

static const char *cell(octet_arena *arena, const struct bench_value *value)
{
    if (value->text)
        return value->text;
    return isnan(value->number) ? "-"
                                : octet_arena_format(arena, "%.*f", value->digits, value->number);
}

static bool print_table(const struct bench *bench)
{
    octet_arena *arena = bench->session->arena;
    struct column columns[BENCH_VALUES_MAX];
    const struct bench_row *first = &bench->rows[0];
    size_t count = 0;

    for (size_t v = 0; v < first->count; v++)
        if (first->values[v].title)
            columns[count++] =
                (struct column){first->values[v].title, first->values[v].text == NULL};
    struct table *table = table_create(arena, columns, count);
    for (size_t r = 0; table && r < bench->count; r++) {
        const char *cells[BENCH_VALUES_MAX];
        size_t used = 0;
        for (size_t v = 0; v < bench->rows[r].count; v++)
            if (bench->rows[r].values[v].title)
                cells[used++] = cell(arena, &bench->rows[r].values[v]);
        if (!table_add(table, cells, COLOUR_NONE))
            return false;
    }
    if (table)
        table_print(table, bench->session->out);
    return table != NULL;
}

static int by_time(const void *a, const void *b)
{
    const struct bench_time *x = a, *y = b;
    double first = x->forward_ms + x->backward_ms, second = y->forward_ms + y->backward_ms;

    return (first < second) - (first > second);
}

/* Where the time of a row went, the most first; what is below a thousandth is left out. */
static bool print_times(const struct bench *bench, const struct bench_row *row)
{
    static const struct column columns[] = {
        {"OP", false}, {"FORWARD ms", true}, {"BACKWARD ms", true}, {"SHARE", true}};
    octet_arena *arena = bench->session->arena;
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    double sum = 0;

    qsort(row->times, row->time_count, sizeof *row->times, by_time);
    for (size_t i = 0; i < row->time_count; i++)
        sum += row->times[i].forward_ms + row->times[i].backward_ms;
    for (size_t i = 0; table && i < row->time_count; i++) {
        const struct bench_time *t = &row->times[i];
        double share = (t->forward_ms + t->backward_ms) / sum;
        const char *cells[] = {t->op, octet_arena_format(arena, "%.3f", t->forward_ms),
                               octet_arena_format(arena, "%.3f", t->backward_ms),
                               octet_arena_format(arena, "%.1f %%", 100 * share)};
        if (share >= 0.001 && !table_add(table, cells, COLOUR_NONE))
            return false;
    }
    if (!table)
        return false;
    output_printf(bench->session->out, "\nby op, the least of some steps of %s %s %s:\n",
                  row->values[0].text, row->values[1].text, row->values[2].text);
    table_print(table, bench->session->out);
    return true;
}

static bool print_tables(const struct bench *bench)
{
    bool good = print_table(bench);

    for (size_t r = 0; good && r < bench->count; r++)
        good = !bench->rows[r].times || print_times(bench, &bench->rows[r]);
    return good;
}

/* Who takes part in what is compared. */
enum { WITH_SETS = 1, WITH_BLAS = 2, WITH_PEAKS = 4 };

static const struct kind {
    const char *name;
    enum octet_status (*run)(struct bench *bench, struct octet_error *err);
    unsigned with;
    const char *options; /* that it reads */
    const char *about;   /* NULL: run says it */
} kinds[] = {
    {"gemm", bench_gemm, WITH_SETS | WITH_BLAS | WITH_PEAKS,
     "shape dtype layout kernels core cold runs threads backend", NULL},
    {"gemv", bench_gemv, WITH_SETS | WITH_BLAS | WITH_PEAKS,
     "shape dtype layout kernels core cold runs threads", NULL},
    {"gmm", bench_gmm, WITH_SETS | WITH_BLAS | WITH_PEAKS,
     "shape experts top dtype layout kernels core cold runs threads backend", NULL},
    {"vjp", bench_vjp, WITH_SETS | WITH_BLAS | WITH_PEAKS,
     "shape dtype kernels core cold runs threads backend", NULL},
    {"quantize", bench_quantize, WITH_SETS | WITH_PEAKS,
     "shape dtype kernels cold runs threads backend", NULL},
    {"peaks", bench_list_peaks, WITH_PEAKS, "threads", NULL},
    {"step", bench_step, 0, "model arm dtype runs threads",
     "step: a training step and a forward pass of small DeepSeek models with an MTP layer: tiny "
     "287 thousand\n"
     "parameters and 2 x 32 tokens, med 20.4 million and 4 x 128; medians\n"
     "peer: MaxText on JAX 0.10.2 with Qwix 0.1.8, recorded on two cores of an AMD EPYC "
     "(scripts/bench-jax\n"
     "measures it here); ratio: its step over ours\n"},
    {"rpc", bench_rpc, 0, "server",
     "rpc: calls to the daemon; peer: a bare gRPC server that echoes 64 bytes, or takes 64 MiB; or "
     "the same call\n"
     "in this process, one after another. ratio: its time over ours, LEAST of the turns; us: a "
     "whole call\n"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* "shape dtype": is it one of the words? */
static bool is_word(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = words; *at; at += at[0] == ' ') {
        size_t next = strcspn(at, " ");
        if (next == length && memcmp(at, word, length) == 0)
            return true;
        at += next;
    }
    return false;
}

/* "--shape, --dtype" of "shape dtype"; NULL: no memory. */
static const char *list_options(octet_arena *arena, const char *words)
{
    const char *text = "";

    for (const char *at = words; text && *at; at += at[0] == ' ') {
        int length = (int)strcspn(at, " ");
        text = octet_arena_format(arena, "%s%s--%.*s", text, text[0] ? ", " : "", length, at);
        at += length;
    }
    return text;
}

/* One option leaves another nothing to say. */
static enum octet_status check_pairs(const struct arguments *a, struct octet_error *err)
{
    const char *with = a->backend ? "--backend" : a->threads > 1 ? "--threads" : NULL;

    if (a->core && with)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --core has no effect with %s, where OpenBLAS takes no part",
                          with);
    if (a->backend && a->kernels && strchr(a->kernels, ','))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --kernels: '%s': beside --backend runs one set", a->kernels);
    return OCTET_OK;
}

/* An option that the kind would not read was meant for another. */
static enum octet_status check_options(const struct session *session, const struct kind *kind,
                                       struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    const struct {
        const char *name;
        bool is_given;
    } given[] = {{"shape", a->shapes.count > 0},
                 {"dtype", a->dtype != NULL},
                 {"layout", a->layout != NULL},
                 {"kernels", a->kernels != NULL},
                 {"core", a->core != NULL},
                 {"cold", a->cold},
                 {"runs", a->runs > 0},
                 {"threads", a->threads > 0},
                 {"experts", a->experts > 0},
                 {"top", a->top > 0},
                 {"model", a->bench_model != NULL},
                 {"arm", a->arm != NULL},
                 {"backend", a->backend != NULL},
                 {"server", a->server != NULL}};

    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].is_given && !is_word(kind->options, given[i].name)) {
            const char *list = list_options(session->arena, kind->options);
            return !list ? octet_arena_exhausted(session->arena, err)
                         : octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                                      "option --%s has no effect on %s, which takes %s",
                                      given[i].name, kind->name, list);
        }
    return check_pairs(a, err);
}

static enum octet_status make_sweep(struct bench *bench, struct octet_error *err)
{
    long largest = bench_cache_bytes(3) ? bench_cache_bytes(3) : 32L << 20;

    bench->sweep_bytes = 2 * (size_t)largest;
    bench->sweep = octet_arena_alloc_unset(bench->session->arena, bench->sweep_bytes);
    if (!bench->sweep)
        return octet_arena_exhausted(bench->session->arena, err);
    memset(bench->sweep, 1, bench->sweep_bytes);
    return OCTET_OK;
}

static enum octet_status run_kind(struct bench *bench, const struct kind *kind,
                                  struct octet_error *err)
{
    const struct arguments *a = bench->session->arguments;
    enum octet_status status = check_options(bench->session, kind, err);

    bench->threads = a->threads ? (int32_t)a->threads : 1;
    bench->cold = a->cold;
    bench->about = kind->about;
    bench->peaks.read_gbytes_per_s = NAN;
    if (status == OCTET_OK)
        status = bench_open_backend(bench, err);
    if (status == OCTET_OK && (kind->with & WITH_SETS))
        status = bench_open_sets(bench, err);
    if (status == OCTET_OK && (kind->with & WITH_BLAS))
        status = bench_open_peers(bench, err);
    if (status == OCTET_OK && bench->cold)
        status = make_sweep(bench, err);
    if (kind->with)
        progress_start(octet_arena_format(bench->session->arena, "bench %s", kind->name));
    if (status == OCTET_OK && (kind->with & WITH_PEAKS))
        status = bench_measure_peaks(bench, err);
    if (status == OCTET_OK)
        status = kind->run(bench, err);
    if (kind->with)
        progress_end();
    bench_close(bench);
    return status;
}

static int unknown_kind(const char *topic)
{
    fputs("octet bench: ", stderr);
    if (topic) {
        fputs("there is no benchmark '", stderr);
        print_safe(topic);
        fputs("'", stderr);
    } else {
        fputs("no benchmark is named", stderr);
    }
    fputs("; expected ", stderr);
    for (size_t i = 0; i < KINDS; i++)
        fprintf(stderr, "%s%s", kinds[i].name, i + 2 < KINDS ? ", " : i + 1 < KINDS ? " or " : "");
    fputc('\n', stderr);
    return EXIT_FAILED;
}

int run_bench(struct session *session)
{
    const char *topic = session->arguments->topic;
    struct octet_error err = {0};
    size_t i = 0;

    while (i < KINDS && (!topic || strcmp(topic, kinds[i].name) != 0))
        i++;
    if (i == KINDS)
        return unknown_kind(topic);
    struct bench *bench = OCTET_NEW(session->arena, struct bench);
    if (!bench) {
        octet_arena_exhausted(session->arena, &err);
        return report(session, &err);
    }
    bench->session = session;
    if (run_kind(bench, &kinds[i], &err) != OCTET_OK)
        return report(session, &err);
    if (session->arguments->json) {
        print_json(bench);
        return EXIT_FINE;
    }
    if (bench->about)
        output_text(session->out, bench->about);
    if (bench->device)
        output_printf(session->out, "device: %s; %s\n", bench->device, bench->driver);
    bench_print_peaks(bench);
    output_text(session->out, "\n");
    if (print_tables(bench))
        return EXIT_FINE;
    octet_arena_exhausted(session->arena, &err);
    return report(session, &err);
}
