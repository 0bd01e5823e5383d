/* The device's memory, and several threads. What could break: a limit that is passed, a copy that
 * stays though its room is needed, a call that cannot be made after one that had no room, a
 * compiled program that is not whole, a race. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

static const struct octet_rule fp8 = {
    .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};

static enum octet_status multiply(octet_backend *backend, const struct octet_compute *compute,
                                  const struct octet_rule *rule, const struct octet_array *x,
                                  const struct octet_array *w, struct octet_product *out,
                                  struct octet_error *err)
{
    struct octet_operand lhs = plain(*x), rhs = plain(*w);
    struct octet_product_options options = {.rule = rule};

    return octet_backend_dot_general(backend, compute, &lhs, &rhs, &matmul_dims, &options, out,
                                     err);
}

START_TEST(limit_is_kept)
{
    octet_backend *small =
        device_open_another(&(struct octet_backend_options){.memory_limit_bytes = 256 << 10});
    struct dice dice = {1};
    const struct octet_rule *rule = bench_rule(&fp8);
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(16, 64));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(64, 16));
    struct octet_array wide = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(64, 2048));
    struct octet_product a, b;
    uint64_t held, peak;

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(multiply(small, &bench.compute, rule, &x, &wide, &a, &bench.err),
                         OCTET_RESOURCE_EXHAUSTED);
        ck_assert_ptr_nonnull(strstr(bench.err.text, "bytes more are needed"));
        bench_ok(multiply(small, &bench.compute, rule, &x, &w, &a, &bench.err));
        bench_ok(multiply(device, &bench.compute, rule, &x, &w, &b, &bench.err));
        check_same_bits(&b.out, &a.out, "out");
    }
    octet_backend_memory(small, &held, &peak);
    ck_assert_uint_le(peak, 256 << 10);
    ck_assert_uint_gt(peak, 0);
    octet_backend_close(small);
}
END_TEST

/* More arrays under keys than there is room for: the oldest go, and come again when asked for. */
START_TEST(oldest_copies_go)
{
    octet_backend *small =
        device_open_another(&(struct octet_backend_options){.memory_limit_bytes = 512 << 10});
    struct dice dice = {1};
    struct oct_matmul matmul = {.dims = matmul_dims, .rule = bench_rule(&fp8)};
    struct octet_array w[12], out = array_zero(OCTET_DTYPE_F32, 2, DIMS(8, 64)), expected[12];
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(8, 256)));
    oct_residence *residence;
    uint64_t peak;

    bench_ok(oct_residence_create(small, NULL, &residence, &bench.err));
    for (int i = 0; i < 12; i++)
        w[i] = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(256, 64)); /* 64 KiB, and codes */
    for (int i = 0; i < 36; i++) {
        struct oct_backend_product product = {.compute = &bench.compute,
                                              .matmul = &matmul,
                                              .residence = residence,
                                              .lhs = 100,
                                              .rhs = (uint64_t)(i % 12) + 1};
        struct octet_operand rhs = plain(w[i % 12]);
        if (i < 12) {
            expected[i] = array_zero(OCTET_DTYPE_F32, 2, DIMS(8, 64));
            bench_ok(oct_matmul_forward(&bench.compute, &matmul, &lhs, &rhs, NULL, &expected[i],
                                        NULL, 0, NULL, &bench.err));
        }
        bench_ok(oct_backend_forward(&product, &lhs, &rhs, NULL, &out, NULL, &bench.err));
        check_same_bits(&expected[i % 12], &out, "out");
    }
    octet_backend_memory(small, NULL, &peak);
    ck_assert_uint_le(peak, 512 << 10);
    oct_residence_destroy(residence);
    octet_backend_close(small);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 6 };

struct turns {
    const struct octet_rule *rule;
    const struct octet_array *x, *w, *expected;
    octet_workers *workers;
    oct_residence *parent;
    int wrong;
};

static bool one_turn(const struct turns *t, oct_residence *residence,
                     const struct octet_compute *compute)
{
    struct oct_matmul matmul = {.dims = matmul_dims, .rule = t->rule};
    struct oct_backend_product product = {.compute = compute,
                                          .matmul = &matmul,
                                          .residence = residence,
                                          .lhs = 1,
                                          .rhs = OCT_RESIDENCE_SHARED | 7};
    struct octet_operand lhs = plain(*t->x), rhs = plain(*t->w);
    struct octet_array out;
    struct octet_error err;

    return octet_array_create(compute->arena, t->expected->dtype, t->expected->rank,
                              t->expected->dim, &out, &err) == OCTET_OK &&
           oct_backend_forward(&product, &lhs, &rhs, NULL, &out, NULL, &err) == OCTET_OK &&
           memcmp(out.data, t->expected->data, (size_t)octet_array_bytes(&out)) == 0;
}

