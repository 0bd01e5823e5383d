/* What must hold whatever the numbers are. What could break: bits that depend on the CPU, the
 * threads or the neighbours of a row; figures that count something else than they say. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const struct octet_rule full = {
    .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};
static const struct octet_rule tiled = {
    .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e5m2", .tile_size = "128"};
static const struct octet_rule clipped = {.weight_qtype = "int8",
                                          .act_qtype = "float8_e4m3fn",
                                          .bwd_qtype = "float8_e5m2",
                                          .weight_calibration_method = "rms,2",
                                          .act_calibration_method = "fixed,-1,1",
                                          .disable_channelwise_axes = true};
static const struct octet_rule weights_only = {.weight_qtype = "float8_e4m3fn",
                                               .bwd_qtype = "float8_e5m2"};

static enum octet_dtype dtype_for(int i)
{
    return i % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
}

static struct octet_product dot(struct octet_array lhs, struct octet_array rhs,
                                const struct octet_dot_dims *dims,
                                const struct octet_product_options *options)
{
    struct octet_operand l = plain(lhs), r = plain(rhs);
    struct octet_product out;

    bench_ok(octet_dot_general(&bench.compute, &l, &r, dims, options, &out, &bench.err));
    return out;
}

/* ---- CPU and threads ---- */

static void same_stats(const struct octet_operand_stats *a, const struct octet_operand_stats *b)
{
    ck_assert_int_eq(a->is_quantized, b->is_quantized);
    ck_assert_mem_eq(&a->amax, &b->amax, sizeof a->amax);
    ck_assert_mem_eq(&a->scale_min, &b->scale_min, sizeof a->scale_min);
    ck_assert_mem_eq(&a->scale_max, &b->scale_max, sizeof a->scale_max);
    ck_assert_int_eq(a->saturated, b->saturated);
    ck_assert_int_eq(a->underflowed, b->underflowed);
    ck_assert_int_eq(a->nonfinite, b->nonfinite);
    ck_assert(a->sqnr_db == b->sqnr_db || (isnan(a->sqnr_db) && isnan(b->sqnr_db)));
}

static void same_products(const struct octet_product *a, const struct octet_product *b)
{
    ck_assert_msg(array_same(&a->out, &b->out), "%s: out", bench.label);
    ck_assert_msg(array_same(&a->lhs_grad, &b->lhs_grad), "%s: lhs_grad", bench.label);
    ck_assert_msg(array_same(&a->rhs_grad, &b->rhs_grad), "%s: rhs_grad", bench.label);
    ck_assert_str_eq(a->digest, b->digest);
    same_stats(&a->lhs, &b->lhs);
    same_stats(&a->rhs, &b->rhs);
    same_stats(&a->cotangent, &b->cotangent);
}

static void name_workers(size_t w)
{
    snprintf(bench.label, sizeof bench.label, "%s with %d threads",
             octet_workers_kernels(bench.workers[w]), octet_workers_threads(bench.workers[w]));
    bench_use(w);
}

/* Every rule, every kernel set, 1, 2 and 7 threads; with NaN, Inf and subnormals among the numbers.
 */
START_TEST(bits_depend_on_the_request_alone)
{
    static const struct octet_rule *const rules[] = {NULL, &full, &tiled, &clipped, &weights_only};
    struct dice dice = {(uint64_t)_i};
    const struct octet_rule *rule = rules[_i / 4];
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(75, 256));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(256, 131));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(75, 131));
    struct octet_product_options options = {
        .rule = rule ? bench_rule(rule) : NULL, .cotangent = &g, .numerics = true};
    struct octet_product first;

    if (_i / 2 % 2) {
        ((float *)x.data)[5] = NAN;
        ((float *)x.data)[300] = -INFINITY;
        ((float *)x.data)[600] = 1e-40f;
        ((uint32_t *)x.data)[900] = 0xffc12345;
    }
    x = array_of(dtype, 2, DIMS(75, 256), x.data);
    for (size_t i = 0; i < bench.workers_count; i++) {
        name_workers(i);
        struct octet_product out = dot(x, w, &matmul_dims, &options);
        if (i == 0)
            first = out;
        same_products(&first, &out);
    }
}
END_TEST

