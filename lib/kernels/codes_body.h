/* Codes <-> f32 over a set's vector words: what lib/dtypes defines, VL numbers at a time. Included
 * by each vector set's kernels.c after its simd.h. */

static INLINE vf32 load_e8m0fnu(const void *p)
{
    vu32 code = vu32_from_u8(p), bits = vu32_shl(code, 23);
    bits = vu32_select(vu32_above(code, vu32_set1(0)), bits, vu32_set1(0x400000u));
    return vu32_float(vu32_select(vu32_above(code, vu32_set1(0xfe)), vu32_set1(OCT_F32_NAN), bits));
}

static INLINE vf32 load_s4(const void *p)
{
    vu32 eight = vu32_set1(8), code = vu32_and(vu32_from_u8(p), vu32_set1(0xf));
    /* (code ^ 8) - 8 */
    vu32 flipped = vu32_sub(vu32_add(code, eight), vu32_shl(vu32_and(code, eight), 1));
    return vf32_from_s32(vu32_sub(flipped, eight));
}

static INLINE vf32 load(enum octet_dtype dtype, const void *p)
{
    switch (dtype) {
    case OCTET_DTYPE_BF16:
        return vu32_float(vu32_shl(vu32_from_u16(p), 16));
    case OCTET_DTYPE_F16:
        return vf32_from_f16(p);
    case OCTET_DTYPE_F8_E4M3FN:
        return vf32_from_e4m3fn(p);
    case OCTET_DTYPE_F8_E5M2:
        return vf32_from_e5m2(p);
    case OCTET_DTYPE_F4_E2M1FN:
        return vf32_from_e2m1fn(p);
    case OCTET_DTYPE_F8_E8M0FNU:
        return load_e8m0fnu(p);
    case OCTET_DTYPE_S8:
        return vf32_from_s32(vu32_from_s8(p));
    case OCTET_DTYPE_S4:
        return load_s4(p);
    case OCTET_DTYPE_U8:
        return vf32_from_s32(vu32_from_u8(p));
    case OCTET_DTYPE_BOOL:
        return vf32_from_s32(vu32_min(vu32_from_u8(p), vu32_set1(1)));
    case OCTET_DTYPE_S32:
        return vf32_from_s32(vu32_load(p));
    default:
        return vf32_load(p);
    }
}

/* oct_minifloat_encode, with a floating-point addition that rounds: |x| + magic keeps in its low
 * bits how many of the type's steps |x| has, where magic is 2^23 such steps. Steps are those of
 * |x|'s binade, or of the lowest one for what is below. That is where the floating-point
 * environment comes in. */
static INLINE vu32 minifloat_code(struct oct_minifloat type, uint32_t ceiling, vf32 x)
{
    const uint32_t least = (type.bias + 1) << 23, exponents = 0x7f800000u;
    const uint32_t up = (uint32_t)type.shift << 23;
    vu32 bits = vf32_bits(x), magnitude = vu32_and(bits, vu32_set1(0x7fffffffu));
    /* What would become the ceiling or more stops at its value: NaN and Inf too. */
    vu32 limit = vu32_set1((ceiling << type.shift) + (type.bias << 23));
    vu32 a = vu32_min(magnitude, limit);
    vu32 binade = vu32_max(vu32_and(a, vu32_set1(exponents)), vu32_set1(least));
    vf32 sum = vf32_add(vu32_float(a), vu32_float(vu32_add(binade, vu32_set1(up))));
    /* steps + (binade - least >> shift), of which the constants are taken together */
    vu32 rest = vu32_sub(vu32_sub(binade, vu32_shr(binade, type.shift)),
                         vu32_set1(0u - up - (least >> type.shift)));
    vu32 code = vu32_sub(vf32_bits(sum), rest);
    code = vu32_select(vu32_above(magnitude, vu32_set1(exponents)), vu32_set1(type.nan), code);
    vu32 sign = vu32_shr(bits, type.sign_shift);
    return vu32_or(code, vu32_and(sign, vu32_set1(1u << (31 - type.sign_shift))));
}

