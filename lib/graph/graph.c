/* Reading a graph: names, shapes, sizes. */
#include "octet/graph.h"

#include "graph/graph_private.h"

const char *octet_axis_name(enum octet_axis axis)
{
    static const char *const names[OCTET_AXIS_COUNT] = {
#define NAME(name, text) [OCTET_AXIS_##name] = text,
        OCTET_AXES(NAME)
#undef NAME
    };

    return (unsigned)axis < OCTET_AXIS_COUNT ? names[axis] : "";
}

const char *octet_lookup_name(enum octet_lookup lookup)
{
    static const char *const names[OCTET_LOOKUP_COUNT] = {
        [OCTET_LOOKUP_NONE] = "",
        [OCTET_LOOKUP_DOT_GENERAL] = "dot_general",
        [OCTET_LOOKUP_EINSUM] = "einsum",
        [OCTET_LOOKUP_RAGGED_DOT] = "ragged_dot",
        [OCTET_LOOKUP_GMM] = "gmm",
        [OCTET_LOOKUP_CACHED] = "dot_general",
        [OCTET_LOOKUP_CONV_GENERAL_DILATED] = "conv_general_dilated",
    };

    return (unsigned)lookup < OCTET_LOOKUP_COUNT ? names[lookup] : "";
}

int64_t oct_saturating_multiply(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t oct_saturating_add(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t octet_shape_elements(const struct octet_shape *shape)
{
    int64_t elements = 1;

    for (int i = 0; i < shape->rank; i++)
        elements = oct_saturating_multiply(elements, shape->dim[i]);
    return elements;
}

struct octet_shape octet_parameter_shape(const struct octet_tensor *parameter)
{
    struct octet_shape shape = parameter->shape;

    if (parameter->layers == 0)
        return shape;
    int at = parameter->stack_axis < shape.rank ? parameter->stack_axis : shape.rank;
    for (int i = shape.rank; i > at; i--) {
        shape.dim[i] = shape.dim[i - 1];
        shape.axis[i] = shape.axis[i - 1];
    }
    shape.dim[at] = parameter->layers;
    shape.axis[at] = OCTET_AXIS_layers;
    shape.rank++;
    return shape;
}

int64_t octet_tensor_bytes(const struct octet_tensor *tensor)
{
    int64_t elements = octet_shape_elements(&tensor->shape);

    if (tensor->layers)
        elements = oct_saturating_multiply(elements, tensor->layers);
    int bits = octet_dtype_bits((enum octet_dtype)tensor->dtype);
    return oct_saturating_multiply(elements, bits < 8 ? 1 : bits / 8);
}

size_t octet_graph_node_count(const octet_graph *graph)
{
    return graph->node_count;
}

size_t octet_graph_parameter_count(const octet_graph *graph)
{
    return graph->parameter_count;
}

const struct octet_tensor *octet_graph_parameter(const octet_graph *graph, size_t i)
{
    return &graph->tensors[graph->parameters[i]];
}
