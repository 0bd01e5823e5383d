/* Vector words of 16 lanes: AVX-512 F, BW, VL, DQ; and VDPBF16PS where the set has it. */
#ifndef OCTET_KERNELS_AVX512_SIMD_H
#define OCTET_KERNELS_AVX512_SIMD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "dtypes/codes.h"
#include "kernels/words.h"
#include "octet/dtype.h"

#define VL 16
typedef __m512 vf32;
typedef __m512i vu32;
typedef __mmask16 vmask;

static INLINE vu32 vu32_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static INLINE void vu32_store(void *p, vu32 v)
{
    _mm512_storeu_si512(p, v);
}
static INLINE vf32 vf32_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
static INLINE void vf32_store(void *p, vf32 v)
{
    _mm512_storeu_ps(p, v);
}
/* The first n lanes, 0 < n <= VL; the others are 0 or stay. */
static INLINE vf32 vf32_load_part(const void *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static INLINE void vf32_store_part(void *p, size_t n, vf32 v)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
static INLINE vf32 vf32_set1(float v)
{
    return _mm512_set1_ps(v);
}
static INLINE vf32 vf32_zero(void)
{
    return _mm512_setzero_ps();
}
static INLINE vf32 vf32_mul(vf32 a, vf32 b)
{
    return _mm512_mul_ps(a, b);
}
static INLINE vf32 vf32_add(vf32 a, vf32 b)
{
    return _mm512_add_ps(a, b);
}
static INLINE vf32 vf32_sub(vf32 a, vf32 b)
{
    return _mm512_sub_ps(a, b);
}
static INLINE vf32 vf32_div(vf32 a, vf32 b)
{
    return _mm512_div_ps(a, b);
}
static INLINE vf32 vf32_sqrt(vf32 a)
{
    return _mm512_sqrt_ps(a);
}
static INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static INLINE vf32 vf32_min(vf32 a, vf32 b) /* b where either is NaN; so vf32_max */
{
    return _mm512_min_ps(a, b);
}
static INLINE vf32 vf32_max(vf32 a, vf32 b)
{
    return _mm512_max_ps(a, b);
}
static INLINE vmask vf32_above(vf32 a, vf32 b) /* false where either is NaN */
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
static INLINE vf32 vf32_select(vmask m, vf32 yes, vf32 no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
static INLINE bool vmask_all(vmask m)
{
    return m == 0xffff;
}
static INLINE vu32 vf32_bits(vf32 v)
{
    return _mm512_castps_si512(v);
}
static INLINE vf32 vu32_float(vu32 v)
{
    return _mm512_castsi512_ps(v);
}
static INLINE vu32 vu32_set1(uint32_t v)
{
    return _mm512_set1_epi32((int)v);
}
static INLINE vu32 vu32_and(vu32 a, vu32 b)
{
    return _mm512_and_si512(a, b);
}
static INLINE vu32 vu32_or(vu32 a, vu32 b)
{
    return _mm512_or_si512(a, b);
}
static INLINE vu32 vu32_add(vu32 a, vu32 b)
{
    return _mm512_add_epi32(a, b);
}
static INLINE vu32 vu32_sub(vu32 a, vu32 b)
{
    return _mm512_sub_epi32(a, b);
}
static INLINE vu32 vu32_shl(vu32 a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}
static INLINE vu32 vu32_shr(vu32 a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}
static INLINE vu32 vu32_min(vu32 a, vu32 b)
{
    return _mm512_min_epu32(a, b);
}
static INLINE vu32 vu32_max(vu32 a, vu32 b)
{
    return _mm512_max_epu32(a, b);
}
static INLINE vmask vu32_above(vu32 a, vu32 b) /* as signed numbers */
{
    return _mm512_cmpgt_epi32_mask(a, b);
}
static INLINE vu32 vu32_select(vmask m, vu32 yes, vu32 no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}
static INLINE bool vf32_any_nan(vf32 v)
{
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
}
/* In any of four. */
static INLINE bool vf32_any_nan_x4(const vf32 v[4])
{
    return !_mm512_kortestz(_mm512_cmp_ps_mask(v[0], v[1], _CMP_UNORD_Q),
                            _mm512_cmp_ps_mask(v[2], v[3], _CMP_UNORD_Q));
}
/* |a| at most, at least `limit`, with a's sign; a is no NaN, limit above 0. */
#define VF32_HAS_RANGE
static INLINE vf32 vf32_at_most(vf32 a, float limit)
{
    return _mm512_range_ps(a, _mm512_set1_ps(limit), 2);
}
static INLINE vf32 vf32_at_least(vf32 a, float limit)
{
    return _mm512_range_ps(a, _mm512_set1_ps(limit), 3);
}
/* The bits of low where mask has them, those of high elsewhere. */
static INLINE vu32 vu32_join(uint32_t mask, vu32 low, vu32 high)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)mask), low, high, 0xca);
}
static INLINE vf32 vf32_from_s32(vu32 v)
{
    return _mm512_cvtepi32_ps(v);
}
static INLINE vu32 vf32_to_s32(vf32 v)
{
    return _mm512_cvtps_epi32(v);
}
static INLINE vu32 vf32_truncate_s32(vf32 v)
{
    return _mm512_cvttps_epi32(v);
}

#if defined(__AVX512BF16__)
/* sum + odd * odd, then + even * even: the order of additions that the contract is named after. */
static INLINE vf32 vf32_dot_pair(vf32 sum, vu32 a, vu32 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#endif

/* ---- Narrow loads and stores ---- */

static INLINE vu32 vu32_from_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
static INLINE vu32 vu32_from_s8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
static INLINE vu32 vu32_from_u16(const void *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}
static INLINE void vu32_store_u16(void *p, vu32 v)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(v));
}
static INLINE void vu32_store_u8(void *p, vu32 v)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(v));
}
/* Four vectors of bytes. Packing works within quarters of 128 bits; the last step puts them in
 * order. */
