/* The op kinds: one list. Readers: graph/ops.c (shape inference, cost) and, where the graph is run,
 * the table of forward and VJP functions.
 *
 * A row: name, inputs that must be there, outputs, what backward reads, what it computes. Inputs
 * beyond the required ones are optional and named in `builder.h` beside the function that makes the
 * node. Decision: attention's two products and the router's product are ops of their own, not one
 * fused "attention": they are what a rule can take, and a fused run is the executor's choice. */
#ifndef OCTET_GRAPH_OPS_H
#define OCTET_GRAPH_OPS_H

#define IN0 (1)
#define IN1 (2)
#define IN2 (4)
#define OUT (64)

#define OCTET_OPS(OP)                                                                              \
    OP(embed, 2, 1, (IN0))                      /* ids, table -> rows of the table */              \
    OP(dot_general, 2, 1, (IN0 + IN1))          /* lhs, rhs over dims.dot */                       \
    OP(einsum, 2, 1, (IN0 + IN1))               /* lhs, rhs over attributes.equation */            \
    OP(grouped_matmul, 3, 1, (IN0 + IN1 + IN2)) /* rows, experts, group sizes */                   \
    OP(rms_norm, 1, 1, (IN0 + IN1))    /* x [, scale] -> x / rms(x) [* (offset + scale)] */        \
    OP(layer_norm, 3, 1, (IN0 + IN1))  /* x, scale, bias */                                        \
    OP(rope, 2, 1, (IN1))              /* x, positions -> x rotated */                             \
    OP(add, 2, 1, (0))                 /* the second broadcasts over leading axes */               \
    OP(multiply, 2, 1, (IN0 + IN1))    /* the second broadcasts over leading axes */               \
    OP(scale, 1, 1, (0))               /* x * attributes.factor */                                 \
    OP(activation, 1, 1, (IN0))        /* attributes.function, elementwise */                      \
    OP(slice, 1, 1, (0))               /* attributes.slice of one axis */                          \
    OP(concat, 2, 1, (0))              /* along the last axis */                                   \
    OP(reshape, 1, 1, (0))             /* same elements, other shape */                            \
    OP(transpose, 1, 1, (0))           /* the last two axes swapped */                             \
    OP(one_hot, 1, 1, (0))             /* ids -> 1 at the id of attributes.k classes */            \
    OP(broadcast, 1, 1, (0))           /* an axis of size 1 repeated */                            \
    OP(cast, 1, 1, (0))                /* to attributes.dtype */                                   \
    OP(attention_softmax, 3, 2, (OUT)) /* scores, segment ids, positions [, sinks or mask] */      \
    OP(attention_normalize, 2, 1, (IN0 + IN1)) /* weighted values, sums -> values / sums */        \
    OP(top_k, 1, 2, (IN0 + OUT))    /* scores [, unbiased scores] -> weights, indices */           \
    OP(dispatch, 2, 2, (IN1))       /* tokens, indices -> rows by expert, sizes */                 \
    OP(undispatch, 2, 1, (IN1))     /* rows by expert, indices -> rows by token */                 \
    OP(expert_bias, 2, 1, (IN1))    /* bias [n, d], indices -> a row of bias a row */              \
    OP(expert_weights, 2, 1, (IN1)) /* weights, indices -> weights [.., n], zero elsewhere */      \
    OP(capacity_masks, 2, 2,                                                                       \
       (IN0 + IN1)) /* weights [.., n], indices -> dispatch, combine masks */                      \
    OP(load_balance_loss, 2, 1, (IN0 + IN1)) /* scores, indices -> scalar */                       \
    OP(sinusoid, 1, 1, (0))                  /* positions -> encodings of attributes.k features */ \
    OP(chunk_mean, 1, 1, (0))         /* keys [b,s,..] -> means of attributes.k keys at a time */  \
    OP(index_mask, 1, 1, (0))         /* indexer scores -> mask of the top k keys */               \
    OP(index_loss, 2, 1, (IN0 + IN1)) /* attention scores, indexer scores -> KL divergence */      \
    OP(soft_cap, 1, 1, (OUT))         /* tanh(x / cap) * cap */                                    \
    OP(stop_gradient, 1, 1, (0))      /* x, and no gradient */                                     \
    OP(shift_left, 1, 1, (0))         /* x [, segment ids] -> x[i+1] of its document, else 0 */    \
    OP(stream_mix, 1, 1, (IN0))       /* hyper-connection gates: sigmoid or Sinkhorn */            \
    OP(stream_sum, 1, 1, (0))         /* streams added up */                                       \
    OP(cross_entropy, 3, 2,                                                                        \
       (IN0 + IN1 + IN2))             /* logits, targets, weights -> sums: loss, weights */        \
    OP(loss_ratio, 2, 1, (IN0 + IN1)) /* loss sums, weight sums -> their ratio */

enum oct_op {
#define OCT_OP_ENUM(name, inputs, outputs, reads) OCT_OP_##name,
    OCTET_OPS(OCT_OP_ENUM)
#undef OCT_OP_ENUM
        OCT_OP_COUNT
};

#endif
