/* Embedding; see embed.c. */
#ifndef OCTET_EXEC_EMBED_H
#define OCTET_EXEC_EMBED_H

#include "exec/op.h"

oct_forward oct_embed_forward;
oct_vjp oct_embed_vjp;

/* The VJP for a table whose gradient is already there: adds to the rows that ids name and touches
 * no other, so that the cost is that of the tokens and not of the vocabulary. gradient: as in
 * oct_embed_vjp, F32, [1]. The same bits as the VJP's result added. */
enum octet_status oct_embed_vjp_add(struct oct_op_call *call, const struct octet_array *cotangent,
                                    struct octet_array *gradient,
                                    struct octet_error *err) OCTET_MUST_CHECK;

size_t oct_embed_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                               const struct octet_rule *rule, bool backward);

#endif
