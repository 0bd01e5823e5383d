/* Softmax of attention, row by row: what the fused attention and the op by itself share, so that
 * they give the same bits. See softmax.c. */
#ifndef OCTET_EXEC_SOFTMAX_H
#define OCTET_EXEC_SOFTMAX_H

#include "exec/op.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

struct oct_softmax {
    const struct oct_kernels *kernels;
    const struct oct_math *math;
    enum octet_dtype dtype; /* of scores: exps, sums and sinks are rounded to it */
    int64_t window;         /* keys a query looks back on, itself included; 0: all */
    float soft_cap;         /* 0: none */
    int64_t length;
    const int32_t *segments; /* [b, s] */
    int32_t *runs;           /* [b, s]: where the run of equal ids that a token is in begins */
    bool *recurs;            /* [b]: an id may have several runs */
    const float *sinks;      /* [heads], rounded; NULL: none */
};

/* Of call->node, an attention_softmax node; its inputs from `segments` on (ids, positions [,
 * sinks]) start at in[first]. Takes memory from the call's scratch: oct_softmax_bytes. */
enum octet_status oct_softmax_prepare(const struct oct_op_call *call, int first,
                                      enum octet_dtype dtype, struct oct_softmax *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;
size_t oct_softmax_bytes(int64_t batch, int64_t heads, int64_t length);

/* The first key that a query sees: of its segment, and of its window. */
int64_t oct_softmax_from(const struct oct_softmax *s, int64_t batch, int64_t query);

struct oct_softmax_row {
    float maximum, sum; /* rounded; the sink's part is in both */
};

/* x: scores of keys first <= key < end, becomes exp(score - maximum), 0 where the query may not
 * look; not rounded. end > query, and first as from oct_softmax_first_key of a query not later. */
struct oct_softmax_row oct_softmax_forward_row(const struct oct_softmax *s, int64_t batch,
                                               int64_t head, int64_t query, int64_t first,
                                               int64_t end, float *x);
/* g: cotangents of exps, n of them, becomes those of scores; c: the sum's cotangent. */
void oct_softmax_backward_row(const struct oct_softmax *s, int64_t n, const float *exps,
                              float maximum, float c, float *g);
/* d sum / d sink */
float oct_softmax_sink_slope(const struct oct_softmax *s, int64_t head, float maximum);

oct_forward oct_attention_softmax_forward, oct_attention_normalize_forward;
oct_vjp oct_attention_softmax_vjp, oct_attention_normalize_vjp;
size_t oct_attention_softmax_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                                         const struct octet_rule *rule);
int oct_attention_softmax_reads(const octet_graph *graph, const struct oct_node *node,
                                const struct octet_rule *rule);
size_t oct_attention_softmax_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                           const struct octet_rule *rule, bool backward);

/* out = x / divisor; may be the same array. */
void oct_divide_row(size_t n, const float *x, float divisor, float *out);
void oct_round_values(const struct oct_kernels *kernels, enum octet_dtype dtype, int64_t n,
                      float *values); /* to F32 (nothing to do) or BF16, in place */

#endif
