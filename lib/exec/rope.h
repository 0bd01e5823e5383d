/* Positions: rotation of queries and keys, sinusoidal encodings; see rope.c. */
#ifndef OCTET_EXEC_ROPE_H
#define OCTET_EXEC_ROPE_H

#include "exec/op.h"

oct_forward oct_rope_forward, oct_sinusoid_forward;
oct_vjp oct_rope_vjp;
size_t oct_rope_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                              const struct octet_rule *rule, bool backward);
size_t oct_sinusoid_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward);

#endif
