/* What the methods that run a model have in common: batches in; losses, tensors and traces out. */
#ifndef OCTET_WIRE_PASS_H
#define OCTET_WIRE_PASS_H

#include "wire/convert.h"
#include "wire/held.h"
#include "wire/tensor.h"

/* Fields of errors: "batch.tokens", "batch.tokens.dtype", ... */
enum octet_status oct_wire_to_batch(octet_arena *arena, const Octet__V1__Batch *batch,
                                    const struct oct_wire_buffers *buffers, struct octet_batch *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* What the library says of a batch ("tokens[0,3]") in the wire's terms. Returns the status. */
enum octet_status oct_wire_name_batch(struct octet_error *err);
/* MEAN, or SUM by a denominator above 0. */
enum octet_status oct_wire_to_reduction(Octet__V1__Reduction reduction, double denominator,
                                        struct octet_pass_options *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;

bool oct_wire_put_losses(octet_arena *arena, const struct octet_losses *from,
                         Octet__V1__Losses **out);
bool oct_wire_put_numbers(octet_arena *arena, const double *from, size_t count, size_t *n,
                          double **out);
/* The lines of the pass's plan with what was executed; NULL with level NONE. */
enum octet_status oct_wire_put_pass_trace(octet_arena *arena, const struct octet_pass *pass,
                                          Octet__V1__TraceLevel level, bool is_backward,
                                          Octet__V1__Trace **out,
                                          struct octet_error *err) OCTET_MUST_CHECK;

/* Gradients that a request asks for by name, with room for their numbers before anything runs. */
struct oct_wire_gradients {
    size_t count;
    size_t *index;            /* [count] in the session's parameters */
    struct octet_array *list; /* [count] */
    const char **name;        /* [count] */
    uint64_t bytes;
};
/* Errors: INVALID_ARGUMENT "return_gradients[1]" for a pattern that is none or matches nothing. */
enum octet_status oct_wire_choose_gradients(const struct octet_call *call,
                                            const octet_session *session, size_t pattern_count,
                                            char *const *patterns, struct oct_wire_gradients *out,
                                            struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_wire_read_gradients(const octet_session *session,
                                          const struct oct_wire_gradients *gradients,
                                          struct octet_error *err) OCTET_MUST_CHECK;
bool oct_wire_put_gradients(struct oct_wire_reply *reply,
                            const struct oct_wire_gradients *gradients, size_t *count,
                            Octet__V1__NamedTensor ***out);

#endif
