/* Bytes -> message, in the request's arena.
 *
 * Decision: three passes. The scan checks what protobuf-c does not and gives faults their names;
 * protobuf-c unpacks with the arena as its allocator, so the arena's budget bounds a message
 * however small its bytes (2 bytes of an empty rule become a struct of 192); last, maps
 * keep one entry a key. protobuf-c copies all bytes fields; `buffers`, where large tensors lie, is
 * kept from it: protobuf-c sees the other records only. */
#include <stdlib.h>
#include <string.h>

#include "wire/descriptor.h"
#include "wire/methods.h"
#include "wire/scan.h"

struct source {
    octet_arena *arena;
    bool exhausted; /* tells "no memory" from "malformed" when protobuf-c just says no */
};

static void *source_alloc(void *user, size_t size)
{
    struct source *source = user;
    void *piece = octet_arena_alloc(source->arena, size);

    if (!piece)
        source->exhausted = true;
    return piece;
}

static void source_free(void *user, void *piece)
{
    (void)user;
    (void)piece; /* the arena ends with the request */
}

struct entry {
    ProtobufCMessage *message;
    size_t index;
};

static int compare_numbers(const void *a, const void *b, size_t size)
{
    uint64_t x = 0, y = 0;

    memcpy(&x, a, size);
    memcpy(&y, b, size);
    return x < y ? -1 : x > y;
}

static int compare_keys(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    const ProtobufCFieldDescriptor *key = &a->descriptor->fields[0];
    const void *x = oct_wire_element(a, key, 0), *y = oct_wire_element(b, key, 0);

    if (key->type == PROTOBUF_C_TYPE_STRING)
        return strcmp(*(const char *const *)x, *(const char *const *)y);
    return compare_numbers(x, y, oct_wire_element_size(key->type));
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_keys(x->message, y->message);

    return order ? order : x->index < y->index ? -1 : 1;
}

/* Entries in order of keys, the last of each key only. */
static enum octet_status settle_map(octet_arena *arena, ProtobufCMessage *message,
                                    const ProtobufCFieldDescriptor *field, struct octet_error *err)
{
    size_t *count = (size_t *)(void *)((char *)message + field->quantifier_offset);
    ProtobufCMessage **list = *(ProtobufCMessage ***)(void *)((char *)message + field->offset);
    struct entry *entries = OCTET_NEW_ARRAY(arena, *count, struct entry);

    if (!entries)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < *count; i++)
        entries[i] = (struct entry){list[i], i};
    qsort(entries, *count, sizeof *entries, compare_entries);
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (i + 1 == *count || compare_keys(entries[i].message, entries[i + 1].message) != 0)
            list[kept++] = entries[i].message;
    *count = kept;
    return OCTET_OK;
}

static enum octet_status settle_maps(octet_arena *arena, ProtobufCMessage *message,
                                     struct octet_error *err)
{
    for (unsigned f = 0; f < message->descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        enum octet_status status = OCTET_OK;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE || !oct_wire_is_present(message, field))
            continue;
        if (oct_wire_is_map(field))
            status = settle_map(arena, message, field, err);
        for (size_t i = 0; status == OCTET_OK && i < oct_wire_count(message, field); i++)
            status = settle_maps(
                arena, *(ProtobufCMessage *const *)oct_wire_element(message, field, i), err);
        if (status != OCTET_OK)
            return status;
    }
    return OCTET_OK;
}

static enum octet_status unpack(const ProtobufCMessageDescriptor *descriptor, octet_arena *arena,
                                const uint8_t *bytes, size_t length, ProtobufCMessage **out,
                                struct octet_error *err)
{
    struct source source = {arena, false};
    ProtobufCAllocator allocator = {source_alloc, source_free, &source};
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &allocator, length, bytes);

    if (!message && source.exhausted)
        return octet_arena_exhausted(arena, err);
    if (!message)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "malformed %s", descriptor->name);
    enum octet_status status = settle_maps(arena, message, err);
    if (status == OCTET_OK)
        *out = message;
    return status;
}

