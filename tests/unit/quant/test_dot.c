/* octet_dot_general beside the reference, forward and backward, to the bit, for random dimension
 * numbers, rules and numbers. What could break: an axis of a scale, the order of additions, which
 * path is taken, which residual a gradient is made with, a rounding too many. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const char *const float_types[] = {"float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"};
static const char *const integer_types[] = {"int8", "int4", "int6", "int3"};
static const char *const methods[] = {"absmax", "absmax,0.7", "rms,4", "fixed,-2,2", "absmax,1.2"};

/* A random case. Everything that the rule points to lives here. */
struct trial {
    struct octet_operand lhs, rhs;
    struct octet_dot_dims dims;
    struct octet_array cotangent;
    struct octet_rule rule;
    bool has_rule, has_backward;
    enum octet_weight_operand weight;
    int32_t lhs_rank, rhs_rank, lhs_free, rhs_free;
    int64_t lhs_dim[8], rhs_dim[8], out_dim[8];
    int32_t out_rank, batch_axis;
    char tile[16], grad_tile[16];
};

static void shuffle(struct dice *dice, int32_t *order, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        order[i] = i;
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t k = (int32_t)roll_between(dice, 0, i), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* depth: of the last contracting axis; 0: any. */
static void choose_dims(struct trial *t, struct dice *dice, int64_t depth)
{
    struct octet_dot_dims *d = &t->dims;
    int32_t l_axis[8], r_axis[8], l = 0, r = 0;

    d->batch_count = roll_chance(dice, 40) ? (int32_t)roll_between(dice, 1, 2) : 0;
    d->contracting_count = roll_chance(dice, 35) ? (int32_t)roll_between(dice, 0, 2) : 1;
    t->lhs_free = (int32_t)roll_between(dice, 0, 2);
    t->rhs_free = (int32_t)roll_between(dice, 0, 2);
    if (depth && d->contracting_count == 0)
        d->contracting_count = 1;
    t->lhs_rank = d->batch_count + d->contracting_count + t->lhs_free;
    t->rhs_rank = d->batch_count + d->contracting_count + t->rhs_free;
    shuffle(dice, l_axis, t->lhs_rank);
    shuffle(dice, r_axis, t->rhs_rank);
    for (int32_t i = 0; i < d->batch_count; i++) {
        int64_t dim = roll_between(dice, 1, 3);
        d->lhs_batch[i] = l_axis[l];
        d->rhs_batch[i] = r_axis[r];
        t->lhs_dim[l_axis[l++]] = t->rhs_dim[r_axis[r++]] = dim;
    }
    for (int32_t i = 0; i < d->contracting_count; i++) {
        int64_t dim = roll_between(dice, 1, 9);
        if (i + 1 == d->contracting_count)
            dim = depth ? depth : roll_chance(dice, 15) ? roll_between(dice, 200, 600) : dim;
        d->lhs_contracting[i] = l_axis[l];
        d->rhs_contracting[i] = r_axis[r];
        t->lhs_dim[l_axis[l++]] = t->rhs_dim[r_axis[r++]] = dim;
    }
    while (l < t->lhs_rank)
        t->lhs_dim[l_axis[l++]] = roll_between(dice, 1, 5);
    while (r < t->rhs_rank)
        t->rhs_dim[r_axis[r++]] = roll_between(dice, 1, 5);
}

static bool is_named(const int32_t *axes, int32_t count, int32_t axis)
{
    for (int32_t i = 0; i < count; i++)
        if (axes[i] == axis)
            return true;
    return false;
}

static void find_out_dims(struct trial *t)
{
    const struct octet_dot_dims *d = &t->dims;

    t->out_rank = 0;
    for (int32_t i = 0; i < d->batch_count; i++)
        t->out_dim[t->out_rank++] = t->lhs_dim[d->lhs_batch[i]];
    for (int32_t i = 0; i < t->lhs_rank; i++)
        if (!is_named(d->lhs_batch, d->batch_count, i) &&
            !is_named(d->lhs_contracting, d->contracting_count, i))
            t->out_dim[t->out_rank++] = t->lhs_dim[i];
    for (int32_t i = 0; i < t->rhs_rank; i++)
        if (!is_named(d->rhs_batch, d->batch_count, i) &&
            !is_named(d->rhs_contracting, d->contracting_count, i))
            t->out_dim[t->out_rank++] = t->rhs_dim[i];
}

/* Types that have one path each: floats, integers, both, one side only. */
static void choose_types(struct trial *t, struct dice *dice)
{
    struct octet_rule *rule = &t->rule;

    rule->weight_qtype = roll_chance(dice, 70) ? float_types[roll_between(dice, 0, 2)]
                                               : integer_types[roll_between(dice, 0, 3)];
    rule->act_qtype = roll_chance(dice, 70)   ? float_types[roll_between(dice, 0, 2)]
                      : roll_chance(dice, 50) ? integer_types[roll_between(dice, 0, 3)]
                                              : "";
    if (roll_chance(dice, 65))
        rule->bwd_qtype = roll_chance(dice, 80) ? float_types[roll_between(dice, 0, 1)] : "int8";
    if (roll_chance(dice, 5))
        rule->weight_qtype = "";
    rule->weight_calibration_method = methods[roll_between(dice, 0, 4)];
    rule->act_calibration_method = methods[roll_between(dice, 0, 4)];
    rule->bwd_calibration_method = methods[roll_between(dice, 0, 4)];
    rule->disable_channelwise_axes = roll_chance(dice, 25);
}

static int64_t choose_tile(struct trial *t, struct dice *dice)
{
    static const int64_t tiles[] = {1, 2, 4, 32, 128, 130};
    int64_t tile = tiles[roll_between(dice, 0, 5)];

    snprintf(t->tile, sizeof t->tile, "%d", (int)tile);
    t->rule.tile_size = t->tile;
    return tile * roll_between(dice, 1, 4);
}

static int64_t choose_blocks(struct trial *t, struct dice *dice)
{
    bool nv = roll_chance(dice, 30);

    t->rule.weight_qtype = nv ? "nvfp4" : roll_chance(dice, 50) ? "mxfp8" : "mxfp4";
    t->rule.act_qtype = nv ? "nvfp4" : roll_chance(dice, 60) ? "mxfp8" : "";
    t->rule.tile_size = nv ? "16" : "32";
    return (nv ? 16 : 32) * roll_between(dice, 1, 3);
}

/* After the shapes are known. */
static void choose_rest(struct trial *t, struct dice *dice)
{
    struct octet_rule *rule = &t->rule;
    bool lhs = t->weight == OCTET_WEIGHT_LHS;
    int64_t elements = 1;

    /* The weight gradient contracts the other operand's free axes. */
    if (rule->bwd_qtype && t->weight != OCTET_WEIGHT_NONE && (lhs ? t->rhs_free : t->lhs_free) &&
        roll_chance(dice, 25)) {
        int64_t last = 1;
        const struct octet_dot_dims *d = &t->dims;
        const int32_t *c = lhs ? d->rhs_contracting : d->lhs_contracting;
        const int32_t *b = lhs ? d->rhs_batch : d->lhs_batch;
        for (int32_t i = 0; i < (lhs ? t->rhs_rank : t->lhs_rank); i++)
            if (!is_named(c, d->contracting_count, i) && !is_named(b, d->batch_count, i))
                last = lhs ? t->rhs_dim[i] : t->lhs_dim[i];
        snprintf(t->grad_tile, sizeof t->grad_tile, "%d", last % 2 ? (int)last : 2);
        rule->bwd_weight_grad_tile_size = t->grad_tile;
    }
    for (int32_t i = 0; i < t->rhs_rank; i++)
        elements *= t->rhs_dim[i];
    if (elements % 4 == 0 && roll_chance(dice, 12)) {
        int32_t m = 4;
        while (elements % (2 * m) == 0 && 2 * m <= 1024 && roll_chance(dice, 50))
            m *= 2;
        rule->sparsity = (struct octet_sparsity){.n = (int32_t)roll_between(dice, 1, m), .m = m};
    }
    int32_t ranks = lhs ? t->rhs_rank : t->lhs_rank;
    if (t->weight == OCTET_WEIGHT_NONE && t->rhs_rank < ranks)
        ranks = t->rhs_rank;
    if (rule->act_qtype[0] && ranks && roll_chance(dice, 10)) {
        rule->act_static_scale = true;
        t->batch_axis = (int32_t)roll_between(dice, 0, ranks - 1);
        rule->act_batch_axes = &t->batch_axis;
        rule->act_batch_axis_count = 1;
    }
}

static struct octet_array numbers(struct dice *dice, enum octet_dtype dtype, int32_t rank,
                                  const int64_t *dim, int oddities)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-30f, 3e38f};
    struct octet_array x = array_random(dice, OCTET_DTYPE_F32, rank, dim);
    float *v = x.data;

    for (int64_t i = 0; i < octet_array_elements(&x); i++)
        v[i] = roll_chance(dice, oddities) ? odd[roll_between(dice, 0, 6)]
                                           : ldexpf(v[i], (int)roll_between(dice, -3, 3));
    return dtype == OCTET_DTYPE_F32 ? x : array_of(dtype, rank, dim, v);
}

