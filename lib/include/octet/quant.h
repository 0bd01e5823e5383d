/* Quantized arrays and quantized products, with Qwix's arithmetic.
 *
 * For: quantize, dequantize, dot_general and grouped matmul, forward and backward.
 * Not for: which rule takes which op (rules.h), nor models.
 * Source: Qwix 0.1.8 (qarray, numerics, dot_general_qt, ragged_dot_qt), MaxText's megablox ops.gmm.
 * Codes and scales are Qwix's to the bit; sums are in EXACT_ORDER (docs/internals/kernels.md).
 *
 * Life: results and working memory live in the computation's arena. Inputs are borrowed for the
 * call. Errors carry the field at fault in terms of the structs below ("lhs.shape", "group_sizes",
 * "calibration_method"), which are the wire's names too. */
#ifndef OCTET_QUANT_H
#define OCTET_QUANT_H

#include "octet/array.h"
#include "octet/cancel.h"
#include "octet/context.h"
#include "octet/rules.h"
#include "octet/workers.h"

/* What a computation works with. */
struct octet_compute {
    octet_arena *arena;
    octet_workers *workers;
    const struct octet_cancel *cancel; /* may be NULL; polled within an op */
};

/* qvalue: F8_*, F4_*, S8 or S4. scale: F32, BF16 (or F16) of the same rank; its size on an axis is
 * 1, the axis' own, or a divisor of that (tiles). original = (qvalue - zero_point) * scale. */
struct octet_quantized {
    struct octet_array qvalue, scale;
    struct octet_array zero_point; /* of qvalue's dtype and scale's shape; data NULL: symmetric */
    /* The same codes laid out for products that contract axes [axis, axis + axis_count):
     * octet_pack. Counts as long as `codes` is qvalue.data; data NULL: not packed. */
    struct octet_packed {
        const void *data, *codes;
        int32_t axis, axis_count;
    } packed;
};

struct octet_tiled_axis {
    int32_t axis;
    const char *tile_size; /* "128", "1/4", "0.25": as in rules */
};

struct octet_quantize_options {
    const char *qtype;              /* "float8_e4m3fn", ..., "mxfp8", "mxfp4", "nvfp4" */
    const char *calibration_method; /* NULL, "" = "absmax" */
    const int32_t *channelwise_axes;
    size_t channelwise_axis_count;
    const struct octet_tiled_axis *tiled_axes;
    size_t tiled_axis_count;
    enum octet_dtype scale_dtype; /* F32, BF16; unspecified: the array's */
};

/* array: F32 or BF16. Errors: INVALID_ARGUMENT with field "array.dtype", "qtype",
 * "calibration_method", "channelwise_axes[0]", "tiled_axes[1]", "scale_dtype"; RESOURCE_EXHAUSTED;
 * what cancel says. */
OCTET_API enum octet_status octet_quantize(const struct octet_compute *compute,
                                           const struct octet_array *array,
                                           const struct octet_quantize_options *options,
                                           struct octet_quantized *out,
                                           struct octet_error *err) OCTET_MUST_CHECK;

/* For a weight that is multiplied often: fills quantized->packed, in the compute's arena, about as
 * many bytes as the codes. octet_dot_general takes it where quantized is rhs, a matrix, and `axis`
 * is what it contracts; octet_ragged_dot where quantized is rhs [g,k,n] or [g,n,k] and axis is k's.
 * Results keep their bits. Few rows then run about as fast as memory can be read. Errors:
 * INVALID_ARGUMENT with field "quantized.qvalue.shape" or "axis"; RESOURCE_EXHAUSTED; what cancel
 * says. */
OCTET_API enum octet_status octet_pack(const struct octet_compute *compute,
                                       struct octet_quantized *quantized, int32_t axis,
                                       struct octet_error *err) OCTET_MUST_CHECK;

/* dtype: F32 or BF16; unspecified: the scale's, in which the product is rounded; another dtype is a
 * cast of that. Errors: INVALID_ARGUMENT with field "quantized.scale.shape" and the like, "dtype".
 */
OCTET_API enum octet_status octet_dequantize(const struct octet_compute *compute,
                                             const struct octet_quantized *quantized,
                                             enum octet_dtype dtype, struct octet_array *out,
                                             struct octet_error *err) OCTET_MUST_CHECK;

struct octet_operand_stats;
/* What quantizing `array` to `quantized` did. qtype: as it was quantized, for `saturated`; NULL:
 * not counted. Errors: INVALID_ARGUMENT with field "quantized..." or "array...";
 * RESOURCE_EXHAUSTED; what cancel says. */
OCTET_API enum octet_status
octet_quantized_stats(const struct octet_compute *compute, const struct octet_array *array,
                      const struct octet_quantized *quantized, const char *qtype,
                      struct octet_operand_stats *out, struct octet_error *err) OCTET_MUST_CHECK;

/* One side of a product: as it is, or already quantized. */
struct octet_operand {
    bool is_quantized;
    struct octet_array array;
    struct octet_quantized quantized;
};

#define OCTET_AXES_MAX OCTET_ARRAY_RANK_MAX

/* As jax.lax.dot_general's dimension_numbers. The result's axes: batch, lhs free, rhs free. */
struct octet_dot_dims {
    int32_t contracting_count, batch_count;
    int32_t lhs_contracting[OCTET_AXES_MAX], rhs_contracting[OCTET_AXES_MAX];
    int32_t lhs_batch[OCTET_AXES_MAX], rhs_batch[OCTET_AXES_MAX];
};

