/* What a program is made of: for the files of exec that make and run it. */
#ifndef OCTET_EXEC_PROGRAM_PRIVATE_H
#define OCTET_EXEC_PROGRAM_PRIVATE_H

#include <stdatomic.h>

#include "exec/program.h"
#include "plan/record.h"

/* What a model reads from a batch; names in unroll.c. */
enum {
    OCT_INPUT_TOKENS,
    OCT_INPUT_TARGETS,
    OCT_INPUT_TARGET_WEIGHTS,
    OCT_INPUT_POSITIONS,
    OCT_INPUT_SEGMENT_IDS,
    OCT_INPUT_COUNT
};

enum oct_place { OCT_PLACE_INPUT, OCT_PLACE_PARAMETER, OCT_PLACE_BLOCK };

/* A value, a gradient, or saved bytes. Slot 0 is none. */
struct oct_slot {
    struct octet_array view; /* dtype and shape; no data */
    uint32_t owner;          /* whose bytes these are: itself, or what a reshape is of */
    uint8_t place;           /* enum oct_place; of the owner, as all below */
    bool flows;              /* a gradient is wanted; of each view by itself */
    uint32_t index;          /* of the batch's array, or of the parameter */
    int64_t layer;           /* slice of the parameter */
    uint64_t offset, bytes;  /* in the block */
    uint32_t first, last;    /* steps that write it first and read it last */
    uint32_t gradient;       /* slot; 0: nothing has flowed back yet */
};

enum oct_step_kind { OCT_STEP_FORWARD, OCT_STEP_SEED, OCT_STEP_VJP };

struct oct_step {
    const struct oct_node *node; /* of attention: its softmax; of a gate: its activation */
    const struct octet_rule *rule;
    uint8_t kind; /* enum oct_step_kind */
    uint8_t input_count, output_count;
    bool is_attention;
    bool is_gate;      /* an activation and the multiplication behind it */
    bool is_again;     /* recomputed for backward */
    bool is_placed;    /* on the plan's backend, not on the CPU */
    bool is_kept;      /* placed: a VJP will ask the device for what forward left there */
    int32_t reads;     /* of VJP: IN0 ... OUT */
    uint32_t lines[2]; /* interceptions + 1 that this step executes */
    uint32_t line;     /* that figures belong to, also of backward; + 1 */
    int64_t turn;      /* of its segment */
    uint32_t in[OCTET_NODE_INPUTS_MAX], out[2], saved;
    uint32_t cotangent[2];
    /* gradient[i] is written; then, where sum[i] is set, added to it (a slot of the block, or the
     * parameter's own slot). is_first[i]: nothing was added to that parameter in this run before.
     */
    uint32_t gradient[OCTET_NODE_INPUTS_MAX], sum[OCTET_NODE_INPUTS_MAX];
    bool is_first[OCTET_NODE_INPUTS_MAX];
    uint32_t prepared; /* weights held quantized: index + 1 */
    uint32_t group;    /* layer whose activations are computed again together; 0: none */
    uint8_t product_dtype, scores_dtype; /* of attention */
    uint32_t bias;                       /* of top_k: the router's bias, parameter + 1; 0: none */
    int32_t loss;                        /* of cross entropy: 0 main, k: MTP's k-th; else -1 */
    uint64_t scratch_bytes;
};

/* Node indices of one attention that runs as one step; node is the division's. */
struct oct_attention_nodes {
    uint32_t scores, cast, softmax, values; /* cast UINT32_MAX: none */
};

struct oct_program {
    atomic_uint references;
    octet_arena *arena;
    octet_plan *plan;
    const octet_graph *graph;
    struct oct_program_options options;
    struct oct_slot *slots;
    uint32_t slot_count, slot_capacity;
    struct oct_step *steps;
    uint32_t step_count, step_capacity;
    uint32_t forward_count; /* steps before backward's */
    uint32_t prepared_count, placed_count;
    struct oct_untouched {
        uint32_t parameter;
        int64_t layer;
    } * untouched; /* slices of parameters that no gradient flows into */
    uint32_t untouched_count;
    uint32_t loss, main_loss, mtp_loss, auxiliary_loss, hidden; /* slots; 0: none */
    uint32_t loss_count;                                        /* cross entropies */
    struct oct_program_memory memory;
};

enum { OCT_SLOT_ALIGNMENT = 64 };

struct octet_error;
/* Appends; 0 when there is no memory. */
uint32_t oct_slot_add(oct_program *program, const struct oct_slot *slot);
struct oct_step *oct_step_add(oct_program *program, const struct oct_step *step);
/* What backward reads of a step. */
int oct_step_reads(const oct_program *program, const struct oct_step *step);

/* unroll.c: the forward steps. */
enum octet_status oct_program_unroll(oct_program *program,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* backward.c: the steps of backward, recomputed layers among them. */
enum octet_status oct_program_reverse(oct_program *program,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* placement.c: first and last use of each slot, its offset, and the block's size. */
enum octet_status oct_program_place(oct_program *program, struct octet_error *err) OCTET_MUST_CHECK;

#endif
