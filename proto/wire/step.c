/* The methods ForwardBackward, OptimStep and TrainStep: what changes a session's numbers by
 * learning.
 *
 * Decision: everything that can be refused is refused before anything is changed: gradients' room,
 * the optimizer's settings, the reply's size. After that the record of the request is written first
 * and the reply made second, so that a reply that is lost on any way can be asked for again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "wire/pass.h"

/* What the three requests have in common, under one name. */
struct request {
    const char *method, *session_id, *request_id;
    const Octet__V1__Batch *batch; /* with has_pass */
    bool has_pass, has_update;
    Octet__V1__Reduction reduction;
    double denominator;
    size_t pattern_count;
    char *const *patterns;
    Octet__V1__TraceLevel trace_level;
    int64_t step;
    bool return_acceptance;
    const Octet__V1__OptimizerSettings *optimizer;
    struct oct_wire_buffers buffers;
};

struct work {
    const struct octet_call *call;
    const struct request *in;
    octet_held *held;
    struct octet_compute compute;
    struct octet_batch batch;
    struct octet_pass_options options;
    struct oct_wire_gradients gradients;
    struct octet_optimizer optimizer;
    struct octet_pass pass;
    struct octet_step update;
    uint64_t payload;
    const struct oct_wire_applied *before; /* it was applied already */
    bool has_tensors;                      /* a pass has run, now or again */
    struct oct_wire_applied applied;       /* what was done, now or before */
};

/* The reply's tensors, for those that have any. */
struct answer {
    Octet__V1__Losses *losses;
    Octet__V1__NamedTensor **gradients;
    size_t gradient_count;
    Octet__V1__Tensor *logprobs;
    Octet__V1__Trace *trace;
    double *acceptance;
    size_t acceptance_count;
    struct oct_wire_reply reply;
};

/* ---- The optimizer's settings ---- */

#define GIVEN(name, NAME)                                                                          \
    if (in->given_##name##_case == OCTET__V1__OPTIMIZER_SETTINGS__GIVEN_##NAME##_##NAME)           \
    out->name = in->name

static void read_optimizer(const Octet__V1__OptimizerSettings *in, struct octet_optimizer *out)
{
    GIVEN(opt_type, OPT_TYPE);
    GIVEN(learning_rate, LEARNING_RATE);
    GIVEN(cosine_learning_rate_final_fraction, COSINE_LEARNING_RATE_FINAL_FRACTION);
    GIVEN(warmup_steps_fraction, WARMUP_STEPS_FRACTION);
    GIVEN(steps, STEPS);
    GIVEN(learning_rate_schedule_steps, LEARNING_RATE_SCHEDULE_STEPS);
    GIVEN(gradient_clipping_threshold, GRADIENT_CLIPPING_THRESHOLD);
    GIVEN(adam_b1, ADAM_B1);
    GIVEN(adam_b2, ADAM_B2);
    GIVEN(adam_eps, ADAM_EPS);
    GIVEN(adam_eps_root, ADAM_EPS_ROOT);
    GIVEN(adam_weight_decay, ADAM_WEIGHT_DECAY);
    GIVEN(routed_bias_update_rate, ROUTED_BIAS_UPDATE_RATE);
    GIVEN(lr_schedule_type, LR_SCHEDULE_TYPE);
    GIVEN(wsd_decay_steps_fraction, WSD_DECAY_STEPS_FRACTION);
    GIVEN(wsd_decay_style, WSD_DECAY_STYLE);
    if (in->n_adamw_mask) {
        out->adamw_mask = (const char *const *)in->adamw_mask;
        out->adamw_mask_count = in->n_adamw_mask;
    }
}

/* ---- Before ---- */

static uint64_t hash_more(uint64_t hash, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, hash);
}

