/* What kernels must give, computed another way: numbers in double arithmetic, which is exact for
 * what is asked of it here, codes by rounding to a multiple of a power of two.
 * Nothing of lib/dtypes is used, so that a shared mistake cannot hide. */
#ifndef OCTET_TESTS_KERNELS_REFERENCE_H
#define OCTET_TESTS_KERNELS_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "octet/dtype.h"

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A small float type: exponent and mantissa bits, bias, largest finite number, what overflow and
 * NaN become (without sign). */
struct ref_type {
    int exponent_bits, mantissa_bits, bias;
    double largest;
    uint32_t overflow, nan;
};

static inline struct ref_type ref_type(enum octet_dtype dtype)
{
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return (struct ref_type){4, 3, 7, 448, 0x7f, 0x7f};
    case OCTET_DTYPE_F8_E5M2:
        return (struct ref_type){5, 2, 15, 57344, 0x7c, 0x7e};
    case OCTET_DTYPE_F4_E2M1FN:
        return (struct ref_type){2, 1, 1, 6, 7, 8};
    case OCTET_DTYPE_F16:
        return (struct ref_type){5, 10, 15, 65504, 0x7c00, 0x7e00};
    default: /* BF16 */
        return (struct ref_type){8, 7, 127, 0x1.fep127, 0x7f80, 0x7fc0};
    }
}

/* Exact bits of an f32, whether the CPU flushes subnormals or not. */
static inline double exact(float value)
{
    uint32_t bits = bits_of(value), e = bits >> 23 & 0xff, m = bits & 0x7fffff;

    if (e == 0xff)
        return m ? NAN : bits >> 31 ? -INFINITY : INFINITY;
    double v = ldexp(e ? m + 0x800000 : m, (int)(e ? e : 1) - 150);
    return bits >> 31 ? -v : v;
}

/* Round to nearest even to multiples of 2^(exponent - mantissa_bits), gradually below. */
static inline double ref_round(double x, int mantissa_bits, int exponent_min)
{
    int e;

    if (x == 0 || isinf(x) || isnan(x))
        return x;
    frexp(x, &e);
    e = e - 1 < exponent_min ? exponent_min : e - 1;
    return ldexp(rint(ldexp(x, mantissa_bits - e)), e - mantissa_bits);
}

/* An f32 with the magnitude and sign of a double that is exactly one. */
static inline float to_float(double x)
{
    int e;
    uint32_t sign = signbit(x) ? 0x80000000u : 0;
    double a = fabs(x);

    if (isnan(x))
        return float_of(sign | 0x7fc00000u);
    if (isinf(x))
        return float_of(sign | 0x7f800000u);
    if (a == 0)
        return float_of(sign);
    frexp(a, &e);
    e = e - 1 < -126 ? -126 : e - 1;
    uint32_t m = (uint32_t)ldexp(a, 23 - e);
    return float_of(sign | (m >= 0x800000 ? ((uint32_t)(e + 127) << 23) + (m - 0x800000) : m));
}

static inline double ref_decode(enum octet_dtype dtype, uint32_t code)
{
    struct ref_type t = ref_type(dtype);
    uint32_t sign = code >> (t.exponent_bits + t.mantissa_bits) & 1;
    uint32_t e = code >> t.mantissa_bits & ((1u << t.exponent_bits) - 1);
    uint32_t m = code & ((1u << t.mantissa_bits) - 1), full = (1u << t.exponent_bits) - 1;
    double v;

    if (dtype == OCTET_DTYPE_F8_E4M3FN && (code & 0x7f) == 0x7f)
        v = NAN;
    else if (e == full && (dtype == OCTET_DTYPE_F8_E5M2 || dtype == OCTET_DTYPE_F16 ||
                           dtype == OCTET_DTYPE_BF16))
        v = m ? NAN : INFINITY;
    else if (e == 0)
        v = ldexp(m, 1 - t.bias - t.mantissa_bits);
    else
        v = ldexp((1u << t.mantissa_bits) + m, (int)e - t.bias - t.mantissa_bits);
    return sign ? -v : v;
}

/* The code of a number that the type has. */
static inline uint32_t ref_code(struct ref_type t, double x)
{
    int e;
    uint32_t sign = signbit(x) ? 1u << (t.exponent_bits + t.mantissa_bits) : 0;
    double a = fabs(x);

    if (a == 0)
        return sign;
    frexp(a, &e);
    e = e - 1 < 1 - t.bias ? 1 - t.bias : e - 1;
    uint32_t m = (uint32_t)ldexp(a, t.mantissa_bits - e);
    uint32_t hidden = 1u << t.mantissa_bits;
    return sign | (m >= hidden ? ((uint32_t)(e + t.bias) << t.mantissa_bits) + m - hidden : m);
}

