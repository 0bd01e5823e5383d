/* Results at the edge of f32's normal range, where CPUs differ in whether they look before or after
 * rounding (base/float_env.h).
 * What could break: 2^-126 in one set and 0 in another. One product in 2^24 of that size shows it,
 * so random numbers do not; these are chosen. */
#include <math.h>

#include "kernels/math.h"
#include "octet/workers.h"
#include "unit/kernels/fixture.h"

enum { COUNT = 4099 };
static float a[COUNT], b[COUNT];

/* Two numbers with a product less than 2^-23 below 2^-126 relative to it: half of them are rounded
 * up to it, the others are tiny. For an odd significand A, A * floor(2^47 / A) is so near. */
static void pair_near_the_edge(float *x, float *y, uint64_t *state)
{
    uint64_t m = 0x800001 + 2 * (random_next(state) % 0x3fffff), other = (1ull << 47) / m;
    int e = -(int)(random_next(state) % 80);

    if (random_next(state) & 1)
        other -= random_next(state) % 2;
    *x = to_float(ldexp((double)m, e)) * (random_next(state) & 1 ? -1.0f : 1.0f);
    *y = to_float(ldexp((double)other, -126 - 47 - e));
    if (random_next(state) & 1) {
        float t = *x;
        *x = *y;
        *y = t;
    }
}

static void make_pairs(void)
{
    uint64_t state = 11;
    int least = 0, zero = 0;

    for (int i = 0; i < COUNT; i++) {
        pair_near_the_edge(&a[i], &b[i], &state);
        double product = fabs(exact(ref_mul(a[i], b[i])));
        least += product == 0x1p-126;
        zero += product == 0;
    }
    ck_assert_int_eq(least + zero, COUNT);
    ck_assert_int_gt(least, COUNT / 10);
    ck_assert_int_gt(zero, COUNT / 10);
}

static void check(const char *set, const char *what, int i, float got, float want)
{
    ck_assert_msg(bits_of(got) == bits_of(want), "%s: %s: %a, %a: %a, expected %a", set, what, a[i],
                  b[i], exact(got), exact(want));
}

START_TEST(products)
{
    static float out[COUNT];
    const float one = 1;

    make_pairs();
    for (size_t s = 0; octet_kernel_set_name(s); s++) {
        const struct oct_kernels *k = set_at(s);
        if (!k)
            continue;
        struct oct_float_env env = oct_float_env_enter();
        k->math->multiply(COUNT, a, b, out);
        for (int i = 0; i < COUNT; i++)
            check(k->name, "multiply", i, out[i], ref_mul(a[i], b[i]));
        memset(out, 0, sizeof out);
        k->math->multiply_add(COUNT, a, b, out);
        for (int i = 0; i < COUNT; i++)
            check(k->name, "multiply_add", i, out[i], ftz(0 + daz(ref_mul(a[i], b[i]))));
        k->scale(OCTET_DTYPE_F32, COUNT, a, b, 1, OCTET_DTYPE_F32, out);
        for (int i = 0; i < COUNT; i++)
            check(k->name, "scale", i, out[i], ref_mul(a[i], b[i]));
        k->finish(COUNT, a, &one, b, 1, OCTET_DTYPE_F32, out);
        for (int i = 0; i < COUNT; i++)
            check(k->name, "finish", i, out[i], ref_mul(a[i], b[i]));
        oct_float_env_leave(env);
    }
}
END_TEST

/* By the definition, in double: c and a * b are so near each other and so small that their sum is
 * exact there. */
static float fused(float x, float y, float c)
{
    return ftz(daz(x) * daz(y) + daz(c));
}

enum { M = 7, N = 97 };

static float power(int exponent, uint64_t *state)
{
    return to_float(ldexp(random_next(state) & 1 ? 1 : -1, exponent));
}

