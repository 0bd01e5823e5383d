/* The embedded descriptors of our .proto files, and which file defines which name.
 *
 * For: the questions of grpc.reflection, answered with slices of the embedded set.
 * Decision: the set is read at start by a small walk over its wire format (our own build made it,
 * so it is well-formed); nothing is decoded and encoded again, so clients get protoc's own bytes.
 *
 * Life: created once, then read-only and shared by lanes. */
#ifndef OCTET_SERVER_REFLECTION_H
#define OCTET_SERVER_REFLECTION_H

#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

enum { REFLECTION_FILES_MAX = 32 };

struct reflection_file {
    const uint8_t *bytes; /* a serialized FileDescriptorProto */
    size_t length;
    const char *name; /* "octet/v1/octet.proto", not ended by a NUL */
    size_t name_length;
};

struct reflection;

enum octet_status reflection_create(struct reflection **out,
                                    struct octet_error *err) OCTET_MUST_CHECK;
void reflection_free(struct reflection *reflection); /* NULL is fine */

/* Index of the file, or -1. */
int reflection_file_named(const struct reflection *reflection, const char *name);
int reflection_file_with(const struct reflection *reflection, const char *symbol);
const struct reflection_file *reflection_file(const struct reflection *reflection, int index);
/* The file and all that it imports, itself first. Returns how many. */
size_t reflection_closure(const struct reflection *reflection, int index,
                          int out[REFLECTION_FILES_MAX]);
/* Is there a message of this name? (None of ours has extensions.) */
int reflection_is_message(const struct reflection *reflection, const char *symbol);
/* Full names of services, in the order of the files; NULL from the count on. */
const char *reflection_service(const struct reflection *reflection, size_t index);

#endif
