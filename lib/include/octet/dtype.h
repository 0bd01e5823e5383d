/* Data types: names and sizes. What their bits mean is in lib/dtypes. */
#ifndef OCTET_DTYPE_H
#define OCTET_DTYPE_H

#include "octet/status.h"

/* name on the wire and in safetensors, bits of one element in memory, MaxText's name */
#define OCTET_DTYPES(X)                                                                            \
    X(F32, "float32", 32)                                                                          \
    X(BF16, "bfloat16", 16)                                                                        \
    X(F16, "float16", 16)                                                                          \
    X(F8_E4M3FN, "float8_e4m3fn", 8)                                                               \
    X(F8_E5M2, "float8_e5m2", 8)                                                                   \
    X(F4_E2M1FN, "float4_e2m1fn", 4)                                                               \
    X(F8_E8M0FNU, "float8_e8m0fnu", 8)                                                             \
    X(S8, "int8", 8)                                                                               \
    X(S4, "int4", 4)                                                                               \
    X(S32, "int32", 32)                                                                            \
    X(S64, "int64", 64)                                                                            \
    X(U8, "uint8", 8)                                                                              \
    X(BOOL, "bool", 8)

enum octet_dtype {
    OCTET_DTYPE_UNSPECIFIED,
#define OCTET_DTYPE_ENUM(name, text, bits) OCTET_DTYPE_##name,
    OCTET_DTYPES(OCTET_DTYPE_ENUM)
#undef OCTET_DTYPE_ENUM
        OCTET_DTYPE_COUNT
};
OCTET_API const char *octet_dtype_name(enum octet_dtype dtype); /* "bfloat16" */
OCTET_API int octet_dtype_bits(enum octet_dtype dtype);
/* Bytes of one element in an array: 4-bit types take one byte each, as on the wire. 0 for
 * OCTET_DTYPE_UNSPECIFIED. */
OCTET_API size_t octet_dtype_bytes(enum octet_dtype dtype);
/* The dtype of that name ("bfloat16"); OCTET_DTYPE_UNSPECIFIED when there is none. */
OCTET_API enum octet_dtype octet_dtype_find(const char *name);

#endif
