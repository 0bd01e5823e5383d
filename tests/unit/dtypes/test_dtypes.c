/* What the bits of each type mean: all codes, all boundaries between codes, and strided samples of
 * the f32 patterns, against double arithmetic (../kernels/reference.h).
 * What could break: a tie that goes the wrong way, a binade that counts as overflow (E4M3FN's
 * 256 .. 448), a subnormal that is lost where the CPU flushes them, a raw cast that saturates or a
 * saturating one that does not. */
#include <check.h>
#include <stdlib.h>

#include "base/float_env.h"
#include "dtypes/codes.h"
#include "unit/kernels/reference.h"

static uint32_t cast_of(enum octet_dtype dtype, float v)
{
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_cast(v);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_cast(v);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_cast(v);
    case OCTET_DTYPE_F16:
        return oct_f16_cast(v);
    case OCTET_DTYPE_BF16:
        return oct_bf16_cast(v);
    case OCTET_DTYPE_F8_E8M0FNU:
        return oct_e8m0fnu_cast(v);
    case OCTET_DTYPE_S8:
        return oct_s8_cast(v);
    case OCTET_DTYPE_S4:
        return oct_s4_cast(v);
    default:
        return (uint32_t)oct_s32_cast(v);
    }
}

static uint32_t saturate_of(enum octet_dtype dtype, float v)
{
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_saturate(v);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_saturate(v);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_saturate(v);
    case OCTET_DTYPE_S8:
        return oct_s8_saturate(v);
    default:
        return oct_s4_saturate(v);
    }
}

static float decode_of(enum octet_dtype dtype, uint32_t code)
{
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        return oct_e4m3fn_decode((uint8_t)code);
    case OCTET_DTYPE_F8_E5M2:
        return oct_e5m2_decode((uint8_t)code);
    case OCTET_DTYPE_F4_E2M1FN:
        return oct_e2m1fn_decode((uint8_t)code);
    case OCTET_DTYPE_F8_E8M0FNU:
        return oct_e8m0fnu_decode((uint8_t)code);
    case OCTET_DTYPE_S8:
        return oct_s8_decode((uint8_t)code);
    case OCTET_DTYPE_S4:
        return oct_s4_decode((uint8_t)code);
    case OCTET_DTYPE_F16:
        return oct_f16_decode((uint16_t)code);
    default:
        return oct_bf16_decode((uint16_t)code);
    }
}

static const enum octet_dtype with_codes[] = {
    OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E5M2,    OCTET_DTYPE_F4_E2M1FN,
    OCTET_DTYPE_F16,       OCTET_DTYPE_BF16,       OCTET_DTYPE_S8,
    OCTET_DTYPE_S4,        OCTET_DTYPE_F8_E8M0FNU, OCTET_DTYPE_S32};
enum { CODE_TYPES = 8, CAST_TYPES = 9 };
static const enum octet_dtype saturating[] = {OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E5M2,
                                              OCTET_DTYPE_F4_E2M1FN, OCTET_DTYPE_S8,
                                              OCTET_DTYPE_S4};

static void check_value(float v)
{
    for (int t = 0; t < CAST_TYPES; t++) {
        uint32_t got = cast_of(with_codes[t], v), want = ref_encode(with_codes[t], false, v);
        if (got != want)
            ck_abort_msg("%s: cast of %a (%08x) is %x, expected %x",
                         octet_dtype_name(with_codes[t]), v, bits_of(v), got, want);
    }
    for (int t = 0; t < 5; t++) {
        uint32_t got = saturate_of(saturating[t], v), want = ref_encode(saturating[t], true, v);
        if (got != want)
            ck_abort_msg("%s: saturate of %a (%08x) is %x, expected %x",
                         octet_dtype_name(saturating[t]), v, bits_of(v), got, want);
    }
}

START_TEST(every_code_has_its_value)
{
    for (int t = 0; t < CODE_TYPES; t++) {
        const enum octet_dtype dtype = with_codes[t];
        uint32_t count = octet_dtype_bytes(dtype) == 2 ? 65536 : 256;
        for (uint32_t code = 0; code < count; code++) {
            uint16_t stored = (uint16_t)code;
            float want = ref_value(dtype, &stored, 0), got = decode_of(dtype, code);
            if (isnan(exact(want)))
                ck_assert_msg(isnan(exact(got)), "%s %x", octet_dtype_name(dtype), code);
            else if (bits_of(got) != bits_of(want))
                ck_abort_msg("%s: %x is %a, expected %a", octet_dtype_name(dtype), code, got, want);
        }
    }
}
END_TEST

