/* Pieces -> one message with aligned buffers; see methods.h. Walks the top level only. */
#include <string.h>

#include "wire/methods.h"

enum { ALIGNMENT = 8, WORTH_BYTES = 4096 };

void octet_wire_gather_init(struct octet_wire_gather *g,
                            const ProtobufCMessageDescriptor *descriptor, uint8_t *out)
{
    const ProtobufCFieldDescriptor *field =
        descriptor ? protobuf_c_message_descriptor_get_field_by_name(descriptor, "buffers") : NULL;

    *g = (struct octet_wire_gather){.out = out, .number = field ? field->id : 0};
    g->is_plain = g->number == 0;
}

static void append(struct octet_wire_gather *g, const uint8_t *bytes, size_t length)
{
    memcpy(g->out + g->used, bytes, length);
    g->used += length;
}

/* The varint at `at`; returns the byte after it, 0 when it does not end in the head. */
static size_t varint(const struct octet_wire_gather *g, size_t at, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; at < g->head_bytes && shift < 64; shift += 7) {
        uint8_t byte = g->head[at++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return at;
    }
    return 0;
}

/* A tag that is longer by `more` bytes. */
static void put_tag(struct octet_wire_gather *g, size_t tag_bytes, size_t more)
{
    append(g, g->head, tag_bytes);
    if (more == 0)
        return;
    g->out[g->used - 1] |= 0x80;
    memset(g->out + g->used, 0x80, more - 1);
    g->out[g->used + more - 1] = 0;
    g->used += more;
    g->padding += more;
}

enum head { HEAD_INCOMPLETE, HEAD_COMPLETE, HEAD_BROKEN };

/* Is the head of a record complete? Then it goes out, and g->left bytes of value follow. */
static enum head take_head(struct octet_wire_gather *g)
{
    uint64_t tag, value = 0;
    size_t tag_end = varint(g, 0, &tag), end;

    if (!tag_end)
        return g->head_bytes < 10 ? HEAD_INCOMPLETE : HEAD_BROKEN;
    switch (tag & 7) {
    case 1:
    case 5:
        end = tag_end;
        value = (tag & 7) == 1 ? 8 : 4;
        break;
    case 0:
    case 2:
        end = varint(g, tag_end, &value);
        if (!end)
            return g->head_bytes - tag_end < 10 ? HEAD_INCOMPLETE : HEAD_BROKEN;
        break;
    default:
        return HEAD_BROKEN;
    }
    size_t more = 0;
    if (tag >> 3 == g->number && (tag & 7) == 2 && value >= WORTH_BYTES && tag_end == 1)
        more = -((uintptr_t)g->out + g->used + end) % ALIGNMENT;
    if (g->padding + more > OCTET_GATHER_PADDING)
        more = 0;
    put_tag(g, tag_end, more);
    append(g, g->head + tag_end, end - tag_end);
    g->left = (tag & 7) == 0 ? 0 : value;
    g->head_bytes = 0;
    return HEAD_COMPLETE;
}

void octet_wire_gather_add(struct octet_wire_gather *g, const uint8_t *piece, size_t length)
{
    while (length > 0) {
        size_t n = length;
        if (!g->is_plain && g->left == 0) {
            g->head[g->head_bytes++] = *piece++;
            length--;
            enum head head = take_head(g);
            if (head == HEAD_BROKEN) {
                append(g, g->head, g->head_bytes);
                g->is_plain = true;
            }
            continue;
        }
        if (!g->is_plain && n > g->left)
            n = (size_t)g->left;
        append(g, piece, n);
        piece += n;
        length -= n;
        g->left -= g->is_plain ? 0 : n;
    }
}

size_t octet_wire_gather_end(struct octet_wire_gather *g)
{
    if (!g->is_plain)
        append(g, g->head, g->head_bytes); /* of a message that ends too early */
    return g->used;
}