/* Scales of columns, and of columns in each of two parts, in arrays that threads share. */
START_TEST(threads_find_the_same_scales)
{
    struct dice dice = {3};
    struct octet_array x = array_random(&dice, dtype_for(_i), 3, DIMS(2, 65, 1030));
    struct octet_quantize_options how = {.qtype = "float8_e4m3fn",
                                         .channelwise_axes = (const int32_t[]){2, 0},
                                         .channelwise_axis_count = _i / 2 ? 2 : 1};
    int64_t parts = _i / 2 ? 2 : 1, rows = 130 / parts;

    for (size_t w = 0; w < bench.workers_count; w++) {
        struct octet_quantized q;
        name_workers(w);
        bench_ok(octet_quantize(&bench.compute, &x, &how, &q, &bench.err));
        for (int64_t i = 0; i < parts * 1030; i++) {
            float most = 0;
            for (int64_t row = 0; row < rows; row++)
                most = fmaxf(most, fabsf(array_at(&x, (i / 1030 * rows + row) * 1030 + i % 1030)));
            float want = most * (1.0f / 448), scale = array_at(&q.scale, i);
            ck_assert_msg(fabsf(scale - want) <= want / 128, "%s: scale %lld is %g, not %g",
                          bench.label, (long long)i, (double)scale, (double)want);
        }
    }
}
END_TEST

START_TEST(grouped_bits_too)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_operand lhs = plain(array_random(&dice, dtype, 2, DIMS(150, 64)));
    struct octet_operand rhs = plain(array_random(&dice, dtype, 3, DIMS(5, 64, 96)));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(150, 96));
    struct octet_array sizes = sizes_of(5, (const int32_t[]){31, 0, 100, 1, 7});
    struct octet_product_options options = {
        .rule = _i / 4 ? bench_rule(&full) : NULL, .cotangent = &g, .numerics = true};
    struct octet_product first, out;

    for (size_t i = 0; i < bench.workers_count; i++) {
        name_workers(i);
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &sizes, false,
                                  _i / 2 % 2 ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &out,
                                  &bench.err));
        if (i == 0)
            first = out;
        same_products(&first, &out);
    }
}
END_TEST

/* ---- rows, layouts, groups ---- */

static struct octet_array some_rows(const struct octet_array *x, int64_t first, int64_t count)
{
    struct octet_array part = *x;
    size_t row = octet_dtype_bytes(x->dtype) * (size_t)x->dim[1];

    part.dim[0] = count;
    part.data = (char *)x->data + (size_t)first * row;
    return part;
}

START_TEST(a_row_does_not_know_its_neighbours)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(23, 300));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(300, 37));
    struct octet_product_options options = {.rule = bench_rule(_i / 2 ? &full : &weights_only)};
    struct octet_product all = dot(x, w, &matmul_dims, &options);

    for (int64_t i = 0; i < 23; i++) {
        bench_use((size_t)(i + _i));
        struct octet_product one = dot(some_rows(&x, i, 1), w, &matmul_dims, &options);
        struct octet_array row = some_rows(&all.out, i, 1);
        ck_assert(array_same(&one.out, &row));
    }
}
END_TEST

static struct octet_array turned(const struct octet_array *x)
{
    struct octet_array t = array_zero(x->dtype, 2, DIMS(x->dim[1], x->dim[0]));
    size_t bytes = octet_dtype_bytes(x->dtype);

    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t k = 0; k < x->dim[1]; k++)
            memcpy((char *)t.data + (size_t)(k * x->dim[0] + i) * bytes,
                   (const char *)x->data + (size_t)(i * x->dim[1] + k) * bytes, bytes);
    return t;
}

START_TEST(a_layout_changes_nothing)
{
    static const struct octet_rule *const rules[] = {NULL, &full, &tiled, &clipped};
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(19, 256));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(256, 21));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(19, 21));
    struct octet_product_options options = {
        .rule = rules[_i / 2] ? bench_rule(rules[_i / 2]) : NULL, .cotangent = &g};
    struct octet_product a = dot(x, w, &matmul_dims, &options);

    for (int layout = 1; layout < 4; layout++) {
        struct octet_dot_dims dims = {.contracting_count = 1,
                                      .lhs_contracting = {layout & 1 ? 0 : 1},
                                      .rhs_contracting = {layout & 2 ? 1 : 0}};
        bench_use((size_t)(_i + layout));
        struct octet_product b =
            dot(layout & 1 ? turned(&x) : x, layout & 2 ? turned(&w) : w, &dims, &options);
        ck_assert(array_same(&a.out, &b.out));
        struct octet_array lhs_grad = layout & 1 ? turned(&b.lhs_grad) : b.lhs_grad;
        struct octet_array rhs_grad = layout & 2 ? turned(&b.rhs_grad) : b.rhs_grad;
        ck_assert(array_same(&a.lhs_grad, &lhs_grad));
        ck_assert(array_same(&a.rhs_grad, &rhs_grad));
    }
}
END_TEST

