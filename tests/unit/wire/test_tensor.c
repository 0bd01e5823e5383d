/* Tensors. What could break: a length that does not fit its shape is believed and memory behind it
 * read, a product of dimensions wraps, numbers are read where the CPU wants them aligned and they
 * are not, a buffer is taken for another one's, a reply's tensor ends up in the wrong place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_wire.h"
#include "wire/tensor.h"

enum { BUDGET = 16 * 1024 * 1024 };

static octet_arena *arena;
static struct octet_error err;
static const struct oct_wire_buffers no_buffers = {NULL, 0};

static void setup(void)
{
    arena = octet_arena_create(BUDGET);
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    octet_arena_destroy(arena);
}

/* A tensor on the stack. */
struct tensor {
    Octet__V1__Tensor message;
    int64_t shape[12];
};

static Octet__V1__Tensor *tensor_of(struct tensor *t, enum octet_dtype dtype, size_t rank,
                                    const int64_t *shape, const void *data, size_t length)
{
    octet__v1__tensor__init(&t->message);
    t->message.dtype = (Octet__V1__DataType)dtype;
    t->message.n_shape = rank;
    t->message.shape = t->shape;
    memcpy(t->shape, shape, rank * sizeof *shape);
    t->message.data = (ProtobufCBinaryData){length, (uint8_t *)(uintptr_t)data};
    return &t->message;
}

#define SHAPE(...)                                                                                 \
    sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[])                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void expect_refusal(const Octet__V1__Tensor *tensor, const struct oct_wire_buffers *buffers,
                           const char *field, const char *text)
{
    struct octet_array array;

    ck_assert_int_eq(oct_wire_to_array(arena, tensor, buffers, "x", &array, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, field);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' does not say '%s'", err.text, text);
}

START_TEST(every_dtype_has_its_length)
{
    static const uint8_t zeros[64];
    struct tensor t;
    struct octet_array array;

    for (int d = 1; d < OCTET_DTYPE_COUNT; d++) {
        size_t bytes = 6 * octet_dtype_bytes((enum octet_dtype)d);
        tensor_of(&t, (enum octet_dtype)d, SHAPE(2, 3), zeros, bytes);
        ck_assert_int_eq(oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err),
                         OCTET_OK);
        ck_assert_int_eq(array.dtype, d);
        ck_assert_int_eq(array.rank, 2);
        ck_assert_int_eq(array.dim[0], 2);
        ck_assert_int_eq(array.dim[1], 3);
        t.message.data.len = bytes - 1;
        expect_refusal(&t.message, &no_buffers, "x.data", "shape [2, 3] of ");
        t.message.data.len = bytes + 1;
        expect_refusal(&t.message, &no_buffers, "x.data", octet_dtype_name((enum octet_dtype)d));
    }
    tensor_of(&t, OCTET_DTYPE_UNSPECIFIED, SHAPE(1), zeros, 4);
    expect_refusal(&t.message, &no_buffers, "x.dtype", "not set");
    expect_refusal(NULL, &no_buffers, "x", "missing");
}
END_TEST

START_TEST(shapes_that_cannot_be_are_refused)
{
    struct tensor t;

    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(4, -1), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.shape", "dimension 1 is -1");
    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(0, INT64_MIN), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.shape", "negative");
    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), "\0\0\0", 4);
    expect_refusal(&t.message, &no_buffers, "x.shape", "9 dimensions, at most 8");
    /* 2^64 elements, 2^62 of four bytes, 2^63 - 1 of one: none of them wraps to a small length. */
    tensor_of(&t, OCTET_DTYPE_U8, SHAPE(1LL << 32, 1LL << 32), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.shape", "[4294967296, 4294967296] of uint8");
    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(1LL << 62), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.shape", "more bytes than can be counted");
    tensor_of(&t, OCTET_DTYPE_U8, SHAPE(INT64_MAX), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.shape", "more bytes");
    tensor_of(&t, OCTET_DTYPE_U8, SHAPE(INT64_MAX - 1), NULL, 0);
    expect_refusal(&t.message, &no_buffers, "x.data", "takes 9223372036854775806");
}
END_TEST

START_TEST(no_elements_and_one_number_are_arrays)
{
    struct tensor t;
    struct octet_array array;
    float one = 1;

    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(0, 1LL << 62, 1LL << 62), NULL, 0);
    ck_assert_int_eq(oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err),
                     OCTET_OK);
    ck_assert_ptr_nonnull(array.data); /* NULL would mean: absent */
    tensor_of(&t, OCTET_DTYPE_F32, SHAPE(0), "x", 1);
    expect_refusal(&t.message, &no_buffers, "x.data", "data has 1 bytes");
    tensor_of(&t, OCTET_DTYPE_F32, 0, t.shape, &one, sizeof one);
    ck_assert_int_eq(oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err),
                     OCTET_OK);
    ck_assert_int_eq(array.rank, 0);
    ck_assert(*(float *)array.data == 1);
}
END_TEST

