/* One case of reference data through the library: what came out, under the names that the files
 * use. */
#ifndef OCTET_TESTS_QWIX_RUN_H
#define OCTET_TESTS_QWIX_RUN_H

#include "golden/qwix_case.h"
#include "golden/qwix_terms.h"

#define QWIX_TENSORS_MAX 64

struct qwix_tensors {
    struct octet_named_array item[QWIX_TENSORS_MAX];
    size_t count;
};
const struct octet_array *qwix_tensors_find(const struct qwix_tensors *tensors, const char *name);

/* Everything that the library computes for the case. Errors: the library's; err->field and text are
 * set. */
enum octet_status qwix_run(const struct qwix_case *c, const octet_context *context,
                           octet_workers *workers, octet_arena *arena, struct qwix_tensors *out,
                           struct octet_error *err);

/* One combination of a file of kind quantize. */
enum octet_status qwix_run_combo(const struct qwix_case *c, const char *name, json_t *combo,
                                 octet_workers *workers, octet_arena *arena,
                                 struct qwix_tensors *out, struct octet_error *err);

/* Settings of a convolution's file. */
struct octet_conv_options qwix_conv_options(const struct qwix_case *c);

/* Whether each row of lhs (index of its first free axis; a row of lhs in ragged_dot) alone gives
 * the bits that it gives in the batch, forward. Returns -1 when that does not apply, else the
 * number of rows that differ. */
int64_t qwix_run_rows_alone(const struct qwix_case *c, const octet_context *context,
                            octet_workers *workers, octet_arena *arena,
                            const struct octet_array *out);

#endif
