/* Forward and backward apart, as models run them. What could break: a number that differs from the
 * CPU's, an operand read though nobody said so, a copy on the device that is taken for another
 * array's, an upload that need not be, a result that is not written whole. */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "quant/passes.h"

static const struct octet_rule given_rules[] = {
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"},
    {.weight_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "int8", .act_qtype = "int8", .weight_calibration_method = "absmax,0.7"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e5m2",
     .bwd_qtype = "float8_e5m2",
     .act_calibration_method = "fixed,-1,1"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .tile_size = "1/2"},
};
enum { RULES = sizeof given_rules / sizeof *given_rules };

/* One product; keys of its arrays on the device. */
struct deed {
    struct oct_matmul matmul;
    struct octet_array lhs, rhs, sizes, out, cotangent;
    oct_residence *residence, *parent;
};

static void make_dot(struct deed *d, int seed)
{
    struct dice dice = {(uint64_t)seed};
    enum octet_dtype dtype = seed / 2 % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    int64_t m = roll_between(&dice, 1, 20) * 2, n = roll_between(&dice, 1, 30) * 2, k = 256;

    *d = (struct deed){.matmul = {.dims = matmul_dims}};
    d->lhs = array_random(&dice, dtype, 2, DIMS(m, k));
    d->rhs = array_random(&dice, dtype, 2, DIMS(k, n));
    d->out = array_zero(dtype, 2, DIMS(m, n));
    if (seed % 3 == 1) { /* the result turned, as an einsum's may be */
        d->matmul.is_turned = true;
        d->matmul.result_axes[0] = 1;
        d->matmul.result_axes[1] = 0;
        d->out = array_zero(dtype, 2, DIMS(n, m));
    }
    d->cotangent = array_random(&dice, dtype, 2, d->out.dim);
}

static void make_grouped(struct deed *d, int seed)
{
    struct dice dice = {(uint64_t)seed};
    enum octet_dtype dtype = seed / 2 % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    int64_t k = 256, n = roll_between(&dice, 1, 30) * 2;
    int32_t sizes[] = {7, 0, 31, 2};

    *d = (struct deed){.matmul = {.kind = seed % 3 ? OCT_MATMUL_GMM : OCT_MATMUL_RAGGED_DOT,
                                  .transpose_rhs = seed % 2}};
    d->lhs = array_random(&dice, dtype, 2, DIMS(42, k));
    d->rhs = seed % 2 ? array_random(&dice, dtype, 3, DIMS(4, n, k))
                      : array_random(&dice, dtype, 3, DIMS(4, k, n));
    d->sizes = sizes_of(4, sizes);
    d->out = array_zero(dtype, 2, DIMS(42, n));
    d->cotangent = array_random(&dice, dtype, 2, d->out.dim);
}

static void open_residence(struct deed *d)
{
    bench_ok(oct_residence_create(device, NULL, &d->parent, &bench.err));
    bench_ok(oct_residence_create(device, d->parent, &d->residence, &bench.err));
}

static void close_residence(struct deed *d)
{
    oct_residence_destroy(d->residence);
    oct_residence_destroy(d->parent);
}

enum { LHS_KEY = 1, SAVED_KEY = 2 };
static const uint64_t rhs_key = OCT_RESIDENCE_SHARED | 3;

static struct oct_backend_product product_of(const struct deed *d)
{
    return (struct oct_backend_product){.compute = &bench.compute,
                                        .matmul = &d->matmul,
                                        .residence = d->residence,
                                        .lhs = LHS_KEY,
                                        .rhs = rhs_key,
                                        .saved = d->matmul.has_backward ? SAVED_KEY : 0};
}

static struct octet_array garbage(const struct octet_array *like, enum octet_dtype dtype)
{
    struct octet_array array = array_zero(dtype, like->rank, like->dim);

    memset(array.data, 0xa5, (size_t)octet_array_bytes(&array));
    return array;
}

