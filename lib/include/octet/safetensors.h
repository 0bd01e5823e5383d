/* Safetensors: named arrays in a file.
 *
 * For: reading bytes that anybody may have made, and writing files that any reader takes. Format:
 * github.com/huggingface/safetensors, README, "Format". Not for: what the arrays mean.
 * Decision: everything is checked before anything is used: header at most 100 MB and inside the
 * file, names once, shape times dtype equals the span, spans without holes and overlaps that end
 * with the file, dtypes known by name (FNUZ and other unknown types are refused, never taken for a
 * relative).
 *
 * Life: 1. A parsed file lives in its arena; its arrays point into the bytes and are read-only.
 * 2. A mapped file must not shrink while it is open: the system ends a program that reads beyond.
 */
#ifndef OCTET_SAFETENSORS_H
#define OCTET_SAFETENSORS_H

#include "octet/array.h"
#include "octet/config.h"

typedef struct octet_safetensors octet_safetensors;

struct octet_named_array {
    const char *name;
    struct octet_array array;
};

/* Errors: INVALID_ARGUMENT; field: the tensor's name in brackets ("tensors[w].data_offsets"),
 * "header" or "metadata"; RESOURCE_EXHAUSTED. bytes must outlive the file. A type narrower than its
 * alignment in the file is fine: an array that is not aligned to its element is copied into the
 * arena. */
OCTET_API enum octet_status octet_safetensors_parse(octet_arena *arena, const void *bytes,
                                                    size_t length, const octet_safetensors **out,
                                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Maps the file; octet_safetensors_close unmaps it. Errors also: NOT_FOUND, PERMISSION_DENIED and
 * INVALID_ARGUMENT (no regular file) with field "path". */
OCTET_API enum octet_status octet_safetensors_open(octet_arena *arena, const char *path,
                                                   const octet_safetensors **out,
                                                   struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_safetensors_close(const octet_safetensors *file); /* NULL, parsed: fine */

/* Arrays in order of names. */
OCTET_API size_t octet_safetensors_count(const octet_safetensors *file);
OCTET_API const struct octet_named_array *octet_safetensors_get(const octet_safetensors *file,
                                                                size_t i);
OCTET_API const struct octet_named_array *octet_safetensors_find(const octet_safetensors *file,
                                                                 const char *name); /* or NULL */
/* The __metadata__ pairs, in order of keys. */
OCTET_API size_t octet_safetensors_metadata(const octet_safetensors *file,
                                            const struct octet_pair **out);

/* Writes a file in one step (a reader sees the old one or the new one), 8-byte aligned, wide types
 * first, then by name. 4-bit types: F4 as "F4" packed two a byte as the format wants (an odd number
 * of elements is an error); S4, which the format lacks, as I8. A symbolic link stays one.
 * Errors: INVALID_ARGUMENT with field "tensors[NAME]" (a name twice, or no UTF-8), "metadata",
 * "header" (larger than the format allows) or "path"; PERMISSION_DENIED and RESOURCE_EXHAUSTED
 * (disk full) with field "path"; RESOURCE_EXHAUSTED. */
OCTET_API enum octet_status octet_safetensors_write(octet_arena *arena, const char *path,
                                                    const struct octet_named_array *arrays,
                                                    size_t count, const struct octet_pair *metadata,
                                                    size_t metadata_count,
                                                    struct octet_error *err) OCTET_MUST_CHECK;

#endif
