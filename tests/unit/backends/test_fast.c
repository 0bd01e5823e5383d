/* Accumulation FAST on a device: near the CPU's sums, in any order, and told as what ran. What
 * could break: an operand that is turned the wrong way, a scale of another row, a product that says
 * FAST and was not, or the reverse. */
#include <math.h>
#include <stdio.h>

#include "device.h"

/* As far apart as other orders put two numbers, and roundings to dtype: the CPU rounds the sum and
 * after each scale, the library once. */
static void check_near(const struct octet_array *expected, const struct octet_array *got,
                       const char *what)
{
    double most = 0, rounding = got->dtype == OCTET_DTYPE_BF16 ? 0x1p-6 : 0x1p-20;

    ck_assert_int_eq(expected->dtype, got->dtype);
    for (int64_t i = 0; i < octet_array_elements(expected); i++)
        most = fmax(most, fabs((double)array_at(expected, i)));
    for (int64_t i = 0; i < octet_array_elements(expected); i++) {
        double x = (double)array_at(expected, i), y = (double)array_at(got, i);
        if (!(fabs(x - y) <= rounding * fabs(x) + 1e-5 * most))
            ck_abort_msg("%s: %s[%lld] is %g, not %g", bench.label, what, (long long)i, y, x);
    }
}

static struct octet_operand codes(const struct octet_array *array, const char *qtype,
                                  const int32_t *axes, size_t axis_count)
{
    struct octet_quantize_options how = {
        .qtype = qtype, .channelwise_axes = axes, .channelwise_axis_count = axis_count};
    struct octet_quantized q;

    bench_ok(octet_quantize(&bench.compute, array, &how, &q, &bench.err));
    return quantized(q);
}

static void compare(const struct octet_operand *lhs, const struct octet_operand *rhs,
                    const struct octet_dot_dims *dims, bool is_for_library)
{
    struct octet_product_options options = {.accumulation = OCTET_FAST};
    bool fast = is_for_library && octet_backend_facts(device)->capabilities.fast;
    struct octet_product a, b;

    bench_ok(octet_dot_general(&bench.compute, lhs, rhs, dims, &options, &a, &bench.err));
    bench_ok(octet_backend_dot_general(device, &bench.compute, lhs, rhs, dims, &options, &b,
                                       &bench.err));
    ck_assert_msg(b.accumulation == (fast ? OCTET_FAST : OCTET_EXACT_ORDER), "%s: %s", bench.label,
                  octet_accumulation_name(b.accumulation));
    check_near(&a.out, &b.out, "out");
}

/* lhs and rhs each as it lies or turned, one scale or one for each row. */
START_TEST(fast_products_are_near_the_cpus)
{
    struct dice dice = {(uint64_t)_i + 1};
    bool lhs_turned = _i & 1, rhs_turned = _i & 2;
    enum octet_dtype dtype = _i & 16 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    int64_t m = 37, n = 48, k = 80;
    const int32_t lhs_row = lhs_turned, rhs_row = rhs_turned;
    struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {!lhs_turned}, .rhs_contracting = {!rhs_turned}};
    struct octet_array x = array_random(&dice, dtype, 2, lhs_turned ? DIMS(k, m) : DIMS(m, k));
    struct octet_array w = array_random(&dice, dtype, 2, rhs_turned ? DIMS(k, n) : DIMS(n, k));
    struct octet_operand lhs = codes(&x, "float8_e4m3fn", &lhs_row, _i & 4 ? 1 : 0);
    struct octet_operand rhs =
        codes(&w, _i % 3 ? "float8_e4m3fn" : "float8_e5m2", &rhs_row, _i & 8 ? 1 : 0);

    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    compare(&lhs, &rhs, &dims, true);
}
END_TEST

START_TEST(fast_batches_are_near_the_cpus)
{
    struct dice dice = {7};
    const int32_t rows[] = {0, 1}, columns[] = {0, 2};
    struct octet_dot_dims dims = {
        .contracting_count = 1, .batch_count = 1, .lhs_contracting = {2}, .rhs_contracting = {1}};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(3, 5, 32));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(3, 32, 16));
    struct octet_operand lhs = codes(&x, "float8_e4m3fn", rows, 2);
    struct octet_operand rhs = codes(&w, "float8_e4m3fn", columns, 2);

    compare(&lhs, &rhs, &dims, true);
    lhs = plain(x);
    rhs = plain(w);
    compare(&lhs, &rhs, &dims, true);
}
END_TEST

/* What a library does not take runs in the kernels and says so. */
START_TEST(others_run_in_exact_order)
{
    struct dice dice = {8};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(5, 24));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(24, 16));
    struct octet_operand lhs = codes(&x, "float8_e4m3fn", NULL, 0);
    struct octet_operand rhs = codes(&w, "float8_e4m3fn", NULL, 0);

    compare(&lhs, &rhs, &matmul_dims, false); /* k not of 16 */
    lhs = codes(&x, "int8", NULL, 0);
    rhs = codes(&w, "int8", NULL, 0);
    compare(&lhs, &rhs, &matmul_dims, false);
    lhs = plain(x);
    rhs = plain(w);
    compare(&lhs, &rhs, &matmul_dims, false);
}
END_TEST

TCase *fast_tests(void)
{
    TCase *tests = tcase_create("fast");

    tcase_add_checked_fixture(tests, device_begin, bench_end);
    tcase_add_loop_test(tests, fast_products_are_near_the_cpus, 0, 32);
    tcase_add_test(tests, fast_batches_are_near_the_cpus);
    tcase_add_test(tests, others_run_in_exact_order);
    return tests;
}
