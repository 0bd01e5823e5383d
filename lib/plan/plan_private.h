/* What a plan is made of; for the files of lib/plan. */
#ifndef OCTET_PLAN_PLAN_PRIVATE_H
#define OCTET_PLAN_PLAN_PRIVATE_H

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

/* Is what `rule` (an index, -1 none) takes quantized? A rule without weight_qtype only excludes. */
bool oct_rule_quantizes(const octet_rules *rules, int rule);

/* Fills plan->coverage and its totals from graph and interceptions. */
enum octet_status oct_plan_measure(struct octet_plan *plan,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* Calls visit(user, parameter) for each parameter that `tensor` is made from by slices, casts,
 * transpositions, reshapes and concatenation alone. Returns how many there are. */
int oct_plan_weights(const octet_graph *graph, uint32_t tensor,
                     void (*visit)(void *user, uint32_t parameter), void *user);

/* Plans kept in the context, least recently used first out. find returns a reference or NULL; keep
 * takes a reference of its own and may decline. */
struct oct_plan_key {
    uint64_t config[2], rules[2];
    int64_t batch_size, sequence_length;
    bool gmm; /* grouped matmuls are looked up */
    bool intercepted;
};
octet_plan *oct_plan_cache_find(octet_context *context, const struct oct_plan_key *key);
void oct_plan_cache_keep(octet_context *context, const struct oct_plan_key *key, octet_plan *plan);

#endif
