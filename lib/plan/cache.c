/* Plans kept for the next request with the same config, rules and batch.
 *
 * Decision: a plan is built outside the lock; two requests that miss at the same moment both build
 * it and the second copy is not kept. The list is short (a plan of a big model is about a
 * megabyte), so it is searched from front to back, most recently used first. */
#include "plan/cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/context_private.h"

struct entry {
    struct entry *next;
    struct oct_plan_key key;
    octet_plan *plan; /* one reference */
    size_t bytes;
};

struct cache {
    struct entry *first;
    size_t bytes;
};

static bool same_key(const struct oct_plan_key *a, const struct oct_plan_key *b)
{
    return a->config[0] == b->config[0] && a->config[1] == b->config[1] &&
           a->rules[0] == b->rules[0] && a->rules[1] == b->rules[1] &&
           a->batch_size == b->batch_size && a->sequence_length == b->sequence_length &&
           a->gmm == b->gmm && a->intercepted == b->intercepted;
}

/* Under the lock. Moves a hit to the front. */
static struct entry *find(struct cache *cache, const struct oct_plan_key *key)
{
    for (struct entry **at = &cache->first; *at; at = &(*at)->next)
        if (same_key(&(*at)->key, key)) {
            struct entry *hit = *at;
            *at = hit->next;
            hit->next = cache->first;
            cache->first = hit;
            return hit;
        }
    return NULL;
}

static void entry_free(struct entry *entry)
{
    octet_plan_unref(entry->plan);
    free(entry);
}

/* Under the lock: cuts off what stands behind the last entry that fits, and returns it. */
static struct entry *trim(struct cache *cache, size_t bytes_max)
{
    size_t bytes = 0;
    struct entry **at = &cache->first;

    while (*at && bytes + (*at)->bytes <= bytes_max) {
        bytes += (*at)->bytes;
        at = &(*at)->next;
    }
    struct entry *rest = *at;
    *at = NULL;
    cache->bytes = bytes;
    return rest;
}

static void free_all(struct entry *entry)
{
    while (entry) {
        struct entry *next = entry->next;
        entry_free(entry);
        entry = next;
    }
}

static void cache_destroy(void *cache)
{
    free_all(((struct cache *)cache)->first);
    free(cache);
}

octet_plan *oct_plan_cache_find(octet_context *context, const struct oct_plan_key *key)
{
    octet_plan *plan = NULL;

    pthread_mutex_lock(&context->cache_lock);
    struct entry *hit = context->cache ? find(context->cache, key) : NULL;
    if (hit)
        plan = octet_plan_ref(hit->plan);
    pthread_mutex_unlock(&context->cache_lock);
    return plan;
}

void oct_plan_cache_keep(octet_context *context, const struct oct_plan_key *key, octet_plan *plan,
                         size_t bytes)
{
    struct entry *entry = calloc(1, sizeof *entry), *rest = NULL;

    if (!entry)
        return; /* a plan that is not kept is only slower */
    *entry = (struct entry){.key = *key, .plan = octet_plan_ref(plan), .bytes = bytes};
    pthread_mutex_lock(&context->cache_lock);
    if (!context->cache) {
        context->cache = calloc(1, sizeof(struct cache));
        context->cache_destroy = cache_destroy;
    }
    struct cache *cache = context->cache;
    if (!cache || find(cache, key)) {
        rest = entry;
    } else {
        entry->next = cache->first;
        cache->first = entry;
        rest = trim(cache, (size_t)context->limits.plan_cache_bytes);
    }
    pthread_mutex_unlock(&context->cache_lock);
    free_all(rest);
}