START_TEST(data_that_lies_anywhere_is_aligned)
{
    _Alignas(16) uint8_t bytes[64];
    struct tensor t;
    struct octet_array array;

    for (uint8_t i = 0; i < 64; i++)
        bytes[i] = i;
    for (size_t at = 0; at < 16; at++)
        for (int d = 1; d < OCTET_DTYPE_COUNT; d++) {
            size_t item = octet_dtype_bytes((enum octet_dtype)d);
            if (octet_dtype_bits((enum octet_dtype)d) == 4)
                continue; /* never misaligned, and not any byte is a code */
            tensor_of(&t, (enum octet_dtype)d, SHAPE(3), bytes + at, 3 * item);
            ck_assert_int_eq(oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err),
                             OCTET_OK);
            ck_assert_uint_eq((uintptr_t)array.data % item, 0);
            ck_assert_mem_eq(array.data, bytes + at, 3 * item);
            /* Where it can be used as it lies, it is not copied. */
            ck_assert((array.data == bytes + at) == (at % item == 0));
        }
}
END_TEST

START_TEST(four_bit_codes_are_in_range)
{
    struct tensor t;
    struct octet_array array;

    for (int value = -128; value < 128; value++) {
        int8_t code[3] = {0, 7, (int8_t)value};
        tensor_of(&t, OCTET_DTYPE_S4, SHAPE(3), code, 3);
        enum octet_status status =
            oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err);
        bool is_code = value >= -8 &&
                       value < 16; /* 8 to 15: -8 to -1 without its sign, as ml_dtypes writes it */
        ck_assert_int_eq(status, is_code ? OCTET_OK : OCTET_INVALID_ARGUMENT);
        if (status != OCTET_OK)
            ck_assert_str_eq(err.field, "x.data[2]");
        tensor_of(&t, OCTET_DTYPE_F4_E2M1FN, SHAPE(3), code, 3);
        status = oct_wire_to_array(arena, &t.message, &no_buffers, "x", &array, &err);
        ck_assert_int_eq(status, value >= 0 && value < 16 ? OCTET_OK : OCTET_INVALID_ARGUMENT);
    }
    tensor_of(&t, OCTET_DTYPE_S4, SHAPE(2), "\x07\x88", 2);
    expect_refusal(&t.message, &no_buffers, "x.data[1]", "-120 is not a value of int4 (-8 to 7)");
}
END_TEST

START_TEST(buffers_are_found_by_number)
{
    uint32_t first[2] = {1, 2}, second[3] = {3, 4, 5};
    ProtobufCBinaryData list[] = {{sizeof first, (uint8_t *)first},
                                  {sizeof second, (uint8_t *)second}};
    const struct oct_wire_buffers buffers = {list, 2};
    struct tensor t;
    struct octet_array array;

    tensor_of(&t, OCTET_DTYPE_S32, SHAPE(3), NULL, 0);
    t.message.buffer = 2;
    for (int twice = 0; twice < 2; twice++) { /* a buffer may be used by several tensors */
        ck_assert_int_eq(oct_wire_to_array(arena, &t.message, &buffers, "x", &array, &err),
                         OCTET_OK);
        ck_assert_ptr_eq(array.data, second);
    }
    t.message.buffer = 1;
    expect_refusal(&t.message, &buffers, "x.buffer", "buffers[0] has 8 bytes");
    t.message.buffer = 3;
    expect_refusal(&t.message, &buffers, "x.buffer", "3 is none of the message's 2 buffers");
    t.message.buffer = -1;
    expect_refusal(&t.message, &buffers, "x.buffer", "-1 is none");
    t.message.buffer = INT32_MIN;
    expect_refusal(&t.message, &buffers, "x.buffer", "is none");
    t.message.buffer = 1;
    expect_refusal(&t.message, &no_buffers, "x.buffer", "0 buffers");
    tensor_of(&t, OCTET_DTYPE_S32, SHAPE(3), second, sizeof second);
    t.message.buffer = 2;
    expect_refusal(&t.message, &buffers, "x.buffer", "a tensor has one of them");
}
END_TEST

