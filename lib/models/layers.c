/* Layers that all models share: norms, projections, MLP, embedding and output head. */
#include "models/layers.h"

#include <math.h>
#include <string.h>

static int64_t last_dim(const struct oct_model *m, oct_tensor x)
{
    const struct octet_shape *shape = oct_shape(&m->b, x);

    return shape->rank ? shape->dim[shape->rank - 1] : 0;
}

oct_tensor oct_norm_layer(struct oct_model *m, const char *name, oct_tensor x, double epsilon,
                          bool scaled)
{
    uint32_t outer = oct_enter(&m->b, name);
    oct_tensor scale = 0;

    if (scaled)
        scale = oct_parameter(&m->b, "scale", 1, (struct oct_dim[]){OCT_DIM(last_dim(m, x), norm)});
    oct_tensor y = m->b.status == OCTET_OK ? oct_rms_norm(&m->b, x, scale, epsilon, 0) : 0;
    oct_leave(&m->b, outer);
    return y;
}

oct_tensor oct_norm(struct oct_model *m, const char *name, oct_tensor x)
{
    return oct_norm_layer(m, name, x, oct_float(m, normalization_layer_epsilon), true);
}

oct_tensor oct_norm_default(struct oct_model *m, const char *name, oct_tensor x)
{
    return oct_norm_layer(m, name, x, 1e-6, true);
}

oct_tensor oct_dense_layer(struct oct_model *m, const char *name, oct_tensor x, int in_count,
                           int out_count, const struct oct_dim *dims, bool bias)
{
    uint32_t outer = oct_enter(&m->b, name);
    oct_tensor kernel = oct_parameter(&m->b, "kernel", in_count + out_count, dims);
    oct_tensor y = oct_dense(&m->b, x, kernel, in_count);

    if (bias)
        y = oct_plus(&m->b, y, oct_parameter(&m->b, "bias", out_count, dims + in_count));
    oct_leave(&m->b, outer);
    return y;
}

enum oct_activation oct_mlp_activation(struct oct_model *m, size_t index)
{
    static const struct {
        const char *name;
        enum oct_activation function;
    } known[] = {
        {"linear", OCT_ACTIVATION_linear}, {"silu", OCT_ACTIVATION_silu},
        {"swish", OCT_ACTIVATION_silu},    {"gelu", OCT_ACTIVATION_gelu},
        {"relu", OCT_ACTIVATION_relu},     {"sigmoid", OCT_ACTIVATION_sigmoid},
    };
    const char *const *names;
    size_t count = oct_config_list(m->config, OCT_KEY_mlp_activations, &names);

    for (size_t i = 0; index < count && i < sizeof known / sizeof *known; i++)
        if (strcmp(names[index], known[i].name) == 0)
            return known[i].function;
    oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, "mlp_activations",
                     "activation '%s' is unknown; known are linear, silu, gelu, relu and sigmoid",
                     index < count ? names[index] : "");
    return OCT_ACTIVATION_linear;
}

/* One kernel for all activations: wi [E, n, F]. */
static oct_tensor fused_hidden(struct oct_model *m, oct_tensor x, size_t count, int64_t mlp_dim)
{
    struct oct_dim dims[] = {OCT_DIM(last_dim(m, x), embed),
                             OCT_DIM((int64_t)count, num_activations), OCT_DIM(mlp_dim, mlp)};
    oct_tensor all = oct_dense_layer(m, "wi", x, 1, 2, dims, false), hidden = 0;

    for (size_t i = 0; i < count; i++) {
        oct_tensor one = oct_slice(&m->b, all, 2, (int64_t)i, 1);
        one = oct_reshape(&m->b, one, 3,
                          (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                             OCT_DIM(mlp_dim, mlp)});
        one = oct_activate(&m->b, one, oct_mlp_activation(m, i), 0);
        hidden = i ? oct_times(&m->b, hidden, one) : one;
    }
    return hidden;
}

static oct_tensor hidden_of_each(struct oct_model *m, oct_tensor x, size_t count, int64_t mlp_dim)
{
    static const char *const names[] = {"wi_0", "wi_1", "wi_2", "wi_3"};
    struct oct_dim dims[] = {OCT_DIM(last_dim(m, x), embed), OCT_DIM(mlp_dim, mlp)};
    oct_tensor hidden = 0;

    for (size_t i = 0; i < count; i++) {
        oct_tensor one = oct_dense_layer(m, count == 1 ? "wi" : names[i], x, 1, 1, dims, false);
        if (oct_bool(m, activations_in_float32))
            one = oct_cast(&m->b, one, OCTET_DTYPE_F32);
        one = oct_activate(&m->b, one, oct_mlp_activation(m, i), 0);
        hidden = i ? oct_times(&m->b, hidden, one) : one;
    }
    return oct_cast(&m->b, hidden, m->dtype);
}

oct_tensor oct_mlp(struct oct_model *m, const char *name, oct_tensor x, int64_t mlp_dim)
{
    const char *const *activations;
    size_t count = oct_config_list(m->config, OCT_KEY_mlp_activations, &activations);
    uint32_t outer = oct_enter(&m->b, name);

    if (count < 1 || count > 4)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "mlp_activations",
                         "%zu activations; one to four were expected", count);
    struct oct_dim dims[] = {OCT_DIM(mlp_dim, mlp), OCT_DIM(last_dim(m, x), embed)};
    oct_tensor hidden = 0;
    if (m->b.status == OCTET_OK)
        hidden = oct_bool(m, fused_mlp) ? fused_hidden(m, x, count, mlp_dim)
                                        : hidden_of_each(m, x, count, mlp_dim);
    oct_tensor y = oct_dense_layer(m, "wo", hidden, 1, 1, dims, false);
    oct_leave(&m->b, outer);
    return y;
}

