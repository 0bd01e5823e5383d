/* The set for AVX-512 F, BW, VL and DQ. */
#include "kernels/avx512/simd.h"

#include <string.h>

#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"

#include "../codes_body.h"
#include "../elementwise_body.h"
#include "../math_body.h"

#define PAIRS 0
#include "tile.h"
#define DIRECT_WIDE(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2)
#include "../gemm_body.h"

#include "../attention_body.h"

const struct oct_kernels oct_kernels_avx512 = {.name = "avx512",
                                               ELEMENTWISE_TABLE,
                                               .gemm = &gemm_kernels,
                                               .math = &math_table,
                                               .attention = &attention_kernels};
