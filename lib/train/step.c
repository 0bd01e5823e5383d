/* Optimizer steps; see octet/session.h. */
#include <math.h>
#include <stdlib.h>

#include "exec/moe.h"
#include "kernels/kernels.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/session_private.h"

/* A bias that is no F32 goes through a copy. */
static void balance_slice(const struct octet_array *bias, const int64_t *count, double rate,
                          const octet_workers *workers)
{
    enum { EXPERTS_MAX = 4096 };
    float values[EXPERTS_MAX];
    int64_t experts = octet_array_elements(bias);

    if (bias->dtype == OCTET_DTYPE_F32) {
        oct_router_bias_update(experts, count, rate, bias->data);
    } else if (experts <= EXPERTS_MAX) {
        workers->kernels->decode(bias->dtype, (size_t)experts, bias->data, values);
        oct_router_bias_update(experts, count, rate, values);
        workers->kernels->cast(bias->dtype, (size_t)experts, values, bias->data);
    }
}

/* Experts that got more than their share are chosen less from now on (arXiv 2412.19437, 2.1.2):
 * MaxText adds this after the optimizer's step. */
static void balance(octet_session *s, double rate, const octet_workers *workers)
{
    for (size_t i = 0; i < s->parameters->count; i++) {
        const struct oct_parameter *p = &s->parameters->entries[i];
        for (size_t layer = 0; s->loads[i] && layer < p->layers; layer++) {
            struct octet_array bias = oct_parameters_slice(s->parameters, i, (int64_t)layer);
            balance_slice(&bias, s->loads[i] + layer * p->outer * p->inner, rate, workers);
        }
    }
}

static void clear_loads(octet_session *s)
{
    for (size_t i = 0; i < s->parameters->count; i++)
        for (size_t e = 0; s->loads[i] && e < oct_parameters_elements(s->parameters, i); e++)
            s->loads[i][e] = 0;
}

static enum octet_status check(const octet_session *session,
                               const struct octet_optimizer *optimizer, struct octet_error *err)
{
    if (session->options.mode != OCTET_SESSION_TRAIN)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "the session's mode is INFER; an optimizer step needs TRAIN");
    enum octet_status status = octet_session_optimizer_check(optimizer, err);
    if (status == OCTET_OK && !session->accumulated)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "nothing has accumulated since step %lld; a step needs gradients",
                          (long long)session->step);
    return status;
}

enum octet_status octet_session_optim_check(const octet_session *session,
                                            const struct octet_optimizer *optimizer,
                                            struct octet_error *err)
{
    enum octet_status status = octet_session_optimizer_check(optimizer, err);

    if (status != OCTET_OK || !optimizer->adamw_mask_count)
        return status;
    bool *decayed = calloc(session->parameters->count + 1, sizeof *decayed);
    if (!decayed)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    status = oct_decay_mask(session->context, optimizer, session->parameters, decayed, err);
    free(decayed);
    return status;
}

enum octet_status octet_session_optim_step(octet_session *session,
                                           const struct octet_compute *compute,
                                           const struct octet_optimizer *optimizer,
                                           struct octet_step *out, struct octet_error *err)
{
    struct octet_optimizer own;
    struct oct_optimizer_sets sets = {session->parameters, session->gradients, session->mu,
                                      session->nu};

    if (!optimizer) {
        octet_session_optimizer(session, &own);
        optimizer = &own;
    }
    enum octet_status status = check(session, optimizer, err);
    if (status == OCTET_OK)
        status = octet_cancel_check(compute->cancel, err);
    if (status != OCTET_OK)
        return status;
    bool *decayed = OCTET_NEW_ARRAY(compute->arena, session->parameters->count, bool);
    if (!decayed)
        return octet_arena_exhausted(compute->arena, err);
    status = oct_decay_mask(session->context, optimizer, session->parameters, decayed, err);
    if (status != OCTET_OK)
        return status;
    /* From here on nothing fails. */
    out->learning_rate = oct_learning_rate(optimizer, session->step);
    out->grad_norm = isnan(session->grad_norm)
                         ? oct_global_norm(session->gradients, compute->workers, session->norm_sums)
                         : session->grad_norm;
    oct_optimizer_step(&sets, optimizer, decayed, session->step, out->learning_rate, out->grad_norm,
                       compute->workers);
    if (optimizer->routed_bias_update_rate > 0)
        balance(session, optimizer->routed_bias_update_rate, compute->workers);
    clear_loads(session);
    session->accumulated = 0;
    out->step = ++session->step;
    oct_parameters_digest(session->parameters, compute->workers->pool, out->digest);
    return OCTET_OK;
}
