/* Names and sizes of data types. */
#include "octet/dtype.h"

#include <string.h>

const char *octet_dtype_name(enum octet_dtype dtype)
{
    switch (dtype) {
#define NAME(name, text, bits)                                                                     \
    case OCTET_DTYPE_##name:                                                                       \
        return text;
        OCTET_DTYPES(NAME)
#undef NAME
    case OCTET_DTYPE_UNSPECIFIED:
    case OCTET_DTYPE_COUNT:
        break;
    }
    return "";
}

int octet_dtype_bits(enum octet_dtype dtype)
{
    switch (dtype) {
#define BITS(name, text, bits)                                                                     \
    case OCTET_DTYPE_##name:                                                                       \
        return bits;
        OCTET_DTYPES(BITS)
#undef BITS
    case OCTET_DTYPE_UNSPECIFIED:
    case OCTET_DTYPE_COUNT:
        break;
    }
    return 0;
}

size_t octet_dtype_bytes(enum octet_dtype dtype)
{
    return (size_t)(octet_dtype_bits(dtype) + 7) / 8;
}

enum octet_dtype octet_dtype_find(const char *name)
{
    for (int d = OCTET_DTYPE_UNSPECIFIED + 1; d < OCTET_DTYPE_COUNT; d++)
        if (strcmp(octet_dtype_name((enum octet_dtype)d), name) == 0)
            return (enum octet_dtype)d;
    return OCTET_DTYPE_UNSPECIFIED;
}