static enum octet_dtype any_dtype(struct dice *dice)
{
    return roll_chance(dice, 50) ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
}

static void choose(struct trial *t, struct dice *dice)
{
    int64_t depth = 0;
    int oddities = roll_chance(dice, 10) ? 5 : 0;
    enum octet_dtype dtype = any_dtype(dice), other = dtype;

    memset(t, 0, sizeof *t);
    t->has_rule = roll_chance(dice, 85);
    t->has_backward = roll_chance(dice, 75);
    t->weight = (enum octet_weight_operand)roll_between(dice, 0, 2);
    choose_types(t, dice);
    if (roll_chance(dice, 10))
        depth = choose_blocks(t, dice);
    else if (roll_chance(dice, 25))
        depth = choose_tile(t, dice);
    if (!t->rule.bwd_qtype && roll_chance(dice, 20)) { /* one side with zero points */
        t->rule.weight_qtype = roll_chance(dice, 50) ? "int8" : "int4";
        t->rule.weight_calibration_method = roll_chance(dice, 50) ? "minmax" : "fixed,-1,3";
        if (!t->rule.act_qtype[0] || strncmp(t->rule.act_qtype, "mx", 2) == 0 ||
            t->rule.act_qtype[0] == 'n') /* blocks need their tile size */
            t->rule.act_qtype = "int8";
    }
    choose_dims(t, dice, depth);
    choose_rest(t, dice);
    find_out_dims(t);
    if (roll_chance(dice, 20))
        other = any_dtype(dice);
    t->lhs = plain(numbers(dice, dtype, t->lhs_rank, t->lhs_dim, oddities));
    t->rhs = plain(numbers(dice, other, t->rhs_rank, t->rhs_dim, oddities));
    t->cotangent = numbers(dice, any_dtype(dice), t->out_rank, t->out_dim, oddities);
}

