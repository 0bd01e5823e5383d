/* What is refused, with the field at fault and why; and what is legal although it is empty. What
 * could break: a check left out (then a crash), a field misnamed (then a user who looks elsewhere).
 */
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

/* ---- octet_quantize, octet_dequantize ---- */

static void refuses_to_quantize(const struct octet_quantize_options *options, const char *field,
                                const char *part)
{
    struct octet_array x = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 96));
    struct octet_quantized q;

    snprintf(bench.label, sizeof bench.label, "quantize %s", field);
    bench_refused(octet_quantize(&bench.compute, &x, options, &q, &bench.err), field, part);
}
#define TILED(axis, size)                                                                          \
    .tiled_axes = (const struct octet_tiled_axis[]){{axis, size}}, .tiled_axis_count = 1
#define CHANNELWISE(...)                                                                           \
    .channelwise_axes = (const int32_t[]){__VA_ARGS__},                                            \
    .channelwise_axis_count = sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)
#define REFUSES_TO_QUANTIZE(field, part, ...)                                                      \
    refuses_to_quantize(&(struct octet_quantize_options){__VA_ARGS__}, field, part)

START_TEST(quantize_refuses)
{
    REFUSES_TO_QUANTIZE("qtype", "no type to quantize to", .qtype = NULL);
    REFUSES_TO_QUANTIZE("qtype", "no type to quantize to", .qtype = "");
    REFUSES_TO_QUANTIZE("qtype", "'float8' is no", .qtype = "float8");
    REFUSES_TO_QUANTIZE("qtype", "float32", .qtype = "float32");
    REFUSES_TO_QUANTIZE("calibration_method", "unknown", .qtype = "int8",
                        .calibration_method = "median");
    REFUSES_TO_QUANTIZE("calibration_method", "factor", .qtype = "int8",
                        .calibration_method = "rms");
    REFUSES_TO_QUANTIZE("calibration_method", "range", .qtype = "int8",
                        .calibration_method = "fixed");
    REFUSES_TO_QUANTIZE("calibration_method", "positive", .qtype = "int8",
                        .calibration_method = "absmax,-1");
    REFUSES_TO_QUANTIZE("calibration_method", "not symmetric", .qtype = "float8_e4m3fn",
                        .calibration_method = "minmax");
    REFUSES_TO_QUANTIZE("calibration_method", "not symmetric", .qtype = "mxfp8",
                        .calibration_method = "fixed,-1,2", TILED(1, "32"));
    REFUSES_TO_QUANTIZE("calibration_method", "not symmetric", .qtype = "int7",
                        .calibration_method = "minmax");
    REFUSES_TO_QUANTIZE("channelwise_axes[0]", "axis 2 is not one of an array of rank 2",
                        .qtype = "int8", CHANNELWISE(2));
    REFUSES_TO_QUANTIZE("channelwise_axes[1]", "axis -3", .qtype = "int8", CHANNELWISE(0, -3));
    REFUSES_TO_QUANTIZE("channelwise_axes[0]", "axis 2147483647", .qtype = "int8",
                        CHANNELWISE(INT32_MAX));
    REFUSES_TO_QUANTIZE("channelwise_axes[0]", "axis -2147483648", .qtype = "int8",
                        CHANNELWISE(INT32_MIN));
    REFUSES_TO_QUANTIZE("tiled_axes[5]", "axis 5", .qtype = "int8", TILED(5, "32"));
    REFUSES_TO_QUANTIZE("tiled_axes[-3]", "axis -3", .qtype = "int8", TILED(-3, "32"));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "axis 1 has a scale for each index already",
                        .qtype = "int8", CHANNELWISE(1), TILED(1, "32"));
    REFUSES_TO_QUANTIZE("tiled_axes[-1]", "axis 1 is given tiles twice", .qtype = "int8",
                        .tiled_axes = (const struct octet_tiled_axis[]){{1, "32"}, {-1, "32"}},
                        .tiled_axis_count = 2);
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "'zwei'", .qtype = "int8", TILED(1, "zwei"));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "'-1'", .qtype = "int8", TILED(1, "-1"));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "no tile size", .qtype = "int8", TILED(1, ""));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "no tile size", .qtype = "int8", TILED(1, NULL));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "does not divide dimension 1 of [4, 96]", .qtype = "int8",
                        TILED(1, "36"));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "does not divide", .qtype = "int8", TILED(1, "97"));
    REFUSES_TO_QUANTIZE("tiled_axes[1]", "tiles of 32", .qtype = "mxfp8", TILED(1, "16"));
    REFUSES_TO_QUANTIZE("tiled_axes", "tiles of 32", .qtype = "mxfp4");
    REFUSES_TO_QUANTIZE("tiled_axes", "tiles of 16", .qtype = "nvfp4", CHANNELWISE(0));
    REFUSES_TO_QUANTIZE("scale_dtype", "float16", .qtype = "int8", .scale_dtype = OCTET_DTYPE_F16);
    REFUSES_TO_QUANTIZE("scale_dtype", "int8", .qtype = "int8", .scale_dtype = OCTET_DTYPE_S8);
}
END_TEST

START_TEST(quantize_refuses_types)
{
    struct octet_quantize_options options = {.qtype = "int8"};
    struct octet_quantized q;

    for (int d = 0; d < OCTET_DTYPE_COUNT; d++) {
        enum octet_dtype dtype = (enum octet_dtype)d;
        if (dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16)
            continue;
        struct octet_array x = array_zero(dtype, 1, DIMS(4));
        bench_refused(octet_quantize(&bench.compute, &x, &options, &q, &bench.err), "array.dtype",
                      octet_dtype_name(dtype));
    }
}
END_TEST

