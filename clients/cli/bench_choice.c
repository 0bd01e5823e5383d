/* What octet bench was asked to measure; see bench.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "numbers.h"

enum { PART_MAX = 16, DIMENSION_MAX = 1 << 24 };

static enum octet_status wrong(struct octet_error *err, const char *option, const char *text,
                               size_t length, const char *expected)
{
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --%s: '%.*s' is not %s", option,
                      (int)(length < 64 ? length : 64), text, expected);
}

/* "8,16" up to the next 'x' or the end. */
static bool read_part(const char **at, int32_t *list, size_t *count)
{
    *count = 0;
    for (;;) {
        size_t length = strcspn(*at, ",x");
        int64_t value;
        if (*count == PART_MAX || !number_parse(*at, length, 1, DIMENSION_MAX, &value))
            return false;
        list[(*count)++] = (int32_t)value;
        *at += length;
        if (**at != ',')
            return true;
        (*at)++;
    }
}

/* "8,16x1024x512,1024": every M with every K and N; M runs fastest, so that one N and K stay. */
static enum octet_status add_shapes(struct bench *bench, int part_count, const char *text,
                                    struct octet_error *err)
{
    int32_t parts[3][PART_MAX] = {{1}, {1}, {1}};
    size_t counts[3] = {1, 1, 1};
    const char *at = text;

    for (int p = 0; p < part_count; p++) {
        bool last = p == part_count - 1;
        if (!read_part(&at, parts[p], &counts[p]) || *at != (last ? '\0' : 'x'))
            return wrong(err, "shape", text, strlen(text),
                         part_count == 3 ? "MxKxN (128x2048x2048; each may be a list: "
                                           "1,8x2048x512,1024)"
                                         : "MxK (4096x8192; each may be a list: 1,8x1024)");
        at += !last;
    }
    if (counts[0] * counts[1] * counts[2] > BENCH_SHAPES_MAX - bench->shape_count)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --shape: '%s' makes more than %d shapes", text, BENCH_SHAPES_MAX);
    for (size_t k = 0; k < counts[1]; k++)
        for (size_t n = 0; n < counts[2]; n++)
            for (size_t m = 0; m < counts[0]; m++)
                bench->shapes[bench->shape_count++] =
                    (struct bench_shape){parts[0][m], parts[1][k], parts[2][n]};
    return OCTET_OK;
}

enum octet_status bench_dtype(const char *text, size_t length, enum octet_dtype *out,
                              struct octet_error *err)
{
    static const struct {
        const char *name;
        enum octet_dtype dtype;
    } names[] = {{"e4m3", OCTET_DTYPE_F8_E4M3FN},
                 {"e5m2", OCTET_DTYPE_F8_E5M2},
                 {"int8", OCTET_DTYPE_S8},
                 {"bf16", OCTET_DTYPE_BF16},
                 {"f32", OCTET_DTYPE_F32},
                 {"float8_e4m3fn", OCTET_DTYPE_F8_E4M3FN},
                 {"float8_e5m2", OCTET_DTYPE_F8_E5M2},
                 {"bfloat16", OCTET_DTYPE_BF16},
                 {"float32", OCTET_DTYPE_F32}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == length && memcmp(names[i].name, text, length) == 0) {
            *out = names[i].dtype;
            return OCTET_OK;
        }
    return wrong(err, "dtype", text, length, "one of e4m3, e5m2, int8, bf16, f32");
}

/* "e4m3,e4m3xe5m2,bf16" */
static enum octet_status add_pairs(struct bench *bench, const char *text, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (const char *at = text; status == OCTET_OK; at++) {
        size_t length = strcspn(at, ","), left = strcspn(at, "x,");
        enum octet_dtype *pair = bench->pairs[bench->pair_count];
        if (bench->pair_count == BENCH_PAIRS_MAX)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --dtype: more than %d pairs", BENCH_PAIRS_MAX);
        status = bench_dtype(at, left, &pair[0], err);
        pair[1] = pair[0];
        if (status == OCTET_OK && left < length)
            status = bench_dtype(at + left + 1, length - left - 1, &pair[1], err);
        bench->pair_count++;
        at += length;
        if (!*at)
            break;
    }
    return status;
}

/* One that the options' table lists; packed where none was given: it is what a session holds. */
static void choose_layouts(struct bench *bench, const char *given)
{
    static const char *const names[] = {"kn", "nk", "packed"};

    for (int i = 0; i < 3; i++)
        if (given ? strcmp(given, names[i]) == 0 || strcmp(given, "all") == 0 : i == BENCH_PACKED)
            bench->layouts[bench->layout_count++] = (enum bench_layout)i;
}

enum octet_status bench_choose(struct bench *bench, int part_count, const char *shapes,
                               const char *dtypes, struct octet_error *err)
{
    const struct arguments *a = bench->session->arguments;
    enum octet_status status = OCTET_OK;

    choose_layouts(bench, a->layout);
    for (size_t i = 0; i < a->shapes.count && status == OCTET_OK; i++)
        status = add_shapes(bench, part_count, a->shapes.items[i], err);
    if (!a->shapes.count)
        status = add_shapes(bench, part_count, shapes, err);
    return status == OCTET_OK ? add_pairs(bench, a->dtype ? a->dtype : dtypes, err) : status;
}

/* ---- kernel sets ---- */

/* Is the name in "avx2,avx512"? */
static bool is_listed(const char *list, const char *name)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        if (strlen(name) == length && memcmp(at, name, length) == 0)
            return true;
        at += length;
        if (!*at)
            return false;
    }
}

