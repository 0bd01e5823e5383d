/* Decoding. What could break: text with a NUL is cut in silence, bytes that are not UTF-8 get
 * through, a small message becomes a large one, "no memory" is taken for "malformed", an error
 * names the wrong field. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.pb-c.h"
#include "octet/v1/octet.pb-c.h"
#include "test_wire.h"
#include "wire/methods.h"
#include "wire/scan.h"

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

static enum octet_status decode(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                                size_t length, ProtobufCMessage **out)
{
    ProtobufCMessage *message = NULL;
    enum octet_status status = octet_wire_decode(descriptor, arena, bytes, length, &message, &err);

    ck_assert((status == OCTET_OK) == (message != NULL));
    if (status != OCTET_OK)
        ck_assert_int_eq(err.status, status);
    if (out)
        *out = message;
    return status;
}

#define DECODE(type, literal, out) decode(&type##__descriptor, literal, sizeof(literal) - 1, out)

/* A request with every kind of field that octet.v1 has, packed by protobuf-c. */
static size_t pack_request(uint8_t *bytes, size_t room)
{
    Octet__V1__ModelConfig__OverridesEntry entry = OCTET__V1__MODEL_CONFIG__OVERRIDES_ENTRY__INIT;
    Octet__V1__ModelConfig__OverridesEntry *entries[] = {&entry};
    Octet__V1__ModelConfig model = OCTET__V1__MODEL_CONFIG__INIT;
    Octet__V1__Sparsity sparsity = OCTET__V1__SPARSITY__INIT;
    Octet__V1__QuantizationRule rule = OCTET__V1__QUANTIZATION_RULE__INIT;
    Octet__V1__QuantizationRule *rules[] = {&rule};
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    char *ops[] = {(char *)"dot_general", (char *)"gmm"};
    int32_t axes[] = {0, -1, 300};

    entry.key = (char *)"scan_layers";
    entry.value = (char *)"false";
    model.name = (char *)"deepseek3-tiny";
    model.yaml = (char *)"dtype: \"bfloat16\"  # \xe2\x82\xac\n";
    model.n_overrides = 1;
    model.overrides = entries;
    sparsity.n = 2;
    sparsity.m = 4;
    rule.module_path = (char *)"decoder/.*";
    rule.n_op_names = 2;
    rule.op_names = ops;
    rule.act_static_scale = 1;
    rule.n_act_batch_axes = 3;
    rule.act_batch_axes = axes;
    rule.sparsity = &sparsity;
    request.model = &model;
    request.n_rules = 1;
    request.rules = rules;
    request.strict = 1;
    request.batch_size = INT64_MAX;
    request.sequence_length = -5;
    ck_assert_uint_le(octet__v1__trace_request__get_packed_size(&request), room);
    return octet__v1__trace_request__pack(&request, bytes);
}

START_TEST(keeps_every_field)
{
    uint8_t bytes[512];
    size_t length = pack_request(bytes, sizeof bytes);
    ProtobufCMessage *message;

    ck_assert_int_eq(decode(&octet__v1__trace_request__descriptor, bytes, length, &message),
                     OCTET_OK);
    const Octet__V1__TraceRequest *r = (const Octet__V1__TraceRequest *)message;
    ck_assert_str_eq(r->model->name, "deepseek3-tiny");
    ck_assert_str_eq(r->model->yaml, "dtype: \"bfloat16\"  # \xe2\x82\xac\n");
    ck_assert_uint_eq(r->model->n_overrides, 1);
    ck_assert_str_eq(r->model->overrides[0]->key, "scan_layers");
    ck_assert_str_eq(r->model->overrides[0]->value, "false");
    ck_assert_uint_eq(r->n_rules, 1);
    ck_assert_str_eq(r->rules[0]->op_names[1], "gmm");
    ck_assert_int_eq(r->rules[0]->act_batch_axes[1], -1);
    ck_assert_int_eq(r->rules[0]->act_batch_axes[2], 300);
    ck_assert_int_eq(r->rules[0]->sparsity->m, 4);
    ck_assert_str_eq(r->rules[0]->weight_qtype, "");
    ck_assert(r->strict);
    ck_assert_int_eq(r->batch_size, INT64_MAX);
    ck_assert_int_eq(r->sequence_length, -5);
    ck_assert_ptr_null(r->against);
}
END_TEST

