/* Writing safetensors that are nowhere in memory as the file wants them.
 *
 * For: checkpoints. Not for: arrays at hand (octet/safetensors.h). */
#ifndef OCTET_FILES_SAFETENSORS_STREAM_H
#define OCTET_FILES_SAFETENSORS_STREAM_H

#include "octet/safetensors.h"

struct oct_safetensors_stream {
    /* Bytes [offset, offset + size) of arrays[array], row-major, little-endian. */
    void (*fill)(void *user, size_t array, uint64_t offset, size_t size, void *to);
    /* Each byte of the file, in order, once. */
    void (*on_bytes)(void *user, const void *bytes, size_t size);
    void *user;
};

/* A whole file into fd, and fsync. arrays: dtype and shape count, data does not; types of a byte
 * or more. path: for messages. Errors: as octet_safetensors_write; of the system: as
 * oct_file_fail. */
enum octet_status oct_safetensors_stream(octet_arena *arena, int fd, const char *path,
                                         const struct octet_named_array *arrays, size_t count,
                                         const struct oct_safetensors_stream *stream,
                                         struct octet_error *err) OCTET_MUST_CHECK;

/* What errno says of a file of the program's own: RESOURCE_EXHAUSTED for a full disk, else
 * FAILED_PRECONDITION, with path and user. */
enum octet_status oct_file_fail(const char *path, const char *verb, struct octet_error *err);

#endif
