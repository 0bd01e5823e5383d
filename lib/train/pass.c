/* Forward passes, and forward passes with gradients; see octet/session.h. */
#include <inttypes.h>
#include <string.h>

#include "models/settings.h"
#include "train/microbatch.h"
#include "train/optimizer.h"
#include "train/session_private.h"

/* ---- One run ---- */

/* What a call gives to each of its runs. */
struct pass {
    const octet_session *session;
    const struct octet_compute *compute;
    const struct octet_pass_options *options;
    bool backward;
    enum oct_reduction reduction;
    double denominator;
    octet_parameters *gradients; /* NULL: forward only */
};

static int threads_of(const struct pass *p)
{
    int given = octet_workers_threads(p->compute->workers);

    return given > p->session->options.threads ? given : p->session->options.threads;
}

/* batch: complete. The plan gets a reference. */
static enum octet_status run(const struct pass *p, const struct octet_batch *batch,
                             bool gradients_are_zero, struct oct_run_result *result,
                             octet_plan **plan, struct octet_error *err)
{
    const octet_session *s = p->session;
    oct_program *program;
    void *block = NULL;
    enum octet_status status = oct_session_program(s, batch->tokens.dim[0], batch->tokens.dim[1],
                                                   p->backward, threads_of(p), &program, err);

    if (status != OCTET_OK)
        return status;
    uint64_t bytes = oct_program_block_bytes(program);
    if (s->options.mode == OCTET_SESSION_INFER)
        status = oct_session_hold(s, program, p->compute, err);
    if (status == OCTET_OK)
        status = oct_session_take_block(s, bytes, &block, err);
    if (status == OCTET_OK) {
        struct oct_run run = {
            .compute = p->compute,
            .parameters = s->parameters,
            .gradients = p->gradients,
            .prepared = s->prepared,
            .backend = s->options.backend,
            .weights = s->weights,
            .batch = batch,
            .block = block,
            .reduction = p->reduction,
            .denominator = p->denominator,
            .step = s->step,
            .accumulation = s->options.accumulation,
            .numerics = p->options->numerics,
            .times = p->options->times,
            .gradients_are_zero = gradients_are_zero,
            .want_logits = p->options->return_logits,
            .want_mtp_logits = p->options->return_mtp_logits,
            .want_hidden = p->options->return_hidden,
            .want_logprobs = p->options->return_logprobs,
            .want_acceptance = p->options->return_acceptance,
        };
        *result = (struct oct_run_result){.total = 0};
        status = oct_program_run(program, &run, result, err);
        oct_session_give_block(s, block, bytes);
    }
    if (status == OCTET_OK)
        *plan = octet_plan_ref(oct_program_plan(program));
    oct_program_unref(program);
    return status;
}

/* ---- What a call returns ---- */

static enum octet_status copy_figures(const struct oct_run_result *r, size_t lines,
                                      octet_arena *arena, struct octet_pass *out,
                                      struct octet_error *err)
{
    struct octet_line_figures *figures;

    if (!r->figures)
        return OCTET_OK;
    figures = OCTET_NEW_ARRAY(arena, lines, struct octet_line_figures);
    if (!figures)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < lines; i++) {
        figures[i].lhs = r->figures[i].lhs;
        figures[i].rhs = r->figures[i].rhs;
        figures[i].cotangent = r->figures[i].cotangent;
        memcpy(figures[i].digest, r->figures[i].digest, sizeof figures[i].digest);
    }
    out->figures = figures;
    return OCTET_OK;
}

static enum octet_status copy_acceptance(const struct pass *p, const struct oct_run_result *r,
                                         struct octet_pass *out, struct octet_error *err)
{
    if (!p->options->return_acceptance)
        return OCTET_OK;
    out->mtp_acceptance = OCTET_NEW_ARRAY(p->compute->arena, r->mtp_layers, double);
    if (!out->mtp_acceptance)
        return octet_arena_exhausted(p->compute->arena, err);
    for (size_t i = 0; i < r->mtp_layers; i++)
        if (r->mtp_drafted[i])
            out->mtp_acceptance[i] = (double)r->mtp_accepted[i] / (double)r->mtp_drafted[i];
    return OCTET_OK;
}

