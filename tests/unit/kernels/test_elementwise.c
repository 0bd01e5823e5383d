/* The loops over arrays: every function of every set against reference.h, bit for bit.
 * What could break: a remainder that is skipped or runs over, a set whose rounding, NaN or zero
 * differs, a subnormal that meets DAZ on the way. Numbers are every code, samples of all f32
 * patterns, and what sits at ties and limits; lengths are around the vectors' own. */
#include "unit/kernels/fixture.h"

static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 251};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 251 };

#define TYPE_OF(name, text, bits) OCTET_DTYPE_##name,
static const enum octet_dtype all_types[] = {OCTET_DTYPES(TYPE_OF)};
enum { TYPES = sizeof all_types / sizeof all_types[0] };
static const enum octet_dtype cast_types[] = {
    OCTET_DTYPE_F32,        OCTET_DTYPE_BF16,      OCTET_DTYPE_F16, OCTET_DTYPE_F8_E4M3FN,
    OCTET_DTYPE_F8_E5M2,    OCTET_DTYPE_F4_E2M1FN, OCTET_DTYPE_S8,  OCTET_DTYPE_S4,
    OCTET_DTYPE_F8_E8M0FNU, OCTET_DTYPE_S32};
enum { CAST_TYPES = sizeof cast_types / sizeof cast_types[0] };
static const enum octet_dtype q_types[] = {OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E5M2,
                                           OCTET_DTYPE_F4_E2M1FN, OCTET_DTYPE_S8, OCTET_DTYPE_S4};
enum { Q_TYPES = sizeof q_types / sizeof q_types[0] };
static const enum octet_dtype floats[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};

#define EACH_SET(kernels)                                                                          \
    for (size_t set_ = 0; octet_kernel_set_name(set_); set_++)                                     \
        for (const struct oct_kernels *kernels = set_at(set_); kernels; kernels = NULL)

static const float special[] = {0.0f,
                                -0.0f,
                                1.0f,
                                -1.0f,
                                448,
                                464,
                                464.1f,
                                -465,
                                480,
                                57344,
                                61439,
                                61440,
                                65504,
                                65519,
                                65520,
                                0x1p-10f,
                                0x1.8p-10f,
                                0x1p-9f,
                                0x1p-6f,
                                0x1.ep-7f,
                                0x1p-17f,
                                0x1.8p-17f,
                                0x1p-16f,
                                0x1p-14f,
                                0x1p-24f,
                                0x1p-25f,
                                0.25f,
                                0.75f,
                                1.75f,
                                2.5f,
                                5,
                                6,
                                7,
                                0.5f,
                                1.5f,
                                -2.5f,
                                127.5f,
                                126.5f,
                                -128.5f,
                                -129.5f,
                                7.5f,
                                -8.5f,
                                INFINITY,
                                -INFINITY,
                                0x1p-126f,
                                0x1p127f,
                                0x1.fep127f,
                                0x1.ffp127f,
                                2147483520.0f,
                                2147483648.0f,
                                -2147483648.0f,
                                1e10f,
                                -1e10f,
                                0x1p-63f,
                                0x1.fffffep127f,
                                1e-20f};
enum { SPECIALS = sizeof special / sizeof special[0] };

/* Mostly near 1, partly any pattern at all, partly special. */
static float random_float(uint64_t *state)
{
    uint32_t r = random_next(state), kind = random_next(state) % 8;

    if (kind == 0)
        return float_of(r);
    if (kind == 1)
        return special[r % SPECIALS];
    if (kind == 2)
        return float_of((random_next(state) & 0x80000000u) | (r & 0x7fffff)); /* subnormal */
    return float_of((r & 0x807fffff) | (120 + (r >> 23) % 17) << 23);
}

static void fill_random(enum octet_dtype dtype, size_t n, void *data, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == OCTET_DTYPE_F32) {
            ((float *)data)[i] = random_float(state);
        } else if (dtype == OCTET_DTYPE_BF16) {
            ((uint16_t *)data)[i] = (uint16_t)(bits_of(random_float(state)) >> 16);
        } else {
            for (size_t b = 0; b < octet_dtype_bytes(dtype); b++)
                ((uint8_t *)data)[i * octet_dtype_bytes(dtype) + b] = (uint8_t)random_next(state);
        }
    }
}

static bool equal(float got, float want)
{
    return bits_of(got) == bits_of(want) || (isnan(exact(got)) && isnan(exact(want)));
}

