/* Builder: the words that models are written in.
 *
 * For: adding nodes to a graph under a module path, inside or outside a scanned segment.
 * Decision: the first failure sticks. Every function may be called after it, does nothing and
 * returns tensor 0, so that a model reads as a list of layers and not as a list of checks;
 * oct_builder_finish returns the failure.
 *
 * Life: a builder lives on its user's stack and in the arena that it was begun with. */
#ifndef OCTET_GRAPH_BUILDER_H
#define OCTET_GRAPH_BUILDER_H

#include "graph/graph_private.h"

typedef uint32_t oct_tensor; /* 0: none, or failed */

/* A dimension: size and logical axis. */
struct oct_dim {
    int64_t size;
    enum octet_axis axis;
};
#define OCT_DIM(size, axis) ((struct oct_dim){(size), OCTET_AXIS_##axis})

struct oct_builder {
    struct octet_graph graph;
    octet_arena *arena;
    const struct octet_cancel *cancel;
    struct octet_error *err;
    enum octet_status status;
    uint32_t node_capacity, tensor_capacity, module_capacity, segment_capacity;
    uint32_t node_limit;
    uint32_t module;        /* current */
    uint32_t *module_index; /* hash of path -> module + 1 */
    uint32_t module_slots;
    int64_t repeat; /* of the open segment; 1 outside */
    int64_t layers; /* slices of a parameter made now; 0 outside a segment */
    uint8_t stack_axis;
    bool unseen; /* nodes made now run outside of Qwix's sight: no lookup */
    bool
        dry; /* nodes made now are dropped: their module is built, has parameters, and never runs */
    enum octet_dtype dtype, weight_dtype;
    uint32_t positions, segment_ids; /* inputs that many nodes read */
};

void oct_builder_begin(struct oct_builder *b, const octet_context *context, octet_arena *arena,
                       const struct octet_cancel *cancel, struct octet_error *err);
/* Sorts the parameters and hands the graph over. */
enum octet_status oct_builder_finish(struct oct_builder *b,
                                     const octet_graph **out) OCTET_MUST_CHECK;
/* Records a failure of the model itself; the first one stays. */
void oct_builder_fail(struct oct_builder *b, enum octet_status status, const char *field,
                      const char *format, ...) OCTET_PRINTF(4, 5);

/* Module path: enter "self_attention" below the current module; leave goes back to what enter
 * returned. */
uint32_t oct_enter(struct oct_builder *b, const char *name);
uint32_t oct_enter_number(struct oct_builder *b, const char *name, int64_t number); /* "layers_3" */
void oct_leave(struct oct_builder *b, uint32_t outer);

/* A scanned segment of `layers` turns; returns the carried tensor as the body sees it. `carry_out`
 * must have its shape. Segments do not nest. */
oct_tensor oct_scan_begin(struct oct_builder *b, int64_t layers, int stack_axis, oct_tensor carry);
oct_tensor oct_scan_end(struct oct_builder *b, oct_tensor carry_out);

/* dims: [rank]. A parameter's name is the current module's path and `leaf`. */
oct_tensor oct_parameter(struct oct_builder *b, const char *leaf, int rank,
                         const struct oct_dim *dims);
oct_tensor oct_input(struct oct_builder *b, const char *name, enum octet_dtype dtype, int rank,
                     const struct oct_dim *dims);
const struct octet_shape *oct_shape(const struct oct_builder *b, oct_tensor tensor);

/* The general form; the functions below are this with names. outputs: 1 or 2, the second's id in
 * *second (may be NULL). */
oct_tensor oct_add_node(struct oct_builder *b, enum oct_op op, enum octet_lookup lookup,
                        union oct_attributes attributes, int input_count, const oct_tensor *inputs,
                        oct_tensor *second);

/* lhs contracted over its last `count` axes with rhs' first ones: a dense projection. */
oct_tensor oct_dense(struct oct_builder *b, oct_tensor lhs, oct_tensor rhs, int count);
oct_tensor oct_einsum(struct oct_builder *b, const char *equation, oct_tensor lhs, oct_tensor rhs);
oct_tensor oct_grouped_matmul(struct oct_builder *b, enum octet_lookup lookup, oct_tensor rows,
                              oct_tensor experts, oct_tensor group_sizes);
oct_tensor oct_rms_norm(struct oct_builder *b, oct_tensor x, oct_tensor scale, double epsilon,
                        double offset);
oct_tensor oct_plus(struct oct_builder *b, oct_tensor x, oct_tensor y);
oct_tensor oct_times(struct oct_builder *b, oct_tensor x, oct_tensor y);
oct_tensor oct_scale(struct oct_builder *b, oct_tensor x, double factor);
oct_tensor oct_activate(struct oct_builder *b, oct_tensor x, enum oct_activation function,
                        double limit);
oct_tensor oct_slice(struct oct_builder *b, oct_tensor x, int axis, int64_t start, int64_t size);
oct_tensor oct_concat(struct oct_builder *b, oct_tensor x, oct_tensor y);
oct_tensor oct_reshape(struct oct_builder *b, oct_tensor x, int rank, const struct oct_dim *dims);
oct_tensor oct_broadcast(struct oct_builder *b, oct_tensor x, int axis, struct oct_dim dim);
oct_tensor oct_cast(struct oct_builder *b, oct_tensor x, enum octet_dtype dtype);

#endif
