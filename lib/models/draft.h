/* A model under construction: the builder, the config, and the tensors that several parts share.
 *
 * For: the files of lib/models; octet_graph_build (model.c) is their only door.
 * Module names, order of calls and shapes are MaxText's (22 August 2026, NNX), since the trace must
 * be its very lines; each function names the class it stands for. */
#ifndef OCTET_MODELS_DRAFT_H
#define OCTET_MODELS_DRAFT_H

#include "graph/builder.h"
#include "models/settings.h"

struct oct_auxiliary {
    oct_tensor loss;
    int64_t turns; /* of its segment */
    struct oct_auxiliary *next;
};

struct oct_model {
    struct oct_builder b;
    const octet_config *config;
    const struct oct_dims *dims;
    int64_t batch, length;
    enum octet_dtype dtype, weight_dtype;     /* of compute, of parameters */
    oct_tensor tokens, targets;               /* [B,S] S32 */
    oct_tensor target_weights;                /* [B,S] F32: mask times loss weight */
    oct_tensor embedding, position_embedding; /* [V, E], [P, E] */
    oct_tensor final_norm, head; /* made by the first output head, used again by MTP's */
    bool embedded, headed;       /* has run once: JAX has cached the trace of its jnp.dot */
    bool position_embedded;
    struct oct_auxiliary *auxiliary; /* load balance and indexer losses, the last first */
    const struct oct_family *family; /* see decoder.c */
};

/* Shorthand for config values. */
#define oct_int(m, key) oct_config_int((m)->config, OCT_KEY_##key)
#define oct_float(m, key) oct_config_float((m)->config, OCT_KEY_##key)
#define oct_bool(m, key) oct_config_bool((m)->config, OCT_KEY_##key)
#define oct_is(m, key, text) oct_config_text_is((m)->config, OCT_KEY_##key, text)

/* Does the model's name start with `prefix`? MaxText keys some behaviour on it. */
bool oct_named(const struct oct_model *m, const char *prefix);

/* Adds a scalar to the losses beside the main one. Inside a scanned segment it counts once a turn:
 * a scalar of a segment that is read outside of it is the sum over the turns. */
void oct_auxiliary_loss(struct oct_model *m, oct_tensor loss);
/* The mean of each kind over its layers (train.loss_fn), all kinds added, outside of any segment;
 * 0: there are none. */
oct_tensor oct_auxiliary_total(struct oct_model *m);

#endif
