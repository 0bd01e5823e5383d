/* A driver that fails. What could break: a status that tells of something else, a buffer that
 * nobody gives back, a call after the failure that does not work or finds half of what the failed
 * one left. */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "quant/passes.h"

static const struct octet_rule fp8 = {
    .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};

struct step {
    struct oct_matmul matmul;
    struct octet_operand lhs, rhs;
    struct octet_array sizes, out, cotangent, lhs_grad, rhs_grad;
};

static void make_step(struct step *s, const struct octet_rule *rule, bool grouped)
{
    struct dice dice = {1};
    const int32_t sizes[] = {3, 2};

    *s = (struct step){.matmul = {.dims = matmul_dims,
                                  .kind = grouped ? OCT_MATMUL_GMM : OCT_MATMUL_DOT,
                                  .rule = rule,
                                  .has_backward = true}};
    s->lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(5, 48)));
    s->rhs = plain(grouped ? array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(2, 48, 7))
                           : array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(48, 7)));
    s->sizes = sizes_of(2, sizes);
    s->out = array_zero(OCTET_DTYPE_F32, 2, DIMS(5, 7));
    s->cotangent = array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(5, 7));
    s->lhs_grad = array_zero(OCTET_DTYPE_F32, 2, DIMS(5, 48));
    s->rhs_grad = array_zero(OCTET_DTYPE_BF16, s->rhs.array.rank, s->rhs.array.dim);
}

/* A residence, forward, backward. */
static enum octet_status run_step(octet_backend *backend, struct step *s)
{
    struct oct_backend_product product = {
        .compute = &bench.compute, .matmul = &s->matmul, .lhs = 1, .rhs = 2, .saved = 3};
    enum octet_status status = oct_residence_create(backend, NULL, &product.residence, &bench.err);

    if (status != OCTET_OK)
        return status;
    status = oct_backend_forward(&product, &s->lhs, &s->rhs, &s->sizes, &s->out, NULL, &bench.err);
    if (status == OCTET_OK)
        status = oct_backend_backward(&product, &s->lhs.array, &s->rhs.array, &s->sizes,
                                      &s->cotangent, &s->lhs_grad, &s->rhs_grad, NULL, &bench.err);
    oct_residence_destroy(product.residence);
    return status;
}

static const enum octet_status statuses[] = {OCTET_UNAVAILABLE, OCTET_RESOURCE_EXHAUSTED,
                                             OCTET_INTERNAL};

/* Each call of the driver fails in its turn: once, or from then on for a while. A lack of memory
 * may be overcome by what gives way; else the step fails as the driver did. The next one has the
 * right bits. */
START_TEST(every_call_fails_once)
{
    enum octet_status failure = statuses[_i % 3];
    const struct octet_rule *rule = bench_rule(&fp8);
    struct step right, s;
    int64_t failures = 0;

    int64_t buffers = counts.live_buffers;
    octet_backend *backend = device_open_another(NULL);
    make_step(&right, rule, _i / 3 % 2);
    bench_ok(run_step(backend, &right));
    for (int64_t n = 1;; n++) {
        oct_memory_end(backend); /* as new: nothing there, nothing free */
        ck_assert_int_eq(counts.live_buffers, buffers);
        make_step(&s, rule, _i / 3 % 2);
        snprintf(bench.label, sizeof bench.label, "case %d, call %lld", _i, (long long)n);
        counting_reset();
        counting_fail(n, _i / 6 ? 3 : 0, failure);
        enum octet_status status = run_step(backend, &s);
        counting_fail(0, 0, OCTET_OK);
        bool came = n <= counts.calls;
        if (status != OCTET_OK) {
            failures++;
            ck_assert_msg(status == failure, "%s: %s", bench.label, octet_status_name(status));
            ck_assert_int_eq(bench.err.status, failure);
        }
        bench_ok(run_step(backend, &s));
        check_same_bits(&right.out, &s.out, "out");
        check_same_bits(&right.lhs_grad, &s.lhs_grad, "lhs_grad");
        check_same_bits(&right.rhs_grad, &s.rhs_grad, "rhs_grad");
        if (!came)
            break;
        ck_assert_int_lt(n, 400);
    }
    octet_backend_close(backend);
    ck_assert_int_eq(counts.live_buffers, buffers);
    ck_assert_int_gt(failures, 20);
}
END_TEST

TCase *fault_tests(void)
{
    TCase *tests = tcase_create("faults");

    tcase_add_checked_fixture(tests, device_begin, bench_end);
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, every_call_fails_once, 0, SEEDS(8));
    return tests;
}
