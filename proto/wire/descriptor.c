/* Reading messages through their descriptors. */
#include "wire/descriptor.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* "additional_qt_config" and "AdditionalQtConfigEntry" name the same map. */
static bool names_entry(const char *field, const char *entry)
{
    bool upper = true;

    for (; *field; field++) {
        if (*field == '_') {
            upper = true;
            continue;
        }
        int expected = upper ? toupper((unsigned char)*field) : (unsigned char)*field;
        if ((unsigned char)*entry != expected)
            return false;
        entry++;
        upper = false;
    }
    return strcmp(entry, "Entry") == 0;
}

bool oct_wire_is_map(const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED || field->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    return entry->n_fields == 2 && entry->fields[0].id == 1 && entry->fields[1].id == 2 &&
           strcmp(entry->fields[0].name, "key") == 0 &&
           strcmp(entry->fields[1].name, "value") == 0 &&
           names_entry(field->name, entry->short_name);
}

static const void *at(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
}

size_t oct_wire_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)at(message, field->quantifier_offset);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)at(message, field->quantifier_offset) == field->id;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(ProtobufCMessage *const *)at(message, field->offset) != NULL;
    return 1;
}

bool oct_wire_is_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return oct_wire_count(message, field) > 0;
}

const void *oct_wire_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             size_t i)
{
    const void *value = at(message, field->offset);

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return value;
    return *(const char *const *)value + i * oct_wire_element_size(field->type);
}

size_t oct_wire_element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
        return 4;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
        return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(ProtobufCMessage *);
    }
    return 0;
}
