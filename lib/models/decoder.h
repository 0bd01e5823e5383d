/* Decoder layers and their stacks. */
#ifndef OCTET_MODELS_DECODER_H
#define OCTET_MODELS_DECODER_H

#include "models/draft.h"

/* All decoder layers between embedding and head. */
oct_tensor oct_decoder_layers(struct oct_model *m, oct_tensor x);
/* The layer class that MTP uses, in the current module. */
oct_tensor oct_mtp_transformer_layer(struct oct_model *m, oct_tensor x);

#endif
