/* Fuzz target of the wire: any bytes as any request or reply.
 *
 * Holds: decoding fails only with the two statuses it promises and a sentence; what was decoded is
 * written as JSON, and packed and decoded again gives the same JSON; a request that was decoded can
 * be answered, and the answer packed, within the memory that was allowed; a request that arrives in
 * pieces is put together and decoded in place to the same message. Methods on a session have one of
 * a tiny model, called "s", lent to them; one that a fault breaks would break the next inputs too,
 * so each gets a new one. The first byte selects: bits 0, 1 and 4 the method, bit 2 its reply
 * instead of its request, bit 3 answer it, bits 5-7 the size of the pieces; where bit 2 and bit 3
 * are both set, the next byte selects among all methods and the request is answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/held.h"

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

/* ---- A session to lend ---- */

static octet_held *make_session(octet_context *context)
{
    static const struct octet_pair settings[] = {
        {"base_emb_dim", "8"},          {"base_num_query_heads", "1"},
        {"base_num_kv_heads", "1"},     {"head_dim", "8"},
        {"base_mlp_dim", "8"},          {"base_num_decoder_layers", "1"},
        {"vocab_size", "16"},           {"max_target_length", "4"},
        {"per_device_batch_size", "1"}, {"decoder_block", "llama2"},
    };
    const struct octet_config_input input = {.overrides = settings,
                                             .override_count = sizeof settings / sizeof *settings};
    const struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    struct octet_error err = {0};
    octet_session *session;

    if (octet_session_create(context, &input, NULL, &options, &session, &err) != OCTET_OK) {
        fprintf(stderr, "%s: %s\n", err.field, err.text);
        abort();
    }
    octet_held *held = octet_held_create(session);
    require(held != NULL, "there is memory for a session");
    held->id[0] = 's';
    return held;
}

static enum octet_status host_begin(void *user, const char *id, char known[OCTET_SESSION_ID_BYTES],
                                    struct octet_error *err)
{
    (void)user, (void)id, (void)err;
    known[0] = '\0';
    return OCTET_OK;
}

static void host_end(void *user, const char *id)
{
    (void)user, (void)id;
}

static enum octet_status host_admit(void *user, uint64_t bytes, struct octet_error *err)
{
    (void)user;
    return bytes <= MEMORY_BYTES_MAX
               ? OCTET_OK
               : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "too large a session");
}

static void host_withdraw(void *user, uint64_t bytes)
{
    (void)user, (void)bytes;
}

static uint64_t host_room(void *user)
{
    (void)user;
    return MEMORY_BYTES_MAX;
}

static enum octet_status host_keep(void *user, octet_held *held, char id[OCTET_SESSION_ID_BYTES],
                                   struct octet_error *err)
{
    (void)user, (void)err;
    memcpy(id, "made", 5);
    octet_held_destroy(held);
    return OCTET_OK;
}

static bool host_touch(void *user, const char *id, int64_t *lease_ms)
{
    (void)user;
    *lease_ms = 1000;
    return strcmp(id, "s") == 0;
}

static enum octet_status host_list(void *user, octet_arena *arena, struct octet_held_info **out,
                                   size_t *count, struct octet_error *err)
{
    (void)user;
    *count = 1;
    *out = OCTET_NEW_ARRAY(arena, 1, struct octet_held_info);
    if (!*out)
        return octet_arena_exhausted(arena, err);
    (*out)->backend = "cpu";
    return OCTET_OK;
}

static enum octet_status host_directory(void *user, bool writes, const char **out,
                                        struct octet_error *err)
{
    (void)user, (void)writes, (void)out;
    return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL, "no files here");
}

static const struct octet_host host = {
    .lease_ms = 1000,
    .lease_ms_max = 100000,
    .begin = host_begin,
    .end = host_end,
    .admit = host_admit,
    .withdraw = host_withdraw,
    .room = host_room,
    .keep = host_keep,
    .touch = host_touch,
    .list = host_list,
    .directory = host_directory,
};

