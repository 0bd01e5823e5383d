/* The walk over a message's bytes; see scan.h. Source: protobuf's "Encoding" page; Unicode 15,
 * table 3-7. */
#include "wire/scan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "wire/descriptor.h"

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5, WIRE_NONE = -1 };

struct cursor {
    const uint8_t *at, *end;
};

/* One field as it lies on the wire. */
struct record {
    uint32_t number;
    int wire;
    uint64_t varint;
    const uint8_t *data; /* of a LENGTH record */
    size_t length;
};

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static bool read_varint(struct cursor *c, uint64_t *value)
{
    uint64_t result = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (c->at == c->end)
            return false;
        uint8_t byte = *c->at++;
        if (shift < 64)
            result |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = result;
            return true;
        }
    }
    return false;
}

/* NULL, or what is wrong with the record that starts at the cursor. */
static const char *read_record(struct cursor *c, struct record *r)
{
    uint64_t tag, length;

    *r = (struct record){0};
    if (!read_varint(c, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return "has no valid tag";
    r->number = (uint32_t)(tag >> 3);
    r->wire = (int)(tag & 7);
    switch (r->wire) {
    case VARINT:
        return read_varint(c, &r->varint) ? NULL : "has a varint without an end";
    case FIXED64:
    case FIXED32: {
        size_t size = r->wire == FIXED64 ? 8 : 4;
        if (left(c) < size)
            return "ends inside a number";
        c->at += size;
        return NULL;
    }
    case LENGTH:
        if (!read_varint(c, &length) || length > left(c))
            return "is longer than the message that holds it";
        r->data = c->at;
        r->length = (size_t)length;
        c->at += length;
        return NULL;
    default:
        return "has a wire type that proto3 does not know";
    }
}

static int expected_wire(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return LENGTH;
    default:
        return VARINT;
    }
}

size_t oct_wire_text_prefix(const uint8_t *text, size_t length)
{
    size_t i = 0;

    while (i < length) {
        uint8_t lead = text[i];
        if (lead < 0x80) {
            if (lead == 0)
                return i;
            i++;
            continue;
        }
        /* The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
         */
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
        if (size == 0 || length - i < size || text[i + 1] < low || text[i + 1] > high)
            return i;
        for (size_t k = 2; k < size; k++)
            if ((text[i + k] & 0xc0) != 0x80)
                return i;
        i += size;
    }
    return i;
}

static enum octet_status check_text(const struct record *r, struct octet_error *err)
{
    size_t good = oct_wire_text_prefix(r->data, r->length);

    if (good == r->length)
        return OCTET_OK;
    if (r->data[good] == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "byte %zu of %zu is NUL, which text may not hold", good, r->length);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                      "byte %zu of %zu (0x%02x) does not continue valid UTF-8", good, r->length,
                      r->data[good]);
}

static enum octet_status check_enum(const ProtobufCEnumDescriptor *descriptor, uint64_t varint,
                                    struct octet_error *err)
{
    int value = (int)(uint32_t)varint; /* as protobuf reads an enum: the low 32 bits */

    if (protobuf_c_enum_descriptor_get_value(descriptor, value))
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%d is not a value of enum %s", value,
                      descriptor->name);
}

/* A packed repeated scalar: whole elements, and for enums known ones. */
static enum octet_status check_packed(const ProtobufCFieldDescriptor *field, const struct record *r,
                                      struct octet_error *err)
{
    struct cursor c = {r->data, r->data + r->length};
    int wire = expected_wire(field->type);

    if (wire != VARINT) {
        if (r->length % (wire == FIXED64 ? 8 : 4) != 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "ends inside a number");
        return OCTET_OK;
    }
    while (c.at < c.end) {
        uint64_t value;
        if (!read_varint(&c, &value))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "has a varint without an end");
        if (field->type == PROTOBUF_C_TYPE_ENUM) {
            enum octet_status status = check_enum(field->descriptor, value, err);
            if (status != OCTET_OK)
                return status;
        }
    }
    return OCTET_OK;
}

static enum octet_status check_value(const ProtobufCFieldDescriptor *field, const struct record *r,
                                     struct octet_error *err)
{
    int expected = expected_wire(field->type);

