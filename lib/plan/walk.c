/* The walk; see walk.h.
 *
 * Decision: op ids are counted here as Qwix counts them (per module and op name, with and without a
 * rule, from zero in each evaluation), so the walk over the graph is the trace. */
#include "plan/walk.h"

#include <string.h>

#include "plan/placement.h"
#include "plan/weights.h"

enum { NODES_BETWEEN_POLLS = 256 };

/* State of one walk. counters: [module_count][OCTET_LOOKUP_COUNT], ops seen so far; first: index +
 * 1 of the module's first interception of that kind. */
struct walk {
    struct octet_plan *plan;
    const octet_graph *graph;
    uint32_t (*counters)[OCTET_LOOKUP_COUNT];
    uint32_t (*first)[OCTET_LOOKUP_COUNT];
    bool *used; /* [rules] */
    bool intercepted, gmm;
    const struct octet_capabilities *capabilities;
    struct octet_error *err;
};

static bool is_matmul(const struct oct_node *node)
{
    return node->lookup != OCTET_LOOKUP_NONE || node->op == OCT_OP_dot_general ||
           node->op == OCT_OP_einsum || node->op == OCT_OP_grouped_matmul;
}

/* The kind of a line: how its node is looked up, or the name that it goes by where it is not. */
static enum octet_lookup kind_of(const struct oct_node *node)
{
    if (node->lookup != OCTET_LOOKUP_NONE && node->lookup != OCTET_LOOKUP_CACHED)
        return (enum octet_lookup)node->lookup;
    if (node->op == OCT_OP_dot_general)
        return OCTET_LOOKUP_DOT_GENERAL;
    return node->op == OCT_OP_grouped_matmul ? OCTET_LOOKUP_GMM : OCTET_LOOKUP_EINSUM;
}

static int64_t operand_bytes(const struct walk *w, const struct oct_node *node)
{
    int64_t bytes = 0;

    for (int i = 0; i < 2; i++) {
        const struct octet_tensor *operand = &w->graph->tensors[node->inputs[i]];
        if (!oct_plan_weights(w->graph, node->inputs[i], NULL, NULL))
            continue;
        struct octet_tensor stored =
            *operand; /* as held: in the parameters' type, not the cast one */
        const octet_graph *g = w->graph;
        stored.dtype = g->parameter_count ? g->tensors[g->parameters[0]].dtype : operand->dtype;
        stored.layers = node->repeat > 1 ? node->repeat : 0;
        bytes = oct_saturating_add(bytes, octet_tensor_bytes(&stored));
    }
    return bytes;
}

static struct octet_interception *append(struct walk *w)
{
    struct octet_plan *plan = w->plan;

    if (plan->interception_count == plan->interception_capacity) {
        uint32_t capacity = plan->interception_capacity ? 2 * plan->interception_capacity : 256;
        struct octet_interception *larger =
            OCTET_NEW_ARRAY(plan->arena, capacity, struct octet_interception);
        if (!larger)
            return NULL;
        if (plan->interception_count)
            memcpy(larger, plan->interceptions,
                   plan->interception_count * sizeof *plan->interceptions);
        plan->interceptions = larger;
        plan->interception_capacity = capacity;
    }
    return &plan->interceptions[plan->interception_count++];
}

/* The line that this node's executions are counted under, if an earlier node opened it: further
 * grouped matmuls of a module, and calls whose trace JAX has cached. */
static struct octet_interception *shared_line(struct walk *w, const struct oct_node *node)
{
    enum octet_lookup kind = (enum octet_lookup)node->lookup;
    uint32_t index = 0;

    if (kind == OCTET_LOOKUP_CACHED)
        index = w->first[node->module][OCTET_LOOKUP_DOT_GENERAL];
    else if (kind == OCTET_LOOKUP_GMM)
        index = w->first[node->module][OCTET_LOOKUP_GMM];
    return index ? &w->plan->interceptions[index - 1] : NULL;
}

static const char *op_name(struct walk *w, const struct oct_node *node, bool numbered)
{
    const char *name = octet_lookup_name(kind_of(node));

    if (!numbered)
        return name;
    return octet_arena_format(w->plan->arena, "%s%u", name,
                              w->counters[node->module][node->lookup]++);
}

static void describe(struct walk *w, const struct oct_node *node, struct octet_interception *line)
{
    const octet_graph *g = w->graph;

    line->module = g->modules[node->module];
    line->equation = "";
    if (node->op == OCT_OP_einsum)
        line->equation = node->attributes.equation;
    else if (node->op == OCT_OP_rms_norm)
        line->equation = "...k,k->...k";
    line->kind = kind_of(node);
    line->lhs = g->tensors[node->inputs[0]].shape;
    line->rhs = g->tensors[node->inputs[1]].shape;
    line->out = g->tensors[node->outputs[0]].shape;
    line->rule = -1;
}

