/* What a session is made of; for the files of lib/train that make, run and save one. */
#ifndef OCTET_TRAIN_SESSION_PRIVATE_H
#define OCTET_TRAIN_SESSION_PRIVATE_H

#include <pthread.h>

#include "exec/parameters_private.h"
#include "exec/prepared.h"
#include "exec/program.h"
#include "octet/session.h"

enum { OCT_KEPT_PROGRAMS = 6 };

/* A program of a batch shape, kept for the next batch of that shape. */
struct oct_kept_program {
    oct_program *program; /* one reference; NULL: the place is free */
    int64_t batch_size, sequence_length;
    int threads;
    bool backward;
    uint64_t used; /* when; the oldest makes room */
};

struct octet_session {
    /* Set once, then read-only. */
    octet_context *context;
    octet_arena *arena; /* input, config */
    struct octet_config_input input;
    const octet_config *config;
    octet_rules *rules; /* one reference; NULL: the config's */
    struct octet_session_options options;
    int64_t microbatches; /* that a call of forward_backward is split into */
    bool recompute;
    octet_plan *plan; /* one reference; of a microbatch */
    struct octet_session_memory memory;

    /* The owner's: changed by calls that change the session, else read-only. */
    octet_parameters *parameters, *gradients, *mu, *nu;
    octet_parameters *pending; /* where gradients go when others wait; NULL until then */
    int64_t **loads;           /* [parameters]: tokens of each expert since the last step, in the
                                  order of a router bias' elements; NULL: no router's bias */
    double *norm_sums;         /* [pieces] */
    double grad_norm;          /* of the gradients; NaN: to be computed */
    int64_t step, accumulated; /* accumulated 0: the gradients are zeros, whatever the set holds */

    pthread_mutex_t lock; /* guards what is below */
    struct oct_kept_program kept[OCT_KEPT_PROGRAMS];
    uint64_t clock;
    void *spare_block; /* a run's, kept for the next */
    uint64_t spare_bytes, busy_bytes;
    uint64_t extra_bytes;   /* beyond the planned peak, taken from the account */
    oct_residence *weights; /* INFER: prepared's copies on the backend; NULL: it has none */
    oct_prepared *prepared; /* INFER: NULL until the first pass after weights have changed */
    float *decoded;         /* INFER: the last held parameter that was read, in slices' order */
    size_t decoded_index;
};

/* The program for a batch of that shape, with a reference. Errors: as octet_plan_create and
 * oct_program_create. */
enum octet_status oct_session_program(const octet_session *session, int64_t batch_size,
                                      int64_t sequence_length, bool backward, int threads,
                                      oct_program **out, struct octet_error *err) OCTET_MUST_CHECK;
/* Memory for a run, to be given back. Errors: RESOURCE_EXHAUSTED, with both numbers when it would
 * lift the session over its limit. */
enum octet_status oct_session_take_block(const octet_session *session, uint64_t bytes, void **out,
                                         struct octet_error *err) OCTET_MUST_CHECK;
void oct_session_give_block(const octet_session *session, void *block, uint64_t bytes);
/* A second set of gradients, which is no part of the planned peak, or its end. Errors:
 * RESOURCE_EXHAUSTED with both numbers. */
enum octet_status oct_session_add_pending(octet_session *session,
                                          struct octet_error *err) OCTET_MUST_CHECK;
void oct_session_drop_pending(octet_session *session);

/* Of the parameters as they are held now, floats and codes. The caller has the lock, or nobody else
 * has the session. */
uint64_t oct_session_parameter_bytes(const octet_session *s);

/* Of a batch shape on this session's backend. */
struct octet_graph_options oct_session_shape(const octet_session *s, int64_t batch_size,
                                             int64_t sequence_length);

/* INFER: codes for all weights that a rule quantizes, made of what the parameters hold; the floats
 * are freed. */
enum octet_status oct_session_hold(const octet_session *session, const oct_program *program,
                                   const struct octet_compute *compute,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* INFER: floats for all weights again: codes * scale, or zeros where all is written anew. */
enum octet_status oct_session_release(octet_session *session, bool zeros,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* codes * scale of a parameter whose floats are freed. The caller has the lock. */
enum octet_status oct_session_read_held(const octet_session *session, size_t index, size_t first,
                                        size_t count, void *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;

/* sum += factor * addend; sum *= factor where they are the same set. Both F32, of one plan. */
void oct_parameters_add_scaled(octet_parameters *addend, float factor, octet_parameters *sum,
                               const octet_workers *workers);

/* The set that may be written; NULL: the session has none. */
octet_parameters *oct_session_set(const octet_session *session, enum octet_tensor_set set);

#endif
