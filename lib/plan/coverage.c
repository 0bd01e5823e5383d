/* What a plan costs, and how much of it is quantized, in total and by block of the model. */
#include "plan/coverage.h"

#include <ctype.h>
#include <string.h>

#include "plan/weights.h"

/* "decoder/moe_layers_12/self_attention/wq_b" -> "decoder/moe_layers": the part of a path that a
 * reader thinks of as one block; scanned and unrolled models have the same ones. */
static size_t block_length(const char *path)
{
    const char *second = strchr(path, '/');

    if (!second)
        return strlen(path);
    bool mtp = strncmp(path, "mtp_block/", 10) == 0;
    if (!mtp && strncmp(path, "decoder/", 8) != 0)
        return (size_t)(second - path);
    size_t length = strcspn(second + 1, "/") + (size_t)(second + 1 - path);
    size_t digits = length;
    while (digits > 0 && isdigit((unsigned char)path[digits - 1]))
        digits--;
    return !mtp && digits < length && path[digits - 1] == '_' ? digits - 1 : length;
}

/* The block of a parameter or module; its row is made when it is new. NULL: no memory. The list is
 * as short as a model has kinds of layers, so it is searched from the end, where the last hit was.
 */
static struct octet_coverage *block_of(struct octet_plan *plan, const char *path, size_t *capacity)
{
    size_t length = block_length(path);

    for (size_t i = plan->coverage_count; i-- > 1;)
        if (strncmp(plan->coverage[i].block, path, length) == 0 &&
            plan->coverage[i].block[length] == '\0')
            return &plan->coverage[i];
    if (plan->coverage_count == *capacity) {
        struct octet_coverage *larger =
            OCTET_NEW_ARRAY(plan->arena, *capacity * 2, struct octet_coverage);
        if (!larger)
            return NULL;
        memcpy(larger, plan->coverage, plan->coverage_count * sizeof *larger);
        plan->coverage = larger;
        *capacity *= 2;
    }
    char *name = octet_arena_copy(plan->arena, path, length);
    if (!name)
        return NULL;
    plan->coverage[plan->coverage_count] = (struct octet_coverage){.block = name};
    return &plan->coverage[plan->coverage_count++];
}

static void mark(void *user, uint32_t parameter)
{
    ((bool *)user)[parameter] = true;
}

static void add(int64_t *sum, int64_t value)
{
    *sum = oct_saturating_add(*sum, value);
}

/* A parameter counts as quantized when a quantized op reads it. quantized: [tensor_count]. */
static void mark_quantized(const struct octet_plan *plan, bool *quantized)
{
    const octet_graph *g = plan->graph;

    for (uint32_t i = 0; i < g->node_count; i++) {
        uint32_t line = plan->interception_of[i];
        if (!line || !oct_rule_quantizes(plan->rules, plan->interceptions[line - 1].rule))
            continue;
        for (int k = 0; k < 2; k++)
            oct_plan_weights(g, g->nodes[i].inputs[k], mark, quantized);
    }
}

static enum octet_status cover(struct octet_plan *plan, const bool *quantized,
                               struct octet_error *err)
{
    const octet_graph *g = plan->graph;
    size_t capacity = 16;

    plan->coverage = OCTET_NEW_ARRAY(plan->arena, capacity, struct octet_coverage);
    if (!plan->coverage)
        return octet_arena_exhausted(plan->arena, err);
    plan->coverage[0].block = "";
    plan->coverage_count = 1;
    /* Parameters in the order in which they were made, which is the order of execution. */
    for (uint32_t i = 1; i < g->tensor_count; i++) {
        if (g->tensors[i].kind != OCTET_TENSOR_PARAMETER)
            continue;
        struct octet_coverage *block = block_of(plan, g->tensors[i].name, &capacity);
        if (!block)
            return octet_arena_exhausted(plan->arena, err);
        int64_t bytes = octet_tensor_bytes(&g->tensors[i]);
        add(&block->weight_bytes_total, bytes);
        add(&block->weight_bytes_quantized, quantized[i] ? bytes : 0);
    }
    for (uint32_t i = 0; i < plan->interception_count; i++) {
        const struct octet_interception *line = &plan->interceptions[i];
        struct octet_coverage *block = block_of(plan, line->module, &capacity);
        if (!block)
            return octet_arena_exhausted(plan->arena, err);
        add(&block->flops_total, line->flops);
        add(&block->flops_quantized, oct_rule_quantizes(plan->rules, line->rule) ? line->flops : 0);
    }
    struct octet_coverage *total = &plan->coverage[0];
    for (size_t i = 1; i < plan->coverage_count; i++) {
        add(&total->flops_quantized, plan->coverage[i].flops_quantized);
        add(&total->flops_total, plan->coverage[i].flops_total);
        add(&total->weight_bytes_quantized, plan->coverage[i].weight_bytes_quantized);
        add(&total->weight_bytes_total, plan->coverage[i].weight_bytes_total);
    }
    return OCTET_OK;
}

