/* Life of a plan, and its readers; see record.h. */
#include "plan/record.h"

#include <stdio.h>
#include <stdlib.h>

octet_plan *oct_plan_allocate(const octet_context *context, octet_rules *rules)
{
    octet_plan *plan = calloc(1, sizeof *plan);

    if (!plan)
        return NULL;
    plan->arena = octet_arena_create(octet_context_limits(context)->plan_memory_bytes);
    if (!plan->arena) {
        free(plan);
        return NULL;
    }
    atomic_init(&plan->references, 1);
    plan->rules = octet_rules_ref(rules);
    return plan;
}

octet_plan *octet_plan_ref(octet_plan *plan)
{
    /* relaxed: whoever adds a reference holds one */
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    return plan;
}

void octet_plan_unref(octet_plan *plan)
{
    /* acq_rel: the last one out must see what the others wrote before they left */
    if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    octet_rules_unref(plan->rules);
    octet_arena_destroy(plan->arena);
    free(plan);
}

size_t octet_plan_interception_count(const octet_plan *plan)
{
    return plan->interception_count;
}

const struct octet_interception *octet_plan_interception(const octet_plan *plan, size_t i)
{
    return &plan->interceptions[i];
}

octet_rules *octet_plan_rules(const octet_plan *plan)
{
    return plan->rules;
}

size_t octet_plan_unused_rules(const octet_plan *plan, const int32_t **out)
{
    *out = plan->unused_rules;
    return plan->unused_rule_count;
}

size_t octet_plan_coverage(const octet_plan *plan, const struct octet_coverage **out)
{
    *out = plan->coverage;
    return plan->coverage_count;
}

const struct octet_plan_totals *octet_plan_totals(const octet_plan *plan)
{
    return &plan->totals;
}

size_t octet_plan_parameter_count(const octet_plan *plan)
{
    return plan->graph->parameter_count;
}

const struct octet_tensor *octet_plan_parameter(const octet_plan *plan, size_t i)
{
    return octet_graph_parameter(plan->graph, i);
}

int octet_interception_line(const struct octet_interception *interception, char *buffer,
                            size_t size)
{
    if (interception->rule < 0)
        return snprintf(buffer, size, "[QWIX] module='%s' op=%s rule=None", interception->module,
                        interception->op);
    return snprintf(buffer, size, "[QWIX] module='%s' op=%s rule=%d", interception->module,
                    interception->op, interception->rule);
}
