/* octet_ragged_dot beside the reference, both ops, both layouts, forward and backward, to the bit.
 * What could break: a group's first row, rows past the last group, a scale's axis when rhs is
 * transposed, which of the two ops rounds where. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const char *const types[] = {"float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int8",
                                    "int4"};
static const char *const methods[] = {"absmax", "absmax,0.7", "rms,4", "fixed,-2,2"};

struct trial {
    int64_t m, k, n, groups;
    int32_t sizes[12];
    bool transposed, has_backward, compatible;
    enum octet_grouped_op op;
    struct octet_rule rule;
    const struct octet_rule *given; /* NULL: none */
    char tile[16], grad_tile[16];
    struct octet_operand lhs, rhs;
    struct octet_array cotangent, group_sizes;
};

/* Sums below m, equal to it, empty groups, all in one. */
static void choose_sizes(struct trial *t, struct dice *dice)
{
    int64_t left = roll_chance(dice, 50) ? t->m : roll_between(dice, 0, t->m);

    for (int64_t e = 0; e < t->groups; e++) {
        int64_t size = roll_chance(dice, 30) ? 0 : roll_between(dice, 0, left);
        if (e + 1 == t->groups && roll_chance(dice, 50))
            size = left;
        t->sizes[e] = (int32_t)size;
        left -= size;
    }
    t->group_sizes = sizes_of(t->groups, t->sizes);
}

static void choose_rule(struct trial *t, struct dice *dice)
{
    struct octet_rule *rule = &t->rule;

    rule->weight_qtype = types[roll_between(dice, 0, 4)];
    rule->act_qtype = roll_chance(dice, 15) ? "" : types[roll_between(dice, 0, 4)];
    if (roll_chance(dice, 65))
        rule->bwd_qtype = types[roll_between(dice, 0, 3)];
    if (roll_chance(dice, 60)) {
        rule->weight_calibration_method = methods[roll_between(dice, 0, 3)];
        rule->act_calibration_method = methods[roll_between(dice, 0, 3)];
        rule->bwd_calibration_method = methods[roll_between(dice, 0, 3)];
        rule->disable_channelwise_axes = roll_chance(dice, 30);
    }
    if (roll_chance(dice, 25)) {
        int64_t tile = roll_chance(dice, 50) ? roll_between(dice, 1, 5) : 128;
        t->k = tile * roll_between(dice, 1, 3);
        snprintf(t->tile, sizeof t->tile, "%d", (int)tile);
        rule->tile_size = t->tile;
    }
    if (rule->bwd_qtype && t->m % 2 == 0 && roll_chance(dice, 25)) {
        snprintf(t->grad_tile, sizeof t->grad_tile, "%d", (int)t->m / 2);
        rule->bwd_weight_grad_tile_size = t->m ? t->grad_tile : "";
    }
    if (!rule->bwd_qtype && roll_chance(dice, 15)) {
        rule->weight_qtype = "int8";
        rule->weight_calibration_method = "minmax";
    }
    t->compatible = rule->act_qtype[0] && roll_chance(dice, 25);
    t->given = bench_rule(rule);
}

static void choose(struct trial *t, struct dice *dice)
{
    enum octet_dtype dtype = roll_chance(dice, 50) ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;

    memset(t, 0, sizeof *t);
    t->m = roll_between(dice, 0, 24);
    t->k = roll_chance(dice, 10) ? roll_between(dice, 250, 520) : roll_between(dice, 1, 20);
    t->n = roll_between(dice, 1, 20);
    t->groups = roll_between(dice, 1, 8);
    t->transposed = roll_chance(dice, 50);
    t->has_backward = roll_chance(dice, 75);
    t->op = roll_chance(dice, 50) ? OCTET_GMM : OCTET_RAGGED_DOT;
    if (roll_chance(dice, 85))
        choose_rule(t, dice);
    choose_sizes(t, dice);
    t->lhs = plain(array_random(dice, dtype, 2, DIMS(t->m, t->k)));
    t->rhs = plain(array_random(
        dice, dtype, 3, t->transposed ? DIMS(t->groups, t->n, t->k) : DIMS(t->groups, t->k, t->n)));
    t->cotangent = array_random(dice, roll_chance(dice, 50) ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32, 2,
                                DIMS(t->m, t->n));
}

