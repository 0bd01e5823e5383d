/* Plans kept in the context, least recently used first out. */
#ifndef OCTET_PLAN_CACHE_H
#define OCTET_PLAN_CACHE_H

#include "octet/plan.h"

struct oct_plan_key {
    uint64_t config[2], rules[2];
    int64_t batch_size, sequence_length;
    bool gmm; /* grouped matmuls are looked up */
    bool intercepted;
};
/* A reference, or NULL. */
octet_plan *oct_plan_cache_find(octet_context *context, const struct oct_plan_key *key);
/* Takes a reference of its own, counting `bytes`; may decline. */
void oct_plan_cache_keep(octet_context *context, const struct oct_plan_key *key, octet_plan *plan,
                         size_t bytes);

#endif