static uint64_t hash_tensor(uint64_t hash, const Octet__V1__Tensor *tensor,
                            const struct oct_wire_buffers *buffers)
{
    size_t buffer = tensor ? (size_t)tensor->buffer : 0;

    if (!tensor)
        return hash_more(hash, "", 1);
    hash = hash_more(hash, tensor->shape, tensor->n_shape * sizeof *tensor->shape);
    if (buffer > 0 && buffer <= buffers->count)
        return hash_more(hash, buffers->list[buffer - 1].data, buffers->list[buffer - 1].len);
    return hash_more(hash, tensor->data.data, tensor->data.len);
}

/* Of all that makes a request do what it does; never 0. */
static enum octet_status hash_payload(const struct work *w, uint64_t *out, struct octet_error *err)
{
    const struct request *in = w->in;
    uint64_t hash = 1;

    if (in->batch) {
        const Octet__V1__Tensor *tensors[] = {in->batch->tokens,      in->batch->targets,
                                              in->batch->positions,   in->batch->segment_ids,
                                              in->batch->target_mask, in->batch->weights};
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
            hash = hash_tensor(hash, tensors[i], &in->buffers);
    }
    hash = hash_more(hash, &in->reduction, sizeof in->reduction);
    hash = hash_more(hash, &in->denominator, sizeof in->denominator);
    if (in->optimizer) {
        size_t bytes = protobuf_c_message_get_packed_size(&in->optimizer->base);
        uint8_t *packed = octet_arena_alloc(w->call->arena, bytes);
        if (!packed)
            return octet_arena_exhausted(w->call->arena, err);
        hash = hash_more(hash, packed, protobuf_c_message_pack(&in->optimizer->base, packed));
    }
    *out = hash + (hash == 0);
    return OCTET_OK;
}

static enum octet_status find_before(struct work *w, struct octet_error *err)
{
    const struct request *in = w->in;
    enum octet_status status = oct_wire_session(w->call, in->session_id, &w->held, err);

    if (status == OCTET_OK)
        status = oct_wire_check_id(in->request_id, err);
    if (status == OCTET_OK && octet_session_mode(w->held->session) != OCTET_SESSION_TRAIN)
        status = octet_fail(err, OCTET_FAILED_PRECONDITION, "session_id",
                            "%s trains, and the session's mode is SESSION_MODE_INFER", in->method);
    if (status == OCTET_OK)
        status = hash_payload(w, &w->payload, err);
    if (status == OCTET_OK)
        status = oct_wire_find_applied(w->held, in->method, in->request_id, in->step, w->payload,
                                       &w->before, err);
    return status;
}

/* The reply takes its gradients a second time, to be sent, and logprobs and trace. The call is run
 * again with more memory when that is not there; once the session has changed it could not be. */
static enum octet_status check_room(const struct work *w, struct octet_error *err)
{
    enum { SLACK_BYTES = 256 << 10, LINE_BYTES = 1536 };
    const octet_arena *arena = w->call->arena;
    size_t left = octet_arena_budget(arena) - octet_arena_held(arena);
    octet_plan *plan = octet_session_plan(w->held->session);
    uint64_t tokens = (uint64_t)octet_array_elements(&w->batch.tokens);
    uint64_t wanted = w->gradients.bytes + 2 * 4 * tokens + SLACK_BYTES +
                      LINE_BYTES * octet_plan_interception_count(plan);

    if (left >= wanted)
        return OCTET_OK;
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "the reply takes up to %" PRIu64
                      " bytes, but only %zu of limits.request_memory_bytes are left",
                      wanted, left);
}

static enum octet_status prepare_pass(struct work *w, struct octet_error *err)
{
    const struct request *in = w->in;

    w->options = (struct octet_pass_options){
        .numerics = in->trace_level == OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS,
        .return_logprobs = true,
        .return_acceptance = in->return_acceptance,
    };
    enum octet_status status =
        oct_wire_to_reduction(in->reduction, in->denominator, &w->options, err);
    if (status == OCTET_OK)
        status = oct_wire_to_batch(w->call->arena, in->batch, &in->buffers, &w->batch, err);
    if (status == OCTET_OK)
        status = oct_wire_choose_gradients(w->call, w->held->session, in->pattern_count,
                                           in->patterns, &w->gradients, err);
    if (status == OCTET_OK)
        status = check_room(w, err);
    return status;
}

