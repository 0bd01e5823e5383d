/* The safetensors reader: files of other programs, and files that want to hurt.
 *
 * What could break: a span that is used before it is checked (a read beyond the file; the bytes
 * here end where a sanitizer sees it), a type taken for its relative, a header that costs more
 * memory than a small multiple of itself, an allocation failure that goes unnoticed. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "octet/safetensors.h"
#include "suites.h"

enum { BUDGET = 64 * 1024 * 1024 };

static octet_arena *arena;
static struct octet_error err;

static void setup(void)
{
    arena = octet_arena_create(BUDGET);
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    octet_arena_destroy(arena);
}

/* A file of this header and so many bytes of data (1, 2, 3, ...), in a piece of exactly its size.
 */
static uint8_t *file_of(const char *header, size_t length, size_t data, size_t *size)
{
    uint64_t prefix = length;

    *size = sizeof prefix + length + data;
    uint8_t *bytes = malloc(*size);
    memcpy(bytes, &prefix, sizeof prefix);
    memcpy(bytes + sizeof prefix, header, length);
    for (size_t i = 0; i < data; i++)
        bytes[sizeof prefix + length + i] = (uint8_t)(i + 1);
    return bytes;
}

static const octet_safetensors *parse(const char *header, size_t data, uint8_t **bytes)
{
    const octet_safetensors *file = NULL;
    size_t size;

    *bytes = file_of(header, strlen(header), data, &size);
    ck_assert_msg(!octet_safetensors_parse(arena, *bytes, size, &file, &err), "%s: %s: %s", header,
                  err.field, err.text);
    return file;
}

static void refused_bytes(const char *header, size_t length, size_t data, const char *field,
                          const char *why)
{
    const octet_safetensors *file;
    size_t size;
    uint8_t *bytes = file_of(header, length, data, &size);

    ck_assert_msg(octet_safetensors_parse(arena, bytes, size, &file, &err) ==
                      OCTET_INVALID_ARGUMENT,
                  "%s", header);
    ck_assert_msg(strcmp(err.field, field) == 0, "%s: field '%s', not '%s'", header, err.field,
                  field);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s: '%s' does not say '%s'", header, err.text,
                  why);
    free(bytes);
}