START_TEST(operands_name_what_they_lack)
{
    struct tensor q, s;
    Octet__V1__QuantizedTensor quantized = OCTET__V1__QUANTIZED_TENSOR__INIT;
    Octet__V1__Operand operand = OCTET__V1__OPERAND__INIT;
    Octet__V1__TensorRef ref = OCTET__V1__TENSOR_REF__INIT;
    struct octet_operand out;
    float scale = 1;

    ck_assert_int_eq(oct_wire_to_operand(arena, NULL, &no_buffers, "lhs", &out, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "lhs");
    ck_assert_int_eq(oct_wire_to_operand(arena, &operand, &no_buffers, "lhs", &out, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "lhs");
    operand.kind_case = OCTET__V1__OPERAND__KIND_REF;
    operand.ref = &ref;
    ref.session_id = (char *)"s1";
    ck_assert_int_eq(oct_wire_to_operand(arena, &operand, &no_buffers, "lhs", &out, &err),
                     OCTET_NOT_FOUND);
    ck_assert_str_eq(err.field, "lhs.ref");
    operand.kind_case = OCTET__V1__OPERAND__KIND_QUANTIZED;
    operand.quantized = &quantized;
    quantized.qvalue = tensor_of(&q, OCTET_DTYPE_F8_E4M3FN, SHAPE(4), "abcd", 4);
    ck_assert_int_eq(oct_wire_to_operand(arena, &operand, &no_buffers, "lhs", &out, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "lhs.quantized.scale");
    quantized.scale = tensor_of(&s, OCTET_DTYPE_F32, SHAPE(1), &scale, 3);
    ck_assert_int_eq(oct_wire_to_operand(arena, &operand, &no_buffers, "rhs", &out, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "rhs.quantized.scale.data");
    s.message.data.len = 4;
    ck_assert_int_eq(oct_wire_to_operand(arena, &operand, &no_buffers, "rhs", &out, &err),
                     OCTET_OK);
    ck_assert(out.is_quantized);
    ck_assert_ptr_null(out.quantized.zero_point.data);
    ck_assert_int_eq(out.quantized.qvalue.dtype, OCTET_DTYPE_F8_E4M3FN);
}
END_TEST

START_TEST(replies_use_buffers_when_the_request_did)
{
    const int64_t small[] = {4, 4096}, large[] = {4097, 4}; /* 64 KiB, and four floats more */
    ProtobufCBinaryData one = {0, NULL};
    const struct oct_wire_buffers requests[] = {{NULL, 0}, {&one, 1}};
    struct octet_array a, b, none = {.data = NULL};
    Octet__V1__Tensor *x, *y, *z;

    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, small, &a, &err), OCTET_OK);
    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_F32, 2, large, &b, &err), OCTET_OK);
    for (int with = 0; with < 2; with++) {
        struct oct_wire_reply reply;
        ck_assert(oct_wire_reply_init(&reply, arena, &requests[with], OCT_WIRE_REPLY_TENSORS));
        ck_assert(oct_wire_put_array(&reply, &a, &x) && oct_wire_put_array(&reply, &b, &y) &&
                  oct_wire_put_array(&reply, &none, &z));
        ck_assert_ptr_null(z);
        ck_assert_uint_eq(x->data.len, 65536);
        ck_assert_ptr_eq(x->data.data, a.data);
        ck_assert_int_eq(x->buffer, 0);
        ck_assert_int_eq(y->buffer, with);
        ck_assert_uint_eq(y->data.len, with ? 0 : 65552);
        ck_assert_uint_eq(reply.count, (size_t)with);
        if (with) {
            ck_assert_ptr_eq(reply.list[0].data, b.data);
            ck_assert_uint_eq(reply.list[0].len, 65552);
        }
    }
}
END_TEST