static void describe(const struct trial *t, uint64_t seed)
{
    const struct octet_rule *r = &t->rule;
    char l[80], rh[80];

    snprintf(bench.label, sizeof bench.label,
             "seed %llu: %s %s%s %s%s, w %s %s a %s %s b %s %s tile %s/%s%s%s%s",
             (unsigned long long)seed, t->has_rule ? "rule" : "no rule",
             octet_array_shape_text(&t->lhs.array, l, sizeof l),
             t->lhs.array.dtype == OCTET_DTYPE_BF16 ? "b" : "f",
             octet_array_shape_text(&t->rhs.array, rh, sizeof rh),
             t->rhs.array.dtype == OCTET_DTYPE_BF16 ? "b" : "f", r->weight_qtype,
             r->weight_calibration_method, r->act_qtype, r->act_calibration_method,
             r->bwd_qtype ? r->bwd_qtype : "", r->bwd_calibration_method,
             r->tile_size ? r->tile_size : "",
             r->bwd_weight_grad_tile_size ? r->bwd_weight_grad_tile_size : "",
             r->sparsity.m ? " n:m" : "", r->act_static_scale ? " static" : "",
             r->disable_channelwise_axes ? " per tensor" : "");
}

static void compare(const struct trial *t, const struct octet_product *out)
{
    struct ref_value l = ref_value_of(&t->lhs), r = ref_value_of(&t->rhs);
    struct ref_op op = {.rule = t->has_rule ? &t->rule : NULL, .weight = t->weight};

    if (t->has_backward)
        op.cotangent = ref_of(&t->cotangent);
    struct ref_result expected = ref_dot_general(&l, &r, &t->dims, &op);
    ref_same(&out->out, &expected.out, "out");
    if (!t->has_backward) {
        ck_assert_ptr_null(out->lhs_grad.data);
        ck_assert_ptr_null(out->rhs_grad.data);
        return;
    }
    ref_same(&out->lhs_grad, &expected.lhs_grad, "lhs_grad");
    ref_same(&out->rhs_grad, &expected.rhs_grad, "rhs_grad");
}