static void refused(const char *header, size_t data, const char *field, const char *why)
{
    refused_bytes(header, strlen(header), data, field, why);
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

START_TEST(arrays_have_their_type_shape_and_bytes)
{
    static const struct {
        const char *name;
        enum octet_dtype dtype;
        int32_t rank;
        int64_t first_byte; /* of the file's data; -1: no elements */
    } expected[] = {
        {"a", OCTET_DTYPE_F8_E4M3FN, 1, 40},
        {"b", OCTET_DTYPE_F32, 2, 8},
        {"bool", OCTET_DTYPE_BOOL, 1, 50},
        {"empty", OCTET_DTYPE_F32, 2, -1},
        {"i8", OCTET_DTYPE_S8, 1, 46},
        {"long", OCTET_DTYPE_S64, 0, 0},
        {"scale", OCTET_DTYPE_F8_E8M0FNU, 1, 48},
        {"u", OCTET_DTYPE_U8, 1, 52},
        {"w", OCTET_DTYPE_BF16, 1, 36},
        {"x", OCTET_DTYPE_F16, 1, 32},
        {"y", OCTET_DTYPE_F8_E5M2, 2, 42},
        {"z", OCTET_DTYPE_S32, 1, 28},
    };
    uint8_t *bytes;
    const octet_safetensors *file = parse(
        "{" TENSOR("y", "F8_E5M2", "[2,2]", "42", "46") "," TENSOR("long", "I64", "[]", "0", "8") "," TENSOR("b", "F32", "[5,1]", "8", "28") "," TENSOR(
            "z", "I32", "[1]", "28",
            "32") "," TENSOR("x", "F16", "[2]", "32",
                             "36") "," TENSOR("w", "BF16", "[2]", "36",
                                              "40") "," TENSOR("a", "F8_E4M3", "[2]", "40",
                                                               "42") "," TENSOR("i8", "I8", "[2]",
                                                                                "46",
                                                                                "48") "," TENSOR("s"
                                                                                                 "c"
                                                                                                 "a"
                                                                                                 "l"
                                                                                                 "e",
                                                                                                 "F"
                                                                                                 "8"
                                                                                                 "_"
                                                                                                 "E"
                                                                                                 "8"
                                                                                                 "M"
                                                                                                 "0",
                                                                                                 "["
                                                                                                 "2"
                                                                                                 "]",
                                                                                                 "4"
                                                                                                 "8",
                                                                                                 "5"
                                                                                                 "0") "," TENSOR("bool",
                                                                                                                 "BOOL",
                                                                                                                 "[2]",
                                                                                                                 "50",
                                                                                                                 "52") "," TENSOR("u",
                                                                                                                                  "U8",
                                                                                                                                  "[2]",
                                                                                                                                  "52",
                                                                                                                                  "54") "," TENSOR("empty",
                                                                                                                                                   "F32",
                                                                                                                                                   "[0,7]",
                                                                                                                                                   "54",
                                                                                                                                                   "54") "} ",
        54, &bytes);
    size_t count = sizeof expected / sizeof *expected;

    ck_assert_uint_eq(octet_safetensors_count(file), count);
    ck_assert_ptr_null(octet_safetensors_get(file, count));
    for (size_t i = 0; i < count; i++) {
        const struct octet_named_array *got = octet_safetensors_get(file, i);
        ck_assert_str_eq(got->name, expected[i].name);
        ck_assert_ptr_eq(octet_safetensors_find(file, got->name), got);
        ck_assert_int_eq(got->array.dtype, expected[i].dtype);
        ck_assert_int_eq(got->array.rank, expected[i].rank);
        ck_assert_ptr_nonnull(got->array.data);
        ck_assert_uint_eq((uintptr_t)got->array.data % octet_dtype_bytes(got->array.dtype), 0);
        if (expected[i].first_byte >= 0)
            ck_assert_int_eq(*(uint8_t *)got->array.data, expected[i].first_byte + 1);
    }
    ck_assert_int_eq(octet_safetensors_find(file, "b")->array.dim[0], 5);
    ck_assert_ptr_null(octet_safetensors_find(file, "c"));
    ck_assert_ptr_null(octet_safetensors_find(file, ""));
    free(bytes);
}
END_TEST

START_TEST(numbers_of_four_bits_are_unpacked_low_half_first)
{
    uint8_t *bytes;
    const octet_safetensors *file =
        parse("{" TENSOR("q", "F4", "[2,16]", "0", "16") "}", 16, &bytes);
    const struct octet_array *q = &octet_safetensors_find(file, "q")->array;

    ck_assert_int_eq(q->dtype, OCTET_DTYPE_F4_E2M1FN);
    ck_assert_int_eq(octet_array_bytes(q), 32);
    for (int i = 0; i < 32; i++)
        ck_assert_int_eq(((uint8_t *)q->data)[i], i % 2 ? (i / 2 + 1) >> 4 : (i / 2 + 1) & 15);
    free(bytes);
    refused("{" TENSOR("q", "F4", "[3]", "0", "2") "}", 2, "tensors[q].shape", "odd number");
}
END_TEST

START_TEST(names_are_texts_of_json)
{
    uint8_t *bytes;
    const octet_safetensors *file = parse(
        "{" TENSOR("\\u00e9\\\"\\\\\\/\\n\\ud83d\\uDE00", "U8", "[1]", "0",
                   "1") ",\n\t"
                        "\"\xc3\xa9t\xc3\xa9\" : { \"\\u0064type\":\"U8\", \"shape\" : [ 1 ] ,"
                        "\"data_offsets\":[1 , 2]}\r\n}  ",
        2, &bytes);

    ck_assert_ptr_nonnull(octet_safetensors_find(file, "\xc3\xa9\"\\/\n\xf0\x9f\x98\x80"));
    ck_assert_ptr_nonnull(octet_safetensors_find(file, "\xc3\xa9t\xc3\xa9"));
    free(bytes);
}
END_TEST

START_TEST(metadata_are_pairs_in_order_of_keys)
{
    const struct octet_pair *pairs;
    uint8_t *bytes;
    const octet_safetensors *file =
        parse("{\"__metadata__\":{\"format\":\"pt\",\"case\":\"{\\\"seed\\\": 1}\",\"\":\"\"}}", 0,
              &bytes);

    ck_assert_uint_eq(octet_safetensors_count(file), 0);
    ck_assert_uint_eq(octet_safetensors_metadata(file, &pairs), 3);
    ck_assert_str_eq(pairs[0].key, "");
    ck_assert_str_eq(pairs[1].value, "{\"seed\": 1}");
    ck_assert_str_eq(pairs[2].key, "format");
    free(bytes);
    file = parse("{\"__metadata__\":{ }}", 0, &bytes);
    ck_assert_uint_eq(octet_safetensors_metadata(file, &pairs), 0);
    free(bytes);
}
END_TEST

START_TEST(unaligned_data_is_copied)
{
    static const char header[] =
        "{" TENSOR("b", "U8", "[1]", "0", "1") "," TENSOR("f", "F32", "[2]", "1", "9") "}";
    uint8_t *bytes;
    const octet_safetensors *file = parse(header, 9, &bytes);
    const struct octet_array *f = &octet_safetensors_find(file, "f")->array;

    ck_assert_uint_eq((uintptr_t)f->data % 4, 0);
    ck_assert_int_eq(memcmp(f->data, "\2\3\4\5\6\7\10\11", 8), 0);
    free(bytes);
}
END_TEST

START_TEST(the_header_is_inside_the_file)
{
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX,
                                       1ull << 32, 100000001,      9};
    const octet_safetensors *file;
    uint8_t *bytes = calloc(1, 16);

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(bytes, &lengths[i], sizeof lengths[i]);
        ck_assert_int_eq(octet_safetensors_parse(arena, bytes, 16, &file, &err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(err.field, "header");
        ck_assert_ptr_nonnull(strstr(err.text, "length"));
    }
    for (size_t size = 0; size < 8; size++) {
        ck_assert_int_eq(octet_safetensors_parse(arena, bytes, size, &file, &err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(err.field, "header");
    }
    free(bytes);
}
END_TEST

START_TEST(spans_are_checked_before_they_are_used)
{
    refused("{" TENSOR("w", "F32", "[32,8]", "0", "65536") "}", 1024, "tensors[w].data_offsets",
            "has 65536 bytes; [32, 8] of F32 needs 1024");
    refused("{" TENSOR("w", "F32", "[32,8]", "0", "1024") "}", 1000, "tensors[w].data_offsets",
            "behind the file's data");
    refused("{" TENSOR("w", "F32", "[2]", "9223372036854775800", "9223372036854775807") "}", 8,
            "tensors[w].data_offsets", "needs 8");
    refused("{" TENSOR("w", "F32", "[2]", "8", "0") "}", 8, "tensors[w].data_offsets",
            "begin 8 is behind end 0");
    refused("{" TENSOR("w", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, "tensors[w].shape",
            "63 bits");
    refused("{" TENSOR("w", "F32", "[9223372036854775807]", "0", "4") "}", 4, "tensors[w].shape",
            "63 bits");
    refused("{" TENSOR("w", "U8", "[9223372036854775808]", "0", "4") "}", 4, "tensors[w].shape",
            "63 bits");
    /* A zero among sizes whose product wraps is no elements, as it says. */
    uint8_t *bytes;
    parse("{" TENSOR("w", "F32", "[4294967296,4294967296,0]", "0", "0") "}", 0, &bytes);
    free(bytes);
}
END_TEST

START_TEST(spans_leave_no_hole_and_share_nothing)
{
    refused("{" TENSOR("a", "U8", "[2]", "0", "2") "," TENSOR("b", "U8", "[2]", "3", "5") "}", 5,
            "tensors[b].data_offsets", "leaves a hole behind byte 2");
    refused("{" TENSOR("b", "U8", "[2]", "1", "3") "}", 3, "tensors[b].data_offsets", "a hole");
    refused("{" TENSOR("a", "U8", "[4]", "0", "4") "," TENSOR("b", "U8", "[2]", "2", "4") "}", 4,
            "tensors[b].data_offsets", "begins before byte 4");
    refused("{" TENSOR("a", "U8", "[4]", "0", "4") "," TENSOR("b", "U8", "[4]", "0", "4") "}", 4,
            "tensors[b].data_offsets", "begins before");
    refused("{" TENSOR("a", "U8", "[4]", "0", "4") "}", 5, "header",
            "end at byte 4 of the data, which has 5");
    refused("{}", 1, "header", "end at byte 0");
    refused("{" TENSOR("e", "U8", "[0]", "1", "1") "," TENSOR("a", "U8", "[2]", "0", "2") "}", 2,
            "tensors[e].data_offsets", "before byte 2");
}
END_TEST

START_TEST(nothing_is_there_twice)
{
    refused("{" TENSOR("a", "U8", "[1]", "0", "1") "," TENSOR("a", "U8", "[1]", "1", "2") "}", 2,
            "tensors[a]", "twice");
    refused("{" TENSOR("a", "U8", "[0]", "0", "0") "," TENSOR("\\u0061", "U8", "[0]", "0", "0") "}",
            0, "tensors[a]", "twice");
    refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
            "tensors[a].dtype", "twice");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
            "tensors[a].shape", "twice");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "metadata", "twice");
    refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "metadata", "'k' is there twice");
}
END_TEST