static uint32_t code_at(enum octet_dtype dtype, const void *codes, size_t i)
{
    uint32_t code = 0;
    memcpy(&code, (const char *)codes + i * octet_dtype_bytes(dtype), octet_dtype_bytes(dtype));
    return code;
}

/* ---- decode, cast, saturate ---- */

START_TEST(all_codes_decode)
{
    EACH_SET(k)
    {
        for (int t = 0; t < TYPES; t++) {
            const size_t bytes = octet_dtype_bytes(all_types[t]);
            const size_t n = bytes == 1 ? 256 : 65536;
            struct fenced values = fenced_create(n * sizeof(float), 4);
            uint64_t state = 5;
            char *codes = malloc(n * bytes);
            for (size_t i = 0; i < n; i++)
                memcpy(codes + i * bytes, &(uint16_t){(uint16_t)i}, bytes < 2 ? 1 : 2);
            if (bytes > 2)
                fill_random(all_types[t], n, codes, &state);
            struct oct_float_env env = oct_float_env_enter();
            k->decode(all_types[t], n, codes, (float *)values.data);
            oct_float_env_leave(env);
            for (size_t i = 0; i < n; i++) {
                float got = ((float *)values.data)[i], want = ref_value(all_types[t], codes, i);
                if (!equal(got, want))
                    ck_abort_msg("%s: %s %x is %a, expected %a", k->name,
                                 octet_dtype_name(all_types[t]), code_at(all_types[t], codes, i),
                                 got, want);
            }
            free(codes);
            ck_assert(fenced_destroy(&values));
        }
    }
}
END_TEST

/* NaNs too have one decoding: that of lib/dtypes, on every set. */
START_TEST(sets_agree_on_nans)
{
    for (int t = 0; t < TYPES; t++) {
        const size_t n = octet_dtype_bytes(all_types[t]) == 1 ? 256 : 65536;
        if (octet_dtype_bytes(all_types[t]) > 2)
            continue;
        uint16_t *codes = malloc(n * 2);
        float *first = malloc(n * sizeof(float)), *values = malloc(n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            memcpy((char *)codes + i * octet_dtype_bytes(all_types[t]), &(uint16_t){(uint16_t)i},
                   octet_dtype_bytes(all_types[t]));
        oct_kernels_at(0)->decode(all_types[t], n, codes, first);
        EACH_SET(k)
        {
            k->decode(all_types[t], n, codes, values);
            ck_assert_msg(memcmp(first, values, n * sizeof(float)) == 0, "%s: %s", k->name,
                          octet_dtype_name(all_types[t]));
        }
        free(codes);
        free(first);
        free(values);
    }
}
END_TEST

static void check_encoding(const struct oct_kernels *k, enum octet_dtype dtype, bool saturates,
                           size_t n, const float *values)
{
    const size_t bytes = octet_dtype_bytes(dtype);
    struct fenced codes = fenced_create(n * bytes, bytes);
    struct oct_float_env env = oct_float_env_enter();

    (saturates ? k->saturate : k->cast)(dtype, n, values, codes.data);
    oct_float_env_leave(env);
    for (size_t i = 0; i < n; i++) {
        uint32_t got = code_at(dtype, codes.data, i),
                 want = ref_encode(dtype, saturates, values[i]);
        if (got != want)
            ck_abort_msg("%s: %s %s of %a (%08x) is %x, expected %x", k->name,
                         saturates ? "saturate" : "cast", octet_dtype_name(dtype), values[i],
                         bits_of(values[i]), got, want);
    }
    ck_assert_msg(fenced_destroy(&codes), "%s: %s wrote outside", k->name, octet_dtype_name(dtype));
}

static void check_all_encodings(size_t n, const float *values)
{
    EACH_SET(k)
    {
        for (int t = 0; t < CAST_TYPES; t++)
            check_encoding(k, cast_types[t], false, n, values);
        for (int t = 0; t < Q_TYPES; t++)
            check_encoding(k, q_types[t], true, n, values);
    }
}

START_TEST(samples_of_all_patterns_encode)
{
    enum { STEP = 30011, COUNT = (1ull << 32) / STEP };
    float *values = malloc(COUNT * sizeof(float));

    for (size_t i = 0; i < COUNT; i++)
        values[i] = float_of((uint32_t)(i * STEP));
    check_all_encodings(COUNT, values);
    free(values);
}
END_TEST

/* What BF16 operands bring, and where ties are: all of its patterns, and half way between them. */
START_TEST(all_bf16_patterns_encode)
{
    float *values = malloc(131072 * sizeof(float));

    for (uint32_t i = 0; i < 131072; i++)
        values[i] = float_of(i << 15);
    check_all_encodings(131072, values);
    free(values);
}
END_TEST

START_TEST(neighbours_of_ties_encode)
{
    enum { NEAR = 5, COUNT = 2048 * 2 * NEAR };
    float *values = malloc(COUNT * sizeof(float));
    size_t n = 0;

    for (uint32_t high = 0; high < 2048; high++) /* 3 mantissa bits: codes and middles of FP8 */
        for (uint32_t i = 0; i < NEAR; i++) {
            values[n++] = float_of((high << 20) + i - NEAR / 2);
            values[n++] = float_of(((high << 20) | 0x80000000u) + 0x80000 + i - NEAR / 2);
        }
    check_all_encodings(n, values);
    free(values);
}
END_TEST

START_TEST(lengths_and_places_encode)
{
    uint64_t state = 7;

    for (int l = 0; l < LENGTHS; l++) {
        float *values = malloc((lengths[l] ? lengths[l] : 1) * sizeof(float));
        fill_random(OCTET_DTYPE_F32, lengths[l], values, &state);
        check_all_encodings(lengths[l], values);
        free(values);
    }
}
END_TEST

/* ---- amax ---- */

static float ref_amax(enum octet_dtype dtype, const void *x, size_t n, float most)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t a = bits_of(ref_value(dtype, x, i)) & 0x7fffffff;
        if (dtype == OCTET_DTYPE_BF16) /* keeps a NaN a NaN, where ref_value makes it canonical */
            a = (uint32_t)((const uint16_t *)x)[i] << 16 & 0x7fffffff;
        if (isnan(exact(most)) || a > 0x7f800000)
            most = float_of(0x7fc00000);
        else if (exact(float_of(a)) > exact(most))
            most = float_of(a);
    }
    return most;
}

