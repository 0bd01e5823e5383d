/* Making a session, and what it holds; see octet/session.h. */
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "models/settings.h"
#include "train/session_private.h"

/* ---- The input ---- */

static char *copy_text(octet_arena *arena, const char *text)
{
    return octet_arena_copy(arena, text, strlen(text));
}

/* A copy that lives with the session; environment is left out. */
static enum octet_status copy_input(octet_session *s, const struct octet_config_input *from,
                                    struct octet_error *err)
{
    struct octet_config_input *to = &s->input;
    struct octet_pair *pairs = OCTET_NEW_ARRAY(s->arena, from->override_count, struct octet_pair);

    to->name = copy_text(s->arena, from->name ? from->name : "");
    if (from->yaml) {
        to->yaml = octet_arena_copy(s->arena, from->yaml, from->yaml_length);
        to->yaml_length = from->yaml_length;
    }
    if (!pairs || !to->name || (from->yaml && !to->yaml))
        return octet_arena_exhausted(s->arena, err);
    for (size_t i = 0; i < from->override_count; i++) {
        pairs[i].key = copy_text(s->arena, from->overrides[i].key);
        pairs[i].value = copy_text(s->arena, from->overrides[i].value);
        if (!pairs[i].key || !pairs[i].value)
            return octet_arena_exhausted(s->arena, err);
    }
    to->overrides = pairs;
    to->override_count = from->override_count;
    return OCTET_OK;
}

/* ---- The plan ---- */

/* Activations are kept unless the user's own settings ask for something else: MaxText recomputes
 * all by default, for accelerators whose memory is small beside their speed. */
static bool recomputes(const octet_config *config)
{
    const char *policy = oct_config_text(config, OCT_KEY_remat_policy);

    return oct_config_origin(config, OCT_KEY_remat_policy) >= OCTET_FROM_YAML &&
           !oct_config_is_null(config, OCT_KEY_remat_policy) && strcmp(policy, "none") != 0 &&
           strcmp(policy, "minimal") != 0;
}

/* What MaxText does while it trains and a session does not. */
static enum octet_status check_training(const octet_config *config, struct octet_error *err)
{
    if (oct_config_bool(config, OCT_KEY_skip_step_on_spikes))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "skip_step_on_spikes",
                          "true; steps are not skipped, false was expected");
    if (!oct_config_text_is(config, OCT_KEY_grad_dtype, "float32"))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "grad_dtype",
                          "'%s'; gradients are kept in float32",
                          oct_config_text(config, OCT_KEY_grad_dtype));
    return OCTET_OK;
}

/* The graph's types are those of the two keys, and lib/exec has codes for these two. */
static enum octet_status check_types(const octet_config *config, bool trains,
                                     struct octet_error *err)
{
    static const enum oct_key keys[] = {OCT_KEY_dtype, OCT_KEY_weight_dtype, OCT_KEY_mu_dtype};
    const size_t count = sizeof keys / sizeof *keys - (trains ? 0 : 1);

    for (size_t i = 0; i < count; i++)
        if (!oct_config_text_is(config, keys[i], "float32") &&
            !oct_config_text_is(config, keys[i], "bfloat16"))
            return octet_fail(err, OCTET_UNIMPLEMENTED, oct_key_name(keys[i]),
                              "'%.100s'; sessions have float32 and bfloat16",
                              oct_config_text(config, keys[i]));
    return OCTET_OK;
}

/* Where MaxText quantizes without Qwix's arithmetic. Rules that were given are Qwix's own. */
static enum octet_status check_quantization(const octet_session *s, struct octet_error *err)
{
    const octet_config *config = s->config;
    const char *quantization = oct_config_text(config, OCT_KEY_quantization);

    if (s->rules || !quantization[0])
        return OCTET_OK;
    if (strcmp(quantization, "fp8_gpu") == 0 || strcmp(quantization, "fp8_nanoo") == 0)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "quantization",
                          "'%s' keeps the scales of its dot_general ops in the model's state; "
                          "it can be traced, not run",
                          quantization);
    if (oct_config_bool(config, OCT_KEY_use_batch_split_schedule))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "use_batch_split_schedule",
                          "true with quantization='%s' quantizes gmm and dot_general by a way of "
                          "its own; it can be traced, not run",
                          quantization);
    return OCTET_OK;
}

static enum octet_status check_options(const octet_session *s, struct octet_error *err)
{
    if (s->options.threads < 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "threads",
                          "%d; 1 or more were expected, or 0", (int)s->options.threads);
    if (s->options.batch_size % s->microbatches)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "batch_size",
                          "%lld rows cannot be split into gradient_accumulation_steps=%lld equal "
                          "parts",
                          (long long)s->options.batch_size, (long long)s->microbatches);
    return OCTET_OK;
}

struct octet_graph_options oct_session_shape(const octet_session *s, int64_t batch_size,
                                             int64_t sequence_length)
{
    octet_backend *backend = s->options.backend;

    return (struct octet_graph_options){
        .batch_size = batch_size,
        .sequence_length = sequence_length,
        .capabilities = backend ? &octet_backend_facts(backend)->capabilities : NULL,
    };
}

