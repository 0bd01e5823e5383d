/* What the bodies need beside a set's vector words. */
#ifndef OCTET_KERNELS_WORDS_H
#define OCTET_KERNELS_WORDS_H

#include <stddef.h>

#include "octet/dtype.h"

/* Loops are written once with a data type or a tile as an argument, and become one loop for each
 * constant they are called with: the switch inside must be gone, at any level of optimization. */
#define INLINE inline __attribute__((always_inline))

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