/* ---- Decoding with buffers in place ---- */

/* fields 1 and 2 (array, qtype) and `buffers`, in an order of the test's own. */
#define ARRAY "\x0a\x04\x08\x01\x20\x01" /* dtype F32, buffer 1 */
#define QTYPE "\x12\x04int8"
#define BUFFER(text) "\x7a\x04" text

static Octet__V1__QuantizeRequest *decode(const char *bytes, size_t length)
{
    ProtobufCMessage *message, *plain;

    ck_assert_int_eq(octet_wire_decode_in_place(&octet__v1__quantize_request__descriptor, arena,
                                                (const uint8_t *)bytes, length, &message, &err),
                     OCTET_OK);
    ck_assert_int_eq(octet_wire_decode(&octet__v1__quantize_request__descriptor, arena,
                                       (const uint8_t *)bytes, length, &plain, &err),
                     OCTET_OK);
    /* Whatever the order, it is the message that protobuf-c reads. */
    uint8_t *packed[2];
    size_t sizes[2];
    for (int i = 0; i < 2; i++) {
        sizes[i] = protobuf_c_message_get_packed_size(i ? plain : message);
        packed[i] = octet_arena_alloc(arena, sizes[i]);
        protobuf_c_message_pack(i ? plain : message, packed[i]);
    }
    ck_assert_uint_eq(sizes[0], sizes[1]);
    ck_assert_mem_eq(packed[0], packed[1], sizes[0]);
    return (Octet__V1__QuantizeRequest *)message;
}

#define DECODE(literal) decode(literal, sizeof(literal) - 1)

static bool lies_in(const ProtobufCBinaryData *data, const char *bytes, size_t length)
{
    return (char *)data->data >= bytes && (char *)data->data + data->len <= bytes + length;
}

START_TEST(buffers_at_the_end_stay_in_place)
{
    static const char bytes[] = ARRAY QTYPE BUFFER("abcd") BUFFER("efgh");
    Octet__V1__QuantizeRequest *request = decode(bytes, sizeof bytes - 1);

    ck_assert_uint_eq(request->n_buffers, 2);
    ck_assert_mem_eq(request->buffers[0].data, "abcd", 4);
    ck_assert_mem_eq(request->buffers[1].data, "efgh", 4);
    ck_assert(lies_in(&request->buffers[0], bytes, sizeof bytes));
    ck_assert(lies_in(&request->buffers[1], bytes, sizeof bytes));
    ck_assert_str_eq(request->qtype, "int8");
    ck_assert_int_eq(request->array->buffer, 1);
}
END_TEST

START_TEST(buffers_in_any_order_are_read)
{
    ck_assert_uint_eq(DECODE("")->n_buffers, 0);
    ck_assert_uint_eq(DECODE(QTYPE)->n_buffers, 0);
    ck_assert_uint_eq(DECODE(BUFFER("abcd"))->n_buffers, 1);
    ck_assert_uint_eq(DECODE(BUFFER("abcd") QTYPE)->n_buffers, 1);
    ck_assert_uint_eq(DECODE(BUFFER("abcd") ARRAY BUFFER("efgh"))->n_buffers, 2);
    ck_assert_uint_eq(DECODE(BUFFER("abcd") BUFFER("efgh") ARRAY QTYPE)->n_buffers, 2);
    ck_assert_uint_eq(DECODE(ARRAY "\x7a\x00\x7a\x00\x7a\x00")->n_buffers, 3);
    /* A field that only a later schema knows. */
    ck_assert_uint_eq(DECODE(BUFFER("abcd") "\x82\x01\x01z")->n_buffers, 1);
}
END_TEST

