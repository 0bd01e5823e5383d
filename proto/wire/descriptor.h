/* What protobuf-c's descriptors do not say directly: which fields are maps, and where values lie.
 */
#ifndef OCTET_WIRE_DESCRIPTOR_H
#define OCTET_WIRE_DESCRIPTOR_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

/* A map is a repeated message of key = 1 and value = 2, named after its field: field
 * `additional_qt_config` has entries of type `AdditionalQtConfigEntry`. protobuf-c keeps no other
 * mark. Source: protobuf's language guide, "Maps", backwards compatibility. */
bool oct_wire_is_map(const ProtobufCFieldDescriptor *field);

/* Does the message hold this field? Repeated: at least one element. Message: not NULL. A scalar
 * outside a oneof always counts (proto3: its value may be the default). */
bool oct_wire_is_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Elements of a repeated field, 1 or 0 of another. */
size_t oct_wire_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Address of element i of a repeated field, of the value itself otherwise. */
const void *oct_wire_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             size_t i);

/* Bytes of one element in memory. */
size_t oct_wire_element_size(ProtobufCType type);

#endif