/* A quantized array that is one, to be broken by the caller. */
static struct octet_quantized sound(void)
{
    return (struct octet_quantized){.qvalue = array_zero(OCTET_DTYPE_S8, 2, DIMS(4, 6)),
                                    .scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 1)),
                                    .zero_point = array_zero(OCTET_DTYPE_S8, 2, DIMS(1, 3))};
}

struct broken {
    struct octet_quantized q;
    const char *field, *part;
};

static size_t break_it(struct broken *list)
{
    size_t n = 0;

    list[n] = (struct broken){sound(), "qvalue.dtype", "'float32' is no type of codes"};
    list[n++].q.qvalue = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 6));
    list[n] = (struct broken){sound(), "qvalue.dtype", "'float8_e8m0fnu'"};
    list[n++].q.qvalue = array_zero(OCTET_DTYPE_F8_E8M0FNU, 2, DIMS(4, 6));
    list[n] = (struct broken){sound(), "scale.dtype", "'int8' is no type of a scale"};
    list[n++].q.scale = array_zero(OCTET_DTYPE_S8, 2, DIMS(4, 1));
    list[n] = (struct broken){sound(), "scale.shape", "[4] does not divide qvalue's [4, 6]"};
    list[n++].q.scale = array_zero(OCTET_DTYPE_F32, 1, DIMS(4));
    list[n] = (struct broken){sound(), "scale.shape", "[3, 1] does not divide"};
    list[n++].q.scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(3, 1));
    list[n] = (struct broken){sound(), "scale.shape", "[4, 12]"};
    list[n++].q.scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 12));
    list[n] = (struct broken){sound(), "scale.shape", "[4, 0]"};
    list[n++].q.scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 0));
    list[n] = (struct broken){sound(), "zero_point.dtype", "'int4' differs from qvalue's 'int8'"};
    list[n++].q.zero_point = array_zero(OCTET_DTYPE_S4, 2, DIMS(1, 1));
    list[n] = (struct broken){sound(), "zero_point.shape", "[1, 4] does not divide"};
    list[n++].q.zero_point = array_zero(OCTET_DTYPE_S8, 2, DIMS(1, 4));
    return n;
}

START_TEST(broken_quantized_arrays_are_refused)
{
    struct octet_operand other = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 4)));
    struct octet_operand above = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(5, 4)));
    struct octet_product_options options = {.rule = NULL};
    struct octet_product out;
    struct octet_array x;
    struct broken list[16];
    char field[64];

    for (size_t i = 0, count = break_it(list); i < count; i++) {
        struct octet_operand broken = quantized(list[i].q);
        snprintf(bench.label, sizeof bench.label, "broken %zu", i);
        snprintf(field, sizeof field, "quantized.%s", list[i].field);
        bench_refused(
            octet_dequantize(&bench.compute, &list[i].q, OCTET_DTYPE_UNSPECIFIED, &x, &bench.err),
            field, list[i].part);
        snprintf(field, sizeof field, "lhs.quantized.%s", list[i].field);
        bench_refused(octet_dot_general(&bench.compute, &broken, &other, &matmul_dims, &options,
                                        &out, &bench.err),
                      field, list[i].part);
        snprintf(field, sizeof field, "rhs.quantized.%s", list[i].field);
        bench_refused(octet_dot_general(&bench.compute, &above, &broken, &matmul_dims, &options,
                                        &out, &bench.err),
                      field, list[i].part);
    }
    struct octet_quantized q = sound();
    bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_F16, &x, &bench.err));
    bench_refused(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_S8, &x, &bench.err), "dtype",
                  "'int8' is no type to dequantize to");
}
END_TEST

/* ---- dot_general ---- */

static void refuses_dot(const struct octet_operand *lhs, const struct octet_operand *rhs,
                        const struct octet_dot_dims *dims,
                        const struct octet_product_options *options, const char *field,
                        const char *part)
{
    struct octet_product out;

    snprintf(bench.label, sizeof bench.label, "dot %s %s", field, part);
    bench_refused(octet_dot_general(&bench.compute, lhs, rhs, dims, options, &out, &bench.err),
                  field, part);
}

