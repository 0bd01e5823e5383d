/* Fuzz target of the wire: any bytes as any request or reply.
 *
 * Holds: decoding fails only with the two statuses it promises and a sentence; what was decoded is
 * written as JSON, and packed and decoded again gives the same JSON; a request that was decoded can
 * be answered, and the answer packed, within the memory that was allowed; a request that arrives in
 * pieces is put together and decoded in place to the same message. The first byte selects: bits 0,
 * 1 and 4 the method, bit 2 its reply instead of its request, bit 3 answer it, bits 5-7 the size of
 * the pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/methods.h"

enum { MEMORY_BYTES_MAX = 8 * 1024 * 1024, REPLY = 4, ANSWER = 8, MESSAGE_BYTES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

struct text {
    char *bytes;
    size_t length, room;
};

static bool append(void *user, const char *piece, size_t length)
{
    struct text *text = user;

    if (text->length + length > text->room) {
        text->room = 2 * (text->length + length);
        text->bytes = realloc(text->bytes, text->room);
        require(text->bytes != NULL, "there is memory for the JSON");
    }
    memcpy(text->bytes + text->length, piece, length);
    text->length += length;
    return true;
}

static void check_status(enum octet_status status, const struct octet_error *err)
{
    require(status == err->status, "the error has the status that was returned");
    require(err->text[0] != '\0', "an error says something");
}

static void check_again(const ProtobufCMessage *message, octet_arena *arena)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(size + 1);
    struct text before = {0}, after = {0};
    struct octet_error err = {0};
    ProtobufCMessage *again;

    require(packed != NULL, "there is memory for the packed message");
    require(protobuf_c_message_pack(message, packed) == size, "a message has the size it told");
    require(octet_wire_json(message, append, &before), "JSON is written");
    enum octet_status status =
        octet_wire_decode(message->descriptor, arena, packed, size, &again, &err);
    if (status == OCTET_OK) {
        require(octet_wire_json(again, append, &after), "JSON is written again");
        require(before.length == after.length &&
                    memcmp(before.bytes, after.bytes, after.length) == 0,
                "packing and decoding changes nothing");
    } else {
        require(status == OCTET_RESOURCE_EXHAUSTED, "what was packed is well-formed");
    }
    free(before.bytes);
    free(after.bytes);
    free(packed);
}

static void answer(const struct octet_method *method, const ProtobufCMessage *request,
                   octet_arena *arena)
{
    const struct octet_limits limits = {.graph_nodes = 3000,
                                        .plan_memory_bytes = MEMORY_BYTES_MAX,
                                        .pattern_match_steps = 1000,
                                        .yaml_bytes = 1 << 16};
    const struct octet_server_facts facts = {.lanes = 1};
    static octet_workers *workers; /* as long as the process */
    struct octet_error err = {0};
    octet_context *context;
    ProtobufCMessage *response;

    require(octet_context_create(&limits, &context, &err) == OCTET_OK, "a context is made");
    require(workers || octet_workers_create("scalar", 1, &workers, &err) == OCTET_OK,
            "workers are made");
    const struct octet_call call = {context, arena, NULL, &facts, workers};
    enum octet_status status = method->run(&call, request, &response, &err);
    if (status == OCTET_OK)
        check_again(response, arena);
    else
        check_status(status, &err);
    octet_context_destroy(context);
}

/* The message in pieces, put together and decoded where it lies: as `plain`, which it was decoded
 * to before. out has room for it. */
static const ProtobufCMessage *check_in_place(const ProtobufCMessage *plain, const uint8_t *bytes,
                                              size_t size, size_t step, octet_arena *arena,
                                              uint8_t *out)
{
    struct octet_wire_gather gather;
    struct text before = {0}, after = {0};
    struct octet_error err = {0};
    ProtobufCMessage *message;

    octet_wire_gather_init(&gather, plain->descriptor, out);
    for (size_t at = 0; at < size; at += step)
        octet_wire_gather_add(&gather, bytes + at, size - at < step ? size - at : step);
    size_t length = octet_wire_gather_end(&gather);
    require(length >= size && length <= size + OCTET_GATHER_PADDING, "padding is bounded");
    enum octet_status status =
        octet_wire_decode_in_place(plain->descriptor, arena, out, length, &message, &err);
    if (status == OCTET_RESOURCE_EXHAUSTED)
        return plain; /* the arena holds the first one too */
    require(status == OCTET_OK, "in place as in pieces");
    require(octet_wire_json(plain, append, &before) && octet_wire_json(message, append, &after),
            "JSON is written");
    require(before.length == after.length && memcmp(before.bytes, after.bytes, after.length) == 0,
            "in place it is the same message");
    free(before.bytes);
    free(after.bytes);
    return message;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0 || size > MESSAGE_BYTES_MAX)
        return 0;
    size_t number = (size_t)((bytes[0] & 3) | (bytes[0] & 16) >> 2);
    const struct octet_method *method = &octet_methods[number % octet_method_count];
    octet_arena *arena = octet_arena_create(MEMORY_BYTES_MAX);
    struct octet_error err = {0};
    ProtobufCMessage *decoded;
    uint8_t *out = malloc(size + OCTET_GATHER_PADDING);

    require(arena && out, "there is memory");
    enum octet_status status =
        octet_wire_decode(bytes[0] & REPLY ? method->response : method->request, arena, bytes + 1,
                          size - 1, &decoded, &err);
    if (status == OCTET_OK) {
        check_again(decoded, arena);
        const ProtobufCMessage *message =
            check_in_place(decoded, bytes + 1, size - 1, (size_t)1 << (bytes[0] >> 5), arena, out);
        if ((bytes[0] & ANSWER) && !(bytes[0] & REPLY))
            answer(method, message, arena);
    } else {
        require(status == OCTET_INVALID_ARGUMENT || status == OCTET_RESOURCE_EXHAUSTED,
                "decoding fails in two ways only");
        check_status(status, &err);
    }
    require(octet_arena_held(arena) <= MEMORY_BYTES_MAX, "the budget holds");
    octet_arena_destroy(arena);
    free(out);
    return 0;
}
