/* The safetensors writer: what it writes is read back, and a failure leaves the old file.
 *
 * What could break: data that is not aligned in the file, a name that is no JSON text, half a file
 * under the name of a whole one, a device that is replaced by a file. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "octet/safetensors.h"
#include "suites.h"

static octet_arena *arena;
static struct octet_error err;
static char folder[64], path[80];

static void setup(void)
{
    arena = octet_arena_create(16 * 1024 * 1024);
    memset(&err, 0, sizeof err);
    snprintf(folder, sizeof folder, "/tmp/octet-safetensors-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f.safetensors", folder);
}

/* Removes the folder; nothing but the file may be left in it. */
static void teardown(void)
{
    octet_arena_destroy(arena);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static struct octet_named_array named(const char *name, enum octet_dtype dtype, int32_t rank,
                                      const int64_t *dim)
{
    struct octet_named_array out = {.name = name};
    ck_assert(!octet_array_create(arena, dtype, rank, dim, &out.array, &err));
    uint8_t *bytes = out.array.data;
    bool nibbles = octet_dtype_bits(dtype) == 4;
    for (int64_t i = 0; i < octet_array_bytes(&out.array); i++)
        bytes[i] = (uint8_t)(nibbles ? (i * 5 + 3) % 16 : i * 7 + (int64_t)strlen(name));
    return out;
}

static enum octet_status write_one(const struct octet_named_array *array)
{
    return octet_safetensors_write(arena, path, array, 1, NULL, 0, &err);
}

static void check_same(const octet_safetensors *file, const struct octet_named_array *expected)
{
    const struct octet_named_array *got = octet_safetensors_find(file, expected->name);
    bool s4 = expected->array.dtype == OCTET_DTYPE_S4;

    ck_assert_msg(got != NULL, "%s", expected->name);
    ck_assert_int_eq(got->array.dtype, s4 ? OCTET_DTYPE_S8 : expected->array.dtype);
    ck_assert_int_eq(got->array.rank, expected->array.rank);
    ck_assert_int_eq(memcmp(got->array.dim, expected->array.dim, sizeof got->array.dim), 0);
    for (int64_t i = 0; i < octet_array_bytes(&expected->array); i++) {
        int value = ((const uint8_t *)expected->array.data)[i];
        /* The lower half counts; I8 has its sign. */
        ck_assert_int_eq(((const uint8_t *)got->array.data)[i],
                         s4 ? (uint8_t)(((value & 15) ^ 8) - 8) : value);
    }
}

START_TEST(all_types_are_read_back)
{
    static const int64_t dim[] = {3, 2, 5}, large[] = {300, 300}, none[] = {4, 0};
    static const struct octet_pair metadata[] = {{"z", "1\n\"\\\x7f"}, {"format", "\xc3\xa9"}};
    struct octet_named_array arrays[OCTET_DTYPE_COUNT + 4];
    char names[OCTET_DTYPE_COUNT][16];
    size_t count = 0;

    for (int dtype = 1; dtype < OCTET_DTYPE_COUNT; dtype++) {
        snprintf(names[dtype], sizeof names[dtype], "t%d", dtype);
        arrays[count++] = named(names[dtype], (enum octet_dtype)dtype, 3, dim);
    }
    arrays[count++] = named("\"quoted\\\n\x01\xf0\x9f\x98\x80", OCTET_DTYPE_U8, 0, NULL);
    arrays[count++] = named("large", OCTET_DTYPE_F4_E2M1FN, 2, large);
    arrays[count++] = named("", OCTET_DTYPE_F32, 2, none);
    ck_assert_msg(!octet_safetensors_write(arena, path, arrays, count, metadata, 2, &err), "%s",
                  err.text);

    const octet_safetensors *file;
    const struct octet_pair *pairs;
    ck_assert_msg(!octet_safetensors_open(arena, path, &file, &err), "%s: %s", err.field, err.text);
    ck_assert_uint_eq(octet_safetensors_count(file), count);
    for (size_t i = 0; i < count; i++)
        check_same(file, &arrays[i]);
    ck_assert_uint_eq(octet_safetensors_metadata(file, &pairs), 2);
    ck_assert_str_eq(pairs[0].key, "format");
    ck_assert_str_eq(pairs[0].value, metadata[1].value);
    ck_assert_str_eq(pairs[1].value, metadata[0].value);
    octet_safetensors_close(file);
}
END_TEST

START_TEST(arrays_are_aligned_and_files_repeat)
{
    static const int64_t one[] = {1}, two[] = {2};
    const struct octet_named_array arrays[] = {
        named("a", OCTET_DTYPE_U8, 1, one), named("b", OCTET_DTYPE_BF16, 1, one),
        named("c", OCTET_DTYPE_F32, 1, one), named("d", OCTET_DTYPE_S64, 1, two)};
    const struct octet_named_array turned[] = {arrays[3], arrays[1], arrays[0], arrays[2]};
    static const char expected[] =
        "{\"d\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[20,22]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[22,23]}}";
    char bytes[2][400];
    size_t size = 0;

    for (int i = 0; i < 2; i++) {
        ck_assert(!octet_safetensors_write(arena, path, i ? turned : arrays, 4, NULL, 0, &err));
        FILE *file = fopen(path, "rb");
        size = fread(bytes[i], 1, sizeof bytes[i], file);
        fclose(file);
    }
    ck_assert_int_eq(memcmp(bytes[0], bytes[1], size), 0);
    ck_assert_int_eq(memcmp(bytes[0] + 8, expected, sizeof expected - 1), 0);
    ck_assert_uint_eq((unsigned char)bytes[0][0] % 8, 0);
    ck_assert_uint_eq(size,
                      8 + (unsigned char)bytes[0][0] + 256u * (unsigned char)bytes[0][1] + 23);
}
END_TEST

START_TEST(nothing_is_a_file_too)
{
    const octet_safetensors *file;

    ck_assert(!octet_safetensors_write(arena, path, NULL, 0, NULL, 0, &err));
    ck_assert(!octet_safetensors_open(arena, path, &file, &err));
    ck_assert_uint_eq(octet_safetensors_count(file), 0);
    octet_safetensors_close(file);
}
END_TEST

START_TEST(arrays_that_no_file_can_hold_are_refused)
{
    static const int64_t one[] = {1};
    struct octet_named_array arrays[2] = {named("a", OCTET_DTYPE_U8, 1, one),
                                          named("a", OCTET_DTYPE_F32, 1, one)};
    static const struct octet_pair pairs[] = {{"k", "1"}, {"k", "2"}}, bad[] = {{"k", "\xff"}};

    ck_assert_int_eq(octet_safetensors_write(arena, path, arrays, 2, NULL, 0, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "tensors[a]");
    static const struct {
        const char *name;
        enum octet_dtype dtype;
        int64_t size;
        const char *field;
    } rows[] = {{"__metadata__", OCTET_DTYPE_U8, 1, "tensors[__metadata__]"},
                {"\xff", OCTET_DTYPE_U8, 1, "tensors[...]"},
                {"q", OCTET_DTYPE_F4_E2M1FN, 3, "tensors[q].shape"},
                {"q", OCTET_DTYPE_F32, INT64_MAX / 2, "tensors[q].shape"},
                {"q", OCTET_DTYPE_UNSPECIFIED, 0, "tensors[q].dtype"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arrays[0].name = rows[i].name;
        arrays[0].array.dtype = rows[i].dtype;
        arrays[0].array.dim[0] = rows[i].size;
        ck_assert_int_eq(write_one(&arrays[0]), OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(err.field, rows[i].field);
    }
    ck_assert_int_eq(octet_safetensors_write(arena, path, NULL, 0, pairs, 2, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "metadata");
    ck_assert_int_eq(octet_safetensors_write(arena, path, NULL, 0, bad, 1, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(only_files_are_replaced)
{
    static const char *const targets[] = {"/dev/null", "/tmp", "/nothing/x", "/proc/x"};
    static const int64_t one[] = {1};
    const struct octet_named_array array = named("a", OCTET_DTYPE_U8, 1, one);
    struct stat about;

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        ck_assert_int_ne(octet_safetensors_write(arena, targets[i], &array, 1, NULL, 0, &err),
                         OCTET_OK);
        ck_assert_str_eq(err.field, "path");
        ck_assert_ptr_nonnull(strstr(err.text, targets[i]));
    }
    ck_assert(stat("/dev/null", &about) == 0 && S_ISCHR(about.st_mode));
    ck_assert(!write_one(&array));
    ck_assert(stat(path, &about) == 0);
    mode_t mask = umask(0);
    umask(mask);
    ck_assert_uint_eq(about.st_mode & 0777, 0666 & ~mask);
}
END_TEST

START_TEST(a_symbolic_link_stays_one)
{
    static const int64_t one[] = {1};
    const struct octet_named_array array = named("a", OCTET_DTYPE_U8, 1, one);
    char link[100];
    struct stat about;

    snprintf(link, sizeof link, "%s/link", folder);
    ck_assert(!octet_safetensors_write(arena, path, NULL, 0, NULL, 0, &err));
    ck_assert_int_eq(symlink("f.safetensors", link), 0);
    ck_assert(!octet_safetensors_write(arena, link, &array, 1, NULL, 0, &err));
    ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
    ck_assert(stat(path, &about) == 0 && about.st_size > 16);
    ck_assert_int_eq(unlink(link), 0);
}
END_TEST

START_TEST(every_failed_allocation_leaves_the_old_file)
{
    static const int64_t one[] = {1};
    const struct octet_named_array array = named("a", OCTET_DTYPE_U8, 1, one);
    struct octet_pair pair = {"k", "v"};
    enum octet_status status;
    struct stat about;
    size_t failed = 0;

    ck_assert(!octet_safetensors_write(arena, path, NULL, 0, NULL, 0, &err));
    do {
        ck_assert(stat(path, &about) == 0 && about.st_size == 16);
        octet_arena_fail_at(arena, failed + 1);
        status = octet_safetensors_write(arena, path, &array, 1, &pair, 1, &err);
        if (status != OCTET_OK)
            ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        failed++;
    } while (status != OCTET_OK);
    ck_assert_uint_ge(failed, 5);
}
END_TEST

TCase *safetensors_write_case(void)
{
    TCase *write = tcase_create("safetensors_write");

    tcase_add_checked_fixture(write, setup, teardown);
    tcase_add_test(write, all_types_are_read_back);
    tcase_add_test(write, arrays_are_aligned_and_files_repeat);
    tcase_add_test(write, nothing_is_a_file_too);
    tcase_add_test(write, arrays_that_no_file_can_hold_are_refused);
    tcase_add_test(write, only_files_are_replaced);
    tcase_add_test(write, a_symbolic_link_stays_one);
    tcase_add_test(write, every_failed_allocation_leaves_the_old_file);
    return write;
}