static enum octet_status prepare(struct work *w, struct octet_error *err)
{
    enum octet_status status = oct_wire_compute(w->call, &w->compute, err);

    if (status == OCTET_OK && w->in->has_pass)
        status = prepare_pass(w, err);
    if (status != OCTET_OK || !w->in->has_update)
        return status;
    octet_session_optimizer(w->held->session, &w->optimizer);
    if (w->in->optimizer)
        read_optimizer(w->in->optimizer, &w->optimizer);
    return octet_session_optim_check(w->held->session, &w->optimizer, err);
}

/* ---- Doing it ---- */

static void tell_changed(const struct work *w)
{
    if (w->call->exchange)
        w->call->exchange->has_changed = true;
}

static enum octet_status run_pass(struct work *w, struct octet_error *err)
{
    octet_session *session = w->held->session;
    enum octet_status status =
        octet_session_forward_backward(session, &w->compute, &w->batch, &w->options, &w->pass, err);

    if (status != OCTET_OK)
        return oct_wire_name_batch(err);
    tell_changed(w);
    return oct_wire_read_gradients(session, &w->gradients, err);
}

/* After a pass nothing may stop the update: neither who gave the call up, nor an arena that the
 * pass has filled. */
static enum octet_status run(struct work *w, struct octet_error *err)
{
    enum { UPDATE_BYTES = 64 << 20 };
    bool is_both = w->in->has_pass && w->in->has_update;
    octet_arena *arena = is_both ? octet_arena_create(UPDATE_BYTES) : NULL;
    struct octet_compute compute = w->compute;
    enum octet_status status = OCTET_OK;

    if (is_both) {
        compute.arena = arena;
        compute.cancel = NULL;
        if (!arena)
            return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    if (w->in->has_pass)
        status = run_pass(w, err);
    if (status == OCTET_OK && w->in->has_update) {
        status =
            octet_session_optim_step(w->held->session, &compute, &w->optimizer, &w->update, err);
        if (status == OCTET_OK)
            tell_changed(w);
    }
    octet_arena_destroy(arena);
    return status;
}

static void remember(struct work *w)
{
    struct oct_wire_applied *a = &w->applied;
    const struct octet_pass *pass = &w->pass;

    *a = (struct oct_wire_applied){
        .step = w->in->step,
        .payload = w->payload,
        .step_after = octet_session_step(w->held->session),
        .accumulated = octet_session_accumulated(w->held->session),
        .losses = pass->losses,
        .grad_norm = w->in->has_update ? w->update.grad_norm : pass->grad_norm,
        .learning_rate = w->update.learning_rate,
    };
    snprintf(a->id, sizeof a->id, "%s", w->in->request_id);
    snprintf(a->method, sizeof a->method, "%s", w->in->method);
    memcpy(a->digest, w->update.digest, sizeof a->digest);
    for (size_t i = 0; pass->mtp_acceptance && i < pass->mtp_count; i++)
        if (i < OCT_WIRE_ACCEPTANCE_MAX)
            a->acceptance[a->acceptance_count++] = pass->mtp_acceptance[i];
    oct_wire_add_applied(w->held, a);
}

/* ---- Replies ---- */

static enum octet_status put_pass(const struct work *w, struct answer *out, struct octet_error *err)
{
    const struct octet_call *call = w->call;
    const struct oct_wire_applied *a = &w->applied;