/* Multiplication by the norm's weight; the normalization before it is no part of the einsum. */
static int64_t intercepted_flops(const struct walk *w, const struct oct_node *node)
{
    if (node->op == OCT_OP_rms_norm)
        return octet_shape_elements(&w->graph->tensors[node->outputs[0]].shape);
    return oct_op_rows[node->op].cost(w->graph, node);
}

static enum octet_status resolve(struct walk *w, const struct oct_node *node,
                                 struct octet_interception *line)
{
    int rule;
    enum octet_status status = octet_rules_match(w->plan->rules, line->module,
                                                 octet_lookup_name(line->kind), &rule, w->err);

    if (status != OCTET_OK)
        return status;
    line->rule = rule;
    if (rule >= 0)
        w->used[rule] = true;
    if (!w->first[node->module][node->lookup])
        w->first[node->module][node->lookup] = w->plan->interception_count;
    return OCTET_OK;
}

static const struct octet_rule *rule_of(const struct walk *w, const struct octet_interception *line)
{
    return line->rule < 0 ? NULL : octet_rules_get(w->plan->rules, (size_t)line->rule);
}

static enum octet_status visit(struct walk *w, uint32_t index)
{
    const struct oct_node *node = &w->graph->nodes[index];
    struct octet_interception *line = shared_line(w, node);

    if (!line) {
        bool looked_up = w->intercepted && node->lookup != OCTET_LOOKUP_NONE &&
                         (node->lookup != OCTET_LOOKUP_GMM || w->gmm);
        line = append(w);
        if (!line)
            return octet_arena_exhausted(w->plan->arena, w->err);
        describe(w, node, line);
        line->looked_up = looked_up;
        line->logged = looked_up && node->lookup != OCTET_LOOKUP_GMM;
        line->op = op_name(w, node, line->logged);
        if (!line->op)
            return octet_arena_exhausted(w->plan->arena, w->err);
        if (looked_up) {
            enum octet_status status = resolve(w, node, line);
            if (status != OCTET_OK)
                return status;
        } else if (node->lookup == OCTET_LOOKUP_GMM) {
            w->first[node->module][OCTET_LOOKUP_GMM] = w->plan->interception_count;
        }
        line->backend = oct_plan_backend(w->capabilities, w->graph, node, rule_of(w, line));
    }
    int64_t flops = oct_saturating_multiply(intercepted_flops(w, node), node->repeat);
    line->count = oct_saturating_add(line->count, node->repeat);
    line->flops = oct_saturating_add(line->flops, flops);
    line->weight_bytes = oct_saturating_add(
        line->weight_bytes, node->lookup == OCTET_LOOKUP_CACHED ? 0 : operand_bytes(w, node));
    w->plan->interception_of[index] = (uint32_t)(line - w->plan->interceptions) + 1;
    return OCTET_OK;
}

static enum octet_status list_unused_rules(struct walk *w)
{
    struct octet_plan *plan = w->plan;
    size_t count = octet_rules_count(plan->rules);

    plan->unused_rules = OCTET_NEW_ARRAY(plan->arena, count, int32_t);
    if (!plan->unused_rules)
        return octet_arena_exhausted(plan->arena, w->err);
    for (size_t i = 0; i < count; i++)
        if (!w->used[i])
            plan->unused_rules[plan->unused_rule_count++] = (int32_t)i;
    return OCTET_OK;
}

enum octet_status oct_plan_walk(octet_plan *plan, bool intercepted, bool gmm,
                                const struct octet_capabilities *capabilities,
                                const struct octet_cancel *cancel, struct octet_error *err)
{
    const octet_graph *g = plan->graph;
    struct walk w = {.plan = plan,
                     .graph = g,
                     .intercepted = intercepted,
                     .gmm = gmm,
                     .capabilities = capabilities,
                     .err = err};

    w.counters = octet_arena_array(plan->arena, g->module_count, sizeof *w.counters);
    w.first = octet_arena_array(plan->arena, g->module_count, sizeof *w.first);
    w.used = OCTET_NEW_ARRAY(plan->arena, octet_rules_count(plan->rules), bool);
    plan->interception_of = OCTET_NEW_ARRAY(plan->arena, g->node_count, uint32_t);
    if (!w.counters || !w.first || !w.used || !plan->interception_of)
        return octet_arena_exhausted(plan->arena, err);
    for (uint32_t i = 0; i < g->node_count; i++) {
        enum octet_status status =
            i % NODES_BETWEEN_POLLS == 0 ? octet_cancel_check(cancel, err) : OCTET_OK;
        if (status == OCTET_OK && is_matmul(&g->nodes[i]))
            status = visit(&w, i);
        if (status != OCTET_OK)
            return status;
    }
    return list_unused_rules(&w);
}
