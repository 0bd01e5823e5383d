/* Layers that all models share: norms, projections, MLP, embedding and output head. */
#ifndef OCTET_MODELS_LAYERS_H
#define OCTET_MODELS_LAYERS_H

#include "models/draft.h"

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

/* embeddings.Embed, NNXDecoder._apply_embedding and .apply_output_head. */
oct_tensor oct_embedding(struct oct_model *m, oct_tensor ids, oct_tensor positions);
oct_tensor oct_output_head(struct oct_model *m, oct_tensor x);

#endif