static void describe(const struct trial *t, uint64_t seed)
{
    const struct octet_rule *r = &t->rule;

    snprintf(bench.label, sizeof bench.label,
             "seed %llu: %s %s%s m %d k %d n %d g %d w %s %s a %s %s b %s %s tile %s/%s%s%s",
             (unsigned long long)seed, t->op == OCTET_GMM ? "gmm" : "ragged_dot",
             t->transposed ? "T " : "", t->lhs.array.dtype == OCTET_DTYPE_BF16 ? "bf16" : "f32",
             (int)t->m, (int)t->k, (int)t->n, (int)t->groups,
             r->weight_qtype ? r->weight_qtype : "",
             r->weight_calibration_method ? r->weight_calibration_method : "",
             r->act_qtype ? r->act_qtype : "",
             r->act_calibration_method ? r->act_calibration_method : "",
             r->bwd_qtype ? r->bwd_qtype : "",
             r->bwd_calibration_method ? r->bwd_calibration_method : "",
             r->tile_size ? r->tile_size : "",
             r->bwd_weight_grad_tile_size ? r->bwd_weight_grad_tile_size : "",
             r->disable_channelwise_axes ? " per tensor" : "", t->compatible ? " compatible" : "");
}

/* What Qwix takes of a rule for a ragged_dot: the types. */
static struct octet_rule types_of(const struct octet_rule *rule)
{
    return (struct octet_rule){.weight_qtype = rule->weight_qtype,
                               .act_qtype = rule->act_qtype,
                               .bwd_qtype = rule->bwd_qtype};
}

static void compare(const struct trial *t, const struct octet_product *out)
{
    struct ref_value l = ref_value_of(&t->lhs), r = ref_value_of(&t->rhs);
    struct octet_rule rule = t->rule;
    struct ref_op op = {.rule = t->given ? &rule : NULL, .weight = OCTET_WEIGHT_RHS};

    if (t->compatible && t->op == OCTET_RAGGED_DOT)
        rule = types_of(&t->rule);
    if (t->has_backward)
        op.cotangent = ref_of(&t->cotangent);
    struct ref_result expected = ref_grouped(&l, &r, t->sizes, t->transposed, t->op, &op);
    ref_same(&out->out, &expected.out, "out");
    if (!t->has_backward)
        return;
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
    struct octet_product_options options = {.rule = t.given,
                                            .cotangent = t.has_backward ? &t.cotangent : NULL,
                                            .qwix_compatible = t.compatible};
    bench_ok(octet_ragged_dot(&bench.compute, &t.lhs, &t.rhs, &t.group_sizes, t.transposed, t.op,
                              &options, &out, &bench.err));
    compare(&t, &out);
}

START_TEST(grouped_products_have_the_references_bits)
{
    for (uint64_t seed = 1; seed <= SEEDS(800); seed++)
        run_case(seed);
}
END_TEST