/* Bytes of what backward reads, each tensor once, in all executions. seen: [tensor_count]. */
static int64_t kept_bytes(const octet_graph *g, const struct oct_node *node, bool *seen)
{
    int64_t bytes = 0;
    int reads = oct_op_rows[node->op].reads;

    for (int i = 0; i < node->input_count + node->output_count; i++) {
        bool output = i >= node->input_count;
        uint32_t id = output ? node->outputs[i - node->input_count] : node->inputs[i];
        int bit = output ? OUT : 1 << i;
        if (!(reads & bit) || seen[id] || g->tensors[id].kind != OCTET_TENSOR_ACTIVATION)
            continue;
        seen[id] = true;
        struct octet_tensor kept = g->tensors[id];
        kept.layers = node->repeat > 1 ? node->repeat : 0;
        add(&bytes, octet_tensor_bytes(&kept));
    }
    return bytes;
}

/* A fused attention kernel (an einsum that nothing looks up) never stores scores and exponentials.
 */
static void forget_fused_scores(const octet_graph *g, bool *seen)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].op != OCT_OP_attention_softmax)
            continue;
        uint32_t scores = g->nodes[i].inputs[0], producer = g->producers[scores];
        uint32_t uncast = scores;
        if (producer != UINT32_MAX && g->nodes[producer].op == OCT_OP_cast) {
            uncast = g->nodes[producer].inputs[0];
            producer = g->producers[uncast];
        }
        if (producer != UINT32_MAX && g->nodes[producer].op == OCT_OP_einsum &&
            g->nodes[producer].lookup == OCTET_LOOKUP_NONE)
            seen[scores] = seen[uncast] = seen[g->nodes[i].outputs[0]] = true;
    }
}

static void measure(struct octet_plan *plan, bool *seen)
{
    const octet_graph *g = plan->graph;
    struct octet_plan_totals *t = &plan->totals;

    t->nodes = g->node_count;
    t->batch_size = g->batch_size;
    t->sequence_length = g->sequence_length;
    forget_fused_scores(g, seen);
    for (uint32_t i = 0; i < g->parameter_count; i++) {
        const struct octet_tensor *parameter = octet_graph_parameter(g, i);
        struct octet_shape stored = octet_parameter_shape(parameter);
        add(&t->parameters, octet_shape_elements(&stored));
        add(&t->parameter_bytes, octet_tensor_bytes(parameter));
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct oct_node *node = &g->nodes[i];
        int64_t flops = oct_saturating_multiply(oct_op_rows[node->op].cost(g, node), node->repeat);
        bool two_gradients = node->op == OCT_OP_dot_general || node->op == OCT_OP_einsum ||
                             node->op == OCT_OP_grouped_matmul;
        add(&t->flops_forward, flops);
        add(&t->flops_backward, oct_saturating_multiply(flops, two_gradients ? 2 : 1));
        add(&t->activation_bytes, kept_bytes(g, node, seen));
    }
}

enum octet_status oct_plan_measure(struct octet_plan *plan, struct octet_error *err)
{
    bool *quantized = OCTET_NEW_ARRAY(plan->arena, plan->graph->tensor_count, bool);
    bool *seen = OCTET_NEW_ARRAY(plan->arena, plan->graph->tensor_count, bool);

    if (!quantized || !seen)
        return octet_arena_exhausted(plan->arena, err);
    mark_quantized(plan, quantized);
    measure(plan, seen);
    return cover(plan, quantized, err);
}
