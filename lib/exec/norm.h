/* Norms over the last axis; see norm.c. */
#ifndef OCTET_EXEC_NORM_H
#define OCTET_EXEC_NORM_H

#include "exec/op.h"

oct_forward oct_norm_forward; /* rms_norm and layer_norm */
oct_vjp oct_norm_vjp;
size_t oct_norm_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                              const struct octet_rule *rule, bool backward);

#endif
