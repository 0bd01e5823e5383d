/* Losses; see loss.c. */
#ifndef OCTET_EXEC_LOSS_H
#define OCTET_EXEC_LOSS_H

#include "exec/op.h"

oct_forward oct_shift_left_forward, oct_cross_entropy_forward, oct_loss_ratio_forward;
/* Of cross entropy: gradient[0] may lie where the logits do, which are then overwritten. */
oct_vjp oct_cross_entropy_vjp, oct_loss_ratio_vjp;

size_t oct_cross_entropy_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                                     const struct octet_rule *rule);
size_t oct_cross_entropy_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                       const struct octet_rule *rule, bool backward);

#endif
