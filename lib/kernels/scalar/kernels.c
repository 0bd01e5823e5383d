/* The scalar set: what every CPU runs, and what the others are compared with. */
#include "kernels/scalar/simd.h"

#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"

#include "../elementwise_body.h"
#include "../math_body.h"

#define MR 4
#define NV 4
#define ROWS(X) X(1) X(2) X(3) X(4)
#define WIDE(X) X(1, 2)
#define PAIRS 0
#define SPLIT 0
#define UNROLL
#include "../gemm_body.h"

#include "../attention_body.h"

const struct oct_kernels oct_kernels_scalar = {.name = "scalar",
                                               ELEMENTWISE_TABLE,
                                               .gemm = &gemm_kernels,
                                               .math = &math_table,
                                               .attention = &attention_kernels};
