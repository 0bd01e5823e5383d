/* No memory, and no more time. What could break: a pointer that nobody checked, a piece that nobody
 * frees (under AddressSanitizer), a status that tells of something else, work that goes on after it
 * was cancelled. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fixture.h"

/* ---- allocations that fail ---- */

/* The linker sends all allocations of the program through these; see CMakeLists.txt. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static unsigned long fail_from; /* the n-th from now and all later ones fail; 0: none */

static bool fails(void)
{
    return fail_from && (fail_from == 1 || --fail_from == 0);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* ---- one call of each op, forward and backward ---- */

struct inputs {
    struct octet_operand x, w, matrices, codes, image, kernel;
    struct octet_array g, sizes, wide;
    struct octet_product_options options;
};

static void make_inputs(const struct octet_rule *rule, struct inputs *in)
{
    struct dice dice = {1};
    struct octet_quantize_options how = {.qtype = "int8",
                                         .calibration_method = "minmax",
                                         .channelwise_axes = (const int32_t[]){0},
                                         .channelwise_axis_count = 1};
    struct octet_quantized q;

    in->x = plain(array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(6, 256)));
    in->w = plain(array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(256, 5)));
    in->matrices = plain(array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(2, 256, 5)));
    in->image = plain(array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(2, 9, 4)));
    in->kernel = plain(array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(3, 4, 5)));
    in->g = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(6, 5));
    in->wide = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(5, 6));
    in->sizes = sizes_of(2, (const int32_t[]){2, 3});
    bench_ok(octet_quantize(&bench.compute, &in->x.array, &how, &q, &bench.err));
    in->codes = quantized(q);
    in->options =
        (struct octet_product_options){.rule = rule, .cotangent = &in->g, .numerics = true};
}

static enum octet_status call_quantize(const struct inputs *in, const struct octet_compute *c)
{
    static const char *const qtypes[] = {"float8_e4m3fn", "int8", "nvfp4"};
    static const char *const methods[] = {"rms,3", "minmax", "absmax,0.5"};
    struct octet_quantized q;
    struct octet_array back;
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 3 && status == OCTET_OK; i++) {
        struct octet_quantize_options how = {.qtype = qtypes[i],
                                             .calibration_method = methods[i],
                                             .channelwise_axes = (const int32_t[]){0},
                                             .channelwise_axis_count = 1,
                                             .tiled_axes = &(struct octet_tiled_axis){1, "16"},
                                             .tiled_axis_count = 1,
                                             .scale_dtype = OCTET_DTYPE_F32};
        status = octet_quantize(c, &in->x.array, &how, &q, &bench.err);
    }
    if (status == OCTET_OK)
        status = octet_dequantize(c, &in->codes.quantized, OCTET_DTYPE_F32, &back, &bench.err);
    return status;
}

static enum octet_status call_dot(const struct inputs *in, const struct octet_compute *c)
{
    struct octet_product out;

    return octet_dot_general(c, &in->x, &in->w, &matmul_dims, &in->options, &out, &bench.err);
}

static enum octet_status call_dot_of_codes(const struct inputs *in, const struct octet_compute *c)
{
    struct octet_product_options options = in->options;
    struct octet_product out;

    options.rule = NULL;
    return octet_dot_general(c, &in->codes, &in->w, &matmul_dims, &options, &out, &bench.err);
}

static enum octet_status call_ragged(const struct inputs *in, const struct octet_compute *c)
{
    struct octet_product out;

    return octet_ragged_dot(c, &in->x, &in->matrices, &in->sizes, false, OCTET_RAGGED_DOT,
                            &in->options, &out, &bench.err);
}

static enum octet_status call_gmm(const struct inputs *in, const struct octet_compute *c)
{
    struct octet_product out;

    return octet_ragged_dot(c, &in->x, &in->matrices, &in->sizes, false, OCTET_GMM, &in->options,
                            &out, &bench.err);
}

static enum octet_status call_einsum(const struct inputs *in, const struct octet_compute *c)
{
    struct octet_product_options options = in->options;
    struct octet_product out;

    options.cotangent = &in->wide;
    return octet_einsum(c, "mk,kn->nm", &in->x, &in->w, &options, &out, &bench.err);
}

static enum octet_status call_conv(const struct inputs *in, const struct octet_compute *c)
{
    static const struct octet_conv_options conv = {.spatial_count = 1,
                                                   .stride = {1},
                                                   .padding_low = {1},
                                                   .padding_high = {1},
                                                   .lhs_dilation = {1},
                                                   .rhs_dilation = {1},
                                                   .feature_groups = 1};
    struct octet_product_options options = in->options;
    struct octet_rule rule = {.weight_qtype = "int8", .act_qtype = "int8"};
    struct octet_product out;

