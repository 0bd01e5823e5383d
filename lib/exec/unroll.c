/* From a graph to forward steps: scanned segments turn by turn, attention as one step, reshapes as
 * views.
 *
 * Decision: a step refers to slots, not to the graph's tensors, since a tensor of a segment is
 * another value in each turn. */
#include <assert.h>
#include <string.h>

#include "exec/dense.h"
#include "exec/program_private.h"
#include "plan/weights.h"

/* State of one unrolling. now: [tensor_count], the slot that holds a tensor at this point. */
struct unroll {
    oct_program *program;
    const octet_graph *graph;
    uint32_t *now, *readers;            /* readers: [tensor_count], nodes that read the tensor */
    struct oct_attention_nodes *fusion; /* [node_count], of the division's node; softmax 0: none */
    bool *is_fused;                     /* [node_count], part of such an attention or gate */
    uint32_t *gates;                    /* [node_count], of a product: its activation + 1; or 0 */
    uint32_t *parameter_index;          /* [tensor_count] */
    uint32_t *groups;                   /* [module_count], layer of a module; 0: none */
    int64_t turn;                       /* of the open segment */
    uint32_t segment_group;
    struct octet_error *err;
};

static struct octet_array view_of(const struct octet_tensor *tensor)
{
    struct octet_array view = {.dtype = (enum octet_dtype)tensor->dtype,
                               .rank = tensor->shape.rank};

    memcpy(view.dim, tensor->shape.dim, (size_t)tensor->shape.rank * sizeof *view.dim);
    return view;
}

static bool is_float(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16;
}

/* ---- what the graph holds ---- */

static void count_readers(struct unroll *u)
{
    const octet_graph *g = u->graph;

    for (uint32_t i = 0; i < g->node_count; i++)
        for (int j = 0; j < g->nodes[i].input_count; j++)
            u->readers[g->nodes[i].inputs[j]]++;
    for (uint32_t i = 0; i < g->parameter_count; i++)
        u->parameter_index[g->parameters[i]] = i;
}

static const struct octet_rule *rule_of(const struct unroll *u, uint32_t node)
{
    const octet_plan *plan = u->program->plan;
    uint32_t line = plan->interception_of[node];
    int rule = line ? plan->interceptions[line - 1].rule : -1;

    return rule < 0 ? NULL : octet_rules_get(plan->rules, (size_t)rule);
}

static bool is_quantized(const struct unroll *u, uint32_t node)
{
    const struct octet_rule *rule = rule_of(u, node);

    return rule && rule->weight_qtype[0];
}

/* Does the plan give the node to its backend? */
static bool is_placed(const struct unroll *u, uint32_t node)
{
    const octet_plan *plan = u->program->plan;
    uint32_t line = plan->interception_of[node];

    return line && oct_op_codes[u->graph->nodes[node].op].forward == oct_dense_forward &&
           strcmp(plan->interceptions[line - 1].backend, "cpu") != 0;
}

/* The node that made the tensor, if nothing else reads that; UINT32_MAX otherwise. */
static uint32_t only_maker(const struct unroll *u, uint32_t tensor)
{
    return u->readers[tensor] == 1 ? u->graph->producers[tensor] : UINT32_MAX;
}

static bool is_op(const struct unroll *u, uint32_t node, enum oct_op op)
{
    return node != UINT32_MAX && u->graph->nodes[node].op == op;
}

/* Does the division at `node` end an attention (oct_attend) that may run as one step? */
static bool find_attention(const struct unroll *u, uint32_t node, struct oct_attention_nodes *out)
{
    const struct oct_node *nodes = u->graph->nodes;
    uint32_t values = only_maker(u, nodes[node].inputs[0]);

    if (!is_op(u, values, OCT_OP_einsum) || is_quantized(u, values) ||
        strcmp(nodes[values].attributes.equation, "bkgts,bskd->btkgd") != 0)
        return false;
    uint32_t softmax = only_maker(u, nodes[values].inputs[0]);
    if (!is_op(u, softmax, OCT_OP_attention_softmax) ||
        nodes[softmax].outputs[1] != nodes[node].inputs[1])
        return false;
    for (int i = 3; i < nodes[softmax].input_count; i++)
        if (u->graph->tensors[nodes[softmax].inputs[i]].shape.rank > 1) /* a mask, not sinks */
            return false;
    uint32_t scores = only_maker(u, nodes[softmax].inputs[0]), cast = UINT32_MAX;
    if (is_op(u, scores, OCT_OP_cast)) {
        cast = scores;
        scores = only_maker(u, nodes[cast].inputs[0]);
    }
    *out = (struct oct_attention_nodes){scores, cast, softmax, values};
    return is_op(u, scores, OCT_OP_einsum) && !is_quantized(u, scores);
}