static void check_figures(const struct oct_pass_figures *a, const struct oct_pass_figures *b,
                          bool backward)
{
    if (backward) {
        check_same_stats(&a->cotangent, &b->cotangent, "cotangent");
        return;
    }
    check_same_stats(&a->lhs, &b->lhs, "lhs");
    check_same_stats(&a->rhs, &b->rhs, "rhs");
    ck_assert_str_eq(a->digest, b->digest);
}

static void check_forward(const struct deed *d, void *block, size_t bytes)
{
    struct octet_operand lhs = plain(d->lhs), rhs = plain(d->rhs);
    struct octet_array a = garbage(&d->out, d->out.dtype), b = garbage(&d->out, d->out.dtype);
    struct oct_pass_figures cpu, there;
    struct oct_backend_product product = product_of(d);

    bench_ok(oct_matmul_forward(&bench.compute, &d->matmul, &lhs, &rhs, &d->sizes, &a, block, bytes,
                                &cpu, &bench.err));
    bench_ok(oct_backend_forward(&product, &lhs, &rhs, &d->sizes, &b, &there, &bench.err));
    check_same_bits(&a, &b, "out");
    if (d->matmul.numerics)
        check_figures(&cpu, &there, false);
}

static void check_backward(const struct deed *d, const void *block, enum octet_dtype dtype)
{
    int reads = oct_matmul_reads(&d->matmul, &d->lhs, &d->rhs);
    struct octet_array lhs = d->lhs, rhs = d->rhs;
    struct octet_array a[] = {garbage(&lhs, dtype), garbage(&rhs, dtype)};
    struct octet_array b[] = {garbage(&lhs, dtype), garbage(&rhs, dtype)};
    struct oct_backend_product product = product_of(d);
    struct oct_pass_figures cpu, there;

    lhs.data = reads & 1 ? lhs.data : NULL;
    rhs.data = reads & 2 ? rhs.data : NULL;
    bench_ok(oct_matmul_backward(&bench.compute, &d->matmul, &lhs, &rhs, &d->sizes, block,
                                 &d->cotangent, &a[0], &a[1], &cpu, &bench.err));
    bench_ok(oct_backend_backward(&product, &lhs, &rhs, &d->sizes, &d->cotangent, &b[0], &b[1],
                                  &there, &bench.err));
    check_same_bits(&a[0], &b[0], "lhs_grad");
    check_same_bits(&a[1], &b[1], "rhs_grad");
    if (d->matmul.numerics)
        check_figures(&cpu, &there, true);
}

static void run_deed(struct deed *d, int seed)
{
    d->matmul.rule = seed % 7 == 6 ? NULL : bench_rule(&given_rules[seed % 7 % RULES]);
    d->matmul.has_backward = true;
    d->matmul.numerics = seed % 2;
    size_t bytes = oct_matmul_saved_bytes(&d->matmul, &d->lhs, &d->rhs);
    void *block = octet_arena_alloc(bench.arena, bytes + 64);

    block = (void *)(((uintptr_t)block + 63) / 64 * 64);
    snprintf(bench.label, sizeof bench.label, "case %d", seed);
    open_residence(d);
    check_forward(d, block, bytes);
    check_backward(d, bytes ? block : NULL, seed % 4 == 3 ? OCTET_DTYPE_F32 : d->lhs.dtype);
    close_residence(d);
}

START_TEST(dot_passes_equal_cpu)
{
    struct deed d;

    make_dot(&d, _i);
    run_deed(&d, _i);
}
END_TEST

START_TEST(grouped_passes_equal_cpu)
{
    struct deed d;

    make_grouped(&d, _i);
    run_deed(&d, _i);
}
END_TEST