static void run_case(uint64_t seed)
{
    struct dice dice = {seed};
    struct trial t;
    struct octet_product out;

    bench_clear();
    choose(&t, &dice);
    describe(&t, seed);
    bench_use_any(seed);
    struct octet_product_options options = {.rule = t.has_rule ? bench_rule(&t.rule) : NULL,
                                            .weight_operand = t.weight,
                                            .cotangent = t.has_backward ? &t.cotangent : NULL,
                                            .accumulation =
                                                seed % 5 ? OCTET_EXACT_ORDER : OCTET_FAST};
    bench_ok(
        octet_dot_general(&bench.compute, &t.lhs, &t.rhs, &t.dims, &options, &out, &bench.err));
    ck_assert_int_eq(out.is_quantized, t.has_rule && t.rule.weight_qtype[0]);
    ck_assert_int_eq(out.accumulation, OCTET_EXACT_ORDER);
    compare(&t, &out);
}

START_TEST(products_have_the_references_bits)
{
    for (uint64_t seed = 1; seed <= SEEDS(800); seed++)
        run_case(seed);
}
END_TEST

/* Large enough to be cut into items for several threads, with edges that no tile divides. */
START_TEST(large_products_too)
{
    struct trial t = {.has_rule = _i > 0, .has_backward = true, .dims = matmul_dims};
    enum octet_dtype dtype = _i % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    struct dice dice = {(uint64_t)_i};
    struct octet_product out;

    t.rule = (struct octet_rule){.weight_qtype = "float8_e4m3fn",
                                 .act_qtype = _i == 3 ? "" : "float8_e4m3fn",
                                 .bwd_qtype = _i == 4 ? "" : "float8_e5m2",
                                 .tile_size = _i == 5 ? "257" : ""};
    t.lhs = plain(array_random(&dice, dtype, 2, DIMS(71, 514)));
    t.rhs = plain(array_random(&dice, dtype, 2, DIMS(514, 67)));
    t.cotangent = array_random(&dice, dtype, 2, DIMS(71, 67));
    struct octet_product_options options = {.rule = _i ? bench_rule(&t.rule) : NULL,
                                            .cotangent = &t.cotangent};
    for (size_t w = 0; w < bench.workers_count; w += 5) {
        bench_use(w);
        bench_ok(
            octet_dot_general(&bench.compute, &t.lhs, &t.rhs, &t.dims, &options, &out, &bench.err));
        compare(&t, &out);
    }
}
END_TEST

/* ---- operands that come quantized ---- */

/* Codes with scales of any grid: per tensor, channel, tiles of any axis, with or without zero
 * points on one side. */