static void find_attentions(struct unroll *u)
{
    for (uint32_t i = 0; i < u->graph->node_count; i++) {
        struct oct_attention_nodes found;
        if (!is_op(u, i, OCT_OP_attention_normalize) || !find_attention(u, i, &found))
            continue;
        u->fusion[i] = found;
        u->is_fused[found.scores] = u->is_fused[found.softmax] = u->is_fused[found.values] = true;
        if (found.cast != UINT32_MAX)
            u->is_fused[found.cast] = true;
    }
}

/* Is the product at `node` one of an elementwise activation (oct_mlp's gate), which nothing else
 * reads, with as many numbers of the same type? */
static bool find_gate(const struct unroll *u, uint32_t node, uint32_t *activation)
{
    const struct octet_tensor *t = u->graph->tensors;
    const struct oct_node *nodes = u->graph->nodes, *product = &nodes[node];
    const uint32_t gate = product->inputs[0], up = product->inputs[1], out = product->outputs[0];

    *activation = only_maker(u, gate);
    return is_op(u, *activation, OCT_OP_activation) && !u->is_fused[*activation] &&
           nodes[*activation].attributes.activation.function != OCT_ACTIVATION_softmax &&
           t[up].kind != OCTET_TENSOR_PARAMETER && t[gate].dtype == t[out].dtype &&
           t[up].dtype == t[out].dtype && t[nodes[*activation].inputs[0]].dtype == t[out].dtype &&
           octet_shape_elements(&t[up].shape) == octet_shape_elements(&t[gate].shape);
}

static void find_gates(struct unroll *u)
{
    for (uint32_t i = 0; i < u->graph->node_count; i++) {
        uint32_t activation;
        if (!is_op(u, i, OCT_OP_multiply) || !find_gate(u, i, &activation))
            continue;
        u->gates[i] = activation + 1;
        u->is_fused[activation] = true;
    }
}

/* Layers: "decoder/moe_layers_3/..." and "mtp_block/mtp_layer_1/..." by their first two names. */
static void find_layers(struct unroll *u)
{
    const octet_graph *g = u->graph;

    for (uint32_t i = 0; i < g->module_count; i++) {
        const char *path = g->modules[i], *second = strchr(path, '/');
        if (!second || !strstr(second, "layer"))
            continue;
        const char *end = strchr(second + 1, '/');
        size_t length = end ? (size_t)(end - path) : strlen(path);
        u->groups[i] = i + 1;
        for (uint32_t j = 0; j < i; j++)
            if (u->groups[j] == j + 1 && strncmp(g->modules[j], path, length) == 0 &&
                (g->modules[j][length] == '/' || !g->modules[j][length])) {
                u->groups[i] = j + 1;
                break;
            }
    }
}

static enum octet_status check_ops(struct unroll *u)
{
    const octet_graph *g = u->graph;

    for (uint32_t i = 0; i < g->node_count; i++)
        if (!u->is_fused[i] && !oct_op_codes[g->nodes[i].op].forward &&
            g->nodes[i].op != OCT_OP_reshape && !u->fusion[i].softmax)
            return octet_fail(u->err, OCTET_UNIMPLEMENTED, "model",
                              "op '%s' of module '%s' can be traced but not run",
                              oct_op_rows[g->nodes[i].op].name, g->modules[g->nodes[i].module]);
    return OCTET_OK;
}

/* ---- slots ---- */

static enum octet_status no_memory(struct unroll *u)
{
    return octet_arena_exhausted(u->program->arena, u->err);
}

/* The models' inputs, all of which are here. */
static uint32_t input_index(const char *name)
{
    static const char *const names[OCT_INPUT_COUNT] = {
        [OCT_INPUT_TOKENS] = "tokens",
        [OCT_INPUT_TARGETS] = "targets",
        [OCT_INPUT_TARGET_WEIGHTS] = "target_weights",
        [OCT_INPUT_POSITIONS] = "positions",
        [OCT_INPUT_SEGMENT_IDS] = "segment_ids",
    };

    uint32_t i = 0;
    while (i < OCT_INPUT_COUNT && strcmp(name, names[i]) != 0)
        i++;
    assert(i < OCT_INPUT_COUNT); /* a model with another input needs a row here */
    return i;
}

