/* A device's public ops beside the CPU's. What could break: an edge of a tile, an axis that lies
 * elsewhere, the order of additions, a rounding that the device's compiler makes its own way,
 * subnormals, NaN, an empty array or group. Every case asks for the same bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device.h"

static const char *const qtypes[] = {"float8_e4m3fn", "float8_e5m2", "float4_e2m1fn",
                                     "int8",          "int4",        "int6"};
enum { QTYPES = sizeof qtypes / sizeof *qtypes };
static const enum octet_dtype numbers[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};

/* Now and then what a kernel could stumble over. */
static void spoil(struct dice *dice, struct octet_array *array, bool with_nan)
{
    static const uint32_t odd[] = {0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff,
                                   0x3f800000, 0x7f800000, 0xff800000, 0x7fc00000};
    int64_t count = octet_array_elements(array);

    for (int64_t i = 0; i < 6 && count; i++) {
        uint32_t bits = odd[roll_between(dice, 0, with_nan ? 8 : 5)];
        int64_t at = roll_between(dice, 0, count - 1);
        if (array->dtype == OCTET_DTYPE_F32)
            ((uint32_t *)array->data)[at] = bits;
        else
            ((uint16_t *)array->data)[at] = (uint16_t)(bits >> 16);
    }
}

static void scale_up(struct octet_array *array, float by)
{
    for (int64_t i = 0; i < octet_array_elements(array) && array->dtype == OCTET_DTYPE_F32; i++)
        ((float *)array->data)[i] *= by;
}

START_TEST(quantize_equals_cpu)
{
    struct dice dice = {(uint64_t)_i};
    const int32_t axes[] = {0, 1, 2};
    const char *methods[] = {"absmax", "absmax,0.6", "fixed,-2,2", "absmax"};
    int64_t dim[] = {roll_between(&dice, 1, 9), roll_between(&dice, 1, 70) * 2,
                     roll_between(&dice, 1, 300)};
    struct octet_tiled_axis tiled = {1, "1/2"};
    uint64_t which = roll(&dice) % 8;
    struct octet_quantize_options how = {
        .qtype = qtypes[_i % QTYPES],
        .calibration_method = methods[_i / QTYPES % 4],
        .channelwise_axes = axes + which % 3,
        .channelwise_axis_count = which / 3 > 2               ? 0
                                  : which / 3 > 2 - which % 3 ? 1
                                                              : which / 3,
        .scale_dtype = _i % 5 == 0 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_UNSPECIFIED};
    struct octet_array array = array_random(&dice, numbers[_i / 2 % 2], 3, dim);
    struct octet_quantized a, b;

    if (_i % 3 == 0) {
        how.channelwise_axes = axes;
        how.channelwise_axis_count = 1;
        how.tiled_axes = &tiled;
        how.tiled_axis_count = 1;
    }
    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    scale_up(&array, ldexpf(1, (int)roll_between(&dice, -110, 110)));
    if (_i % 4 == 1)
        spoil(&dice, &array, _i % 8 == 1);
    bench_ok(octet_quantize(&bench.compute, &array, &how, &a, &bench.err));
    bench_ok(octet_backend_quantize(device, &bench.compute, &array, &how, &b, &bench.err));
    check_same_bits(&a.scale, &b.scale, "scale");
    check_same_bits(&a.qvalue, &b.qvalue, "qvalue");
}
END_TEST

/* Codes of NaN show its sign. */
START_TEST(codes_of_nan_equal_cpu)
{
    static const float given[] = {-NAN, NAN, INFINITY, -INFINITY, -2, 0};
    const int32_t axis = 0;
    struct octet_array array = array_of(numbers[_i % 2], 2, DIMS(6, 1), given);
    struct octet_quantize_options how = {.qtype = qtypes[_i / 2 % 2],
                                         .calibration_method = _i / 4 % 2 ? "absmax,1e-40" : "",
                                         .channelwise_axes = &axis,
                                         .channelwise_axis_count = _i >= 8};
    struct octet_quantized a, b;

    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    bench_ok(octet_quantize(&bench.compute, &array, &how, &a, &bench.err));
    bench_ok(octet_backend_quantize(device, &bench.compute, &array, &how, &b, &bench.err));
    check_same_bits(&a.scale, &b.scale, "scale");
    check_same_bits(&a.qvalue, &b.qvalue, "qvalue");
}
END_TEST

/* ---- products ---- */

