/* Multi-head latent attention. */
#ifndef OCTET_MODELS_MLA_H
#define OCTET_MODELS_MLA_H

#include "models/draft.h"

/* attention_mla.MLA "self_attention". */
oct_tensor oct_mla(struct oct_model *m, oct_tensor x);

#endif