static enum octet_status report(const struct pass *p, const struct oct_run_result *r,
                                octet_plan *plan, struct octet_pass *out, struct octet_error *err)
{
    *out = (struct octet_pass){
        .losses = {.total = r->total,
                   .main = r->main,
                   .mtp = r->mtp,
                   .load_balance = r->load_balance,
                   .weight_sum = r->weight_sum,
                   .mtp_weight_sum = r->mtp_weight_sum,
                   .has_mtp = r->has_mtp,
                   .has_load_balance = r->has_load_balance},
        .logits = r->logits,
        .hidden = r->hidden,
        .logprobs = r->logprobs,
        .mtp_logits = r->mtp_logits,
        .mtp_count = r->mtp_layers,
        .plan = plan,
        .counts = r->counts,
        .is_fast = r->is_fast,
        .times = r->times,
        .time_count = r->time_count,
    };
    enum octet_status status =
        copy_figures(r, octet_plan_interception_count(plan), p->compute->arena, out, err);
    return status == OCTET_OK ? copy_acceptance(p, r, out, err) : status;
}

static enum octet_status begin(const octet_session *session, const struct octet_compute *compute,
                               const struct octet_batch *batch,
                               const struct octet_pass_options *options, struct pass *p,
                               struct octet_batch *complete, struct octet_error *err)
{
    bool sums = options->reduction == OCTET_REDUCTION_SUM;

    if (sums && !(options->denominator > 0))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "denominator",
                          "%g; the sum of the losses needs one above 0", options->denominator);
    *p = (struct pass){.session = session,
                       .compute = compute,
                       .options = options,
                       .reduction = sums ? OCT_REDUCE_SUM : OCT_REDUCE_MEAN,
                       .denominator = options->denominator};
    return octet_batch_complete(batch, oct_config_dims(session->config)->vocab_size, compute->arena,
                                complete, err);
}

enum octet_status octet_session_forward(const octet_session *session,
                                        const struct octet_compute *compute,
                                        const struct octet_batch *batch,
                                        const struct octet_pass_options *options,
                                        struct octet_pass *out, struct octet_error *err)
{
    struct pass p;
    struct octet_batch complete;
    struct oct_run_result result;
    octet_plan *plan;
    enum octet_status status = begin(session, compute, batch, options, &p, &complete, err);

    if (status == OCTET_OK)
        status = run(&p, &complete, false, &result, &plan, err);
    if (status != OCTET_OK)
        return status;
    status = report(&p, &result, plan, out, err);
    if (status != OCTET_OK)
        octet_plan_unref(plan);
    return status;
}

/* ---- Gradients ---- */

/* Tokens of each expert, for the routers' biases. */
static void add_loads(octet_session *s, const struct oct_run_result *r)
{
    for (size_t i = 0; i < r->load_count; i++) {
        const struct oct_expert_load *load = &r->loads[i];
        if (load->bias >= s->parameters->count || !s->loads[load->bias])
            continue;
        int64_t *sum = s->loads[load->bias] + load->layer * load->experts;
        for (int64_t e = 0; e < load->experts; e++)
            sum[e] += load->count[e];
    }
}

/* Gradients of a call go to the session's set when it is empty; else to a second one, which is
 * added when all is well. The second one is no part of the
 * planned peak: a session at its limit cannot accumulate over calls. */
static enum octet_status choose_gradients(octet_session *s, struct pass *p, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (!s->accumulated && s->pending && (s->options.memory_limit_bytes || s->options.account))
        oct_session_drop_pending(s); /* limit and account were planned without it */
    if (s->accumulated && !s->pending)
        status = oct_session_add_pending(s, err);
    p->gradients = s->accumulated ? s->pending : s->gradients;
    return status;
}

/* MaxText, gradient_accumulation.py: each microbatch's gradient is of the sum of its main losses
 * plus its other losses' means, and their sum is divided by the weights of all; the losses it tells
 * are the main sum over the weights and the others' means over microbatches. */
