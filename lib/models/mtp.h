/* Multi-token prediction. */
#ifndef OCTET_MODELS_MTP_H
#define OCTET_MODELS_MTP_H

#include "models/draft.h"

/* The MTP block on the main model's hidden state [B,S,E]; the sums over its layers. */
void oct_mtp_block(struct oct_model *m, oct_tensor hidden, oct_tensor *loss_sum,
                   oct_tensor *weight_sum);

#endif