START_TEST(dimension_numbers_are_checked)
{
    static const struct octet_product_options none;
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(2, 3, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(2, 4, 5)));
    static const struct {
        struct octet_dot_dims dims;
        const char *field, *part;
    } cases[] = {
        {{1, 1, {3}, {1}, {0}, {0}},
         "dimension_numbers.lhs_contracting[0]",
         "axis 3 is not one of an operand of rank 3"},
        {{1, 1, {2}, {-1}, {0}, {0}}, "dimension_numbers.rhs_contracting[0]", "axis -1"},
        {{1, 1, {2}, {1}, {7}, {0}}, "dimension_numbers.lhs_batch[0]", "axis 7"},
        {{1, 2, {2}, {1}, {0, 1}, {0, 2147483647}},
         "dimension_numbers.rhs_batch[1]",
         "axis 2147483647"},
        {{2, 0, {2, 2}, {1, 0}, {0}, {0}},
         "dimension_numbers.lhs_contracting[1]",
         "axis 2 is named twice"},
        {{1, 1, {2}, {1}, {2}, {0}}, "dimension_numbers.lhs_batch[0]", "axis 2 is named twice"},
        {{1, 1, {2}, {0}, {0}, {0}}, "dimension_numbers.rhs_batch[0]", "axis 0 is named twice"},
        {{1, 1, {2}, {2}, {0}, {0}}, "rhs.shape", "dimension 2 is 5, lhs' dimension 2 is 4"},
        {{1, 1, {2}, {1}, {1}, {0}}, "rhs.shape", "does not batch with lhs [2, 3, 4]"},
        {{9, 0, {0}, {0}, {0}, {0}}, "dimension_numbers", "up to 8"},
        {{-1, 0, {0}, {0}, {0}, {0}}, "dimension_numbers", "-1 contracting"},
        {{0, -2, {0}, {0}, {0}, {0}}, "dimension_numbers", "-2 batch"},
        {{0, 99, {0}, {0}, {0}, {0}}, "dimension_numbers", "99 batch"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses_dot(&l, &r, &cases[i].dims, &none, cases[i].field, cases[i].part);
    struct octet_operand wide = plain(array_zero(OCTET_DTYPE_F32, 5, DIMS(1, 1, 1, 1, 2)));
    struct octet_dot_dims outer = {0};
    refuses_dot(&wide, &wide, &outer, &none, "dimension_numbers", "the result has rank 10");
}
END_TEST

START_TEST(operands_are_checked)
{
    struct octet_product_options options = {.rule = NULL};
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(3, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_BF16, 2, DIMS(4, 5)));

    for (int d = 0; d < OCTET_DTYPE_COUNT; d++) {
        enum octet_dtype dtype = (enum octet_dtype)d;
        if (dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16)
            continue;
        struct octet_operand odd = plain(array_zero(dtype, 2, DIMS(3, 4)));
        struct octet_operand even = plain(array_zero(dtype, 2, DIMS(4, 5)));
        refuses_dot(&odd, &r, &matmul_dims, &options, "lhs.dtype", octet_dtype_name(dtype));
        refuses_dot(&l, &even, &matmul_dims, &options, "rhs.dtype", octet_dtype_name(dtype));
    }
    options.out_dtype = OCTET_DTYPE_S8;
    refuses_dot(&l, &r, &matmul_dims, &options, "out_dtype", "'int8' is no type of a result");
    options.out_dtype = OCTET_DTYPE_F8_E4M3FN;
    refuses_dot(&l, &r, &matmul_dims, &options, "out_dtype", "float8_e4m3fn");
}
END_TEST

START_TEST(cotangents_are_checked)
{
    struct octet_array good = array_zero(OCTET_DTYPE_BF16, 2, DIMS(3, 5)), bad = good;
    struct octet_product_options options = {.cotangent = &bad};
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(3, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 5)));
    struct octet_operand w = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(2, 4, 5)));
    struct octet_array sizes = sizes_of(2, (const int32_t[]){1, 2});
    struct octet_product out;

    for (int i = 0; i < 4; i++) {
        bad = good;
        bad.dtype = i == 0 ? OCTET_DTYPE_F16 : good.dtype;
        bad.rank = i == 1 ? 1 : 2;
        bad.dim[0] = i == 2 ? 2 : 3;
        bad.dim[1] = i == 3 ? 0 : 5;
        const char *field = i ? "cotangent.shape" : "cotangent.dtype";
        const char *part = i ? "is not the result's [3, 5]" : "'float16'";
        refuses_dot(&l, &r, &matmul_dims, &options, field, part);
        bench_refused(octet_ragged_dot(&bench.compute, &l, &w, &sizes, false, OCTET_GMM, &options,
                                       &out, &bench.err),
                      field, part);
        bench_refused(octet_einsum(&bench.compute, "ij,jk->ik", &l, &r, &options, &out, &bench.err),
                      field, part);
        if (i != 1) /* einsum tells of a rank in words of its own where it turns the result */
            continue;
        bench_refused(octet_einsum(&bench.compute, "ij,jk->ki", &l, &r, &options, &out, &bench.err),
                      field, "[3] is not the result's [5, 3]");
    }
}
END_TEST