/* embeddings.Embed in the current module: *table [size, E], made by the first call. use_iota_embed
 * turns it into a jnp.dot of one-hot rows; JAX keeps its trace, so Qwix meets it once (*ran says it
 * has). */
static oct_tensor embed(struct oct_model *m, oct_tensor ids, int64_t size, oct_tensor *table,
                        bool *ran)
{
    if (!*table)
        *table = oct_parameter(
            &m->b, "embedding", 2,
            (struct oct_dim[]){OCT_DIM(size, vocab), OCT_DIM(m->dims->emb_dim, embed)});
    if (!oct_bool(m, use_iota_embed))
        return oct_add_node(&m->b, OCT_OP_embed, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                            2, (oct_tensor[]){ids, *table}, NULL);
    oct_tensor rows = oct_add_node(&m->b, OCT_OP_one_hot, OCTET_LOOKUP_NONE,
                                   (union oct_attributes){.k = size}, 1, &ids, NULL);
    enum octet_lookup lookup = *ran ? OCTET_LOOKUP_CACHED : OCTET_LOOKUP_DOT_GENERAL;
    *ran = true;
    return oct_add_node(
        &m->b, OCT_OP_dot_general, lookup,
        (union oct_attributes){.dot = {.contracting_count = 1, .lhs_contracting = {2}}}, 2,
        (oct_tensor[]){rows, *table}, NULL);
}

oct_tensor oct_embedding(struct oct_model *m, oct_tensor ids, oct_tensor positions)
{
    uint32_t outer = oct_enter(&m->b, "token_embedder");
    oct_tensor y = embed(m, ids, m->dims->vocab_size, &m->embedding, &m->embedded);
    int64_t trained = oct_int(m, trainable_position_size);

    oct_leave(&m->b, outer);
    y = oct_cast(&m->b, y, m->dtype);
    if (oct_bool(m, use_untrainable_positional_embedding))
        y = oct_plus(&m->b, y,
                     oct_add_node(&m->b, OCT_OP_sinusoid, OCTET_LOOKUP_NONE,
                                  (union oct_attributes){.k = m->dims->emb_dim}, 1, &positions,
                                  NULL));
    if (trained > 0) {
        outer = oct_enter(&m->b, "decoder");
        uint32_t decoder = m->b.module;
        oct_enter(&m->b, "position_embedder");
        y = oct_plus(&m->b, y,
                     embed(m, positions, trained, &m->position_embedding, &m->position_embedded));
        oct_leave(&m->b, decoder);
        oct_leave(&m->b, outer);
    }
    return y;
}

/* logits_via_embedding: a jnp.dot with the table, cast to bfloat16 whatever the compute type; its
 * trace is cached too. */
static oct_tensor tied_logits(struct oct_model *m, oct_tensor x)
{
    oct_tensor table = oct_cast(&m->b, m->embedding, OCTET_DTYPE_BF16);

    table = oct_add_node(&m->b, OCT_OP_transpose, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                         1, &table, NULL);
    oct_tensor logits = oct_add_node(
        &m->b, OCT_OP_dot_general, m->headed ? OCTET_LOOKUP_CACHED : OCTET_LOOKUP_DOT_GENERAL,
        (union oct_attributes){.dot = {.contracting_count = 1, .lhs_contracting = {2}}}, 2,
        (oct_tensor[]){x, table}, NULL);
    if (oct_bool(m, normalize_embedding_logits))
        logits = oct_scale(&m->b, logits, 1 / sqrt((double)m->dims->emb_dim));
    double cap = oct_float(m, final_logits_soft_cap);
    if (cap > 0)
        logits = oct_add_node(&m->b, OCT_OP_soft_cap, OCTET_LOOKUP_NONE,
                              (union oct_attributes){.cap = (float)cap}, 1, &logits, NULL);
    return logits;
}

static oct_tensor final_norm(struct oct_model *m, oct_tensor x)
{
    uint32_t outer = oct_enter(&m->b, "decoder_norm");

    if (!m->final_norm)
        m->final_norm =
            oct_parameter(&m->b, "scale", 1, (struct oct_dim[]){OCT_DIM(m->dims->emb_dim, norm)});
    x = oct_rms_norm(&m->b, x, m->final_norm, oct_float(m, normalization_layer_epsilon), 0);
    oct_leave(&m->b, outer);
    return x;
}

oct_tensor oct_output_head(struct oct_model *m, oct_tensor x)
{
    uint32_t outer = oct_enter(&m->b, "decoder");
    oct_tensor logits;

    x = final_norm(m, x);
    if (oct_bool(m, logits_via_embedding)) {
        logits = tied_logits(m, x);
    } else {
        uint32_t decoder = oct_enter(&m->b, "logits_dense");
        if (!m->head)
            m->head = oct_parameter(&m->b, "kernel", 2,
                                    (struct oct_dim[]){OCT_DIM(m->dims->emb_dim, embed),
                                                       OCT_DIM(m->dims->vocab_size, vocab)});
        logits = oct_dense(&m->b, x, m->head, 1);
        oct_leave(&m->b, decoder);
    }
    m->headed = true;
    if (oct_bool(m, cast_logits_to_fp32))
        logits = oct_cast(&m->b, logits, OCTET_DTYPE_F32);
    oct_leave(&m->b, outer);
    return logits;
}