static struct octet_operand any_quantized(struct dice *dice, const struct octet_array *x,
                                          const char *qtype, const int64_t *tile, bool zero)
{
    int32_t axes[8], count = 0, tiled_count = 0;
    struct octet_tiled_axis tiled[8];
    char text[8][8];
    struct octet_quantized q;

    for (int32_t axis = 0; axis < x->rank; axis++) {
        if (tile[axis]) {
            snprintf(text[axis], sizeof text[axis], "%d", (int)tile[axis]);
            tiled[tiled_count++] = (struct octet_tiled_axis){axis, text[axis]};
        } else if (roll_chance(dice, 50)) {
            axes[count++] = axis;
        }
    }
    struct octet_quantize_options options = {.qtype = qtype,
                                             .calibration_method = zero ? "minmax" : "",
                                             .channelwise_axes = axes,
                                             .channelwise_axis_count = (size_t)count,
                                             .tiled_axes = tiled,
                                             .tiled_axis_count = (size_t)tiled_count};
    bench_ok(octet_quantize(&bench.compute, x, &options, &q, &bench.err));
    return quantized(q);
}

static void run_quantized_case(uint64_t seed)
{
    static const int64_t sizes[] = {2, 4, 64, 128, 150};
    struct dice dice = {seed + 100000};
    struct trial t = {.has_backward = roll_chance(&dice, 50)};
    enum octet_dtype dtype = any_dtype(&dice);
    int64_t tile = roll_chance(&dice, 50) ? sizes[roll_between(&dice, 0, 4)] : 0;
    int64_t l_tile[8] = {0}, r_tile[8] = {0};
    struct octet_product out;

    bench_clear();
    choose_dims(&t, &dice, tile * roll_between(&dice, 1, 3));
    find_out_dims(&t);
    int32_t last = t.dims.contracting_count - 1;
    if (tile && roll_chance(&dice, 70))
        l_tile[t.dims.lhs_contracting[last]] = tile;
    if (tile && roll_chance(&dice, 70))
        r_tile[t.dims.rhs_contracting[last]] = tile;
    bool integers = roll_chance(&dice, 30);
    const char *const *types = integers ? integer_types : float_types;
    struct octet_array x = numbers(&dice, dtype, t.lhs_rank, t.lhs_dim, 0);
    struct octet_array y = numbers(&dice, dtype, t.rhs_rank, t.rhs_dim, 0);
    int zero = integers ? (int)roll_between(&dice, 0, 2) : 0; /* 1: lhs, 2: rhs */
    bool l_plain = roll_chance(&dice, 20), r_plain = !l_plain && roll_chance(&dice, 20);
    t.lhs = l_plain ? plain(x)
                    : any_quantized(&dice, &x, types[roll_between(&dice, 0, 1)], l_tile, zero == 1);
    t.rhs = r_plain ? plain(y)
                    : any_quantized(&dice, &y, types[roll_between(&dice, 0, 1)], r_tile, zero == 2);
    t.cotangent = numbers(&dice, dtype, t.out_rank, t.out_dim, 0);
    snprintf(bench.label, sizeof bench.label, "quantized operands, seed %llu",
             (unsigned long long)seed);
    bench_use_any(seed);
    struct octet_product_options options = {.cotangent = t.has_backward ? &t.cotangent : NULL};
    bench_ok(
        octet_dot_general(&bench.compute, &t.lhs, &t.rhs, &t.dims, &options, &out, &bench.err));
    struct ref_value l = ref_value_of(&t.lhs), r = ref_value_of(&t.rhs);
    struct ref_op op = {.rule = NULL};
    struct ref_result expected = ref_dot_general(&l, &r, &t.dims, &op);
    ref_same(&out.out, &expected.out, "out");
    ck_assert_int_eq(out.lhs_grad.data != NULL, t.has_backward && l_plain);
    ck_assert_int_eq(out.rhs_grad.data != NULL, t.has_backward && r_plain);
}

START_TEST(quantized_operands_have_the_references_bits)
{
    for (uint64_t seed = 1; seed <= SEEDS(300); seed++)
        run_quantized_case(seed);
}
END_TEST

TCase *dot_tests(void)
{
    TCase *tests = tcase_create("dot");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_test(tests, products_have_the_references_bits);
    tcase_add_loop_test(tests, large_products_too, 0, 6);
    tcase_add_test(tests, quantized_operands_have_the_references_bits);
    return tests;
}
