/* Vector words of one lane: plain C. The code words are lib/dtypes' definitions themselves. */
#ifndef OCTET_KERNELS_SCALAR_SIMD_H
#define OCTET_KERNELS_SCALAR_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/float_env.h"
#include "dtypes/codes.h"
#include "kernels/words.h"
#include "octet/dtype.h"

#define VL 1
typedef float vf32;
typedef uint32_t vu32;
typedef bool vmask;

static inline vu32 vu32_load(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vu32_store(void *p, vu32 v)
{
    memcpy(p, &v, sizeof v);
}
static inline vf32 vf32_load(const void *p)
{
    return oct_f32_from_bits(vu32_load(p));
}
static inline void vf32_store(void *p, vf32 v)
{
    vu32_store(p, oct_f32_bits(v));
}
/* The first n lanes, 0 < n <= VL; the others are 0 or stay. */
static inline vf32 vf32_load_part(const void *p, size_t n)
{
    (void)n;
    return vf32_load(p);
}
static inline void vf32_store_part(void *p, size_t n, vf32 v)
{
    (void)n;
    vf32_store(p, v);
}
static inline vf32 vf32_set1(float v)
{
    return v;
}
static inline vf32 vf32_zero(void)
{
    return 0;
}
static inline vf32 vf32_mul(vf32 a, vf32 b)
{
    return oct_mul(a, b);
}
static inline vf32 vf32_add(vf32 a, vf32 b)
{
    return a + b;
}
static inline vf32 vf32_sub(vf32 a, vf32 b)
{
    return a - b;
}
static inline vf32 vf32_div(vf32 a, vf32 b)
{
    return a / b;
}
static inline vf32 vf32_sqrt(vf32 a)
{
    return sqrtf(a);
}
static inline vf32 vf32_min(vf32 a, vf32 b) /* b where either is NaN; so vf32_max */
{
    return a < b ? a : b;
}
static inline vf32 vf32_max(vf32 a, vf32 b)
{
    return a > b ? a : b;
}
static inline vmask vf32_above(vf32 a, vf32 b) /* false where either is NaN */
{
    return a > b;
}
static inline vf32 vf32_select(vmask m, vf32 yes, vf32 no)
{
    return m ? yes : no;
}
static inline bool vmask_all(vmask m)
{
    return m;
}
static inline vf32 vf32_fma(vf32 a, vf32 b, vf32 c)
{
    return oct_fma(a, b, c);
}
static inline vu32 vf32_bits(vf32 v)
{
    return oct_f32_bits(v);
}
static inline vf32 vu32_float(vu32 v)
{
    return oct_f32_from_bits(v);
}
static inline vu32 vu32_set1(uint32_t v)
{
    return v;
}
static inline vu32 vu32_and(vu32 a, vu32 b)
{
    return a & b;
}
static inline vu32 vu32_or(vu32 a, vu32 b)
{
    return a | b;
}
static inline vu32 vu32_add(vu32 a, vu32 b)
{
    return a + b;
}
static inline vu32 vu32_sub(vu32 a, vu32 b)
{
    return a - b;
}
static inline vu32 vu32_shl(vu32 a, int n)
{
    return a << n;
}
static inline vu32 vu32_shr(vu32 a, int n)
{
    return a >> n;
}
static inline vu32 vu32_max(vu32 a, vu32 b)
{
    return a > b ? a : b;
}
static inline vmask vu32_above(vu32 a, vu32 b) /* as signed numbers */
{
    return (int32_t)a > (int32_t)b;
}
static inline vu32 vu32_select(vmask m, vu32 yes, vu32 no)
{
    return m ? yes : no;
}
static inline bool vf32_any_nan(vf32 v)
{
    return v != v;
}
static inline bool vf32_any_nan_x4(const vf32 v[4])
{
    return v[0] != v[0] || v[1] != v[1] || v[2] != v[2] || v[3] != v[3];
}
static inline vf32 vf32_from_s32(vu32 v)
{
    return (float)(int32_t)v;
}
static inline vu32 vf32_to_s32(vf32 v) /* v is an integer in range */
{
    return (vu32)(int32_t)v;
}
static inline void vu32_transpose(vu32 rows[VL])
{
    (void)rows;
}
static inline void vu32_store_u16(void *p, vu32 v)
{
    uint16_t half = (uint16_t)v;
    memcpy(p, &half, sizeof half);
}
static inline void vu32_store_u8_x4(void *p, const vu32 v[4])
{
    for (int i = 0; i < 4; i++)
        ((uint8_t *)p)[i] = (uint8_t)v[i];
}
static inline vu32 vu32_from_u16(const void *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

static INLINE vf32 load(enum octet_dtype dtype, const void *p)
{
    /* A table: of `code != 0` a compiler would make a choice between x and 0 where it is multiplied
     * by x, and a subnormal x would come through. */
    static const float truth[2] = {0, 1};
    uint8_t code = *(const uint8_t *)p;

    switch (dtype) {
    case OCTET_DTYPE_BF16:
        return oct_bf16_decode((uint16_t)vu32_from_u16(p));
    case OCTET_DTYPE_F16:
        return oct_f16_decode((uint16_t)vu32_from_u16(p));
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_decode(code);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_decode(code);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_decode(code);
    case OCTET_DTYPE_F8_E8M0FNU:
        return oct_e8m0fnu_decode(code);
    case OCTET_DTYPE_S8:
        return oct_s8_decode(code);
    case OCTET_DTYPE_S4:
        return oct_s4_decode(code);
    case OCTET_DTYPE_U8:
        return code;
    case OCTET_DTYPE_BOOL:
        return truth[code != 0];
    case OCTET_DTYPE_S32:
        return (float)(int32_t)vu32_load(p);
    default:
        return vf32_load(p);
    }
}

static INLINE vu32 cast_code(enum octet_dtype dtype, vf32 x)
{
    switch (dtype) {
    case OCTET_DTYPE_BF16:
        return oct_bf16_cast(x);
    case OCTET_DTYPE_F16:
        return oct_f16_cast(x);
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_cast(x);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_cast(x);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_cast(x);
    case OCTET_DTYPE_F8_E8M0FNU:
        return oct_e8m0fnu_cast(x);
    case OCTET_DTYPE_S8:
        return oct_s8_cast(x);
    case OCTET_DTYPE_S4:
        return oct_s4_cast(x);
    case OCTET_DTYPE_S32:
        return (vu32)oct_s32_cast(x);
    default:
        return oct_f32_bits(x);
    }
}

/* source: BF16 rounds x to that first. numbers (x is no NaN) is for the vector sets. */
static INLINE vu32 saturate_code(enum octet_dtype dtype, enum octet_dtype source, bool numbers,
                                 vf32 x)
{
    (void)numbers;
    if (source == OCTET_DTYPE_BF16)
        x = oct_bf16_decode(oct_bf16_cast(x));
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_saturate(x);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_saturate(x);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_saturate(x);
    case OCTET_DTYPE_S8:
        return oct_s8_saturate(x);
    case OCTET_DTYPE_S4:
        return oct_s4_saturate(x);
    default:
        return cast_code(dtype, x);
    }
}

static INLINE void store(size_t bytes, void *p, vu32 code)
{
    memcpy(p, &code, bytes); /* little-endian, as all of Octet */
}

#endif
