/* Parameters: MaxText's layout outside, a layer's slice in one piece inside. A wrong stride would
 * show as numbers that change place between put and get, or in the slices. */
#include <stdlib.h>
#include <string.h>

#include "exec/parameters_private.h"
#include "fixture.h"

static struct fixture f;

static void begin(void)
{
    fixture_begin(&f);
}

static void end(void)
{
    fixture_end(&f);
}

static octet_parameters *make(enum octet_dtype dtype)
{
    octet_plan *plan =
        fixture_plan(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS, "scan_layers=true"));
    octet_parameters *parameters;

    ck_assert_ok(&f, octet_parameters_create(plan, dtype, &parameters, &f.err));
    octet_plan_unref(plan);
    return parameters;
}

/* A number that tells where it belongs. */
static uint32_t code(size_t i, size_t element)
{
    return (uint32_t)(i * 100003 + element);
}

static size_t elements(const octet_parameters *parameters, size_t i, size_t *width)
{
    const char *name;
    struct octet_array array;

    octet_parameters_describe(parameters, i, &name, &array);
    *width = octet_dtype_bytes(array.dtype);
    return (size_t)octet_array_elements(&array);
}

static void put_in_chunks(octet_parameters *parameters, size_t i, size_t chunk)
{
    size_t width, count = elements(parameters, i, &width);
    unsigned char *bytes = malloc(count * width);

    for (size_t e = 0; e < count; e++) {
        uint32_t value = code(i, e);
        memcpy(bytes + e * width, &value, width);
    }
    for (size_t at = 0; at < count; at += chunk) {
        size_t n = count - at < chunk ? count - at : chunk;
        ck_assert_ok(&f, octet_parameters_write(parameters, i, at * width, n * width,
                                                bytes + at * width, &f.err));
    }
    free(bytes);
}

static void check_in_chunks(const octet_parameters *parameters, size_t i, size_t chunk)
{
    size_t width, count = elements(parameters, i, &width);
    size_t wrong = 0;
    unsigned char *bytes = malloc(count * width);

    for (size_t at = 0; at < count; at += chunk) {
        size_t n = count - at < chunk ? count - at : chunk;
        ck_assert_ok(&f, octet_parameters_read(parameters, i, at * width, n * width,
                                               bytes + at * width, &f.err));
    }
    for (size_t e = 0; e < count; e++) {
        uint32_t value = code(i, e);
        wrong += memcmp(bytes + e * width, &value, width) != 0;
    }
    ck_assert_uint_eq(wrong, 0);
    free(bytes);
}

/* Element (outer o, layer l, inner r) of MaxText's array is (o, r) of slice l. */
static void check_slices(const octet_parameters *parameters, size_t i)
{
    const char *name;
    struct octet_array whole;
    octet_parameters_describe(parameters, i, &name, &whole);
    const struct octet_tensor *tensor = parameters->entries[i].tensor;
    int64_t layers = tensor->layers ? tensor->layers : 1, inner = 1;
    size_t width = octet_dtype_bytes(whole.dtype);

    for (int32_t axis = tensor->stack_axis; axis < tensor->shape.rank; axis++)
        inner *= tensor->shape.dim[axis];
    for (int64_t l = 0; l < layers; l++) {
        struct octet_array slice = oct_parameters_slice(parameters, i, l);
        int64_t count = octet_array_elements(&slice);
        size_t wrong = 0;
        ck_assert_int_eq(count * layers, octet_array_elements(&whole));
        for (int64_t e = 0; e < count; e++) {
            int64_t outside = tensor->layers ? (e / inner * layers + l) * inner + e % inner : e;
            uint32_t value = code(i, (size_t)outside);
            wrong += memcmp((char *)slice.data + (size_t)e * width, &value, width) != 0;
        }
        ck_assert_uint_eq(wrong, 0);
    }
}

START_TEST(chunks_of_any_size_keep_every_element_in_its_place)
{
    static const size_t chunks[] = {1, 5, 97, 1000, 4096, 1 << 20};
    enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};

    for (size_t t = 0; t < 2; t++)
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            octet_parameters *parameters = make(dtypes[t]);
            size_t stacked = 0;
            for (size_t i = 0; i < octet_parameters_count(parameters); i++) {
                put_in_chunks(parameters, i, chunks[c]);
                check_in_chunks(parameters, i, chunks[(c + 2) % 6]);
                check_slices(parameters, i);
                stacked += parameters->entries[i].layers > 1;
            }
            ck_assert_uint_gt(stacked, 5);
            octet_parameters_destroy(parameters);
        }
}
END_TEST