/* Rules that do not go with the operands at hand. */
START_TEST(rules_are_checked_against_shapes)
{
    const struct {
        struct octet_rule rule;
        const char *field, *part;
    } cases[] = {
        {{.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .tile_size = "5"},
         "rule.tile_size",
         "'5' is 5 elements, which does not divide dimension 1 of [4, 6]"},
        {{.weight_qtype = "float8_e4m3fn", .tile_size = "4"}, "rule.tile_size", "dimension 0"},
        {{.weight_qtype = "mxfp8", .act_qtype = "mxfp8", .tile_size = "32"},
         "rule.tile_size",
         "does not divide"},
        {{.weight_qtype = "float8_e4m3fn",
          .act_qtype = "float8_e4m3fn",
          .bwd_qtype = "float8_e5m2",
          .bwd_weight_grad_tile_size = "3"},
         "rule.bwd_weight_grad_tile_size",
         "does not divide dimension 0 of [4, 3]"},
        {{.weight_qtype = "float8_e4m3fn", .sparsity = {.n = 2, .m = 4}},
         "rule.sparsity",
         "do not divide the 18 elements of [6, 3]"},
        {{.weight_qtype = "int8",
          .act_qtype = "int8",
          .act_static_scale = true,
          .act_batch_axes = (const int32_t[]){2},
          .act_batch_axis_count = 1},
         "rule.act_batch_axes",
         "axis 2 is not one of an operand of rank 2"},
        {{.weight_qtype = "int8",
          .act_qtype = "int8",
          .act_static_scale = true,
          .act_batch_axes = (const int32_t[]){-3},
          .act_batch_axis_count = 1},
         "rule.act_batch_axes",
         "axis -3"},
        {{.weight_qtype = "float8_e4m3fn",
          .act_qtype = "float8_e4m3fn",
          .bwd_qtype = "float8_e5m2",
          .additional_qt_config =
              (const struct octet_pair[]){{"use_original_residuals", "true"},
                                          {"dlhs_residual_qtype", "float8_e4m3fn"},
                                          {"dlhs_residual_calibration_method", "minmax"}},
          .additional_qt_config_count = 3},
         "rule.additional_qt_config[dlhs_residual_calibration_method]",
         "'minmax' has a range that is not symmetric, for which float8_e4m3fn has no codes"},
        {{.weight_qtype = "int8",
          .act_qtype = "int8",
          .bwd_qtype = "int8",
          .bwd_calibration_method = "minmax",
          .additional_qt_config =
              (const struct octet_pair[]){{"use_original_residuals", "true"},
                                          {"drhs_residual_qtype", "int8"},
                                          {"drhs_residual_calibration_method", "fixed,-1,3"}},
          .additional_qt_config_count = 3},
         "rule.additional_qt_config[drhs_residual_calibration_method]",
         "'fixed,-1,3' gives a zero point, and so does the gradient's 'minmax'"},
        {{.weight_qtype = "int8", .bwd_qtype = "int8", .bwd_stochastic_rounding = "uniform"},
         "rule.bwd_stochastic_rounding",
         "'uniform' draws random numbers"}};
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 6)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 3)));
    struct octet_array g = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 3));

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct octet_product_options options = {.rule = bench_rule(&cases[i].rule),
                                                .cotangent = &g};
        refuses_dot(&l, &r, &matmul_dims, &options, cases[i].field, cases[i].part);
    }
    struct octet_product_options options = {
        .rule = bench_rule(&(struct octet_rule){.weight_qtype = "int8", .tile_size = "4"})};
    struct octet_dot_dims outer = {0};
    refuses_dot(&l, &r, &outer, &options, "rule.tile_size", "no axis is contracted");
}
END_TEST

/* No elements, but strides and counts that do not fit. */
START_TEST(vast_shapes_without_elements_are_refused)
{
    const int64_t vast = INT64_C(1) << 40;
    struct octet_array x = {OCTET_DTYPE_F32, 3, {vast, vast, 0}, .data = &x};
    struct octet_operand l =
        plain((struct octet_array){OCTET_DTYPE_F32, 3, {0, vast, vast}, .data = &x});
    struct octet_quantize_options how = {
        .qtype = "int8", .channelwise_axes = (const int32_t[]){0, 1}, .channelwise_axis_count = 2};
    struct octet_dot_dims dims = {.contracting_count = 2,
                                  .batch_count = 1,
                                  .lhs_contracting = {1, 2},
                                  .rhs_contracting = {1, 2}};
    struct octet_product_options options = {.rule = NULL};
    struct octet_quantized q;

    bench_refused(octet_quantize(&bench.compute, &x, &how, &q, &bench.err), "array.shape",
                  "[1099511627776, 1099511627776, 0]: the dimensions other than 0");
    refuses_dot(&l, &l, &dims, &options, "lhs.shape", "the dimensions other than 0");
    struct octet_quantized given = {.qvalue = {OCTET_DTYPE_S8, 3, {vast, vast, 0}, .data = &x},
                                    .scale = {OCTET_DTYPE_F32, 3, {1, 1, 1}, .data = &x}};
    struct octet_array back;
    bench_refused(octet_dequantize(&bench.compute, &given, OCTET_DTYPE_F32, &back, &bench.err),
                  "quantized.qvalue.shape", "the dimensions other than 0");
}
END_TEST

/* A zero point may stand on one side only, and not before a quantized backward pass. */
START_TEST(zero_points_have_limits)
{
    struct octet_quantized q = sound(), p = sound();
    struct octet_product_options options = {.rule = NULL};
    struct octet_array g = array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 5));
    struct octet_dot_dims inner = {
        .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {1}};
    struct octet_product out;

    q.zero_point = p.zero_point = array_zero(OCTET_DTYPE_S8, 2, DIMS(1, 1));
    struct octet_operand l = quantized(q), r = quantized(p);
    snprintf(bench.label, sizeof bench.label, "two zero points");
    bench_refused(octet_dot_general(&bench.compute, &l, &r, &inner, &options, &out, &bench.err),
                  "rhs.quantized.zero_point", "both operands have zero points");
    /* An operand that came with one, under a rule that quantizes gradients. */
    r = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 5)));
    options.rule = bench_rule(&(struct octet_rule){
        .weight_qtype = "int8", .act_qtype = "int8", .bwd_qtype = "float8_e5m2"});
    options.cotangent = &g;
    refuses_dot(&l, &r, &matmul_dims, &options, "lhs.quantized.zero_point",
                "cannot be used in a quantized backward pass");
}
END_TEST

START_TEST(tiles_must_go_together)
{
    struct octet_product_options options = {.rule = NULL};
    struct octet_quantized q = {.qvalue = array_zero(OCTET_DTYPE_S8, 2, DIMS(2, 768)),
                                .scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(2, 3))};
    struct octet_quantized p = {.qvalue = array_zero(OCTET_DTYPE_S8, 2, DIMS(768, 2)),
                                .scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(2, 1))};
    struct octet_operand l = quantized(q), r = quantized(p);

    refuses_dot(&l, &r, &matmul_dims, &options, "rhs.quantized.scale.shape",
                "tiles of 384 along contracting axis 0 do not go with lhs' tiles of 256");
}
END_TEST

