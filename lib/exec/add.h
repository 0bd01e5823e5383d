/* Adding up gradients. */
#ifndef OCTET_EXEC_ADD_H
#define OCTET_EXEC_ADD_H

#include "octet/quant.h"

/* sum += x, elementwise, in sum's dtype (F32 or BF16; x has the same). */
enum octet_status oct_add_in_place(const struct octet_compute *compute, const struct octet_array *x,
                                   const struct octet_array *sum,
                                   struct octet_error *err) OCTET_MUST_CHECK;

#endif
