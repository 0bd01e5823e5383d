/* The set for AArch64's NEON. */
#include "kernels/neon/simd.h"

#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"

#include "../codes_body.h"
#include "../elementwise_body.h"
#include "../math_body.h"

#define MR 6 /* 24 sums, 4 columns and 4 to spare of 32 registers */
#define NV 4
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WIDE(X) X(1, 2) X(2, 2)
#define PAIRS 0
#define SPLIT 0
#define UNROLL _Pragma("GCC unroll 32")
#include "../gemm_body.h"

#include "../attention_body.h"

const struct oct_kernels oct_kernels_neon = {.name = "neon",
                                             ELEMENTWISE_TABLE,
                                             .gemm = &gemm_kernels,
                                             .math = &math_table,
                                             .attention = &attention_kernels};