/* Groups in another order, rows and matrices moved with them. */
START_TEST(groups_may_be_permuted)
{
    enum { G = 4, K = 24, N = 10, M = 30 };
    static const int32_t size[G] = {7, 0, 12, 9}, order[G] = {2, 3, 0, 1};
    static const int64_t first[G] = {0, 7, 7, 19};
    struct dice dice = {(uint64_t)_i};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(M, K));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 3, DIMS(G, K, N));
    struct octet_array g = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(M, N));
    struct octet_array x2 = array_zero(OCTET_DTYPE_F32, 2, DIMS(M, K));
    struct octet_array w2 = array_zero(OCTET_DTYPE_F32, 3, DIMS(G, K, N));
    struct octet_array g2 = array_zero(OCTET_DTYPE_F32, 2, DIMS(M, N));
    struct octet_array sizes = sizes_of(G, size), sizes2 = sizes_of(G, size);
    struct octet_product a, b;
    int64_t at[G], row = 0;

    for (int i = 0; i < G; i++) {
        int32_t e = order[i];
        ((int32_t *)sizes2.data)[i] = size[e];
        at[i] = row;
        memcpy((float *)x2.data + row * K, (float *)x.data + first[e] * K, (size_t)size[e] * K * 4);
        memcpy((float *)g2.data + row * N, (float *)g.data + first[e] * N, (size_t)size[e] * N * 4);
        memcpy((float *)w2.data + i * K * N, (float *)w.data + e * K * N, K * N * 4);
        row += size[e];
    }
    /* Rows past the groups are the same in both, as their numbers count in maxima. */
    memcpy((float *)x2.data + 28 * K, (float *)x.data + 28 * K, 2 * K * 4);
    memcpy((float *)g2.data + 28 * N, (float *)g.data + 28 * N, 2 * N * 4);
    enum octet_grouped_op op = _i % 2 ? OCTET_GMM : OCTET_RAGGED_DOT;
    struct octet_product_options options = {.rule = _i / 2 ? bench_rule(&full) : NULL,
                                            .cotangent = &g};
    struct octet_operand l = plain(x), r = plain(w), l2 = plain(x2), r2 = plain(w2);
    bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, op, &options, &a, &bench.err));
    options.cotangent = &g2;
    bench_ok(
        octet_ragged_dot(&bench.compute, &l2, &r2, &sizes2, false, op, &options, &b, &bench.err));
    for (int i = 0; i < G; i++) {
        int32_t e = order[i];
        ck_assert_mem_eq((float *)b.out.data + at[i] * N, (float *)a.out.data + first[e] * N,
                         (size_t)size[e] * N * 4);
        ck_assert_mem_eq((float *)b.lhs_grad.data + at[i] * K,
                         (float *)a.lhs_grad.data + first[e] * K, (size_t)size[e] * K * 4);
        ck_assert_mem_eq((float *)b.rhs_grad.data + i * K * N, (float *)a.rhs_grad.data + e * K * N,
                         K * N * 4);
    }
}
END_TEST

/* One group that takes all rows is a dot_general. */
START_TEST(one_group_is_a_matmul)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(20, 70));
    struct octet_array w = array_random(&dice, dtype, 3, DIMS(1, 70, 15)), w2 = w;
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(20, 15));
    struct octet_array sizes = sizes_of(1, (const int32_t[]){20});
    struct octet_product_options options = {.rule = bench_rule(&full), .cotangent = &g};
    struct octet_operand l = plain(x), r = plain(w);
    struct octet_product a;

    w2.rank = 2;
    w2.dim[0] = 70;
    w2.dim[1] = 15;
    struct octet_product b = dot(x, w2, &matmul_dims, &options);
    bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_RAGGED_DOT, &options, &a,
                              &bench.err));
    ck_assert(array_same(&a.out, &b.out));
    ck_assert(array_same(&a.lhs_grad, &b.lhs_grad));
    ck_assert_mem_eq(a.rhs_grad.data, b.rhs_grad.data, (size_t)octet_array_bytes(&b.rhs_grad));
}
END_TEST

/* ---- scaling ---- */

static struct octet_array scaled(const struct octet_array *x, int exponent)
{
    struct ref values = ref_of(x);

    for (int64_t i = 0; i < values.count; i++)
        values.v[i] = ldexpf(values.v[i], exponent);
    return array_of(x->dtype, x->rank, x->dim, values.v);
}

