/* proto3 JSON. What could break: output that no JSON reader takes (checked with jansson, which also
 * refuses bytes that are not UTF-8), 64-bit numbers that lose digits, a member that is missing. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.pb-c.h"
#include "octet/v1/octet.pb-c.h"
#include "test_wire.h"
#include "wire/methods.h"

struct sink {
    char text[64 * 1024];
    size_t used, calls, stop_at; /* write number stop_at is refused; 0: none */
};

static bool keep(void *user, const char *text, size_t length)
{
    struct sink *sink = user;

    if (++sink->calls == sink->stop_at)
        return false;
    ck_assert_uint_lt(sink->used + length, sizeof sink->text);
    memcpy(sink->text + sink->used, text, length);
    sink->used += length;
    sink->text[sink->used] = '\0';
    return true;
}

static struct sink sink;

static json_t *write_and_parse(const ProtobufCMessage *message)
{
    json_error_t error;

    memset(&sink, 0, sizeof sink);
    ck_assert(octet_wire_json(message, keep, &sink));
    json_t *json = json_loads(sink.text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    ck_assert_msg(json != NULL, "%s at line %d of:\n%s", error.text, error.line, sink.text);
    return json;
}

static const char *text_at(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));

    ck_assert_msg(text != NULL, "member '%s' is no string in:\n%s", key, sink.text);
    return text;
}

START_TEST(layout_is_stable)
{
    Octet__V1__Difference difference = OCTET__V1__DIFFERENCE__INIT, *list[] = {&difference};
    Octet__V1__Trace trace = OCTET__V1__TRACE__INIT;
    Octet__V1__TraceResponse response = OCTET__V1__TRACE_RESPONSE__INIT;
    int32_t unused[] = {1, 3};

    difference.module = (char *)"a/b";
    difference.kind = OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_CHANGED;
    difference.against_rule = -1;
    trace.n_unused_rules = 2;
    trace.unused_rules = unused;
    response.trace = &trace;
    response.n_differences = 1;
    response.differences = list;
    response.parameters = INT64_MIN;
    json_decref(write_and_parse(&response.base));
    ck_assert_str_eq(sink.text, "{\n"
                                "  \"trace\": {\n"
                                "    \"interceptions\": [],\n"
                                "    \"rules\": [],\n"
                                "    \"unused_rules\": [1, 3]\n"
                                "  },\n"
                                "  \"differences\": [\n"
                                "    {\n"
                                "      \"module\": \"a/b\",\n"
                                "      \"op\": \"\",\n"
                                "      \"kind\": \"DIFFERENCE_KIND_CHANGED\",\n"
                                "      \"rule\": 0,\n"
                                "      \"against_rule\": -1\n"
                                "    }\n"
                                "  ],\n"
                                "  \"parameters\": \"-9223372036854775808\",\n"
                                "  \"activation_bytes\": \"0\"\n"
                                "}\n");
}
END_TEST

START_TEST(an_empty_message_is_an_object)
{
    Octet__V1__GetServerInfoRequest request = OCTET__V1__GET_SERVER_INFO_REQUEST__INIT;

    json_decref(write_and_parse(&request.base));
    ck_assert_str_eq(sink.text, "{}\n");
}
END_TEST

