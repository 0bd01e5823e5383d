/* Bytes -> message, in the request's arena.
 *
 * Decision: three passes. The scan checks what protobuf-c does not and gives faults their names;
 * protobuf-c unpacks with the arena as its allocator, so the arena's budget bounds a message
 * however small its bytes (2 bytes of an empty rule become a struct of 192); last, maps
 * keep one entry a key. protobuf-c copies all bytes fields; `buffers`, where large tensors lie, is
 * kept from it, since the run of them that ends a message can be cut off before it is unpacked. */
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

/* The run of `count` buffers from `at` to the end, as elements that point into the bytes. */
static enum octet_status point_to(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                  octet_arena *arena, const uint8_t *bytes, size_t length,
                                  size_t at, size_t count, struct octet_error *err)
{
    ProtobufCBinaryData *list = OCTET_NEW_ARRAY(arena, count, ProtobufCBinaryData);

    if (!list)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < count; i++)
        list[i] = oct_wire_bytes_at(bytes, length, &at);
    *(ProtobufCBinaryData **)(void *)((char *)message + field->offset) = list;
    *(size_t *)(void *)((char *)message + field->quantifier_offset) = count;
    return OCTET_OK;
}

enum octet_status octet_wire_decode_in_place(const ProtobufCMessageDescriptor *descriptor,
                                             octet_arena *arena, const uint8_t *bytes,
                                             size_t length, ProtobufCMessage **out,
                                             struct octet_error *err)
{
    const ProtobufCFieldDescriptor *field = buffers_of(descriptor);
    size_t count = 0, tail = length;
    ProtobufCMessage *message;
    enum octet_status status = oct_wire_scan(descriptor, bytes, length, err);

    if (status != OCTET_OK)
        return status;
    if (field)
        tail = oct_wire_tail(field, bytes, length, &count);
    if (count == 0 || tail == SIZE_MAX)
        return unpack(descriptor, arena, bytes, length, out, err);
    status = unpack(descriptor, arena, bytes, tail, &message, err);
    if (status == OCTET_OK)
        status = point_to(message, field, arena, bytes, length, tail, count, err);
    if (status == OCTET_OK)
        *out = message;
    return status;
}