/* The same where no lane is NaN and types are of a byte, in fewer steps. The number of steps, and
 * what the binade adds to it, are only right in the code's own bits, which the sign joins last.
 * magic, a bit more than a power of two, takes the lowest binade's share of the code off, modulo
 * 256; since that is even, ties go where they did. via_bf16 rounds to BF16 first, in the same
 * manner. */
static INLINE vu32 number_code(struct oct_minifloat type, uint32_t ceiling, bool via_bf16, vf32 x)
{
    const uint32_t least = (type.bias + 1) << 23, exponents = 0x7f800000u;
    const uint32_t share = (0u - (least >> type.shift)) & 0xff;
    const uint32_t code_bits = (1u << (31 - type.sign_shift)) - 1;
    const float limit = oct_f32_from_bits((ceiling << type.shift) + (type.bias << 23));
    const float magic = oct_f32_from_bits(((127 + (uint32_t)type.shift) << 23) + share);
#ifdef VF32_HAS_RANGE /* of numbers with their signs, which saves taking the sign off */
    const uint32_t kept = exponents | 0x80000000u;
    vf32 a = vf32_at_most(x, limit);
#else
    const uint32_t kept = exponents;
    vf32 a = vu32_float(
        vu32_min(vu32_and(vf32_bits(x), vu32_set1(0x7fffffffu)), vf32_bits(vf32_set1(limit))));
#endif

    if (via_bf16) {
        vf32 binade = vu32_float(vu32_and(vf32_bits(a), vu32_set1(kept)));
        vf32 sum = vf32_fma_loose(binade, vf32_set1(0x1p16f), a);
        a = vf32_fma_loose(binade, vf32_set1(-0x1p16f), sum);
    }
    vu32 bits = vu32_and(vf32_bits(a), vu32_set1(kept));
#ifdef VF32_HAS_RANGE
    bits = vf32_bits(vf32_at_least(vu32_float(bits), oct_f32_from_bits(least)));
#else
    bits = vu32_max(bits, vu32_set1(least));
#endif
    vf32 sum = vf32_fma_loose(vu32_float(bits), vf32_set1(magic), a);
    vu32 code = vu32_add(vf32_bits(sum), vu32_shr(bits, type.shift));
    vu32 sign = vu32_shr(vf32_bits(x), type.sign_shift);
    return vu32_join(code_bits, code, sign);
}

static INLINE vu32 bf16_code(vf32 x)
{
    vu32 bits = vf32_bits(x), a = vu32_and(bits, vu32_set1(0x7fffffffu));
    vu32 odd = vu32_and(vu32_shr(bits, 16), vu32_set1(1));
    vu32 code = vu32_shr(vu32_add(bits, vu32_add(odd, vu32_set1(0x7fff))), 16);
    vu32 nan = vu32_or(vu32_shl(vu32_shr(bits, 31), 15), vu32_set1(0x7fc0));
    return vu32_select(vu32_above(a, vu32_set1(0x7f800000u)), nan, code);
}

static INLINE vu32 e8m0fnu_code(vf32 x)
{
    vu32 bits = vf32_bits(x), nan = vu32_set1(0xff);
    vu32 code = vu32_min(vu32_shr(vu32_add(bits, vu32_set1(0x400000u)), 23), nan);
    code = vu32_select(vu32_above(vu32_set1(0x600000u), bits), vu32_set1(0), code);
    return vu32_select(vu32_above(vu32_set1(0), bits), nan, code); /* less than 0: a sign */
}

/* Clipped before it is rounded, which is the same, and keeps the conversion in range. */
static INLINE vu32 integer_code(bool rounds, float low, float high, bool numbers, vf32 x)
{
    vf32 clipped = vf32_max(vf32_min(x, vf32_set1(high)), vf32_set1(low));
    vu32 code = rounds ? vf32_to_s32(clipped) : vf32_truncate_s32(clipped);
    vu32 a = vu32_and(vf32_bits(x), vu32_set1(0x7fffffffu));
    return numbers ? code : vu32_select(vu32_above(a, vu32_set1(0x7f800000u)), vu32_set1(0), code);
}