START_TEST(every_character_survives)
{
    Octet__Tests__Leaf leaf = OCTET__TESTS__LEAF__INIT;
    char text[256];
    size_t used = 0;

    for (int c = 1; c < 0x80; c++)
        text[used++] = (char)c;
    memcpy(text + used, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc2\x85", 12);
    leaf.name = text;
    json_t *json = write_and_parse(&leaf.base);
    ck_assert_str_eq(text_at(json, "name"), text);
    json_decref(json);
    for (const char *c = sink.text; *c; c++)
        ck_assert_msg((unsigned char)*c >= 0x20 || *c == '\n', "raw control character %d", *c);
}
END_TEST

START_TEST(integers_keep_all_digits)
{
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;
    int64_t many[] = {INT64_MIN, 0, INT64_MAX};

    k.a_int32 = INT32_MIN;
    k.a_sint32 = -1;
    k.a_sfixed32 = INT32_MAX;
    k.a_uint32 = UINT32_MAX;
    k.a_fixed32 = 7;
    k.a_int64 = INT64_MIN;
    k.a_sint64 = -1;
    k.a_sfixed64 = INT64_MAX;
    k.a_uint64 = UINT64_MAX;
    k.a_fixed64 = 1;
    k.a_bool = 1;
    k.n_many_int64 = 3;
    k.many_int64 = many;
    json_t *json = write_and_parse(&k.base);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_int32")), INT32_MIN);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_sint32")), -1);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_sfixed32")), INT32_MAX);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_uint32")), UINT32_MAX);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_fixed32")), 7);
    ck_assert_str_eq(text_at(json, "a_int64"), "-9223372036854775808");
    ck_assert_str_eq(text_at(json, "a_sint64"), "-1");
    ck_assert_str_eq(text_at(json, "a_sfixed64"), "9223372036854775807");
    ck_assert_str_eq(text_at(json, "a_uint64"), "18446744073709551615");
    ck_assert_str_eq(text_at(json, "a_fixed64"), "1");
    ck_assert(json_is_true(json_object_get(json, "a_bool")));
    ck_assert_ptr_nonnull(
        strstr(sink.text, "[\"-9223372036854775808\", \"0\", \"9223372036854775807\"]"));
    json_decref(json);
}
END_TEST

START_TEST(reals_read_back_the_same)
{
    static const double doubles[] = {0.1, 1e300, 5e-324, DBL_MAX, 1.0 / 3, 123456789012345680.0,
                                     -0.0};
    static const float floats[] = {0.1f, FLT_MAX, FLT_MIN, 1e-45f, 16777217.0f, 448.0f};
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;

    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        k.a_double = doubles[i];
        json_t *json = write_and_parse(&k.base);
        double back = json_number_value(json_object_get(json, "a_double"));
        ck_assert(memcmp(&back, &doubles[i], sizeof back) == 0 || back == doubles[i]);
        json_decref(json);
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        k.a_float = floats[i];
        json_t *json = write_and_parse(&k.base);
        ck_assert((float)json_number_value(json_object_get(json, "a_float")) == floats[i]);
        json_decref(json);
    }
    k.a_float = 0.1f;
    json_decref(write_and_parse(&k.base));
    ck_assert_ptr_nonnull(strstr(sink.text, "\"a_float\": 0.1,"));
}
END_TEST

START_TEST(what_is_not_finite_is_text)
{
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;
    double many[] = {-INFINITY, 1};

    k.a_float = NAN;
    k.a_double = INFINITY;
    k.n_many_double = 2;
    k.many_double = many;
    json_t *json = write_and_parse(&k.base);
    ck_assert_str_eq(text_at(json, "a_float"), "NaN");
    ck_assert_str_eq(text_at(json, "a_double"), "Infinity");
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json, "many_double"), 0)),
                     "-Infinity");
    json_decref(json);
}
END_TEST

START_TEST(enums_have_names)
{
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;

    k.a_colour = OCTET__TESTS__COLOUR__COLOUR_BELOW;
    json_t *json = write_and_parse(&k.base);
    ck_assert_str_eq(text_at(json, "a_colour"), "COLOUR_BELOW");
    json_decref(json);
    k.a_colour =
        (Octet__Tests__Colour)99; /* proto3 JSON prints the number of one it does not know */
    json = write_and_parse(&k.base);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "a_colour")), 99);
    json_decref(json);
}
END_TEST

START_TEST(bytes_are_base64)
{
    static const char *const expected[] = {"", "AA==", "AP8=", "AP+A", "AP+AQQ=="}; /* RFC 4648 */
    uint8_t bytes[] = {0x00, 0xff, 0x80, 0x41};
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;

    for (size_t n = 0; n <= 4; n++) {
        k.a_bytes = (ProtobufCBinaryData){n, bytes};
        json_t *json = write_and_parse(&k.base);
        ck_assert_str_eq(text_at(json, "a_bytes"), expected[n]);
        json_decref(json);
    }
}
END_TEST

