/* The public functions on one array: octet_quantize, octet_dequantize; and the checks that every
 * public function makes of quantized arrays. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_env.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"
#include "rules/fields.h"

static bool is_code(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F8_E4M3FN || dtype == OCTET_DTYPE_F8_E5M2 ||
           dtype == OCTET_DTYPE_F4_E2M1FN || dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

static enum octet_status check_grid(const struct octet_array *qvalue,
                                    const struct octet_array *grid, const char *field,
                                    struct octet_error *err)
{
    char a[160], b[160];
    bool fits = grid->rank == qvalue->rank;

    for (int32_t i = 0; fits && i < grid->rank; i++)
        fits = grid->dim[i] == qvalue->dim[i] ||
               (grid->dim[i] > 0 && qvalue->dim[i] % grid->dim[i] == 0);
    if (fits)
        return OCTET_OK;
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, field,
        "%s does not divide qvalue's %s: the rank is the same, and each dimension 1, the "
        "same or a divisor",
        octet_array_shape_text(grid, a, sizeof a), octet_array_shape_text(qvalue, b, sizeof b));
}

enum octet_status oct_quantized_check(const struct octet_quantized *q, struct octet_error *err)
{
    enum octet_status status = oct_shape_check(&q->qvalue, "qvalue.shape", err);

    if (status != OCTET_OK)
        return status;

    if (!is_code(q->qvalue.dtype))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "qvalue.dtype",
                          "'%s' is no type of codes; expected float8_e4m3fn, float8_e5m2, "
                          "float4_e2m1fn, int8 or int4",
                          octet_dtype_name(q->qvalue.dtype));
    if (q->scale.dtype != OCTET_DTYPE_F32 && q->scale.dtype != OCTET_DTYPE_BF16)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "scale.dtype",
                          "'%s' is no type of a scale; expected float32 or bfloat16",
                          octet_dtype_name(q->scale.dtype));
    status = check_grid(&q->qvalue, &q->scale, "scale.shape", err);
    if (status != OCTET_OK || !q->zero_point.data)
        return status;
    if (q->zero_point.dtype != q->qvalue.dtype)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "zero_point.dtype",
                          "'%s' differs from qvalue's '%s'", octet_dtype_name(q->zero_point.dtype),
                          octet_dtype_name(q->qvalue.dtype));
    return check_grid(&q->qvalue, &q->zero_point, "zero_point.shape", err);
}

enum octet_status oct_shape_check(const struct octet_array *array, const char *field,
                                  struct octet_error *err)
{
    char shape[160];

    if (octet_array_fits(array))
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                      "%s: the dimensions other than 0 have a product beyond 2^59",
                      octet_array_shape_text(array, shape, sizeof shape));
}

static enum octet_status check_array(const struct octet_array *array, struct octet_error *err)
{
    if (oct_shape_check(array, "array.shape", err) != OCTET_OK)
        return OCTET_INVALID_ARGUMENT;
    if (array->dtype == OCTET_DTYPE_F32 || array->dtype == OCTET_DTYPE_BF16)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "array.dtype",
                      "'%s' cannot be quantized; expected float32 or bfloat16",
                      octet_dtype_name(array->dtype));
}

static enum octet_status read_axis(const char *field, int32_t given, int32_t rank, int32_t *axis,
                                   struct octet_error *err)
{
    *axis = given < 0 ? given + rank : given;
    if (*axis >= 0 && *axis < rank)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                      "axis %d is not one of an array of rank %d", given, rank);
}

static enum octet_status read_axes(const struct octet_compute *compute,
                                   const struct octet_quantize_options *options, int32_t rank,
                                   struct oct_how *how, struct octet_error *err)
{
    char field[64];
    int32_t axis;

    for (size_t i = 0; i < options->channelwise_axis_count; i++) {
        snprintf(field, sizeof field, "channelwise_axes[%zu]", i);
        if (read_axis(field, options->channelwise_axes[i], rank, &axis, err) != OCTET_OK)
            return err ? err->status : OCTET_INVALID_ARGUMENT;
        how->channelwise |= 1u << axis;
    }
    for (size_t i = 0; i < options->tiled_axis_count; i++) {
        const struct octet_tiled_axis *tiled = &options->tiled_axes[i];
        snprintf(field, sizeof field, "tiled_axes[%d]", tiled->axis);
        enum octet_status status = read_axis(field, tiled->axis, rank, &axis, err);
        if (status != OCTET_OK)
            return status;
        if (how->channelwise >> axis & 1)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "axis %d has a scale for each index already (channelwise_axes)",
                              axis);
        if (how->tiles[axis])
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "axis %d is given tiles twice",
                              axis);
        status = oct_field_read(compute->arena, OCT_FIELD_TILE, field, tiled->tile_size,
                                &how->tiles[axis], err);
        if (status != OCTET_OK)
            return status;
        if (!how->tiles[axis][0])
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "no tile size; expected a number of elements such as 128, or a part "
                              "such as 1/4");
    }
    return OCTET_OK;
}

/* Types and methods that do not go together. */
static enum octet_status check_how(const struct oct_how *how, size_t tiled, struct octet_error *err)
{
    if (!oct_method_is_symmetric(how->method) && !oct_qtype_is_asymmetric(how->qtype))
        return octet_fail(
            err, OCTET_INVALID_ARGUMENT, "calibration_method",
            "'%s' has a range that is not symmetric, for which %s has no codes; int8 and "
            "int4 have",
            how->method, how->qtype->name);
    if (how->qtype->block && tiled == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "tiled_axes",
                          "%s needs an axis with tiles of %d", how->qtype->name, how->qtype->block);
    return OCTET_OK;
}