START_TEST(every_cut_of_a_message_with_buffers_is_safe)
{
    static const char bytes[] = ARRAY QTYPE BUFFER("abcd") BUFFER("efgh");
    ProtobufCMessage *message;

    for (size_t length = 0; length < sizeof bytes; length++) {
        uint8_t *copy = malloc(length + 1); /* so that a sanitizer sees the end */
        memcpy(copy, bytes, length);
        enum octet_status status = octet_wire_decode_in_place(
            &octet__v1__quantize_request__descriptor, arena, copy, length, &message, &err);
        ck_assert(status == OCTET_OK || status == OCTET_INVALID_ARGUMENT);
        free(copy);
    }
}
END_TEST

/* Two bytes of an empty buffer become sixteen; the budget bounds them. */
START_TEST(a_crowd_of_empty_buffers_ends_at_the_budget)
{
    enum { COUNT = 2 * 1024 * 1024 };
    uint8_t *bytes = malloc(2 * COUNT);
    ProtobufCMessage *message;

    for (size_t i = 0; i < COUNT; i++)
        memcpy(bytes + 2 * i, "\x7a", 2);
    ck_assert_int_eq(octet_wire_decode_in_place(&octet__v1__quantize_request__descriptor, arena,
                                                bytes, 2 * COUNT, &message, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(octet_wire_decode_in_place(&octet__v1__quantize_request__descriptor, arena,
                                                bytes, COUNT / 4, &message, &err),
                     OCTET_OK);
    free(bytes);
}
END_TEST

/* ---- Messages in pieces ---- */

/* The message in pieces of `step` bytes, put together at `out`; returns its length. */
static size_t gather(const uint8_t *bytes, size_t length, size_t step, uint8_t *out)
{
    struct octet_wire_gather g;

    octet_wire_gather_init(&g, &octet__v1__quantize_request__descriptor, out);
    for (size_t at = 0; at < length; at += step) {
        uint8_t *piece = malloc(step); /* of its own, so that a sanitizer sees its ends */
        size_t n = length - at < step ? length - at : step;
        memcpy(piece, bytes + at, n);
        octet_wire_gather_add(&g, piece, n);
        free(piece);
    }
    return octet_wire_gather_end(&g);
}

/* Buffers of these lengths behind an array and a qtype; returns the packed length. */
static size_t pack_buffers(const size_t *lengths, size_t count, uint8_t *out)
{
    struct tensor t;
    Octet__V1__QuantizeRequest request = OCTET__V1__QUANTIZE_REQUEST__INIT;
    ProtobufCBinaryData list[80];

    request.array = tensor_of(&t, OCTET_DTYPE_F32, SHAPE(1), "\1\2\3\4", 4);
    request.qtype = (char *)"int8";
    request.buffers = list;
    request.n_buffers = count;
    for (size_t i = 0; i < count; i++) {
        list[i].len = lengths[i];
        list[i].data = octet_arena_alloc(arena, lengths[i]);
        memset(list[i].data, (int)(i + 1), lengths[i]);
    }
    return protobuf_c_message_pack(&request.base, out);
}

START_TEST(large_buffers_become_aligned_whatever_the_pieces)
{
    static const size_t lengths[] = {5, 4096, 4097, 100, 70001, 4095, 16384};
    static const size_t steps[] = {1, 2, 3, 7, 4096, 65536, 1 << 20};
    enum { ROOM = 200000 };
    uint8_t *bytes = malloc(ROOM), *out = malloc(ROOM);
    size_t length = pack_buffers(lengths, 7, bytes);

    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        size_t n = gather(bytes, length, steps[s], out);
        ProtobufCMessage *message;
        ck_assert_uint_ge(n, length);
        ck_assert_uint_le(n, length + OCTET_GATHER_PADDING);
        ck_assert_int_eq(octet_wire_decode_in_place(&octet__v1__quantize_request__descriptor, arena,
                                                    out, n, &message, &err),
                         OCTET_OK);
        const Octet__V1__QuantizeRequest *request = (const Octet__V1__QuantizeRequest *)message;
        ck_assert_str_eq(request->qtype, "int8");
        ck_assert_uint_eq(request->n_buffers, 7);
        for (size_t i = 0; i < 7; i++) {
            const ProtobufCBinaryData *b = &request->buffers[i];
            ck_assert_uint_eq(b->len, lengths[i]);
            for (size_t k = 0; k < b->len; k++)
                ck_assert_uint_eq(b->data[k], i + 1);
            ck_assert(b->len < 4096 || (uintptr_t)b->data % 8 == 0);
        }
    }
    free(out);
    free(bytes);
}
END_TEST

/* More buffers than there is padding for. */
START_TEST(padding_has_an_end)
{
    enum { COUNT = 80, ROOM = 400000 };
    size_t lengths[COUNT];
    uint8_t *bytes = malloc(ROOM);

    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 4097;
    size_t length = pack_buffers(lengths, COUNT, bytes);
    uint8_t *out = malloc(length + OCTET_GATHER_PADDING); /* exactly what is promised */
    size_t n = gather(bytes, length, 1000, out);
    ProtobufCMessage *message;
    ck_assert_uint_gt(n, length + OCTET_GATHER_PADDING / 2);
    ck_assert_int_eq(octet_wire_decode_in_place(&octet__v1__quantize_request__descriptor, arena,
                                                out, n, &message, &err),
                     OCTET_OK);
    ck_assert_uint_eq(((Octet__V1__QuantizeRequest *)message)->n_buffers, COUNT);
    free(out);
    free(bytes);
}
END_TEST

/* What is no message comes out as none, as it went in but for a longer tag of a buffer that never
 * ends. */
START_TEST(rubbish_stays_rubbish)
{
    enum { LENGTH = 300 };
    uint8_t bytes[LENGTH], out[LENGTH + OCTET_GATHER_PADDING];
    uint32_t random = 1;

    for (int round = 0; round < 20000; round++) {
        size_t length = 1 + (random >> 9) % LENGTH;
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
        if (round % 2)
            bytes[0] = 0x7a;
        size_t n = gather(bytes, length, 1 + (random >> 11) % 50, out);
        ProtobufCMessage *message;
        octet_arena_reset(arena);
        enum octet_status before = octet_wire_decode(&octet__v1__quantize_request__descriptor,
                                                     arena, bytes, length, &message, &err);
        ck_assert_int_eq(octet_wire_decode(&octet__v1__quantize_request__descriptor, arena, out, n,
                                           &message, &err),
                         before);
        if (n == length)
            ck_assert_mem_eq(out, bytes, length);
        else
            ck_assert_int_eq(before, OCTET_INVALID_ARGUMENT);
    }
    /* Without a schema there is nothing to align. */
    struct octet_wire_gather g;
    octet_wire_gather_init(&g, NULL, out);
    octet_wire_gather_add(&g, (const uint8_t *)"abc", 3);
    ck_assert_uint_eq(octet_wire_gather_end(&g), 3);
}
END_TEST

TCase *tensor_cases(void)
{
    TCase *cases = tcase_create("tensor");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, every_dtype_has_its_length);
    tcase_add_test(cases, shapes_that_cannot_be_are_refused);
    tcase_add_test(cases, no_elements_and_one_number_are_arrays);
    tcase_add_test(cases, data_that_lies_anywhere_is_aligned);
    tcase_add_test(cases, four_bit_codes_are_in_range);
    tcase_add_test(cases, buffers_are_found_by_number);
    tcase_add_test(cases, operands_name_what_they_lack);
    tcase_add_test(cases, replies_use_buffers_when_the_request_did);
    tcase_add_test(cases, buffers_at_the_end_stay_in_place);
    tcase_add_test(cases, buffers_in_any_order_are_read);
    tcase_add_test(cases, every_cut_of_a_message_with_buffers_is_safe);
    tcase_add_test(cases, a_crowd_of_empty_buffers_ends_at_the_budget);
    tcase_add_test(cases, large_buffers_become_aligned_whatever_the_pieces);
    tcase_add_test(cases, padding_has_an_end);
    tcase_add_test(cases, rubbish_stays_rubbish);
    return cases;
}