START_TEST(ranges_that_are_wrong_are_refused)
{
    octet_parameters *parameters = make(OCTET_DTYPE_UNSPECIFIED);
    size_t i = octet_parameters_find(parameters, "decoder/logits_dense/kernel");
    float number = 0;

    ck_assert_uint_ne(i, SIZE_MAX);
    ck_assert_uint_eq(octet_parameters_find(parameters, "decoder/logits_dense"), SIZE_MAX);
    static const uint64_t wrong[][2] = {
        {2, 4}, {0, 3}, {32 * 64 * 4, 4}, {UINT64_MAX - 3, 4}, {4, UINT64_MAX - 3}};
    for (size_t k = 0; k < 5; k++) {
        ck_assert_int_eq(
            octet_parameters_write(parameters, i, wrong[k][0], wrong[k][1], &number, &f.err),
            OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.field, "offset");
        ck_assert_int_eq(
            octet_parameters_read(parameters, i, wrong[k][0], wrong[k][1], &number, &f.err),
            OCTET_INVALID_ARGUMENT);
    }
    ck_assert_int_eq(octet_parameters_write(parameters, i, 0, 4, NULL, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "data");
    octet_parameters_destroy(parameters);
}
END_TEST

START_TEST(a_digest_tells_values_and_order_and_not_threads)
{
    octet_parameters *parameters = make(OCTET_DTYPE_F32);
    size_t i = octet_parameters_find(parameters, "token_embedder/embedding");
    char zero[33], one[33], other[33];
    float number = 1;

    octet_parameters_digest(parameters, zero);
    ck_assert_uint_eq(strlen(zero), 32);
    ck_assert_ok(&f, octet_parameters_write(parameters, i, 0, 4, &number, &f.err));
    octet_parameters_digest(parameters, one);
    ck_assert_str_ne(zero, one);
    struct oct_pool *pool = oct_pool_create(3);
    oct_parameters_digest(parameters, pool, other);
    oct_pool_destroy(pool);
    ck_assert_str_eq(one, other);
    octet_parameters_clear(parameters);
    ck_assert_ok(&f, octet_parameters_write(parameters, i, 4, 4, &number, &f.err));
    octet_parameters_digest(parameters, other);
    ck_assert_str_ne(one, other);
    octet_parameters_clear(parameters);
    octet_parameters_digest(parameters, other);
    ck_assert_str_eq(zero, other);
    octet_parameters_destroy(parameters);
}
END_TEST

START_TEST(what_was_dropped_is_not_read_and_comes_back_as_zeros)
{
    octet_parameters *parameters = make(OCTET_DTYPE_F32);
    size_t i = octet_parameters_find(parameters, "token_embedder/embedding");
    uint64_t bytes = octet_parameters_bytes(parameters);
    float number = 1;

    ck_assert_ok(&f, octet_parameters_write(parameters, i, 0, 4, &number, &f.err));
    oct_parameters_drop(parameters, i);
    ck_assert_uint_eq(octet_parameters_bytes(parameters), bytes - 64 * 32 * 4);
    ck_assert_int_eq(octet_parameters_read(parameters, i, 0, 4, &number, &f.err),
                     OCTET_FAILED_PRECONDITION);
    oct_parameters_take(parameters, i);
    ck_assert_ok(&f, octet_parameters_read(parameters, i, 0, 4, &number, &f.err));
    ck_assert_float_eq(number, 0);
    ck_assert_uint_eq(octet_parameters_bytes(parameters), bytes);
    octet_parameters_destroy(parameters);
}
END_TEST

TCase *parameters_tests(void)
{
    TCase *tests = tcase_create("parameters");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, chunks_of_any_size_keep_every_element_in_its_place);
    tcase_add_test(tests, ranges_that_are_wrong_are_refused);
    tcase_add_test(tests, a_digest_tells_values_and_order_and_not_threads);
    tcase_add_test(tests, what_was_dropped_is_not_read_and_comes_back_as_zeros);
    return tests;
}