/* Codes made beforehand give the same bits. */
START_TEST(prepared_equals_cpu)
{
    struct octet_quantized q;
    struct deed d;

    if (_i % 2)
        make_grouped(&d, _i);
    else
        make_dot(&d, _i);
    d.matmul.rule = bench_rule(&given_rules[0]);
    bench_ok(oct_matmul_prepare(&bench.compute, &d.matmul, &d.lhs, &d.rhs, false, bench.arena, &q,
                                &bench.err));
    struct octet_operand lhs = plain(d.lhs), rhs = quantized(q);
    struct octet_array a = garbage(&d.out, d.out.dtype), b = garbage(&d.out, d.out.dtype);
    open_residence(&d);
    struct oct_backend_product product = product_of(&d);
    bench_ok(oct_matmul_forward(&bench.compute, &d.matmul, &lhs, &rhs, &d.sizes, &a, NULL, 0, NULL,
                                &bench.err));
    bench_ok(oct_backend_forward(&product, &lhs, &rhs, &d.sizes, &b, NULL, &bench.err));
    check_same_bits(&a, &b, "out");
    close_residence(&d);
}
END_TEST

/* ---- residence ---- */

static int64_t written_by(const struct deed *d)
{
    counting_reset();
    check_forward(d, NULL, 0);
    return counts.written_bytes;
}

/* The same arrays again need no upload; after forget, or another key's array, one. A sibling finds
 * the shared weights and not the rest. */
START_TEST(uploads_once)
{
    struct deed d, sibling;

    make_dot(&d, 0);
    d.matmul.rule = _i ? bench_rule(&given_rules[0]) : NULL;
    open_residence(&d);
    int64_t lhs_bytes = octet_array_bytes(&d.lhs), rhs_bytes = octet_array_bytes(&d.rhs);
    ck_assert_int_ge(written_by(&d), lhs_bytes + rhs_bytes);
    ck_assert_int_eq(written_by(&d), 0);
    oct_residence_forget(d.residence, LHS_KEY);
    ck_assert_int_eq(written_by(&d), lhs_bytes);
    sibling = d;
    bench_ok(oct_residence_create(device, d.parent, &sibling.residence, &bench.err));
    ck_assert_int_eq(written_by(&sibling), lhs_bytes);
    oct_residence_destroy(sibling.residence);
    oct_residence_forget(d.residence, rhs_key);
    ck_assert_int_eq(written_by(&d), rhs_bytes);
    close_residence(&d);
}
END_TEST

/* New numbers under a key that was forgotten. */
START_TEST(forgotten_numbers)
{
    struct dice dice = {5};
    struct deed d;

    make_dot(&d, 0);
    d.matmul.rule = bench_rule(&given_rules[0]);
    open_residence(&d);
    check_forward(&d, NULL, 0);
    d.lhs = array_random(&dice, d.lhs.dtype, 2, d.lhs.dim);
    oct_residence_forget(d.residence, LHS_KEY);
    check_forward(&d, NULL, 0);
    close_residence(&d);
}
END_TEST

START_TEST(backward_without_forward)
{
    struct deed d;

    make_dot(&d, 0);
    d.matmul.rule = bench_rule(&given_rules[0]);
    d.matmul.has_backward = true;
    open_residence(&d);
    struct oct_backend_product product = product_of(&d);
    struct octet_array gradient = array_zero(d.lhs.dtype, 2, d.lhs.dim), none = d.rhs;
    none.data = NULL;
    ck_assert_int_eq(oct_backend_backward(&product, &d.lhs, &d.rhs, NULL, &d.cotangent, &gradient,
                                          &none, NULL, &bench.err),
                     OCTET_FAILED_PRECONDITION);
    close_residence(&d);
}
END_TEST

TCase *device_pass_tests(void)
{
    TCase *tests = tcase_create("passes");

    tcase_add_checked_fixture(tests, device_begin, bench_end);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, dot_passes_equal_cpu, 0, SEEDS(56));
    tcase_add_loop_test(tests, grouped_passes_equal_cpu, 0, SEEDS(56));
    tcase_add_loop_test(tests, prepared_equals_cpu, 0, 4);
    tcase_add_loop_test(tests, uploads_once, 0, 2);
    tcase_add_test(tests, forgotten_numbers);
    tcase_add_test(tests, backward_without_forward);
    return tests;
}
