/* The loops of kernels.h over arrays, written over a set's vector words. Included by each set's
 * kernels.c after its simd.h.
 *
 * A loop's remainder goes through a buffer of one vector, so that nothing outside an array is read
 * or written, and every number takes the same way. */

#define F32_ABS 0x7fffffffu
#define F32_INF 0x7f800000u

static INLINE vmask is_nan(vu32 bits)
{
    return vu32_above(vu32_and(bits, vu32_set1(F32_ABS)), vu32_set1(F32_INF));
}

static INLINE vf32 canonical(vf32 x)
{
    vu32 bits = vf32_bits(x);
    return vu32_float(vu32_select(is_nan(bits), vu32_set1(OCT_F32_NAN), bits));
}

/* To the nearest BF16, as an f32; a quiet NaN stays one, with its sign. */
static INLINE vf32 round_bf16(vf32 x)
{
    vu32 bits = vf32_bits(x), odd = vu32_and(vu32_shr(bits, 16), vu32_set1(1));
    vu32 up = vu32_add(bits, vu32_add(odd, vu32_set1(0x7fff)));
    return vu32_float(vu32_and(vu32_select(is_nan(bits), bits, up), vu32_set1(0xffff0000u)));
}

static INLINE vf32 round_to(enum octet_dtype dtype, vf32 x)
{
    return dtype == OCTET_DTYPE_BF16 ? round_bf16(x) : x;
}

/* x is already of that type (F32 or BF16) and its NaN 0x7fc00000. */
static INLINE void store_rounded(enum octet_dtype dtype, void *p, vf32 x)
{
    if (dtype == OCTET_DTYPE_BF16)
        store(2, p, vu32_shr(vf32_bits(x), 16));
    else
        vf32_store(p, x);
}

/* ---- decode ---- */

static INLINE void decode_loop(enum octet_dtype dtype, size_t n, const void *codes, float *values)
{
    const size_t bytes = element_bytes(dtype);
    const char *p = codes;
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf32_store(values + i, load(dtype, p + i * bytes));
    if (i < n) {
        char in[VL * 4] = {0};
        float out[VL];
        memcpy(in, p + i * bytes, (n - i) * bytes);
        vf32_store(out, load(dtype, in));
        memcpy(values + i, out, (n - i) * sizeof(float));
    }
}

static void decode_s64(size_t n, const void *codes, float *values)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        memcpy(&v, (const char *)codes + i * sizeof v, sizeof v);
        values[i] = (float)v;
    }
}

#define DECODED(X) /* all types but F32, which is copied, and S64 */                               \
    X(BF16)                                                                                        \
    X(F16)                                                                                         \
    X(F8_E4M3FN)                                                                                   \
    X(F8_E5M2)                                                                                     \
    X(F4_E2M1FN)                                                                                   \
    X(F8_E8M0FNU)                                                                                  \
    X(S8)                                                                                          \
    X(S4)                                                                                          \
    X(U8)                                                                                          \
    X(BOOL)                                                                                        \
    X(S32)