static const struct octet_rule given_rules[] = {
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"},
    {.weight_qtype = "float8_e5m2", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "int8", .act_qtype = "int8", .weight_calibration_method = "absmax,0.7"},
    {.weight_qtype = "int8", .act_qtype = "int4", .bwd_qtype = "int8"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e5m2",
     .bwd_qtype = "float8_e5m2",
     .act_calibration_method = "fixed,-1,1",
     .disable_channelwise_axes = true},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .tile_size = "1/2"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .bwd_weight_grad_tile_size = "1/2"},
    {.weight_qtype = "float4_e2m1fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .additional_qt_config = (const struct octet_pair[]){{"dlhs_residual_qtype", "float8_e4m3fn"},
                                                         {"use_original_residuals", "true"}},
     .additional_qt_config_count = 2},
    {.act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
};
enum { RULES = sizeof given_rules / sizeof *given_rules, NO_RULE = RULES };

static const struct octet_rule *rule_of(int i)
{
    return i % (RULES + 1) == NO_RULE ? NULL : bench_rule(&given_rules[i % (RULES + 1)]);
}

static void check_products(const struct octet_product *a, const struct octet_product *b,
                           const struct octet_product_options *options)
{
    check_same_bits(&a->out, &b->out, "out");
    ck_assert_int_eq(a->is_quantized, b->is_quantized);
    ck_assert_str_eq(a->note, b->note);
    ck_assert_int_eq(b->accumulation, OCTET_EXACT_ORDER);
    if (options->cotangent) {
        ck_assert_int_eq(a->lhs_grad.data != NULL, b->lhs_grad.data != NULL);
        ck_assert_int_eq(a->rhs_grad.data != NULL, b->rhs_grad.data != NULL);
        if (a->lhs_grad.data)
            check_same_bits(&a->lhs_grad, &b->lhs_grad, "lhs_grad");
        if (a->rhs_grad.data)
            check_same_bits(&a->rhs_grad, &b->rhs_grad, "rhs_grad");
    }
    if (!options->numerics)
        return;
    ck_assert_str_eq(a->digest, b->digest);
    check_same_stats(&a->lhs, &b->lhs, "lhs");
    check_same_stats(&a->rhs, &b->rhs, "rhs");
    if (options->cotangent)
        check_same_stats(&a->cotangent, &b->cotangent, "cotangent");
}

static void compare_dots(const struct octet_operand *lhs, const struct octet_operand *rhs,
                         const struct octet_dot_dims *dims, struct octet_product_options *options,
                         struct dice *dice)
{
    struct octet_product a, b;
    struct octet_array g;

    for (int pass = 0; pass < 2; pass++) { /* the result's shape tells the cotangent's */
        bench_ok(octet_dot_general(&bench.compute, lhs, rhs, dims, options, &a, &bench.err));
        bench_ok(octet_backend_dot_general(device, &bench.compute, lhs, rhs, dims, options, &b,
                                           &bench.err));
        check_products(&a, &b, options);
        g = array_random(dice, a.out.dtype == OCTET_DTYPE_BF16 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32,
                         a.out.rank, a.out.dim);
        options->cotangent = &g;
    }
}

/* The sizes at which a tile of 64, a step of 16, a block of 256 begins and ends. */
static int64_t edge(struct dice *dice)
{
    static const int64_t edges[] = {1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 127, 129};

    return edges[roll_between(dice, 0, sizeof edges / sizeof *edges - 1)];
}

static int64_t edge_of_depth(struct dice *dice)
{
    static const int64_t edges[] = {1, 2, 3, 16, 17, 33, 255, 256, 257, 300, 511, 512, 515};

    return edges[roll_between(dice, 0, sizeof edges / sizeof *edges - 1)];
}