enum octet_status octet_wire_decode(const ProtobufCMessageDescriptor *descriptor,
                                    octet_arena *arena, const uint8_t *bytes, size_t length,
                                    ProtobufCMessage **out, struct octet_error *err)
{
    enum octet_status status = oct_wire_scan(descriptor, bytes, length, err);

    return status == OCTET_OK ? unpack(descriptor, arena, bytes, length, out, err) : status;
}

/* ---- Buffers ---- */

static const ProtobufCFieldDescriptor *buffers_of(const ProtobufCMessageDescriptor *descriptor)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(descriptor, "buffers");

    return field && field->type == PROTOBUF_C_TYPE_BYTES &&
                   field->label == PROTOBUF_C_LABEL_REPEATED
               ? field
               : NULL;
}

/* What a message is made of: buffers, and the rest. */
struct parts {
    size_t count;        /* of buffers */
    size_t rest;         /* bytes of the other records */
    bool is_interleaved; /* others follow on a buffer */
};

static struct parts measure(uint32_t number, const uint8_t *bytes, size_t length)
{
    struct parts p = {.count = 0};
    struct oct_wire_record r;

    for (size_t at = 0; oct_wire_next(bytes, length, &at, &r);) {
        if (r.number == number) {
            p.count++;
        } else {
            p.rest += r.end - r.start;
            p.is_interleaved |= p.count > 0;
        }
    }
    return p;
}

/* The records that are not buffers, in one piece; as known writers order fields, that is how they
 * lie. NULL when there is no memory. */
static const uint8_t *rest_of(const struct parts *p, uint32_t number, octet_arena *arena,
                              const uint8_t *bytes, size_t length)
{
    struct oct_wire_record r;
    size_t used = 0;

    if (!p->is_interleaved)
        return bytes;
    uint8_t *copy = octet_arena_alloc_unset(arena, p->rest);
    for (size_t at = 0; copy && oct_wire_next(bytes, length, &at, &r);)
        if (r.number != number) {
            memcpy(copy + used, bytes + r.start, r.end - r.start);
            used += r.end - r.start;
        }
    return copy;
}

/* Puts the buffers into the message as elements that point into the bytes. */
static enum octet_status point_to(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                  size_t count, octet_arena *arena, const uint8_t *bytes,
                                  size_t length, struct octet_error *err)
{
    ProtobufCBinaryData *list = OCTET_NEW_ARRAY(arena, count, ProtobufCBinaryData);
    struct oct_wire_record r;
    size_t n = 0;

    if (!list)
        return octet_arena_exhausted(arena, err);
    for (size_t at = 0; oct_wire_next(bytes, length, &at, &r);)
        if (r.number == field->id)
            list[n++] = r.value;
    *(ProtobufCBinaryData **)(void *)((char *)message + field->offset) = list;
    *(size_t *)(void *)((char *)message + field->quantifier_offset) = n;
    return OCTET_OK;
}

enum octet_status octet_wire_decode_in_place(const ProtobufCMessageDescriptor *descriptor,
                                             octet_arena *arena, const uint8_t *bytes,
                                             size_t length, ProtobufCMessage **out,
                                             struct octet_error *err)
{
    const ProtobufCFieldDescriptor *field = buffers_of(descriptor);
    struct parts parts = {.count = 0};
    ProtobufCMessage *message;
    enum octet_status status = oct_wire_scan(descriptor, bytes, length, err);

    if (status != OCTET_OK)
        return status;
    if (field)
        parts = measure(field->id, bytes, length);
    if (parts.count == 0)
        return unpack(descriptor, arena, bytes, length, out, err);
    const uint8_t *rest = rest_of(&parts, field->id, arena, bytes, length);
    if (!rest)
        return octet_arena_exhausted(arena, err);
    status = unpack(descriptor, arena, rest, parts.rest, &message, err);
    if (status == OCTET_OK)
        status = point_to(message, field, parts.count, arena, bytes, length, err);
    if (status == OCTET_OK)
        *out = message;
    return status;
}
