/* What a context holds. Rooms above base hang their own state here, with the function that ends it.
 */
#ifndef OCTET_BASE_CONTEXT_PRIVATE_H
#define OCTET_BASE_CONTEXT_PRIVATE_H

#include <pthread.h>

#include "octet/context.h"

struct octet_context {
    struct octet_limits limits; /* set once, then read-only */
    uint64_t hash_seed; /* of cache keys: random, so that nobody can make two keys collide */
    pthread_mutex_t cache_lock; /* guards cache and all that is in it */
    void *cache;                /* lib/plan's; NULL until the first plan is kept */
    void (*cache_destroy)(void *cache);
};

#endif
