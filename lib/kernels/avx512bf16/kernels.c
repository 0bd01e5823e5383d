/* The set for AVX-512 with VDPBF16PS, which adds two products of BF16 numbers at once. */
#include "kernels/avx512/simd.h"

#include <string.h>

#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"

#include "../codes_body.h"
#include "../elementwise_body.h"
#include "../math_body.h"
#include "pairs.h"

#define PAIRS 1
#include "kernels/avx512/tile.h"
#define DIRECT_WIDE(X) X(1, 2) X(2, 2)
#include "../gemm_body.h"

#include "../attention_body.h"

const struct oct_kernels oct_kernels_avx512bf16 = {.name = "avx512bf16",
                                                   ELEMENTWISE_TABLE,
                                                   .gemm = &gemm_kernels,
                                                   .math = &math_table,
                                                   .attention = &attention_kernels};
