/* What checkpoint.c and its halves share: which tensors a checkpoint of a session has. */
#ifndef OCTET_TRAIN_CHECKPOINT_H
#define OCTET_TRAIN_CHECKPOINT_H

#include "octet/safetensors.h"
#include "train/session_private.h"

/* One array of the tensor file and where its numbers are in a session. */
struct oct_saved {
    enum octet_tensor_set set;
    size_t index; /* of the parameter */
    bool is_load; /* tokens of experts instead: S64, in slices' order */
};

/* All arrays that a checkpoint of the session has: parameters under their names; of TRAIN sessions
 * "optimizer.mu/NAME", "optimizer.nu/NAME"; with waiting gradients "gradient/NAME" and
 * "router_load/NAME". Names and tables in the arena. Errors: RESOURCE_EXHAUSTED. */
enum octet_status oct_checkpoint_arrays(const octet_session *session, bool moments, bool gradients,
                                        octet_arena *arena, struct octet_named_array **arrays,
                                        struct oct_saved **saved, size_t *count,
                                        struct octet_error *err) OCTET_MUST_CHECK;

#define OCT_CHECKPOINT_MU "optimizer.mu/"

#endif