/* Config, plan and program of an otherwise empty session. */
static enum octet_status make_plan(octet_session *s, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    s->recompute = recomputes(s->config);
    s->microbatches = s->options.mode == OCTET_SESSION_TRAIN
                          ? oct_config_int(s->config, OCT_KEY_gradient_accumulation_steps)
                          : 1;
    if (s->options.mode == OCTET_SESSION_TRAIN)
        status = check_training(s->config, err);
    if (status == OCTET_OK)
        status = check_types(s->config, s->options.mode == OCTET_SESSION_TRAIN, err);
    if (status == OCTET_OK)
        status = check_quantization(s, err);
    if (status == OCTET_OK)
        status = check_options(s, err);
    struct octet_graph_options shape =
        oct_session_shape(s, s->options.batch_size / s->microbatches, s->options.sequence_length);
    if (status == OCTET_OK)
        status = octet_plan_create(s->context, s->config, s->rules, &shape, NULL, &s->plan, err);
    return status;
}

/* Weights that are held as codes. While they are made the floats are still there. */
static enum octet_status measure_codes(const oct_program *program, struct octet_session_memory *m,
                                       struct octet_error *err)
{
    uint64_t floats = m->parameters, codes, held;
    enum octet_status status = oct_prepared_estimate(program, &codes, &held, err);

    if (status != OCTET_OK)
        return status;
    m->parameters = m->resident = floats - held + codes;
    m->peak = m->parameters + m->activations + m->scratch;
    if (m->peak < floats + codes + m->scratch)
        m->peak = floats + codes + m->scratch;
    return OCTET_OK;
}

/* The bytes of each part, from the planned program. */
static enum octet_status measure(octet_session *s, struct octet_error *err)
{
    bool trains = s->options.mode == OCTET_SESSION_TRAIN;
    const struct octet_plan_totals *totals = octet_plan_totals(s->plan);
    oct_program *program;
    enum octet_status status = oct_session_program(s, totals->batch_size, totals->sequence_length,
                                                   trains, s->options.threads, &program, err);

    if (status != OCTET_OK)
        return status;
    struct oct_program_memory run = oct_program_memory(program);
    struct octet_session_memory *m = &s->memory;
    m->parameters = oct_parameters_bytes_of(s->plan, OCTET_DTYPE_UNSPECIFIED);
    if (trains) {
        m->gradients = oct_parameters_bytes_of(s->plan, OCTET_DTYPE_F32);
        m->moments = m->parameters +
                     oct_parameters_bytes_of(
                         s->plan, octet_dtype_find(oct_config_text(s->config, OCT_KEY_mu_dtype)));
    }
    m->activations = run.block_bytes;
    m->scratch = oct_program_block_bytes(program) - run.block_bytes;
    m->resident = m->parameters + m->gradients + m->moments;
    m->peak = m->resident + m->activations + m->scratch;
    if (!trains)
        status = measure_codes(program, m, err);
    oct_program_unref(program);
    return status;
}

/* ---- Life ---- */

static octet_session *allocate(octet_context *context, const struct octet_session_options *options)
{
    octet_session *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->context = context;
    s->options = *options;
    s->arena = octet_arena_create(octet_context_limits(context)->plan_memory_bytes);
    if (!s->arena || pthread_mutex_init(&s->lock, NULL) != 0) {
        octet_arena_destroy(s->arena);
        free(s);
        return NULL;
    }
    return s;
}

static void free_loads(octet_session *s)
{
    if (s->loads)
        for (size_t i = 0; i < s->parameters->count; i++)
            free(s->loads[i]);
    free(s->loads);
}

