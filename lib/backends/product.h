/* Products of arrays on the device: plans of the kernels in kernels/product.h. The arithmetic is
 * that of lib/quant/product.c and grouped.c, whose decisions are repeated here: what is dequantized
 * first, which tiles are added up, what is rounded when. */
#ifndef OCTET_BACKENDS_PRODUCT_H
#define OCTET_BACKENDS_PRODUCT_H

#include "backends/arrays.h"

/* The dtype that an operand counts with: its scale's, or its own; unspecified for bare codes. */
enum octet_dtype oct_device_dtype(const struct oct_device_array *array);

struct oct_device_dot {
    const struct oct_device_array *lhs, *rhs;
    struct octet_dot_dims dims;
    const int32_t *result_axes; /* of the result, for batch, lhs' free and rhs' free axes */
    /* A cast of R, and where that goes another; unspecified: R itself, as it comes. */
    enum octet_dtype result_dtype, out_dtype;
    enum octet_accumulation accumulation;
};
enum octet_status oct_device_dot(struct oct_work *work, const struct oct_device_dot *dot,
                                 struct oct_device_array *out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* Grouped: rows first[e] .. first[e + 1] of lhs go with matrix e of rhs. */
struct oct_device_groups {
    const int64_t *first;
    int64_t groups, m;
    bool rounds_once;           /* gmm */
    enum octet_dtype result;    /* of the op itself */
    enum octet_dtype out_dtype; /* a cast of that; unspecified: none */
};
/* out [m, columns]; rhs [groups, ., .], whose axis depth_axis is contracted. */
enum octet_status oct_device_rows(struct oct_work *work, const struct oct_device_groups *groups,
                                  const struct oct_device_array *lhs,
                                  const struct oct_device_array *rhs, int32_t depth_axis,
                                  struct oct_device_array *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;
/* out [groups, a's columns, b's columns], each group contracted over its rows. */
enum octet_status oct_device_columns(struct oct_work *work, const struct oct_device_groups *groups,
                                     const struct oct_device_array *a,
                                     const struct oct_device_array *b, struct oct_device_array *out,
                                     struct octet_error *err) OCTET_MUST_CHECK;

/* Both as they are multiplied: dequantized first where one is not quantized, or `always`. */
enum octet_status oct_device_pair(struct oct_work *work, bool always, struct oct_device_array *a,
                                  struct oct_device_array *b,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
