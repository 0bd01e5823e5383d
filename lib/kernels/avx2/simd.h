/* Vector words of 8 lanes: AVX2, FMA, F16C. */
#ifndef OCTET_KERNELS_AVX2_SIMD_H
#define OCTET_KERNELS_AVX2_SIMD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "dtypes/codes.h"
#include "kernels/words.h"
#include "octet/dtype.h"

#define VL 8
typedef __m256 vf32;
typedef __m256i vu32;
typedef __m256i vmask;

static INLINE vu32 vu32_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
static INLINE void vu32_store(void *p, vu32 v)
{
    _mm256_storeu_si256(p, v);
}
static INLINE vf32 vf32_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
static INLINE void vf32_store(void *p, vf32 v)
{
    _mm256_storeu_ps(p, v);
}
/* The first n lanes, 0 < n <= VL; the others are 0 or stay. */
static INLINE vmask first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static INLINE vf32 vf32_load_part(const void *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static INLINE void vf32_store_part(void *p, size_t n, vf32 v)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}
static INLINE vf32 vf32_set1(float v)
{
    return _mm256_set1_ps(v);
}
static INLINE vf32 vf32_zero(void)
{
    return _mm256_setzero_ps();
}
static INLINE vf32 vf32_mul(vf32 a, vf32 b)
{
    return _mm256_mul_ps(a, b);
}
static INLINE vf32 vf32_add(vf32 a, vf32 b)
{
    return _mm256_add_ps(a, b);
}
static INLINE vf32 vf32_sub(vf32 a, vf32 b)
{
    return _mm256_sub_ps(a, b);
}
static INLINE vf32 vf32_div(vf32 a, vf32 b)
{
    return _mm256_div_ps(a, b);
}
static INLINE vf32 vf32_sqrt(vf32 a)
{
    return _mm256_sqrt_ps(a);
}
static INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static INLINE vf32 vf32_min(vf32 a, vf32 b) /* b where either is NaN; so vf32_max */
{
    return _mm256_min_ps(a, b);
}
static INLINE vf32 vf32_max(vf32 a, vf32 b)
{
    return _mm256_max_ps(a, b);
}
static INLINE vmask vf32_above(vf32 a, vf32 b) /* false where either is NaN */
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
static INLINE vf32 vf32_select(vmask m, vf32 yes, vf32 no)
{
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}
static INLINE bool vmask_all(vmask m)
{
    return _mm256_movemask_ps(_mm256_castsi256_ps(m)) == 0xff;
}
static INLINE vu32 vf32_bits(vf32 v)
{
    return _mm256_castps_si256(v);
}
static INLINE vf32 vu32_float(vu32 v)
{
    return _mm256_castsi256_ps(v);
}
static INLINE vu32 vu32_set1(uint32_t v)
{
    return _mm256_set1_epi32((int)v);
}
static INLINE vu32 vu32_and(vu32 a, vu32 b)
{
    return _mm256_and_si256(a, b);
}
static INLINE vu32 vu32_or(vu32 a, vu32 b)
{
    return _mm256_or_si256(a, b);
}
static INLINE vu32 vu32_add(vu32 a, vu32 b)
{
    return _mm256_add_epi32(a, b);
}
static INLINE vu32 vu32_sub(vu32 a, vu32 b)
{
    return _mm256_sub_epi32(a, b);
}
static INLINE vu32 vu32_shl(vu32 a, int n)
{
    return _mm256_slli_epi32(a, n);
}
static INLINE vu32 vu32_shr(vu32 a, int n)
{
    return _mm256_srli_epi32(a, n);
}
static INLINE vu32 vu32_min(vu32 a, vu32 b)
{
    return _mm256_min_epu32(a, b);
}
static INLINE vu32 vu32_max(vu32 a, vu32 b)
{
    return _mm256_max_epu32(a, b);
}
static INLINE vmask vu32_above(vu32 a, vu32 b) /* as signed numbers */
{
    return _mm256_cmpgt_epi32(a, b);
}
static INLINE vu32 vu32_select(vmask m, vu32 yes, vu32 no)
{
    return _mm256_blendv_epi8(no, yes, m);
}
static INLINE bool vf32_any_nan(vf32 v)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
}
/* In any of four. */
static INLINE bool vf32_any_nan_x4(const vf32 v[4])
{
    __m256 some = _mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q);
    some = _mm256_or_ps(some, _mm256_cmp_ps(v[2], v[3], _CMP_UNORD_Q));
    return _mm256_movemask_ps(some) != 0;
}
/* The bits of low where mask has them, those of high elsewhere. */
static INLINE vu32 vu32_join(uint32_t mask, vu32 low, vu32 high)
{
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32((int)mask)),
                           _mm256_and_si256(high, _mm256_set1_epi32((int)~mask)));
}
static INLINE vf32 vf32_from_s32(vu32 v)
{
    return _mm256_cvtepi32_ps(v);
}
static INLINE vu32 vf32_to_s32(vf32 v)
{
    return _mm256_cvtps_epi32(v);
}
static INLINE vu32 vf32_truncate_s32(vf32 v)
{
    return _mm256_cvttps_epi32(v);
}

/* ---- Narrow loads and stores ---- */