static inline uint32_t ref_integer(double x, bool rounds, double low, double high)
{
    if (isnan(x))
        return 0;
    x = isinf(x) ? x : rounds ? rint(x) : trunc(x);
    return (uint32_t)(int32_t)(x < low ? low : x > high ? high : x);
}

static inline uint32_t ref_e8m0fnu(float value)
{
    double x = exact(value);

    if (isnan(x) || signbit(x) || x >= 0x1.8p127)
        return 0xff;
    if (x < 0x1p-126) /* one step, from 2^-127 to 2^-126 */
        return x >= 0x1.8p-127;
    int e;
    double m = frexp(x, &e);
    return (uint32_t)(e - 1 + 127 + (m >= 0.75));
}

static inline uint32_t ref_encode(enum octet_dtype dtype, bool saturates, float value)
{
    double x = exact(value);
    struct ref_type t = ref_type(dtype);

    switch (dtype) {
    case OCTET_DTYPE_F32:
        return bits_of(value);
    case OCTET_DTYPE_S8:
        return ref_integer(x, saturates, -128, 127) & 0xff;
    case OCTET_DTYPE_S4:
        return ref_integer(x, saturates, -8, 7) & 0xff;
    case OCTET_DTYPE_S32:
        return ref_integer(x, false, -0x1p31, 0x1p31 - 1);
    case OCTET_DTYPE_F8_E8M0FNU:
        return ref_e8m0fnu(value);
    default:
        break;
    }
    uint32_t sign = bits_of(value) >> 31 << (t.exponent_bits + t.mantissa_bits);
    if (isnan(x))
        return t.nan | sign;
    double r = ref_round(x, t.mantissa_bits, 1 - t.bias);
    if (fabs(r) > t.largest)
        return sign | (saturates ? ref_code(t, t.largest) : t.overflow);
    return sign | ref_code(t, fabs(r));
}

static inline float ref_value(enum octet_dtype dtype, const void *codes, size_t i)
{
    const uint8_t *b = codes;
    const uint16_t *h = codes;

    switch (dtype) {
    case OCTET_DTYPE_F32:
        return ((const float *)codes)[i];
    case OCTET_DTYPE_BF16:
    case OCTET_DTYPE_F16: /* NaN: the caller compares as NaN */
        return to_float(ref_decode(dtype, h[i]));
    case OCTET_DTYPE_F8_E8M0FNU:
        return b[i] == 0xff ? NAN : to_float(ldexp(1, b[i] - 127));
    case OCTET_DTYPE_S8:
        return (float)(int8_t)b[i];
    case OCTET_DTYPE_S4:
        return (float)((b[i] & 15) >= 8 ? (b[i] & 15) - 16 : b[i] & 15);
    case OCTET_DTYPE_U8:
        return b[i];
    case OCTET_DTYPE_BOOL:
        return b[i] ? 1 : 0;
    case OCTET_DTYPE_S32: /* double holds any S32 exactly */
        return to_float(ref_round(((const int32_t *)codes)[i], 23, -126));
    case OCTET_DTYPE_S64:
        return (float)((const int64_t *)codes)[i];
    default:
        return to_float(ref_decode(dtype, b[i] & (dtype == OCTET_DTYPE_F4_E2M1FN ? 15 : 255)));
    }
}

/* ---- f32 arithmetic with subnormals as zeros, one rounding an operation ---- */

static inline double daz(float value)
{
    double x = exact(value);
    return fabs(x) < 0x1p-126 ? copysign(0, x) : x;
}

/* A double that a sum or product of two f32 was rounded to, rounded once more: by a theorem on
 * double rounding (53 >= 2 * 24 + 2 bits) the same as rounding once. */
static inline float ftz(double x)
{
    double r = ref_round(x, 23, -1000); /* what is tiny is decided after rounding */

    if (fabs(r) < 0x1p-126)
        r = copysign(0, x);
    return to_float(fabs(r) > 0x1.fffffep127 ? copysign(INFINITY, r) : r);
}

static inline float ref_mul(float a, float b)
{
    return ftz(daz(a) * daz(b));
}

/* To BF16, kept as f32. */
static inline float ref_bf16(float value)
{
    if (isnan(exact(value)))
        return float_of((bits_of(value) & 0x80000000u) | 0x7fc00000u);
    return float_of(ref_encode(OCTET_DTYPE_BF16, false, value) << 16);
}

#endif