/* Rows of [x, u], columns of [y, v]: u * v comes first and is +-2^-126, or 0 in some rows and in
 * the first column; x * y is 2^-150 to 2^-155. All are exact in BF16 but, where it is not asked
 * for, an x and a y in the first row and column, whose product is near the edge itself. */
static void fill_sides(bool bf16, float lhs[M][2], float rhs[N][2], uint64_t *state)
{
    for (int i = 0; i < M; i++) {
        lhs[i][1] = i % 3 ? power(-63, state) : 0;
        lhs[i][0] = power(-75, state) * (1 + 0x1p-7f * (float)(random_next(state) % 4));
    }
    for (int j = 0; j < N; j++) {
        rhs[j][1] = j ? 0x1p-63f : 0;
        rhs[j][0] = power(-75 - (int)(random_next(state) % 5), state) *
                    (1 + 0x1p-7f * (float)(random_next(state) % 4));
    }
    if (!bf16)
        pair_near_the_edge(&lhs[0][0], &rhs[0][0], state);
}

static void check_sums(octet_workers *workers, bool bf16, int64_t m, int64_t n, uint64_t *state)
{
    const enum octet_dtype dtype = bf16 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    float lhs[M][2], rhs[N][2], out[M][N];
    uint16_t lhs_codes[M][2], rhs_codes[N][2];
    int64_t rows[M], columns[N], depth[2] = {0, 1};

    fill_sides(bf16, lhs, rhs, state);
    for (int i = 0; i < 2 * M; i++) {
        rows[i / 2] = i / 2 * 2;
        lhs_codes[i / 2][i % 2] = (uint16_t)(bits_of(lhs[i / 2][i % 2]) >> 16);
    }
    for (int j = 0; j < 2 * N; j++) {
        columns[j / 2] = j / 2 * 2;
        rhs_codes[j / 2][j % 2] = (uint16_t)(bits_of(rhs[j / 2][j % 2]) >> 16);
    }
    struct oct_gemm g = {.m = m,
                         .n = n,
                         .k = 2,
                         .lhs = {.dtype = dtype,
                                 .data = bf16 ? (void *)lhs_codes : (void *)lhs,
                                 .free = rows,
                                 .depth = depth},
                         .rhs = {.dtype = dtype,
                                 .data = bf16 ? (void *)rhs_codes : (void *)rhs,
                                 .free = columns,
                                 .depth = depth},
                         .out = out[0],
                         .out_stride = N};
    ck_assert_int_eq(oct_gemm_run(workers, NULL, &g, 1, NULL), OCTET_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float first = fused(lhs[i][1], rhs[j][1], 0);
            float want = fused(lhs[i][0], rhs[j][0], first);
            ck_assert_msg(bits_of(out[i][j]) == bits_of(want),
                          "%s: %s: m %d n %d: %a * %a + %a: %a, expected %a",
                          octet_workers_kernels(workers), octet_dtype_name(dtype), (int)m, (int)n,
                          lhs[i][0], rhs[j][0], exact(first), exact(out[i][j]), exact(want));
        }
}

START_TEST(fused_additions)
{
    static const int64_t ns[] = {1, 3, 16, 33, 97};
    uint64_t state = 13;

    for (size_t s = 0; octet_kernel_set_name(s); s++) {
        octet_workers *workers = NULL;
        if (!set_at(s))
            continue;
        ck_assert_int_eq(octet_workers_create(octet_kernel_set_name(s), 1, &workers, NULL),
                         OCTET_OK);
        for (int64_t m = 1; m <= 7; m++)
            for (size_t n = 0; n < sizeof ns / sizeof ns[0]; n++)
                for (int bf16 = 0; bf16 <= 1; bf16++)
                    check_sums(workers, bf16, m, ns[n], &state);
        octet_workers_destroy(workers);
    }
}
END_TEST

void add_tiny_tests(Suite *suite)
{
    TCase *tests = tcase_create("tiny");

    tcase_add_test(tests, products);
    tcase_add_test(tests, fused_additions);
    suite_add_tcase(suite, tests);
}
