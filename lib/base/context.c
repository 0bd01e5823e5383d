/* The context: limits, and the room for what outlives a call. */
#include "base/context_private.h"

#include <stdlib.h>
#include <sys/random.h>

#include "octet/cancel.h"

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

enum octet_status octet_context_create(const struct octet_limits *limits, octet_context **out,
                                       struct octet_error *err)
{
    static const struct octet_limits none;
    const struct octet_limits *l = limits ? limits : &none;
    octet_context *context = calloc(1, sizeof *context);

    if (!context)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    context->limits = (struct octet_limits){
        .plan_memory_bytes = or_default(l->plan_memory_bytes, 256u << 20),
        .plan_cache_bytes = or_default(l->plan_cache_bytes, 64u << 20),
        .graph_nodes = (uint32_t)or_default(l->graph_nodes, 1000000),
        .rules = (uint32_t)or_default(l->rules, 256),
        .pattern_bytes = (uint32_t)or_default(l->pattern_bytes, 4096),
        .pattern_match_steps = (uint32_t)or_default(l->pattern_match_steps, 100000),
        .yaml_bytes = (uint32_t)or_default(l->yaml_bytes, 1u << 20),
    };
    if (getrandom(&context->hash_seed, sizeof context->hash_seed, 0) < 0)
        context->hash_seed = octet_now_ns(); /* no entropy yet: better than a constant */
    if (pthread_mutex_init(&context->cache_lock, NULL) != 0) {
        free(context);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no mutex could be made");
    }
    *out = context;
    return OCTET_OK;
}

void octet_context_destroy(octet_context *context)
{
    if (!context)
        return;
    if (context->cache)
        context->cache_destroy(context->cache);
    pthread_mutex_destroy(&context->cache_lock);
    free(context);
}

const struct octet_limits *octet_context_limits(const octet_context *context)
{
    return &context->limits;
}

const char *octet_version(void)
{
    return OCTET_VERSION;
}

const char *octet_git_commit(void)
{
    return OCTET_COMMIT;
}
