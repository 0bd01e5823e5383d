/* octet bench gemm and quantize: the library's public functions, with each kernel set, beside a
 * peer.
 *
 * Decision: each of OpenBLAS's cores is measured in a process of its own, since OpenBLAS chooses
 * once a process; and Octet is measured again beside each, so that both sides of a ratio saw the
 * same machine. Runs alternate; of each side the best counts, which others on the machine disturb
 * least. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "blas.h"
#include "progress.h"

enum { RUNS_MIN = 3, RUNS_MAX = 40 };
static const double seconds_a_row = 0.4;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One side of a row; user is the work. */
typedef enum octet_status run_function(void *user, struct octet_error *err);

/* Best seconds of both, run in turns. peer NULL: none. */
static enum octet_status measure(run_function *run, void (*peer)(void *user), void *user,
                                 double *seconds, double *peer_seconds, struct octet_error *err)
{
    double begin = now();

    *seconds = *peer_seconds = INFINITY;
    for (int i = 0; i < RUNS_MIN || (i < RUNS_MAX && now() - begin < seconds_a_row); i++) {
        double start = now();
        enum octet_status status = run(user, err);
        double taken = now() - start;
        if (status != OCTET_OK)
            return status;
        *seconds = taken < *seconds ? taken : *seconds;
        start = now();
        if (peer)
            peer(user);
        taken = now() - start;
        if (peer)
            *peer_seconds = taken < *peer_seconds ? taken : *peer_seconds;
    }
    return OCTET_OK;
}

/* ---- gemm ---- */

/* What a child tells its parent. */
struct gemm_result {
    char kernels[24], peer[48];
    int32_t m, k, n;
    double seconds, peer_seconds; /* peer_seconds INFINITY: no peer */
};

struct gemm {
    struct octet_compute compute;
    octet_arena *inputs;
    int32_t m, k, n;
    float *a, *b, *c; /* the peer's */
    struct octet_operand lhs, rhs;
    const struct blas *blas; /* NULL: none */
};

static enum octet_status quantize(struct gemm *g, float *values, int32_t rows, int32_t columns,
                                  int32_t channel, struct octet_operand *out,
                                  struct octet_error *err)
{
    const struct octet_quantize_options how = {
        .qtype = "float8_e4m3fn", .channelwise_axes = &channel, .channelwise_axis_count = 1};
    const struct octet_array array = {
        .dtype = OCTET_DTYPE_F32, .rank = 2, .dim = {rows, columns}, .data = values};
    struct octet_compute compute = g->compute;

    compute.arena = g->inputs;
    *out = (struct octet_operand){.is_quantized = true};
    return octet_quantize(&compute, &array, &how, &out->quantized, err);
}

static enum octet_status gemm_prepare(struct gemm *g, struct octet_error *err)
{
    size_t m = (size_t)g->m, k = (size_t)g->k, n = (size_t)g->n;

    octet_arena_reset(g->inputs);
    g->a = OCTET_NEW_ARRAY(g->inputs, m * k, float);
    g->b = OCTET_NEW_ARRAY(g->inputs, k * n, float);
    g->c = OCTET_NEW_ARRAY(g->inputs, m * n, float);
    if (!g->a || !g->b || !g->c)
        return octet_arena_exhausted(g->inputs, err);
    bench_fill(g->a, m * k, 1);
    bench_fill(g->b, k * n, 2);
    enum octet_status status = quantize(g, g->a, g->m, g->k, 0, &g->lhs, err);
    return status == OCTET_OK ? quantize(g, g->b, g->k, g->n, 1, &g->rhs, err) : status;
}

static enum octet_status gemm_run(void *user, struct octet_error *err)
{
    struct gemm *g = user;
    const struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {0}};
    const struct octet_product_options how = {.weight_operand = OCTET_WEIGHT_RHS};
    struct octet_product product;

    octet_arena_reset(g->compute.arena);
    return octet_dot_general(&g->compute, &g->lhs, &g->rhs, &dims, &how, &product, err);
}

static void gemm_peer(void *user)
{
    const struct gemm *g = user;

    blas_multiply(g->blas, g->m, g->n, g->k, g->a, g->b, g->c);
}

static enum octet_status gemm_row(struct gemm *g, int fd, struct octet_error *err)
{
    struct gemm_result result = {.m = g->m, .k = g->k, .n = g->n};
    enum octet_status status = gemm_prepare(g, err);

    if (status == OCTET_OK)
        status = measure(gemm_run, g->blas ? gemm_peer : NULL, g, &result.seconds,
                         &result.peer_seconds, err);
    if (status != OCTET_OK)
        return status;
    snprintf(result.kernels, sizeof result.kernels, "%s",
             octet_workers_kernels(g->compute.workers));
    snprintf(result.peer, sizeof result.peer, "%s", g->blas ? g->blas->name : "none");
    if (write(fd, &result, sizeof result) != (ssize_t)sizeof result)
        return octet_fail(err, OCTET_INTERNAL, NULL, "the pipe to the parent is broken");
    return OCTET_OK;
}

