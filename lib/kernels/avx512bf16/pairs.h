/* Words for pairs of BF16: 4 * VL codes decoded at once, in lanes of 16 bits.
 *
 * FP8 goes by tables of the 128 positive codes, for the upper and the lower byte of a number
 * (VPERMI2B). Other types go by way of f32, of which BF16 is the upper half. */
#ifndef OCTET_KERNELS_AVX512BF16_PAIRS_H
#define OCTET_KERNELS_AVX512BF16_PAIRS_H

static const uint16_t bf16_of_e4m3fn[128] = {
    0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x3c80, 0x3c90, 0x3ca0, 0x3cb0,
    0x3cc0, 0x3cd0, 0x3ce0, 0x3cf0, 0x3d00, 0x3d10, 0x3d20, 0x3d30, 0x3d40, 0x3d50, 0x3d60, 0x3d70,
    0x3d80, 0x3d90, 0x3da0, 0x3db0, 0x3dc0, 0x3dd0, 0x3de0, 0x3df0, 0x3e00, 0x3e10, 0x3e20, 0x3e30,
    0x3e40, 0x3e50, 0x3e60, 0x3e70, 0x3e80, 0x3e90, 0x3ea0, 0x3eb0, 0x3ec0, 0x3ed0, 0x3ee0, 0x3ef0,
    0x3f00, 0x3f10, 0x3f20, 0x3f30, 0x3f40, 0x3f50, 0x3f60, 0x3f70, 0x3f80, 0x3f90, 0x3fa0, 0x3fb0,
    0x3fc0, 0x3fd0, 0x3fe0, 0x3ff0, 0x4000, 0x4010, 0x4020, 0x4030, 0x4040, 0x4050, 0x4060, 0x4070,
    0x4080, 0x4090, 0x40a0, 0x40b0, 0x40c0, 0x40d0, 0x40e0, 0x40f0, 0x4100, 0x4110, 0x4120, 0x4130,
    0x4140, 0x4150, 0x4160, 0x4170, 0x4180, 0x4190, 0x41a0, 0x41b0, 0x41c0, 0x41d0, 0x41e0, 0x41f0,
    0x4200, 0x4210, 0x4220, 0x4230, 0x4240, 0x4250, 0x4260, 0x4270, 0x4280, 0x4290, 0x42a0, 0x42b0,
    0x42c0, 0x42d0, 0x42e0, 0x42f0, 0x4300, 0x4310, 0x4320, 0x4330, 0x4340, 0x4350, 0x4360, 0x4370,
    0x4380, 0x4390, 0x43a0, 0x43b0, 0x43c0, 0x43d0, 0x43e0, 0x7fc0,
};
static const uint16_t bf16_of_e5m2[128] = {
    0x0000, 0x3780, 0x3800, 0x3840, 0x3880, 0x38a0, 0x38c0, 0x38e0, 0x3900, 0x3920, 0x3940, 0x3960,
    0x3980, 0x39a0, 0x39c0, 0x39e0, 0x3a00, 0x3a20, 0x3a40, 0x3a60, 0x3a80, 0x3aa0, 0x3ac0, 0x3ae0,
    0x3b00, 0x3b20, 0x3b40, 0x3b60, 0x3b80, 0x3ba0, 0x3bc0, 0x3be0, 0x3c00, 0x3c20, 0x3c40, 0x3c60,
    0x3c80, 0x3ca0, 0x3cc0, 0x3ce0, 0x3d00, 0x3d20, 0x3d40, 0x3d60, 0x3d80, 0x3da0, 0x3dc0, 0x3de0,
    0x3e00, 0x3e20, 0x3e40, 0x3e60, 0x3e80, 0x3ea0, 0x3ec0, 0x3ee0, 0x3f00, 0x3f20, 0x3f40, 0x3f60,
    0x3f80, 0x3fa0, 0x3fc0, 0x3fe0, 0x4000, 0x4020, 0x4040, 0x4060, 0x4080, 0x40a0, 0x40c0, 0x40e0,
    0x4100, 0x4120, 0x4140, 0x4160, 0x4180, 0x41a0, 0x41c0, 0x41e0, 0x4200, 0x4220, 0x4240, 0x4260,
    0x4280, 0x42a0, 0x42c0, 0x42e0, 0x4300, 0x4320, 0x4340, 0x4360, 0x4380, 0x43a0, 0x43c0, 0x43e0,
    0x4400, 0x4420, 0x4440, 0x4460, 0x4480, 0x44a0, 0x44c0, 0x44e0, 0x4500, 0x4520, 0x4540, 0x4560,
    0x4580, 0x45a0, 0x45c0, 0x45e0, 0x4600, 0x4620, 0x4640, 0x4660, 0x4680, 0x46a0, 0x46c0, 0x46e0,
    0x4700, 0x4720, 0x4740, 0x4760, 0x7f80, 0x7fe0, 0x7fc0, 0x7fe0,
};

