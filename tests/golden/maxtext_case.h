/* A run of the real MaxText as it is kept in files (tests/golden/data/README.md), and the same
 * model as a session. */
#ifndef OCTET_TESTS_MAXTEXT_CASE_H
#define OCTET_TESTS_MAXTEXT_CASE_H

#include <jansson.h>
#include <stdbool.h>

#include "octet/safetensors.h"
#include "octet/session.h"

/* Life: everything lives in the arena, but what maxtext_case_close closes. */
struct maxtext_case {
    const char *folder, *name; /* "ds_tiny.f32.gmm.none" */
    const char *arm;           /* "none", "fp8", "fp8mtp", "qwix_int8", ... */
    octet_arena *arena;
    const octet_safetensors *params, *data;
    json_t *overrides, *optimizer; /* optimizer: beside the overrides; or NULL */
    struct octet_config_input input;
    struct octet_batch batch;
    bool bfloat16; /* in weights or arithmetic */
};

/* overrides (and optimizer): taken over, and freed by close. NULL, and a line on stdout, when a
 * file cannot be read. name: without what comes after the arm, or a parameter file's (no batch
 * then). */
struct maxtext_case *maxtext_case_open(octet_arena *arena, const char *folder, const char *name,
                                       json_t *overrides, json_t *optimizer);
void maxtext_case_close(struct maxtext_case *c); /* NULL is fine */

/* Value of an override, or NULL. */
const json_t *maxtext_case_get(const struct maxtext_case *c, const char *key);
int64_t maxtext_case_int(const struct maxtext_case *c, const char *key, int64_t otherwise);

/* A session of the case's model, holding its parameters. Errors: the session's own; NOT_FOUND with
 * field = a parameter that one side has and the other lacks. */
enum octet_status maxtext_case_session(const struct maxtext_case *c, octet_context *context,
                                       enum octet_session_mode mode, octet_session **out,
                                       struct octet_error *err) OCTET_MUST_CHECK;

/* A tensor of a session in F32, in the arena; NULL when there is none of the name. */
const float *maxtext_tensor(const struct maxtext_case *c, const octet_session *session,
                            enum octet_tensor_set set, const char *name, size_t *count);

#endif
