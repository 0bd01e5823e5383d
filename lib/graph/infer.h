/* Shape inference, one function an op; the table in ops.c lists them. Each writes the shapes and
 * dtypes of the node's outputs. A model that does not fit together is the model builder's mistake
 * where its dimensions come from one config key; where two keys disagree, the message names both
 * shapes. */
#ifndef OCTET_GRAPH_INFER_H
#define OCTET_GRAPH_INFER_H

#include "graph/graph_private.h"

#define OCT_INFER(name, inputs, outputs, reads)                                                    \
    enum octet_status oct_infer_##name(struct octet_graph *graph, struct oct_node *node,           \
                                       struct octet_error *err);
OCTET_OPS(OCT_INFER)
#undef OCT_INFER

/* The labels of an einsum's operands: a letter a dimension, '.' for each dimension under "...".
 * lhs, rhs, out: [OCTET_RANK_MAX]. False when the equation does not fit the ranks. */
bool oct_einsum_labels(const char *equation, int lhs_rank, int rhs_rank, char *lhs, char *rhs,
                       char *out, int *out_rank);

#endif