/* Half of a table's bytes: the lower of each number, or the upper. */
static INLINE __m512i table_bytes(const uint16_t numbers[64], bool upper)
{
    __m512i a = _mm512_loadu_si512(numbers), b = _mm512_loadu_si512(numbers + 32);

    a = upper ? _mm512_srli_epi16(a, 8) : a, b = upper ? _mm512_srli_epi16(b, 8) : b;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                              _mm512_cvtepi16_epi8(b), 1);
}

/* 64 codes, of each quarter of 128 bits the first 8 to first, the others to second. */
static INLINE void bf16_lookup(const uint16_t table[128], __m512i codes, vu32 *first, vu32 *second)
{
    __m512i low =
        _mm512_permutex2var_epi8(table_bytes(table, false), codes, table_bytes(table + 64, false));
    __m512i high =
        _mm512_permutex2var_epi8(table_bytes(table, true), codes, table_bytes(table + 64, true));
    enum { HIGH_OR_SIGN = 0xf8 }; /* a | (b & c) */
    high = _mm512_ternarylogic_epi64(high, codes, _mm512_set1_epi8((char)0x80), HIGH_OR_SIGN);
    *first = _mm512_unpacklo_epi8(low, high);
    *second = _mm512_unpackhi_epi8(low, high);
}

static INLINE void fp8_lookup(enum octet_dtype dtype, __m512i codes, vu32 to[2])
{
    bf16_lookup(dtype == OCTET_DTYPE_F8_E4M3FN ? bf16_of_e4m3fn : bf16_of_e5m2, codes, &to[0],
                &to[1]);
}

static INLINE bool is_fp8(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F8_E4M3FN || dtype == OCTET_DTYPE_F8_E5M2;
}

/* VL pairs of codes of other types, from f32. */
static INLINE vu32 pairs_by_f32(enum octet_dtype dtype, const void *codes)
{
    const char *p = codes;

    if (dtype == OCTET_DTYPE_BF16)
        return vu32_load(codes);
    vu32 first = vu32_shr(vf32_bits(load(dtype, p)), 16);
    vu32 second = vu32_shr(vf32_bits(load(dtype, p + VL * element_bytes(dtype))), 16);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)),
                              _mm512_cvtepi32_epi16(second), 1);
}

/* Of 4 * VL codes in a row, each two a pair. */
static INLINE void adjacent_pairs(enum octet_dtype dtype, const void *codes, vu32 to[2])
{
    const size_t half = 2 * VL * element_bytes(dtype);

    if (is_fp8(dtype)) {
        __m512i quarters = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
        fp8_lookup(dtype, _mm512_permutexvar_epi64(quarters, _mm512_loadu_si512(codes)), to);
    } else {
        to[0] = pairs_by_f32(dtype, codes);
        to[1] = pairs_by_f32(dtype, (const char *)codes + half);
    }
}

/* Of VL codes each, from two rows. */
static INLINE vu32 interleaved_pairs(enum octet_dtype dtype, const void *even, const void *odd)
{
    if (is_fp8(dtype)) {
        __m128i e = _mm_loadu_si128(even), o = _mm_loadu_si128(odd);
        __m512i codes = _mm512_castsi256_si512(
            _mm256_set_m128i(_mm_unpackhi_epi8(e, o), _mm_unpacklo_epi8(e, o)));
        vu32 to[2];
        fp8_lookup(dtype,
                   _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes), to);
        return to[0];
    }
    vu32 low = vu32_shr(vf32_bits(load(dtype, even)), 16);
    return vu32_or(vu32_and(vf32_bits(load(dtype, odd)), vu32_set1(0xffff0000u)), low);
}

/* Of 2 * VL codes each. */
static INLINE void interleaved_pairs_x2(enum octet_dtype dtype, const char *even, const char *odd,
                                        vu32 to[2])
{
    static const uint8_t order[64] = {
        /* for fp8_lookup: columns 4 q ... and 16 + 4 q ... */
        0,  32, 1,  33, 2,  34, 3,  35, 16, 48, 17, 49, 18, 50, 19, 51, 4,  36, 5,  37, 6,  38,
        7,  39, 20, 52, 21, 53, 22, 54, 23, 55, 8,  40, 9,  41, 10, 42, 11, 43, 24, 56, 25, 57,
        26, 58, 27, 59, 12, 44, 13, 45, 14, 46, 15, 47, 28, 60, 29, 61, 30, 62, 31, 63};
    const size_t half = VL * element_bytes(dtype);

    if (is_fp8(dtype)) {
        __m512i both =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)even)),
                               _mm256_loadu_si256((const void *)odd), 1);
        fp8_lookup(dtype, _mm512_permutexvar_epi8(_mm512_loadu_si512(order), both), to);
    } else {
        to[0] = interleaved_pairs(dtype, even, odd);
        to[1] = interleaved_pairs(dtype, even + half, odd + half);
    }
}

#endif