    options.cotangent = NULL;
    options.rule = options.rule ? bench_rule(&rule) : NULL;
    enum octet_status status =
        octet_conv(c, &in->image, &in->kernel, &conv, &options, &out, &bench.err);
    if (options.rule)
        octet_rules_unref(bench.rules[--bench.rules_count]);
    return status;
}

typedef enum octet_status call_of(const struct inputs *in, const struct octet_compute *c);
static call_of *const calls[] = {call_quantize, call_dot, call_dot_of_codes,
                                 call_ragged,   call_gmm, call_einsum};
enum { CALLS = sizeof calls / sizeof *calls };

static const struct octet_rule rules[] = {
    {.weight_qtype = ""},
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .tile_size = "128",
     .bwd_weight_grad_tile_size = "3"},
    {.weight_qtype = "int8",
     .act_qtype = "int8",
     .weight_calibration_method = "minmax",
     .act_calibration_method = "rms,2",
     .sparsity = {.n = 2, .m = 4}},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .act_static_scale = true}};
enum { RULES = sizeof rules / sizeof *rules };

static void expect_exhausted(enum octet_status status, const char *how, uint64_t n)
{
    if (status == OCTET_RESOURCE_EXHAUSTED && bench.err.status == OCTET_RESOURCE_EXHAUSTED &&
        bench.err.text[0])
        return;
    ck_abort_msg("%s %llu: %s: %s: %s", how, (unsigned long long)n, octet_status_name(status),
                 bench.err.field, bench.err.text);
}

/* The arena's n-th allocation fails, for every n until the call has none left to fail. */
START_TEST(every_allocation_may_fail)
{
    struct inputs in;
    call_of *call = calls[_i % CALLS];
    enum octet_status status = OCTET_UNKNOWN;
    uint64_t n = 1;

    make_inputs(bench_rule(&rules[_i / CALLS]), &in);
    for (; status != OCTET_OK; n++) {
        struct octet_compute c = bench.compute;
        c.arena = octet_arena_create(1 << 26);
        octet_arena_fail_at(c.arena, n);
        status = call(&in, &c);
        if (status != OCTET_OK)
            expect_exhausted(status, "allocation", n);
        octet_arena_destroy(c.arena);
    }
    ck_assert_uint_gt(n, 5);
    ck_assert_uint_lt(n, 2000);
}
END_TEST

/* The same with malloc, calloc and aligned_alloc under the library, which stay failed. */
START_TEST(every_malloc_may_fail)
{
    struct inputs in;
    call_of *call = calls[_i % CALLS];
    enum octet_status status = OCTET_UNKNOWN;
    unsigned long n = 1;

    make_inputs(bench_rule(&rules[_i / CALLS]), &in);
    for (; status != OCTET_OK; n++) {
        struct octet_compute c = bench.compute;
        c.arena = octet_arena_create(1 << 26);
        fail_from = n;
        status = call(&in, &c);
        fail_from = 0;
        if (status != OCTET_OK)
            expect_exhausted(status, "malloc", n);
        octet_arena_destroy(c.arena);
    }
    ck_assert_uint_gt(n, 1);
}
END_TEST

/* An arena that is too small, by less and less. */
START_TEST(a_budget_may_be_too_small)
{
    struct inputs in;
    call_of *call = calls[_i % CALLS];
    enum octet_status status = OCTET_UNKNOWN;

    make_inputs(bench_rule(&rules[_i / CALLS]), &in);
    for (size_t budget = 64; status != OCTET_OK; budget += budget / 8) {
        struct octet_compute c = bench.compute;
        c.arena = octet_arena_create(budget);
        status = call(&in, &c);
        ck_assert_uint_le(octet_arena_held(c.arena), budget);
        if (status != OCTET_OK)
            expect_exhausted(status, "budget", budget);
        octet_arena_destroy(c.arena);
        ck_assert_uint_lt(budget, 1 << 26);
    }
}
END_TEST

START_TEST(a_convolution_may_run_out_of_memory)
{
    struct inputs in;
    enum octet_status status = OCTET_UNKNOWN;

    make_inputs(bench_rule(&rules[_i]), &in);
    for (uint64_t n = 1; status != OCTET_OK; n++) {
        struct octet_compute c = bench.compute;
        c.arena = octet_arena_create(1 << 26);
        octet_arena_fail_at(c.arena, n);
        status = call_conv(&in, &c);
        if (status != OCTET_OK)
            expect_exhausted(status, "allocation", n);
        octet_arena_destroy(c.arena);
        ck_assert_uint_lt(n, 1000);
    }
}
END_TEST