/* A power of two goes through every step unrounded. */
START_TEST(powers_of_two_go_through)
{
    static const int exponents[] = {-30, -7, 1, 12, 40};
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(9, 40));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(40, 8));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(9, 8));
    struct octet_product_options options = {.rule = _i / 2 ? bench_rule(&full) : NULL,
                                            .cotangent = &g};
    struct octet_product a = dot(x, w, &matmul_dims, &options);

    for (int i = 0; i < 5; i++) {
        int e = exponents[i];
        struct octet_product b = dot(scaled(&x, e), w, &matmul_dims, &options);
        struct octet_array out = scaled(&a.out, e), rhs_grad = scaled(&a.rhs_grad, e);
        ck_assert(array_same(&b.out, &out));
        ck_assert(array_same(&b.lhs_grad, &a.lhs_grad));
        ck_assert(array_same(&b.rhs_grad, &rhs_grad));
        struct octet_array scaled_g = scaled(&g, e);
        struct octet_product_options other = options;
        other.cotangent = &scaled_g;
        b = dot(x, w, &matmul_dims, &other);
        struct octet_array lhs_grad = scaled(&a.lhs_grad, e);
        ck_assert(array_same(&b.lhs_grad, &lhs_grad));
        ck_assert(array_same(&b.rhs_grad, &rhs_grad));
    }
}
END_TEST

/* ---- gradients of the op itself ---- */

/* sum(out * g); in f64, of numbers small enough that all products and sums are nearly exact. */
static double loss(const struct octet_product *p, const struct octet_array *g)
{
    double sum = 0;

    for (int64_t i = 0; i < octet_array_elements(g); i++)
        sum += (double)array_at(&p->out, i) * (double)array_at(g, i);
    return sum;
}

/* d loss / d x[i] from both sides; the op is linear in x, so a large step costs nothing. */
static void expect_gradient(struct octet_array *x, const struct octet_array *gradient,
                            struct octet_product (*run)(void *user), void *user,
                            const struct octet_array *g)
{
    float *values = x->data;

    for (int64_t i = 0; i < octet_array_elements(x); i++) {
        float kept = values[i];
        values[i] = kept + 1;
        struct octet_product up = run(user);
        values[i] = kept - 1;
        struct octet_product down = run(user);
        values[i] = kept;
        double slope = (loss(&up, g) - loss(&down, g)) / 2;
        ck_assert_double_eq_tol(array_at(gradient, i), slope, 2e-5);
    }
}

struct linear {
    struct octet_array x, w, sizes;
    struct octet_dot_dims dims;
    int grouped; /* 0: dot_general; 1, 2: the grouped ops; 3: einsum */
    bool transposed;
    const struct octet_array *cotangent;
};

static struct octet_product run_linear(void *user)
{
    const struct linear *p = user;
    struct octet_operand l = plain(p->x), r = plain(p->w);
    struct octet_product_options options = {.cotangent = p->cotangent};
    struct octet_product out;

    if (p->grouped == 0)
        bench_ok(octet_dot_general(&bench.compute, &l, &r, &p->dims, &options, &out, &bench.err));
    else if (p->grouped == 3)
        bench_ok(octet_einsum(&bench.compute, "abc,dcb->da", &l, &r, &options, &out, &bench.err));
    else
        bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &p->sizes, p->transposed,
                                  p->grouped == 1 ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &out,
                                  &bench.err));
    return out;
}

START_TEST(gradients_are_slopes)
{
    static const struct {
        int32_t x_rank, w_rank, g_rank;
        int64_t x[4], w[4], g[4];
        int grouped;
        bool transposed;
        struct octet_dot_dims dims;
    } cases[] = {
        {2, 2, 2, {3, 5}, {5, 4}, {3, 4}, 0, false, {1, 0, {1}, {0}, {0}, {0}}},
        {3, 4, 4, {2, 3, 4}, {4, 2, 5, 2}, {2, 3, 5, 2}, 0, false, {1, 1, {2}, {0}, {0}, {1}}},
        {3, 3, 2, {2, 3, 4}, {4, 2, 3}, {3, 3}, 0, false, {2, 0, {2, 0}, {0, 1}, {0}, {0}}},
        {2, 2, 0, {3, 4}, {4, 3}, {0}, 0, false, {2, 0, {0, 1}, {1, 0}, {0}, {0}}},
        {1, 2, 3, {3}, {2, 2}, {3, 2, 2}, 0, false, {0, 0, {0}, {0}, {0}, {0}}},
        {2, 3, 2, {6, 4}, {3, 4, 3}, {6, 3}, 1, false, {0}},
        {2, 3, 2, {6, 4}, {3, 3, 4}, {6, 3}, 1, true, {0}},
        {2, 3, 2, {6, 4}, {3, 4, 3}, {6, 3}, 2, false, {0}},
        {2, 3, 2, {6, 4}, {3, 3, 4}, {6, 3}, 2, true, {0}},
        {3, 3, 2, {2, 3, 4}, {5, 4, 3}, {5, 2}, 3, false, {0}},
    };
    struct dice dice = {(uint64_t)_i};
    struct linear p = {
        .dims = cases[_i].dims, .grouped = cases[_i].grouped, .transposed = cases[_i].transposed};
    struct octet_array g = array_random(&dice, OCTET_DTYPE_F32, cases[_i].g_rank, cases[_i].g);

    p.x = array_random(&dice, OCTET_DTYPE_F32, cases[_i].x_rank, cases[_i].x);
    p.w = array_random(&dice, OCTET_DTYPE_F32, cases[_i].w_rank, cases[_i].w);
    p.sizes = sizes_of(3, (const int32_t[]){2, 0, 3});
    p.cotangent = &g;
    struct octet_product out = run_linear(&p);
    expect_gradient(&p.x, &out.lhs_grad, run_linear, &p, &g);
    expect_gradient(&p.w, &out.rhs_grad, run_linear, &p, &g);
}
END_TEST

