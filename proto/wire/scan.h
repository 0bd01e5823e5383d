/* A look at the bytes of a message before they are unpacked.
 *
 * For: what protobuf-c does not check or cannot tell: structure (so that "malformed" and "no
 * memory" stay apart, and the field at fault has a name), UTF-8, NULs inside text (protobuf-c would
 * cut there in silence), enum values outside the enum. Not for: building anything; the scan
 * allocates nothing, and its depth is that of the schema. */
#ifndef OCTET_WIRE_SCAN_H
#define OCTET_WIRE_SCAN_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

/* Errors: INVALID_ARGUMENT with the field's path ("rules[2].act_qtype", "model.overrides[dtype]").
 */
enum octet_status oct_wire_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                size_t length, struct octet_error *err) OCTET_MUST_CHECK;

/* Where the run of records of this bytes field that ends the message begins; `length` when there is
 * none, SIZE_MAX when such records stand elsewhere too. *count: how many the run has. The bytes
 * have passed the scan. */
size_t oct_wire_tail(const ProtobufCFieldDescriptor *field, const uint8_t *bytes, size_t length,
                     size_t *count);
/* The value of the record at *at, which is of a bytes field; *at moves behind it. */
ProtobufCBinaryData oct_wire_bytes_at(const uint8_t *bytes, size_t length, size_t *at);

/* Length of the longest prefix of the text that is UTF-8 without a NUL; `length` when all of it is.
 */
size_t oct_wire_text_prefix(const uint8_t *text, size_t length);

#endif