START_TEST(amax_of_all_lengths)
{
    uint64_t state = 11;

    EACH_SET(k)
    {
        for (int d = 0; d < 2; d++)
            for (int l = 0; l < LENGTHS; l++)
                for (int turn = 0; turn < 12; turn++) {
                    const size_t n = lengths[l], bytes = octet_dtype_bytes(floats[d]);
                    uint64_t data[LONGEST];
                    fill_random(floats[d], n, data, &state);
                    for (size_t i = 0; turn < 8 && i < n; i++) /* without NaN */
                        if (bytes == 4)
                            ((uint32_t *)data)[i] &= 0xbfffffff;
                        else
                            ((uint16_t *)data)[i] &= 0xbfff;
                    char *x = tight_copy(data, n * bytes);
                    float got = k->amax(floats[d], n, x), want = ref_amax(floats[d], x, n, 0);
                    ck_assert_msg(bits_of(got) == bits_of(want), "%s: n %zu: %a, expected %a",
                                  k->name, n, got, want);
                    free(x);
                }
    }
}
END_TEST

START_TEST(amax_by_columns)
{
    uint64_t state = 13;

    EACH_SET(k)
    {
        for (int d = 0; d < 2; d++)
            for (int l = 0; l < LENGTHS; l++) {
                const size_t n = lengths[l], bytes = octet_dtype_bytes(floats[d]);
                struct fenced most = fenced_create(n * sizeof(float), 4);
                float want[LONGEST] = {0};
                memset(most.data, 0, n * sizeof(float));
                for (int row = 0; row < 5; row++) {
                    uint32_t data[LONGEST];
                    fill_random(floats[d], n, data, &state);
                    char *x = tight_copy(data, n * bytes);
                    k->amax_columns(floats[d], n, x, (float *)most.data);
                    for (size_t i = 0; i < n; i++)
                        want[i] = ref_amax(floats[d], x + i * bytes, 1, want[i]);
                    free(x);
                }
                ck_assert(memcmp(want, most.data, n * sizeof(float)) == 0);
                ck_assert(fenced_destroy(&most));
            }
    }
}
END_TEST

/* ---- quantize ---- */

/* A NaN shows the sign of x, else of the inverse, else (Inf * 0) a minus, as on every x86 CPU. */
static uint32_t ref_quantize(enum octet_dtype dtype, enum octet_dtype qtype, float x, float inverse)
{
    float product = ref_mul(x, inverse);

    if (isnan(exact(product))) {
        uint32_t sign = isnan(exact(x))         ? bits_of(x) >> 31
                        : isnan(exact(inverse)) ? bits_of(inverse) >> 31
                                                : 1;
        product = float_of(sign << 31 | 0x7fc00000u);
    }
    return ref_encode(qtype, true, dtype == OCTET_DTYPE_BF16 ? ref_bf16(product) : product);
}