/* ---- types, operands that come quantized ---- */

START_TEST(an_out_dtype_is_a_cast)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(7, 33));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(33, 12));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(7, 12));
    struct octet_product_options options = {.rule = _i / 2 ? bench_rule(&full) : NULL,
                                            .cotangent = &g};
    struct octet_product own = dot(x, w, &matmul_dims, &options);
    struct ref expected = ref_of(&own.out);

    for (int to = 0; to < 2; to++) {
        options.out_dtype = dtype_for(to);
        struct octet_product cast = dot(x, w, &matmul_dims, &options);
        struct ref values = ref_cast(&expected, options.out_dtype);
        ref_same(&cast.out, &values, "out");
        ck_assert(array_same(&cast.lhs_grad, &own.lhs_grad));
        ck_assert(array_same(&cast.rhs_grad, &own.rhs_grad));
    }
    options.out_dtype = OCTET_DTYPE_F16;
    struct octet_product half = dot(x, w, &matmul_dims, &options);
    for (int64_t i = 0; i < expected.count; i++) {
        _Float16 value;
        memcpy(&value, (const char *)half.out.data + i * 2, 2);
        ck_assert(value == (_Float16)expected.v[i]);
    }
}
END_TEST

static struct octet_operand quantized_along(const struct octet_array *x, int32_t axis,
                                            const char *qtype)
{
    struct octet_quantize_options options = {
        .qtype = qtype, .channelwise_axes = &axis, .channelwise_axis_count = 1};
    struct octet_quantized q;

    bench_ok(octet_quantize(&bench.compute, x, &options, &q, &bench.err));
    return quantized(q);
}

/* Quantized before or inside: the same bits, for the result and the other side's gradient. */
START_TEST(quantized_operands_are_as_good)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(11, 60));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(60, 14));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(11, 14));
    struct octet_product_options options = {.rule = bench_rule(&full), .cotangent = &g};
    struct octet_product inside = dot(x, w, &matmul_dims, &options), out;
    struct octet_operand l = plain(x), r = plain(w);
    struct octet_operand lq = quantized_along(&x, 0, "float8_e4m3fn");
    struct octet_operand rq = quantized_along(&w, 1, "float8_e4m3fn");

    bench_use((size_t)_i / 2);
    bench_ok(octet_dot_general(&bench.compute, &lq, &rq, &matmul_dims, &options, &out, &bench.err));
    ck_assert(array_same(&out.out, &inside.out));
    ck_assert(!out.lhs_grad.data && !out.rhs_grad.data);
    bench_ok(octet_dot_general(&bench.compute, &l, &rq, &matmul_dims, &options, &out, &bench.err));
    ck_assert(array_same(&out.out, &inside.out));
    ck_assert(array_same(&out.lhs_grad, &inside.lhs_grad) && !out.rhs_grad.data);
    bench_ok(octet_dot_general(&bench.compute, &lq, &r, &matmul_dims, &options, &out, &bench.err));
    ck_assert(array_same(&out.out, &inside.out));
    ck_assert(array_same(&out.rhs_grad, &inside.rhs_grad) && !out.lhs_grad.data);
}
END_TEST

/* ---- figures ---- */