START_TEST(maps_are_objects)
{
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;
    Octet__Tests__Leaf leaf = OCTET__TESTS__LEAF__INIT;
    Octet__Tests__Kinds__StringMapEntry s = OCTET__TESTS__KINDS__STRING_MAP_ENTRY__INIT,
                                        *ss[] = {&s};
    Octet__Tests__Kinds__Int32MapEntry i = OCTET__TESTS__KINDS__INT32_MAP_ENTRY__INIT, *is[] = {&i};
    Octet__Tests__Kinds__Int64MapEntry l = OCTET__TESTS__KINDS__INT64_MAP_ENTRY__INIT, *ls[] = {&l};
    Octet__Tests__Kinds__BoolMapEntry b = OCTET__TESTS__KINDS__BOOL_MAP_ENTRY__INIT, *bs[] = {&b};
    Octet__Tests__LookalikeEntry e = OCTET__TESTS__LOOKALIKE_ENTRY__INIT, *es[] = {&e};

    s.key = (char *)"a \"key\"";
    s.value = (char *)"v";
    i.key = -5;
    l.key = INT64_MAX;
    l.value = &leaf;
    leaf.name = (char *)"inner";
    b.key = 1;
    b.value = 0.5;
    k.n_string_map = k.n_int32_map = k.n_int64_map = k.n_bool_map = k.n_lookalike = 1;
    k.string_map = ss;
    k.int32_map = is;
    k.int64_map = ls;
    k.bool_map = bs;
    k.lookalike = es;
    json_t *json = write_and_parse(&k.base);
    ck_assert_str_eq(text_at(json_object_get(json, "string_map"), "a \"key\""), "v");
    ck_assert_str_eq(text_at(json_object_get(json, "int32_map"), "-5"), "");
    ck_assert_str_eq(
        text_at(json_object_get(json_object_get(json, "int64_map"), "9223372036854775807"), "name"),
        "inner");
    ck_assert(json_number_value(json_object_get(json_object_get(json, "bool_map"), "true")) == 0.5);
    ck_assert(json_is_array(json_object_get(json, "lookalike")));
    json_decref(json);
}
END_TEST

/* Absent messages and members of a oneof that are not set are left out; everything else is there.
 */
START_TEST(defaults_are_printed)
{
    Octet__Tests__Kinds k = OCTET__TESTS__KINDS__INIT;
    json_t *json = write_and_parse(&k.base);

    ck_assert_uint_eq(json_object_size(json), 31 - 1 - 3); /* fields - a_leaf - oneof */
    ck_assert_ptr_null(json_object_get(json, "a_leaf"));
    ck_assert_ptr_null(json_object_get(json, "number"));
    ck_assert(json_is_object(json_object_get(json, "string_map")));
    ck_assert(json_is_array(json_object_get(json, "many_leaf")));
    json_decref(json);
    k.choice_case = OCTET__TESTS__KINDS__CHOICE_NUMBER;
    k.number = 0;
    json = write_and_parse(&k.base);
    ck_assert_str_eq(text_at(json, "number"), "0");
    ck_assert_ptr_null(json_object_get(json, "text"));
    json_decref(json);
}
END_TEST

/* A writer that refuses is not called again, and long texts come whole through the buffer. */
START_TEST(stops_when_told)
{
    static char text[20000];
    Octet__Tests__Leaf leaf = OCTET__TESTS__LEAF__INIT;

    memset(text, 'x', sizeof text - 1);
    leaf.name = text;
    json_t *json = write_and_parse(&leaf.base);
    ck_assert_str_eq(text_at(json, "name"), text);
    json_decref(json);
    size_t calls = sink.calls;
    ck_assert_uint_gt(calls, 3);
    for (size_t n = 1; n <= calls; n++) {
        memset(&sink, 0, sizeof sink);
        sink.stop_at = n;
        ck_assert(!octet_wire_json(&leaf.base, keep, &sink));
        ck_assert_uint_eq(sink.calls, n);
    }
}
END_TEST

TCase *json_cases(void)
{
    TCase *cases = tcase_create("json");

    tcase_add_test(cases, layout_is_stable);
    tcase_add_test(cases, an_empty_message_is_an_object);
    tcase_add_test(cases, every_character_survives);
    tcase_add_test(cases, integers_keep_all_digits);
    tcase_add_test(cases, reals_read_back_the_same);
    tcase_add_test(cases, what_is_not_finite_is_text);
    tcase_add_test(cases, enums_have_names);
    tcase_add_test(cases, bytes_are_base64);
    tcase_add_test(cases, maps_are_objects);
    tcase_add_test(cases, defaults_are_printed);
    tcase_add_test(cases, stops_when_told);
    return cases;
}