    if (!oct_wire_reply_init(&out->reply, call->arena, &w->in->buffers, w->gradients.count + 1) ||
        !oct_wire_put_losses(call->arena, &a->losses, &out->losses) ||
        !oct_wire_put_numbers(call->arena, a->acceptance, a->acceptance_count,
                              &out->acceptance_count, &out->acceptance))
        return octet_arena_exhausted(call->arena, err);
    if (!w->has_tensors) /* figures alone */
        return OCTET_OK;
    if (!oct_wire_put_array(&out->reply, &w->pass.logprobs, &out->logprobs) ||
        !oct_wire_put_gradients(&out->reply, &w->gradients, &out->gradient_count, &out->gradients))
        return octet_arena_exhausted(call->arena, err);
    return oct_wire_put_pass_trace(call->arena, &w->pass, w->in->trace_level, w->before == NULL,
                                   &out->trace, err);
}

/* The tensors of a reply that was too large to be kept, to the same bits: as long as the parameters
 * are those that the pass ran on, and the gradients those that it left. */
static enum octet_status run_again(struct work *w, struct octet_error *err)
{
    const octet_session *session = w->held->session;
    bool is_unchanged = w->in->has_pass && !w->in->has_update &&
                        w->before->step_after == octet_session_step(session) &&
                        w->before->accumulated == octet_session_accumulated(session);

    if (!is_unchanged)
        return OCTET_OK;
    enum octet_status status = prepare(w, err);
    if (status == OCTET_OK)
        status = octet_session_forward(session, &w->compute, &w->batch, &w->options, &w->pass, err);
    if (status == OCTET_OK)
        status = oct_wire_read_gradients(session, &w->gradients, err);
    w->has_tensors = status == OCTET_OK;
    return status;
}

/* Does the work, or finds what it did the first time. kept: the first reply as it was, or NULL. */
static enum octet_status do_work(struct work *w, const ProtobufCMessageDescriptor *descriptor,
                                 struct answer *answer, ProtobufCMessage **kept,
                                 struct octet_error *err)
{
    enum octet_status status = find_before(w, err);