static enum octet_status read_how(const struct octet_compute *compute,
                                  const struct octet_array *array,
                                  const struct octet_quantize_options *options, struct oct_how *how,
                                  struct octet_error *err)
{
    const char *qtype;
    enum octet_status status =
        oct_field_read(compute->arena, OCT_FIELD_QTYPE, "qtype", options->qtype, &qtype, err);

    *how = (struct oct_how){.tiled_axis = -1};
    if (status == OCTET_OK)
        status = oct_field_read(compute->arena, OCT_FIELD_METHOD, "calibration_method",
                                options->calibration_method, &how->method, err);
    if (status != OCTET_OK)
        return status;
    how->qtype = oct_qtype_find(qtype);
    if (!how->qtype)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "qtype",
                          "no type to quantize to; expected float8_e4m3fn, float8_e5m2, "
                          "float4_e2m1fn, mxfp8, mxfp4, nvfp4 or int2 to int8");
    status = read_axes(compute, options, array->rank, how, err);
    return status == OCTET_OK ? check_how(how, options->tiled_axis_count, err) : status;
}

enum octet_status oct_quantize_how(const struct octet_compute *compute,
                                   const struct octet_array *array,
                                   const struct octet_quantize_options *options,
                                   struct oct_how *how, struct octet_error *err)
{
    enum octet_dtype scale_dtype = options->scale_dtype;
    enum octet_status status = check_array(array, err);

    if (status == OCTET_OK && scale_dtype && scale_dtype != OCTET_DTYPE_F32 &&
        scale_dtype != OCTET_DTYPE_BF16)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "scale_dtype",
                            "'%s' is no type of a scale; expected float32 or bfloat16",
                            octet_dtype_name(scale_dtype));
    return status == OCTET_OK ? read_how(compute, array, options, how, err) : status;
}

static enum octet_status quantize(const struct octet_compute *compute,
                                  const struct octet_array *array,
                                  const struct octet_quantize_options *options,
                                  struct octet_quantized *out, struct octet_error *err)
{
    struct oct_source source = oct_source_of(array);
    struct oct_calibration calibration;
    struct oct_how how;
    enum octet_dtype scale_dtype = options->scale_dtype;
    enum octet_status status = oct_quantize_how(compute, array, options, &how, err);

    *out = (struct octet_quantized){0};
    if (status == OCTET_OK)
        status = oct_quantize(compute, &source, &how, "tiled_axes", &calibration, out, err);
    if (status == OCTET_OK && scale_dtype)
        status = oct_array_cast(compute, &out->scale, scale_dtype, &out->scale, err);
    return status;
}

enum octet_status octet_quantize(const struct octet_compute *compute,
                                 const struct octet_array *array,
                                 const struct octet_quantize_options *options,
                                 struct octet_quantized *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    enum octet_status status = quantize(compute, array, options, out, err);

    oct_float_env_leave(env);
    return status;
}

static enum octet_status check_same_shape(const struct octet_array *array,
                                          const struct octet_quantized *quantized,
                                          struct octet_error *err)
{
    char a[160], b[160];
    const struct octet_array *q = &quantized->qvalue;
    bool same = array->rank == q->rank;

    for (int32_t i = 0; same && i < q->rank; i++)
        same = array->dim[i] == q->dim[i];
    if (same)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "quantized.qvalue.shape",
                      "%s is not the array's %s", octet_array_shape_text(q, b, sizeof b),
                      octet_array_shape_text(array, a, sizeof a));
}

enum octet_status octet_quantized_stats(const struct octet_compute *compute,
                                        const struct octet_array *array,
                                        const struct octet_quantized *quantized, const char *qtype,
                                        struct octet_operand_stats *out, struct octet_error *err)
{
    const struct oct_qtype *type = oct_qtype_find(qtype);
    struct octet_compute work = *compute;
    struct oct_stats stats = {.has_scale = false};
    enum octet_status status = check_array(array, err);

    if (status == OCTET_OK) {
        status = oct_quantized_check(quantized, err);
        if (status != OCTET_OK)
            octet_error_within(err, "quantized");
    }
    if (status == OCTET_OK)
        status = check_same_shape(array, quantized, err);
    if (status != OCTET_OK)
        return status;
    work.arena = octet_arena_create_within(compute->arena);
    if (!work.arena)
        return octet_arena_exhausted(compute->arena, err);
    struct oct_float_env env = oct_float_env_enter();
    status = oct_stats_add(&work, array, quantized, type ? type->largest : 0, &stats, err);
    if (status == OCTET_OK)
        oct_stats_finish(&stats, out);
    oct_float_env_leave(env);
    octet_arena_destroy(work.arena);
    return status;
}

static enum octet_status dequantize(const struct octet_compute *compute,
                                    const struct octet_quantized *quantized, enum octet_dtype dtype,
                                    struct octet_array *out, struct octet_error *err)
{
    enum octet_status status = oct_quantized_check(quantized, err);

    if (status != OCTET_OK) {
        octet_error_within(err, "quantized");
        return status;
    }
    if (dtype && dtype != OCTET_DTYPE_F32 && dtype != OCTET_DTYPE_BF16 && dtype != OCTET_DTYPE_F16)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "dtype",
                          "'%s' is no type to dequantize to; expected float32, bfloat16 or float16",
                          octet_dtype_name(dtype));
    status = oct_dequantize(compute, quantized, out, err);
    if (status == OCTET_OK && dtype)
        status = oct_array_cast(compute, out, dtype, out, err);
    return status;
}

enum octet_status octet_dequantize(const struct octet_compute *compute,
                                   const struct octet_quantized *quantized, enum octet_dtype dtype,
                                   struct octet_array *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    enum octet_status status = dequantize(compute, quantized, dtype, out, err);

    oct_float_env_leave(env);
    return status;
}