/* The slot of a tensor that no node makes. */
static uint32_t source_slot(struct unroll *u, uint32_t tensor)
{
    const struct octet_tensor *t = &u->graph->tensors[tensor];
    struct oct_slot slot = {.view = view_of(t)};

    if (t->kind == OCTET_TENSOR_INPUT) {
        slot.place = OCT_PLACE_INPUT;
        slot.index = input_index(t->name);
    } else {
        slot.place = OCT_PLACE_PARAMETER;
        slot.index = u->parameter_index[tensor];
        slot.layer = t->layers ? u->turn : 0;
        slot.flows = true;
    }
    return oct_slot_add(u->program, &slot);
}

static uint32_t slot_of(struct unroll *u, uint32_t tensor)
{
    const struct octet_tensor *t = &u->graph->tensors[tensor];

    if (!u->now[tensor])
        u->now[tensor] = source_slot(u, tensor);
    else if (t->kind == OCTET_TENSOR_PARAMETER && t->layers &&
             u->program->slots[u->now[tensor]].layer != u->turn)
        u->now[tensor] = source_slot(u, tensor);
    return u->now[tensor];
}

static uint32_t value_slot(struct unroll *u, uint32_t tensor, bool flows)
{
    struct oct_slot slot = {.view = view_of(&u->graph->tensors[tensor]), .place = OCT_PLACE_BLOCK};

    slot.bytes = (uint64_t)octet_array_bytes(&slot.view);
    slot.flows = flows && is_float(slot.view.dtype);
    return u->now[tensor] = oct_slot_add(u->program, &slot);
}

/* ---- steps ---- */

/* A reshape, or a cast to the same type: the same bytes under another shape. */
static enum octet_status add_view(struct unroll *u, const struct oct_node *node)
{
    uint32_t from = slot_of(u, node->inputs[0]);
    struct oct_slot slot;

    if (!from)
        return no_memory(u);
    slot = u->program->slots[from];
    slot.view = view_of(&u->graph->tensors[node->outputs[0]]);
    slot.flows = slot.flows && node->op != OCT_OP_stop_gradient;
    slot.gradient = 0;
    u->now[node->outputs[0]] = oct_slot_add(u->program, &slot);
    return u->now[node->outputs[0]] ? OCTET_OK : no_memory(u);
}

static bool is_view(const struct unroll *u, const struct oct_node *node)
{
    const struct octet_tensor *t = u->graph->tensors;

    return node->op == OCT_OP_reshape || node->op == OCT_OP_stop_gradient ||
           (node->op == OCT_OP_cast && t[node->inputs[0]].dtype == t[node->outputs[0]].dtype);
}

static enum octet_status add_step(struct unroll *u, struct oct_step *step, const uint32_t *inputs,
                                  const uint32_t *outputs, bool flows)
{
    bool any = false;

    for (int i = 0; i < step->input_count; i++) {
        step->in[i] = inputs[i] ? slot_of(u, inputs[i]) : 0;
        if (inputs[i] && !step->in[i])
            return no_memory(u);
        any |= u->program->slots[step->in[i]].flows;
    }
    for (int i = 0; i < step->output_count; i++) {
        step->out[i] = value_slot(u, outputs[i], any && flows);
        if (!step->out[i])
            return no_memory(u);
    }
    return oct_step_add(u->program, step) ? OCTET_OK : no_memory(u);
}

static uint32_t group_of(const struct unroll *u, const struct oct_node *node)
{
    return u->segment_group ? u->segment_group : u->groups[node->module];
}

static enum octet_status add_attention(struct unroll *u, uint32_t node)
{
    const struct oct_attention_nodes *a = &u->fusion[node];
    const struct oct_node *nodes = u->graph->nodes, *softmax = &nodes[a->softmax];
    const uint32_t *lines = u->program->plan->interception_of;
    uint32_t inputs[OCTET_NODE_INPUTS_MAX] = {
        nodes[a->scores].inputs[0], nodes[a->scores].inputs[1], nodes[a->values].inputs[1],
        softmax->inputs[1], softmax->inputs[2]};
    struct oct_step step = {
        .node = softmax,
        .is_attention = true,
        .input_count = 5,
        .output_count = 1,
        .lines = {lines[a->scores], lines[a->values]},
        .group = group_of(u, softmax),
        .product_dtype = u->graph->tensors[nodes[a->scores].outputs[0]].dtype,
        .scores_dtype = u->graph->tensors[softmax->inputs[0]].dtype,
        .loss = -1,
    };

    for (int i = 3; i < softmax->input_count; i++)
        inputs[step.input_count++] = softmax->inputs[i];
    return add_step(u, &step, inputs, nodes[node].outputs, true);
}