static void decode(enum octet_dtype dtype, size_t n, const void *codes, float *values)
{
    switch (dtype) {
#define DECODE(T)                                                                                  \
    case OCTET_DTYPE_##T:                                                                          \
        decode_loop(OCTET_DTYPE_##T, n, codes, values);                                            \
        break;
        DECODED(DECODE)
#undef DECODE
    case OCTET_DTYPE_S64:
        decode_s64(n, codes, values);
        break;
    default:
        if (n)
            memcpy(values, codes, n * sizeof(float));
    }
}

/* ---- cast, saturate ---- */

#define CAST_TO(X)                                                                                 \
    X(BF16)                                                                                        \
    X(F16)                                                                                         \
    X(F8_E4M3FN)                                                                                   \
    X(F8_E5M2)                                                                                     \
    X(F4_E2M1FN)                                                                                   \
    X(F8_E8M0FNU)                                                                                  \
    X(S8)                                                                                          \
    X(S4)                                                                                          \
    X(S32)
#define SATURATE_TO(X)                                                                             \
    X(F8_E4M3FN)                                                                                   \
    X(F8_E5M2)                                                                                     \
    X(F4_E2M1FN)                                                                                   \
    X(S8)                                                                                          \
    X(S4)

static INLINE void encode_loop(enum octet_dtype dtype, bool saturates, size_t n,
                               const float *values, void *codes)
{
    const size_t bytes = element_bytes(dtype);
    char *p = codes;
    size_t i = 0;

    for (; i + VL <= n; i += VL) {
        vf32 x = vf32_load(values + i);
        store(bytes, p + i * bytes,
              saturates ? saturate_code(dtype, OCTET_DTYPE_F32, false, x) : cast_code(dtype, x));
    }
    if (i < n) {
        float in[VL] = {0};
        char out[VL * 4];
        memcpy(in, values + i, (n - i) * sizeof(float));
        vf32 x = vf32_load(in);
        store(bytes, out,
              saturates ? saturate_code(dtype, OCTET_DTYPE_F32, false, x) : cast_code(dtype, x));
        memcpy(p + i * bytes, out, (n - i) * bytes);
    }
}

static void cast(enum octet_dtype dtype, size_t n, const float *values, void *codes)
{
    switch (dtype) {
#define CAST(T)                                                                                    \
    case OCTET_DTYPE_##T:                                                                          \
        encode_loop(OCTET_DTYPE_##T, false, n, values, codes);                                     \
        break;
        CAST_TO(CAST)
#undef CAST
    default:
        if (n)
            memcpy(codes, values, n * sizeof(float));
    }
}

static void saturate(enum octet_dtype dtype, size_t n, const float *values, void *codes)
{
    switch (dtype) {
#define SATURATE(T)                                                                                \
    case OCTET_DTYPE_##T:                                                                          \
        encode_loop(OCTET_DTYPE_##T, true, n, values, codes);                                      \
        break;
        SATURATE_TO(SATURATE)
#undef SATURATE
    default:
        break;
    }
}

/* ---- amax: magnitudes are compared as integers, in which every NaN is above Inf ---- */

static INLINE vu32 magnitude(enum octet_dtype dtype, const void *x)
{
    return vu32_and(vf32_bits(load(dtype, x)), vu32_set1(F32_ABS));
}

static INLINE float amax_loop(enum octet_dtype dtype, size_t n, const void *x)
{
    enum { WAYS = 4 }; /* independent maxima, for the latency of loads and compares */
    const size_t bytes = element_bytes(dtype);
    const char *p = x;
    vu32 most[WAYS];
    uint32_t lanes[VL], result = 0;
    size_t i = 0;

    for (int w = 0; w < WAYS; w++)
        most[w] = vu32_set1(0);
    for (; i + WAYS * VL <= n; i += WAYS * VL)
#pragma GCC unroll 4
        for (int w = 0; w < WAYS; w++)
            most[w] = vu32_max(most[w], magnitude(dtype, p + (i + (size_t)w * VL) * bytes));
    for (; i < n; i += VL) {
        char in[VL * 4] = {0};
        memcpy(in, p + i * bytes, (n - i < VL ? n - i : VL) * bytes);
        most[0] = vu32_max(most[0], magnitude(dtype, in));
    }
    most[0] = vu32_max(vu32_max(most[0], most[1]), vu32_max(most[2], most[3]));
    vu32_store(lanes, most[0]);
    for (i = 0; i < VL; i++)
        result = lanes[i] > result ? lanes[i] : result;
    return oct_f32_from_bits(result > F32_INF ? OCT_F32_NAN : result);
}

static float amax(enum octet_dtype dtype, size_t n, const void *x)
{
    return dtype == OCTET_DTYPE_BF16 ? amax_loop(OCTET_DTYPE_BF16, n, x)
                                     : amax_loop(OCTET_DTYPE_F32, n, x);
}

/* Asks for what lies ahead of the next `bytes`: one stream from memory beside another from cache
 * is more than a CPU's own prefetching keeps up with. */
static INLINE void look_ahead(const char *x, size_t bytes)
{
    enum { AHEAD = 2048, LINE = 64 };

    for (size_t line = 0; line < bytes; line += LINE)
        __builtin_prefetch(x + AHEAD + line);
}

static INLINE vf32 more(enum octet_dtype dtype, const void *x, const float *most)
{
    return canonical(vu32_float(vu32_max(vf32_bits(vf32_load(most)), magnitude(dtype, x))));
}

static INLINE void amax_columns_loop(enum octet_dtype dtype, size_t n, const void *x, float *most)
{
    const size_t bytes = element_bytes(dtype);
    const char *p = x;
    size_t i = 0;

    for (; i + 4 * VL <= n; i += 4 * VL) {
        look_ahead(p + i * bytes, 4 * VL * bytes);
#pragma GCC unroll 4
        for (size_t v = i; v < i + 4 * VL; v += VL)
            vf32_store(most + v, more(dtype, p + v * bytes, most + v));
    }
    for (; i + VL <= n; i += VL)
        vf32_store(most + i, more(dtype, p + i * bytes, most + i));
    if (i < n) {
        char in[VL * 4] = {0};
        float out[VL] = {0};
        memcpy(in, p + i * bytes, (n - i) * bytes);
        memcpy(out, most + i, (n - i) * sizeof(float));
        vf32_store(out, more(dtype, in, out));
        memcpy(most + i, out, (n - i) * sizeof(float));
    }
}

static void amax_columns(enum octet_dtype dtype, size_t n, const void *x, float *most)
{
    if (dtype == OCTET_DTYPE_BF16)
        amax_columns_loop(OCTET_DTYPE_BF16, n, x, most);
    else
        amax_columns_loop(OCTET_DTYPE_F32, n, x, most);
}

/* ---- quantize ---- */

/* The code shows a NaN's sign. Which NaN a CPU keeps of two depends on the order in which a
 * compiler names them, and the sign of the NaN that Inf * 0 makes on the CPU: it is x, else the
 * factor, else minus. */
static __attribute__((noinline, cold)) vf32 product_with_nan(vf32 value, vf32 inverse)
{
    vf32 product = vf32_mul(value, inverse);
    vu32 made = vu32_select(is_nan(vf32_bits(product)), vu32_set1(0xffc00000u), vf32_bits(product));
    vu32 given = vu32_select(is_nan(vf32_bits(inverse)), vf32_bits(inverse), made);
    return vu32_float(vu32_select(is_nan(vf32_bits(value)), vf32_bits(value), given));
}

static INLINE vu32 quantized(enum octet_dtype dtype, enum octet_dtype qtype, const void *x,
                             vf32 inverse)
{
    vf32 value = load(dtype, x), product = vf32_mul_loose(value, inverse); /* 2^-126 has code 0 */

    if (__builtin_expect(vf32_any_nan(product), 0))
        return saturate_code(qtype, dtype, false, product_with_nan(value, inverse));
    return saturate_code(qtype, dtype, true, product);
}

/* Four vectors of codes, with one look for NaN. */
static INLINE void quantize_four(enum octet_dtype dtype, enum octet_dtype qtype, const char *x,
                                 const float *inverse, size_t stride, vf32 factor, void *codes)
{
    const size_t bytes = element_bytes(dtype);
    vf32 product[4];
    vu32 four[4];

#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
        product[v] = vf32_mul_loose(load(dtype, x + v * VL * bytes),
                                    stride ? vf32_load(inverse + v * VL) : factor);
    if (__builtin_expect(vf32_any_nan_x4(product), 0)) {
        for (size_t v = 0; v < 4; v++)
            four[v] = quantized(dtype, qtype, x + v * VL * bytes,
                                stride ? vf32_load(inverse + v * VL) : factor);
    } else {
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            four[v] = saturate_code(qtype, dtype, true, product[v]);
    }
    vu32_store_u8_x4(codes, four);
}

static INLINE void quantize_loop(enum octet_dtype dtype, enum octet_dtype qtype, size_t n,
                                 const void *x, const float *inverse, size_t stride, void *codes)
{
    const size_t bytes = element_bytes(dtype);
    const char *p = x;
    unsigned char *q = codes;
    vf32 factor = vf32_set1(n ? inverse[0] : 0);
    size_t i = 0;

    for (; i + 4 * VL <= n; i += 4 * VL) {
        if (stride)
            look_ahead(p + i * bytes, 4 * VL * bytes);
        quantize_four(dtype, qtype, p + i * bytes, inverse + i, stride, factor, q + i);
    }
    for (; i + VL <= n; i += VL) {
        if (stride)
            factor = vf32_load(inverse + i);
        store(1, q + i, quantized(dtype, qtype, p + i * bytes, factor));
    }
    if (i < n) {
        char in[VL * 4] = {0};
        float factors[VL] = {0};
        unsigned char out[VL];
        memcpy(in, p + i * bytes, (n - i) * bytes);
        if (stride) {
            memcpy(factors, inverse + i, (n - i) * sizeof(float));
            factor = vf32_load(factors);
        }
        store(1, out, quantized(dtype, qtype, in, factor));
        memcpy(q + i, out, n - i);
    }
}

static INLINE void quantize_from(enum octet_dtype dtype, enum octet_dtype qtype, size_t n,
                                 const void *x, const float *inverse, size_t stride, void *codes)
{
    switch (qtype) {
#define QUANTIZE(T)                                                                                \
    case OCTET_DTYPE_##T:                                                                          \
        if (stride)                                                                                \
            quantize_loop(dtype, OCTET_DTYPE_##T, n, x, inverse, 1, codes);                        \
        else                                                                                       \
            quantize_loop(dtype, OCTET_DTYPE_##T, n, x, inverse, 0, codes);                        \
        break;
        SATURATE_TO(QUANTIZE)
#undef QUANTIZE
    default:
        break;
    }
}

static void quantize(enum octet_dtype dtype, enum octet_dtype qtype, size_t n, const void *x,
                     const float *inverse, size_t stride, void *codes)
{
    if (dtype == OCTET_DTYPE_BF16)
        quantize_from(OCTET_DTYPE_BF16, qtype, n, x, inverse, stride, codes);
    else
        quantize_from(OCTET_DTYPE_F32, qtype, n, x, inverse, stride, codes);
}

/* ---- scale ---- */

static INLINE vf32 scaled(enum octet_dtype x_dtype, enum octet_dtype dtype, const void *x,
                          vf32 factor)
{
    return round_to(dtype, canonical(vf32_mul(load(x_dtype, x), factor)));
}

static INLINE void scale_loop(enum octet_dtype x_dtype, size_t n, const void *x,
                              const float *factors, size_t stride, enum octet_dtype dtype, void *y)
{
    const size_t bytes = element_bytes(x_dtype), y_bytes = element_bytes(dtype);
    const char *p = x;
    char *q = y;
    vf32 factor = vf32_set1(n ? factors[0] : 0);
    size_t i = 0;

    for (; i + VL <= n; i += VL) {
        if (stride)
            factor = vf32_load(factors + i);
        store_rounded(dtype, q + i * y_bytes, scaled(x_dtype, dtype, p + i * bytes, factor));
    }
    if (i < n) {
        char in[VL * 4] = {0}, out[VL * 4];
        float some[VL] = {0};
        memcpy(in, p + i * bytes, (n - i) * bytes);
        if (stride) {
            memcpy(some, factors + i, (n - i) * sizeof(float));
            factor = vf32_load(some);
        }
        store_rounded(dtype, out, scaled(x_dtype, dtype, in, factor));
        memcpy(q + i * y_bytes, out, (n - i) * y_bytes);
    }
}

static void scale_s64(size_t n, const void *x, const float *factors, size_t stride,
                      enum octet_dtype dtype, void *y)
{
    for (size_t i = 0; i < n; i++) {
        float value;
        decode_s64(1, (const char *)x + i * sizeof(int64_t), &value);
        scale_loop(OCTET_DTYPE_F32, 1, &value, factors + i * stride, 0, dtype,
                   (char *)y + i * element_bytes(dtype));
    }
}

static INLINE void scale_to(enum octet_dtype x_dtype, size_t n, const void *x, const float *factors,
                            size_t stride, enum octet_dtype dtype, void *y)
{
    switch (x_dtype) {
#define SCALE(T)                                                                                   \
    case OCTET_DTYPE_##T:                                                                          \
        scale_loop(OCTET_DTYPE_##T, n, x, factors, stride, dtype, y);                              \
        break;
        DECODED(SCALE)
#undef SCALE
    case OCTET_DTYPE_S64:
        scale_s64(n, x, factors, stride, dtype, y);
        break;
    default:
        scale_loop(OCTET_DTYPE_F32, n, x, factors, stride, dtype, y);
    }
}

static void scale(enum octet_dtype x_dtype, size_t n, const void *x, const float *factors,
                  size_t stride, enum octet_dtype dtype, void *y)
{
    if (dtype == OCTET_DTYPE_BF16)
        scale_to(x_dtype, n, x, factors, stride, OCTET_DTYPE_BF16, y);
    else
        scale_to(x_dtype, n, x, factors, stride, OCTET_DTYPE_F32, y);
}

/* ---- finish ---- */

struct finish_scales {
    const float *lhs, *rhs; /* NULL: none */
};

static INLINE vf32 finished(enum octet_dtype dtype, const struct finish_scales *scales, vf32 sum,
                            vf32 lhs, vf32 rhs)
{
    sum = round_to(dtype, sum);
    if (scales->lhs)
        sum = round_to(dtype, vf32_mul(sum, lhs));
    if (scales->rhs)
        sum = round_to(dtype, vf32_mul(sum, rhs));
    return canonical(sum);
}

static INLINE void finish_loop(size_t n, const float *sums, struct finish_scales scales,
                               size_t stride, enum octet_dtype dtype, void *y)
{
    const size_t bytes = element_bytes(dtype);
    char *q = y;
    vf32 lhs = vf32_set1(scales.lhs ? scales.lhs[0] : 0);
    vf32 rhs = vf32_set1(scales.rhs && n ? scales.rhs[0] : 0);
    size_t i = 0;

    stride = scales.rhs ? stride : 0;
    for (; i + VL <= n; i += VL) {
        if (stride)
            rhs = vf32_load(scales.rhs + i);
        store_rounded(dtype, q + i * bytes,
                      finished(dtype, &scales, vf32_load(sums + i), lhs, rhs));
    }
    if (i < n) {
        float in[VL] = {0}, some[VL] = {0};
        char out[VL * 4] = {0};
        memcpy(in, sums + i, (n - i) * sizeof(float));
        if (stride) {
            memcpy(some, scales.rhs + i, (n - i) * sizeof(float));
            rhs = vf32_load(some);
        }
        store_rounded(dtype, out, finished(dtype, &scales, vf32_load(in), lhs, rhs));
        memcpy(q + i * bytes, out, (n - i) * bytes);
    }
}

static void finish(size_t n, const float *sums, const float *lhs_scale, const float *rhs_scale,
                   size_t stride, enum octet_dtype dtype, void *y)
{
    struct finish_scales scales = {lhs_scale, rhs_scale};

    if (dtype == OCTET_DTYPE_BF16)
        finish_loop(n, sums, scales, stride, OCTET_DTYPE_BF16, y);
    else
        finish_loop(n, sums, scales, stride, OCTET_DTYPE_F32, y);
}

#define ELEMENTWISE_TABLE                                                                          \
    .decode = decode, .cast = cast, .saturate = saturate, .amax = amax,                            \
    .amax_columns = amax_columns, .quantize = quantize, .scale = scale, .finish = finish
