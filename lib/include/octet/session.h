/* Session: a model with its numbers, that runs and learns.
 *
 * For: what a trainer or an inference client holds in a daemon, or a C program in its own process.
 * Not for: names, leases and clients (server).
 *
 * Life: 1. A session has one owner for calls that change it (marked "changes") and any number of
 * readers at a time for the others, but not both. 2. Results live in the compute's arena. 3. It
 * works in memory of its own beside the arena; octet_session_memory tells how much, before it is
 * made. */
#ifndef OCTET_SESSION_H
#define OCTET_SESSION_H

#include "octet/backend.h"
#include "octet/batch.h"
#include "octet/figures.h"
#include "octet/parameters.h"
#include "octet/plan.h"
#include "octet/quant.h"

typedef struct octet_session octet_session;

enum octet_session_mode { OCTET_SESSION_TRAIN, OCTET_SESSION_INFER };

/* Memory that sessions share beyond their planned peaks. Both may be called on any thread. */
struct octet_session_account {
    void *user;
    /* RESOURCE_EXHAUSTED with the numbers when there is no room. */
    enum octet_status (*take)(void *user, uint64_t bytes, struct octet_error *err);
    void (*give)(void *user, uint64_t bytes);
};

struct octet_session_options {
    enum octet_session_mode mode;
    enum octet_accumulation accumulation;
    int64_t batch_size, sequence_length; /* that memory is planned for; 0: the config's */
    uint64_t memory_limit_bytes;         /* 0: none */
    /* What a call asks before it takes memory beyond the planned peak: a larger batch, passes side
     * by side, gradients over several calls. NULL: nobody. Lives longer than the session. */
    const struct octet_session_account *account;
    int32_t threads; /* that its calls will have; 0: as workers of 1 */
    /* Where products under rules run, as far as it takes them; NULL: all on the CPU. Outlives the
     * session. Memory there is its own limit's business, not this one's. */
    octet_backend *backend;
};

/* Bytes, each part by itself. peak: the sum, which is what the session will take in a training step
 * (or forward pass) of the planned shape. In INFER gradients and moments are 0; parameters are
 * counted as they are held in the end, as codes where a rule quantizes them; and peak is at least
 * what making those takes, floats and codes together. */
struct octet_session_memory {
    uint64_t parameters, gradients, moments;
    uint64_t activations; /* values, their gradients and what is saved for backward, at the peak */
    uint64_t scratch;     /* the largest op's working memory */
    uint64_t peak;
    uint64_t resident; /* between calls */
};

/* Without making anything. Errors: UNIMPLEMENTED naming the op that cannot be run. */
OCTET_API enum octet_status octet_session_estimate(octet_context *context,
                                                   const octet_config *config, octet_rules *rules,
                                                   const struct octet_session_options *options,
                                                   struct octet_session_memory *out,
                                                   struct octet_error *err) OCTET_MUST_CHECK;

/* Parameters are zero; fill them with octet_session_put, _initialise or _load. The session builds
 * its own config from a copy of the input (environment is left out), which checkpoints keep; rules
 * NULL: the config's. Errors: as octet_config_build and octet_plan_create; UNIMPLEMENTED naming the
 * op that cannot be run; RESOURCE_EXHAUSTED with both numbers when peak is above the limit. */
