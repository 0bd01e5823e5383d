/* See qtype.h. */
#include "quant/qtype.h"

#include <string.h>

#define INTEGER(bits, storage)                                                                     \
    {                                                                                              \
        "int" #bits, OCTET_DTYPE_##storage, (1 << (bits - 1)) - 0.5f, (1 << (bits - 1)) - 0.5f,    \
            -(1 << (bits - 1)), (1 << (bits - 1)) - 1, OCT_SCALE_PLAIN, 0                          \
    }

/* A float's `largest` is half way to the code that would come next. */
static const struct oct_qtype qtypes[] = {
    {"float8_e4m3fn", OCTET_DTYPE_F8_E4M3FN, 448, 464, 0, 0, OCT_SCALE_PLAIN, 0},
    {"float8_e5m2", OCTET_DTYPE_F8_E5M2, 57344, 61440, 0, 0, OCT_SCALE_PLAIN, 0},
    {"float4_e2m1fn", OCTET_DTYPE_F4_E2M1FN, 6, 7, 0, 0, OCT_SCALE_PLAIN, 0},
    {"mxfp8", OCTET_DTYPE_F8_E4M3FN, 448, 464, 0, 0, OCT_SCALE_POWER_OF_TWO, 32},
    {"mxfp4", OCTET_DTYPE_F4_E2M1FN, 6, 7, 0, 0, OCT_SCALE_POWER_OF_TWO, 32},
    {"nvfp4", OCTET_DTYPE_F4_E2M1FN, 6, 7, 0, 0, OCT_SCALE_E4M3, 16},
    INTEGER(8, S8),
    INTEGER(7, S8),
    INTEGER(6, S8),
    INTEGER(5, S8),
    INTEGER(4, S4),
    INTEGER(3, S4),
    INTEGER(2, S4),
};

const struct oct_qtype *oct_qtype_find(const char *name)
{
    if (!name)
        return NULL;
    for (size_t i = 0; i < sizeof qtypes / sizeof *qtypes; i++)
        if (strcmp(qtypes[i].name, name) == 0)
            return &qtypes[i];
    return NULL;
}

bool oct_qtype_is_asymmetric(const struct oct_qtype *qtype)
{
    return strcmp(qtype->name, "int8") == 0 || strcmp(qtype->name, "int4") == 0;
}