START_TEST(types_that_are_not_known_are_refused_by_name)
{
    static const char *const names[] = {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E4M3FN", "F64", "I16",
                                        "U16",         "U32",         "U64",       "C64", "F6_E2M3",
                                        "F4_E2M1",     "f32",         "",          "I4"};
    char header[200], quoted[32];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(header, sizeof header,
                 "{\"m.w\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,1]}}", names[i]);
        snprintf(quoted, sizeof quoted, "'%s'", names[i]);
        refused(header, 1, "tensors[m.w].dtype", quoted);
    }
}
END_TEST

START_TEST(the_grammar_is_held)
{
    static const char *const headers[] = {
        "",
        " ",
        " {}",
        "[]",
        "{",
        "{\"a\"",
        "{}{}",
        "{}x",
        "{},",
        "{,}",
        "null",
        "{\"__metadata__\":{}",
        "{\"__metadata__\":{},}",
        "{\"a\" {}}",
        "{'a':{}}",
        "{a:{}}",
    };
    static const char *const members[] = {
        /* what stands in "a":{...}, the field and the reason */
        "",
        "dtype",
        "is missing",
        "\"dtype\":\"U8\",\"shape\":[0]",
        "data_offsets",
        "is missing",
        "\"dtype\":\"U8\",\"data_offsets\":[0,0]",
        "shape",
        "is missing",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]",
        "data_offsets",
        "not 1",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]",
        "data_offsets",
        "more than 2",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0.0,0]",
        "data_offsets",
        "whole number",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[-0,0]",
        "data_offsets",
        "not '-'",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[\"0\",0]",
        "data_offsets",
        "whole number",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[00,0]",
        "data_offsets",
        "zeros in front",
        "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":{}",
        "data_offsets",
        "'[' expected",
        "\"dtype\":\"U8\",\"shape\":[-1]",
        "shape",
        "not '-'",
        "\"dtype\":\"U8\",\"shape\":[1e3]",
        "shape",
        "not 'e'",
        "\"dtype\":\"U8\",\"shape\":[1,]",
        "shape",
        "not ']'",
        "\"dtype\":\"U8\",\"shape\":[1 1]",
        "shape",
        "',' or ']'",
        "\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1]",
        "shape",
        "more than 8",
        "\"dtype\":\"U8\",\"shape\":null",
        "shape",
        "'[' expected",
        "\"x\":1",
        "",
        "has a key 'x'",
    };
    char header[300], field[40];

    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        refused(headers[i], 0, "header", "");
    for (size_t i = 0; i < sizeof members / sizeof *members; i += 3) {
        snprintf(header, sizeof header, "{\"a\":{%s}}", members[i]);
        snprintf(field, sizeof field, "tensors[a]%s%s", members[i + 1][0] ? "." : "",
                 members[i + 1]);
        refused(header, 0, field, members[i + 2]);
    }
    refused("{\"a\":", 0, "tensors[a]", "not the end");
    refused("{\"a\":[]}", 0, "tensors[a]", "'{' expected");
    refused("{\"__metadata__\":{\"k\":1}}", 0, "metadata", "'\"' expected");
    refused("{\"__metadata__\":null}", 0, "metadata", "'{' expected");
}
END_TEST