START_TEST(digests_tell_bytes_apart)
{
    struct dice dice = {1};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(5, 9));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(9, 4));
    struct octet_product_options options = {.numerics = true};
    struct octet_product all[40];

    for (int i = 0; i < 40; i++) { /* half of them pairs of equal inputs */
        ((float *)x.data)[i / 2] += 1 + (float)(i % 4 / 2);
        all[i] = dot(x, w, &matmul_dims, &options);
        ck_assert_uint_eq(strlen(all[i].digest), 32);
        ck_assert_uint_eq(strspn(all[i].digest, "0123456789abcdef"), 32);
        ((float *)x.data)[i / 2] -= 1 + (float)(i % 4 / 2);
    }
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 40; k++)
            ck_assert_int_eq(array_same(&all[i].out, &all[k].out),
                             strcmp(all[i].digest, all[k].digest) == 0);
    options.numerics = false;
    struct octet_product quiet = dot(x, w, &matmul_dims, &options);
    ck_assert_str_eq(quiet.digest, "");
}
END_TEST

/* The figures of one operand, counted one by one. */
static void expect_figures(const struct octet_operand_stats *found, const struct ref *x,
                           const struct ref_value *used, float largest)
{
    struct octet_operand_stats s = {.is_quantized = used->scale.v != NULL};
    int64_t index[8] = {0};
    double signal = 0, noise = 0;
    struct ref back = {0};

    if (s.is_quantized)
        back = ref_dequantize(used);
    for (int64_t n = 0; n < x->count; n++, ref_next(x->rank, x->dim, index)) {
        float v = x->v[n];
        if (!isfinite(v)) {
            s.nonfinite++;
            continue;
        }
        s.amax = fabsf(v) > s.amax ? fabsf(v) : s.amax;
        if (!s.is_quantized)
            continue;
        s.saturated += fabsf(v * (1 / ref_grid(&used->scale, x, index))) > largest;
        s.underflowed += v != 0 && used->x.v[n] == 0;
        if (isfinite(back.v[n])) {
            signal += (double)v * v;
            noise += ((double)v - back.v[n]) * ((double)v - back.v[n]);
        } else {
            s.destroyed++;
        }
    }
    bool any = false, others = false;
    for (int64_t i = 0; i < used->scale.count; i++)
        others |= isfinite(used->scale.v[i]) && used->scale.v[i] != 1;
    for (int64_t i = 0; i < used->scale.count; i++) {
        float scale = used->scale.v[i];
        if (!isfinite(scale) || (others && scale == 1))
            continue;
        s.scale_min = !any || scale < s.scale_min ? scale : s.scale_min;
        s.scale_max = !any || scale > s.scale_max ? scale : s.scale_max;
        any = true;
    }
    ck_assert_int_eq(found->is_quantized, s.is_quantized);
    ck_assert_float_eq(found->amax, s.amax);
    ck_assert_int_eq(found->nonfinite, s.nonfinite);
    ck_assert_int_eq(found->saturated, s.saturated);
    ck_assert_int_eq(found->destroyed, s.destroyed);
    ck_assert_int_eq(found->underflowed, s.underflowed);
    ck_assert_float_eq(found->scale_min, s.scale_min);
    ck_assert_float_eq(found->scale_max, s.scale_max);
    if (!s.is_quantized || signal == 0)
        ck_assert(isnan(found->sqnr_db));
    else if (noise == 0)
        ck_assert(found->sqnr_db == (double)INFINITY);
    else
        ck_assert_double_eq_tol(found->sqnr_db, 10 * log10(signal / noise), 1e-9);
}

