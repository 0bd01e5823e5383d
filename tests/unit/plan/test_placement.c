/* Where ops run: on the accelerator what it takes, all else on the CPU. */
#include <string.h>

#include "fixture.h"
#include "octet/capabilities.h"

#define BIT(dtype) (1u << OCTET_DTYPE_##dtype)

static const struct octet_capabilities all = {
    .name = "toy",
    .code_dtypes = BIT(F8_E4M3FN) | BIT(F8_E5M2) | BIT(S8),
    .number_dtypes = BIT(F32) | BIT(BF16),
    .dot_general = true,
    .einsum = true,
    .grouped = true,
    .mixed = true,
    .tiles = true,
    .zero_points = true,
    .fixed = true,
    .static_scale = true,
    .sparsity = true,
    .stochastic_rounding = true,
};

struct counts {
    int ruled, placed; /* lines */
};

/* A plan of a small MoE model under rules in YAML; NULL: the config's fp8_full. */
static struct counts count(const char *yaml, const struct octet_capabilities *capabilities)
{
    struct fixture f;
    struct octet_graph_options options = {
        .batch_size = 1, .sequence_length = 128, .capabilities = capabilities};
    struct counts counts = {0, 0};
    octet_rules *rules = NULL;
    octet_plan *plan;

    fixture_begin(&f);
    const octet_config *config =
        fixture_config(&f, "deepseek3-tiny",
                       SETTINGS("quantization=fp8_full", "mtp_num_layers=1", "quantize_mtp=true"));
    if (yaml)
        ck_assert_msg(octet_rules_parse(f.context, yaml, strlen(yaml), &rules, &f.err) == OCTET_OK,
                      "%s: %s", yaml, f.err.text);
    ck_assert_int_eq(octet_plan_create(f.context, config, rules, &options, NULL, &plan, &f.err),
                     OCTET_OK);
    for (size_t i = 0; i < octet_plan_interception_count(plan); i++) {
        const struct octet_interception *line = octet_plan_interception(plan, i);
        bool is_placed = strcmp(line->backend, "cpu") != 0;
        ck_assert(!is_placed || (line->rule >= 0 && strcmp(line->backend, "toy") == 0));
        counts.ruled += line->rule >= 0;
        counts.placed += is_placed;
    }
    octet_plan_unref(plan);
    octet_rules_unref(rules);
    fixture_end(&f);
    return counts;
}

START_TEST(without_capabilities_all_runs_on_the_cpu)
{
    struct counts counts = count(NULL, NULL);

    ck_assert_int_gt(counts.ruled, 0);
    ck_assert_int_eq(counts.placed, 0);
}
END_TEST

/* A norm's multiplication by its weight is intercepted as an einsum and is no matmul. */
START_TEST(what_is_taken_goes_to_the_backend)
{
    struct octet_capabilities some = all;
    struct counts everything = count(NULL, &all);

    ck_assert_int_gt(everything.placed, 0);
    ck_assert_int_le(everything.placed, everything.ruled);
    some.grouped = false;
    ck_assert_int_lt(count(NULL, &some).placed, everything.placed);
    some.dot_general = some.einsum = false;
    ck_assert_int_eq(count(NULL, &some).placed, 0);
    some = all;
    some.code_dtypes = BIT(S8);
    ck_assert_int_eq(count(NULL, &some).placed, 0);
    some.code_dtypes = BIT(F8_E4M3FN); /* gradients of fp8_full are E5M2 */
    ck_assert_int_eq(count(NULL, &some).placed, 0);
    some = all;
    some.number_dtypes = BIT(F32); /* the model computes in bfloat16 */
    ck_assert_int_eq(count(NULL, &some).placed, 0);
}
END_TEST

#define RULE(more) "rules: [{weight_qtype: float8_e4m3fn, op_names: [dot_general], " more "}]"
#define WITHOUT(field)                                                                             \
    (&(struct octet_capabilities){                                                                 \
        .name = "toy",                                                                             \
        .code_dtypes = BIT(F8_E4M3FN) | BIT(F8_E5M2) | BIT(S8),                                    \
        .number_dtypes = BIT(F32) | BIT(BF16),                                                     \
        .dot_general = true,                                                                       \
        .mixed = strcmp(#field, "mixed") != 0,                                                     \
        .tiles = strcmp(#field, "tiles") != 0,                                                     \
        .zero_points = strcmp(#field, "zero_points") != 0,                                         \
        .fixed = strcmp(#field, "fixed") != 0,                                                     \
        .static_scale = strcmp(#field, "static_scale") != 0,                                       \
        .sparsity = strcmp(#field, "sparsity") != 0,                                               \
        .stochastic_rounding = strcmp(#field, "stochastic_rounding") != 0,                         \
    })

START_TEST(a_setting_that_is_not_taken_keeps_the_op_on_the_cpu)
{
    static const char plain[] = RULE("act_qtype: float8_e4m3fn");
    const struct {
        const char *rules;
        const struct octet_capabilities *without;
    } cases[] = {
        {RULE("act_calibration_method: absmax"), WITHOUT(mixed)},
        {RULE("act_qtype: float8_e4m3fn, tile_size: 64"), WITHOUT(tiles)},
        {RULE("act_qtype: float8_e4m3fn, bwd_qtype: float8_e5m2, bwd_weight_grad_tile_size: 64"),
         WITHOUT(tiles)},
        {"rules: [{weight_qtype: int8, act_qtype: int8, act_calibration_method: minmax}]",
         WITHOUT(zero_points)},
        {RULE("act_qtype: float8_e4m3fn, act_calibration_method: 'fixed,-2,2'"), WITHOUT(fixed)},
        {RULE("act_qtype: float8_e4m3fn, act_static_scale: true"), WITHOUT(static_scale)},
        {RULE("act_qtype: float8_e4m3fn, bwd_qtype: float8_e5m2, "
              "bwd_stochastic_rounding: uniform"),
         WITHOUT(stochastic_rounding)},
    };

    ck_assert_int_gt(count(plain, WITHOUT(nothing)).placed, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(count(cases[i].rules, WITHOUT(nothing)).placed > 0, "%s", cases[i].rules);
        ck_assert_msg(count(cases[i].rules, cases[i].without).placed == 0, "%s", cases[i].rules);
    }
    /* What is not known here stays. */
    ck_assert_int_eq(count(RULE("act_qtype: float8_e4m3fn, weight_calibration_method: 'rms,3'"),
                           WITHOUT(nothing))
                         .placed,
                     0);
    ck_assert_int_eq(
        count("rules: [{weight_qtype: mxfp8, act_qtype: mxfp8, tile_size: 32}]", WITHOUT(nothing))
            .placed,
        0);
}
END_TEST

TCase *placement_tests(void)
{
    TCase *tests = tcase_create("placement");

    tcase_add_test(tests, without_capabilities_all_runs_on_the_cpu);
    tcase_add_test(tests, what_is_taken_goes_to_the_backend);
    tcase_add_test(tests, a_setting_that_is_not_taken_keeps_the_op_on_the_cpu);
    return tests;
}