static void check_quantize(const struct oct_kernels *k, enum octet_dtype dtype,
                           enum octet_dtype qtype, size_t n, size_t stride, uint64_t *state)
{
    uint32_t data[LONGEST];
    float factors[LONGEST] = {0};
    struct fenced codes = fenced_create(n, n % 3);

    fill_random(dtype, n, data, state);
    fill_random(OCTET_DTYPE_F32, n, factors, state);
    void *x = tight_copy(data, n * octet_dtype_bytes(dtype));
    float *inverse = tight_copy(factors, (stride || !n ? n : 1u) * sizeof(float));
    struct oct_float_env env = oct_float_env_enter();
    k->quantize(dtype, qtype, n, x, inverse, stride, codes.data);
    oct_float_env_leave(env);
    for (size_t i = 0; i < n; i++) {
        float v = dtype == OCTET_DTYPE_F32 ? ((float *)x)[i]
                                           : float_of((uint32_t)((uint16_t *)x)[i] << 16);
        uint32_t want = ref_quantize(dtype, qtype, v, inverse[i * stride]);
        if (codes.data[i] != want)
            ck_abort_msg("%s: %s -> %s: %a (%08x) * %a is %x, expected %x", k->name,
                         octet_dtype_name(dtype), octet_dtype_name(qtype), v, bits_of(v),
                         inverse[i * stride], codes.data[i], want);
    }
    free(x);
    free(inverse);
    ck_assert(fenced_destroy(&codes));
}

START_TEST(quantize_all_types_and_lengths)
{
    uint64_t state = 17;

    EACH_SET(k)
    {
        for (int d = 0; d < 2; d++)
            for (int q = 0; q < Q_TYPES; q++)
                for (int l = 0; l < LENGTHS; l++)
                    for (int turn = 0; turn < 24; turn++)
                        check_quantize(k, floats[d], q_types[q], lengths[l], turn & 1, &state);
    }
}
END_TEST

/* Users' cases: a row with NaN, one with Inf. */
START_TEST(rows_with_nan_and_inf)
{
    EACH_SET(k)
    {
        const float nan_row[3] = {NAN, 1, 2}, inf_row[3] = {INFINITY, 1, 2};
        const float nan = float_of(0x7fc00000), zero = 0;
        uint8_t codes[3];
        k->quantize(OCTET_DTYPE_F32, OCTET_DTYPE_F8_E4M3FN, 3, nan_row, &nan, 0, codes);
        ck_assert(codes[0] == 0x7f && codes[1] == 0x7f && codes[2] == 0x7f);
        k->quantize(OCTET_DTYPE_F32, OCTET_DTYPE_F8_E4M3FN, 3, inf_row, &zero, 0, codes);
        ck_assert(codes[0] == 0xff && codes[1] == 0 && codes[2] == 0);
    }
}
END_TEST

/* ---- scale ---- */

static void check_scale(const struct oct_kernels *k, enum octet_dtype x_dtype,
                        enum octet_dtype dtype, size_t n, size_t stride, uint64_t *state)
{
    uint64_t data[LONGEST];
    float factors[LONGEST] = {0};
    struct fenced y = fenced_create(n * octet_dtype_bytes(dtype), 4);

    fill_random(x_dtype, n, data, state);
    fill_random(OCTET_DTYPE_F32, n, factors, state);
    void *x = tight_copy(data, n * octet_dtype_bytes(x_dtype));
    struct oct_float_env env = oct_float_env_enter();
    k->scale(x_dtype, n, x, factors, stride, dtype, y.data);
    if (x_dtype == dtype) /* in place */
        k->scale(x_dtype, n, data, factors, stride, dtype, data);
    oct_float_env_leave(env);
    for (size_t i = 0; i < n; i++) {
        float product = ref_mul(ref_value(x_dtype, x, i), factors[i * stride]);
        if (isnan(exact(product)))
            product = float_of(0x7fc00000);
        uint32_t want =
            dtype == OCTET_DTYPE_BF16 ? bits_of(ref_bf16(product)) >> 16 : bits_of(product);
        uint32_t got = code_at(dtype, y.data, i);
        if (got != want)
            ck_abort_msg("%s: %s code %x * %a -> %s is %x, expected %x", k->name,
                         octet_dtype_name(x_dtype), code_at(x_dtype, x, i), factors[i * stride],
                         octet_dtype_name(dtype), got, want);
    }
    if (x_dtype == dtype)
        ck_assert(memcmp(data, y.data, n * octet_dtype_bytes(dtype)) == 0);
    free(x);
    ck_assert(fenced_destroy(&y));
}

