/* Quantization in steps: calibrate, scale, convert. As Qwix does it, with the bounds kept for
 * whoever masks gradients with them.
 *
 * For: products (contract.h), and the public octet_quantize. All memory is the compute's arena's.
 */
#ifndef OCTET_QUANT_QUANTIZE_H
#define OCTET_QUANT_QUANTIZE_H

#include "octet/quant.h"
#include "quant/qtype.h"
#include "quant/source.h"

/* How an array is quantized, in normal form. */
struct oct_how {
    const struct oct_qtype *qtype;
    const char *method;                      /* "absmax,0.8" */
    uint32_t channelwise;                    /* bit a: axis a has a scale for each index */
    int32_t tiled_axis;                      /* -1: none */
    const char *tile_size;                   /* of tiled_axis */
    const char *tiles[OCTET_ARRAY_RANK_MAX]; /* instead of these two: a size an axis, NULL: none */
    uint32_t mean_axes; /* act_static_scale: bit a: the calibration is averaged over axis a */
};

/* Checks octet_quantize's arguments; *how is what they say. */
enum octet_status oct_quantize_how(const struct octet_compute *compute,
                                   const struct octet_array *array,
                                   const struct octet_quantize_options *options,
                                   struct oct_how *how, struct octet_error *err) OCTET_MUST_CHECK;

/* What calibration found: |x| <= upper, or lower <= x <= upper; f32 values that the array's dtype
 * has. One for each scale. */
struct oct_calibration {
    int32_t rank;
    int64_t dim[OCTET_ARRAY_RANK_MAX]; /* the scale's shape */
    int64_t count;
    float *lower; /* NULL: symmetric */
    float *upper;
    bool is_fixed;
    bool clips;    /* gradients of what lies outside are masked: formula 11 */
    float largest; /* the qtype's, for figures */
};

/* tile_field: what the tiles are called in errors. */
enum octet_status oct_calibrate(const struct octet_compute *compute,
                                const struct oct_source *source, const struct oct_how *how,
                                const char *tile_field, struct oct_calibration *out,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* All of it that shapes tell: rank, dim, count, is_fixed, clips; lower is not NULL where there will
 * be one, and is not to be read. */
enum octet_status oct_calibration_shape(const struct octet_array *array, const struct oct_how *how,
                                        const char *tile_field, struct oct_calibration *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;

/* Calibrates, and makes codes, scale and zero point: in the arena, or in memory of the caller's
 * where out->qvalue, scale or zero_point have data set. The scale is of the numbers' dtype. A row
 * with a scale of its own is calibrated and converted while it is in cache. */
enum octet_status oct_quantize(const struct octet_compute *compute, const struct oct_source *source,
                               const struct oct_how *how, const char *tile_field,
                               struct oct_calibration *calibration, struct octet_quantized *out,
                               struct octet_error *err) OCTET_MUST_CHECK;

/* Sets x to 0 where `array` lies outside of the calibration's bounds (inclusive; NaN is outside).
 * x: F32 or BF16 of array's shape. Source: Qwix, clip_gradient_to_calibration. */
enum octet_status oct_mask_gradient(const struct octet_compute *compute,
                                    const struct octet_array *array,
                                    const struct oct_calibration *calibration,
                                    struct octet_array *x,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* The scale's values as f32, one for each element of `scale`; the scale's own data when it is F32.
 */
enum octet_status oct_scale_values(const struct octet_compute *compute,
                                   const struct octet_array *scale, const float **out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* INVALID_ARGUMENT with that field for a shape whose strides do not fit. */
enum octet_status oct_shape_check(const struct octet_array *array, const char *field,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* Checks that a quantized array is one; errors' fields: "qvalue.dtype", "scale.shape", ... */
enum octet_status oct_quantized_check(const struct octet_quantized *quantized,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* qvalue - zero_point as F32, of a quantized array that has zero points. */
enum octet_status oct_code_values(const struct octet_compute *compute,
                                  const struct octet_quantized *from, struct octet_array *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* (q - zero_point) * scale in the scale's dtype. */
enum octet_status oct_dequantize(const struct octet_compute *compute,
                                 const struct octet_quantized *quantized, struct octet_array *out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* y = round_y(value(x) * scale) with a scale of x's rank that is broadcast by tiles; y has x's
 * shape and is F32 or BF16; y may be x. */
enum octet_status oct_multiply(const struct octet_compute *compute, const struct octet_array *x,
                               const int64_t *scale_dim, const float *scale, struct octet_array *y,
                               struct octet_error *err) OCTET_MUST_CHECK;

/* A source's numbers in memory: the array itself where there is no scale. */
enum octet_status oct_source_array(const struct octet_compute *compute,
                                   const struct oct_source *source, struct octet_array *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* An array of the shape of another; it holds anything. */
enum octet_status oct_array_like(const struct octet_compute *compute,
                                 const struct octet_array *like, enum octet_dtype dtype,
                                 struct octet_array *out, struct octet_error *err) OCTET_MUST_CHECK;

/* A cast between F32 and BF16 (and from what decode takes); *out is `array` itself when it has the
 * dtype. */
enum octet_status oct_array_cast(const struct octet_compute *compute,
                                 const struct octet_array *array, enum octet_dtype dtype,
                                 struct octet_array *out, struct octet_error *err) OCTET_MUST_CHECK;

/* Figures of one or two quantizations, before the ratio is taken. */
struct oct_stats {
    struct octet_operand_stats figures; /* but for sqnr_db */
    bool has_scale;
    double signal, noise; /* sums of squares */
};

/* Adds one quantization of `array`; quantized NULL: it was not. largest: oct_qtype's, 0 when not
 * known. */
enum octet_status oct_stats_add(const struct octet_compute *compute,
                                const struct octet_array *array,
                                const struct octet_quantized *quantized, float largest,
                                struct oct_stats *stats, struct octet_error *err) OCTET_MUST_CHECK;
void oct_stats_finish(const struct oct_stats *stats, struct octet_operand_stats *out);

/* Rounds an f32 to dtype (F32 or BF16) and back. Runs in the environment of base/float_env.h. */
float oct_round_to(enum octet_dtype dtype, float value);

#endif
