/* Mixture of experts. */
#ifndef OCTET_MODELS_MOE_H
#define OCTET_MODELS_MOE_H

#include "models/draft.h"

/* moe.RoutedMoE `name`, expert width `mlp_dim`. */
oct_tensor oct_routed_moe(struct oct_model *m, const char *name, oct_tensor x, int64_t mlp_dim);
/* moe.RoutedAndSharedMoE "DeepSeekMoeBlock_0". */
oct_tensor oct_routed_and_shared_moe(struct oct_model *m, oct_tensor x);

#endif
