/* What the bodies need beside a set's vector words. */
#ifndef OCTET_KERNELS_WORDS_H
#define OCTET_KERNELS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "octet/dtype.h"

/* Loops are written once with a data type or a tile as an argument, and become one loop for each
 * constant they are called with: the switch inside must be gone, at any level of optimization. */
#define INLINE inline __attribute__((always_inline))

/* vf32_mul and vf32_fma give the same bits on every CPU. The loose ones are as fast as the CPU has
 * them, and on ARM may give 0 for 2^-126 (base/float_env.h). They stand where that is lost in what
 * follows, or between loose_begin() and loose_failed(), which says whether to compute again. */
#ifndef LOOSE_WORDS /* else the set's own */
#define vf32_mul_loose vf32_mul
#define vf32_fma_loose vf32_fma
static INLINE void loose_begin(void)
{
}
static INLINE bool loose_failed(void)
{
    return false;
}
#endif

/* octet_dtype_bytes for constants. */
static INLINE size_t element_bytes(enum octet_dtype dtype)
{
    switch (dtype) {
#define BYTES(name, text, bits)                                                                    \
    case OCTET_DTYPE_##name:                                                                       \
        return (bits + 7) / 8;
        OCTET_DTYPES(BYTES)
#undef BYTES
    default:
        return 0;
    }
}

#endif