/* Which operand takes the rule's weight_* settings; with NONE both take the act_* settings. */
enum octet_weight_operand { OCTET_WEIGHT_RHS, OCTET_WEIGHT_LHS, OCTET_WEIGHT_NONE };

enum octet_accumulation {
    OCTET_EXACT_ORDER, /* one order of additions, the same bits everywhere */
    OCTET_FAST         /* any order; another one runs only where it is faster */
};
OCTET_API const char *octet_accumulation_name(enum octet_accumulation accumulation);

/* What all products share. */
struct octet_product_options {
    const struct octet_rule *rule; /* in normal form, as the library hands rules out; NULL: none */
    enum octet_weight_operand weight_operand;
    enum octet_dtype out_dtype; /* a final cast; unspecified: the op's own result type */
    const struct octet_array
        *cotangent; /* of out's shape; NULL: forward only. Cast to out's own type first */
    enum octet_accumulation accumulation;
    bool qwix_compatible; /* ignore what Qwix ignores: a ragged_dot's calibration, tiles and axes */
    bool numerics;        /* fill the stats and the digest */
};

/* Figures of one quantization; of the cotangent, which is quantized once for each gradient, over
 * both. amax is over finite elements. The scales' range leaves out those that are not finite, and
 * the 1 that a group of zeros gets, unless there are no others. sqnr_db = 10 log10(sum x^2 / sum (x
 * - dequantized)^2) over finite elements, in f64; +Inf when nothing was lost, NaN when the signal
 * is zero or nothing is quantized. */
struct octet_operand_stats {
    bool is_quantized; /* else only amax and nonfinite are filled */
    float amax, scale_min, scale_max;
    int64_t saturated;   /* |x / scale| above the largest code */
    int64_t underflowed; /* not zero, but its code is */
    int64_t nonfinite;   /* NaN and Inf in the operand */
    int64_t
        destroyed; /* finite, but dequantized NaN or Inf: who shares a scale with one of these */
    double sqnr_db;
};

struct octet_product {
    struct octet_array out;
    struct octet_array lhs_grad,
        rhs_grad; /* data NULL: not asked for, or the operand came quantized */
    enum octet_accumulation accumulation;           /* the one that ran */
    bool is_quantized;                              /* the rule quantized the op */
    struct octet_operand_stats lhs, rhs, cotangent; /* with numerics */
    char digest[33];  /* of out's bytes: XXH3, 128 bits, hexadecimal; "" without numerics */
    const char *note; /* a sentence on settings of the rule that had no effect here; "" */
};

/* Errors: INVALID_ARGUMENT with field "lhs.dtype", "rhs.shape", "dimension_numbers.lhs_batch[0]",
 * "cotangent.shape", "rule.tile_size", ...; RESOURCE_EXHAUSTED; what cancel says. */
OCTET_API enum octet_status
octet_dot_general(const struct octet_compute *compute, const struct octet_operand *lhs,
                  const struct octet_operand *rhs, const struct octet_dot_dims *dims,
                  const struct octet_product_options *options, struct octet_product *out,
                  struct octet_error *err) OCTET_MUST_CHECK;

enum octet_grouped_op {
    OCTET_GMM,
    OCTET_RAGGED_DOT
}; /* they differ in rounding: formulas 12, 13 */

/* lhs [m,k]; rhs [g,k,n], or [g,n,k] with transpose_rhs; group_sizes [g] S32: rows of lhs, in
 * order, for each matrix of rhs. Rows past their sum are zero in out and lhs_grad. out [m,n].
 * Errors: as octet_dot_general, and "group_sizes[2]" for a negative one, "group_sizes" for a sum
 * above m. */
OCTET_API enum octet_status
octet_ragged_dot(const struct octet_compute *compute, const struct octet_operand *lhs,
                 const struct octet_operand *rhs, const struct octet_array *group_sizes,
                 bool transpose_rhs, enum octet_grouped_op op,
                 const struct octet_product_options *options, struct octet_product *out,
                 struct octet_error *err) OCTET_MUST_CHECK;

/* Two operands; "bsd,edf->bsef". As jnp.einsum hands it to dot_general; an explicit output is
 * needed. Field of errors: "equation". */
OCTET_API enum octet_status octet_einsum(const struct octet_compute *compute, const char *equation,
                                         const struct octet_operand *lhs,
                                         const struct octet_operand *rhs,
                                         const struct octet_product_options *options,
                                         struct octet_product *out,
                                         struct octet_error *err) OCTET_MUST_CHECK;

/* lhs [b, spatial..., c] (channels last), rhs [spatial..., c / groups, o], out [b, spatial..., o];
 * one to three spatial axes. Forward only: a cotangent is UNIMPLEMENTED. */
struct octet_conv_options {
    int32_t spatial_count;
    int64_t stride[3], padding_low[3], padding_high[3], lhs_dilation[3], rhs_dilation[3];
    int64_t feature_groups;
};
OCTET_API enum octet_status
octet_conv(const struct octet_compute *compute, const struct octet_operand *lhs,
           const struct octet_operand *rhs, const struct octet_conv_options *conv,
           const struct octet_product_options *options, struct octet_product *out,
           struct octet_error *err) OCTET_MUST_CHECK;

#endif
