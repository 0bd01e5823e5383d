/* The set for AVX2, FMA and F16C. */
#include "kernels/avx2/simd.h"

#include <string.h>

#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"

#include "../codes_body.h"
#include "../elementwise_body.h"
#include "../math_body.h"

#define MR 6 /* 12 sums, 2 columns and 2 to spare of 16 registers */
#define NV 2
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WIDE(X) X(1, 4) X(2, 2) X(3, 2)
#define PAIRS 0
#define SPLIT 1
#define DIRECT_ROWS 6
#define DIRECT_UNITS_MAX 4
#define DIRECT(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define DIRECT_WIDE(X) X(1, 4)
#define UNROLL _Pragma("GCC unroll 32")
#include "../gemm_body.h"

#include "../attention_body.h"

const struct oct_kernels oct_kernels_avx2 = {.name = "avx2",
                                             ELEMENTWISE_TABLE,
                                             .gemm = &gemm_kernels,
                                             .math = &math_table,
                                             .attention = &attention_kernels};