START_TEST(figures_are_counts)
{
    static const struct {
        struct octet_rule rule;
        float largest;
    } cases[] = {{{.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"}, 464},
                 {{.weight_qtype = "float8_e4m3fn",
                   .act_qtype = "float8_e4m3fn",
                   .act_calibration_method = "fixed,-0.5,0.5",
                   .weight_calibration_method = "rms,1"},
                  464},
                 {{.weight_qtype = "float8_e5m2",
                   .act_qtype = "float8_e5m2",
                   .act_calibration_method = "absmax,0.3"},
                  61440},
                 {{.weight_qtype = "int8",
                   .act_qtype = "int8",
                   .act_calibration_method = "absmax,0.3",
                   .weight_calibration_method = "rms,2"},
                  127.5f},
                 {{.weight_qtype = "float8_e4m3fn"}, 464},
                 {{.weight_qtype = ""}, 464}};
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = dtype_for(_i);
    const struct octet_rule *rule = &cases[_i / 2].rule;
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(12, 50));
    struct octet_array w = array_random(&dice, dtype, 2, DIMS(50, 9));
    float *values = x.data;

    for (int i = 0; i < 600; i++)
        values[i] *= ldexpf(1, (int)roll_between(&dice, -24, 2));
    values[7] = NAN;
    values[60] = INFINITY;
    memset(values + 100, 0, 50 * sizeof *values);
    x = array_of(dtype, 2, DIMS(12, 50), values);
    bench_use((size_t)_i);
    struct octet_product_options options = {.rule = bench_rule(rule), .numerics = true};
    struct octet_product out = dot(x, w, &matmul_dims, &options);
    struct octet_operand l = plain(x), r = plain(w);
    struct ref_value lv = ref_value_of(&l), rv = ref_value_of(&r);
    struct ref_op op = {.rule = rule, .weight = OCTET_WEIGHT_RHS};
    struct ref_result expected = ref_dot_general(&lv, &rv, &matmul_dims, &op);
    expect_figures(&out.lhs, &lv.x, &expected.lhs, cases[_i / 2].largest);
    expect_figures(&out.rhs, &rv.x, &expected.rhs, cases[_i / 2].largest);
    ck_assert(!out.cotangent.is_quantized);
}
END_TEST

/* Of the two quantizations of the cotangent together. */
START_TEST(the_cotangent_has_figures)
{
    struct dice dice = {4};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(6, 8));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(8, 5));
    struct octet_array g = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(6, 5));
    struct octet_product_options options = {
        .rule = bench_rule(&full), .cotangent = &g, .numerics = true};

    ((float *)g.data)[3] = NAN;
    struct octet_product out = dot(x, w, &matmul_dims, &options);
    ck_assert(out.cotangent.is_quantized);
    ck_assert_int_eq(out.cotangent.nonfinite, 2);
    ck_assert(out.cotangent.scale_min > 0 && out.cotangent.scale_max >= out.cotangent.scale_min);
    ck_assert(out.cotangent.sqnr_db > 15 && out.cotangent.sqnr_db < 40);
    options.rule = NULL;
    out = dot(x, w, &matmul_dims, &options);
    ck_assert(!out.cotangent.is_quantized);
    ck_assert_int_eq(out.cotangent.nonfinite, 1);
    ck_assert_float_gt(out.cotangent.amax, 0);
}
END_TEST

/* ---- packed weights ---- */

static struct octet_quantized codes_of(struct octet_array array, const char *qtype, int32_t channel,
                                       int32_t tiled_axis, const char *tile)
{
    const struct octet_tiled_axis tiles = {tiled_axis, tile};
    const struct octet_quantize_options how = {.qtype = qtype,
                                               .channelwise_axes = &channel,
                                               .channelwise_axis_count = 1,
                                               .tiled_axes = &tiles,
                                               .tiled_axis_count = tile != NULL};
    struct octet_quantized out;

    bench_ok(octet_quantize(&bench.compute, &array, &how, &out, &bench.err));
    return out;
}

static const char *const code_types[] = {"float8_e4m3fn", "float8_e5m2", "int8", "float4_e2m1fn"};

/* The same codes, read as they lie and packed; few rows and many, both layouts, tiles. */
START_TEST(packed_weights_change_no_bit)
{
    struct dice dice = {(uint64_t)_i};
    const int64_t m = roll_between(&dice, 1, _i % 3 ? 9 : 70), n = roll_between(&dice, 1, 140);
    const bool has_tiles = _i % 4 == 3, turned = _i % 2;
    const int64_t k = has_tiles ? 256 * roll_between(&dice, 1, 3) : roll_between(&dice, 1, 700);
    const int64_t of_matrix[] = {turned ? n : k, turned ? k : n};
    const struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {turned}};
    const struct octet_product_options how = {.numerics = true};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(m, k));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, of_matrix);
    struct octet_operand lhs = quantized(codes_of(x, code_types[_i % 3], 0, 0, NULL));
    struct octet_operand rhs = quantized(
        codes_of(w, code_types[_i / 3 % 4], turned ? 0 : 1, turned, has_tiles ? "256" : NULL));
    struct octet_product plain_way, packed_way;

    for (size_t i = 0; i < bench.workers_count; i++) {
        name_workers(i);
        rhs.quantized.packed = (struct octet_packed){0};
        bench_ok(
            octet_dot_general(&bench.compute, &lhs, &rhs, &dims, &how, &plain_way, &bench.err));
        bench_ok(octet_pack(&bench.compute, &rhs.quantized, turned, &bench.err));
        bench_ok(
            octet_dot_general(&bench.compute, &lhs, &rhs, &dims, &how, &packed_way, &bench.err));
        same_products(&plain_way, &packed_way);
    }
}
END_TEST

