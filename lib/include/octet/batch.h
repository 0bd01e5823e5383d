/* Batch: the tokens of one forward pass or training step.
 *
 * Life: a batch is a view of arrays that its user owns. */
#ifndef OCTET_BATCH_H
#define OCTET_BATCH_H

#include "octet/array.h"

/* All [B,S]. data NULL in any but tokens: left out, and octet_batch_complete fills it in. */
struct octet_batch {
    struct octet_array tokens; /* S32, 0 .. vocab_size - 1 */
    struct octet_array
        targets; /* S32; default: the next token of the same document, 0 at its end */
    struct octet_array positions;   /* S32; default: 0, 1, ... in each document */
    struct octet_array segment_ids; /* S32, 0 is padding; default: 1, one document a row */
    struct octet_array target_mask; /* S32, not 0 counts as 1; default: 1 where there is a target in
                                       a document */
    struct octet_array weights;     /* F32, factors of each target's loss; default: none, all 1 */
};

/* Checks shapes, dtypes and ranges (tokens and targets below vocab_size), and makes what was left
 * out in the arena; weights stay out. Errors: INVALID_ARGUMENT with field "tokens",
 * "targets.shape", "tokens[1,7]"; RESOURCE_EXHAUSTED. */
OCTET_API enum octet_status octet_batch_complete(const struct octet_batch *given,
                                                 int64_t vocab_size, octet_arena *arena,
                                                 struct octet_batch *out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;

#endif
