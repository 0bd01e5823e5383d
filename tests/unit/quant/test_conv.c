/* octet_conv beside the reference, to the bit. What could break: an offset of the window, padding
 * that is not zero, a feature group's channels, a scale's axis. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const char *const types[] = {"float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int8", ""};

static void choose_window(struct octet_conv_options *conv, struct dice *dice, int64_t *x,
                          int64_t *w)
{
    bool is_simple = roll_chance(dice, 30);

    for (int32_t i = 0; i < conv->spatial_count; i++) {
        x[i + 1] = roll_between(dice, 0, conv->spatial_count == 1 ? 20 : 6);
        w[i] = roll_between(dice, 1, conv->spatial_count == 1 ? 7 : 3);
        conv->stride[i] = is_simple ? 1 : roll_between(dice, 1, 3);
        conv->padding_low[i] = is_simple ? 0 : roll_between(dice, 0, 3);
        conv->padding_high[i] = is_simple ? 0 : roll_between(dice, 0, 3);
        conv->lhs_dilation[i] = is_simple || roll_chance(dice, 50) ? 1 : roll_between(dice, 1, 3);
        conv->rhs_dilation[i] = is_simple || roll_chance(dice, 50) ? 1 : roll_between(dice, 1, 3);
    }
}

static void run_case(uint64_t seed)
{
    struct dice dice = {seed};
    struct octet_conv_options conv = {.spatial_count = (int32_t)roll_between(&dice, 1, 3)};
    int32_t spatial = conv.spatial_count;
    int64_t x_dim[8] = {roll_between(&dice, 0, 3)}, w_dim[8];
    enum octet_dtype dtype = roll_chance(&dice, 50) ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    struct octet_rule rule = {.weight_qtype = types[roll_between(&dice, 0, 4)],
                              .act_qtype = types[roll_between(&dice, 0, 4)],
                              .act_calibration_method = roll_chance(&dice, 30) ? "rms,3" : "",
                              .disable_channelwise_axes = roll_chance(&dice, 30)};
    struct octet_product out;

    bench_clear();
    conv.feature_groups = roll_chance(&dice, 60) ? 1 : roll_between(&dice, 1, 3);
    w_dim[spatial] = roll_between(&dice, 1, 4);
    w_dim[spatial + 1] = conv.feature_groups * roll_between(&dice, 1, 4);
    x_dim[spatial + 1] = w_dim[spatial] * conv.feature_groups;
    choose_window(&conv, &dice, x_dim, w_dim);
    struct octet_operand lhs = plain(array_random(&dice, dtype, spatial + 2, x_dim));
    struct octet_operand rhs = plain(array_random(&dice, dtype, spatial + 2, w_dim));
    struct octet_product_options options = {.rule = bench_rule(&rule)};
    snprintf(bench.label, sizeof bench.label, "seed %llu: w %s a %s, %d axes, %d groups",
             (unsigned long long)seed, rule.weight_qtype, rule.act_qtype, spatial,
             (int)conv.feature_groups);
    bench_use_any(seed);
    bench_ok(octet_conv(&bench.compute, &lhs, &rhs, &conv, &options, &out, &bench.err));
    struct ref_value l = ref_value_of(&lhs), r = ref_value_of(&rhs);
    struct ref_op op = {.rule = &rule, .weight = OCTET_WEIGHT_RHS};
    struct ref expected = ref_conv(&l, &r, &conv, &op);
    ref_same(&out.out, &expected, "out");
}

START_TEST(convolutions_have_the_references_bits)
{
    for (uint64_t seed = 1; seed <= SEEDS(500); seed++)
        run_case(seed);
}
END_TEST

/* A window of one is a matrix product. */
START_TEST(a_window_of_one_is_a_matmul)
{
    struct dice dice = {3};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 3, DIMS(1, 9, 20));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 3, DIMS(1, 20, 6));
    struct octet_conv_options conv = {.spatial_count = 1,
                                      .stride = {1},
                                      .lhs_dilation = {1},
                                      .rhs_dilation = {1},
                                      .feature_groups = 1};
    struct octet_product_options options = {.rule = NULL};
    struct octet_operand lhs = plain(x), rhs = plain(w);
    struct octet_product a, b;

    bench_ok(octet_conv(&bench.compute, &lhs, &rhs, &conv, &options, &a, &bench.err));
    lhs.array.rank = rhs.array.rank = 2;
    memcpy(lhs.array.dim, x.dim + 1, 2 * sizeof *x.dim);
    memcpy(rhs.array.dim, w.dim + 1, 2 * sizeof *w.dim);
    bench_ok(octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &options, &b, &bench.err));
    ck_assert_mem_eq(a.out.data, b.out.data, 9 * 6 * sizeof(float));
}
END_TEST

TCase *conv_tests(void)
{
    TCase *tests = tcase_create("conv");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_test(tests, convolutions_have_the_references_bits);
    tcase_add_test(tests, a_window_of_one_is_a_matmul);
    return tests;
}