/* Slow sets get the small shapes only: nobody waits for the others. */
static enum octet_status gemm_set(struct gemm *g, const char *set, int fd, struct octet_error *err)
{
    static const int32_t shapes[][3] = {
        {16, 1024, 1024}, {128, 512, 512}, {128, 2048, 2048}, {512, 1024, 1024}};
    enum octet_status status = octet_workers_create(set, 1, &g->compute.workers, err);
    size_t count = strcmp(set, "scalar") == 0 ? 2 : sizeof shapes / sizeof *shapes;

    if (status != OCTET_OK)
        return status;
    for (size_t i = 0; i < count && status == OCTET_OK; i++) {
        g->m = shapes[i][0];
        g->k = shapes[i][1];
        g->n = shapes[i][2];
        status = gemm_row(g, fd, err);
    }
    octet_workers_destroy(g->compute.workers);
    return status;
}

/* In the child: all kernel sets beside one core. The last thing written is the error. */
static void gemm_child(const struct session *session, const char *core, int fd)
{
    struct octet_error err = {.status = OCTET_OK};
    size_t budget = octet_arena_budget(session->arena);
    struct gemm g = {.compute = {.arena = octet_arena_create(budget), .cancel = session->cancel},
                     .inputs = octet_arena_create(budget)};
    struct blas blas;
    enum octet_status status = OCTET_OK;

    if (!g.compute.arena || !g.inputs)
        _exit(EXIT_FAILED);
    g.blas = blas_open(core, &blas, err.text, sizeof err.text) ? &blas : NULL;
    for (size_t i = 0; octet_kernel_set_name(i) && status == OCTET_OK; i++)
        if (!octet_kernel_set_obstacle(i))
            status = gemm_set(&g, octet_kernel_set_name(i), fd, &err);
    _exit(status == OCTET_OK ? EXIT_FINE : EXIT_FAILED);
}

static void gemm_take(struct bench *bench, const struct gemm_result *r)
{
    double work = 2e-9 * r->m * r->k * r->n;
    bool peer = isfinite(r->peer_seconds);
    struct bench_row *row = bench_add(bench);
    octet_arena *arena = bench->session->arena;

    bench_number(row, "ratio", "RATIO", peer ? r->peer_seconds / r->seconds : NAN, 2);
    bench_text(row, "kernels", "KERNELS", octet_arena_copy(arena, r->kernels, strlen(r->kernels)));
    bench_text(row, "peer", "PEER", octet_arena_copy(arena, r->peer, strlen(r->peer)));
    bench_number(row, "m", "M", r->m, 0);
    bench_number(row, "k", "K", r->k, 0);
    bench_number(row, "n", "N", r->n, 0);
    bench_number(row, "gflops", "GFLOP/s", work / r->seconds, 2);
    bench_number(row, "peer_gflops", "PEER'S GFLOP/s", peer ? work / r->peer_seconds : NAN, 2);
}

/* What all children told. */
struct gemm_results {
    size_t count;
    struct gemm_result list[BENCH_ROWS_MAX];
};

static int rank_of_set(const char *name)
{
    int rank = 0;

    while (octet_kernel_set_name((size_t)rank) &&
           strcmp(octet_kernel_set_name((size_t)rank), name) != 0)
        rank++;
    return rank;
}

/* By shape; of one shape the last set of the library's list, which is its fastest, comes first, and
 * of one set the faster peer. */
static int by_shape(const void *left, const void *right)
{
    const struct gemm_result *a = left, *b = right;

    if (a->m != b->m)
        return a->m < b->m ? -1 : 1;
    if (a->k != b->k)
        return a->k < b->k ? -1 : 1;
    int order = rank_of_set(b->kernels) - rank_of_set(a->kernels);
    return order ? order
                 : (a->peer_seconds > b->peer_seconds) - (a->peer_seconds < b->peer_seconds);
}

/* One child, its results, its end. */
static enum octet_status gemm_beside(struct bench *bench, const char *core,
                                     struct gemm_results *results, struct octet_error *err)
{
    struct gemm_result result;
    int ends[2], status = 0;
    ssize_t got;

    if (pipe(ends) != 0)
        return octet_fail(err, OCTET_INTERNAL, NULL, "no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        gemm_child(bench->session, core, ends[1]);
    }
    close(ends[1]);
    progress_start("bench gemm");
    while (child > 0 &&
           ((got = read(ends[0], &result, sizeof result)) > 0 || (got < 0 && errno == EINTR)))
        if (got == (ssize_t)sizeof result && results->count < BENCH_ROWS_MAX)
            results->list[results->count++] = result;
    progress_end();
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (atomic_load(&bench->session->cancel->cancelled))
        return octet_fail(err, OCTET_CANCELLED, NULL, "interrupted");
    if (child < 0 || status != 0)
        return octet_fail(err, OCTET_INTERNAL, NULL, "the measuring process failed");
    return OCTET_OK;
}

static bool has_feature(const char *name)
{
    for (size_t i = 0; octet_cpu_feature(i); i++)
        if (strcmp(octet_cpu_feature(i), name) == 0)
            return true;
    return false;
}

