/* octet bench: what was measured, as a table or as JSON; see bench.h. */
#include "bench.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"

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

void bench_fill(float *to, size_t count, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) { /* four uniform numbers make a bell */
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        to[i] = sum;
    }
}

/* "model name : AMD EPYC ..." of Linux; "" where there is none. */
static void cpu_name(char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];

    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon || colon[1] != ' ')
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 2);
    }
    if (file)
        fclose(file);
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
    char name[256];

    cpu_name(name, sizeof name);
    output_text(out, "{\n  \"machine\": {\n    \"cpu\": ");
    json_text(out, name);
    output_printf(out, ",\n    \"cpus\": %ld,\n    \"cpu_features\": [",
                  sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; octet_cpu_feature(i); i++)
        output_printf(out, "%s\"%s\"", i ? ", " : "", octet_cpu_feature(i));
    output_printf(out,
                  "],\n    \"version\": \"%s\",\n    \"git_commit\": \"%s\"\n  },\n  \"rows\": [",
                  octet_version(), octet_git_commit());
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

int run_bench(struct session *session)
{
    static const struct {
        const char *name;
        enum octet_status (*run)(struct bench *bench, struct octet_error *err);
        const char *about; /* above the table */
    } kinds[] = {
        {"gemm", bench_gemm,
         "float8_e4m3fn [M, K] x [K, N] to float32, row-major, with a scale for each row and each "
         "column\n"
         "peer: sgemm, float32, row-major; one thread each; a multiply-add counts as 2\n"
         "of each shape the fastest kernels beside the faster peer come first\n\n"},
        {"quantize", bench_quantize,
         "[M, K], row-major, to float8_e4m3fn with a scale for each row\n"
         "peer: memcpy of the same array; one thread each; GB/s counts the bytes of the array, "
         "which are read\n\n"},
        {"step", bench_step,
         "a training step and a forward pass of small DeepSeek models with an MTP layer: tiny 287 "
         "thousand\n"
         "parameters and 2 x 32 tokens, med 20.4 million and 4 x 128; medians\n"
         "peer: MaxText on JAX 0.10.2 with Qwix 0.1.8, recorded on two cores of an AMD EPYC "
         "(scripts/bench-jax\n"
         "measures it here); ratio: its step over ours\n\n"},
        {"rpc", bench_rpc,
         "calls one after another; peer: the same in this process\n"
         "us: microseconds of a whole call; MB/s counts the bytes of its request\n\n"},
    };
    const char *topic = session->arguments->topic;
    struct octet_error err = {0};

    for (size_t i = 0; topic && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(topic, kinds[i].name) != 0)
            continue;
        struct bench *bench = OCTET_NEW(session->arena, struct bench);
        if (!bench) {
            octet_arena_exhausted(session->arena, &err);
            return report(session, &err);
        }
        bench->session = session;
        if (kinds[i].run(bench, &err) != OCTET_OK)
            return report(session, &err);
        if (!session->arguments->json)
            output_text(session->out, kinds[i].about);
        if (session->arguments->json) {
            print_json(bench);
        } else if (!print_tables(bench)) {
            octet_arena_exhausted(session->arena, &err);
            return report(session, &err);
        }
        return EXIT_FINE;
    }
    fputs("octet bench: the benchmark is '", stderr);
    print_safe(topic ? topic : "");
    fputs("', expected gemm, quantize, step or rpc\n", stderr);
    return EXIT_FAILED;
}
