/* A model under construction: the config at hand, the builder, and the layers that models share.
 *
 * For: the files of lib/models; octet_graph_build is their only door.
 * Module names, order of calls and shapes are MaxText's (22 August 2026, NNX), since the trace must
 * be its very lines; each function names the class it stands for. */
#ifndef OCTET_MODELS_MODEL_H
#define OCTET_MODELS_MODEL_H

#include "graph/builder.h"
#include "models/settings.h"

struct oct_model {
    struct oct_builder b;
    const octet_config *config;
    const struct oct_dims *dims;
    int64_t batch, length;
    enum octet_dtype dtype, weight_dtype; /* of compute, of parameters */
    oct_tensor tokens, targets, target_mask;
    oct_tensor embedding, position_embedding; /* [V, E], [P, E] */
    oct_tensor final_norm, head;     /* made by the first output head, used again by MTP's */
    bool embedded, headed;           /* has run once: JAX has cached the trace of its jnp.dot */
    bool position_embedded;
    oct_tensor auxiliary;            /* load balance and indexer losses so far; 0: none */
    struct oct_family_layer *family; /* see decoder.c */
};

/* Shorthand for config values. */
#define oct_int(m, key) oct_config_int((m)->config, OCT_KEY_##key)
#define oct_float(m, key) oct_config_float((m)->config, OCT_KEY_##key)
#define oct_bool(m, key) oct_config_bool((m)->config, OCT_KEY_##key)
#define oct_is(m, key, text) oct_config_text_is((m)->config, OCT_KEY_##key, text)

/* Does the model's name start with `prefix`? MaxText keys some behaviour on it. */
bool oct_named(const struct oct_model *m, const char *prefix);

/* normalizations.RMSNorm in the current module's child `name`; scaled = false: no weight, no
 * einsum. */
oct_tensor oct_norm_layer(struct oct_model *m, const char *name, oct_tensor x, double epsilon,
                          bool scaled);
/* The same with the config's normalization_layer_epsilon. */
oct_tensor oct_norm(struct oct_model *m, const char *name, oct_tensor x);
/* Gemma's layers leave the epsilon at its default. */
oct_tensor oct_norm_default(struct oct_model *m, const char *name, oct_tensor x);

/* linears.DenseGeneral `name`: contracts the last `in_count` axes of x with a kernel
 * [in..., out...]; dims: in_count then out_count dimensions. bias: [out...]. */
oct_tensor oct_dense_layer(struct oct_model *m, const char *name, oct_tensor x, int in_count,
                           int out_count, const struct oct_dim *dims, bool bias);

/* linears.MlpBlock `name`, hidden width `mlp_dim`. */
oct_tensor oct_mlp(struct oct_model *m, const char *name, oct_tensor x, int64_t mlp_dim);
/* The function that mlp_activations[index] names; fails the build on an unknown one. */
enum oct_activation oct_mlp_activation(struct oct_model *m, size_t index);

/* attentions.Attention `name`. */
struct oct_attention {
    const char *name;
    bool qk_norm, bias, share_kv;
    bool float32_qk, float32_logits;
    double query_scale; /* 1: none */
    int64_t window;     /* keys looked back on; 0: all */
    double soft_cap;
};
oct_tensor oct_attention_layer(struct oct_model *m, const struct oct_attention *a, oct_tensor x);
/* attention_mla.MLA "self_attention". */
oct_tensor oct_mla(struct oct_model *m, oct_tensor x);

/* attention_op.AttentionOp: query [B,S,H,D], key [B,S,K,D], value [B,S,K,V] -> [B,S,H,V].
 * mask: an additive one [B,S,S]; 0: none. sinks [H]; 0: none. */
oct_tensor oct_attend(struct oct_model *m, const struct oct_attention *a, oct_tensor query,
                      oct_tensor key, oct_tensor value, oct_tensor mask, oct_tensor sinks);
oct_tensor oct_rotate(struct oct_model *m, oct_tensor x, bool local);

/* moe.RoutedMoE `name`, expert width `mlp_dim`. */
oct_tensor oct_routed_moe(struct oct_model *m, const char *name, oct_tensor x, int64_t mlp_dim);
/* moe.RoutedAndSharedMoE "DeepSeekMoeBlock_0". */
oct_tensor oct_routed_and_shared_moe(struct oct_model *m, oct_tensor x);

/* mhc.ManifoldConstrainedHyperConnections `name` around one branch: begin gives the branch's input
 * [B,S,E] of streams [B,S,K,E], end mixes its output back in. */
struct oct_streams {
    uint32_t outer; /* module to go back to */
    oct_tensor streams, post, residual;
};
oct_tensor oct_streams_begin(struct oct_model *m, const char *name, oct_tensor streams,
                             struct oct_streams *state);
oct_tensor oct_streams_end(struct oct_model *m, struct oct_streams *state, oct_tensor branch);

/* Adds a scalar to the losses beside the main one. Inside a scanned segment it counts once a turn. */
void oct_auxiliary_loss(struct oct_model *m, oct_tensor loss);

/* embeddings.Embed, NNXDecoder._apply_embedding and .apply_output_head. */
oct_tensor oct_embedding(struct oct_model *m, oct_tensor ids, oct_tensor positions);
oct_tensor oct_output_head(struct oct_model *m, oct_tensor x);

/* All decoder layers between embedding and head; the layer class MTP uses; the MTP block. */
oct_tensor oct_decoder_layers(struct oct_model *m, oct_tensor x);
oct_tensor oct_mtp_transformer_layer(struct oct_model *m, oct_tensor x);
void oct_mtp_block(struct oct_model *m, oct_tensor hidden, oct_tensor *loss_sum,
                   oct_tensor *weight_sum);

#endif
