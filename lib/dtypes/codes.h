/* What the bits of each data type mean: one number at a time, in plain integer arithmetic.
 *
 * For: the definition that every faster loop is measured against, and for places where speed does
 * not matter. Not for: arrays (kernels/kernels.h).
 * Decision: numbers are taken and given as f32 and handled by their bits, so that nothing here
 * depends on the floating-point environment: codes below f32's normal range (F16, BF16, E8M0) keep
 * their exact value where the CPU treats subnormals as zero. The one exception is said at its
 * place.
 *
 * Two operations turn a number into a code, and they differ (ml_dtypes issue 400: 448 here, NaN
 * there). cast is the plain conversion of XLA and ml_dtypes: 465 in E4M3FN is NaN. saturate is
 * Qwix's convert_to, which clips first: 465 and Inf are 448, only NaN is NaN.
 *
 * 4-bit types lie in the low half of a byte. The high half is ignored when read, as in ml_dtypes;
 * it is written as zero for floats and, so that the byte reads as int8 too, with the sign for
 * integers. */
#ifndef OCTET_DTYPES_CODES_H
#define OCTET_DTYPES_CODES_H

#include <stdint.h>
#include <string.h>

#define OCT_F32_NAN 0x7fc00000u

static inline uint32_t oct_f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float oct_f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- Small floats: sign, exponent, mantissa ---- */

/* A code is sign << sign_shift | exponent and mantissa; its exponent field is f32's less bias, its
 * mantissa f32's without the low shift bits. */
struct oct_minifloat {
    int shift;             /* 23 - mantissa bits */
    uint32_t bias;         /* 127 - the type's own bias */
    int sign_shift;        /* 31 - place of the sign */
    uint32_t ceiling_cast; /* overflow in a cast; positive numbers only, as the next two */
    uint32_t ceiling_saturate;
    uint32_t nan;
};

/* name, shift, bias, sign shift, cast's ceiling, saturate's ceiling, NaN. E2M1FN has neither
 * Inf nor NaN: it saturates in both, and a NaN becomes -0 as in XLA. F16's second ceiling is its
 * largest finite number, as the others'. */
#define OCT_MINIFLOATS(X)                                                                          \
    X(E4M3FN, 20, 120, 24, 0x7f, 0x7e, 0x7f)                                                       \
    X(E5M2, 21, 112, 24, 0x7c, 0x7b, 0x7e)                                                         \
    X(E2M1FN, 22, 126, 28, 0x7, 0x7, 0x8)                                                          \
    X(F16, 13, 112, 16, 0x7c00, 0x7bff, 0x7e00)

#define OCT_MINIFLOAT_ROW(name, shift, bias, sign, cast, saturate, nan)                            \
    static const struct oct_minifloat OCT_##name = {shift, bias, sign, cast, saturate, nan};
OCT_MINIFLOATS(OCT_MINIFLOAT_ROW)
#undef OCT_MINIFLOAT_ROW

/* Rounds to nearest even with gradual underflow. The ceiling's place is where the code stops. */
static inline uint32_t oct_minifloat_encode(const struct oct_minifloat *type, float value,
                                            uint32_t ceiling)
{
    uint32_t bits = oct_f32_bits(value), a = bits & 0x7fffffffu, code;
    uint32_t sign = bits >> 31 << (31 - type->sign_shift);
    int exponent = (int)(a >> 23) - (int)type->bias; /* the code's, if it is above 0 */

    if (a > 0x7f800000u)
        return type->nan | sign;
    if (exponent > 0) {
        uint32_t rebased = a - (type->bias << 23);
        uint32_t half = (1u << (type->shift - 1)) - 1 + (rebased >> type->shift & 1);
        code = (rebased + half) >> type->shift;
    } else {
        /* The mantissa with its hidden bit, shifted further for each step below exponent 1. */
        int shift = type->shift + 1 - exponent;
        uint64_t m = (a >> 23 ? 0x800000u : 0) | (a & 0x7fffffu);
        code = shift > 40 ? 0
                          : (uint32_t)((m + (1ull << (shift - 1)) - 1 + (m >> shift & 1)) >> shift);
    }
    return (code < ceiling ? code : ceiling) | sign;
}

/* Exact; needs no type whose NaN or Inf codes matter (those are the callers'). */
static inline float oct_minifloat_decode(const struct oct_minifloat *type, uint32_t code)
{
    int sign_place = 31 - type->sign_shift;
    uint32_t sign = code >> sign_place << 31, a = code & ((1u << sign_place) - 1);
    int mantissa_bits = 23 - type->shift;

    if (a >> mantissa_bits)
        return oct_f32_from_bits(sign | ((a << type->shift) + (type->bias << 23)));
    if (a == 0)
        return oct_f32_from_bits(sign);
    int up =
        __builtin_clz(a) - 31 + mantissa_bits; /* steps until the leading bit is the hidden one */
    uint32_t fraction = (a << up << type->shift) & 0x7fffffu;
    return oct_f32_from_bits(sign | ((type->bias + 1 - (uint32_t)up) << 23) | fraction);
}