enum octet_status bench_gemm(struct bench *bench, struct octet_error *err)
{
    static const struct {
        const char *feature, *core; /* OpenBLAS's names */
    } cores[] = {{"avx2", "Haswell"}, {"avx512f", "SkylakeX"}};
    struct gemm_results *results = OCTET_NEW(bench->session->arena, struct gemm_results);
    enum octet_status status = OCTET_OK;
    bool any = false;

    if (!results)
        return octet_arena_exhausted(bench->session->arena, err);
    for (size_t i = 0; i < sizeof cores / sizeof *cores && status == OCTET_OK; i++)
        if (has_feature(cores[i].feature)) {
            any = true;
            status = gemm_beside(bench, cores[i].core, results, err);
        }
    if (!any)
        status = gemm_beside(bench, NULL, results, err);
    qsort(results->list, results->count, sizeof *results->list, by_shape);
    for (size_t i = 0; i < results->count && status == OCTET_OK; i++)
        gemm_take(bench, &results->list[i]);
    return status;
}

/* ---- quantize ---- */

struct conversion {
    struct octet_compute compute;
    struct octet_array array;
    void *copy;
};

static enum octet_status conversion_run(void *user, struct octet_error *err)
{
    struct conversion *c = user;
    const int32_t axis = 0;
    const struct octet_quantize_options how = {
        .qtype = "float8_e4m3fn", .channelwise_axes = &axis, .channelwise_axis_count = 1};
    struct octet_quantized out;

    octet_arena_reset(c->compute.arena);
    return octet_quantize(&c->compute, &c->array, &how, &out, err);
}

static void conversion_peer(void *user)
{
    struct conversion *c = user;

    memcpy(c->copy, c->array.data, (size_t)octet_array_bytes(&c->array));
}

static enum octet_status conversion_set(struct bench *bench, struct conversion *c, const char *set,
                                        struct octet_error *err)
{
    double seconds, peer_seconds, bytes = (double)octet_array_bytes(&c->array);
    enum octet_status status = octet_workers_create(set, 1, &c->compute.workers, err);

    if (status != OCTET_OK)
        return status;
    status = measure(conversion_run, conversion_peer, c, &seconds, &peer_seconds, err);
    octet_workers_destroy(c->compute.workers);
    if (status != OCTET_OK)
        return status;
    struct bench_row *row = bench_add(bench);
    bench_number(row, "ratio", "RATIO", peer_seconds / seconds, 3);
    bench_text(row, "kernels", "KERNELS", set);
    bench_text(row, "peer", "PEER", "memcpy");
    bench_text(row, "dtype", "FROM", octet_dtype_name(c->array.dtype));
    bench_number(row, "m", "M", (double)c->array.dim[0], 0);
    bench_number(row, "k", "K", (double)c->array.dim[1], 0);
    bench_number(row, "gbytes_per_s", "GB/s", 1e-9 * bytes / seconds, 3);
    bench_number(row, "peer_gbytes_per_s", "PEER'S GB/s", 1e-9 * bytes / peer_seconds, 3);
    return OCTET_OK;
}

static enum octet_status conversion_prepare(octet_arena *arena, struct conversion *c,
                                            enum octet_dtype dtype, struct octet_error *err)
{
    static const int64_t dim[] = {1024, 4096};
    enum octet_status status = octet_array_create(arena, dtype, 2, dim, &c->array, err);
    size_t count = 1024 * 4096;
    float *values = OCTET_NEW_ARRAY(arena, count, float);

    c->copy = octet_arena_alloc(arena, count * sizeof(float));
    if (status == OCTET_OK && (!values || !c->copy))
        return octet_arena_exhausted(arena, err);
    if (status != OCTET_OK)
        return status;
    bench_fill(values, count, 3);
    if (dtype == OCTET_DTYPE_F32)
        memcpy(c->array.data, values, count * sizeof *values);
    for (size_t i = 0; i < count && dtype == OCTET_DTYPE_BF16; i++) /* the upper half: cut off */
        memcpy((char *)c->array.data + 2 * i, (const char *)&values[i] + 2, 2);
    return OCTET_OK;
}

enum octet_status bench_quantize(struct bench *bench, struct octet_error *err)
{
    static const enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};
    octet_arena *arena = bench->session->arena, *scratch = octet_arena_create(SIZE_MAX);
    struct conversion c = {.compute = {.arena = scratch, .cancel = bench->session->cancel}};
    enum octet_status status = OCTET_OK;

    if (!scratch)
        return octet_arena_exhausted(arena, err);
    progress_start("bench quantize");
    for (size_t d = 0; d < 2 && status == OCTET_OK; d++) {
        status = conversion_prepare(arena, &c, dtypes[d], err);
        for (size_t i = 0; octet_kernel_set_name(i) && status == OCTET_OK; i++)
            if (!octet_kernel_set_obstacle(i))
                status = conversion_set(bench, &c, octet_kernel_set_name(i), err);
    }
    progress_end();
    octet_arena_destroy(scratch);
    return status;
}
