/* Data types and arrays. What could break: a size that wraps round, a name that is not found. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "octet/octet.h"

START_TEST(a_dtype_is_found_by_its_name)
{
    static const struct {
        enum octet_dtype dtype;
        const char *name;
        size_t bytes;
    } rows[] = {{OCTET_DTYPE_F32, "float32", 4}, {OCTET_DTYPE_BF16, "bfloat16", 2},
                {OCTET_DTYPE_F16, "float16", 2}, {OCTET_DTYPE_F8_E4M3FN, "float8_e4m3fn", 1},
                {OCTET_DTYPE_S4, "int4", 1},     {OCTET_DTYPE_F4_E2M1FN, "float4_e2m1fn", 1},
                {OCTET_DTYPE_S32, "int32", 4},   {OCTET_DTYPE_S64, "int64", 8},
                {OCTET_DTYPE_BOOL, "bool", 1},   {OCTET_DTYPE_UNSPECIFIED, "", 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_str_eq(octet_dtype_name(rows[i].dtype), rows[i].name);
        ck_assert_uint_eq(octet_dtype_bytes(rows[i].dtype), rows[i].bytes);
        if (rows[i].dtype)
            ck_assert_int_eq(octet_dtype_find(rows[i].name), rows[i].dtype);
    }
    for (int d = 1; d < OCTET_DTYPE_COUNT; d++) {
        enum octet_dtype dtype = (enum octet_dtype)d;
        ck_assert_int_eq(octet_dtype_find(octet_dtype_name(dtype)), d);
        ck_assert_int_gt(octet_dtype_bits(dtype), 0);
    }
    ck_assert_int_eq(octet_dtype_find("float8"), OCTET_DTYPE_UNSPECIFIED);
    ck_assert_int_eq(octet_dtype_find(""), OCTET_DTYPE_UNSPECIFIED);
    ck_assert_str_eq(octet_dtype_name(OCTET_DTYPE_COUNT), "");
    ck_assert_int_eq(octet_dtype_bits((enum octet_dtype)99), 0);
}
END_TEST

START_TEST(an_array_counts_its_elements)
{
    struct octet_array one = {.dtype = OCTET_DTYPE_BF16};
    struct octet_array some = {.dtype = OCTET_DTYPE_F32, .rank = 3, .dim = {2, 3, 5}};
    struct octet_array none = {
        .dtype = OCTET_DTYPE_F32, .rank = 3, .dim = {INT64_MAX, INT64_MAX, 0}};
    struct octet_array vast = {.dtype = OCTET_DTYPE_U8, .rank = 2, .dim = {1LL << 32, 1LL << 31}};
    struct octet_array wide = {.dtype = OCTET_DTYPE_S64, .rank = 1, .dim = {1LL << 60}};

    ck_assert_int_eq(octet_array_elements(&one), 1);
    ck_assert_int_eq(octet_array_bytes(&one), 2);
    ck_assert_int_eq(octet_array_elements(&some), 30);
    ck_assert_int_eq(octet_array_bytes(&some), 120);
    ck_assert_int_eq(octet_array_elements(&none), 0);
    ck_assert_int_eq(octet_array_bytes(&none), 0);
    ck_assert_int_eq(octet_array_elements(&vast), INT64_MAX);
    ck_assert_int_eq(octet_array_bytes(&vast), INT64_MAX);
    ck_assert_int_eq(octet_array_elements(&wide), 1LL << 60);
    ck_assert_int_eq(octet_array_bytes(&wide), INT64_MAX);
}
END_TEST

START_TEST(a_shape_is_written_whole_or_cut)
{
    struct octet_array scalar = {.rank = 0}, some = {.rank = 2, .dim = {4, 8}};
    struct octet_array long_one = {.rank = 8,
                                   .dim = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                                           INT64_MAX, INT64_MAX, INT64_MAX}};
    char text[200], small[10], guarded[6] = "......";

    ck_assert_str_eq(octet_array_shape_text(&scalar, text, sizeof text), "[]");
    ck_assert_str_eq(octet_array_shape_text(&some, text, sizeof text), "[4, 8]");
    ck_assert_uint_eq(strlen(octet_array_shape_text(&long_one, text, sizeof text)), 8 * 21);
    ck_assert_uint_eq(strlen(octet_array_shape_text(&long_one, small, sizeof small)), 9);
    octet_array_shape_text(&some, guarded, 4);
    ck_assert_mem_eq(guarded, "[4,\0..", 6);
}
END_TEST

START_TEST(an_array_is_created_zeroed_or_refused)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    int64_t dim[9] = {3, 5, 1, 1, 1, 1, 1, 1, 1}, large[2] = {1LL << 40, 1LL << 40};
    struct octet_array array;
    struct octet_error err;

    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, dim, &array, &err), OCTET_OK);
    ck_assert_int_eq(array.rank, 2);
    ck_assert_int_eq(array.dim[1], 5);
    for (int i = 0; i < 15; i++)
        ck_assert_float_eq(((const float *)array.data)[i], 0);
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 8, dim, &array, &err), OCTET_OK);
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_S8, 0, NULL, &array, &err), OCTET_OK);
    ck_assert_int_eq(octet_array_elements(&array), 1);

    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 9, dim, &array, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "shape");
    ck_assert_ptr_nonnull(strstr(err.text, "9 dimensions; up to 8"));
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, -1, dim, &array, &err),
                     OCTET_INVALID_ARGUMENT);
    dim[1] = -5;
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, dim, &array, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "dimension 1 is -5"));
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, large, &array, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    large[1] = 1;
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, large, &array, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    large[1] = 0;
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, large, &array, &err), OCTET_OK);
    ck_assert_ptr_nonnull(array.data);
    octet_arena_destroy(arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tensor");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, a_dtype_is_found_by_its_name);
    tcase_add_test(tests, an_array_counts_its_elements);
    tcase_add_test(tests, a_shape_is_written_whole_or_cut);
    tcase_add_test(tests, an_array_is_created_zeroed_or_refused);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