/* Each name of --kernels must be a set. */
static enum octet_status check_list(const char *list, struct octet_error *err)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ","), i = 0;
        const char *name;
        while ((name = octet_kernel_set_name(i)) &&
               (strlen(name) != length || memcmp(at, name, length) != 0))
            i++;
        if (!name)
            return wrong(err, "kernels", at, length, "a kernel set (octet info lists them)");
        if (octet_kernel_set_obstacle(i))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --kernels: '%s': %s", name,
                              octet_kernel_set_obstacle(i));
        at += length;
        if (!*at)
            return OCTET_OK;
    }
}

/* The one set beside a backend: its workers do what the host has to do, and are the peer. */
static enum octet_status open_helpers(struct bench *bench, struct octet_error *err)
{
    struct bench_set *set = &bench->sets[0];
    enum octet_status status = octet_workers_create(bench->session->arguments->kernels,
                                                    bench->threads, &set->workers, err);

    if (status != OCTET_OK)
        return status;
    set->name = octet_backend_facts(bench->backend)->name;
    bench->set_count = 1;
    snprintf(bench->backend_peer, sizeof bench->backend_peer, "cpu-%s",
             octet_workers_kernels(set->workers));
    return OCTET_OK;
}

enum octet_status bench_open_backend(struct bench *bench, struct octet_error *err)
{
    const char *given = bench->session->arguments->backend, *colon;

    if (!given)
        return OCTET_OK;
    colon = strchr(given, ':');
    const struct octet_backend_options how = {.device = colon ? colon + 1 : NULL};
    char *name = octet_arena_copy(bench->session->arena, given,
                                  colon ? (size_t)(colon - given) : strlen(given));
    if (!name)
        return octet_arena_exhausted(bench->session->arena, err);
    struct octet_error why = {.status = OCTET_OK};
    enum octet_status status = octet_backend_open(name, &how, &bench->backend, &why);
    if (status != OCTET_OK)
        return octet_fail(err, status, NULL, "option --backend: %s", why.text);
    const struct octet_backend_facts *facts = octet_backend_facts(bench->backend);
    bench->device = octet_arena_copy(bench->session->arena, facts->device, strlen(facts->device));
    bench->driver = octet_arena_copy(bench->session->arena, facts->driver, strlen(facts->driver));
    return bench->device && bench->driver ? OCTET_OK
                                          : octet_arena_exhausted(bench->session->arena, err);
}

const char *bench_peer_text(const struct bench *bench, const char *what)
{
    octet_arena *arena = bench->session->arena;

    if (bench->backend)
        return octet_arena_format(arena,
                                  "the CPU, %s, threads: %d; arrays are the host's on both sides",
                                  bench->backend_peer + strlen("cpu-"), (int)bench->threads);
    if (bench->threads > 1)
        return "the same with one thread";
    return octet_arena_format(arena, "%s of OpenBLAS on float32, one thread each", what);
}

enum octet_status bench_open_sets(struct bench *bench, struct octet_error *err)
{
    const char *list = bench->session->arguments->kernels, *name;
    enum octet_status status = list ? check_list(list, err) : OCTET_OK;

    if (status == OCTET_OK && bench->backend)
        return open_helpers(bench, err);

    for (size_t i = 0; status == OCTET_OK && (name = octet_kernel_set_name(i)); i++) {
        struct bench_set *set = &bench->sets[bench->set_count];
        if (bench->set_count == BENCH_SETS_MAX || octet_kernel_set_obstacle(i) ||
            (list && !is_listed(list, name)))
            continue;
        set->name = name;
        bench->set_count++;
        status = octet_workers_create(name, bench->threads, &set->workers, err);
        if (status == OCTET_OK && bench->threads > 1)
            status = octet_workers_create(name, 1, &set->one, err);
    }
    return status;
}

void bench_close(struct bench *bench)
{
    for (size_t i = 0; i < bench->set_count; i++) {
        octet_workers_destroy(bench->sets[i].workers);
        octet_workers_destroy(bench->sets[i].one);
    }
    octet_backend_close(bench->backend);
}

/* ---- peers ---- */

/* must: it was asked for by name. */
static enum octet_status open_peer(struct bench *bench, const char *core, bool must,
                                   struct octet_error *err)
{
    char reason[256];

    if (bench->peer_count == BENCH_PEERS_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --core: more than %d cores",
                          BENCH_PEERS_MAX);
    if (blas_open(core, &bench->peers[bench->peer_count], reason, sizeof reason)) {
        bench->peer_count++;
        return OCTET_OK;
    }
    if (must)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --core: no OpenBLAS: %s",
                          reason);
    fprintf(stderr, "octet bench: not compared with OpenBLAS: %s\n", reason);
    return OCTET_OK;
}

enum octet_status bench_open_peers(struct bench *bench, struct octet_error *err)
{
    const char *list = bench->session->arguments->core;
    enum octet_status status = OCTET_OK;

    if (bench->threads > 1 || bench->backend) /* compared with itself */
        return OCTET_OK;
    for (const char *at = list; at && status == OCTET_OK; at++) {
        size_t length = strcspn(at, ",");
        char *core = octet_arena_copy(bench->session->arena, at, length);
        if (!core)
            return octet_arena_exhausted(bench->session->arena, err);
        status = open_peer(bench, core, true, err);
        at += length;
        if (!*at)
            break;
    }
    if (list)
        return status;
    if (!bench_cpu_has("avx2"))
        return open_peer(bench, NULL, false, err);
    status = open_peer(bench, "Haswell", false, err);
    if (status == OCTET_OK && bench->peer_count && blas_has_copies() && bench_cpu_has("avx512f"))
        status =
            open_peer(bench, bench_cpu_has("avx512bf16") ? "Cooperlake" : "SkylakeX", false, err);
    return status;
}