/* ---- grouped, einsum, conv ---- */

START_TEST(groups_are_checked)
{
    static const struct octet_product_options none;
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(3, 4, 5)));
    struct octet_operand cube = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(6, 4, 1)));
    struct octet_operand flat = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 5)));
    struct octet_array good = sizes_of(3, (const int32_t[]){1, 2, 3}), bad = good;
    const struct {
        const struct octet_operand *l, *r;
        bool transposed;
        const char *field, *part;
    } cases[] = {{&cube, &r, false, "lhs.shape", "[6, 4, 1] is not [m, k]"},
                 {&l, &flat, false, "rhs.shape", "[4, 5] is not [groups, k, n]"},
                 {&l, &flat, true, "rhs.shape", "[4, 5] is not [groups, n, k]"},
                 {&l, &r, true, "rhs.shape", "dimension 2 is 5, lhs' dimension 1 is 4"}};
    struct octet_product out;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bench_refused(octet_ragged_dot(&bench.compute, cases[i].l, cases[i].r, &good,
                                       cases[i].transposed, OCTET_RAGGED_DOT, &none, &out,
                                       &bench.err),
                      cases[i].field, cases[i].part);
    bad.dtype = OCTET_DTYPE_S64;
    bench_refused(
        octet_ragged_dot(&bench.compute, &l, &r, &bad, false, OCTET_GMM, &none, &out, &bench.err),
        "group_sizes.dtype", "'int64' is not int32");
    bad = good;
    bad.dim[0] = 2;
    bench_refused(
        octet_ragged_dot(&bench.compute, &l, &r, &bad, false, OCTET_GMM, &none, &out, &bench.err),
        "group_sizes.shape", "[2] is not [3]");
    bad.rank = 0;
    bench_refused(
        octet_ragged_dot(&bench.compute, &l, &r, &bad, false, OCTET_GMM, &none, &out, &bench.err),
        "group_sizes.shape", "[] is not [3]");
    struct octet_quantized q = {.qvalue = array_zero(OCTET_DTYPE_S8, 2, DIMS(6, 4)),
                                .scale = array_zero(OCTET_DTYPE_F32, 2, DIMS(2, 1))};
    struct octet_operand tiles = quantized(q);
    bench_refused(octet_ragged_dot(&bench.compute, &tiles, &r, &good, false, OCTET_GMM, &none, &out,
                                   &bench.err),
                  "lhs.quantized.scale.shape", "tiles along the rows");
    struct octet_operand even = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 4)));
    q = (struct octet_quantized){.qvalue = array_zero(OCTET_DTYPE_S8, 3, DIMS(4, 4, 5)),
                                 .scale = array_zero(OCTET_DTYPE_F32, 3, DIMS(2, 1, 1))};
    tiles = quantized(q);
    struct octet_array four = sizes_of(4, (const int32_t[]){1, 1, 1, 1});
    bench_refused(octet_ragged_dot(&bench.compute, &even, &tiles, &four, false, OCTET_GMM, &none,
                                   &out, &bench.err),
                  "rhs.quantized.scale.shape", "tiles along the groups");
}
END_TEST

START_TEST(grouped_rules_are_checked)
{
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(6, 64)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(2, 64, 5)));
    struct octet_array sizes = sizes_of(2, (const int32_t[]){1, 2});
    struct octet_product_options options = {
        .rule = bench_rule(&(struct octet_rule){.weight_qtype = "float8_e4m3fn"}),
        .qwix_compatible = true};
    struct octet_product out;

    bench_refused(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_RAGGED_DOT,
                                   &options, &out, &bench.err),
                  "rule.act_qtype", "needs a type for the activations");
    bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_GMM, &options, &out,
                              &bench.err));
    options.rule = bench_rule(
        &(struct octet_rule){.weight_qtype = "mxfp8", .act_qtype = "mxfp8", .tile_size = "32"});
    bench_refused(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_GMM, &options, &out,
                                   &bench.err),
                  "rule.tile_size", "does not give to a gmm");
    options.qwix_compatible = false;
    bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_RAGGED_DOT, &options,
                              &out, &bench.err));
    options.rule = bench_rule(&(struct octet_rule){.weight_qtype = "int8", .tile_size = "48"});
    bench_refused(octet_ragged_dot(&bench.compute, &l, &r, &sizes, false, OCTET_RAGGED_DOT,
                                   &options, &out, &bench.err),
                  "rule.tile_size", "does not divide");
}
END_TEST