START_TEST(scale_all_types_and_lengths)
{
    uint64_t state = 19;

    EACH_SET(k)
    {
        for (int t = 0; t < TYPES; t++)
            for (int d = 0; d < 2; d++)
                for (int l = 0; l < LENGTHS; l++)
                    for (int turn = 0; turn < 4; turn++)
                        if (all_types[t] != OCTET_DTYPE_S64)
                            check_scale(k, all_types[t], floats[d], lengths[l], turn & 1, &state);
    }
}
END_TEST

START_TEST(scale_of_s64)
{
    EACH_SET(k)
    {
        const int64_t x[3] = {INT64_MAX, -16777217, 3};
        const float factors[3] = {0.5f, 1, 0.25f};
        float y[3];
        k->scale(OCTET_DTYPE_S64, 3, x, factors, 1, OCTET_DTYPE_F32, y);
        ck_assert(y[0] == 0x1p62f && y[1] == -16777216 && y[2] == 0.75f);
    }
}
END_TEST

/* ---- finish ---- */

static float ref_finish(enum octet_dtype dtype, float sum, const float *lhs, const float *rhs)
{
    const bool bf16 = dtype == OCTET_DTYPE_BF16;

    sum = bf16 ? ref_bf16(sum) : sum;
    for (int side = 0; side < 2; side++)
        if (side ? rhs : lhs) {
            sum = ref_mul(sum, side ? *rhs : *lhs);
            sum = bf16 ? ref_bf16(sum) : sum;
        }
    return isnan(exact(sum)) ? float_of(0x7fc00000) : sum;
}

static void check_finish(const struct oct_kernels *k, enum octet_dtype dtype, size_t n, int turn,
                         uint64_t *state)
{
    const bool has_lhs = turn & 1, has_rhs = turn & 2;
    const size_t stride = turn & 4 ? 1 : 0, bytes = octet_dtype_bytes(dtype);
    float in[LONGEST], scales[LONGEST], lhs = random_float(state);
    struct fenced y = fenced_create(n * bytes, 4);

    fill_random(OCTET_DTYPE_F32, n, in, state);
    fill_random(OCTET_DTYPE_F32, LONGEST, scales, state);
    float *sums = tight_copy(in, n * sizeof(float));
    struct oct_float_env env = oct_float_env_enter();
    k->finish(n, sums, has_lhs ? &lhs : NULL, has_rhs ? scales : NULL, stride, dtype, y.data);
    oct_float_env_leave(env);
    for (size_t i = 0; i < n; i++) {
        float want =
            ref_finish(dtype, in[i], has_lhs ? &lhs : NULL, has_rhs ? &scales[i * stride] : NULL);
        uint32_t code = bytes == 2 ? bits_of(want) >> 16 : bits_of(want);
        if (code_at(dtype, y.data, i) != code)
            ck_abort_msg("%s: finish %d of %a is %x, expected %x", k->name, turn, in[i],
                         code_at(dtype, y.data, i), code);
    }
    free(sums);
    ck_assert(fenced_destroy(&y));
}

START_TEST(finish_in_all_ways)
{
    uint64_t state = 23;

    EACH_SET(k)
    {
        for (int d = 0; d < 2; d++)
            for (int l = 0; l < LENGTHS; l++)
                for (int turn = 0; turn < 32; turn++)
                    check_finish(k, floats[d], lengths[l], turn & 7, &state);
    }
}
END_TEST

void add_elementwise_tests(Suite *suite)
{
    TCase *tests = tcase_create("elementwise");

    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, all_codes_decode);
    tcase_add_test(tests, sets_agree_on_nans);
    tcase_add_test(tests, samples_of_all_patterns_encode);
    tcase_add_test(tests, all_bf16_patterns_encode);
    tcase_add_test(tests, neighbours_of_ties_encode);
    tcase_add_test(tests, lengths_and_places_encode);
    tcase_add_test(tests, amax_of_all_lengths);
    tcase_add_test(tests, amax_by_columns);
    tcase_add_test(tests, quantize_all_types_and_lengths);
    tcase_add_test(tests, rows_with_nan_and_inf);
    tcase_add_test(tests, scale_all_types_and_lengths);
    tcase_add_test(tests, scale_of_s64);
    tcase_add_test(tests, finish_in_all_ways);
    suite_add_tcase(suite, tests);
}
