/* Numbers into and out of a session; see octet/session.h. */
#include <math.h>
#include <string.h>

#include "models/settings.h"
#include "train/session_private.h"

static enum octet_status find_set(const octet_session *session, enum octet_tensor_set set,
                                  size_t index, octet_parameters **out, struct octet_error *err)
{
    *out = oct_session_set(session, set);
    if (!*out)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, "kind",
                          "a session that only infers has no gradients and no optimizer");
    if (index >= (*out)->count)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "name",
                          "number %zu; the model has %zu parameters", index, (*out)->count);
    return OCTET_OK;
}

enum octet_status octet_session_put(octet_session *session, enum octet_tensor_set set, size_t index,
                                    uint64_t offset, uint64_t size, const void *data,
                                    struct octet_error *err)
{
    octet_parameters *target;
    enum octet_status status = find_set(session, set, index, &target, err);

    if (status == OCTET_OK && session->prepared)
        status = oct_session_release(session, false, err);
    if (status == OCTET_OK && set == OCTET_SET_GRADIENT && !session->accumulated)
        octet_parameters_clear(target);
    if (status == OCTET_OK)
        status = octet_parameters_write(target, index, offset, size, data, err);
    if (status != OCTET_OK || set != OCTET_SET_GRADIENT)
        return status;
    session->grad_norm = (double)NAN;
    if (!session->accumulated)
        session->accumulated = 1; /* gradients of the caller's own: there is something to take */
    return OCTET_OK;
}

/* Elements of an INFER session's parameter. The first pass, beside which others may read, frees the
 * floats: not under a reader. */
static enum octet_status get_held(octet_session *s, size_t index, uint64_t offset, uint64_t size,
                                  void *data, struct octet_error *err)
{
    size_t first, count;

    pthread_mutex_lock(&s->lock);
    const struct oct_parameter *parameter = &s->parameters->entries[index];
    enum octet_status status = oct_parameter_range(parameter, offset, size, &first, &count, err);
    if (status == OCTET_OK && parameter->dropped)
        status = oct_session_read_held(s, index, first, count, data, err);
    else if (status == OCTET_OK)
        status = octet_parameters_read(s->parameters, index, offset, size, data, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

enum octet_status octet_session_get(const octet_session *session, enum octet_tensor_set set,
                                    size_t index, uint64_t offset, uint64_t size, void *data,
                                    struct octet_error *err)
{
    octet_parameters *source;
    size_t first, count;
    enum octet_status status = find_set(session, set, index, &source, err);

    if (status != OCTET_OK)
        return status;
    if (session->options.mode == OCTET_SESSION_INFER)
        return get_held((octet_session *)session, index, offset, size, data, err); /* its lock */
    if (set != OCTET_SET_GRADIENT || session->accumulated)
        return octet_parameters_read(source, index, offset, size, data, err);
    status = oct_parameter_range(&source->entries[index], offset, size, &first, &count, err);
    if (status == OCTET_OK)
        memset(data, 0, size);
    return status;
}

enum octet_status octet_session_initialise(octet_session *session, uint64_t seed,
                                           const struct octet_compute *compute,
                                           struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (session->prepared)
        status = oct_session_release(session, true, err);
    return status == OCTET_OK ? octet_parameters_initialise(session->parameters, seed, compute, err)
                              : status;
}

void octet_session_optimizer(const octet_session *session, struct octet_optimizer *out)
{
    const octet_config *c = session->config;

    *out = (struct octet_optimizer){
        .opt_type = oct_config_text(c, OCT_KEY_opt_type),
        .learning_rate = oct_config_float(c, OCT_KEY_learning_rate),
        .cosine_learning_rate_final_fraction =
            oct_config_float(c, OCT_KEY_learning_rate_final_fraction),
        .warmup_steps_fraction = oct_config_float(c, OCT_KEY_warmup_steps_fraction),
        .steps = oct_config_int(c, OCT_KEY_steps),
        .learning_rate_schedule_steps = oct_config_int(c, OCT_KEY_learning_rate_schedule_steps),
        .gradient_clipping_threshold = oct_config_float(c, OCT_KEY_gradient_clipping_threshold),
        .adam_b1 = oct_config_float(c, OCT_KEY_adam_b1),
        .adam_b2 = oct_config_float(c, OCT_KEY_adam_b2),
        .adam_eps = oct_config_float(c, OCT_KEY_adam_eps),
        .adam_eps_root = oct_config_float(c, OCT_KEY_adam_eps_root),
        .adam_weight_decay = oct_config_float(c, OCT_KEY_adam_weight_decay),
        .routed_bias_update_rate = oct_config_bool(c, OCT_KEY_routed_bias)
                                       ? oct_config_float(c, OCT_KEY_routed_bias_update_rate)
                                       : 0,
        .lr_schedule_type = oct_config_text(c, OCT_KEY_lr_schedule_type),
        .wsd_decay_steps_fraction = oct_config_float(c, OCT_KEY_wsd_decay_steps_fraction),
        .wsd_decay_style = oct_config_text(c, OCT_KEY_wsd_decay_style),
    };
    out->adamw_mask_count = oct_config_list(c, OCT_KEY_adamw_mask, &out->adamw_mask);
}
