/* Sets and workers: names, obstacles, errors.
 * What could break: a set handed out that the CPU cannot run (SIGILL), an error without its field.
 */
#include <math.h>

#include "kernels/gemm_private.h"
#include "octet/workers.h"
#include "unit/kernels/fixture.h"

START_TEST(the_list_is_known_by_name)
{
    size_t count = 0;

#define COUNT(name, needs)                                                                         \
    ck_assert_str_eq(octet_kernel_set_name(count), #name);                                         \
    ck_assert_ptr_eq(oct_kernels_at(count), &oct_kernels_##name);                                  \
    count++;
    OCT_KERNEL_SETS(COUNT)
#undef COUNT
    ck_assert_ptr_null(octet_kernel_set_name(count));
    ck_assert_ptr_null(oct_kernels_at(count));
    ck_assert_ptr_nonnull(octet_kernel_set_obstacle(count));
    ck_assert_ptr_null(octet_kernel_set_obstacle(0)); /* scalar runs everywhere */
    for (size_t i = 0; octet_cpu_feature(i); i++)
        ck_assert_uint_lt(i, OCT_CPU_FEATURE_COUNT);
}
END_TEST

START_TEST(the_best_set_is_the_default)
{
    const struct oct_kernels *best = NULL;

    for (size_t i = 0; octet_kernel_set_name(i); i++) {
        const char *obstacle = NULL;
        const struct oct_kernels *found = oct_kernels_find(octet_kernel_set_name(i), &obstacle);
        ck_assert(found == set_at(i));
        ck_assert(found || obstacle);
        /* A set that was refused at its trial: a fault of ours, or a CPU to be told about. */
        if (obstacle)
            ck_assert_msg(strncmp(obstacle, "the CPU lacks ", 14) == 0, "%s: %s",
                          octet_kernel_set_name(i), obstacle);
        best = found ? found : best;
    }
    ck_assert_ptr_eq(oct_kernels_find(NULL, NULL), best);
    ck_assert_ptr_eq(oct_kernels_find("", NULL), best);
    ck_assert_ptr_null(oct_kernels_find("avx3", NULL));
}
END_TEST

/* One row by 16 columns, as VDPBF16PS would add if it took the even k first. */
static void tile_in_another_order(size_t pairs, const void *a, const void *b, size_t panel_bytes,
                                  float *tile)
{
    const uint32_t *row = a, *column = b;

    (void)panel_bytes;
    for (size_t c = 0; c < 16; c++) {
        tile[c] = 0;
        for (size_t p = 0; p < pairs; p++) {
            uint32_t x = row[p], y = column[p * 16 + c];
            tile[c] = fmaf(float_of(x << 16), float_of(y << 16), tile[c]);
            tile[c] = fmaf(float_of(x & 0xffff0000u), float_of(y & 0xffff0000u), tile[c]);
        }
    }
}

static void pack_nothing(const struct oct_gemm_view *view, size_t first, size_t count, size_t width,
                         void *panel, struct oct_gemm_scratch *scratch)
{
    (void)view, (void)first, (void)count, (void)width, (void)panel, (void)scratch;
}

START_TEST(another_order_is_noticed)
{
    struct oct_gemm_kernels gemm = {.bf16 = {.row_width = 1,
                                             .column_width = 16,
                                             .pack = pack_nothing,
                                             .narrow = {[1] = tile_in_another_order}}};
    struct oct_kernels kernels = {.name = "other", .gemm = &gemm};

    ck_assert(!oct_kernels_add_in_order(&kernels));
    gemm.bf16.pack = NULL; /* no such path */
    ck_assert(oct_kernels_add_in_order(&kernels));
    for (size_t i = 0; octet_kernel_set_name(i); i++)
        ck_assert(!set_at(i) || oct_kernels_add_in_order(set_at(i)));
}
END_TEST

START_TEST(workers_say_what_is_wrong)
{
    octet_workers *workers = NULL;
    struct octet_error err;

    ck_assert_int_eq(octet_workers_create("avx3", 1, &workers, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "kernels");
    ck_assert_ptr_nonnull(strstr(err.text, "avx3"));
    ck_assert_ptr_null(workers);
    ck_assert_int_eq(octet_workers_create("scalar", -1, &workers, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "threads");
    ck_assert_int_eq(octet_workers_create("scalar", 1000000, &workers, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_int_eq(octet_workers_create("scalar", 3, &workers, &err), OCTET_OK);
    ck_assert_str_eq(octet_workers_kernels(workers), "scalar");
    ck_assert_int_eq(octet_workers_threads(workers), 3);
    octet_workers_destroy(workers);
    ck_assert_int_eq(octet_workers_create(NULL, 0, &workers, &err), OCTET_OK);
    ck_assert_int_ge(octet_workers_threads(workers), 1);
    octet_workers_destroy(workers);
    octet_workers_destroy(NULL);
}
END_TEST

void add_find_tests(Suite *suite)
{
    TCase *tests = tcase_create("find");

    tcase_add_test(tests, the_list_is_known_by_name);
    tcase_add_test(tests, the_best_set_is_the_default);
    tcase_add_test(tests, another_order_is_noticed);
    tcase_add_test(tests, workers_say_what_is_wrong);
    suite_add_tcase(suite, tests);
}