static INLINE void vu32_store_u8_x4(void *p, const vu32 v[4])
{
    __m512i low = _mm512_packus_epi32(v[0], v[1]), high = _mm512_packus_epi32(v[2], v[3]);
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

/* ---- Codes, by way of F16: see avx2/simd.h ---- */

static INLINE vf32 vf32_from_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static INLINE vf32 vf32_from_e5m2(const void *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 8));
}

static INLINE vf32 vf32_from_e4m3fn(const void *p)
{
    __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
    __m256i nan = _mm256_set1_epi16(0x3f80);
    __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(shifted, nan), nan);
    __m256i f16 = _mm256_and_si256(shifted, _mm256_set1_epi16((short)0xbfff));
    f16 = _mm256_mask_add_epi16(f16, is_nan, f16, _mm256_set1_epi16(0x7e00 - 0x3f80));
    return _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(0x1p8f));
}

static INLINE vf32 vf32_from_e2m1fn(const void *p)
{
    __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(p));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(8)), 12);
    __m256i rest = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(7)), 9);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), _mm512_set1_ps(0x1p14f));
}

/* 2 * VL codes */
static INLINE void vf32_from_f16_x2(__m512i f16, vf32 to[2])
{
    to[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(f16));
    to[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(f16, 1));
}
static INLINE void vf32_from_e4m3fn_x2(const void *p, vf32 to[2])
{
    __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(p)), 7);
    __m512i nan = _mm512_set1_epi16(0x3f80);
    __mmask32 is_nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(shifted, nan), nan);
    __m512i f16 = _mm512_and_si512(shifted, _mm512_set1_epi16((short)0xbfff));
    f16 = _mm512_mask_add_epi16(f16, is_nan, f16, _mm512_set1_epi16(0x7e00 - 0x3f80));
    vf32_from_f16_x2(f16, to);
    to[0] = _mm512_mul_ps(to[0], _mm512_set1_ps(0x1p8f));
    to[1] = _mm512_mul_ps(to[1], _mm512_set1_ps(0x1p8f));
}
static INLINE void vf32_from_e5m2_x2(const void *p, vf32 to[2])
{
    vf32_from_f16_x2(_mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256(p)), 8), to);
}

/* ---- Packed codes: see avx2/simd.h ---- */

static INLINE __m512i first_bytes(__m512i pairs)
{
    return _mm512_slli_epi16(pairs, 8);
}
static INLINE void split_e4m3fn(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m512i x = _mm512_loadu_si512(codes), not_twice = _mm512_set1_epi16((short)0xbf80);
    vf32_from_f16_x2(_mm512_and_si512(_mm512_srai_epi16(first_bytes(x), 1), not_twice), even);
    vf32_from_f16_x2(_mm512_and_si512(_mm512_srai_epi16(x, 1), not_twice), odd);
}
static INLINE void split_e5m2(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m512i x = _mm512_loadu_si512(codes);
    vf32_from_f16_x2(first_bytes(x), even);
    vf32_from_f16_x2(_mm512_and_si512(x, _mm512_set1_epi16((short)0xff00)), odd);
}
static INLINE void vf32_from_s16_x2(__m512i v, vf32 to[2])
{
    to[0] = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(v)));
    to[1] = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(v, 1)));
}
static INLINE void split_s8(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m512i x = _mm512_loadu_si512(codes);
    vf32_from_s16_x2(_mm512_srai_epi16(first_bytes(x), 8), even);
    vf32_from_s16_x2(_mm512_srai_epi16(x, 8), odd);
}
static INLINE __m512i four_rows(const char *const row[2 * VL], int i, size_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(row[i] + at)));
    v = _mm512_inserti64x2(v, _mm_loadu_si128((const void *)(row[8 + i] + at)), 1);
    v = _mm512_inserti64x2(v, _mm_loadu_si128((const void *)(row[16 + i] + at)), 2);
    return _mm512_inserti64x2(v, _mm_loadu_si128((const void *)(row[24 + i] + at)), 3);
}
static INLINE void turn_pairs(const char *const row[2 * VL], size_t at, vu32 to[8])
{
    __m512i a[8], b[8], c[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = four_rows(row, i, at);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        c[i] = _mm512_unpacklo_epi32(b[i], b[i + 2]);
        c[i + 1] = _mm512_unpackhi_epi32(b[i], b[i + 2]);
        c[i + 2] = _mm512_unpacklo_epi32(b[i + 1], b[i + 3]);
        c[i + 3] = _mm512_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        to[2 * i] = _mm512_unpacklo_epi64(c[i], c[4 + i]);
        to[2 * i + 1] = _mm512_unpackhi_epi64(c[i], c[4 + i]);
    }
}
static INLINE uint64_t e4m3fn_nans(vu32 codes)
{
    __m512i sign = _mm512_set1_epi8((char)0x80);
    return _mm512_cmpeq_epi8_mask(_mm512_or_si512(codes, sign), _mm512_set1_epi8(-1));
}

/* rows[i] lane j <-> rows[j] lane i */
static INLINE void vu32_transpose(vu32 r[VL])
{
    vu32 a[VL], b[VL];

#pragma GCC unroll 16
    for (int i = 0; i < VL; i += 2) {
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    /* Now b[4 g + c] holds column c of each 128-bit lane, for rows 4 g ... 4 g + 3. */
#pragma GCC unroll 16
    for (int i = 0; i < VL; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        vu32 even_low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        vu32 odd_low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
        vu32 even_high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        vu32 odd_high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        r[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
        r[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        r[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        r[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
}

#endif
