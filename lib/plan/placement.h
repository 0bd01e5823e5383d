/* Which backend runs an op: the accelerator where it takes the op under its rule, else the CPU. */
#ifndef OCTET_PLAN_PLACEMENT_H
#define OCTET_PLAN_PLACEMENT_H

#include "graph/graph_private.h"
#include "octet/capabilities.h"
#include "octet/rules.h"

/* capabilities NULL: there is the CPU alone. rule NULL: none took the op. */
const char *oct_plan_backend(const struct octet_capabilities *capabilities,
                             const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule);

#endif
