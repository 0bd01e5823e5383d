/* Product: dot_general of two operands each of which is an array or a quantized array, as Qwix's
 * own dot_general takes them.
 *
 * For: forward and backward of dot_general, einsum. Not for: rules (config.h), gradients (dot.c).
 * Source: Qwix 0.1.8, core/dot_general.py; formula 9. */
#ifndef OCTET_QUANT_PRODUCT_H
#define OCTET_QUANT_PRODUCT_H

#include "octet/quant.h"

/* Tiles below this are dequantized first. Source: Qwix, MIN_TILE_SIZE_TO_DEQUANT_ON_OUTPUT. */
enum { OCT_TILE_MIN = 128 };

/* An operand of a product. Codes without a scale (a residual whose scale went onto the gradient)
 * are an array of a code type. */
struct oct_value {
    bool is_quantized;
    struct octet_array array;
    struct octet_quantized quantized;
};

/* The operand's shape, wherever it is kept. */
const struct octet_array *oct_value_shape(const struct oct_value *value);

struct oct_product {
    const struct oct_value *lhs, *rhs;
    struct octet_dot_dims dims;
    /* Axis of the result for each of: batch axes, lhs' free axes, rhs' free axes; NULL: in that
     * order. */
    const int32_t *result_axes;
    enum octet_dtype result_dtype; /* a cast of R; unspecified: R itself */
    bool is_fast;                  /* FAST: another order of additions will do */
    /* Where the result goes, of its shape and a dtype that R (or result_dtype) is cast to; NULL or
     * data NULL: it is made. */
    const struct octet_array *to;
};

/* The product is the same with its operands exchanged, as long as not both have scales. Does so
 * where the result's last axis, along which numbers are written, is one of lhs'. axes:
 * product->result_axes, which may not be NULL; rewritten. */
void oct_product_turn(struct oct_product *product, int32_t *axes);

/* Axes of one side that are neither contracted nor batched, ascending; returns how many. */
int32_t oct_free_axes(int32_t rank, const int32_t *contracting, int32_t contracting_count,
                      const int32_t *batch, int32_t batch_count, int32_t *out);

/* Checks dimension numbers against the shapes. */
enum octet_status oct_dims_check(const struct octet_array *lhs, const struct octet_array *rhs,
                                 const struct octet_dot_dims *dims,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* F32 if either is, else BF16; unspecified ones do not count. */
enum octet_dtype oct_promote(enum octet_dtype a, enum octet_dtype b);
/* The dtype that an operand counts with: its scale's, or its own; unspecified for bare codes. */
enum octet_dtype oct_value_dtype(const struct oct_value *value);

/* *out is product->to, or made in the compute's arena; working memory is taken from its budget and
 * given back. */
enum octet_status oct_product_run(const struct octet_compute *compute,
                                  const struct oct_product *product, struct octet_array *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