START_TEST(every_boundary_between_codes_is_where_it_should)
{
    for (int t = 0; t < CODE_TYPES; t++) {
        const enum octet_dtype dtype = with_codes[t];
        uint32_t count = octet_dtype_bytes(dtype) == 2 ? 0x7c00 : 128;
        for (uint32_t code = 0; code < count; code++) {
            uint16_t here = (uint16_t)code, next = (uint16_t)(code + 1);
            double low = exact(ref_value(dtype, &here, 0)),
                   high = exact(ref_value(dtype, &next, 0));
            if (!isfinite(low) || !isfinite(high))
                continue;
            uint32_t middle = bits_of(to_float(ref_round((low + high) / 2, 23, -126)));
            for (uint32_t near = middle - 2; near != middle + 3; near++) {
                check_value(float_of(near));
                check_value(float_of(near ^ 0x80000000u));
            }
        }
    }
}
END_TEST

START_TEST(samples_of_all_patterns)
{
    /* The step is odd, so that all low bits are met; the start differs from the kernels' test. */
    for (uint64_t bits = 77; bits < 1ull << 32; bits += 9973)
        check_value(float_of((uint32_t)bits));
}
END_TEST

START_TEST(named_cases)
{
    static const struct {
        float value;
        uint8_t e4m3_cast, e4m3_saturate, e5m2_cast, e5m2_saturate;
    } cases[] = {{448, 0x7e, 0x7e, 0x5f, 0x5f},
                 {464, 0x7e, 0x7e, 0x5f, 0x5f},
                 {464.1f, 0x7f, 0x7e, 0x5f, 0x5f},
                 {465, 0x7f, 0x7e, 0x5f, 0x5f},
                 {-1000, 0xff, 0xfe, 0xe4, 0xe4},
                 {256, 0x78, 0x78, 0x5c, 0x5c},
                 {288, 0x79, 0x79, 0x5c, 0x5c},
                 {320, 0x7a, 0x7a, 0x5d, 0x5d},
                 {352, 0x7b, 0x7b, 0x5e, 0x5e},
                 {384, 0x7c, 0x7c, 0x5e, 0x5e},
                 {416, 0x7d, 0x7d, 0x5e, 0x5e},
                 {61439, 0x7f, 0x7e, 0x7b, 0x7b},
                 {61440, 0x7f, 0x7e, 0x7c, 0x7b},
                 {INFINITY, 0x7f, 0x7e, 0x7c, 0x7b},
                 {-INFINITY, 0xff, 0xfe, 0xfc, 0xfb},
                 {NAN, 0x7f, 0x7f, 0x7e, 0x7e},
                 {0x1p-10f, 0x00, 0x00, 0x14, 0x14},
                 {0x1.8p-9f, 0x02, 0x02, 0x1a, 0x1a},
                 {0x1p-9f, 0x01, 0x01, 0x18, 0x18},
                 {-0.0f, 0x80, 0x80, 0x80, 0x80},
                 {0x1p-17f, 0x00, 0x00, 0x00, 0x00},
                 {0x1.000002p-17f, 0x00, 0x00, 0x01, 0x01},
                 {0x1.000002p-10f, 0x01, 0x01, 0x14, 0x14}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float v = cases[i].value;
        ck_assert_msg(oct_e4m3fn_cast(v) == cases[i].e4m3_cast, "%a: %x", v, oct_e4m3fn_cast(v));
        ck_assert_msg(oct_e4m3fn_saturate(v) == cases[i].e4m3_saturate, "%a", v);
        ck_assert_msg(oct_e5m2_cast(v) == cases[i].e5m2_cast, "%a: %x", v, oct_e5m2_cast(v));
        ck_assert_msg(oct_e5m2_saturate(v) == cases[i].e5m2_saturate, "%a", v);
        check_value(v);
    }
}
END_TEST

/* A code survives decoding and encoding, in both environments. */
START_TEST(codes_come_back)
{
    for (int flushes = 0; flushes < 2; flushes++) {
        struct oct_float_env env = {0};
        if (flushes)
            env = oct_float_env_enter();
        for (int t = 0; t < CODE_TYPES; t++) {
            const enum octet_dtype dtype = with_codes[t];
            int bits = octet_dtype_bits(dtype);
            for (uint32_t code = 0; code < 1u << bits; code++) {
                float v = decode_of(dtype, code);
                uint32_t back = cast_of(dtype, v);
                if (dtype == OCTET_DTYPE_S4) /* the upper half of the byte repeats the sign */
                    back = back == (uint8_t)(int8_t)v ? back & 15 : 16;
                if ((bits_of(v) & 0x7fffffff) <= 0x7f800000 && back != code)
                    ck_abort_msg("%s %x", octet_dtype_name(dtype), code);
            }
        }
        if (flushes)
            oct_float_env_leave(env);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dtypes");
    TCase *tests = tcase_create("codes");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_code_has_its_value);
    tcase_add_test(tests, every_boundary_between_codes_is_where_it_should);
    tcase_add_test(tests, samples_of_all_patterns);
    tcase_add_test(tests, named_cases);
    tcase_add_test(tests, codes_come_back);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