static void *take_turns(void *user)
{
    struct turns *t = user;
    struct octet_error err;

    for (int i = 0; i < TURNS; i++) {
        octet_arena *arena = octet_arena_create((size_t)64 << 20);
        struct octet_compute compute = {.arena = arena, .workers = t->workers};
        oct_residence *residence = NULL;
        if (!arena || oct_residence_create(device, t->parent, &residence, &err) != OCTET_OK ||
            !one_turn(t, residence, &compute) || !one_turn(t, residence, &compute))
            t->wrong++;
        oct_residence_destroy(residence);
        octet_arena_destroy(arena);
    }
    return NULL;
}

START_TEST(threads_share_weights)
{
    struct dice dice = {3};
    const struct octet_rule *rule = bench_rule(&fp8);
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(33, 300));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(300, 65));
    struct octet_operand lhs = plain(x), rhs = plain(w);
    struct octet_product_options options = {.rule = rule};
    struct octet_product expected;
    struct turns turns[THREADS];
    pthread_t threads[THREADS];
    oct_residence *parent;

    bench_ok(octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &options, &expected,
                               &bench.err));
    bench_ok(oct_residence_create(device, NULL, &parent, &bench.err));
    for (int i = 0; i < THREADS; i++) {
        turns[i] = (struct turns){
            .rule = rule, .x = &x, .w = &w, .expected = &expected.out, .parent = parent};
        bench_ok(octet_workers_create(NULL, 1, &turns[i].workers, &bench.err));
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_turns, &turns[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        octet_workers_destroy(turns[i].workers);
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(turns[i].wrong, 0);
    oct_residence_destroy(parent);
}
END_TEST

/* ---- compiled programs ---- */

static bool only_file(const char *directory, char *path, size_t size)
{
    char command[256];

    snprintf(command, sizeof command, "ls %s/*.bin 2>/dev/null | head -1", directory);
    FILE *list = popen(command, "r");
    bool found = list && fgets(path, (int)size, list);
    if (list)
        pclose(list);
    if (found)
        path[strcspn(path, "\n")] = 0;
    return found;
}

static void check_works(octet_backend *backend)
{
    struct dice dice = {1};
    const struct octet_rule *rule = bench_rule(&fp8);
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(3, 64));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(64, 5));
    struct octet_product a, b;

    bench_ok(multiply(backend, &bench.compute, rule, &x, &w, &a, &bench.err));
    bench_ok(multiply(device, &bench.compute, rule, &x, &w, &b, &bench.err));
    check_same_bits(&b.out, &a.out, "out");
}

/* Found, cut off, overwritten, in a directory that is not there: it works. */
START_TEST(programs_are_kept)
{
    char directory[] = "/tmp/octet-programs-XXXXXX", path[128];
    struct octet_backend_options options = {.cache_directory = mkdtemp(directory)};
    octet_backend *backend = device_open_another(&options);

    ck_assert_ptr_nonnull(options.cache_directory);
    octet_backend_close(backend);
    bool found = only_file(directory, path, sizeof path);
    for (int i = 0; i < 3 && found; i++) {
        if (i == 1)
            ck_assert_int_eq(truncate(path, 200), 0);
        if (i == 2) {
            FILE *file = fopen(path, "r+b");
            ck_assert_ptr_nonnull(file);
            fseek(file, 100, SEEK_SET);
            fputs("something else", file);
            fclose(file);
        }
        backend = device_open_another(&options);
        check_works(backend);
        octet_backend_close(backend);
    }
    if (found)
        unlink(path);
    rmdir(directory);
    backend = device_open_another(&options);
    check_works(backend);
    octet_backend_close(backend);
}
END_TEST

START_TEST(unknown_names)
{
    octet_backend *backend;
    struct octet_backend_options options = {.device = "99"};

    bench_refused(octet_backend_open("abacus", NULL, &backend, &bench.err), "backend", "opencl");
    bench_refused(
        octet_backend_open(octet_backend_facts(device)->name, &options, &backend, &bench.err),
        "device", "99");
}
END_TEST

TCase *memory_tests(void)
{
    TCase *tests = tcase_create("memory");

    tcase_add_checked_fixture(tests, device_begin, bench_end);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, limit_is_kept);
    tcase_add_test(tests, oldest_copies_go);
    tcase_add_test(tests, threads_share_weights);
    tcase_add_test(tests, programs_are_kept);
    tcase_add_test(tests, unknown_names);
    return tests;
}
