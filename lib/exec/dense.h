/* Products of two operands: dot_general, einsum, grouped_matmul; see dense.c. */
#ifndef OCTET_EXEC_DENSE_H
#define OCTET_EXEC_DENSE_H

#include "exec/op.h"

oct_forward oct_dense_forward;
oct_vjp oct_dense_vjp;
/* What forward would refuse of a rule on these shapes. Errors: INVALID_ARGUMENT "rule.tile_size".
 */
enum octet_status oct_dense_check(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward,
                                  struct octet_error *err) OCTET_MUST_CHECK;
size_t oct_dense_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule);
int oct_dense_reads(const octet_graph *graph, const struct oct_node *node,
                    const struct octet_rule *rule);
size_t oct_dense_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                               const struct octet_rule *rule, bool backward);

/* The second operand quantized as forward would do it, in the compute's arena; forward with it as
 * call->prepared gives the same bits. packs: its codes are laid out for the product alone
 * (quant/pack.h), where the rule and the product allow that. out->scale.data NULL: the rule does
 * not quantize it. */
enum octet_status oct_dense_prepare(const struct octet_compute *compute, const octet_graph *graph,
                                    const struct oct_node *node, const struct octet_rule *rule,
                                    const struct octet_array *weight, bool packs,
                                    struct octet_quantized *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Bytes of its codes. */
size_t oct_dense_prepared_bytes(const octet_graph *graph, const struct oct_node *node,
                                const struct octet_rule *rule, bool packs);

#endif
