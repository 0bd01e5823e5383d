/* Graph: a model as one flat list of ops in execution order.
 *
 * For: what is computed, on which shapes, with which parameters. Trace, costs, memory plan,
 * execution and backward are walks over this list. Not for: which rule takes an op (plan), or the
 * numbers (exec). Decision: a scanned stack of layers stands in the list once, as a segment that
 * says how often it runs and which value it carries from one turn to the next; unrolled, the same
 * layers stand one by one.
 *
 * Life: a graph lives in the arena that it was built in and does not change after that. Indices (of
 * nodes, tensors, modules) are valid for that graph only. */
#ifndef OCTET_GRAPH_H
#define OCTET_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"
#include "octet/cancel.h"
#include "octet/config.h"
#include "octet/context.h"
#include "octet/dtype.h"

/* Logical axis names, as MaxText's sharding rules call them. */
#define OCTET_AXES(X)                                                                              \
    X(none, "")                                                                                    \
    X(batch, "activation_batch")                                                                   \
    X(length, "activation_length")                                                                 \
    X(kv_length, "activation_kv_length")                                                           \
    X(layers, "layers")                                                                            \
    X(vocab, "vocab")                                                                              \
    X(embed, "embed")                                                                              \
    X(norm, "norm")                                                                                \
    X(mlp, "mlp")                                                                                  \
    X(num_activations, "num_activations")                                                          \
    X(heads, "q_heads")                                                                            \
    X(kv_heads, "kv_heads")                                                                        \
    X(kv, "kv")                                                                                    \
    X(qkv, "qkv")                                                                                  \
    X(q_lora, "q_lora")                                                                            \
    X(kv_lora, "kv_lora")                                                                          \
    X(exp, "exp")                                                                                  \
    X(exp_per_tok, "exp_per_tok")                                                                  \
    X(tokens, "activation_batch_length")                                                           \
    X(capacity, "activation_exp_capacity")                                                         \
    X(index_heads, "index_heads")                                                                  \
    X(concat_embed, "concat_embed")

enum octet_axis {
#define OCTET_AXIS_ENUM(name, text) OCTET_AXIS_##name,
    OCTET_AXES(OCTET_AXIS_ENUM)
#undef OCTET_AXIS_ENUM
        OCTET_AXIS_COUNT
};
OCTET_API const char *octet_axis_name(enum octet_axis axis);

#define OCTET_RANK_MAX 6

struct octet_shape {
    int32_t rank;
    int64_t dim[OCTET_RANK_MAX];
    uint8_t axis[OCTET_RANK_MAX]; /* enum octet_axis */
};

enum octet_tensor_kind { OCTET_TENSOR_INPUT, OCTET_TENSOR_PARAMETER, OCTET_TENSOR_ACTIVATION };

/* name: a parameter's MaxText name ("decoder/moe_layers/self_attention/wq_b/kernel") or an input's
 * ("tokens"); NULL for an activation.
 * shape: what one execution of a node sees. A parameter of a scanned segment has `layers` > 0
 * slices of it, stacked along axis `stack_axis` of the stored array (octet_parameter_shape gives
 * that shape). */
struct octet_tensor {
    const char *name;
    struct octet_shape shape;
    int64_t layers; /* 0: not stacked */
    uint8_t stack_axis;
    uint8_t kind;  /* enum octet_tensor_kind */
    uint8_t dtype; /* enum octet_dtype */
};

/* The list of ops is in lib/graph/ops.h; outside liboctet an op is its name ("dot_general"). */
#define OCTET_NODE_INPUTS_MAX 6

/* How Qwix meets an op: which intercepted function carries it out, if any. */
enum octet_lookup {
    OCTET_LOOKUP_NONE,
    OCTET_LOOKUP_DOT_GENERAL,
    OCTET_LOOKUP_EINSUM,
    OCTET_LOOKUP_RAGGED_DOT,
    OCTET_LOOKUP_GMM,    /* asked with only_rule: no op id, no log line */
    OCTET_LOOKUP_CACHED, /* runs under the first interception of its module: JAX has cached the
                            trace */
    OCTET_LOOKUP_CONV_GENERAL_DILATED,
    OCTET_LOOKUP_COUNT
};
OCTET_API const char *octet_lookup_name(enum octet_lookup lookup); /* "dot_general" */

typedef struct octet_graph octet_graph;

struct octet_graph_options {
    int64_t batch_size;      /* rows; 0: the config's per_device_batch_size, at least 1 */
    int64_t sequence_length; /* 0: the config's max_target_length */
    /* For plans: of the backend that ops may run on beside the CPU; NULL: there is none. */
    const struct octet_capabilities *capabilities;
};

/* Builds the model's training graph: forward pass, main and MTP losses.
 * Errors: INVALID_ARGUMENT with the config key as field ("num_experts_per_tok") for values that
 * make no model; UNIMPLEMENTED naming the layer that is unknown; RESOURCE_EXHAUSTED; what cancel
 * says. */
OCTET_API enum octet_status
octet_graph_build(const octet_context *context, octet_arena *arena, const octet_config *config,
                  const struct octet_graph_options *options, const struct octet_cancel *cancel,
                  const octet_graph **out, struct octet_error *err) OCTET_MUST_CHECK;

OCTET_API size_t octet_graph_node_count(const octet_graph *graph);
OCTET_API size_t octet_graph_parameter_count(const octet_graph *graph);
/* Parameter i in alphabetical order of names; i < octet_graph_parameter_count. */
OCTET_API const struct octet_tensor *octet_graph_parameter(const octet_graph *graph, size_t i);
/* The shape as MaxText stores the array: the layers axis inserted where it is stacked. */
OCTET_API struct octet_shape octet_parameter_shape(const struct octet_tensor *parameter);
OCTET_API int64_t octet_shape_elements(const struct octet_shape *shape); /* INT64_MAX on overflow */
OCTET_API int64_t octet_tensor_bytes(const struct octet_tensor *tensor); /* stacked ones whole */

#endif
