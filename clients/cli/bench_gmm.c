/* octet bench gmm: the grouped product of a layer of experts, beside a loop of sgemm.
 *
 * A shape is TOKENSxKxN. Each token goes to --top of --experts, drawn at random, so groups have the
 * unequal sizes of a router that has learnt to balance. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

enum { EXPERTS_DEFAULT = 64, TOP_DEFAULT = 8 };

struct gmm {
    struct bench *bench;
    octet_arena *arena;
    struct bench_shape shape; /* m: tokens */
    int32_t experts, top;
    enum octet_dtype lhs_dtype, rhs_dtype;
    enum bench_layout layout;
    float *a, *b, *c; /* the peer's */
    struct octet_operand lhs, rhs;
    struct octet_array group_sizes;
};

static enum octet_status run_ours(void *user, octet_backend *backend,
                                  const struct octet_compute *compute, struct octet_error *err)
{
    const struct gmm *g = user;
    const struct octet_product_options how = {.weight_operand = OCTET_WEIGHT_RHS};
    struct octet_product product;

    if (backend)
        return octet_backend_ragged_dot(backend, compute, &g->lhs, &g->rhs, &g->group_sizes,
                                        g->layout == BENCH_NK, OCTET_GMM, &how, &product, err);
    return octet_ragged_dot(compute, &g->lhs, &g->rhs, &g->group_sizes, g->layout == BENCH_NK,
                            OCTET_GMM, &how, &product, err);
}

static void run_blas(void *user, const struct blas *blas)
{
    const struct gmm *g = user;
    const int32_t *sizes = g->group_sizes.data;
    size_t row = 0, k = (size_t)g->shape.k, n = (size_t)g->shape.n;

    for (int32_t i = 0; i < g->experts; i++) {
        if (sizes[i])
            blas_multiply(blas, sizes[i], g->shape.n, g->shape.k, g->a + row * k,
                          g->b + (size_t)i * k * n, g->layout == BENCH_NK, g->c + row * n);
        row += (size_t)sizes[i];
    }
}

/* Different experts for each token: of `experts`, `top` are drawn without putting any back. */
static void draw_groups(const struct gmm *g, int32_t *order)
{
    int32_t *sizes = g->group_sizes.data;
    uint64_t state = 1;

    for (int32_t i = 0; i < g->experts; i++)
        order[i] = i;
    for (int32_t token = 0; token < g->shape.m; token++)
        for (int32_t i = 0; i < g->top; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int32_t from = i + (int32_t)((state >> 33) % (uint64_t)(g->experts - i));
            int32_t expert = order[from];
            order[from] = order[i];
            order[i] = expert;
            sizes[expert]++;
        }
}

static enum octet_status prepare(struct gmm *g, struct octet_error *err)
{
    const struct bench_shape *s = &g->shape;
    const int64_t rows = (int64_t)s->m * g->top, groups = g->experts;
    const bool turned = g->layout == BENCH_NK;
    const int64_t left[] = {rows, s->k};
    const int64_t right[] = {groups, turned ? s->n : s->k, turned ? s->k : s->n};
    const int32_t of_row = 0, of_column[] = {0, turned ? 1 : 2};
    size_t a = (size_t)(rows * s->k), b = (size_t)(groups * s->k * s->n);
    int32_t *order = OCTET_NEW_ARRAY(g->arena, groups, int32_t);

    g->a = octet_arena_alloc_unset(g->arena, a * sizeof(float));
    g->b = octet_arena_alloc_unset(g->arena, b * sizeof(float));
    g->c = octet_arena_alloc_unset(g->arena, (size_t)(rows * s->n) * sizeof(float));
    if (!order || !g->a || !g->b || !g->c)
        return octet_arena_exhausted(g->arena, err);
    bench_fill(g->a, a, 1);
    bench_fill(g->b, b, 2);
    enum octet_status status =
        octet_array_create(g->arena, OCTET_DTYPE_S32, 1, &groups, &g->group_sizes, err);
    if (status != OCTET_OK)
        return status;
    draw_groups(g, order);
    status =
        bench_operand(g->bench, g->arena, g->a, 2, left, g->lhs_dtype, &of_row, 1, &g->lhs, err);
    if (status == OCTET_OK)
        status = bench_operand(g->bench, g->arena, g->b, 3, right, g->rhs_dtype, of_column, 2,
                               &g->rhs, err);
    if (status == OCTET_OK && g->layout == BENCH_PACKED && g->rhs.is_quantized)
        status = bench_pack(g->bench, g->arena, &g->rhs, 1, err);
    return status;
}

static double work_of(const struct gmm *g)
{
    return 2.0 * g->shape.m * g->top * g->shape.k * g->shape.n;
}