START_TEST(equations_are_checked)
{
    static const struct octet_product_options none;
    static const struct {
        const char *equation, *field, *part;
    } cases[] = {{"", "equation", "expected two operands"},
                 {"ij", "equation", "expected two operands"},
                 {"ij->ij", "equation", "expected two operands"},
                 {"ij,jk", "equation", "expected '->'"},
                 {"ij,jk-", "equation", "expected '->'"},
                 {"ij,jk,kl->il", "equation", "expected '->'"},
                 {"...j,jk->...k", "equation", "expected letters"},
                 {"ij,j1->i1", "equation", "expected letters"},
                 {"ii,ik->ik", "equation", "twice"},
                 {"ij,jk->ii", "equation", "twice"},
                 {"ij,jk->iq", "equation", "that no operand has"},
                 {"ij,jk->k", "equation", "first operand is in neither"},
                 {"ij,jk->i", "equation", "second operand is in neither"},
                 {"ij,jk->ik,", "equation", "text follows"},
                 {"ij,jk->ik>", "equation", "expected letters"},
                 {"ij,jk->ik-", "equation", "text follows"},
                 {"abcdefghi,jk->ik", "equation", "more than 8 axes"},
                 {"ijk,jk->i", "lhs.shape", "rank 2, but 'ijk'"},
                 {"ij,j->i", "rhs.shape", "rank 2, but 'j'"},
                 {"ij,kj->ik", "rhs.shape", "'j' is 4 there and 5 here"}};
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(3, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 5)));
    struct octet_product out;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(bench.label, sizeof bench.label, "einsum '%s'", cases[i].equation);
        bench_refused(
            octet_einsum(&bench.compute, cases[i].equation, &l, &r, &none, &out, &bench.err),
            cases[i].field, cases[i].part);
    }
}
END_TEST

/* Fields of lhs and rhs are the caller's also where the operands are exchanged inside. */
START_TEST(an_exchanged_einsum_names_the_callers_operands)
{
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(3, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_S32, 2, DIMS(4, 5)));
    struct octet_product_options options = {.rule = NULL};
    struct octet_product out;

    bench_refused(octet_einsum(&bench.compute, "ij,jk->ki", &l, &r, &options, &out, &bench.err),
                  "rhs.dtype", "int32");
    r = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(4, 5)));
    l = plain(array_zero(OCTET_DTYPE_S32, 2, DIMS(3, 4)));
    bench_refused(octet_einsum(&bench.compute, "ij,jk->ki", &l, &r, &options, &out, &bench.err),
                  "lhs.dtype", "int32");
}
END_TEST

static const struct octet_conv_options simple = {.spatial_count = 2,
                                                 .stride = {1, 1},
                                                 .lhs_dilation = {1, 1},
                                                 .rhs_dilation = {1, 1},
                                                 .feature_groups = 1};

static void refuses_conv(const struct octet_conv_options *conv, const struct octet_operand *l,
                         const struct octet_operand *r, const char *field, const char *part)
{
    static const struct octet_product_options none;
    struct octet_product out;

    snprintf(bench.label, sizeof bench.label, "conv %s %s", field, part);
    bench_refused(octet_conv(&bench.compute, l, r, conv, &none, &out, &bench.err), field, part);
}

START_TEST(convolutions_are_checked)
{
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 5, 5, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 4, DIMS(3, 3, 4, 6)));
    struct octet_operand line = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(5, 5, 4)));
    struct octet_operand codes = plain(array_zero(OCTET_DTYPE_S8, 4, DIMS(1, 5, 5, 4)));
    static const struct {
        int what, axis;
        int64_t value;
        const char *field, *part;
    } numbers[] = {{0, 0, 0, "stride[0]", "0; expected 1"},
                   {0, 1, -1, "stride[1]", "-1"},
                   {0, 1, 1LL << 40, "stride[1]", "1099511627776"},
                   {1, 0, 0, "lhs_dilation[0]", "expected 1"},
                   {2, 1, 0, "rhs_dilation[1]", "expected 1"},
                   {3, 0, -1, "padding_low[0]", "-1; expected 0"},
                   {4, 1, -2, "padding_high[1]", "-2; expected 0"},
                   {5, 0, 0, "feature_groups", "at least 1"},
                   {6, 0, 0, "spatial_count", "0 spatial axes"},
                   {6, 0, 4, "spatial_count", "4 spatial axes"},
                   {5, 0, 3, "rhs.shape", "in 3 feature groups"}};
    struct octet_array g = array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 3, 3, 6));
    struct octet_product_options options = {.cotangent = &g};
    struct octet_product out;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct octet_conv_options conv = simple;
        int64_t *lists[] = {conv.stride, conv.lhs_dilation, conv.rhs_dilation, conv.padding_low,
                            conv.padding_high};
        if (numbers[i].what < 5)
            lists[numbers[i].what][numbers[i].axis] = numbers[i].value;
        else if (numbers[i].what == 5)
            conv.feature_groups = numbers[i].value;
        else
            conv.spatial_count = (int32_t)numbers[i].value;
        refuses_conv(&conv, &l, &r, numbers[i].field, numbers[i].part);
    }
    refuses_conv(&simple, &line, &r, "lhs.shape", "is not [batch, 2 spatial axes, channels]");
    refuses_conv(&simple, &l, &line, "rhs.shape", "is not [2 spatial axes, channels, features]");
    refuses_conv(&simple, &l, &l, "rhs.shape", "does not go with lhs");
    refuses_conv(&simple, &codes, &r, "lhs.dtype", "'int8'");
    ck_assert_int_eq(octet_conv(&bench.compute, &l, &r, &simple, &options, &out, &bench.err),
                     OCTET_UNIMPLEMENTED);
    ck_assert_str_eq(bench.err.field, "cotangent");
    options = (struct octet_product_options){
        .rule = bench_rule(&(struct octet_rule){.weight_qtype = "int8", .tile_size = "2"})};
    bench_refused(octet_conv(&bench.compute, &l, &r, &simple, &options, &out, &bench.err),
                  "rule.tile_size", "takes no tiles");
    struct octet_quantized q = {.qvalue = array_zero(OCTET_DTYPE_S8, 4, DIMS(1, 5, 5, 4)),
                                .scale = array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 1, 1, 4))};
    struct octet_operand odd = quantized(q);
    refuses_conv(&simple, &odd, &r, "lhs.quantized.scale.shape", "along axis 0 only");
    q.scale = array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 1, 1, 1));
    q.zero_point = array_zero(OCTET_DTYPE_S8, 4, DIMS(1, 1, 1, 1));
    odd = quantized(q);
    refuses_conv(&simple, &odd, &r, "lhs.quantized.zero_point", "without zero points");
}
END_TEST

