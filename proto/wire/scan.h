/* A look at the bytes of a message before they are unpacked.
 *
 * For: what protobuf-c does not check or cannot tell: structure (so that "malformed" and "no
 * memory" stay apart, and the field at fault has a name), UTF-8, NULs inside text (protobuf-c would
 * cut there in silence), enum values outside the enum. Not for: building anything; the scan
 * allocates nothing, and its depth is that of the schema. */
#ifndef OCTET_WIRE_SCAN_H
#define OCTET_WIRE_SCAN_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

/* Errors: INVALID_ARGUMENT with the field's path ("rules[2].act_qtype", "model.overrides[dtype]").
 */
enum octet_status oct_wire_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                size_t length, struct octet_error *err) OCTET_MUST_CHECK;

/* One field as it lies on the wire. */
struct oct_wire_record {
    uint32_t number;
    size_t start, end;         /* in the message, tag included */
    ProtobufCBinaryData value; /* of bytes, text and messages; points into the message */
};
/* The record at *at of a message that has passed the scan; *at moves behind it. Returns false at
 * the end. */
bool oct_wire_next(const uint8_t *bytes, size_t length, size_t *at, struct oct_wire_record *out);

/* Length of the longest prefix of the text that is UTF-8 without a NUL; `length` when all of it is.
 */
size_t oct_wire_text_prefix(const uint8_t *text, size_t length);

#endif