static INLINE vu32 s32_code(vf32 x)
{
    /* 2147483520 is the largest f32 below 2^31; at 2^31 and above it is INT32_MAX. */
    vu32 above = vu32_set1(oct_f32_bits(2147483520.0f)), bits = vf32_bits(x);
    vu32 nan = vu32_and(bits, vu32_set1(0x7fffffffu));
    vu32 code = integer_code(false, -0x1p31f, 2147483520.0f, true, x);
    code = vu32_select(vu32_above(bits, above), vu32_set1(INT32_MAX), code);
    return vu32_select(vu32_above(nan, vu32_set1(0x7f800000u)), vu32_set1(0), code);
}

static INLINE vu32 cast_code(enum octet_dtype dtype, vf32 x)
{
    switch (dtype) {
    case OCTET_DTYPE_BF16:
        return bf16_code(x);
    case OCTET_DTYPE_F16:
        return minifloat_code(OCT_F16, OCT_F16.ceiling_cast, x);
    case OCTET_DTYPE_F8_E4M3FN:
        return minifloat_code(OCT_E4M3FN, OCT_E4M3FN.ceiling_cast, x);
    case OCTET_DTYPE_F8_E5M2:
        return minifloat_code(OCT_E5M2, OCT_E5M2.ceiling_cast, x);
    case OCTET_DTYPE_F4_E2M1FN:
        return minifloat_code(OCT_E2M1FN, OCT_E2M1FN.ceiling_cast, x);
    case OCTET_DTYPE_F8_E8M0FNU:
        return e8m0fnu_code(x);
    case OCTET_DTYPE_S8:
        return vu32_and(integer_code(false, -128, 127, false, x), vu32_set1(0xff));
    case OCTET_DTYPE_S4:
        return vu32_and(integer_code(false, -8, 7, false, x), vu32_set1(0xff));
    case OCTET_DTYPE_S32:
        return s32_code(x);
    default:
        return vf32_bits(x);
    }
}

static INLINE vu32 saturate_minifloat(struct oct_minifloat type, bool bf16, bool numbers, vf32 x)
{
    if (numbers)
        return number_code(type, type.ceiling_saturate, bf16, x);
    if (bf16)
        x = vu32_float(vu32_shl(bf16_code(x), 16));
    return minifloat_code(type, type.ceiling_saturate, x);
}

/* source: BF16 rounds x to that first. numbers: no lane is NaN. */
static INLINE vu32 saturate_code(enum octet_dtype dtype, enum octet_dtype source, bool numbers,
                                 vf32 x)
{
    const bool bf16 = source == OCTET_DTYPE_BF16;

    if (bf16 && (dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4))
        x = vu32_float(vu32_shl(bf16_code(x), 16));
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return saturate_minifloat(OCT_E4M3FN, bf16, numbers, x);
    case OCTET_DTYPE_F8_E5M2:
        return saturate_minifloat(OCT_E5M2, bf16, numbers, x);
    case OCTET_DTYPE_F4_E2M1FN:
        return saturate_minifloat(OCT_E2M1FN, bf16, numbers, x);
    case OCTET_DTYPE_S8:
        return vu32_and(integer_code(true, -128, 127, numbers, x), vu32_set1(0xff));
    case OCTET_DTYPE_S4:
        return vu32_and(integer_code(true, -8, 7, numbers, x), vu32_set1(0xff));
    default:
        return cast_code(dtype, x);
    }
}

/* The low bytes of each lane. */
static INLINE void store(size_t bytes, void *p, vu32 code)
{
    if (bytes == 1)
        vu32_store_u8(p, code);
    else if (bytes == 2)
        vu32_store_u16(p, code);
    else
        vu32_store(p, code);
}