START_TEST(packed_groups_change_no_bit)
{
    struct dice dice = {(uint64_t)_i};
    const bool turned = _i % 2;
    const int64_t k = roll_between(&dice, 1, 300), n = roll_between(&dice, 1, 80), groups = 5;
    const int32_t sizes[] = {0, 1, (int32_t)roll_between(&dice, 0, 30), 9, 2};
    const int64_t of_groups[] = {groups, turned ? n : k, turned ? k : n};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(50, k));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 3, of_groups);
    struct octet_array group_sizes = sizes_of(groups, sizes);
    const struct octet_product_options how = {.numerics = true};
    struct octet_operand lhs = quantized(codes_of(x, code_types[_i % 3], 0, 0, NULL));
    struct octet_operand rhs =
        quantized(codes_of(w, code_types[_i / 3 % 3], turned ? 1 : 2, 0, NULL));
    struct octet_product plain_way, packed_way;

    for (size_t i = 0; i < bench.workers_count; i++) {
        name_workers(i);
        rhs.quantized.packed = (struct octet_packed){0};
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &group_sizes, turned, OCTET_GMM, &how,
                                  &plain_way, &bench.err));
        bench_ok(octet_pack(&bench.compute, &rhs.quantized, turned ? 2 : 1, &bench.err));
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &group_sizes, turned, OCTET_GMM, &how,
                                  &packed_way, &bench.err));
        same_products(&plain_way, &packed_way);
    }
}
END_TEST

/* Packed for another axis, or of codes that were replaced since: not read. */
START_TEST(packed_codes_that_do_not_fit_are_left_alone)
{
    struct dice dice = {7};
    const struct octet_product_options how = {.numerics = true};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(3, 40));
    struct octet_quantized first = codes_of(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(40, 40)),
                                            "float8_e4m3fn", 1, 0, NULL);
    struct octet_operand lhs = quantized(codes_of(x, "float8_e4m3fn", 0, 0, NULL));
    struct octet_operand rhs = quantized(first);
    struct octet_product plain_way, packed_way;

    bench_ok(
        octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &how, &plain_way, &bench.err));
    bench_ok(octet_pack(&bench.compute, &rhs.quantized, 1, &bench.err));
    bench_ok(
        octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &how, &packed_way, &bench.err));
    same_products(&plain_way, &packed_way);
    struct octet_quantized other = codes_of(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(40, 40)),
                                            "float8_e4m3fn", 1, 0, NULL);
    bench_ok(octet_pack(&bench.compute, &other, 0, &bench.err));
    rhs.quantized.packed = other.packed;
    bench_ok(
        octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &how, &packed_way, &bench.err));
    same_products(&plain_way, &packed_way);
    bench_refused(octet_pack(&bench.compute, &other, 2, &bench.err), "axis",
                  "2 is neither 0 nor 1");
    other.qvalue.rank = 1;
    bench_refused(octet_pack(&bench.compute, &other, 0, &bench.err), "quantized.qvalue.shape",
                  "rank is 1");
}
END_TEST

TCase *property_tests(void)
{
    TCase *tests = tcase_create("properties");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_loop_test(tests, bits_depend_on_the_request_alone, 0, 20);
    tcase_add_loop_test(tests, threads_find_the_same_scales, 0, 4);
    tcase_add_loop_test(tests, grouped_bits_too, 0, 8);
    tcase_add_loop_test(tests, a_row_does_not_know_its_neighbours, 0, 4);
    tcase_add_loop_test(tests, a_layout_changes_nothing, 0, 8);
    tcase_add_loop_test(tests, groups_may_be_permuted, 0, 4);
    tcase_add_loop_test(tests, one_group_is_a_matmul, 0, 2);
    tcase_add_loop_test(tests, powers_of_two_go_through, 0, 4);
    tcase_add_loop_test(tests, gradients_are_slopes, 0, 10);
    tcase_add_loop_test(tests, an_out_dtype_is_a_cast, 0, 4);
    tcase_add_loop_test(tests, quantized_operands_are_as_good, 0, 2 * BENCH_WORKERS_MAX);
    tcase_add_test(tests, digests_tell_bytes_apart);
    tcase_add_loop_test(tests, figures_are_counts, 0, 12);
    tcase_add_test(tests, the_cotangent_has_figures);
    tcase_add_loop_test(tests, packed_weights_change_no_bit, 0, 24);
    tcase_add_loop_test(tests, packed_groups_change_no_bit, 0, 12);
    tcase_add_test(tests, packed_codes_that_do_not_fit_are_left_alone);
    return tests;
}
