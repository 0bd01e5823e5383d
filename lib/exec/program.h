/* Program: a plan made executable for its batch shape.
 *
 * For: order, memory and gradients. The plan's nodes, with scanned segments unrolled, become steps;
 * backward is the same steps the other way; where activations are recomputed a layer's forward
 * steps stand once more before its backward ones. Each value's place in one block of memory is
 * chosen from when it is first written and last read, so that the peak is known before anything
 * runs. Not for: what an op computes (op.h), nor whose parameters these are (session).
 *
 * Life: immutable once made, and shared by threads; it holds a reference on its plan. A run owns
 * its block. */
#ifndef OCTET_EXEC_PROGRAM_H
#define OCTET_EXEC_PROGRAM_H

#include "exec/op.h"
#include "octet/figures.h"
#include "octet/parameters.h"

typedef struct oct_program oct_program;

struct oct_program_options {
    bool backward;
    bool recompute; /* keep only each layer's input; its other activations are computed again */
    bool prepares;  /* weights that a rule quantizes are held as codes (forward only) */
    int threads;    /* that will run it: some ops' working memory grows with them */
};

/* Errors: UNIMPLEMENTED with field "model": "op 'index_mask' of module '...' can be traced but not
 * run"; RESOURCE_EXHAUSTED. */
enum octet_status oct_program_create(octet_plan *plan, const struct oct_program_options *options,
                                     oct_program **out, struct octet_error *err) OCTET_MUST_CHECK;
oct_program *oct_program_ref(oct_program *program);
void oct_program_unref(oct_program *program);
octet_plan *oct_program_plan(const oct_program *program); /* borrowed */

/* What a run takes beside parameters and gradients: activations, what forward leaves for backward,
 * and the largest step's scratch. */
struct oct_program_memory {
    uint64_t block_bytes;   /* activations, gradients of activations, saved values: exact */
    uint64_t scratch_bytes; /* an upper bound of the largest step's */
};
struct oct_program_memory oct_program_memory(const oct_program *program);
/* Both, and room for alignment: what oct_run.block must have. */
uint64_t oct_program_block_bytes(const oct_program *program);

/* Weights held quantized (sessions that only infer): one for each step whose second operand is made
 * of parameters alone and is quantized by its rule. */
typedef struct oct_prepared oct_prepared;

struct oct_run {
    const struct octet_compute *compute; /* arena: results */
    const octet_parameters *parameters;
    octet_parameters *gradients;  /* F32; what backward finds is added to it. NULL: forward only */
    const oct_prepared *prepared; /* or NULL */
    octet_backend *backend;       /* the one whose capabilities the plan has; NULL: it has none */
    oct_residence *weights;       /* there, of prepared weights; shared by runs; or NULL */
    const struct octet_batch *batch; /* complete */
    void *block; /* [oct_program_block_bytes], written; NULL: the run takes it from the arena */
    enum oct_reduction reduction;
    double denominator;
    int64_t step;
    enum octet_accumulation accumulation;
    bool numerics, times;
    bool gradients_are_zero; /* count as that, whatever they hold: backward writes them whole */
    bool want_logits, want_mtp_logits, want_hidden, want_logprobs, want_acceptance;
};

/* Of a run, in the compute's arena. What was not asked for has data NULL. */
struct oct_run_result {
    struct octet_array logits;      /* [B,S,V] F32 */
    struct octet_array *mtp_logits; /* [mtp_layers] */
    struct octet_array hidden;      /* [B,S,E], before the final norm */
    struct octet_array logprobs;    /* [B,S] F32 */
    size_t mtp_layers;
    bool has_mtp, has_load_balance;
    double total, main, mtp, load_balance; /* losses; mtp scaled, as it is in the total */
    double weight_sum, mtp_weight_sum;
    double main_sum, mtp_sum;            /* sums of weighted cross entropy, before any division */
    int64_t *mtp_accepted, *mtp_drafted; /* [mtp_layers] tokens; NULL: not asked for */
    int64_t *counts;                     /* [interceptions]: forward executions of each line */
    bool *is_fast; /* [interceptions]: an execution ran in another order than EXACT_ORDER */
    struct oct_figures *figures; /* [interceptions], of the last execution; NULL: not asked for */
    struct octet_op_time *times; /* [time_count]; NULL: not asked for */
    size_t time_count;
    struct oct_expert_load *loads; /* [load_count] tokens an expert got, in order of execution */
    size_t load_count;
};
struct oct_expert_load {
    uint32_t bias;        /* graph parameter (index) of the router's bias, or UINT32_MAX */
    int64_t layer;        /* slice of it */
    const int64_t *count; /* [experts] */
    int64_t experts;
};

/* Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT of an op's rule; what cancel says. gradients then
 * hold anything. */
enum octet_status oct_program_run(const oct_program *program, const struct oct_run *run,
                                  struct oct_run_result *result,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