OCTET_API enum octet_status
octet_session_create(octet_context *context, const struct octet_config_input *input,
                     octet_rules *rules, const struct octet_session_options *options,
                     octet_session **out, struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_session_destroy(octet_session *session); /* NULL is fine */

/* What a reader may ask. */
OCTET_API octet_plan *
octet_session_plan(const octet_session *session); /* borrowed; planned shape */
OCTET_API enum octet_session_mode octet_session_mode(const octet_session *session);
OCTET_API octet_backend *octet_session_backend(const octet_session *session); /* NULL: the CPU */
OCTET_API struct octet_session_memory octet_session_memory(const octet_session *session);
OCTET_API int64_t octet_session_step(const octet_session *session); /* optimizer steps taken */
OCTET_API int64_t octet_session_accumulated(const octet_session *session); /* calls since then */

enum octet_tensor_set {
    OCTET_SET_PARAMETER,
    OCTET_SET_GRADIENT,     /* what has accumulated since the last optimizer step */
    OCTET_SET_OPTIMIZER_MU, /* moments */
    OCTET_SET_OPTIMIZER_NU
};
/* To be described; read with octet_session_get. NULL: the session has none (INFER). INFER sessions
 * keep quantized weights as codes: such a parameter's `held` is true, and it is read as codes *
 * scale. */
OCTET_API const octet_parameters *octet_session_tensors(const octet_session *session,
                                                        enum octet_tensor_set set);
/* Changes. Errors: FAILED_PRECONDITION, INVALID_ARGUMENT "name", "offset", "data". */
OCTET_API enum octet_status octet_session_put(octet_session *session, enum octet_tensor_set set,
                                              size_t index, uint64_t offset, uint64_t size,
                                              const void *data,
                                              struct octet_error *err) OCTET_MUST_CHECK;
/* Any set's bytes in MaxText's layout; in INFER also of parameters that are held as codes. */
OCTET_API enum octet_status octet_session_get(const octet_session *session,
                                              enum octet_tensor_set set, size_t index,
                                              uint64_t offset, uint64_t size, void *data,
                                              struct octet_error *err) OCTET_MUST_CHECK;
/* Codes and scales of a parameter that an INFER session keeps so, copied into the arena; *held is
 * false, and out untouched, for any other parameter. */
OCTET_API enum octet_status octet_session_quantized(const octet_session *session, size_t index,
                                                    octet_arena *arena, bool *held,
                                                    struct octet_quantized *out,
                                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Changes. MaxText's initialisers. */
OCTET_API enum octet_status octet_session_initialise(octet_session *session, uint64_t seed,
                                                     const struct octet_compute *compute,
                                                     struct octet_error *err) OCTET_MUST_CHECK;

enum octet_reduction { OCTET_REDUCTION_MEAN, OCTET_REDUCTION_SUM };

struct octet_pass_options {
    enum octet_reduction reduction; /* of the losses */
    double denominator;             /* of SUM; must be above 0 */
    bool numerics, times;
    bool return_logits, return_mtp_logits, return_hidden, return_logprobs, return_acceptance;
};

struct octet_losses {
    double total, main, mtp, load_balance; /* mtp scaled, as it is in the total */
    double weight_sum, mtp_weight_sum;
    bool has_mtp, has_load_balance; /* a model without has no such loss, not one of 0 */
};

struct octet_pass {
    struct octet_losses losses;
    struct octet_array logits, hidden, logprobs; /* data NULL: not asked for */
    struct octet_array *mtp_logits;              /* [mtp_count] */
    double *mtp_acceptance;                      /* [mtp_count], 0 .. 1; NULL: not asked for */
    size_t mtp_count;
    octet_plan *plan;      /* of the batch's own shape; a reference, the caller's to drop */
    const int64_t *counts; /* [lines of plan]: executions in a forward pass, of a microbatch */
    const bool *is_fast;   /* [lines of plan]: not all of it ran in EXACT_ORDER */
    const struct octet_line_figures *figures; /* [lines of plan]; NULL: not asked for */
    const struct octet_op_time *times;        /* [time_count], by op; NULL: not asked for */
    size_t time_count;
    double grad_norm; /* of forward_backward: of all that has accumulated */
};
/* A batch of any shape; the planned one needs no further planning. */
OCTET_API enum octet_status
octet_session_forward(const octet_session *session, const struct octet_compute *compute,
                      const struct octet_batch *batch, const struct octet_pass_options *options,
                      struct octet_pass *out, struct octet_error *err) OCTET_MUST_CHECK;
/* Changes: adds to the gradients. Errors: FAILED_PRECONDITION in INFER; a call that fails (or is
 * cancelled) leaves the gradients as they were. */
OCTET_API enum octet_status
octet_session_forward_backward(octet_session *session, const struct octet_compute *compute,
                               const struct octet_batch *batch,
                               const struct octet_pass_options *options, struct octet_pass *out,
                               struct octet_error *err) OCTET_MUST_CHECK;

/* MaxText's keys, same names and defaults (opt_type "adamw", "sgd"). */
struct octet_optimizer {
    const char *opt_type;
    double learning_rate, cosine_learning_rate_final_fraction, warmup_steps_fraction;
    int64_t steps, learning_rate_schedule_steps; /* schedule steps < 0: steps */
    double gradient_clipping_threshold;          /* 0: none */
    double adam_b1, adam_b2, adam_eps, adam_eps_root, adam_weight_decay;
    const char *const *adamw_mask; /* name patterns without decay (regular expressions, searched) */
    size_t adamw_mask_count;
    double routed_bias_update_rate;
    const char *lr_schedule_type; /* "cosine" (NULL too), "wsd" */
    double wsd_decay_steps_fraction;
    const char *wsd_decay_style; /* "linear" (NULL too), "cosine" */
};
/* The config's values. */
OCTET_API void octet_session_optimizer(const octet_session *session, struct octet_optimizer *out);
/* Ranges of the numbers. Errors: INVALID_ARGUMENT "optimizer.adam_b1". */
OCTET_API enum octet_status octet_session_optimizer_check(const struct octet_optimizer *optimizer,
                                                          struct octet_error *err) OCTET_MUST_CHECK;
/* All that octet_session_optim_step may object to in the settings: ranges, and adamw_mask on this
 * session's names. For who must know before a pass. */
OCTET_API enum octet_status octet_session_optim_check(const octet_session *session,
                                                      const struct octet_optimizer *optimizer,
                                                      struct octet_error *err) OCTET_MUST_CHECK;

struct octet_step {
    int64_t step;                    /* steps taken, this one included */
    double learning_rate, grad_norm; /* before clipping */
    char digest[33];                 /* of the parameters */
};
/* Changes: takes the accumulated gradients, updates parameters and moments, clears the gradients.
 * Errors: FAILED_PRECONDITION when nothing has accumulated, or in INFER; INVALID_ARGUMENT
 * "optimizer.adam_b1". All or nothing: a call that fails has changed nothing. */
OCTET_API enum octet_status octet_session_optim_step(octet_session *session,
                                                     const struct octet_compute *compute,
                                                     const struct octet_optimizer *optimizer,
                                                     struct octet_step *out,
                                                     struct octet_error *err) OCTET_MUST_CHECK;

/* Checkpoints: DIRECTORY/NAME.json, a versioned manifest, which names the file of the tensors and
 * its checksum. The manifest is renamed into place last, so a crash leaves the old checkpoint or
 * the new one. note: the caller's own JSON text, kept with it (a daemon's applied requests); may be
 * NULL. */
struct octet_checkpoint {
    const char *name;
    int64_t step;
    uint64_t bytes;
    char digest[33];   /* of the tensor file */
    const char *model; /* model_name */
    int64_t saved_at;  /* seconds since 1970 */
};
OCTET_API enum octet_status octet_session_save(const octet_session *session, const char *directory,
                                               const char *name, const char *note,
                                               octet_arena *arena, struct octet_checkpoint *out,
                                               struct octet_error *err) OCTET_MUST_CHECK;
/* Changes: parameters, and in TRAIN moments, gradients and step. Errors: NOT_FOUND; DATA_LOSS when
 * a checksum fails, naming the file; FAILED_PRECONDITION when the model's parameters are others,
 * naming the first that differs. */
OCTET_API enum octet_status octet_session_load(octet_session *session, const char *directory,
                                               const char *name, octet_arena *arena,
                                               const char **note, struct octet_checkpoint *out,
                                               struct octet_error *err) OCTET_MUST_CHECK;
/* Makes a session from a checkpoint's own model config and rules, and loads it. */
OCTET_API enum octet_status octet_session_restore(octet_context *context, const char *directory,
                                                  const char *name,
                                                  const struct octet_session_options *options,
                                                  octet_arena *arena, const char **note,
                                                  octet_session **out,
                                                  struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status octet_checkpoint_list(const char *directory, octet_arena *arena,
                                                  const struct octet_checkpoint **out,
                                                  size_t *count,
                                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