static void finish_microbatches(const struct pass *p, int64_t count, struct oct_run_result *all,
                                float *factor)
{
    bool sums = p->reduction == OCT_REDUCE_SUM;
    double weights = all->weight_sum > 1 ? all->weight_sum : 1;

    *factor = sums ? 1 : all->weight_sum > 0 ? (float)(1 / weights) : 0;
    all->main = all->main_sum / (sums ? p->denominator : weights);
    if (!sums) {
        all->mtp /= (double)count;
        all->load_balance /= (double)count;
    }
    all->total = *factor > 0 ? all->main + all->mtp + all->load_balance : 0;
}

/* parts: [microbatches], the result of each. */
static enum octet_status run_microbatches(struct pass *p, const struct octet_batch *batch,
                                          struct oct_run_result *parts, struct oct_run_result *all,
                                          octet_plan **plan, float *factor, struct octet_error *err)
{
    int64_t count = p->session->microbatches;
    octet_arena *arena = p->compute->arena;
    struct octet_batch part;
    enum octet_status status = OCTET_OK;

    if (batch->tokens.dim[0] % count)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "tokens",
                          "%" PRId64
                          " rows cannot be split into gradient_accumulation_steps=%" PRId64
                          " equal parts",
                          batch->tokens.dim[0], count);
    if (p->reduction == OCT_REDUCE_MEAN) {
        p->reduction = OCT_REDUCE_MAIN_SUM;
        p->denominator = 1;
    }
    for (int64_t j = 0; j < count && status == OCTET_OK; j++) {
        octet_plan_unref(*plan);
        *plan = NULL;
        status = oct_microbatch_take(batch, j, count, arena, &part, err);
        if (status == OCTET_OK)
            status = run(p, &part, j == 0, &parts[j], plan, err);
        if (status == OCTET_OK)
            status = oct_microbatch_collect(&parts[j], j, count, arena, all, err);
    }
    if (status == OCTET_OK)
        finish_microbatches(p, count, all, factor);
    return status;
}

static enum octet_status run_all(struct pass *p, const struct octet_batch *batch,
                                 struct oct_run_result *parts, struct octet_pass *out,
                                 float *factor, struct octet_error *err)
{
    struct oct_run_result all;
    octet_plan *plan = NULL;
    enum octet_status status;

    *factor = 1;
    if (p->session->microbatches > 1) {
        status = run_microbatches(p, batch, parts, &all, &plan, factor, err);
    } else {
        status = run(p, batch, true, parts, &plan, err);
        all = *parts;
    }
    if (status == OCTET_OK)
        status = report(p, &all, plan, out, err);
    if (status != OCTET_OK)
        octet_plan_unref(plan);
    return status;
}

static enum octet_status check_mode(const octet_session *session, struct octet_error *err)
{
    if (session->options.mode == OCTET_SESSION_TRAIN)
        return OCTET_OK;
    return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                      "the session's mode is INFER; gradients need TRAIN");
}

enum octet_status octet_session_forward_backward(octet_session *session,
                                                 const struct octet_compute *compute,
                                                 const struct octet_batch *batch,
                                                 const struct octet_pass_options *options,
                                                 struct octet_pass *out, struct octet_error *err)
{
    struct pass p;
    struct octet_batch complete;
    float factor;
    enum octet_status status = check_mode(session, err);

    if (status == OCTET_OK)
        status = begin(session, compute, batch, options, &p, &complete, err);
    if (status != OCTET_OK)
        return status;
    p.backward = true;
    struct oct_run_result *parts =
        OCTET_NEW_ARRAY(compute->arena, session->microbatches, struct oct_run_result);
    if (!parts)
        return octet_arena_exhausted(compute->arena, err);
    status = choose_gradients(session, &p, err);
    if (status != OCTET_OK)
        return status;
    status = run_all(&p, &complete, parts, out, &factor, err);
    if (status != OCTET_OK)
        return status;
    for (int64_t j = 0; j < session->microbatches; j++)
        add_loads(session, &parts[j]);
    oct_parameters_add_scaled(p.gradients, factor, session->gradients, compute->workers);
    session->accumulated++;
    session->grad_norm = oct_global_norm(session->gradients, compute->workers, session->norm_sums);
    out->grad_norm = session->grad_norm;
    return OCTET_OK;
}
