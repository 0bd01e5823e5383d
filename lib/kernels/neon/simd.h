/* Vector words of 4 lanes: NEON, as every CPU of AArch64 has it.
 *
 * Decision: vf32_mul and vf32_fma give x86's results also just below the smallest normal number
 * (base/float_env.h), for five more instructions. Where such a result cannot matter, or where the
 * FPU's underflow flag is asked afterwards, the loose words are taken. */
#ifndef OCTET_KERNELS_NEON_SIMD_H
#define OCTET_KERNELS_NEON_SIMD_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LOOSE_WORDS 1
#include "dtypes/codes.h"
#include "kernels/words.h"
#include "octet/dtype.h"

#define VL 4
typedef float32x4_t vf32;
typedef uint32x4_t vu32;
typedef uint32x4_t vmask;

static INLINE vu32 vf32_bits(vf32 v)
{
    return vreinterpretq_u32_f32(v);
}
static INLINE vf32 vu32_float(vu32 v)
{
    return vreinterpretq_f32_u32(v);
}
/* Bytes, so that no address need be aligned. */
static INLINE vu32 vu32_load(const void *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}
static INLINE void vu32_store(void *p, vu32 v)
{
    vst1q_u8(p, vreinterpretq_u8_u32(v));
}
static INLINE vf32 vf32_load(const void *p)
{
    return vu32_float(vu32_load(p));
}
static INLINE void vf32_store(void *p, vf32 v)
{
    vu32_store(p, vf32_bits(v));
}
/* The first n lanes, 0 < n <= VL; the others are 0 or stay. */
static INLINE vf32 vf32_load_part(const void *p, size_t n)
{
    float lanes[VL] = {0};
    memcpy(lanes, p, n * sizeof(float));
    return vf32_load(lanes);
}
static INLINE void vf32_store_part(void *p, size_t n, vf32 v)
{
    float lanes[VL];
    vf32_store(lanes, v);
    memcpy(p, lanes, n * sizeof(float));
}
static INLINE vf32 vf32_set1(float v)
{
    return vdupq_n_f32(v);
}
static INLINE vf32 vf32_zero(void)
{
    return vdupq_n_f32(0);
}
static INLINE vu32 vu32_set1(uint32_t v)
{
    return vdupq_n_u32(v);
}
static INLINE vu32 vu32_and(vu32 a, vu32 b)
{
    return vandq_u32(a, b);
}
static INLINE vu32 vu32_or(vu32 a, vu32 b)
{
    return vorrq_u32(a, b);
}

/* ---- Arithmetic ---- */

/* What was computed 2^64 times as large tells whether the result is the smallest normal number. If
 * so, `result` is that already or, flushed, a zero of the same sign. */
static INLINE vf32 rounded_up(vf32 result, vf32 scaled)
{
    vu32 is_least = vceqq_f32(vabsq_f32(scaled), vdupq_n_f32(0x1p-62f));
    return vu32_float(vorrq_u32(vf32_bits(result), vandq_u32(is_least, vdupq_n_u32(0x00800000u))));
}
static INLINE vf32 vf32_mul_loose(vf32 a, vf32 b)
{
    return vmulq_f32(a, b);
}
static INLINE vf32 vf32_mul(vf32 a, vf32 b)
{
    return rounded_up(vmulq_f32(a, b), vmulq_f32(a, vmulq_f32(b, vdupq_n_f32(0x1p64f))));
}
static INLINE vf32 vf32_fma_loose(vf32 a, vf32 b, vf32 c)
{
    return vfmaq_f32(c, a, b);
}
static INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c)
{
    const vf32 up = vdupq_n_f32(0x1p64f);
    return rounded_up(vfmaq_f32(c, a, b), vfmaq_f32(vmulq_f32(c, up), vmulq_f32(a, up), b));
}
/* UFC, bit 3 of FPSR: a result was flushed. The cumulative flags are nobody else's. */
static INLINE bool loose_failed(void)
{
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags)::"memory");
    return flags >> 3 & 1;
}
static INLINE void loose_begin(void)
{
    if (loose_failed()) /* reading is cheap, writing is not */
        __asm__ volatile("msr fpsr, xzr" ::: "memory");
}
static INLINE vf32 vf32_add(vf32 a, vf32 b)
{
    return vaddq_f32(a, b);
}
static INLINE vf32 vf32_sub(vf32 a, vf32 b)
{
    return vsubq_f32(a, b);
}
static INLINE vf32 vf32_div(vf32 a, vf32 b)
{
    return vdivq_f32(a, b);
}
static INLINE vf32 vf32_sqrt(vf32 a)
{
    return vsqrtq_f32(a);
}
static INLINE vf32 vf32_min(vf32 a, vf32 b) /* b where either is NaN; so vf32_max. FMIN's is NaN */
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
static INLINE vf32 vf32_max(vf32 a, vf32 b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static INLINE vmask vf32_above(vf32 a, vf32 b) /* false where either is NaN */
{
    return vcgtq_f32(a, b);
}
static INLINE vf32 vf32_select(vmask m, vf32 yes, vf32 no)
{
    return vbslq_f32(m, yes, no);
}
static INLINE bool vmask_all(vmask m)
{
    return vminvq_u32(m) != 0;
}
static INLINE bool vf32_any_nan(vf32 v)
{
    return vminvq_u32(vceqq_f32(v, v)) == 0;
}
/* In any of four. */
static INLINE bool vf32_any_nan_x4(const vf32 v[4])
{
    vu32 low = vandq_u32(vceqq_f32(v[0], v[0]), vceqq_f32(v[1], v[1]));
    vu32 high = vandq_u32(vceqq_f32(v[2], v[2]), vceqq_f32(v[3], v[3]));
    return vminvq_u32(vandq_u32(low, high)) == 0;
}
/* The bits of low where mask has them, those of high elsewhere. */
static INLINE vu32 vu32_join(uint32_t mask, vu32 low, vu32 high)
{
    return vbslq_u32(vdupq_n_u32(mask), low, high);
}
static INLINE vu32 vu32_add(vu32 a, vu32 b)
{
    return vaddq_u32(a, b);
}
static INLINE vu32 vu32_sub(vu32 a, vu32 b)
{
    return vsubq_u32(a, b);
}
static INLINE vu32 vu32_shl(vu32 a, int n)
{
    return a << n;
}
static INLINE vu32 vu32_shr(vu32 a, int n)
{
    return a >> n;
}
static INLINE vu32 vu32_min(vu32 a, vu32 b)
{
    return vminq_u32(a, b);
}
static INLINE vu32 vu32_max(vu32 a, vu32 b)
{
    return vmaxq_u32(a, b);
}
static INLINE vmask vu32_above(vu32 a, vu32 b) /* as signed numbers */
{
    return vcgtq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b));
}
static INLINE vu32 vu32_select(vmask m, vu32 yes, vu32 no)
{
    return vbslq_u32(m, yes, no);
}
static INLINE vf32 vf32_from_s32(vu32 v)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(v));
}
static INLINE vu32 vf32_to_s32(vf32 v)
{
    return vreinterpretq_u32_s32(vcvtnq_s32_f32(v));
}
static INLINE vu32 vf32_truncate_s32(vf32 v)
{
    return vreinterpretq_u32_s32(vcvtq_s32_f32(v));
}

