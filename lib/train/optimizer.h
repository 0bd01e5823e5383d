/* Optimizer: from accumulated gradients to new parameters.
 *
 * For: clipping, AdamW and SGD with MaxText's settings. Not for: who may step when (session).
 * Source: MaxText, optimizers/optimizers.py and maxtext_utils.apply_gradient_clipping; optax 0.2.8,
 * scale_by_adam, add_decayed_weights, clip_by_global_norm. */
#ifndef OCTET_TRAIN_OPTIMIZER_H
#define OCTET_TRAIN_OPTIMIZER_H

#include "octet/session.h"

struct oct_optimizer_sets {
    octet_parameters *parameters, *gradients, *mu, *nu;
};

/* sqrt of the sum of squares of all elements, which is taken in double and in one order. sums:
 * working memory, [gradients->pieces]. */
double oct_global_norm(const octet_parameters *gradients, const octet_workers *workers,
                       double *sums);

/* decayed[i]: weight decay takes parameter i, which no pattern of adamw_mask is found in.
 * Errors: INVALID_ARGUMENT "optimizer.adamw_mask[0]"; RESOURCE_EXHAUSTED. */
enum octet_status oct_decay_mask(const octet_context *context,
                                 const struct octet_optimizer *optimizer,
                                 const octet_parameters *parameters, bool *decayed,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* One step; the gradients may be spoiled. step: steps taken before this one; norm: of the
 * gradients. Cannot fail and is not cancelled: half a step would be worse than a late one. */
void oct_optimizer_step(const struct oct_optimizer_sets *sets,
                        const struct octet_optimizer *optimizer, const bool *decayed, int64_t step,
                        double rate, double norm, const octet_workers *workers);

#endif