#define OCT_MINIFLOAT_FUNCTIONS(NAME, name, integer)                                               \
    static inline integer oct_##name##_cast(float value)                                           \
    {                                                                                              \
        return (integer)oct_minifloat_encode(&OCT_##NAME, value, OCT_##NAME.ceiling_cast);         \
    }                                                                                              \
    static inline integer oct_##name##_saturate(float value)                                       \
    {                                                                                              \
        return (integer)oct_minifloat_encode(&OCT_##NAME, value, OCT_##NAME.ceiling_saturate);     \
    }
OCT_MINIFLOAT_FUNCTIONS(E4M3FN, e4m3fn, uint8_t)
OCT_MINIFLOAT_FUNCTIONS(E5M2, e5m2, uint8_t)
OCT_MINIFLOAT_FUNCTIONS(E2M1FN, e2m1fn, uint8_t)
OCT_MINIFLOAT_FUNCTIONS(F16, f16, uint16_t)
#undef OCT_MINIFLOAT_FUNCTIONS

static inline float oct_e4m3fn_decode(uint8_t code)
{
    if ((code & 0x7f) == 0x7f)
        return oct_f32_from_bits((uint32_t)(code & 0x80) << 24 | OCT_F32_NAN);
    return oct_minifloat_decode(&OCT_E4M3FN, code);
}

/* A NaN keeps its payload and becomes quiet, as VCVTPH2PS does it. */
static inline float oct_f16_decode(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000) << 16, a = code & 0x7fffu;

    if (a >= 0x7c00)
        return oct_f32_from_bits(sign | 0x7f800000u | (a & 0x3ff) << 13 |
                                 (a > 0x7c00 ? 0x400000u : 0));
    return oct_minifloat_decode(&OCT_F16, code);
}

/* E5M2 is the upper half of an F16. */
static inline float oct_e5m2_decode(uint8_t code)
{
    return oct_f16_decode((uint16_t)(code << 8));
}

static inline float oct_e2m1fn_decode(uint8_t code)
{
    return oct_minifloat_decode(&OCT_E2M1FN, code & 0xf);
}

/* ---- BF16: the upper half of an f32 ---- */

static inline float oct_bf16_decode(uint16_t code)
{
    return oct_f32_from_bits((uint32_t)code << 16);
}

static inline uint16_t oct_bf16_cast(float value)
{
    uint32_t bits = oct_f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 31 << 15 | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- E8M0FNU: powers of two, a scale's type; 0xff is NaN, there is no zero ---- */

static inline float oct_e8m0fnu_decode(uint8_t code)
{
    if (code == 0xff)
        return oct_f32_from_bits(OCT_F32_NAN);
    return oct_f32_from_bits(code ? (uint32_t)code << 23 : 0x400000u);
}

/* To the nearest, ties up; 0 is the smallest, 2^-127; what has a sign (-0 too), is too large or
 * not a number is NaN. XLA's convert. */
static inline uint8_t oct_e8m0fnu_cast(float value)
{
    uint32_t bits = oct_f32_bits(value), code = (bits + 0x400000u) >> 23;

    if (bits < 0x600000u) /* subnormal: a step from 2^-127 to 2^-126 has its middle here */
        return 0;
    return (uint8_t)(bits >> 31 || code > 0xff ? 0xff : code);
}

/* ---- Integers ---- */

/* low <= value <= high after rounding; both must be exact in f32, or high one above such a number
 * (S32: see oct_s32_cast). NaN is 0. */
static inline int32_t oct_integer_cast(float value, float low, float high)
{
    if (value != value)
        return 0;
    return (int32_t)(value < low ? low : value > high ? high : value);
}

static inline int32_t oct_integer_saturate(float value, float low, float high)
{
    if (value != value)
        return 0;
    /* Adding 1.5 * 2^23 rounds to an integer, half to even, in the environment of float_env.h. */
    float clipped = value < low ? low : value > high ? high : value;
    return (int32_t)(clipped + 0x1.8p23f - 0x1.8p23f);
}

static inline uint8_t oct_s8_cast(float value)
{
    return (uint8_t)oct_integer_cast(value, -128, 127);
}

static inline uint8_t oct_s8_saturate(float value)
{
    return (uint8_t)oct_integer_saturate(value, -128, 127);
}

static inline uint8_t oct_s4_cast(float value)
{
    return (uint8_t)oct_integer_cast(value, -8, 7);
}

static inline uint8_t oct_s4_saturate(float value)
{
    return (uint8_t)oct_integer_saturate(value, -8, 7);
}

static inline int32_t oct_s32_cast(float value)
{
    return value >= 0x1p31f ? INT32_MAX : oct_integer_cast(value, -0x1p31f, 0x1p31f);
}

static inline float oct_s8_decode(uint8_t code)
{
    return (float)(int8_t)code;
}

static inline float oct_s4_decode(uint8_t code)
{
    return (float)(((code & 0xf) ^ 8) - 8);
}

#endif
