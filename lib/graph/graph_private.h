/* What a graph is made of. For graph, models, plan and exec; outside liboctet it is opaque. */
#ifndef OCTET_GRAPH_GRAPH_PRIVATE_H
#define OCTET_GRAPH_GRAPH_PRIVATE_H

#include "graph/ops.h"
#include "octet/graph.h"

enum oct_activation {
    OCT_ACTIVATION_linear,
    OCT_ACTIVATION_silu,
    OCT_ACTIVATION_gelu,
    OCT_ACTIVATION_relu,
    OCT_ACTIVATION_sigmoid,
    OCT_ACTIVATION_softmax,       /* over the last axis */
    OCT_ACTIVATION_clip,          /* to +-limit */
    OCT_ACTIVATION_swiglu_oai,    /* x * sigmoid(1.702 x), x clipped above: gpt-oss's gate */
    OCT_ACTIVATION_clip_plus_one, /* clip(x) + 1: gpt-oss's up projection */
    OCT_ACTIVATION_COUNT
};

enum oct_rope_kind { OCT_ROPE_default, OCT_ROPE_llama31, OCT_ROPE_yarn };

/* Contracting and batch axes, as lax.dot_general's dimension_numbers. */
struct oct_dot_dims {
    uint8_t contracting_count, batch_count;
    uint8_t lhs_contracting[2], rhs_contracting[2];
    uint8_t lhs_batch[2], rhs_batch[2];
};

union oct_attributes {
    struct oct_dot_dims dot;
    const char *equation; /* static text */
    struct {
        float epsilon, offset;
    } norm;
    struct {
        enum oct_rope_kind kind;
        bool interleave; /* yarn: takes pairs (x0,x1), (x2,x3), ...; gives halves all the same */
        bool pairwise;   /* yarn: and gives pairs too */
        bool truncate;   /* yarn: the ramp begins and ends at whole dimensions */
        bool scales;     /* llama31: long waves are stretched; yarn: the result is scaled */
        float min_timescale, max_timescale;
        float linear_scaling;       /* default */
        float beta_fast, beta_slow; /* yarn: rotations within original_positions */
        float factor;               /* yarn */
        float original_positions;   /* yarn */
    } rope;
    float factor;
    struct {
        enum oct_activation function;
        float limit; /* of those that clip; silu ... sigmoid: x clipped above it, 0: not */
    } activation;
    struct {
        int32_t axis;
        int64_t start, size;
    } slice;
    struct {
        int32_t axis;
        int64_t size;
    } broadcast;
    enum octet_dtype dtype;
    struct {
        int64_t window; /* 0: all keys before */
        float soft_cap; /* 0: none */
    } softmax;
    struct {
        int32_t k, groups, groups_kept; /* groups 0: none */
        bool softmax_weights, normalize;
        float scaling; /* routed scaling factor */
    } top_k;
    int64_t capacity;
    int64_t k;
    float cap;
};

struct oct_node {
    uint8_t op;     /* enum oct_op */
    uint8_t lookup; /* enum octet_lookup */
    uint8_t input_count, output_count;
    uint32_t inputs[OCTET_NODE_INPUTS_MAX]; /* tensor ids */
    uint32_t outputs[2];
    uint32_t module; /* index into modules */
    int64_t repeat;  /* executions in one forward pass */
    union oct_attributes attributes;
};

/* Nodes [first, end) run `repeat` times; carry_in takes carry_out's value on the next turn, and
 * carry_out's last value is what nodes after the segment see as `result`. */
struct oct_segment {
    uint32_t first, end;
    int64_t repeat;
    uint32_t carry; /* what the first turn sees as carry_in */
    uint32_t carry_in, carry_out, result;
};

struct octet_graph {
    struct oct_node *nodes;
    uint32_t node_count;
    struct octet_tensor *tensors; /* tensor 0 is none */
    uint32_t *producers;          /* node of each tensor; UINT32_MAX: an input or a parameter */
    uint32_t tensor_count;
    const char **modules; /* paths; 0 is the root, "" */
    uint32_t module_count;
    struct oct_segment *segments;
    uint32_t segment_count;
    uint32_t *parameters; /* tensor ids, alphabetical by name */
    uint32_t parameter_count;
    int64_t batch_size, sequence_length;
    /* Tensors that users ask for; 0: the model has no such. */
    double dense_init_scale;                      /* of the initialisers of layers with experts */
    uint32_t loss;                                /* the total */
    uint32_t main_loss, mtp_loss, auxiliary_loss; /* its terms; mtp scaled */
    uint32_t hidden;                              /* the decoder's output, before the final norm */
};

/* One row of the op table (graph/ops.c). infer writes the shapes and dtypes of the outputs whose
 * tensors the builder has made; it may assume the required inputs. cost: floating-point operations
 * of one execution. */
struct oct_op_row {
    const char *name;
    uint8_t inputs_required, outputs;
    uint8_t reads; /* what backward reads: IN0 ... OUT */
    enum octet_status (*infer)(struct octet_graph *graph, struct oct_node *node,
                               struct octet_error *err);
    int64_t (*cost)(const struct octet_graph *graph, const struct oct_node *node);
};
extern const struct oct_op_row oct_op_rows[OCT_OP_COUNT];

/* Elements of shape times `repeat`, and the like: products that stop at INT64_MAX instead of
 * wrapping. */
int64_t oct_saturating_multiply(int64_t a, int64_t b);
int64_t oct_saturating_add(int64_t a, int64_t b);

#endif