START_TEST(dot_equals_cpu)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype l = numbers[_i % 2], r = numbers[_i / 2 % 2];
    int64_t m = edge(&dice), n = edge(&dice), k = edge_of_depth(&dice), b = _i % 3 + 1;
    struct octet_product_options options = {.rule = rule_of(_i), .numerics = _i % 4 == 0};
    struct octet_array x, w;
    struct octet_dot_dims dims = matmul_dims;

    if (options.rule &&
        (options.rule->tile_size[0] || options.rule->bwd_weight_grad_tile_size[0])) {
        m += m % 2;
        k = _i % 3 ? 256 : 512;
        n += n % 2;
    }
    if (_i % 4 == 0) { /* x w */
        x = array_random(&dice, l, 2, DIMS(m, k));
        w = array_random(&dice, r, 2, DIMS(k, n));
    } else if (_i % 4 == 1) { /* both transposed */
        dims.lhs_contracting[0] = 0;
        dims.rhs_contracting[0] = 1;
        x = array_random(&dice, l, 2, DIMS(k, m));
        w = array_random(&dice, r, 2, DIMS(n, k));
    } else if (_i % 4 == 2) { /* a batch axis that lies elsewhere, free axes on both sides of it */
        dims = (struct octet_dot_dims){.contracting_count = 1,
                                       .batch_count = 1,
                                       .lhs_contracting = {3},
                                       .rhs_contracting = {2},
                                       .lhs_batch = {1},
                                       .rhs_batch = {0}};
        x = array_random(&dice, l, 4, DIMS(m < 20 ? m : 5, b, 4, k));
        w = array_random(&dice, r, 3, DIMS(b, n, k));
    } else { /* two contracted axes, in another order than they lie */
        dims = (struct octet_dot_dims){
            .contracting_count = 2, .lhs_contracting = {2, 0}, .rhs_contracting = {1, 2}};
        x = array_random(&dice, l, 3, DIMS(b * 2, m, k));
        w = array_random(&dice, r, 3, DIMS(n, k, b * 2));
    }
    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    if (_i % 5 == 3)
        scale_up(&x, ldexpf(1, (int)roll_between(&dice, -100, 100)));
    if (_i % 7 == 3)
        spoil(&dice, &x, _i % 2);
    if (_i % 11 == 3)
        options.out_dtype = OCTET_DTYPE_F16;
    struct octet_operand lhs = plain(x), rhs = plain(w);
    compare_dots(&lhs, &rhs, &dims, &options, &dice);
}
END_TEST

/* Operands that came quantized, with scales of any legal shape. */
START_TEST(quantized_operands_equal_cpu)
{
    struct dice dice = {(uint64_t)_i};
    struct octet_product_options options = {.numerics = _i % 3 == 0};
    const int32_t rows = 0, columns = 1;
    struct octet_tiled_axis l_tiled = {1, _i % 2 ? "1/2" : "32"}, r_tiled = {0, l_tiled.tile_size};
    struct octet_quantize_options l_how = {.qtype = qtypes[_i % QTYPES],
                                           .channelwise_axes = &rows,
                                           .channelwise_axis_count = _i % 3 != 0,
                                           .tiled_axes = &l_tiled,
                                           .tiled_axis_count = _i % 4 > 1};
    struct octet_quantize_options r_how = {.qtype = qtypes[_i / 2 % QTYPES],
                                           .channelwise_axes = &columns,
                                           .channelwise_axis_count = _i % 5 != 0,
                                           .tiled_axes = &r_tiled,
                                           .tiled_axis_count = _i % 4 == 2};
    struct octet_array x = array_random(&dice, numbers[_i % 2], 2, DIMS(edge(&dice), 512));
    struct octet_array w = array_random(&dice, numbers[_i / 3 % 2], 2, DIMS(512, edge(&dice)));
    struct octet_quantized l, r;

    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    bench_ok(octet_quantize(&bench.compute, &x, &l_how, &l, &bench.err));
    bench_ok(octet_quantize(&bench.compute, &w, &r_how, &r, &bench.err));
    struct octet_operand lhs = quantized(l), rhs = _i % 7 == 6 ? plain(w) : quantized(r);
    compare_dots(&lhs, &rhs, &matmul_dims, &options, &dice);
}
END_TEST

START_TEST(grouped_equals_cpu)
{
    struct dice dice = {(uint64_t)_i};
    int64_t k = _i % 3 ? edge_of_depth(&dice) : 256, n = edge(&dice), m = _i % 2 * 6, groups = 5;
    struct octet_product_options options = {
        .rule = rule_of(_i / 2), .numerics = _i % 4 == 0, .qwix_compatible = _i % 7 == 2};
    bool transposed = _i % 4 > 1;
    enum octet_grouped_op op = _i % 3 ? OCTET_GMM : OCTET_RAGGED_DOT;
    struct octet_product a, b;
    struct octet_array g;
    int32_t sizes[5];

    if (options.rule && !options.rule->act_qtype[0])
        options.qwix_compatible = false;
    if (options.rule && op == OCTET_RAGGED_DOT) {
        k = 256;
        n += n % 2;
        op = options.rule->bwd_weight_grad_tile_size[0] ? OCTET_GMM : op;
    }
    for (int i = 0; i < groups; i++) {
        sizes[i] = roll_chance(&dice, 25) ? 0 : (int32_t)roll_between(&dice, 1, 90);
        m += sizes[i];
    }
    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    struct octet_operand lhs = plain(array_random(&dice, numbers[_i % 2], 2, DIMS(m, k)));
    struct octet_operand rhs =
        plain(transposed ? array_random(&dice, numbers[_i / 2 % 2], 3, DIMS(groups, n, k))
                         : array_random(&dice, numbers[_i / 2 % 2], 3, DIMS(groups, k, n)));
    struct octet_array group_sizes = sizes_of(groups, sizes);
    for (int pass = 0; pass < 2; pass++) {
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &group_sizes, transposed, op,
                                  &options, &a, &bench.err));
        bench_ok(octet_backend_ragged_dot(device, &bench.compute, &lhs, &rhs, &group_sizes,
                                          transposed, op, &options, &b, &bench.err));
        check_products(&a, &b, &options);
        g = array_random(&dice, a.out.dtype, a.out.rank, a.out.dim);
        options.cotangent = &g;
    }
}
END_TEST

