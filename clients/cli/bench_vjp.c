/* octet bench vjp: one matmul of a training step under the rule of fp8_full: both operands and the
 * cotangent quantized, forward and both gradients; beside the three products as sgemm.
 *
 * Its peer in Python, JAX with Qwix, is scripts/bench-peers'. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

struct vjp {
    struct bench *bench;
    octet_arena *arena;
    struct bench_shape shape;
    enum octet_dtype dtype; /* of what comes in: F32 or BF16 */
    const struct octet_rule *rule;
    float *a, *b, *g; /* the peer's; g: the cotangent */
    float *out, *lhs_grad, *rhs_grad;
    struct octet_operand lhs, rhs, cotangent;
};

static enum octet_status run_ours(void *user, octet_backend *backend,
                                  const struct octet_compute *compute, struct octet_error *err)
{
    const struct vjp *v = user;
    const struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {0}};
    const struct octet_product_options how = {
        .rule = v->rule, .weight_operand = OCTET_WEIGHT_RHS, .cotangent = &v->cotangent.array};
    struct octet_product product;

    if (backend)
        return octet_backend_dot_general(backend, compute, &v->lhs, &v->rhs, &dims, &how, &product,
                                         err);
    return octet_dot_general(compute, &v->lhs, &v->rhs, &dims, &how, &product, err);
}

static void run_blas(void *user, const struct blas *blas)
{
    const struct vjp *v = user;
    const struct bench_shape *s = &v->shape;

    blas_multiply(blas, s->m, s->n, s->k, v->a, v->b, false, v->out);
    blas_multiply(blas, s->m, s->k, s->n, v->g, v->b, true, v->lhs_grad);
    blas_multiply_lhs_transposed(blas, s->m, s->n, s->k, v->a, v->g, v->rhs_grad);
}

/* rows x columns floats, filled where seed is not 0. */
static float *numbers(octet_arena *arena, int64_t rows, int64_t columns, uint64_t seed)
{
    size_t count = (size_t)(rows * columns);
    float *to = octet_arena_alloc_unset(arena, count * sizeof *to);

    if (to && seed)
        bench_fill(to, count, seed);
    return to;
}

static enum octet_status prepare(struct vjp *v, struct octet_error *err)
{
    const struct bench_shape *s = &v->shape;
    const int64_t left[] = {s->m, s->k}, right[] = {s->k, s->n}, result[] = {s->m, s->n};

    if (!(v->a = numbers(v->arena, s->m, s->k, 1)) || !(v->b = numbers(v->arena, s->k, s->n, 2)) ||
        !(v->g = numbers(v->arena, s->m, s->n, 3)) ||
        !(v->out = numbers(v->arena, s->m, s->n, 0)) ||
        !(v->lhs_grad = numbers(v->arena, s->m, s->k, 0)) ||
        !(v->rhs_grad = numbers(v->arena, s->k, s->n, 0)))
        return octet_arena_exhausted(v->arena, err);
    enum octet_status status =
        bench_operand(v->bench, v->arena, v->a, 2, left, v->dtype, NULL, 0, &v->lhs, err);
    if (status == OCTET_OK)
        status = bench_operand(v->bench, v->arena, v->b, 2, right, v->dtype, NULL, 0, &v->rhs, err);
    return status == OCTET_OK ? bench_operand(v->bench, v->arena, v->g, 2, result, v->dtype, NULL,
                                              0, &v->cotangent, err)
                              : status;
}

static double work_of(const struct vjp *v)
{
    return 6.0 * v->shape.m * v->shape.k * v->shape.n;
}

static void add_row(void *user, const struct bench_set *set, const struct bench_side *ours,
                    const char *peer_name, const struct bench_side *peer)
{
    const struct vjp *v = user;
    struct bench *bench = v->bench;
    struct bench_row *row = bench_add(bench);
    double work = 1e-9 * work_of(v);

    bench_number(row, "m", "M", v->shape.m, 0);
    bench_number(row, "k", "K", v->shape.k, 0);
    bench_number(row, "n", "N", v->shape.n, 0);
    bench_text(row, "dtype", "OPERANDS", octet_dtype_name(v->dtype));
    bench_number(row, "threads", NULL, bench->threads, 0);
    bench_text(row, "kernels", "KERNELS", set->name);
    bench_number(row, "shown_ms", "ms", 1e3 * ours->median, 2);
    bench_number(row, "gflops", "GFLOP/s", work / ours->median, 2);
    bench_text(row, "peer", "PEER", peer_name);
    bench_number(row, "peer_gflops", "ITS GFLOP/s", peer ? work / peer->median : NAN, 2);
    bench_ratios(row, ours, peer);
    bench_times(row, ours, peer);
}

static enum octet_status measure(struct vjp *v, struct octet_error *err)
{
    const struct bench_shape *s = &v->shape;
    const size_t all =
        (size_t)s->m * (size_t)s->k + (size_t)s->k * (size_t)s->n + (size_t)s->m * (size_t)s->n;
    const struct bench_work work = {.ours = run_ours,
                                    .blas = run_blas,
                                    .add = add_row,
                                    .user = v,
                                    .flops = work_of(v),
                                    .scratch_bytes = 6 * sizeof(float) * all + (8u << 20)};

    progress_say(octet_arena_format(v->bench->session->arena, "%dx%dx%d", s->m, s->k, s->n));
    enum octet_status status = prepare(v, err);
    return status == OCTET_OK ? bench_compare(v->bench, v->arena, &work, err) : status;
}

static enum octet_status measure_all(struct bench *bench, const struct octet_rule *rule,
                                     struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t p = 0; p < bench->pair_count; p++)
        for (size_t i = 0; i < bench->shape_count && status == OCTET_OK; i++) {
            struct vjp v = {.bench = bench,
                            .arena = octet_arena_create(octet_arena_budget(bench->session->arena)),
                            .shape = bench->shapes[i],
                            .dtype = bench->pairs[p][0],
                            .rule = rule};
            if (!v.arena)
                return octet_arena_exhausted(bench->session->arena, err);
            status = measure(&v, err);
            octet_arena_destroy(v.arena);
        }
    return status;
}

enum octet_status bench_vjp(struct bench *bench, struct octet_error *err)
{
    const struct octet_rule fp8_full = {
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};
    octet_rules *rules = NULL;
    enum octet_status status = bench_choose(bench, 3, "512x2048x2048", "f32", err);

    for (size_t p = 0; p < bench->pair_count && status == OCTET_OK; p++)
        if (bench->pairs[p][0] != bench->pairs[p][1] ||
            (bench->pairs[p][0] != OCTET_DTYPE_F32 && bench->pairs[p][0] != OCTET_DTYPE_BF16))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --dtype: vjp takes f32 or bf16, both operands alike: it "
                              "quantizes them itself");
    if (status == OCTET_OK)
        status = octet_rules_create(bench->session->context, &fp8_full, 1, &rules, err);
    bench->about = octet_arena_format(
        bench->session->arena,
        "vjp: [M,K] x [K,N] as in training under fp8_full: operands quantized to float8_e4m3fn and "
        "the cotangent to\n"
        "float8_e5m2, forward and both gradients\n"
        "peer: %s; a multiply-add counts as 2\n"
        "RATIO: the peer's median time over ours, BEST: of best times\n",
        bench_peer_text(bench, "the three products as sgemm"));
    if (status == OCTET_OK)
        status = measure_all(bench, octet_rules_get(rules, 0), err);
    octet_rules_unref(rules);
    return status;
}
