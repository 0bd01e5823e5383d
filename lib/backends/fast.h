/* Products in any order (accumulation FAST), by the device's own library where its driver has one.
 */
#ifndef OCTET_BACKENDS_FAST_H
#define OCTET_BACKENDS_FAST_H

#include "backends/product.h"

/* out = lhs x rhs as `dot` has them, of `rounding` (F32, BF16) and out->array's shape; its data is
 * there. *done false: not for the library (types, scales, layouts, no library); the kernels then
 * serve. Taken: codes of E4M3 and E5M2, or BF16, with one scale or one for each free row, whose
 * axes are batch, free, contracting or batch, contracting, free; the latter are turned first. */
enum octet_status oct_fast_dot(struct oct_work *work, const struct oct_device_dot *dot,
                               enum octet_dtype rounding, const struct oct_device_array *out,
                               bool *done, struct octet_error *err) OCTET_MUST_CHECK;

#endif
