/* What happened inside a product: the operands as they were multiplied. For tests against reference
 * data, and for whoever keeps residuals between forward and backward. */
#ifndef OCTET_QUANT_RECORD_H
#define OCTET_QUANT_RECORD_H

#include "octet/quant.h"

/* Data NULL where there is no such thing. Names as in the reference data. */
struct oct_record {
    struct octet_quantized lhs, rhs;           /* of the forward product */
    struct octet_array rhs_sparse;             /* after the N:M mask */
    struct octet_array g_dlhs_pre, g_drhs_pre; /* the very inputs of the gradient's quantizers */
    struct octet_quantized g_dlhs, g_drhs;     /* the gradient as it was multiplied */
    struct octet_quantized y_dlhs, y_drhs;     /* residuals that were quantized anew */
};

/* As the public functions without "oct_"; record may be NULL. */
enum octet_status
oct_quant_dot_general(const struct octet_compute *compute, const struct octet_operand *lhs,
                      const struct octet_operand *rhs, const struct octet_dot_dims *dims,
                      const struct octet_product_options *options, struct oct_record *record,
                      struct octet_product *out, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status
oct_quant_ragged_dot(const struct octet_compute *compute, const struct octet_operand *lhs,
                     const struct octet_operand *rhs, const struct octet_array *group_sizes,
                     bool transpose_rhs, enum octet_grouped_op op,
                     const struct octet_product_options *options, struct oct_record *record,
                     struct octet_product *out, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_quant_einsum(const struct octet_compute *compute, const char *equation,
                                   const struct octet_operand *lhs, const struct octet_operand *rhs,
                                   const struct octet_product_options *options,
                                   struct oct_record *record, struct octet_product *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_quant_conv(const struct octet_compute *compute,
                                 const struct octet_operand *lhs, const struct octet_operand *rhs,
                                 const struct octet_conv_options *conv,
                                 const struct octet_product_options *options,
                                 struct oct_record *record, struct octet_product *out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

#endif