/* Numbers of a convolution whose products do not fit are refused, not wrapped. */
START_TEST(vast_convolutions_are_refused)
{
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 5, 5, 4)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 4, DIMS(1, 1, 4, 6)));
    struct octet_product_options options = {.rule = NULL};
    struct octet_conv_options conv = simple;
    struct octet_product out;

    conv.padding_low[0] = conv.padding_low[1] = INT32_MAX;
    conv.padding_high[0] = conv.padding_high[1] = INT32_MAX;
    ck_assert_int_eq(octet_conv(&bench.compute, &l, &r, &conv, &options, &out, &bench.err),
                     OCTET_RESOURCE_EXHAUSTED);
    conv = simple;
    conv.feature_groups = INT64_MAX;
    ck_assert_int_eq(octet_conv(&bench.compute, &l, &r, &conv, &options, &out, &bench.err),
                     OCTET_INVALID_ARGUMENT);
}
END_TEST

/* ---- empty, and small ---- */

static const struct octet_rule full = {
    .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};

/* Any of batch, m, k, n may be 0. */
START_TEST(products_may_be_empty)
{
    struct octet_dot_dims dims = {
        .contracting_count = 1, .batch_count = 1, .lhs_contracting = {2}, .rhs_contracting = {1}};
    int64_t b = _i & 1 ? 0 : 2, m = _i & 2 ? 0 : 3, k = _i & 4 ? 0 : 4, n = _i & 8 ? 0 : 5;
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(b, m, k)));
    struct octet_operand r = plain(array_zero(OCTET_DTYPE_F32, 3, DIMS(b, k, n)));
    struct octet_array g = array_zero(OCTET_DTYPE_F32, 3, DIMS(b, m, n));

    for (int64_t i = 0; i < b * m * k; i++)
        ((float *)l.array.data)[i] = 1;
    for (int64_t i = 0; i < b * m * n; i++)
        ((float *)g.data)[i] = 1;
    for (int rule = 0; rule < 3; rule++) {
        static const struct octet_rule tiled = {
            .weight_qtype = "int8", .act_qtype = "int8", .tile_size = "4"};
        struct octet_product_options options = {
            .rule = rule ? bench_rule(rule == 1 ? &full : &tiled) : NULL,
            .cotangent = &g,
            .numerics = true};
        struct octet_product out;
        bench_use((size_t)_i);
        bench_ok(octet_dot_general(&bench.compute, &l, &r, &dims, &options, &out, &bench.err));
        struct ref expected = ref_make(OCTET_DTYPE_F32, 3, DIMS(b, m, n));
        ref_same(&out.out, &expected, "out");
        ck_assert(out.lhs_grad.dim[0] == b && out.lhs_grad.dim[1] == m && out.lhs_grad.dim[2] == k);
        ck_assert(out.rhs_grad.dim[0] == b && out.rhs_grad.dim[1] == k && out.rhs_grad.dim[2] == n);
        ck_assert_uint_eq(strlen(out.digest), 32);
        for (int64_t i = 0; i < b * m * k; i++) /* rhs is zero, so is lhs' gradient */
            ck_assert_float_eq(array_at(&out.lhs_grad, i), 0);
        for (int64_t i = 0; i < b * k * n && !rule; i++)
            ck_assert_float_eq(array_at(&out.rhs_grad, i), (float)m);
    }
}
END_TEST

START_TEST(groups_may_be_empty)
{
    int64_t m = _i & 1 ? 0 : 3, k = _i & 2 ? 0 : 4, n = _i & 4 ? 0 : 5, groups = _i & 8 ? 0 : 2;
    bool turned = _i >> 4 & 1;
    struct octet_operand l = plain(array_zero(OCTET_DTYPE_BF16, 2, DIMS(m, k)));
    struct octet_operand r =
        plain(array_zero(OCTET_DTYPE_BF16, 3, turned ? DIMS(groups, n, k) : DIMS(groups, k, n)));
    struct octet_array g = array_zero(OCTET_DTYPE_BF16, 2, DIMS(m, n));
    struct octet_array sizes = sizes_of(groups, (const int32_t[]){(int32_t)m, 0});

    for (int rule = 0; rule < 2; rule++)
        for (int op = 0; op < 2; op++) {
            struct octet_product_options options = {
                .rule = rule ? bench_rule(&full) : NULL, .cotangent = &g, .numerics = true};
            struct octet_product out;
            bench_ok(octet_ragged_dot(&bench.compute, &l, &r, &sizes, turned,
                                      op ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &out,
                                      &bench.err));
            struct ref expected = ref_make(OCTET_DTYPE_BF16, 2, DIMS(m, n));
            ref_same(&out.out, &expected, "out");
            ck_assert(out.lhs_grad.dim[0] == m && out.lhs_grad.dim[1] == k);
            ck_assert(out.rhs_grad.dim[0] == groups && out.rhs_grad.dim[turned ? 2 : 1] == k);
        }
}
END_TEST

