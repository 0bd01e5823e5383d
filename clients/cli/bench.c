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
    row->count = 0;
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
        } else if (!print_table(bench)) {
            octet_arena_exhausted(session->arena, &err);
            return report(session, &err);
        }
        return EXIT_FINE;
    }
    fputs("octet bench: the benchmark is '", stderr);
    print_safe(topic ? topic : "");
    fputs("', expected gemm, quantize or rpc\n", stderr);
    return EXIT_FAILED;
}