void octet_session_destroy(octet_session *session)
{
    if (!session)
        return;
    for (int i = 0; i < OCT_KEPT_PROGRAMS; i++)
        oct_program_unref(session->kept[i].program);
    oct_pages_unmap(session->spare_block, session->spare_bytes);
    if (session->extra_bytes)
        session->options.account->give(session->options.account->user, session->extra_bytes);
    oct_residence_destroy(session->weights);
    oct_prepared_destroy(session->prepared);
    free(session->decoded);
    free_loads(session);
    free(session->norm_sums);
    octet_parameters_destroy(session->parameters);
    octet_parameters_destroy(session->gradients);
    octet_parameters_destroy(session->pending);
    octet_parameters_destroy(session->mu);
    octet_parameters_destroy(session->nu);
    octet_plan_unref(session->plan);
    octet_rules_unref(session->rules);
    octet_arena_destroy(session->arena);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

static bool is_router_bias(const char *name)
{
    const char *end = "/gate/bias";
    size_t length = strlen(name), tail = strlen(end);

    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* What training needs beside parameters. */
static enum octet_status allocate_training(octet_session *s, struct octet_error *err)
{
    size_t count = s->parameters->count;
    enum octet_dtype mu_dtype = octet_dtype_find(oct_config_text(s->config, OCT_KEY_mu_dtype));
    enum octet_status status;

    if ((status = octet_parameters_create(s->plan, OCTET_DTYPE_F32, &s->gradients, err)) ||
        (status = octet_parameters_create(s->plan, mu_dtype, &s->mu, err)) ||
        (status = octet_parameters_create(s->plan, OCTET_DTYPE_UNSPECIFIED, &s->nu, err)))
        return status;
    s->norm_sums = calloc(s->gradients->pieces + 1, sizeof *s->norm_sums);
    s->loads = calloc(count + 1, sizeof *s->loads);
    bool good = s->norm_sums && s->loads;
    for (size_t i = 0; good && i < count; i++)
        if (is_router_bias(s->parameters->entries[i].tensor->name)) {
            s->loads[i] = calloc(oct_parameters_elements(s->parameters, i), sizeof **s->loads);
            good = s->loads[i] != NULL;
        }
    return good ? OCTET_OK
                : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a session");
}

static enum octet_status fill(octet_session *s, const struct octet_config_input *input,
                              struct octet_error *err)
{
    enum octet_status status = copy_input(s, input, err);

    if (status == OCTET_OK)
        status = octet_config_build(s->context, s->arena, &s->input, &s->config, err);
    if (status == OCTET_OK)
        status = make_plan(s, err);
    if (status == OCTET_OK)
        status = measure(s, err);
    uint64_t limit = s->options.memory_limit_bytes;
    if (status == OCTET_OK && limit && s->memory.peak > limit)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "memory_limit_bytes",
                          "the session would take %llu bytes at its peak; its limit is %llu",
                          (unsigned long long)s->memory.peak, (unsigned long long)limit);
    if (status == OCTET_OK)
        status = octet_parameters_create(s->plan, OCTET_DTYPE_UNSPECIFIED, &s->parameters, err);
    if (status == OCTET_OK && s->options.mode == OCTET_SESSION_TRAIN)
        status = allocate_training(s, err);
    return status;
}

enum octet_status octet_session_create(octet_context *context,
                                       const struct octet_config_input *input, octet_rules *rules,
                                       const struct octet_session_options *options,
                                       octet_session **out, struct octet_error *err)
{
    octet_session *s = allocate(context, options);

    if (!s)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a session");
    if (rules)
        s->rules = octet_rules_ref(rules);
    enum octet_status status = fill(s, input, err);
    if (status == OCTET_OK)
        *out = s;
    else
        octet_session_destroy(s);
    return status;
}

enum octet_status octet_session_estimate(octet_context *context, const octet_config *config,
                                         octet_rules *rules,
                                         const struct octet_session_options *options,
                                         struct octet_session_memory *out, struct octet_error *err)
{
    octet_session *s = allocate(context, options);

    if (!s)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a session");
    if (rules)
        s->rules = octet_rules_ref(rules);
    s->config = config;
    enum octet_status status = make_plan(s, err);
    if (status == OCTET_OK)
        status = measure(s, err);
    *out = s->memory;
    octet_session_destroy(s);
    return status;
}

/* ---- What a reader may ask ---- */

octet_plan *octet_session_plan(const octet_session *session)
{
    return session->plan;
}

enum octet_session_mode octet_session_mode(const octet_session *session)
{
    return session->options.mode;
}

octet_backend *octet_session_backend(const octet_session *session)
{
    return session->options.backend;
}

uint64_t oct_session_parameter_bytes(const octet_session *s)
{
    if (s->options.mode == OCTET_SESSION_TRAIN)
        return s->memory.parameters;
    return octet_parameters_bytes(s->parameters) +
           (s->prepared ? oct_prepared_bytes(s->prepared) : 0);
}

struct octet_session_memory octet_session_memory(const octet_session *session)
{
    octet_session *s = (octet_session *)session; /* its lock */
    struct octet_session_memory memory = session->memory;

    pthread_mutex_lock(&s->lock);
    memory.parameters = oct_session_parameter_bytes(s);
    memory.resident = memory.parameters + memory.gradients + memory.moments + s->spare_bytes;
    if (s->pending)
        memory.resident += memory.gradients;
    pthread_mutex_unlock(&s->lock);
    return memory;
}

int64_t octet_session_step(const octet_session *session)
{
    return session->step;
}

int64_t octet_session_accumulated(const octet_session *session)
{
    return session->accumulated;
}

octet_parameters *oct_session_set(const octet_session *session, enum octet_tensor_set set)
{
    switch (set) {
    case OCTET_SET_PARAMETER:
        return session->parameters;
    case OCTET_SET_GRADIENT:
        return session->gradients;
    case OCTET_SET_OPTIMIZER_MU:
        return session->mu;
    case OCTET_SET_OPTIMIZER_NU:
        return session->nu;
    }
    return NULL;
}

const octet_parameters *octet_session_tensors(const octet_session *session,
                                              enum octet_tensor_set set)
{
    return oct_session_set(session, set);
}
