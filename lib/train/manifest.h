/* Manifest: the JSON text that makes a checkpoint of a tensor file.
 *
 * For: writing and reading it. Not for: the tensors (checkpoint.c).
 * Decision: the text ends with a hash of all before it, so that a flipped bit in a step number is
 * found like one in a weight; whoever edits a manifest by hand takes that line's field out. It is
 * read as YAML, of which JSON in this spelling is a part. */
#ifndef OCTET_TRAIN_MANIFEST_H
#define OCTET_TRAIN_MANIFEST_H

#include "octet/session.h"

enum { OCT_MANIFEST_VERSION = 1, OCT_MANIFEST_BYTES_MAX = 64 << 20 };

struct oct_manifest {
    const char *mode, *accumulation; /* "TRAIN", "EXACT_ORDER" */
    int64_t step, accumulated, saved_at;
    const char *model_name;
    struct octet_config_input input;
    const char *rules; /* a rules file's text; NULL: the config's */
    const char *file;  /* of the tensors; a name without a folder */
    uint64_t bytes;
    char digest[33];
    const char *note; /* or NULL */
};

/* text: in the arena. rules NULL: manifest->rules as it is. Errors: INVALID_ARGUMENT "note" and the
 * like for what is no UTF-8; RESOURCE_EXHAUSTED. */
enum octet_status oct_manifest_write(const struct oct_manifest *manifest, octet_arena *arena,
                                     const char **text, size_t *length,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* path: for messages. Errors: DATA_LOSS; UNIMPLEMENTED for a later version; RESOURCE_EXHAUSTED. */
enum octet_status oct_manifest_read(const char *path, const char *text, size_t length,
                                    octet_arena *arena, struct oct_manifest *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* A rules file's text that octet_rules_parse makes the same rules of. */
enum octet_status oct_rules_write(const octet_rules *rules, octet_arena *arena, const char **text,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