/* What an op needs only while it runs is given back: of a second call with the same result the
 * arena holds no more than the results. */
START_TEST(working_memory_is_given_back)
{
    struct inputs in;
    struct octet_compute c = bench.compute;

    make_inputs(bench_rule(&rules[1]), &in);
    c.arena = octet_arena_create(1 << 26);
    for (int i = 0; i < CALLS; i++) {
        octet_arena_reset(c.arena);
        bench_ok(calls[i](&in, &c));
        size_t once = octet_arena_held(c.arena);
        for (int k = 0; k < 10; k++)
            bench_ok(calls[i](&in, &c));
        ck_assert_uint_le(octet_arena_held(c.arena), 11 * once);
    }
    octet_arena_destroy(c.arena);
}
END_TEST

/* ---- cancellation ---- */

START_TEST(a_cancelled_call_computes_nothing)
{
    struct inputs in;
    struct octet_cancel cancel = {.deadline_ns = 0}, late = {.deadline_ns = 1};
    struct octet_compute c = bench.compute;

    make_inputs(bench_rule(&rules[1]), &in);
    bench_use((size_t)_i / CALLS);
    c.workers = bench.compute.workers;
    c.cancel = &cancel;
    ck_assert_int_eq(calls[_i % CALLS](&in, &c), OCTET_OK);
    atomic_store(&cancel.cancelled, true);
    ck_assert_int_eq(calls[_i % CALLS](&in, &c), OCTET_CANCELLED);
    ck_assert_int_eq(bench.err.status, OCTET_CANCELLED);
    c.cancel = &late;
    ck_assert_int_eq(calls[_i % CALLS](&in, &c), OCTET_DEADLINE_EXCEEDED);
    ck_assert_int_eq(bench.err.status, OCTET_DEADLINE_EXCEEDED);
}
END_TEST

struct canceller {
    struct octet_cancel *cancel;
    uint64_t set_ns;
};

static void *cancel_soon(void *user)
{
    struct canceller *canceller = user;
    struct timespec pause = {.tv_nsec = 30 * 1000000};

    nanosleep(&pause, NULL);
    canceller->set_ns = octet_now_ns();
    atomic_store(&canceller->cancel->cancelled, true);
    return NULL;
}

/* A product of some seconds (slower kernels) is left soon after another thread cancels it. How soon
 * is printed, as machines differ; the end of the product would be much later. */
START_TEST(a_running_call_is_cancelled)
{
    struct dice dice = {1};
    const int64_t m = 2048;
    struct octet_operand x = plain(array_zero(OCTET_DTYPE_F32, 2, DIMS(m, m)));
    struct octet_product_options options = {.rule = bench_rule(&rules[1]), .cotangent = &x.array};
    struct octet_cancel cancel = {.deadline_ns = 0};
    struct canceller canceller = {.cancel = &cancel};
    struct octet_product out;
    pthread_t thread;

    for (int64_t i = 0; i < m * m; i++)
        ((float *)x.array.data)[i] = (float)(roll(&dice) >> 40);
    bench_use((size_t)_i);
    bench.compute.cancel = &cancel;
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, &canceller), 0);
    enum octet_status status =
        octet_dot_general(&bench.compute, &x, &x, &matmul_dims, &options, &out, &bench.err);
    uint64_t end = octet_now_ns();
    pthread_join(thread, NULL);
    ck_assert_int_eq(status, OCTET_CANCELLED);
    printf("%s, %d threads: left %.1f ms after it was cancelled\n",
           octet_workers_kernels(bench.compute.workers),
           octet_workers_threads(bench.compute.workers), (double)(end - canceller.set_ns) / 1e6);
}
END_TEST

TCase *torture_tests(void)
{
    TCase *tests = tcase_create("torture");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_loop_test(tests, every_allocation_may_fail, 0, CALLS * RULES);
    tcase_add_loop_test(tests, every_malloc_may_fail, 0, CALLS * RULES);
    tcase_add_loop_test(tests, a_budget_may_be_too_small, 0, CALLS * RULES);
    tcase_add_loop_test(tests, a_convolution_may_run_out_of_memory, 0, 2);
    tcase_add_test(tests, working_memory_is_given_back);
    tcase_add_loop_test(tests, a_cancelled_call_computes_nothing, 0, 3 * CALLS);
    tcase_add_loop_test(tests, a_running_call_is_cancelled, 0, 3);
    return tests;
}
