/* Activations and soft caps; see activation.c. */
#ifndef OCTET_EXEC_ACTIVATION_H
#define OCTET_EXEC_ACTIVATION_H

#include "exec/op.h"

oct_forward oct_activation_forward, oct_soft_cap_forward;
/* activation(gate) * up as one op: in[0], in[1]; call->node is the activation's, which is
 * elementwise. All four have one type and shape. */
oct_forward oct_gate_forward;
oct_vjp oct_gate_vjp;

oct_vjp oct_activation_vjp, oct_soft_cap_vjp;
size_t oct_activation_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                    const struct octet_rule *rule, bool backward);

#endif