START_TEST(bytes_that_are_no_text_are_refused)
{
    static const char *const texts[] = {
        "\xff",    "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80",  "\x01",
        "\\u0000", "\\ud800",  "\\udc00",      "\\ud800\\u0041",   "\\u12",    "\\x41", "\\",
    };
    char header[64];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int length = snprintf(header, sizeof header, "{\"%s\":{}}", texts[i]);
        refused_bytes(header, (size_t)length, 0, "header", "");
        length = snprintf(header, sizeof header, "{\"__metadata__\":{\"k\":\"%s\"}}", texts[i]);
        refused_bytes(header, (size_t)length, 0, "metadata", "");
    }
    refused_bytes("{\"a\0\":{}}", 9, 0, "header", "control character");
    refused_bytes("{}\0", 3, 0, "header", "follows");
}
END_TEST

/* A field has 256 bytes; a name has no limit. */
START_TEST(a_long_name_is_cut_in_messages_only)
{
    char name[1001], header[1200];

    for (size_t i = 0; i < 1000; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    name[1000] = '\0';
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", name);
    const octet_safetensors *file;
    size_t size;
    uint8_t *bytes = file_of(header, strlen(header), 8, &size);
    ck_assert_int_eq(octet_safetensors_parse(arena, bytes, size, &file, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.field, "\xc3\xa9...].dtype"));
    free(bytes);
}
END_TEST

/* Most memory for a byte of header: metadata with empty values, or tensors without elements. */
START_TEST(memory_is_bounded_by_the_header)
{
    enum { COUNT = 20000 };
    char *header = malloc(COUNT * 80);
    const octet_safetensors *file;
    uint8_t *bytes;
    size_t size;

    for (int kind = 0; kind < 2; kind++) {
        size_t used = (size_t)snprintf(header, COUNT * 80, kind ? "{\"__metadata__\":{" : "{");
        for (int i = 0; i < COUNT; i++)
            used += (size_t)snprintf(
                header + used, COUNT * 80 - used,
                kind ? "%s\"%x\":\"\""
                     : "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                i ? "," : "", i);
        used += (size_t)snprintf(header + used, COUNT * 80 - used, kind ? "}}" : "}");
        octet_arena *small = octet_arena_create(5 * used);
        bytes = file_of(header, used, 0, &size);
        ck_assert_msg(!octet_safetensors_parse(small, bytes, size, &file, &err), "%s", err.text);
        octet_arena_destroy(small);
        free(bytes);
    }
    memset(header, '[', COUNT * 80);
    octet_arena *small = octet_arena_create(COUNT * 80 + 20000);
    bytes = file_of(header, COUNT * 80, 0, &size);
    ck_assert_int_eq(octet_safetensors_parse(small, bytes, size, &file, &err),
                     OCTET_INVALID_ARGUMENT);
    octet_arena_destroy(small);
    free(bytes);
    free(header);
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"}," TENSOR("b", "U8", "[1]", "0", "1") "," TENSOR(
            "f", "F32", "[2]", "1", "9") "," TENSOR("q", "F4", "[4]", "9", "11") "}";
    const octet_safetensors *file;
    enum octet_status status;
    size_t size, failed = 0;
    uint8_t *bytes = file_of(header, strlen(header), 11, &size);

    do {
        octet_arena_reset(arena);
        octet_arena_fail_at(arena, failed + 1);
        status = octet_safetensors_parse(arena, bytes, size, &file, &err);
        if (status != OCTET_OK)
            ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        failed++;
    } while (status != OCTET_OK);
    ck_assert_uint_ge(failed, 6);
    free(bytes);
}
END_TEST

START_TEST(files_are_mapped_and_their_errors_name_them)
{
    char folder[] = "/tmp/octet-safetensors-XXXXXX", path[64], nothing[64];
    const octet_safetensors *file;
    size_t size;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f", folder);
    snprintf(nothing, sizeof nothing, "%s/nothing", folder);
    ck_assert_int_eq(octet_safetensors_open(arena, nothing, &file, &err), OCTET_NOT_FOUND);
    ck_assert_str_eq(err.field, "path");
    ck_assert_ptr_nonnull(strstr(err.text, nothing));
    ck_assert_int_eq(octet_safetensors_open(arena, folder, &file, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "regular file"));
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(octet_safetensors_open(arena, path, &file, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_int_eq(unlink(path), 0);

    FILE *to = fopen(path, "wb");
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_int_eq(octet_safetensors_open(arena, path, &file, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "header");

    static const char header[] = "{" TENSOR("b", "U8", "[3]", "0", "3") "}";
    uint8_t *bytes = file_of(header, strlen(header), 3, &size);
    to = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, size, to), size);
    ck_assert_int_eq(fclose(to), 0);
    free(bytes);
    ck_assert_msg(!octet_safetensors_open(arena, path, &file, &err), "%s", err.text);
    ck_assert_int_eq(memcmp(octet_safetensors_find(file, "b")->array.data, "\1\2\3", 3), 0);
    octet_safetensors_close(file);
    octet_safetensors_close(NULL);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

TCase *safetensors_case(void)
{
    TCase *read = tcase_create("safetensors");

    tcase_add_checked_fixture(read, setup, teardown);
    tcase_add_test(read, arrays_have_their_type_shape_and_bytes);
    tcase_add_test(read, numbers_of_four_bits_are_unpacked_low_half_first);
    tcase_add_test(read, names_are_texts_of_json);
    tcase_add_test(read, metadata_are_pairs_in_order_of_keys);
    tcase_add_test(read, unaligned_data_is_copied);
    tcase_add_test(read, the_header_is_inside_the_file);
    tcase_add_test(read, spans_are_checked_before_they_are_used);
    tcase_add_test(read, spans_leave_no_hole_and_share_nothing);
    tcase_add_test(read, nothing_is_there_twice);
    tcase_add_test(read, types_that_are_not_known_are_refused_by_name);
    tcase_add_test(read, the_grammar_is_held);
    tcase_add_test(read, bytes_that_are_no_text_are_refused);
    tcase_add_test(read, a_long_name_is_cut_in_messages_only);
    tcase_add_test(read, memory_is_bounded_by_the_header);
    tcase_add_test(read, every_failed_allocation_is_reported);
    tcase_add_test(read, files_are_mapped_and_their_errors_name_them);
    return read;
}
