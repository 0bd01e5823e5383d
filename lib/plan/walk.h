/* The walk over a graph that asks, node by node, which rule takes it. */
#ifndef OCTET_PLAN_WALK_H
#define OCTET_PLAN_WALK_H

#include "octet/cancel.h"
#include "plan/record.h"

/* Fills interceptions, interception_of and unused_rules of a plan that has its graph and rules.
 * intercepted: anything is looked up at all; gmm: grouped matmuls are. */
enum octet_status oct_plan_walk(octet_plan *plan, bool intercepted, bool gmm,
                                const struct octet_capabilities *capabilities,
                                const struct octet_cancel *cancel,
                                struct octet_error *err) OCTET_MUST_CHECK;

#endif
