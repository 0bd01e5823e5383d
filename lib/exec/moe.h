/* Experts: choosing them, moving rows to them and back; see moe.c and router.c. */
#ifndef OCTET_EXEC_MOE_H
#define OCTET_EXEC_MOE_H

#include "exec/op.h"

oct_forward oct_top_k_forward, oct_dispatch_forward, oct_undispatch_forward,
    oct_expert_bias_forward, oct_expert_weights_forward, oct_capacity_masks_forward,
    oct_load_balance_loss_forward;
oct_vjp oct_top_k_vjp, oct_dispatch_vjp, oct_undispatch_vjp, oct_expert_bias_vjp,
    oct_expert_weights_vjp, oct_capacity_masks_vjp, oct_load_balance_loss_vjp;

size_t oct_top_k_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule);
int oct_top_k_reads(const octet_graph *graph, const struct oct_node *node,
                    const struct octet_rule *rule);
size_t oct_dispatch_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward);
size_t oct_capacity_masks_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                        const struct octet_rule *rule, bool backward);
size_t oct_load_balance_loss_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                           const struct octet_rule *rule, bool backward);

/* count[e] = how often expert e stands in indices (S32, of any shape, all below experts). */
void oct_expert_counts(const struct octet_array *indices, int64_t experts, int64_t *count);

/* The update without an auxiliary loss, after an optimizer step: bias[e] += rate * sign(mean count
 * - count[e]). bias: [experts] F32. Source: MaxText, layers/moe.py, calculate_load_balance_updates;
 * DeepSeek-V3 (arXiv 2412.19437), section 2.1.2. */
void oct_router_bias_update(int64_t experts, const int64_t *count, double rate, float *bias);

#endif
