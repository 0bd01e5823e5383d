/* What the reader and the writer of safetensors share; see octet/safetensors.h. */
#ifndef OCTET_FILES_SAFETENSORS_PRIVATE_H
#define OCTET_FILES_SAFETENSORS_PRIVATE_H

#include "octet/safetensors.h"

enum { OCT_SAFETENSORS_PREFIX_BYTES = 8, OCT_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 };
#define OCT_SAFETENSORS_METADATA "__metadata__"

/* One tensor of a header. */
struct oct_safetensors_entry {
    struct octet_named_array named; /* data NULL until the spans have been checked */
    int64_t begin, end;             /* within the data behind the header */
};

struct oct_safetensors_header {
    struct oct_safetensors_entry *entries; /* as they stand in the text */
    size_t count;
    struct octet_pair *metadata;
    size_t metadata_count;
};

/* The header's JSON. Shapes and dtypes are checked, spans only for begin <= end, and nothing for
 * being there twice but the keys within one tensor.
 * Errors: INVALID_ARGUMENT with field "header", "metadata" or "tensors[NAME]...";
 * RESOURCE_EXHAUSTED.
 */
enum octet_status oct_safetensors_header_read(octet_arena *arena, const uint8_t *text,
                                              size_t length, struct oct_safetensors_header *out,
                                              struct octet_error *err) OCTET_MUST_CHECK;

/* Bytes that the array takes in a file: as in memory, but F4 is packed. INT64_MAX when that does
 * not fit. -1: an F4 array with an odd number of elements, which the format cannot say. */
int64_t oct_safetensors_bytes(const struct octet_array *array);
const char *oct_safetensors_dtype_name(enum octet_dtype dtype); /* "F8_E4M3"; NULL: none */
enum octet_dtype oct_safetensors_dtype_find(const char *name);  /* or UNSPECIFIED */

/* Bytes of the UTF-8 character at `at`, 0 when there is none before `end`. */
size_t oct_safetensors_utf8(const uint8_t *at, const uint8_t *end);

/* octet_fail with field "tensors[NAME].PART"; a long name is cut between two characters. part ""
 * stands for the tensor itself. */
enum octet_status oct_safetensors_fail(struct octet_error *err, const char *name, const char *part,
                                       const char *format, ...) OCTET_PRINTF(4, 5);

/* For qsort and bsearch: both begin with a struct octet_named_array, or a struct octet_pair. */
int oct_safetensors_by_name(const void *a, const void *b);
int oct_safetensors_by_key(const void *a, const void *b);

#endif