/* A message cut anywhere is either whole up to there, or refused as malformed. */
START_TEST(refuses_what_is_cut)
{
    uint8_t bytes[512];
    size_t length = pack_request(bytes, sizeof bytes), whole = 0;

    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *copy = malloc(cut + 1); /* its own piece, so that a read beyond is seen */
        memcpy(copy, bytes, cut);
        enum octet_status status = decode(&octet__v1__trace_request__descriptor, copy, cut, NULL);
        whole += status == OCTET_OK;
        if (status != OCTET_OK)
            ck_assert_int_eq(status, OCTET_INVALID_ARGUMENT);
        free(copy);
    }
    ck_assert_uint_eq(whole, 5); /* before model, and after model, rules, strict, batch_size */
}
END_TEST

START_TEST(refuses_what_is_malformed)
{
    static const struct {
        const char *name, *bytes;
        size_t length;
        const char *text;
    } cases[] = {
#define CASE(name, literal, text) {name, literal, sizeof(literal) - 1, text}
        CASE("tag 0", "\x00\x00", "tag"),
        CASE("group", "\x0b\x0c", "wire type"),
        CASE("wire type 6", "\x0e", "wire type"),
        CASE("endless varint", "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "varint"),
        CASE("tag above 32 bits", "\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "tag"),
        CASE("length beyond the end", "\x0a\x7f", "longer"),
        CASE("length of 2^64-1", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer"),
        CASE("model as a number", "\x08\x01", "wire type 0, not 2"),
        CASE("strict as text", "\x1a\x01x", "wire type 2, not 0"),
        CASE("unknown fixed64 cut", "\xf9\x07\x01\x02", "number"),
#undef CASE
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum octet_status status =
            decode(&octet__v1__trace_request__descriptor, cases[i].bytes, cases[i].length, NULL);
        ck_assert_msg(status == OCTET_INVALID_ARGUMENT, "%s: status %d", cases[i].name, status);
        ck_assert_msg(strstr(err.text, cases[i].text), "%s: '%s' does not say '%s'", cases[i].name,
                      err.text, cases[i].text);
    }
}
END_TEST

START_TEST(names_the_field_at_fault)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *field;
    } cases[] = {
#define CASE(literal, field) {literal, sizeof(literal) - 1, field}
        CASE("\x0a\x05\x0a\x03"
             "a\0b",
             "model.name"),
        CASE("\x0a\x04\x12\x02\xc3\x28", "model.yaml"),
        CASE("\x22\x03\x0a\x01\xff", "against.name"),
        /* the second of two rules: weight_qtype (3) */
        CASE("\x12\x00\x12\x03\x1a\x01\0", "rules[1].weight_qtype"),
        CASE("\x12\x07\x12\x02ok\x12\x01\0", "rules[0].op_names[1]"),
        /* overrides: value at fault, then key at fault */
        CASE("\x0a\x0c\x1a\x0a\x0a\x05"
             "dtype\x12\x01\0",
             "model.overrides[dtype]"),
        CASE("\x0a\x0a\x1a\x08\x0a\x03"
             "a\nb\x12\x01\0",
             "model.overrides[a?b]"),
        CASE("\x0a\x02\x18\x01", "model.overrides[0]"), /* no message at all */
        CASE("\x0a\x05\x1a\x03\x0a\x01\0", "model.overrides[0].key"),
        /* sparsity.n with the wrong wire type */
        CASE("\x12\x08\x82\x01\x05\x0d\x01\0\0\0", "rules[0].sparsity.n"),
#undef CASE
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum octet_status status =
            decode(&octet__v1__trace_request__descriptor, cases[i].bytes, cases[i].length, NULL);
        ck_assert_msg(status == OCTET_INVALID_ARGUMENT, "%s: status %d", cases[i].field, status);
        ck_assert_str_eq(err.field, cases[i].field);
    }
    DECODE(octet__v1__trace_request,
           "\x0a\x05\x0a\x03"
           "a\0b",
           NULL);
    ck_assert_str_eq(err.text, "byte 1 of 3 is NUL, which text may not hold");
}
END_TEST

START_TEST(checks_enum_values)
{
    ProtobufCMessage *message;

    /* parameters[0].dtype = 13 is BOOL, the last; 14 is none. */
    ck_assert_int_eq(DECODE(octet__v1__inspect_response, "\x0a\x02\x10\x0d", &message), OCTET_OK);
    ck_assert_int_eq(DECODE(octet__v1__inspect_response, "\x0a\x02\x10\x0e", NULL),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "parameters[0].dtype");
    ck_assert_str_eq(err.text, "14 is not a value of enum octet.v1.DataType");
    /* many_colour: packed RED, then packed 2; a negative value takes ten bytes */
    ck_assert_int_eq(DECODE(octet__tests__kinds, "\xa2\x01\x01\x01", &message), OCTET_OK);
    ck_assert_int_eq(DECODE(octet__tests__kinds, "\xa2\x01\x02\x01\x02", NULL),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "many_colour[0]");
    ck_assert_int_eq(
        DECODE(octet__tests__kinds, "\x70\xf9\xff\xff\xff\xff\xff\xff\xff\xff\x01", &message),
        OCTET_OK);
    ck_assert_int_eq(((Octet__Tests__Kinds *)message)->a_colour,
                     OCTET__TESTS__COLOUR__COLOUR_BELOW);
}
END_TEST

START_TEST(checks_packed_numbers)
{
    ProtobufCMessage *message;

    ck_assert_int_eq(DECODE(octet__tests__kinds, "\xfa\x01\x08\x01\0\0\0\x02\0\0\0", &message),
                     OCTET_OK);
    ck_assert_uint_eq(((Octet__Tests__Kinds *)message)->n_many_fixed32, 2);
    ck_assert_uint_eq(((Octet__Tests__Kinds *)message)->many_fixed32[1], 2);
    ck_assert_int_eq(DECODE(octet__tests__kinds, "\xfa\x01\x07\x01\0\0\0\x02\0\0", NULL),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "many_fixed32[0]");
    ck_assert_int_eq(DECODE(octet__tests__kinds, "\x92\x01\x02\x01\x80", NULL),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "many_int64[0]");
}
END_TEST

START_TEST(last_entry_of_a_key_wins)
{
    ProtobufCMessage *message;

    /* b=1, a=2, b=3, "" = 4 */
    ck_assert_int_eq(DECODE(octet__v1__trace_request,
                            "\x0a\x1e\x1a\x06\x0a\x01"
                            "b\x12\x01"
                            "1\x1a\x06\x0a\x01"
                            "a\x12\x01"
                            "2\x1a\x06\x0a\x01"
                            "b\x12\x01"
                            "3\x1a\x04\x12\x02"
                            "44",
                            &message),
                     OCTET_OK);
    const Octet__V1__ModelConfig *model = ((Octet__V1__TraceRequest *)message)->model;
    static const char *const expected[][2] = {{"", "44"}, {"a", "2"}, {"b", "3"}};
    ck_assert_uint_eq(model->n_overrides, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(model->overrides[i]->key, expected[i][0]);
        ck_assert_str_eq(model->overrides[i]->value, expected[i][1]);
    }
    /* int32_map: 7 -> "x", 7 -> "y"; lookalike: no map, both stay */
    ck_assert_int_eq(DECODE(octet__tests__kinds,
                            "\xc2\x01\x05\x08\x07\x12\x01x\xc2\x01\x05\x08\x07\x12\x01y"
                            "\xf2\x01\x03\x0a\x01k\xf2\x01\x03\x0a\x01k",
                            &message),
                     OCTET_OK);
    const Octet__Tests__Kinds *kinds = (const Octet__Tests__Kinds *)message;
    ck_assert_uint_eq(kinds->n_int32_map, 1);
    ck_assert_str_eq(kinds->int32_map[0]->value, "y");
    ck_assert_uint_eq(kinds->n_lookalike, 2);
}
END_TEST

START_TEST(no_bytes_are_an_empty_message)
{
    ProtobufCMessage *message;

    ck_assert_int_eq(decode(&octet__v1__trace_request__descriptor, NULL, 0, &message), OCTET_OK);
    ck_assert_ptr_null(((Octet__V1__TraceRequest *)message)->model);
}
END_TEST

START_TEST(unknown_fields_are_skipped)
{
    ProtobufCMessage *message;

    /* field 200: text that is not UTF-8; field 201: fixed64; then strict = true */
    ck_assert_int_eq(DECODE(octet__v1__trace_request,
                            "\xc2\x0c\x02\xff\0\xc9\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x18\x01",
                            &message),
                     OCTET_OK);
    ck_assert(((Octet__V1__TraceRequest *)message)->strict);
}
END_TEST

/* Two bytes on the wire become a struct of some 200: the budget must hold, and say so. */
START_TEST(small_bytes_stay_in_the_budget)
{
    size_t length = 4 * 1024 * 1024;
    uint8_t *bytes = malloc(length);

    for (size_t i = 0; i < length; i += 2) {
        bytes[i] = 0x12; /* rules: an empty submessage */
        bytes[i + 1] = 0;
    }
    ck_assert_int_eq(decode(&octet__v1__trace_request__descriptor, bytes, length, NULL),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_uint_le(octet_arena_held(arena), BUDGET);
    ck_assert(strstr(err.text, "67108864") != NULL);
    /* Few of them fit, and the arena is as good as before. */
    octet_arena_reset(arena);
    ck_assert_int_eq(decode(&octet__v1__trace_request__descriptor, bytes, 2000, NULL), OCTET_OK);
    /* The same in unknown fields. */
    for (size_t i = 0; i < length; i += 2)
        bytes[i] = 0x7a; /* field 15 */
    octet_arena_reset(arena);
    ck_assert_int_eq(decode(&octet__v1__trace_request__descriptor, bytes, length, NULL),
                     OCTET_RESOURCE_EXHAUSTED);
    free(bytes);
}
END_TEST

/* 200,000 overrides, each key twice: a walk over all pairs would take minutes. */
START_TEST(large_maps_take_linear_time)
{
    enum { ENTRIES = 200000 };
    uint8_t *bytes = malloc(ENTRIES * 16 + 16), *at = bytes;
    uint64_t start = octet_now_ns();
    ProtobufCMessage *message;

    for (int i = 0; i < ENTRIES; i++)
        at +=
            snprintf((char *)at, 17, "\x1a%c\x0a\x06%06d\x12\x01%c", 11, i / 2, i % 2 ? 'y' : 'x');
    ck_assert_int_eq(
        decode(&octet__v1__model_config__descriptor, bytes, (size_t)(at - bytes), &message),
        OCTET_OK);
    const Octet__V1__ModelConfig *model = (const Octet__V1__ModelConfig *)message;
    ck_assert_uint_eq(model->n_overrides, ENTRIES / 2);
    ck_assert_str_eq(model->overrides[77]->key, "000077");
    ck_assert_str_eq(model->overrides[77]->value, "y");
    ck_assert_uint_lt(octet_now_ns() - start, 20u * 1000000000u);
    free(bytes);
}
END_TEST

START_TEST(no_memory_is_told_from_malformed)
{
    uint8_t bytes[512];
    size_t length = pack_request(bytes, sizeof bytes);
    uint64_t n = 0;
    enum octet_status status;

    do {
        octet_arena_reset(arena);
        octet_arena_fail_at(arena, ++n);
        status = decode(&octet__v1__trace_request__descriptor, bytes, length, NULL);
        ck_assert(status == OCTET_OK || status == OCTET_RESOURCE_EXHAUSTED);
    } while (status != OCTET_OK && n < 1000);
    ck_assert_uint_gt(n, 10);
    ck_assert_uint_lt(n, 1000);
}
END_TEST

static void check_depth(const ProtobufCMessageDescriptor *d, int depth)
{
    ck_assert_msg(depth < 16, "%s: messages nest without end, or deeper than 16", d->name);
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            check_depth(d->fields[i].descriptor, depth + 1);
}

/* protobuf-c and our walks recurse with the message: the schema must bound the depth. */
START_TEST(no_message_is_recursive)
{
    ck_assert_uint_gt(octet_method_count, 0);
    for (size_t i = 0; i < octet_method_count; i++) {
        check_depth(octet_methods[i].request, 0);
        check_depth(octet_methods[i].response, 0);
    }
}
END_TEST

/* All strings of three bytes: as many are UTF-8 without NUL as counting characters says, and every
 * character of one to four bytes is accepted whole. */
START_TEST(text_is_utf8_exactly)
{
    const uint64_t one = 127, two = 0x800 - 0x80, three = 0x10000 - 0x800 - 0x800;
    uint64_t accepted = 0;

    for (uint32_t i = 0; i < 1u << 24; i++) {
        const uint8_t text[] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
        accepted += oct_wire_text_prefix(text, 3) == 3;
    }
    ck_assert_uint_eq(accepted, one * one * one + 2 * one * two + three);
    for (uint32_t c = 0x10000; c < 0x110000; c++) {
        const uint8_t text[] = {(uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 63)),
                                (uint8_t)(0x80 | (c >> 6 & 63)), (uint8_t)(0x80 | (c & 63))};
        ck_assert_uint_eq(oct_wire_text_prefix(text, 4), 4);
    }
    static const uint8_t beyond[] = {0xf4, 0x90, 0x80, 0x80}, overlong[] = {0xf0, 0x8f, 0xbf, 0xbf},
                         lead[] = {0xf5, 0x80, 0x80, 0x80}, cut[] = {'a', 0xf0, 0x90, 0x80};
    ck_assert_uint_eq(oct_wire_text_prefix(beyond, 4), 0);
    ck_assert_uint_eq(oct_wire_text_prefix(overlong, 4), 0);
    ck_assert_uint_eq(oct_wire_text_prefix(lead, 4), 0);
    ck_assert_uint_eq(oct_wire_text_prefix(cut, 4), 1);
}
END_TEST

TCase *decode_cases(void)
{
    TCase *cases = tcase_create("decode");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, keeps_every_field);
    tcase_add_test(cases, refuses_what_is_cut);
    tcase_add_test(cases, refuses_what_is_malformed);
    tcase_add_test(cases, names_the_field_at_fault);
    tcase_add_test(cases, checks_enum_values);
    tcase_add_test(cases, checks_packed_numbers);
    tcase_add_test(cases, last_entry_of_a_key_wins);
    tcase_add_test(cases, no_bytes_are_an_empty_message);
    tcase_add_test(cases, unknown_fields_are_skipped);
    tcase_add_test(cases, small_bytes_stay_in_the_budget);
    tcase_add_test(cases, large_maps_take_linear_time);
    tcase_add_test(cases, no_memory_is_told_from_malformed);
    tcase_add_test(cases, no_message_is_recursive);
    tcase_add_test(cases, text_is_utf8_exactly);
    return cases;
}