/* ---- Narrow loads and stores ---- */

static INLINE uint8x8_t four_bytes(const void *p)
{
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vreinterpret_u8_u32(vdup_n_u32(bytes));
}
static INLINE vu32 vu32_from_u8(const void *p)
{
    return vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p))));
}
static INLINE vu32 vu32_from_s8(const void *p)
{
    int16x8_t half = vmovl_s8(vreinterpret_s8_u8(four_bytes(p)));
    return vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(half)));
}
static INLINE uint16x4_t four_halves(const void *p)
{
    return vreinterpret_u16_u8(vld1_u8(p));
}
static INLINE vu32 vu32_from_u16(const void *p)
{
    return vmovl_u16(four_halves(p));
}
static INLINE void vu32_store_u16(void *p, vu32 v) /* lanes below 2^16 */
{
    vst1_u8(p, vreinterpret_u8_u16(vmovn_u32(v)));
}
static INLINE void vu32_store_u8(void *p, vu32 v)
{
    uint16x4_t half = vmovn_u32(v);
    uint8x8_t bytes = vmovn_u16(vcombine_u16(half, half));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(p, &four, sizeof four);
}
static INLINE void vu32_store_u8_x4(void *p, const vu32 v[4])
{
    uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
    uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
    vst1q_u8(p, vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)));
}

/* ---- Codes, by way of F16: FCVTL takes its subnormals whatever FZ says ---- */

static INLINE vf32 float_of_f16(uint16x4_t f16)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(f16));
}

static INLINE vf32 vf32_from_f16(const void *p)
{
    return float_of_f16(four_halves(p));
}

static INLINE vf32 vf32_from_e5m2(const void *p)
{
    return float_of_f16(vget_low_u16(vshll_n_u8(four_bytes(p), 8)));
}

/* The exponent's bias is 8 below F16's, so the number is 2^8 times that F16. Of the sign-extended
 * code one sign too many is in the way after the shift. A NaN's 0x3f80 becomes 0x7e00. */
static INLINE vf32 vf32_from_e4m3fn(const void *p)
{
    int16x8_t wide = vshll_n_s8(vreinterpret_s8_u8(four_bytes(p)), 7);
    uint16x4_t shifted = vget_low_u16(vreinterpretq_u16_s16(wide)), nan = vdup_n_u16(0x3f80);
    uint16x4_t is_nan = vceq_u16(vand_u16(shifted, nan), nan);
    uint16x4_t f16 = vand_u16(shifted, vdup_n_u16(0xbfff));
    f16 = veor_u16(f16, vand_u16(is_nan, vdup_n_u16(0x3f80 ^ 0x7e00)));
    return vmulq_f32(float_of_f16(f16), vdupq_n_f32(0x1p8f));
}

static INLINE vf32 vf32_from_e2m1fn(const void *p)
{
    uint16x4_t code = vget_low_u16(vmovl_u8(four_bytes(p)));
    uint16x4_t sign = vshl_n_u16(vand_u16(code, vdup_n_u16(8)), 12);
    uint16x4_t rest = vshl_n_u16(vand_u16(code, vdup_n_u16(7)), 9);
    return vmulq_f32(float_of_f16(vorr_u16(sign, rest)), vdupq_n_f32(0x1p14f));
}

/* rows[i] lane j <-> rows[j] lane i */
static INLINE void vu32_transpose(vu32 r[VL])
{
    vu32 a = vtrn1q_u32(r[0], r[1]), b = vtrn2q_u32(r[0], r[1]);
    vu32 c = vtrn1q_u32(r[2], r[3]), d = vtrn2q_u32(r[2], r[3]);

    r[0] = vcombine_u32(vget_low_u32(a), vget_low_u32(c));
    r[1] = vcombine_u32(vget_low_u32(b), vget_low_u32(d));
    r[2] = vcombine_u32(vget_high_u32(a), vget_high_u32(c));
    r[3] = vcombine_u32(vget_high_u32(b), vget_high_u32(d));
}

#endif
