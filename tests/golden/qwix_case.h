/* A file of reference data: the tensors of one case and what was computed with them. */
#ifndef OCTET_TESTS_QWIX_CASE_H
#define OCTET_TESTS_QWIX_CASE_H

#include <jansson.h>

#include "octet/quant.h"
#include "octet/safetensors.h"

/* Life: everything lives in the arena, but the JSON, which qwix_case_close frees with the file. */
struct qwix_case {
    const char *path, *name, *op;
    octet_arena *arena;
    const octet_safetensors *file;
    json_t *json;
};

/* NULL, and a line on stdout, when the file cannot be read. */
struct qwix_case *qwix_case_open(octet_arena *arena, const char *path);
void qwix_case_close(struct qwix_case *c);

/* The tensor of that name, or NULL. */
const struct octet_array *qwix_case_tensor(const struct qwix_case *c, const char *name);
/* Value at a key of the case: NULL for absent and null. */
json_t *qwix_case_get(const struct qwix_case *c, const char *key);
const char *qwix_case_text(const struct qwix_case *c, const char *key); /* or "" */

/* "e4m3" -> "float8_e4m3fn"; other names as they are. */
const char *qwix_qtype(const char *name);
/* A number of the JSON as a tile size: 4 -> "4", 0.25 -> "0.25", 1.0 -> "1.0". */
const char *qwix_tile(octet_arena *arena, const json_t *number);
enum octet_dtype qwix_dtype_of_qtype(const char *name);

/* The case's rule in normal form; *rules holds it. NULL when the case has none. A rule that the
 * library refuses: NULL and err->status set. */
const struct octet_rule *qwix_case_rule(const struct qwix_case *c, const octet_context *context,
                                        octet_rules **rules, struct octet_error *err);
struct octet_dot_dims qwix_case_dims(const struct qwix_case *c);

/* Codes as they are stored in a file (I32, F32 for e2m1, F8) as an array of `dtype`. */
struct octet_array qwix_codes(octet_arena *arena, const struct octet_array *stored,
                              enum octet_dtype dtype);
/* All elements, exactly, as double. */
double *qwix_doubles(octet_arena *arena, const struct octet_array *array);

#endif
