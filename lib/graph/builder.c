/* Graph construction; see builder.h. */
#include "graph/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/context_private.h"

enum { FIRST_CAPACITY = 512, PATH_BYTES_MAX = 512, NODES_BETWEEN_POLLS = 256 };

void oct_builder_fail(struct oct_builder *b, enum octet_status status, const char *field,
                      const char *format, ...)
{
    if (b->status != OCTET_OK)
        return;
    char text[sizeof b->err->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    b->status = octet_fail(b->err, status, field, "%s", text);
}

static void out_of_memory(struct oct_builder *b)
{
    if (b->status == OCTET_OK)
        b->status =
            octet_fail(b->err, OCTET_RESOURCE_EXHAUSTED, NULL,
                       "the graph of this model takes more than the %zu bytes that one may; "
                       "scan_layers=true makes the graph of a deep model small",
                       octet_arena_budget(b->arena));
}

/* Makes room for one more element in an array of the graph: doubles it. False when there is no
 * memory. */
static bool grow(struct oct_builder *b, void **array, uint32_t count, uint32_t *capacity,
                 size_t size)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? *capacity * 2 : FIRST_CAPACITY;
    void *larger = octet_arena_array(b->arena, wanted, size);
    if (!larger) {
        out_of_memory(b);
        return false;
    }
    if (count)
        memcpy(larger, *array, count * size);
    *array = larger;
    *capacity = wanted;
    return true;
}

/* ---- modules ---- */

static uint32_t *module_slot(const struct oct_builder *b, const char *path)
{
    uint32_t at = (uint32_t)XXH3_64bits(path, strlen(path)) & (b->module_slots - 1);

    while (b->module_index[at] && strcmp(b->graph.modules[b->module_index[at] - 1], path) != 0)
        at = (at + 1) & (b->module_slots - 1);
    return &b->module_index[at];
}

static bool module_index_grow(struct oct_builder *b)
{
    uint32_t slots = b->module_slots ? b->module_slots * 2 : 4 * FIRST_CAPACITY;
    uint32_t *index = OCTET_NEW_ARRAY(b->arena, slots, uint32_t);

    if (!index) {
        out_of_memory(b);
        return false;
    }
    b->module_index = index;
    b->module_slots = slots;
    for (uint32_t i = 0; i < b->graph.module_count; i++)
        *module_slot(b, b->graph.modules[i]) = i + 1;
    return true;
}

/* The module of that path, made if it is new. 0, the root, on failure. */
static uint32_t module_intern(struct oct_builder *b, const char *path)
{
    struct octet_graph *g = &b->graph;

    if (2 * g->module_count >= b->module_slots && !module_index_grow(b))
        return 0;
    uint32_t *slot = module_slot(b, path);
    if (*slot)
        return *slot - 1;
    void *modules = g->modules;
    char *copy = octet_arena_copy(b->arena, path, strlen(path));
    if (!copy)
        out_of_memory(b);
    if (!copy || !grow(b, &modules, g->module_count, &b->module_capacity, sizeof *g->modules))
        return 0;
    g->modules = modules;
    g->modules[g->module_count] = copy;
    *slot = ++g->module_count;
    return g->module_count - 1;
}

uint32_t oct_enter(struct oct_builder *b, const char *name)
{
    uint32_t outer = b->module;
    char path[PATH_BYTES_MAX];

    if (b->status != OCTET_OK)
        return outer;
    const char *base = b->graph.modules[outer];
    int length = snprintf(path, sizeof path, "%s%s%s", base, base[0] ? "/" : "", name);
    if (length < 0 || (size_t)length >= sizeof path)
        oct_builder_fail(b, OCTET_INTERNAL, NULL, "module path of %d bytes below '%s'", length,
                         base);
    else
        b->module = module_intern(b, path);
    return outer;
}

uint32_t oct_enter_number(struct oct_builder *b, const char *name, int64_t number)
{
    char numbered[96];

    snprintf(numbered, sizeof numbered, "%s_%lld", name, (long long)number);
    return oct_enter(b, numbered);
}

void oct_leave(struct oct_builder *b, uint32_t outer)
{
    b->module = outer;
}

/* ---- life ---- */

