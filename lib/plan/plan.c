/* From a config to a plan: rules, graph, walk, measures; or the same plan from the cache. */
#include "octet/plan.h"

#include "base/context_private.h"
#include "models/settings.h"
#include "plan/cache.h"
#include "plan/coverage.h"
#include "plan/record.h"
#include "plan/walk.h"

static enum octet_status plan_build(octet_context *context, const octet_config *config,
                                    octet_rules *rules, const struct oct_plan_key *key,
                                    const struct octet_capabilities *capabilities,
                                    const struct octet_cancel *cancel, octet_plan **out,
                                    struct octet_error *err)
{
    octet_plan *plan = oct_plan_allocate(context, rules);
    struct octet_graph_options options = {.batch_size = key->batch_size,
                                          .sequence_length = key->sequence_length};

    if (!plan)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    enum octet_status status =
        octet_graph_build(context, plan->arena, config, &options, cancel, &plan->graph, err);
    if (status == OCTET_OK)
        status = oct_plan_walk(plan, key->intercepted, key->gmm, capabilities, cancel, err);
    if (status == OCTET_OK)
        status = oct_plan_measure(plan, err);
    if (status == OCTET_OK)
        *out = plan;
    else
        octet_plan_unref(plan);
    return status;
}

static enum octet_status check_options(const struct octet_graph_options *options,
                                       struct octet_error *err)
{
    enum { BATCH_MAX = 1 << 24, LENGTH_MAX = 1 << 28 };

    if (options && (options->batch_size < 0 || options->batch_size > BATCH_MAX))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "batch_size",
                          "%lld; 1 to %d was expected, or 0 for the config's",
                          (long long)options->batch_size, BATCH_MAX);
    if (options && (options->sequence_length < 0 || options->sequence_length > LENGTH_MAX))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "sequence_length",
                          "%lld; 1 to %d was expected, or 0 for the config's",
                          (long long)options->sequence_length, LENGTH_MAX);
    return OCTET_OK;
}

enum octet_status octet_plan_create(octet_context *context, const octet_config *config,
                                    octet_rules *rules, const struct octet_graph_options *options,
                                    const struct octet_cancel *cancel, octet_plan **out,
                                    struct octet_error *err)
{
    bool given = rules != NULL;
    enum octet_status status = check_options(options, err);

    if (status == OCTET_OK && !given)
        status = octet_rules_from_config(context, config, &rules, err);
    if (status != OCTET_OK)
        return status;
    /* Without quantization, or with the batch-split schedule, which quantizes by itself, MaxText
     * does not wrap the model, so nothing is intercepted; of its settings only fp8_full looks
     * grouped matmuls up. */
    struct oct_plan_key key = {
        .batch_size = options ? options->batch_size : 0,
        .sequence_length = options ? options->sequence_length : 0,
        .gmm = given || oct_config_text_is(config, OCT_KEY_quantization, "fp8_full"),
        .intercepted = given || (!oct_config_text_is(config, OCT_KEY_quantization, "") &&
                                 !oct_config_bool(config, OCT_KEY_use_batch_split_schedule)),
    };
    oct_config_digest(config, context->hash_seed, key.config);
    octet_rules_digest(rules, key.rules);
    /* Plans with a backend are of few sessions, which keep them. */
    const struct octet_capabilities *capabilities = options ? options->capabilities : NULL;
    *out = capabilities ? NULL : oct_plan_cache_find(context, &key);
    if (!*out) {
        status = plan_build(context, config, rules, &key, capabilities, cancel, out, err);
        if (status == OCTET_OK && !capabilities)
            oct_plan_cache_keep(context, &key, *out, octet_arena_held((*out)->arena));
    }
    if (!given)
        octet_rules_unref(rules);
    return status;
}
