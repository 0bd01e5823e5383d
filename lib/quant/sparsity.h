/* N:M sparsity of an operand. */
#ifndef OCTET_QUANT_SPARSITY_H
#define OCTET_QUANT_SPARSITY_H

#include "octet/quant.h"

/* *out = array (F32 or BF16) with all but the n largest of each m consecutive elements set to 0,
 * along the last axis, or over the flattened array where m does not divide that. Of equal ones the
 * lower index stays; NaN is the largest. Errors: INVALID_ARGUMENT, field "rule.sparsity", when m
 * does not divide the number of elements. Source: Qwix 0.1.8, core/sparsity.get_sparsity_mask,
 * order R. */
enum octet_status oct_sparsify(const struct octet_compute *compute, const struct octet_array *array,
                               const struct octet_sparsity *sparsity, struct octet_array *out,
                               struct octet_error *err) OCTET_MUST_CHECK;
/* Sets x (array's shape) to 0 where `sparse` was cut. */
enum octet_status oct_mask_sparse(const struct octet_compute *compute,
                                  const struct octet_array *array,
                                  const struct octet_sparsity *sparsity, struct octet_array *x,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