START_TEST(arrays_may_be_empty_or_one_number)
{
    static const char *const methods[] = {"absmax", "rms,2", "minmax", "fixed,-1,1"};
    static const int64_t shapes[][3] = {{0, 3, 3}, {3, 0, 3}, {3, 3, 0}, {0, 0, 0}};
    struct octet_quantized q;
    struct octet_array back;

    for (int method = 0; method < 4; method++) {
        for (int shape = 0; shape < 4; shape++)
            for (int32_t axis = -1; axis < 3; axis++) {
                struct octet_array x = array_zero(OCTET_DTYPE_F32, 3, shapes[shape]);
                struct octet_quantize_options options = {.qtype = "int8",
                                                         .calibration_method = methods[method],
                                                         .channelwise_axes = &axis,
                                                         .channelwise_axis_count = axis >= 0};
                bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
                ck_assert_int_eq(octet_array_elements(&q.qvalue), 0);
                bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_BF16, &back, &bench.err));
                ck_assert_int_eq(octet_array_elements(&back), 0);
            }
        struct octet_array one = array_of(OCTET_DTYPE_F32, 0, NULL, FLOATS(0.75f));
        struct octet_quantize_options options = {.qtype = "int8",
                                                 .calibration_method = methods[method]};
        bench_ok(octet_quantize(&bench.compute, &one, &options, &q, &bench.err));
        ck_assert_int_eq(q.scale.rank, 0);
        bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_UNSPECIFIED, &back, &bench.err));
        ck_assert_float_eq_tol(array_at(&back, 0), 0.75f, 0.02f);
    }
}
END_TEST

/* Rank 0 times rank 0; all eight axes; a vector with itself. */
START_TEST(ranks_from_zero_to_eight)
{
    struct octet_dot_dims none = {0}, all = {.contracting_count = 8};
    struct octet_operand two = plain(array_of(OCTET_DTYPE_F32, 0, NULL, FLOATS(2)));
    struct octet_operand three = plain(array_of(OCTET_DTYPE_F32, 0, NULL, FLOATS(3)));
    struct octet_array one = array_of(OCTET_DTYPE_F32, 0, NULL, FLOATS(1));
    struct octet_product_options options = {.cotangent = &one};
    struct octet_product out;
    struct dice dice = {8};

    for (int rule = 0; rule < 2; rule++) {
        options.rule = rule ? bench_rule(&full) : NULL;
        bench_ok(
            octet_dot_general(&bench.compute, &two, &three, &none, &options, &out, &bench.err));
        ck_assert_int_eq(out.out.rank, 0);
        ck_assert_float_eq_tol(array_at(&out.out, 0), 6, 1e-5f);
        ck_assert_float_eq_tol(array_at(&out.lhs_grad, 0), 3, 1e-5f);
        ck_assert_float_eq_tol(array_at(&out.rhs_grad, 0), 2, 1e-5f);
    }
    options.rule = NULL;
    struct octet_operand x =
        plain(array_random(&dice, OCTET_DTYPE_F32, 8, DIMS(2, 1, 2, 2, 1, 2, 1, 2)));
    for (int32_t i = 0; i < 8; i++)
        all.lhs_contracting[i] = all.rhs_contracting[i] = i;
    bench_ok(octet_dot_general(&bench.compute, &x, &x, &all, &options, &out, &bench.err));
    double sum = 0;
    for (int64_t i = 0; i < 32; i++)
        sum += (double)array_at(&x.array, i) * (double)array_at(&x.array, i);
    ck_assert_float_eq_tol(array_at(&out.out, 0), (float)sum, 1e-4f);
    ck_assert(array_same(&out.lhs_grad, &x.array));
    struct octet_dot_dims batch = {.batch_count = 8};
    memcpy(batch.lhs_batch, all.lhs_contracting, sizeof batch.lhs_batch);
    memcpy(batch.rhs_batch, all.lhs_contracting, sizeof batch.rhs_batch);
    options.cotangent = NULL;
    bench_ok(octet_dot_general(&bench.compute, &x, &x, &batch, &options, &out, &bench.err));
    ck_assert_int_eq(out.out.rank, 8);
    ck_assert_float_eq(array_at(&out.out, 7), array_at(&x.array, 7) * array_at(&x.array, 7));
}
END_TEST

TCase *error_tests(void)
{
    TCase *tests = tcase_create("errors");

    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_test(tests, quantize_refuses);
    tcase_add_test(tests, quantize_refuses_types);
    tcase_add_test(tests, broken_quantized_arrays_are_refused);
    tcase_add_test(tests, dimension_numbers_are_checked);
    tcase_add_test(tests, operands_are_checked);
    tcase_add_test(tests, cotangents_are_checked);
    tcase_add_test(tests, rules_are_checked_against_shapes);
    tcase_add_test(tests, vast_shapes_without_elements_are_refused);
    tcase_add_test(tests, zero_points_have_limits);
    tcase_add_test(tests, tiles_must_go_together);
    tcase_add_test(tests, groups_are_checked);
    tcase_add_test(tests, grouped_rules_are_checked);
    tcase_add_test(tests, equations_are_checked);
    tcase_add_test(tests, an_exchanged_einsum_names_the_callers_operands);
    tcase_add_test(tests, convolutions_are_checked);
    tcase_add_test(tests, vast_convolutions_are_refused);
    tcase_add_loop_test(tests, products_may_be_empty, 0, 16);
    tcase_add_loop_test(tests, groups_may_be_empty, 0, 32);
    tcase_add_test(tests, arrays_may_be_empty_or_one_number);
    tcase_add_test(tests, ranks_from_zero_to_eight);
    return tests;
}