/* ---- what is empty, what is refused ---- */

START_TEST(empty_arrays)
{
    static const int64_t sizes[][3] = {{0, 5, 7}, {4, 0, 7}, {4, 5, 0}, {0, 0, 0}};
    const int64_t *s = sizes[_i % 4];
    struct octet_product_options options = {.rule = _i < 4 ? rule_of(0) : NULL};
    struct dice dice = {1};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(s[0], s[1])));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(s[1], s[2])));

    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    compare_dots(&lhs, &rhs, &matmul_dims, &options, &dice);
}
END_TEST

static void check_untaken(const struct octet_rule *given, const char *field)
{
    struct octet_product_options options = {.rule = bench_rule(given)};
    struct dice dice = {1};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(4, 64)));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(64, 4)));
    struct octet_product out;

    ck_assert_int_eq(octet_backend_dot_general(device, &bench.compute, &lhs, &rhs, &matmul_dims,
                                               &options, &out, &bench.err),
                     OCTET_UNIMPLEMENTED);
    ck_assert_str_eq(bench.err.field, field);
}

/* What capabilities say is not taken is refused by its name, before anything is computed. */
START_TEST(untaken_settings)
{
    const struct octet_capabilities *c = &octet_backend_facts(device)->capabilities;

    ck_assert(!c->sparsity && !c->static_scale && !c->stochastic_rounding);
    check_untaken(&(struct octet_rule){.weight_qtype = "int8",
                                       .act_qtype = "int8",
                                       .act_calibration_method = "rms,3"},
                  "rule.act_calibration_method");
    check_untaken(
        &(struct octet_rule){.weight_qtype = "mxfp8", .act_qtype = "mxfp8", .tile_size = "32"},
        "rule.act_qtype");
    check_untaken(&(struct octet_rule){.weight_qtype = "float8_e4m3fn",
                                       .act_qtype = "float8_e4m3fn",
                                       .sparsity = {.n = 1, .m = 2}},
                  "rule.sparsity");
    check_untaken(&(struct octet_rule){.weight_qtype = "float8_e4m3fn",
                                       .act_qtype = "float8_e4m3fn",
                                       .act_static_scale = true},
                  "rule.act_static_scale");
    if (!c->zero_points)
        check_untaken(&(struct octet_rule){.weight_qtype = "int8",
                                           .act_qtype = "int8",
                                           .weight_calibration_method = "minmax"},
                      "rule.weight_calibration_method");
}
END_TEST

/* The CPU's own refusals, word for word. */
START_TEST(refusals)
{
    struct dice dice = {1};
    struct octet_product_options options = {.rule = rule_of(0)};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(4, 8)));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(9, 4)));
    struct octet_product out;
    struct octet_error cpu;
    enum octet_status status =
        octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &options, &out, &cpu);

    ck_assert_int_eq(octet_backend_dot_general(device, &bench.compute, &lhs, &rhs, &matmul_dims,
                                               &options, &out, &bench.err),
                     status);
    ck_assert_str_eq(cpu.field, bench.err.field);
    ck_assert_str_eq(cpu.text, bench.err.text);
}
END_TEST

TCase *op_tests(void)
{
    TCase *tests = tcase_create("ops");

    tcase_add_checked_fixture(tests, device_begin, bench_end);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, quantize_equals_cpu, 0, SEEDS(160));
    tcase_add_loop_test(tests, codes_of_nan_equal_cpu, 0, 16);
    tcase_add_loop_test(tests, dot_equals_cpu, 0, SEEDS(132));
    tcase_add_loop_test(tests, quantized_operands_equal_cpu, 0, SEEDS(60));
    tcase_add_loop_test(tests, grouped_equals_cpu, 0, SEEDS(88));
    tcase_add_loop_test(tests, empty_arrays, 0, 8);
    tcase_add_test(tests, untaken_settings);
    tcase_add_test(tests, refusals);
    return tests;
}
