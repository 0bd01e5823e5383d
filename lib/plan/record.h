/* The record of a plan: what an octet_plan holds, its life, and what outsiders may read. */
#ifndef OCTET_PLAN_RECORD_H
#define OCTET_PLAN_RECORD_H

#include <stdatomic.h>

#include "graph/graph_private.h"
#include "octet/plan.h"

/* All that a plan holds lives in `arena`, the graph too; only the reference count changes after it
 * was built. */
struct octet_plan {
    atomic_uint references;
    octet_arena *arena;
    octet_rules *rules; /* one reference */
    const octet_graph *graph;
    struct octet_interception *interceptions;
    uint32_t interception_count, interception_capacity;
    uint32_t *interception_of; /* [node_count]: index + 1; 0: the node is no matmul */
    int32_t *unused_rules;
    size_t unused_rule_count;
    struct octet_coverage *coverage;
    size_t coverage_count;
    struct octet_plan_totals totals;
};

/* An empty plan with one reference, which holds one on rules; NULL when there is no memory. */
octet_plan *oct_plan_allocate(const octet_context *context, octet_rules *rules);

#endif