/* Where the product stands: by then both operands are made. */
static enum octet_status add_gate(struct unroll *u, uint32_t node)
{
    const struct oct_node *nodes = u->graph->nodes, *activation = &nodes[u->gates[node] - 1];
    const uint32_t inputs[] = {activation->inputs[0], nodes[node].inputs[1]};
    struct oct_step step = {.node = activation,
                            .is_gate = true,
                            .input_count = 2,
                            .output_count = 1,
                            .turn = u->turn,
                            .group = group_of(u, &nodes[node]),
                            .loss = -1};

    return add_step(u, &step, inputs, nodes[node].outputs, true);
}

/* In sessions that only infer: a matmul whose second operand is made of parameters alone. */
static bool holds_codes(const struct unroll *u, uint32_t index)
{
    const struct oct_node *node = &u->graph->nodes[index];

    return u->program->options.prepares && is_quantized(u, index) &&
           (node->op == OCT_OP_dot_general || node->op == OCT_OP_grouped_matmul) &&
           oct_plan_weights(u->graph, node->inputs[1], NULL, NULL) == 1;
}

/* The bias of the router whose choice `node` is: a parameter's index + 1, 0: it has none. */
static uint32_t router_bias(const struct unroll *u, const struct oct_node *node)
{
    const octet_graph *g = u->graph;
    const char *module = g->modules[node->module];
    size_t length = strlen(module);

    for (uint32_t i = 0; i < g->parameter_count; i++) {
        const char *name = g->tensors[g->parameters[i]].name;
        if (strncmp(name, module, length) == 0 && strcmp(name + length, "/gate/bias") == 0)
            return i + 1;
    }
    return 0;
}

static enum octet_status add_node(struct unroll *u, uint32_t index)
{
    const struct oct_node *node = &u->graph->nodes[index];
    struct oct_step step = {
        .node = node,
        .rule = rule_of(u, index),
        .input_count = node->input_count,
        .output_count = node->output_count,
        .is_placed = is_placed(u, index),
        .lines = {u->program->plan->interception_of[index]},
        .line = u->program->plan->interception_of[index],
        .turn = u->turn,
        .bias = node->op == OCT_OP_top_k ? router_bias(u, node) : 0,
        .group = group_of(u, node),
        .loss = node->op == OCT_OP_cross_entropy ? (int32_t)u->program->loss_count : -1,
    };

    if (u->is_fused[index])
        return OCTET_OK;
    if (u->fusion[index].softmax)
        return add_attention(u, index);
    if (u->gates[index])
        return add_gate(u, index);
    if (is_view(u, node))
        return add_view(u, node);
    if (holds_codes(u, index))
        step.prepared = ++u->program->prepared_count;
    u->program->placed_count += step.is_placed;
    u->program->loss_count += node->op == OCT_OP_cross_entropy;
    return add_step(u, &step, node->inputs, node->outputs, oct_op_codes[node->op].vjp != NULL);
}

/* ---- segments ---- */

/* A scalar of the segment that is read outside stands for the sum over its turns. */
static enum octet_status add_to_sum(struct unroll *u, uint32_t tensor, uint32_t *sum)
{
    static const struct oct_node add = {.op = OCT_OP_add, .input_count = 2, .output_count = 1};
    struct oct_step step = {.node = &add, .input_count = 2, .output_count = 1, .loss = -1};
    uint32_t one = u->now[tensor];

    if (!*sum) {
        *sum = one;
        return OCTET_OK;
    }
    step.in[0] = *sum;
    step.in[1] = one;
    step.out[0] = *sum = value_slot(u, tensor, u->program->slots[one].flows);
    return step.out[0] && oct_step_add(u->program, &step) ? OCTET_OK : no_memory(u);
}

static enum octet_status sum_scalars(struct unroll *u, const struct oct_segment *segment,
                                     uint32_t *sums)
{
    for (uint32_t i = segment->first, at = 0; i < segment->end; i++) {
        const struct oct_node *node = &u->graph->nodes[i];
        if (node->op != OCT_OP_load_balance_loss && node->op != OCT_OP_index_loss)
            continue;
        enum octet_status status = add_to_sum(u, node->outputs[0], &sums[at++]);
        if (status != OCTET_OK)
            return status;
        u->now[node->outputs[0]] = sums[at - 1];
    }
    return OCTET_OK;
}

static enum octet_status add_segment(struct unroll *u, uint32_t index)
{
    const struct oct_segment *segment = &u->graph->segments[index];
    enum octet_status status = OCTET_OK;
    uint32_t *sums = OCTET_NEW_ARRAY(u->program->arena, segment->end - segment->first, uint32_t);

