/* The op table: names, shape inference, cost.
 *
 * Costs count floating-point operations of one execution, a multiply-add as two. Those of
 * elementwise ops are per element of the output and rough (an exp counts as one); matmuls are
 * exact. */
#include "graph/ops.h"

#include <string.h>

#include "graph/graph_private.h"
#include "graph/infer.h"

static const struct octet_shape *in(const struct octet_graph *g, const struct oct_node *n, int i)
{
    return &g->tensors[n->inputs[i]].shape;
}

static int64_t out_elements(const struct octet_graph *g, const struct oct_node *n)
{
    return octet_shape_elements(&g->tensors[n->outputs[0]].shape);
}

static int64_t times(int64_t a, int64_t b)
{
    return oct_saturating_multiply(a, b);
}

static int64_t cost_free(const struct octet_graph *g, const struct oct_node *n)
{
    (void)g;
    (void)n;
    return 0;
}

static int64_t cost_elements(const struct octet_graph *g, const struct oct_node *n)
{
    return out_elements(g, n);
}

/* Square, sum, scale by 1/rms, scale by the weight. */
static int64_t cost_norm(const struct octet_graph *g, const struct oct_node *n)
{
    return times(4, out_elements(g, n));
}

/* Two products and a sum for each element. */
static int64_t cost_rope(const struct octet_graph *g, const struct oct_node *n)
{
    return times(3, out_elements(g, n));
}

/* Maximum, difference, exponential, sum. */
static int64_t cost_softmax(const struct octet_graph *g, const struct oct_node *n)
{
    return times(4, out_elements(g, n));
}

static int64_t cost_dot_general(const struct octet_graph *g, const struct oct_node *n)
{
    int64_t depth = 1;

    for (int i = 0; i < n->attributes.dot.contracting_count; i++)
        depth = times(depth, in(g, n, 0)->dim[n->attributes.dot.lhs_contracting[i]]);
    return times(2, times(depth, out_elements(g, n)));
}

/* Twice the product of all labels; without a contracted label only a multiplication is left. */
static int64_t cost_einsum(const struct octet_graph *g, const struct oct_node *n)
{
    const struct octet_shape *lhs = in(g, n, 0);
    char a[OCTET_RANK_MAX], b[OCTET_RANK_MAX], c[OCTET_RANK_MAX];
    int rank;
    int64_t depth = 1;
    bool contracts = false;

    if (!oct_einsum_labels(n->attributes.equation, lhs->rank, in(g, n, 1)->rank, a, b, c, &rank))
        return 0;
    for (int i = 0; i < lhs->rank; i++)
        if (!memchr(c, a[i], (size_t)rank)) {
            depth = times(depth, lhs->dim[i]);
            contracts = true;
        }
    return times(contracts ? 2 : 1, times(depth, out_elements(g, n)));
}

static int64_t cost_grouped_matmul(const struct octet_graph *g, const struct oct_node *n)
{
    return times(2, times(in(g, n, 0)->dim[1], out_elements(g, n)));
}

/* Of the logits: maximum, exponential, sum. */
static int64_t cost_cross_entropy(const struct octet_graph *g, const struct oct_node *n)
{
    return times(3, octet_shape_elements(in(g, n, 0)));
}

static int64_t cost_first_input(const struct octet_graph *g, const struct oct_node *n)
{
    return octet_shape_elements(in(g, n, 0));
}

#define cost_embed cost_free
#define cost_rms_norm cost_norm
#define cost_layer_norm cost_norm
#define cost_add cost_elements
#define cost_multiply cost_elements
#define cost_scale cost_elements
#define cost_activation cost_elements
#define cost_slice cost_free
#define cost_concat cost_free
#define cost_reshape cost_free
#define cost_transpose cost_free
#define cost_one_hot cost_free
#define cost_broadcast cost_free
#define cost_cast cost_free
#define cost_attention_softmax cost_softmax
#define cost_attention_normalize cost_elements
#define cost_top_k cost_first_input
#define cost_dispatch cost_free
#define cost_undispatch cost_free
#define cost_expert_bias cost_free
#define cost_expert_weights cost_free
#define cost_capacity_masks cost_elements
#define cost_load_balance_loss cost_first_input
#define cost_index_mask cost_elements
#define cost_sinusoid cost_elements
#define cost_chunk_mean cost_first_input
#define cost_index_loss cost_first_input
#define cost_soft_cap cost_elements
#define cost_stop_gradient cost_free
#define cost_shift_left cost_free
#define cost_stream_mix cost_elements
#define cost_stream_sum cost_first_input
#define cost_loss_ratio cost_free

const struct oct_op_row oct_op_rows[OCT_OP_COUNT] = {
#define ROW(name, inputs, outputs, reads)                                                          \
    [OCT_OP_##name] = {#name, inputs, outputs, reads, oct_infer_##name, cost_##name},
    OCTET_OPS(ROW)
#undef ROW
};
