/* What exec itself needs of a batch; see octet/batch.h. */
#ifndef OCTET_EXEC_BATCH_H
#define OCTET_EXEC_BATCH_H

#include "octet/batch.h"

/* The graph's input "target_weights" of a complete batch: the mask as 0 or 1, times the batch's
 * weight. out: [B * S]. Segment ids that stand for a mask must not become weights, so nothing but 0
 * and 1 comes from the mask (MaxText's MTP block had that fault once). */
void oct_batch_target_weights(const struct octet_batch *batch, float *out);

#endif
