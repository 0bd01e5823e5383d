/* Fuzz target of the wire: any bytes as any request or reply.
 *
 * Holds: decoding fails only with the two statuses it promises and a sentence; what was decoded is
 * written as JSON, and packed and decoded again gives the same JSON; a request that was decoded can
 * be answered, and the answer packed, within the memory that was allowed. The first byte selects:
 * bits 0-1 the method, bit 2 its reply instead of its request, bit 3 answer it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/methods.h"

enum { MEMORY_BYTES_MAX = 8 * 1024 * 1024, REPLY = 4, ANSWER = 8 };

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
    struct octet_error err = {0};
    octet_context *context;
    ProtobufCMessage *response;

    require(octet_context_create(&limits, &context, &err) == OCTET_OK, "a context is made");
    const struct octet_call call = {context, arena, NULL, &facts, NULL};
    enum octet_status status = method->run(&call, request, &response, &err);
    if (status == OCTET_OK)
        check_again(response, arena);
    else
        check_status(status, &err);
    octet_context_destroy(context);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    const struct octet_method *method = &octet_methods[(bytes[0] & 3) % octet_method_count];
    octet_arena *arena = octet_arena_create(MEMORY_BYTES_MAX);
    struct octet_error err = {0};
    ProtobufCMessage *message;

    require(arena != NULL, "an arena is made");
    enum octet_status status =
        octet_wire_decode(bytes[0] & REPLY ? method->response : method->request, arena, bytes + 1,
                          size - 1, &message, &err);
    if (status == OCTET_OK) {
        check_again(message, arena);
        if ((bytes[0] & ANSWER) && !(bytes[0] & REPLY))
            answer(method, message, arena);
    } else {
        require(status == OCTET_INVALID_ARGUMENT || status == OCTET_RESOURCE_EXHAUSTED,
                "decoding fails in two ways only");
        check_status(status, &err);
    }
    require(octet_arena_held(arena) <= MEMORY_BYTES_MAX, "the budget holds");
    octet_arena_destroy(arena);
    return 0;
}
