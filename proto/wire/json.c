/* Messages -> proto3 JSON: original field names, defaults included, 64-bit integers as strings,
 * enums by name, maps as objects, bytes in base64, "NaN", "Infinity", "-Infinity". Lists of scalars
 * stay on one line. Source: protobuf's ProtoJSON page. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/descriptor.h"
#include "wire/methods.h"

struct writer {
    bool (*write)(void *user, const char *text, size_t length);
    void *user;
    size_t used;
    bool stopped;
    char buffer[4096]; /* few calls of write, whatever the message looks like */
};

static void flush(struct writer *w)
{
    if (w->used && !w->stopped)
        w->stopped = !w->write(w->user, w->buffer, w->used);
    w->used = 0;
}

static void put(struct writer *w, const char *text, size_t length)
{
    while (length && !w->stopped) {
        size_t room = sizeof w->buffer - w->used, n = length < room ? length : room;
        memcpy(w->buffer + w->used, text, n);
        w->used += n;
        text += n;
        length -= n;
        if (w->used == sizeof w->buffer)
            flush(w);
    }
}

static void put_text(struct writer *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_indent(struct writer *w, int depth)
{
    put(w, "\n", 1);
    for (int i = 0; i < depth; i++)
        put(w, "  ", 2);
}

/* Quotes, backslashes and control characters are escaped; all else is UTF-8 and stands as it is. */
static void put_string(struct writer *w, const char *text)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: character, its letter */
    const char *from = text;

    put(w, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        put(w, from, (size_t)(text - from));
        from = text + 1;
        char escape[8];
        const char *pair = NULL;
        for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
            if (shorts[i] == *text)
                pair = &shorts[i];
        snprintf(escape, sizeof escape, pair ? "\\%c" : "\\u%04x", pair ? pair[1] : c);
        put_text(w, escape);
    }
    put(w, from, (size_t)(text - from));
    put(w, "\"", 1);
}

static void put_base64(struct writer *w, const ProtobufCBinaryData *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    put(w, "\"", 1);
    for (size_t i = 0; i < bytes->len; i += 3) {
        size_t n = bytes->len - i < 3 ? bytes->len - i : 3;
        uint32_t bits = (uint32_t)bytes->data[i] << 16;
        if (n > 1)
            bits |= (uint32_t)bytes->data[i + 1] << 8;
        if (n > 2)
            bits |= bytes->data[i + 2];
        char out[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                       n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63] : '='};
        put(w, out, 4);
    }
    put(w, "\"", 1);
}

/* The shortest decimal that reads back as the same number; `digits` are always enough. */
static void put_real(struct writer *w, double value, int digits, bool is_float)
{
    char text[40];

    if (isnan(value) || isinf(value)) {
        put_text(w, isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        return;
    }
    for (int precision = is_float ? 6 : 15; precision <= digits; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, value);
        if (is_float ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    put_text(w, text);
}

static void put_enum(struct writer *w, const ProtobufCEnumDescriptor *descriptor, int number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);
    char text[16];

    if (value) {
        put_string(w, value->name);
        return;
    }
    snprintf(text, sizeof text, "%d", number);
    put_text(w, text);
}

static void put_message(struct writer *w, const ProtobufCMessage *message, int depth);

static void put_value(struct writer *w, const ProtobufCFieldDescriptor *field, const void *value,
                      int depth)
{
    char text[32] = "";

    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        snprintf(text, sizeof text, "%" PRId32, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        snprintf(text, sizeof text, "%" PRIu32, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        snprintf(text, sizeof text, "\"%" PRId64 "\"", *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        snprintf(text, sizeof text, "\"%" PRIu64 "\"", *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        snprintf(text, sizeof text, "%s", *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        put_real(w, *(const float *)value, 9, true);
        return;
    case PROTOBUF_C_TYPE_DOUBLE:
        put_real(w, *(const double *)value, 17, false);
        return;
    case PROTOBUF_C_TYPE_ENUM:
        put_enum(w, field->descriptor, *(const int *)value);
        return;
    case PROTOBUF_C_TYPE_STRING:
        put_string(w, *(const char *const *)value);
        return;
    case PROTOBUF_C_TYPE_BYTES:
        put_base64(w, value);
        return;
    case PROTOBUF_C_TYPE_MESSAGE:
        put_message(w, *(const ProtobufCMessage *const *)value, depth);
        return;
    }
    put_text(w, text);
}

/* A map's key is always a string in JSON, whatever its type. */
static void put_entry(struct writer *w, const ProtobufCMessage *entry, int depth)
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    const ProtobufCFieldDescriptor *value = &entry->descriptor->fields[1];
    bool quoted = key->type == PROTOBUF_C_TYPE_STRING || oct_wire_element_size(key->type) == 8;

    if (!quoted)
        put(w, "\"", 1);
    put_value(w, key, oct_wire_element(entry, key, 0), depth);
    put_text(w, quoted ? ": " : "\": ");
    put_value(w, value, oct_wire_element(entry, value, 0), depth);
}

static void put_repeated(struct writer *w, const ProtobufCMessage *message,
                         const ProtobufCFieldDescriptor *field, int depth)
{
    bool map = oct_wire_is_map(field), lines = field->type == PROTOBUF_C_TYPE_MESSAGE;
    size_t count = oct_wire_count(message, field);

    put(w, map ? "{" : "[", 1);
    for (size_t i = 0; i < count && !w->stopped; i++) {
        const void *value = oct_wire_element(message, field, i);
        if (i)
            put_text(w, lines ? "," : ", ");
        if (lines)
            put_indent(w, depth + 1);
        if (map)
            put_entry(w, *(const ProtobufCMessage *const *)value, depth + 1);
        else
            put_value(w, field, value, depth + 1);
    }
    if (lines && count)
        put_indent(w, depth);
    put(w, map ? "}" : "]", 1);
}

/* A message or oneof member that is absent is left out: it has no default to print. */
static bool is_printed(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED || oct_wire_is_present(message, field);
}

static void put_message(struct writer *w, const ProtobufCMessage *message, int depth)
{
    bool any = false;

    put(w, "{", 1);
    for (unsigned f = 0; f < message->descriptor->n_fields && !w->stopped; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        if (!is_printed(message, field))
            continue;
        if (any)
            put(w, ",", 1);
        any = true;
        put_indent(w, depth + 1);
        put_string(w, field->name);
        put(w, ": ", 2);
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            put_repeated(w, message, field, depth + 1);
        else
            put_value(w, field, oct_wire_element(message, field, 0), depth + 1);
    }
    if (any)
        put_indent(w, depth);
    put(w, "}", 1);
}

bool octet_wire_json(const ProtobufCMessage *message,
                     bool (*write)(void *user, const char *text, size_t length), void *user)
{
    struct writer w = {.write = write, .user = user};

    put_message(&w, message, 0);
    put(&w, "\n", 1);
    flush(&w);
    return !w.stopped;
}