    *kept = NULL;
    *answer = (struct answer){.trace = NULL};
    if (status != OCTET_OK)
        return status;
    if (w->before) {
        status = oct_wire_kept_reply(w->call, w->held, w->in->request_id, descriptor, kept, err);
        if (status != OCTET_OK || *kept)
            return status;
        w->applied = *w->before;
        status = run_again(w, err);
        if (status != OCTET_OK)
            return status;
    } else {
        status = prepare(w, err);
        if (status == OCTET_OK)
            status = run(w, err);
        if (status != OCTET_OK)
            return status;
        w->has_tensors = w->in->has_pass;
        remember(w);
    }
    return w->in->has_pass ? put_pass(w, answer, err) : OCTET_OK;
}

/* The reply is complete. */
static void finish(struct work *w, ProtobufCMessage *out, ProtobufCMessage **response)
{
    if (!w->before)
        oct_wire_keep_reply(w->held, w->in->request_id, out);
    *response = out;
}

enum octet_status oct_wire_forward_backward(const struct octet_call *call,
                                            const ProtobufCMessage *request,
                                            ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__ForwardBackwardRequest *from =
        (const Octet__V1__ForwardBackwardRequest *)request;
    const struct request in = {
        .method = "ForwardBackward",
        .session_id = from->session_id,
        .request_id = from->request_id,
        .batch = from->batch,
        .has_pass = true,
        .reduction = from->reduction,
        .denominator = from->denominator,
        .pattern_count = from->n_return_gradients,
        .patterns = from->return_gradients,
        .trace_level = from->trace_level,
        .step = from->step,
        .return_acceptance = from->return_acceptance,
        .buffers = {from->buffers, from->n_buffers},
    };
    struct work w = {.call = call, .in = &in};
    struct answer answer;
    ProtobufCMessage *kept;
    Octet__V1__ForwardBackwardResponse *out =
        oct_wire_new(call->arena, &octet__v1__forward_backward_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = do_work(&w, out->base.descriptor, &answer, &kept, err);
    octet_plan_unref(w.pass.plan);
    if (status != OCTET_OK)
        return status;
    if (kept) {
        out = (Octet__V1__ForwardBackwardResponse *)kept;
    } else {
        out->losses = answer.losses;
        out->gradients = answer.gradients;
        out->n_gradients = answer.gradient_count;
        out->logprobs = answer.logprobs;
        out->grad_norm = w.applied.grad_norm;
        out->trace = answer.trace;
        out->mtp_acceptance = answer.acceptance;
        out->n_mtp_acceptance = answer.acceptance_count;
        out->step = w.applied.step_after;
        out->accumulated = w.applied.accumulated;
        out->buffers = answer.reply.list;
        out->n_buffers = answer.reply.count;
        finish(&w, &out->base, response);
    }
    out->replayed = w.before != NULL;
    *response = &out->base;
    return OCTET_OK;
}

enum octet_status oct_wire_train_step(const struct octet_call *call,
                                      const ProtobufCMessage *request, ProtobufCMessage **response,
                                      struct octet_error *err)
{
    const Octet__V1__TrainStepRequest *from = (const Octet__V1__TrainStepRequest *)request;
    const struct request in = {
        .method = "TrainStep",
        .session_id = from->session_id,
        .request_id = from->request_id,
        .batch = from->batch,
        .has_pass = true,
        .has_update = true,
        .reduction = from->reduction,
        .denominator = from->denominator,
        .pattern_count = from->n_return_gradients,
        .patterns = from->return_gradients,
        .trace_level = from->trace_level,
        .step = from->step,
        .return_acceptance = from->return_acceptance,
        .optimizer = from->optimizer,
        .buffers = {from->buffers, from->n_buffers},
    };
    struct work w = {.call = call, .in = &in};
    struct answer answer;
    ProtobufCMessage *kept;
    Octet__V1__TrainStepResponse *out =
        oct_wire_new(call->arena, &octet__v1__train_step_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = do_work(&w, out->base.descriptor, &answer, &kept, err);
    octet_plan_unref(w.pass.plan);
    if (status != OCTET_OK)
        return status;
    if (kept) {
        out = (Octet__V1__TrainStepResponse *)kept;
    } else {
        out->losses = answer.losses;
        out->gradients = answer.gradients;
        out->n_gradients = answer.gradient_count;
        out->logprobs = answer.logprobs;
        out->grad_norm = w.applied.grad_norm;
        out->trace = answer.trace;
        out->mtp_acceptance = answer.acceptance;
        out->n_mtp_acceptance = answer.acceptance_count;
        out->step = w.applied.step_after;
        out->learning_rate = w.applied.learning_rate;
        out->digest = oct_wire_text(call->arena, w.applied.digest);
        if (!out->digest)
            return octet_arena_exhausted(call->arena, err);
        out->buffers = answer.reply.list;
        out->n_buffers = answer.reply.count;
        finish(&w, &out->base, response);
    }
    out->replayed = w.before != NULL;
    *response = &out->base;
    return OCTET_OK;
}

enum octet_status oct_wire_optim_step(const struct octet_call *call,
                                      const ProtobufCMessage *request, ProtobufCMessage **response,
                                      struct octet_error *err)
{
    const Octet__V1__OptimStepRequest *from = (const Octet__V1__OptimStepRequest *)request;
    const struct request in = {
        .method = "OptimStep",
        .session_id = from->session_id,
        .request_id = from->request_id,
        .has_update = true,
        .step = from->step,
        .optimizer = from->optimizer,
    };
    struct work w = {.call = call, .in = &in};
    struct answer answer;
    ProtobufCMessage *kept;
    Octet__V1__OptimStepResponse *out =
        oct_wire_new(call->arena, &octet__v1__optim_step_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = do_work(&w, out->base.descriptor, &answer, &kept, err);
    if (status != OCTET_OK)
        return status;
    if (kept) {
        out = (Octet__V1__OptimStepResponse *)kept;
    } else {
        out->step = w.applied.step_after;
        out->learning_rate = w.applied.learning_rate;
        out->grad_norm = w.applied.grad_norm;
        out->digest = oct_wire_text(call->arena, w.applied.digest);
        if (!out->digest)
            return octet_arena_exhausted(call->arena, err);
        finish(&w, &out->base, response);
    }
    out->replayed = w.before != NULL;
    *response = &out->base;
    return OCTET_OK;
}