static void add_row(void *user, const struct bench_set *set, const struct bench_side *ours,
                    const char *peer_name, const struct bench_side *peer)
{
    const struct gmm *g = user;
    struct bench *bench = g->bench;
    struct bench_row *row = bench_add(bench);
    double work = 1e-9 * work_of(g);
    double peak = bench_peak_of(bench, set->name, g->lhs_dtype, g->rhs_dtype);
    double bytes =
        (double)g->experts * g->shape.k * g->shape.n * (double)octet_dtype_bytes(g->rhs_dtype);
    const char *types =
        octet_arena_format(bench->session->arena, "%s x %s", octet_dtype_name(g->lhs_dtype),
                           octet_dtype_name(g->rhs_dtype));

    bench_number(row, "tokens", "TOKENS", g->shape.m, 0);
    bench_number(row, "experts", NULL, g->experts, 0);
    bench_number(row, "top", NULL, g->top, 0);
    bench_number(row, "m", "ROWS", (double)g->shape.m * g->top, 0);
    bench_number(row, "k", "K", g->shape.k, 0);
    bench_number(row, "n", "N", g->shape.n, 0);
    bench_text(row, "dtype", bench->pair_count > 1 ? "TYPES" : NULL, types ? types : "");
    bench_text(row, "rhs", bench->layout_count > 1 ? "RHS" : NULL,
               bench_layout_name(g->layout, true));
    bench_text(row, "operands", NULL, bench_operands(bench, bytes));
    bench_number(row, "threads", NULL, bench->threads, 0);
    bench_text(row, "kernels", "KERNELS", set->name);
    bench_number(row, "gflops", "GFLOP/s", work / ours->median, 2);
    bench_number(row, "peak_share", "OF PEAK", work / ours->median / peak, 2);
    bench_text(row, "peer", "PEER", peer_name);
    bench_number(row, "peer_gflops", "ITS GFLOP/s", peer ? work / peer->median : NAN, 2);
    bench_ratios(row, ours, peer);
    bench_times(row, ours, peer);
}

static enum octet_status measure(struct gmm *g, struct octet_error *err)
{
    const struct bench_shape *s = &g->shape;
    const size_t slack = 8u << 20;
    const struct bench_work work = {
        .ours = run_ours,
        .blas = run_blas,
        .add = add_row,
        .user = g,
        .flops = work_of(g),
        .scratch_bytes = 2 * sizeof(float) * (size_t)s->m * (size_t)g->top * (size_t)s->n + slack};

    progress_say(octet_arena_format(g->bench->session->arena, "of %d tokens", s->m));
    enum octet_status status = prepare(g, err);
    return status == OCTET_OK ? bench_compare(g->bench, g->arena, &work, err) : status;
}

static enum octet_status measure_layout(struct bench *bench, const struct gmm *like,
                                        struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t p = 0; p < bench->pair_count; p++)
        for (size_t i = 0; i < bench->shape_count && status == OCTET_OK; i++) {
            struct gmm g = *like;
            g.arena = octet_arena_create(octet_arena_budget(bench->session->arena));
            g.shape = bench->shapes[i];
            g.lhs_dtype = bench->pairs[p][0];
            g.rhs_dtype = bench->pairs[p][1];
            if (!g.arena)
                return octet_arena_exhausted(bench->session->arena, err);
            status = measure(&g, err);
            octet_arena_destroy(g.arena);
        }
    return status;
}

enum octet_status bench_gmm(struct bench *bench, struct octet_error *err)
{
    const struct arguments *a = bench->session->arguments;
    struct gmm g = {.bench = bench,
                    .experts = a->experts ? (int32_t)a->experts : EXPERTS_DEFAULT,
                    .top = a->top ? (int32_t)a->top : TOP_DEFAULT};
    enum octet_status status = bench_choose(bench, 3, "32,256x1024x512", "e4m3", err);

    if (status != OCTET_OK)
        return status;
    if (a->experts > 65536)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --experts: %lld is more than 65536", (long long)a->experts);
    if (a->top > g.experts)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --top: %lld is more than the %d experts", (long long)a->top,
                          g.experts);
    bench->about = octet_arena_format(
        bench->session->arena,
        "gmm: ROWS = TOKENS x %d, each token's for %d of %d experts: [ROWS,K] x [%d,K,N]%s to "
        "float32, quantized\n"
        "peer: %s; a multiply-add counts as 2\n"
        "OF PEAK: of what the set's instructions give at most; RATIO: the peer's median time over "
        "ours, BEST: of best times\n",
        g.top, g.top, g.experts, g.experts,
        bench->layout_count == 1 && bench->layouts[0] == BENCH_PACKED ? ", packed," : "",
        bench_peer_text(bench, "a loop over the groups of sgemm"));
    for (size_t i = 0; i < bench->layout_count && status == OCTET_OK; i++) {
        g.layout = bench->layouts[i];
        status = measure_layout(bench, &g, err);
    }
    return status;
}