/* ---- Answers ---- */

static enum octet_status run(const struct octet_method *method, const struct octet_call *call,
                             const ProtobufCMessage *request)
{
    struct octet_error err = {0};
    ProtobufCMessage *response;
    enum octet_status status = method->run(call, request, &response, &err);

    if (status == OCTET_OK)
        check_again(response, call->arena);
    else
        check_status(status, &err);
    return status;
}

/* The rest of a stream: an upload's end, some more of a download. */
static void run_stream(const struct octet_method *method, const struct octet_call *call)
{
    enum { MORE = 5 };

    if (method->shape == OCTET_METHOD_UPLOAD) {
        call->exchange->is_last = true;
        run(method, call, NULL);
    }
    for (int i = 0; i < MORE && method->shape == OCTET_METHOD_DOWNLOAD; i++)
        if (!call->exchange->has_more || run(method, call, NULL) != OCTET_OK)
            break;
}

static void answer(const struct octet_method *method, const ProtobufCMessage *request,
                   octet_arena *arena)
{
    const struct octet_limits limits = {.graph_nodes = 3000,
                                        .plan_memory_bytes = MEMORY_BYTES_MAX,
                                        .pattern_match_steps = 1000,
                                        .yaml_bytes = 1 << 16};
    const struct octet_server_facts facts = {.lanes = 1, .message_bytes_max = MEMORY_BYTES_MAX};
    static octet_workers *workers; /* as long as the process */
    struct octet_error err = {0};
    struct octet_exchange exchange = {.has_more = false};
    octet_context *context;

    require(octet_context_create(&limits, &context, &err) == OCTET_OK, "a context is made");
    require(workers || octet_workers_create("scalar", 1, &workers, &err) == OCTET_OK,
            "workers are made");
    octet_held *held = method->access != OCTET_ACCESS_NONE ? make_session(context) : NULL;
    const struct octet_call call = {.context = context,
                                    .arena = arena,
                                    .facts = &facts,
                                    .workers = workers,
                                    .host = &host,
                                    .session = held,
                                    .exchange = &exchange};
    if (run(method, &call, request) == OCTET_OK)
        run_stream(method, &call);
    if (exchange.state_free)
        exchange.state_free(exchange.state);
    octet_held_destroy(held);
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

/* What the first bytes select. */
struct choice {
    const struct octet_method *method;
    bool is_reply, is_answered;
    size_t step, head; /* bytes of a piece, of the selection */
};

static struct choice choose(const uint8_t *bytes, size_t size)
{
    size_t number = (size_t)((bytes[0] & 3) | (bytes[0] & 16) >> 2);
    struct choice c = {
        .method = &octet_methods[number % octet_method_count],
        .is_reply = bytes[0] & REPLY,
        .is_answered = (bytes[0] & ANSWER) && !(bytes[0] & REPLY),
        .step = (size_t)1 << (bytes[0] >> 5),
        .head = 1,
    };

    if ((bytes[0] & REPLY) && (bytes[0] & ANSWER) && size > 1) {
        c.method = &octet_methods[bytes[1] % octet_method_count];
        c.is_reply = false;
        c.is_answered = true;
        c.head = 2;
    }
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0 || size > MESSAGE_BYTES_MAX)
        return 0;
    const struct choice c = choose(bytes, size);
    octet_arena *arena = octet_arena_create(MEMORY_BYTES_MAX);
    struct octet_error err = {0};
    ProtobufCMessage *decoded;
    uint8_t *out = malloc(size + OCTET_GATHER_PADDING);

    require(arena && out, "there is memory");
    bytes += c.head;
    size -= c.head;
    enum octet_status status = octet_wire_decode(
        c.is_reply ? c.method->response : c.method->request, arena, bytes, size, &decoded, &err);
    if (status == OCTET_OK) {
        check_again(decoded, arena);
        const ProtobufCMessage *message = check_in_place(decoded, bytes, size, c.step, arena, out);
        if (c.is_answered)
            answer(c.method, message, arena);
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