void oct_builder_begin(struct oct_builder *b, const octet_context *context, octet_arena *arena,
                       const struct octet_cancel *cancel, struct octet_error *err)
{
    static struct octet_error nobody; /* never read; callers pass their own */

    *b = (struct oct_builder){
        .arena = arena,
        .cancel = cancel,
        .err = err ? err : &nobody,
        .status = OCTET_OK,
        .node_limit = context->limits.graph_nodes,
        .repeat = 1,
        .dtype = OCTET_DTYPE_F32,
        .weight_dtype = OCTET_DTYPE_F32,
    };
    module_intern(b, "");
    void *tensors = NULL;
    if (grow(b, &tensors, 0, &b->tensor_capacity, sizeof *b->graph.tensors)) {
        b->graph.tensors = tensors;
        b->graph.tensor_count = 1; /* tensor 0 is none */
    }
    b->graph.producers = OCTET_NEW_ARRAY(arena, b->tensor_capacity, uint32_t);
    if (!b->graph.producers)
        out_of_memory(b);
}

struct named {
    const char *name;
    uint32_t tensor;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static bool sort_parameters(struct oct_builder *b)
{
    struct octet_graph *g = &b->graph;
    uint32_t count = 0;

    for (uint32_t i = 1; i < g->tensor_count; i++)
        count += g->tensors[i].kind == OCTET_TENSOR_PARAMETER;
    struct named *named = OCTET_NEW_ARRAY(b->arena, count, struct named);
    g->parameters = OCTET_NEW_ARRAY(b->arena, count, uint32_t);
    if (!named || !g->parameters) {
        out_of_memory(b);
        return false;
    }
    for (uint32_t i = 1; i < g->tensor_count; i++)
        if (g->tensors[i].kind == OCTET_TENSOR_PARAMETER)
            named[g->parameter_count++] = (struct named){g->tensors[i].name, i};
    qsort(named, count, sizeof *named, by_name);
    for (uint32_t i = 0; i < count; i++)
        g->parameters[i] = named[i].tensor;
    return true;
}

enum octet_status oct_builder_finish(struct oct_builder *b, const octet_graph **out)
{
    if (b->status == OCTET_OK && sort_parameters(b)) {
        struct octet_graph *graph = OCTET_NEW(b->arena, struct octet_graph);
        if (graph) {
            *graph = b->graph;
            *out = graph;
        } else {
            out_of_memory(b);
        }
    }
    return b->status;
}

/* ---- tensors ---- */

static oct_tensor add_tensor(struct oct_builder *b, enum octet_tensor_kind kind, const char *name,
                             enum octet_dtype dtype, uint32_t producer)
{
    struct octet_graph *g = &b->graph;
    uint32_t capacity = b->tensor_capacity;
    void *tensors = g->tensors, *producers = g->producers;