static INLINE vu32 vu32_from_u8(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
static INLINE vu32 vu32_from_s8(const void *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
static INLINE vu32 vu32_from_u16(const void *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}
static INLINE __m128i narrow_u16(vu32 v) /* lanes below 2^16 */
{
    return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
static INLINE void vu32_store_u16(void *p, vu32 v)
{
    _mm_storeu_si128(p, narrow_u16(v));
}
static INLINE void vu32_store_u8(void *p, vu32 v)
{
    __m128i half = narrow_u16(v);
    _mm_storel_epi64(p, _mm_packus_epi16(half, half));
}
/* Four vectors of bytes. Packing works within halves of 128 bits; the last step puts them in order.
 */
static INLINE void vu32_store_u8_x4(void *p, const vu32 v[4])
{
    __m256i low = _mm256_packus_epi32(v[0], v[1]), high = _mm256_packus_epi32(v[2], v[3]);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(p, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}

/* ---- Codes, by way of F16: VCVTPH2PS takes its subnormals whatever DAZ says ---- */

static INLINE vf32 vf32_from_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static INLINE vf32 vf32_from_e5m2(const void *p)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(p)), 8));
}

/* The exponent's bias is 8 below F16's, so the number is 2^8 times that F16. Of the sign-extended
 * code one sign too many is in the way after the shift. A NaN's 0x3f80 becomes 0x7e00. */
static INLINE vf32 vf32_from_e4m3fn(const void *p)
{
    __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    __m128i nan = _mm_set1_epi16(0x3f80);
    __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(shifted, nan), nan);
    __m128i f16 = _mm_and_si128(shifted, _mm_set1_epi16((short)0xbfff));
    f16 = _mm_xor_si128(f16, _mm_and_si128(is_nan, _mm_set1_epi16(0x3f80 ^ 0x7e00)));
    return _mm256_mul_ps(_mm256_cvtph_ps(f16), _mm256_set1_ps(0x1p8f));
}

static INLINE vf32 vf32_from_e2m1fn(const void *p)
{
    __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(p));
    __m128i sign = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(8)), 12);
    __m128i rest = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(7)), 9);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, rest)), _mm256_set1_ps(0x1p14f));
}

/* 2 * VL codes */
static INLINE void vf32_from_f16_x2(__m256i f16, vf32 to[2])
{
    to[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(f16));
    to[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1));
}
static INLINE void vf32_from_e4m3fn_x2(const void *p, vf32 to[2])
{
    __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
    __m256i nan = _mm256_set1_epi16(0x3f80);
    __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, nan), nan);
    __m256i f16 = _mm256_and_si256(shifted, _mm256_set1_epi16((short)0xbfff));
    f16 = _mm256_xor_si256(f16, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x3f80 ^ 0x7e00)));
    vf32_from_f16_x2(f16, to);
    to[0] = _mm256_mul_ps(to[0], _mm256_set1_ps(0x1p8f));
    to[1] = _mm256_mul_ps(to[1], _mm256_set1_ps(0x1p8f));
}
static INLINE void vf32_from_e5m2_x2(const void *p, vf32 to[2])
{
    vf32_from_f16_x2(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 8), to);
}

/* ---- Packed codes (gemm_body.h): of 2 * VL bytes-pairs the first of each, and the second ---- */

static INLINE __m256i first_bytes(__m256i pairs) /* in the upper half of each 16 bits */
{
    return _mm256_slli_epi16(pairs, 8);
}
/* 2^-8 of the number; a NaN becomes what its code stands for if it were a number. */
static INLINE void split_e4m3fn(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m256i x = _mm256_loadu_si256(codes), not_twice = _mm256_set1_epi16((short)0xbf80);
    vf32_from_f16_x2(_mm256_and_si256(_mm256_srai_epi16(first_bytes(x), 1), not_twice), even);
    vf32_from_f16_x2(_mm256_and_si256(_mm256_srai_epi16(x, 1), not_twice), odd);
}
static INLINE void split_e5m2(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m256i x = _mm256_loadu_si256(codes);
    vf32_from_f16_x2(first_bytes(x), even);
    vf32_from_f16_x2(_mm256_and_si256(x, _mm256_set1_epi16((short)0xff00)), odd);
}
static INLINE void vf32_from_s16_x2(__m256i v, vf32 to[2])
{
    to[0] = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v)));
    to[1] = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)));
}
static INLINE void split_s8(const void *codes, vf32 even[2], vf32 odd[2])
{
    __m256i x = _mm256_loadu_si256(codes);
    vf32_from_s16_x2(_mm256_srai_epi16(first_bytes(x), 8), even);
    vf32_from_s16_x2(_mm256_srai_epi16(x, 8), odd);
}
/* 16 bytes of each of 2 * VL rows, from `at` on, to 8 vectors: of each 2 bytes all rows'. */
static INLINE void turn_pairs(const char *const row[2 * VL], size_t at, vu32 to[8])
{
    __m256i a[8], b[8], c[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_set_m128i(_mm_loadu_si128((const void *)(row[8 + i] + at)),
                                _mm_loadu_si128((const void *)(row[i] + at)));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        c[i] = _mm256_unpacklo_epi32(b[i], b[i + 2]);
        c[i + 1] = _mm256_unpackhi_epi32(b[i], b[i + 2]);
        c[i + 2] = _mm256_unpacklo_epi32(b[i + 1], b[i + 3]);
        c[i + 3] = _mm256_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        to[2 * i] = _mm256_unpacklo_epi64(c[i], c[4 + i]);
        to[2 * i + 1] = _mm256_unpackhi_epi64(c[i], c[4 + i]);
    }
}
/* Not 0 where one of the bytes is E4M3FN's NaN. */
static INLINE uint64_t e4m3fn_nans(vu32 codes)
{
    __m256i all = _mm256_set1_epi8(-1), sign = _mm256_set1_epi8((char)0x80);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_or_si256(codes, sign), all));
}

/* rows[i] lane j <-> rows[j] lane i */
static INLINE void vu32_transpose(vu32 r[VL])
{
    vu32 a[VL], b[VL];

#pragma GCC unroll 8
    for (int i = 0; i < VL; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < VL; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

#endif
