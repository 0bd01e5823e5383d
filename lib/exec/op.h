/* Op: how one execution of a node is carried out, forward and backward.
 *
 * For: the files of lib/exec that hold ops, one file a family, forward and VJP side by side.
 * Not for: order, memory and gradients of a whole model (program.h).
 * Decision: an op gets all memory from its caller, whose plan (program.c) knows the peak before
 * anything runs. It writes whole outputs and whole gradients; adding gradients up where a tensor is
 * used more than once is the caller's.
 *
 * Numbers: activations have the dtype that the graph says (F32 or BF16); each op computes in f32
 * and rounds once, to nearest even. Parameters come in their own dtype and are cast to the result's
 * before they are used (MaxText's "cast to compute dtype"). Gradients have the dtype of what they
 * are of; a parameter's is F32. All ops run in the environment of base/float_env.h and share loops
 * through oct_pool_run of compute->workers, with results that do not depend on how many there are.
 */
#ifndef OCTET_EXEC_OP_H
#define OCTET_EXEC_OP_H

#include "backends/backend.h"
#include "graph/graph_private.h"
#include "octet/batch.h"
#include "octet/quant.h"

enum oct_reduction {
    OCT_REDUCE_MEAN,    /* loss sum / (weight sum + epsilon) */
    OCT_REDUCE_SUM,     /* loss sum / denominator */
    OCT_REDUCE_MAIN_SUM /* the main loss as SUM, MTP's as MEAN: MaxText's gradient accumulation */
};

/* What all ops of one run share. */
struct oct_execution {
    const struct octet_compute *compute; /* workers and cancel; ops do not allocate in its arena */
    const octet_graph *graph;
    bool numerics; /* fill figures */
    int64_t step;  /* optimizer steps taken before this one: the counter of sparsity */
    enum oct_reduction reduction;
    double denominator;
    double weights; /* the sum of the batch's weights */
    enum octet_accumulation accumulation;
    oct_residence *residence; /* of this run on the plan's backend; NULL: all runs on the CPU */
};

/* Keys of an op's arrays in the run's residence (backends/backend.h). */
struct oct_op_keys {
    uint64_t in[OCTET_NODE_INPUTS_MAX], saved;
};

/* Figures of an op, for NUMERICS. */
struct oct_figures {
    struct octet_operand_stats lhs, rhs, cotangent;
    bool has_cotangent;
    char digest[33]; /* of the output */
};

/* One execution of one node (of its turn, in a segment). */
struct oct_op_call {
    const struct oct_execution *execution;
    const struct oct_node *node;
    const struct octet_rule *rule;                /* the one that takes it; NULL: none */
    struct octet_array in[OCTET_NODE_INPUTS_MAX]; /* [node->input_count] */
    struct octet_array out[2];                    /* [node->output_count]; forward writes data */
    void *saved;          /* 64-aligned; forward leaves here what backward needs, NULL: none */
    size_t saved_bytes;   /* as oct_op_code.saved_bytes said; 0 when there is no backward */
    octet_arena *scratch; /* dies with the call */
    const struct octet_quantized *prepared; /* the second operand, quantized beforehand; or NULL */
    const struct oct_op_keys *keys; /* NULL: the CPU runs it; nothing is saved in the block then */
    struct oct_figures *figures;    /* with numerics; or NULL */
    struct oct_report *report;      /* of losses; NULL: not asked for */
    bool is_fast; /* set by a product that ran in another order than EXACT_ORDER */
};

/* What a loss op tells beside its sum; arrays [B,S], data NULL: not asked for. */
struct oct_report {
    struct octet_array logprobs; /* F32: log p(target) */
    struct octet_array argmax;   /* S32: the likeliest token */
};

/* cotangent[i]: of out[i], data NULL where nothing flows back into it. gradient[i]: of in[i], to be
 * written whole; data NULL: not wanted. */
typedef enum octet_status oct_forward(struct oct_op_call *call, struct octet_error *err);
typedef enum octet_status oct_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                  struct octet_array *gradient, struct octet_error *err);

/* A row of the table in exec/ops.c. */
struct oct_op_code {
    oct_forward *forward; /* NULL: the op can be traced but not run */
    oct_vjp *vjp;         /* NULL: no gradient flows through it */
    /* Bytes that forward leaves for backward. NULL: 0. rule: as in the call. */
    size_t (*saved_bytes)(const octet_graph *graph, const struct oct_node *node,
                          const struct octet_rule *rule);
    /* Which operands and results backward reads (IN0 ... OUT), where that depends on the rule: what
     * is saved as codes need not be kept. NULL: as graph/ops.h says. */
    int (*reads)(const octet_graph *graph, const struct oct_node *node,
                 const struct octet_rule *rule);
    /* An upper bound, within some percent, of scratch in forward or backward. NULL: 64 KiB do. */
    size_t (*scratch_bytes)(const octet_graph *graph, const struct oct_node *node,
                            const struct octet_rule *rule, bool backward);
};
extern const struct oct_op_code oct_op_codes[OCT_OP_COUNT];

/* Scaled dot-product attention as one op: the two einsums, softmax and division of
 * models/attention.c's oct_attend, where no rule quantizes an einsum. Memory grows with the length,
 * not with its square. in: query [b,t,kv,g,d], key [b,s,kv,d], value [b,s,kv,dv], segment ids
 * [b,s], positions [b,s] [, sinks [kv * g]]; out[0]: [b,t,kv,g,dv]. call->node is the
 * attention_softmax node (window, soft cap); scores_dtype: of the softmax's input (F32 with
 * float32_logits). */
struct oct_attention_call {
    struct oct_op_call call;
    enum octet_dtype product_dtype; /* of the scores einsum's result */
    enum octet_dtype scores_dtype;  /* in which softmax runs */
};
enum octet_status oct_attention_forward(struct oct_attention_call *call,
                                        struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_attention_vjp(struct oct_attention_call *call,
                                    const struct octet_array *cotangent,
                                    struct octet_array *gradient /* [3]; sinks: [5] */,
                                    struct octet_error *err) OCTET_MUST_CHECK;
size_t oct_attention_saved_bytes(int64_t batch, int64_t heads, int64_t length);
size_t oct_attention_scratch_bytes(const struct octet_array *query, const struct octet_array *value,
                                   bool backward, int threads);

#endif