    if (!grow(b, &producers, g->tensor_count, &capacity, sizeof *g->producers) ||
        !grow(b, &tensors, g->tensor_count, &b->tensor_capacity, sizeof *g->tensors))
        return 0;
    g->tensors = tensors;
    g->producers = producers;
    g->tensors[g->tensor_count] =
        (struct octet_tensor){.name = name, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype};
    g->producers[g->tensor_count] = producer;
    return g->tensor_count++;
}

static void set_shape(struct octet_shape *shape, int rank, const struct oct_dim *dims)
{
    shape->rank = rank;
    for (int i = 0; i < rank; i++) {
        shape->dim[i] = dims[i].size;
        shape->axis[i] = (uint8_t)dims[i].axis;
    }
}

oct_tensor oct_parameter(struct oct_builder *b, const char *leaf, int rank,
                         const struct oct_dim *dims)
{
    if (b->status != OCTET_OK)
        return 0;
    const char *module = b->graph.modules[b->module];
    char *name = octet_arena_format(b->arena, "%s%s%s", module, module[0] ? "/" : "", leaf);
    if (!name) {
        out_of_memory(b);
        return 0;
    }
    for (int i = 0; i < rank; i++)
        if (dims[i].size <= 0) {
            oct_builder_fail(b, OCTET_INVALID_ARGUMENT, NULL,
                             "parameter '%s' would have size %lld in dimension %d; the config's "
                             "dimensions must be positive",
                             name, (long long)dims[i].size, i);
            return 0;
        }
    oct_tensor id = add_tensor(b, OCTET_TENSOR_PARAMETER, name, b->weight_dtype, UINT32_MAX);
    if (id) {
        struct octet_tensor *tensor = &b->graph.tensors[id];
        set_shape(&tensor->shape, rank, dims);
        tensor->layers = b->layers;
        tensor->stack_axis = b->stack_axis;
    }
    return id;
}

oct_tensor oct_input(struct oct_builder *b, const char *name, enum octet_dtype dtype, int rank,
                     const struct oct_dim *dims)
{
    if (b->status != OCTET_OK)
        return 0;
    oct_tensor id = add_tensor(b, OCTET_TENSOR_INPUT, name, dtype, UINT32_MAX);
    if (id)
        set_shape(&b->graph.tensors[id].shape, rank, dims);
    return id;
}

const struct octet_shape *oct_shape(const struct oct_builder *b, oct_tensor tensor)
{
    return &b->graph.tensors[tensor].shape;
}

/* ---- segments ---- */

oct_tensor oct_scan_begin(struct oct_builder *b, int64_t layers, int stack_axis, oct_tensor carry)
{
    struct octet_graph *g = &b->graph;
    void *segments = g->segments;

    if (b->status != OCTET_OK ||
        !grow(b, &segments, g->segment_count, &b->segment_capacity, sizeof *g->segments))
        return 0;
    g->segments = segments;
    oct_tensor inside =
        add_tensor(b, OCTET_TENSOR_ACTIVATION, NULL, (enum octet_dtype)g->tensors[carry].dtype,
                   g->node_count ? g->producers[carry] : UINT32_MAX);
    if (!inside)
        return 0;
    g->tensors[inside].shape = g->tensors[carry].shape;
    g->segments[g->segment_count++] = (struct oct_segment){.first = g->node_count,
                                                           .repeat = layers,
                                                           .carry = carry,
                                                           .carry_in = inside,
                                                           .result = carry};
    b->repeat = layers;
    b->layers = layers;
    b->stack_axis = (uint8_t)stack_axis;
    return inside;
}

oct_tensor oct_scan_end(struct oct_builder *b, oct_tensor carry_out)
{
    struct octet_graph *g = &b->graph;

    if (b->status != OCTET_OK)
        return 0;
    struct oct_segment *segment = &g->segments[g->segment_count - 1];
    segment->end = g->node_count;
    segment->carry_out = carry_out;
    b->repeat = 1;
    b->layers = 0;
    if (segment->repeat > 0)
        segment->result = carry_out;
    return segment->result;
}

/* ---- nodes ---- */

static bool may_add_node(struct oct_builder *b)
{
    struct octet_graph *g = &b->graph;
    void *nodes = g->nodes;

    if (b->status != OCTET_OK)
        return false;
    if (g->node_count >= b->node_limit)
        oct_builder_fail(b, OCTET_RESOURCE_EXHAUSTED, NULL,
                         "the model has more than %u ops; scan_layers=true makes the graph of a "
                         "deep model small",
                         b->node_limit);
    else if (g->node_count % NODES_BETWEEN_POLLS == 0)
        b->status = octet_cancel_check(b->cancel, b->err);
    if (b->status != OCTET_OK ||
        !grow(b, &nodes, g->node_count, &b->node_capacity, sizeof *g->nodes))
        return false;
    g->nodes = nodes;
    return true;
}

/* shape: the output's, for the ops that cannot infer it (reshape); else NULL. */
static oct_tensor add_node(struct oct_builder *b, enum oct_op op, enum octet_lookup lookup,
                           union oct_attributes attributes, int input_count,
                           const oct_tensor *inputs, const struct octet_shape *shape,
                           oct_tensor *second)
{
    struct octet_graph *g = &b->graph;

    if (second)
        *second = 0;
    if (!may_add_node(b))
        return 0;
    struct oct_node node = {.op = (uint8_t)op,
                            .lookup = (uint8_t)(b->unseen ? OCTET_LOOKUP_NONE : lookup),
                            .input_count = (uint8_t)input_count,
                            .output_count = oct_op_rows[op].outputs,
                            .module = b->module,
                            .repeat = b->repeat,
                            .attributes = attributes};
    memcpy(node.inputs, inputs, (size_t)input_count * sizeof *inputs);
    for (int i = 0; i < node.output_count; i++) {
        node.outputs[i] = add_tensor(b, OCTET_TENSOR_ACTIVATION, NULL, b->dtype, g->node_count);
        if (!node.outputs[i])
            return 0;
    }
    if (shape)
        g->tensors[node.outputs[0]].shape = *shape;
    b->status = oct_op_rows[op].infer(g, &node, b->err);
    if (b->status != OCTET_OK)
        return 0;
    if (!b->dry)
        g->nodes[g->node_count++] = node;
    if (second)
        *second = node.outputs[1];
    return node.outputs[0];
}

oct_tensor oct_add_node(struct oct_builder *b, enum oct_op op, enum octet_lookup lookup,
                        union oct_attributes attributes, int input_count, const oct_tensor *inputs,
                        oct_tensor *second)
{
    return add_node(b, op, lookup, attributes, input_count, inputs, NULL, second);
}

#define NONE ((union oct_attributes){.factor = 0})

static oct_tensor unary(struct oct_builder *b, enum oct_op op, union oct_attributes attributes,
                        oct_tensor x)
{
    return oct_add_node(b, op, OCTET_LOOKUP_NONE, attributes, 1, &x, NULL);
}

static oct_tensor binary(struct oct_builder *b, enum oct_op op, enum octet_lookup lookup,
                         union oct_attributes attributes, oct_tensor x, oct_tensor y)
{
    return oct_add_node(b, op, lookup, attributes, 2, (oct_tensor[]){x, y}, NULL);
}

oct_tensor oct_dense(struct oct_builder *b, oct_tensor lhs, oct_tensor rhs, int count)
{
    struct oct_dot_dims dims = {.contracting_count = (uint8_t)count};

    if (b->status != OCTET_OK)
        return 0;
    for (int i = 0; i < count; i++) {
        dims.lhs_contracting[i] = (uint8_t)(oct_shape(b, lhs)->rank - count + i);
        dims.rhs_contracting[i] = (uint8_t)i;
    }
    return binary(b, OCT_OP_dot_general, OCTET_LOOKUP_DOT_GENERAL,
                  (union oct_attributes){.dot = dims}, lhs, rhs);
}

oct_tensor oct_einsum(struct oct_builder *b, const char *equation, oct_tensor lhs, oct_tensor rhs)
{
    return binary(b, OCT_OP_einsum, OCTET_LOOKUP_EINSUM,
                  (union oct_attributes){.equation = equation}, lhs, rhs);
}

oct_tensor oct_grouped_matmul(struct oct_builder *b, enum octet_lookup lookup, oct_tensor rows,
                              oct_tensor experts, oct_tensor group_sizes)
{
    return oct_add_node(b, OCT_OP_grouped_matmul, lookup, NONE, 3,
                        (oct_tensor[]){rows, experts, group_sizes}, NULL);
}

oct_tensor oct_rms_norm(struct oct_builder *b, oct_tensor x, oct_tensor scale, double epsilon,
                        double offset)
{
    union oct_attributes attributes = {.norm = {(float)epsilon, (float)offset}};

    if (!scale)
        return unary(b, OCT_OP_rms_norm, attributes, x);
    return binary(b, OCT_OP_rms_norm, OCTET_LOOKUP_EINSUM, attributes, x, scale);
}

oct_tensor oct_plus(struct oct_builder *b, oct_tensor x, oct_tensor y)
{
    return binary(b, OCT_OP_add, OCTET_LOOKUP_NONE, NONE, x, y);
}

oct_tensor oct_times(struct oct_builder *b, oct_tensor x, oct_tensor y)
{
    return binary(b, OCT_OP_multiply, OCTET_LOOKUP_NONE, NONE, x, y);
}

oct_tensor oct_scale(struct oct_builder *b, oct_tensor x, double factor)
{
    return unary(b, OCT_OP_scale, (union oct_attributes){.factor = (float)factor}, x);
}

oct_tensor oct_activate(struct oct_builder *b, oct_tensor x, enum oct_activation function,
                        double limit)
{
    if (function == OCT_ACTIVATION_linear)
        return x;
    return unary(b, OCT_OP_activation,
                 (union oct_attributes){.activation = {function, (float)limit}}, x);
}

oct_tensor oct_slice(struct oct_builder *b, oct_tensor x, int axis, int64_t start, int64_t size)
{
    return unary(b, OCT_OP_slice, (union oct_attributes){.slice = {axis, start, size}}, x);
}

oct_tensor oct_concat(struct oct_builder *b, oct_tensor x, oct_tensor y)
{
    return binary(b, OCT_OP_concat, OCTET_LOOKUP_NONE, NONE, x, y);
}

oct_tensor oct_reshape(struct oct_builder *b, oct_tensor x, int rank, const struct oct_dim *dims)
{
    struct octet_shape shape = {0};

    set_shape(&shape, rank, dims);
    return add_node(b, OCT_OP_reshape, OCTET_LOOKUP_NONE, NONE, 1, &x, &shape, NULL);
}

oct_tensor oct_broadcast(struct oct_builder *b, oct_tensor x, int axis, struct oct_dim dim)
{
    oct_tensor y =
        unary(b, OCT_OP_broadcast, (union oct_attributes){.broadcast = {axis, dim.size}}, x);

    if (y)
        b->graph.tensors[y].shape.axis[axis] = (uint8_t)dim.axis;
    return y;
}

oct_tensor oct_cast(struct oct_builder *b, oct_tensor x, enum octet_dtype dtype)
{
    if (b->status != OCTET_OK || b->graph.tensors[x].dtype == (uint8_t)dtype)
        return x;
    return unary(b, OCT_OP_cast, (union oct_attributes){.dtype = dtype}, x);
}