    if (!sums)
        return no_memory(u);
    for (u->turn = 0; u->turn < segment->repeat && status == OCTET_OK; u->turn++) {
        u->now[segment->carry_in] =
            u->turn ? u->now[segment->carry_out] : slot_of(u, segment->carry);
        u->segment_group =
            u->graph->module_count + 1 + index * 65536u + (uint32_t)(u->turn & 0xffff);
        for (uint32_t i = segment->first; i < segment->end && status == OCTET_OK; i++)
            status = add_node(u, i);
        if (status == OCTET_OK)
            status = sum_scalars(u, segment, sums);
    }
    u->turn = 0;
    u->segment_group = 0;
    return status;
}

static enum octet_status add_nodes(struct unroll *u)
{
    enum octet_status status = OCTET_OK;
    uint32_t segment = 0;

    for (uint32_t i = 0; i < u->graph->node_count && status == OCTET_OK;) {
        if (segment < u->graph->segment_count && u->graph->segments[segment].first == i) {
            status = add_segment(u, segment);
            i = u->graph->segments[segment++].end;
        } else {
            status = add_node(u, i++);
        }
    }
    return status;
}

/* ---- what nobody reads ---- */

/* Forward alone: losses when they are not asked for, and what weights held as codes were cut from.
 */
static void drop_unread(oct_program *program, bool *is_read)
{
    uint32_t kept = program->step_count;

    for (uint32_t i = program->step_count; i-- > 0;) {
        const struct oct_step *step = &program->steps[i];
        bool needed = step->lines[0] || step->loss >= 0;
        for (int j = 0; j < step->output_count; j++)
            needed |= is_read[program->slots[step->out[j]].owner];
        if (!needed)
            continue;
        for (int j = 0; j < step->input_count; j++)
            if (!(step->prepared && j == 1))
                is_read[program->slots[step->in[j]].owner] = true;
        program->steps[--kept] = *step;
    }
    program->step_count -= kept;
    memmove(program->steps, program->steps + kept, program->step_count * sizeof *program->steps);
}

static enum octet_status keep_what_is_read(struct unroll *u)
{
    oct_program *p = u->program;
    bool *is_read = OCTET_NEW_ARRAY(p->arena, p->slot_count, bool);

    if (!is_read)
        return no_memory(u);
    for (uint32_t i = 0; i < p->slot_count; i++)
        is_read[i] =
            i == p->loss || i == p->main_loss || i == p->mtp_loss || i == p->auxiliary_loss;
    is_read[p->slots[p->hidden].owner] = true;
    drop_unread(p, is_read);
    return OCTET_OK;
}

static enum octet_status prepare(struct unroll *u)
{
    const octet_graph *g = u->graph;
    octet_arena *arena = u->program->arena;

    u->now = OCTET_NEW_ARRAY(arena, g->tensor_count, uint32_t);
    u->readers = OCTET_NEW_ARRAY(arena, g->tensor_count, uint32_t);
    u->parameter_index = OCTET_NEW_ARRAY(arena, g->tensor_count, uint32_t);
    u->fusion = OCTET_NEW_ARRAY(arena, g->node_count, struct oct_attention_nodes);
    u->is_fused = OCTET_NEW_ARRAY(arena, g->node_count, bool);
    u->gates = OCTET_NEW_ARRAY(arena, g->node_count, uint32_t);
    u->groups = OCTET_NEW_ARRAY(arena, g->module_count, uint32_t);
    if (!u->now || !u->readers || !u->parameter_index || !u->fusion || !u->is_fused || !u->gates ||
        !u->groups)
        return no_memory(u);
    count_readers(u);
    find_attentions(u);
    find_gates(u);
    if (u->program->options.recompute)
        find_layers(u);
    return check_ops(u);
}

enum octet_status oct_program_unroll(oct_program *program, struct octet_error *err)
{
    const octet_graph *g = program->graph;
    struct unroll u = {.program = program, .graph = g, .err = err};
    enum octet_status status = prepare(&u);

    if (status == OCTET_OK)
        status = add_nodes(&u);
    if (status != OCTET_OK)
        return status;
    program->loss = u.now[g->loss];
    program->main_loss = u.now[g->main_loss];
    program->mtp_loss = u.now[g->mtp_loss];
    program->auxiliary_loss = u.now[g->auxiliary_loss];
    program->hidden = u.now[g->hidden];
    return program->options.backward ? OCTET_OK : keep_what_is_read(&u);
}
