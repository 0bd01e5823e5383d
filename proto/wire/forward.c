/* The method Forward. */
#include "wire/pass.h"

static struct octet_pass_options options_of(const Octet__V1__ForwardRequest *in)
{
    return (struct octet_pass_options){
        .numerics = in->trace_level == OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS,
        .return_logits = in->return_logits,
        .return_mtp_logits = in->return_mtp_logits,
        .return_hidden = in->return_hidden,
        .return_logprobs = in->return_logprobs,
        .return_acceptance = true,
    };
}

static bool put_mtp_logits(struct oct_wire_reply *reply, const struct octet_pass *pass,
                           Octet__V1__ForwardResponse *out)
{
    size_t count = pass->mtp_logits ? pass->mtp_count : 0;

    out->mtp_logits = OCTET_NEW_ARRAY(reply->arena, count, Octet__V1__Tensor *);
    if (!out->mtp_logits)
        return false;
    for (size_t i = 0; i < count; i++) {
        Octet__V1__Tensor *tensor;
        if (!oct_wire_put_array(reply, &pass->mtp_logits[i], &tensor))
            return false;
        if (tensor) /* not asked for: no data */
            out->mtp_logits[out->n_mtp_logits++] = tensor;
    }
    return true;
}

static enum octet_status answer(const struct octet_call *call, const Octet__V1__ForwardRequest *in,
                                const octet_held *held, const struct octet_pass *pass,
                                Octet__V1__ForwardResponse *out, struct octet_error *err)
{
    const struct oct_wire_buffers buffers = {in->buffers, in->n_buffers};
    struct oct_wire_reply reply;

    if (!oct_wire_reply_init(&reply, call->arena, &buffers, pass->mtp_count + 3) ||
        !oct_wire_put_array(&reply, &pass->logits, &out->logits) ||
        !oct_wire_put_array(&reply, &pass->hidden, &out->hidden) ||
        !oct_wire_put_array(&reply, &pass->logprobs, &out->logprobs) ||
        !put_mtp_logits(&reply, pass, out) ||
        !oct_wire_put_losses(call->arena, &pass->losses, &out->losses) ||
        !oct_wire_put_numbers(call->arena, pass->mtp_acceptance, pass->mtp_count,
                              &out->n_mtp_acceptance, &out->mtp_acceptance))
        return octet_arena_exhausted(call->arena, err);
    out->step = octet_session_step(held->session);
    out->buffers = reply.list;
    out->n_buffers = reply.count;
    return oct_wire_put_pass_trace(call->arena, pass, in->trace_level, false, &out->trace, err);
}

/* Results are made after the pass, and a pass without room for them would be run again: a first
 * look, by the vocabulary's size, is enough to ask for more at once. */
static enum octet_status check_room(const struct octet_call *call,
                                    const Octet__V1__ForwardRequest *in, const octet_held *held,
                                    const struct octet_batch *batch, struct octet_error *err)
{
    const octet_parameters *all = octet_session_tensors(held->session, OCTET_SET_PARAMETER);
    size_t table = octet_parameters_find(all, "token_embedder/embedding");
    size_t left = octet_arena_budget(call->arena) - octet_arena_held(call->arena);
    struct octet_array shape;
    const char *name;

    if (table == SIZE_MAX)
        return OCTET_OK;
    octet_parameters_describe(all, table, &name, &shape); /* [vocabulary, embedding] */
    uint64_t tokens = (uint64_t)octet_array_elements(&batch->tokens), a_token = 4;
    if (in->return_logits)
        a_token += 4 * (uint64_t)shape.dim[0];
    if (in->return_mtp_logits)
        a_token += 4 * (uint64_t)shape.dim[0];
    if (in->return_hidden)
        a_token += 4 * (uint64_t)shape.dim[1];
    if (tokens * a_token * 2 <= left) /* once as results, once on their way */
        return OCTET_OK;
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "the reply takes %llu bytes twice, but only %zu of "
                      "limits.request_memory_bytes are left",
                      (unsigned long long)(tokens * a_token), left);
}

enum octet_status oct_wire_forward(const struct octet_call *call, const ProtobufCMessage *request,
                                   ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__ForwardRequest *in = (const Octet__V1__ForwardRequest *)request;
    const struct oct_wire_buffers buffers = {in->buffers, in->n_buffers};
    struct octet_pass_options options = options_of(in);
    struct octet_compute compute;
    struct octet_batch batch;
    struct octet_pass pass = {.plan = NULL};
    octet_held *held;
    Octet__V1__ForwardResponse *out =
        oct_wire_new(call->arena, &octet__v1__forward_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = oct_wire_session(call, in->session_id, &held, err);
    if (status == OCTET_OK)
        status = oct_wire_compute(call, &compute, err);
    if (status == OCTET_OK)
        status = oct_wire_to_reduction(in->reduction, in->denominator, &options, err);
    if (status == OCTET_OK)
        status = oct_wire_to_batch(call->arena, in->batch, &buffers, &batch, err);
    if (status == OCTET_OK)
        status = check_room(call, in, held, &batch, err);
    if (status != OCTET_OK)
        return status;
    status = octet_session_forward(held->session, &compute, &batch, &options, &pass, err);
    if (status != OCTET_OK) {
        status = oct_wire_name_batch(err);
    } else {
        status = answer(call, in, held, &pass, out, err);
        octet_plan_unref(pass.plan);
    }
    *response = &out->base;
    return status;
}