/* Operands that come quantized: rhs with a scale for each group too, tiles along k. */
static void run_quantized_case(uint64_t seed)
{
    struct dice dice = {seed + 100000};
    struct trial t = {.rule.weight_qtype = ""};
    int64_t tile = roll_chance(&dice, 40) ? roll_chance(&dice, 50) ? 3 : 128 : 0;
    struct octet_quantized lq, rq;
    struct octet_product out;
    char text[16];

    bench_clear();
    choose(&t, &dice);
    t.given = NULL;
    t.compatible = false;
    t.k = tile ? tile * roll_between(&dice, 1, 3) : t.k;
    enum octet_dtype dtype = t.lhs.array.dtype;
    struct octet_array x = array_random(&dice, dtype, 2, DIMS(t.m, t.k));
    struct octet_array w = array_random(
        &dice, dtype, 3, t.transposed ? DIMS(t.groups, t.n, t.k) : DIMS(t.groups, t.k, t.n));
    int32_t axes[] = {0, t.transposed ? 1 : 2};
    snprintf(text, sizeof text, "%d", (int)tile);
    struct octet_tiled_axis l_tiled = {1, text}, r_tiled = {t.transposed ? 2 : 1, text};
    struct octet_quantize_options l_options = {.qtype = types[roll_between(&dice, 0, 2)],
                                               .channelwise_axes = axes,
                                               .channelwise_axis_count = 1,
                                               .tiled_axes = &l_tiled,
                                               .tiled_axis_count = tile && seed % 2};
    struct octet_quantize_options r_options = {.qtype = types[roll_between(&dice, 0, 2)],
                                               .channelwise_axes = seed % 3 ? axes : axes + 1,
                                               .channelwise_axis_count = seed % 3 ? 2 : 1,
                                               .tiled_axes = &r_tiled,
                                               .tiled_axis_count = tile && seed % 5};
    bench_ok(octet_quantize(&bench.compute, &x, &l_options, &lq, &bench.err));
    bench_ok(octet_quantize(&bench.compute, &w, &r_options, &rq, &bench.err));
    t.lhs = seed % 7 ? quantized(lq) : plain(x);
    t.rhs = seed % 7 == 1 ? plain(w) : quantized(rq);
    snprintf(bench.label, sizeof bench.label, "quantized operands, seed %llu, %s",
             (unsigned long long)seed, t.op == OCTET_GMM ? "gmm" : "ragged_dot");
    bench_use_any(seed);
    struct octet_product_options options = {.rule = NULL};
    bench_ok(octet_ragged_dot(&bench.compute, &t.lhs, &t.rhs, &t.group_sizes, t.transposed, t.op,
                              &options, &out, &bench.err));
    t.has_backward = false;
    compare(&t, &out);
}

START_TEST(quantized_groups_have_the_references_bits)
{
    for (uint64_t seed = 1; seed <= SEEDS(250); seed++)
        run_quantized_case(seed);
}
END_TEST

/* Sizes that no block divides, large enough for several threads. */
START_TEST(large_groups_too)
{
    struct dice dice = {(uint64_t)_i};
    struct trial t = {.m = 133,
                      .k = 260,
                      .n = 65,
                      .groups = 4,
                      .sizes = {5, 11, 17, 97},
                      .has_backward = true,
                      .transposed = _i % 2,
                      .op = _i / 2 % 2 ? OCTET_GMM : OCTET_RAGGED_DOT,
                      .rule = {.weight_qtype = "float8_e4m3fn",
                               .act_qtype = "float8_e4m3fn",
                               .bwd_qtype = "float8_e5m2"}};
    enum octet_dtype dtype = _i / 4 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    struct octet_product out;

    t.given = bench_rule(&t.rule);
    t.group_sizes = sizes_of(4, t.sizes);
    t.lhs = plain(array_random(&dice, dtype, 2, DIMS(t.m, t.k)));
    t.rhs =
        plain(array_random(&dice, dtype, 3, t.transposed ? DIMS(4, t.n, t.k) : DIMS(4, t.k, t.n)));
    t.cotangent = array_random(&dice, dtype, 2, DIMS(t.m, t.n));
    bench_use((size_t)_i + 1);
    struct octet_product_options options = {.rule = t.given, .cotangent = &t.cotangent};
    bench_ok(octet_ragged_dot(&bench.compute, &t.lhs, &t.rhs, &t.group_sizes, t.transposed, t.op,
                              &options, &out, &bench.err));
    compare(&t, &out);
}
END_TEST

TCase *grouped_tests(void)
{
    TCase *tests = tcase_create("grouped");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_test(tests, grouped_products_have_the_references_bits);
    tcase_add_test(tests, quantized_groups_have_the_references_bits);
    tcase_add_loop_test(tests, large_groups_too, 0, 8);
    return tests;
}