    if (r->wire != expected) {
        if (r->wire == LENGTH && field->label == PROTOBUF_C_LABEL_REPEATED)
            return check_packed(field, r, err);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "has wire type %d, not %d", r->wire,
                          expected);
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return check_text(r, err);
    case PROTOBUF_C_TYPE_ENUM:
        return check_enum(field->descriptor, r->varint, err);
    case PROTOBUF_C_TYPE_MESSAGE:
        return oct_wire_scan(field->descriptor, r->data, r->length, err);
    default:
        return OCTET_OK;
    }
}

/* The key of a map's entry as an index, when it is printable text that fits. */
static bool entry_key(const struct record *entry, char *key, size_t size)
{
    struct cursor c = {entry->data, entry->data};
    struct record r;

    if (entry->wire != LENGTH || entry->length == 0)
        return false;
    c.end += entry->length;
    while (c.at < c.end) {
        if (read_record(&c, &r))
            return false;
        if (r.number != 1 || r.wire != LENGTH)
            continue;
        if (r.length >= size || oct_wire_text_prefix(r.data, r.length) != r.length)
            return false;
        memcpy(key, r.data, r.length);
        key[r.length] = '\0';
        for (char *byte = key; *byte; byte++)
            if ((unsigned char)*byte < 0x20 || *byte == 0x7f)
                *byte = '?';
        return true;
    }
    return false;
}

/* Names the field in err: "name", "rules[2]", "overrides[dtype]". Only here are elements counted,
 * so that a sound message costs no bookkeeping. `before` is where the record at fault starts. */
static enum octet_status name_field(const ProtobufCFieldDescriptor *field, const uint8_t *bytes,
                                    const uint8_t *before, const struct record *at,
                                    struct octet_error *err)
{
    struct cursor c = {bytes, before};
    struct record r;
    char outer[256], key[128];
    size_t index = 0;

    if (!err)
        return OCTET_INVALID_ARGUMENT;
    if (oct_wire_is_map(field) && entry_key(at, key, sizeof key)) {
        snprintf(outer, sizeof outer, "%s[%s]", field->name, key);
        if (strcmp(err->field, "value") == 0)
            err->field[0] = '\0'; /* overrides[dtype], not overrides[dtype].value */
    } else if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        while (c.at < c.end && !read_record(&c, &r))
            index += r.number == field->id;
        snprintf(outer, sizeof outer, "%s[%zu]", field->name, index);
    } else {
        snprintf(outer, sizeof outer, "%s", field->name);
    }
    return octet_error_within(err, outer);
}

enum octet_status oct_wire_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                size_t length, struct octet_error *err)
{
    struct cursor c = {bytes, bytes};

    if (length == 0)
        return OCTET_OK; /* bytes may be NULL */
    c.end += length;
    while (c.at < c.end) {
        const uint8_t *before = c.at;
        struct record r;
        const char *fault = read_record(&c, &r);
        const ProtobufCFieldDescriptor *field =
            r.number ? protobuf_c_message_descriptor_get_field(descriptor, r.number) : NULL;
        enum octet_status status = OCTET_OK;
        if (fault)
            status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                                "malformed %s: field %" PRIu32 " at byte %zu %s", descriptor->name,
                                r.number, (size_t)(before - bytes), fault);
        else if (field)
            status = check_value(field, &r, err);
        if (status != OCTET_OK)
            return field && !fault ? name_field(field, bytes, before, &r, err) : status;
    }
    return OCTET_OK;
}

bool oct_wire_next(const uint8_t *bytes, size_t length, size_t *at, struct oct_wire_record *out)
{
    struct cursor c = {bytes, bytes};
    struct record r;

    if (*at >= length)
        return false;
    c.at += *at;
    c.end += length;
    if (read_record(&c, &r))
        return false;
    size_t end = (size_t)(c.at - bytes);
    *out = (struct oct_wire_record){
        .number = r.number,
        .start = *at,
        .end = end,
        .value = {r.length, (uint8_t *)(uintptr_t)r.data},
    };
    *at = end;
    return true;
}
