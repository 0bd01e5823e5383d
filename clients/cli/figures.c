/* See figures.h. */
#include "figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    return copysignf((float)fraction * 0x1p-24f, from_bits(sign | 0x3f800000));
}

bool figures_reads(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16 || dtype == OCTET_DTYPE_F16 ||
           dtype == OCTET_DTYPE_S32 || dtype == OCTET_DTYPE_S8;
}

double figures_number(const struct octet_array *array, int64_t i)
{
    const char *at = (const char *)array->data + (size_t)i * octet_dtype_bytes(array->dtype);
    uint32_t word = 0;

    memcpy(&word, at, octet_dtype_bytes(array->dtype));
    switch (array->dtype) {
    case OCTET_DTYPE_F32:
        return (double)from_bits(word);
    case OCTET_DTYPE_BF16:
        return (double)from_bits(word << 16);
    case OCTET_DTYPE_F16:
        return (double)from_half((uint16_t)word);
    case OCTET_DTYPE_S32:
        return (int32_t)word;
    case OCTET_DTYPE_S8:
        return (int8_t)word;
    default:
        return NAN;
    }
}

static double decibel(double signal, double noise)
{
    return signal > 0 ? noise > 0 ? 10 * log10(signal / noise) : INFINITY : NAN;
}

void difference_measure(const struct octet_array *array, const struct octet_array *reference,
                        struct difference *out)
{
    size_t bytes = octet_dtype_bytes(array->dtype);
    bool same_type = array->dtype == reference->dtype;
    double signal = 0, noise = 0;

    *out = (struct difference){.elements = octet_array_elements(array)};
    for (int64_t i = 0; i < out->elements; i++) {
        const char *a = (const char *)array->data + (size_t)i * bytes;
        const char *b = (const char *)reference->data + (size_t)i * bytes;
        double x = figures_number(array, i), y = figures_number(reference, i);
        bool equal = same_type && memcmp(a, b, bytes) == 0;
        out->equal_bits += equal;
        if (isfinite(y) && fabs(y) > out->reference_max)
            out->reference_max = fabs(y);
        if (!isfinite(x) || !isfinite(y)) {
            out->nonfinite += !equal && !(x == y) && !(isnan(x) && isnan(y));
            continue;
        }
        if (fabs(x - y) > out->absolute_max)
            out->absolute_max = fabs(x - y);
        signal += y * y;
        noise += (x - y) * (x - y);
    }
    out->sqnr_db = decibel(signal, noise);
    out->relative = out->absolute_max > 0 ? out->absolute_max / out->reference_max : 0;
    if (!same_type)
        out->equal_bits = -1;
}
