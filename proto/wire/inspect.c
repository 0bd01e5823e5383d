/* The Inspect method: parameters, and what one training step needs.
 *
 * Memory is that of the unsharded model: gradients are kept in grad_dtype, AdamW's first moment in
 * mu_dtype (weight_dtype when unset) and its second in weight_dtype; plain SGD keeps nothing.
 * Source: MaxText's keys grad_dtype, mu_dtype, opt_type; optax scale_by_adam. */
#include <string.h>

#include "wire/convert.h"

static int dtype_bits(const char *name)
{
    return name ? octet_dtype_bits(octet_dtype_find(name)) : 0;
}

/* Bytes of one value a parameter, kept in the dtype that `key` names, or in weight_dtype. */
static int64_t bytes_as(const struct octet_call *call, const octet_config *config, const char *key,
                        const struct octet_plan_totals *totals)
{
    int bits = dtype_bits(oct_wire_setting(call->arena, config, key, NULL));
    int64_t bytes;

    if (!bits)
        return totals->parameter_bytes;
    if (__builtin_mul_overflow(totals->parameters, bits, &bytes))
        return INT64_MAX;
    return bytes / 8;
}

static int64_t optimizer_bytes(const struct octet_call *call, const octet_config *config,
                               const struct octet_plan_totals *totals)
{
    const char *type = oct_wire_setting(call->arena, config, "opt_type", NULL);
    int64_t bytes;

    if (type && strcmp(type, "sgd") == 0)
        return 0;
    if (__builtin_add_overflow(bytes_as(call, config, "mu_dtype", totals), totals->parameter_bytes,
                               &bytes))
        return INT64_MAX;
    return bytes;
}

/* The two lists of dtypes are one list: proto numbers follow OCTET_DTYPES. */
#define SAME(name, text, bits)                                                                     \
    _Static_assert((int)OCTET_DTYPE_##name == (int)OCTET__V1__DATA_TYPE__DATA_TYPE_##name, #name);
OCTET_DTYPES(SAME)

bool oct_wire_put_parameters(octet_arena *arena, const octet_plan *plan, size_t *n,
                             Octet__V1__Parameter ***out)
{
    size_t count = octet_plan_parameter_count(plan);
    ProtobufCMessage **list;

    if (!oct_wire_new_list(arena, &octet__v1__parameter__descriptor, count, &list))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct octet_tensor *from = octet_plan_parameter(plan, i);
        struct octet_shape shape = octet_parameter_shape(from);
        Octet__V1__Parameter *to = (Octet__V1__Parameter *)list[i];
        to->name = oct_wire_text(arena, from->name);
        to->dtype = (Octet__V1__DataType)from->dtype;
        to->bytes = octet_tensor_bytes(from);
        if (!to->name ||
            !oct_wire_put_shape(arena, &shape, &to->n_shape, &to->shape, &to->n_axes, &to->axes))
            return false;
    }
    *n = count;
    *out = (Octet__V1__Parameter **)list;
    return true;
}

/* What a session of the model would take; of one that cannot be run, why not. */
static enum octet_status put_estimate(const struct octet_call *call, const octet_config *config,
                                      const Octet__V1__InspectRequest *in,
                                      Octet__V1__InspectResponse *out, struct octet_error *err)
{
    const struct octet_session_options options = {
        .mode = in->mode == OCTET__V1__SESSION_MODE__SESSION_MODE_INFER ? OCTET_SESSION_INFER
                                                                        : OCTET_SESSION_TRAIN,
        .batch_size = out->batch_size,
        .sequence_length = out->sequence_length,
        .threads = call->workers ? octet_workers_threads(call->workers) : 0};
    struct octet_session_memory memory;
    struct octet_error obstacle = {0};
    octet_rules *rules = NULL;
    enum octet_status status = oct_wire_rules(call, in->n_rules, in->rules, &rules, err);

    if (status != OCTET_OK)
        return status;
    status = octet_session_estimate(call->context, config, rules, &options, &memory, &obstacle);
    octet_rules_unref(rules);
    if (status == OCTET_OK)
        return oct_wire_put_memory(call->arena, &memory, &out->memory)
                   ? OCTET_OK
                   : octet_arena_exhausted(call->arena, err);
    out->obstacle = oct_wire_text(call->arena, obstacle.text);
    return out->obstacle ? OCTET_OK : octet_arena_exhausted(call->arena, err);
}

enum octet_status oct_wire_inspect(const struct octet_call *call, const ProtobufCMessage *request,
                                   ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__InspectRequest *in = (const Octet__V1__InspectRequest *)request;
    Octet__V1__InspectResponse *out =
        oct_wire_new(call->arena, &octet__v1__inspect_response__descriptor);
    struct octet_graph_options sizes;
    const octet_config *config;
    octet_plan *plan = NULL;
    enum octet_status status;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    status = oct_wire_sizes(in->batch_size, in->sequence_length, &sizes, err);
    if (status == OCTET_OK)
        status = oct_wire_config(call, in->model, "model", &config, err);
    if (status != OCTET_OK)
        return status;
    status = octet_plan_create(call->context, config, NULL, &sizes, call->cancel, &plan, err);
    if (status != OCTET_OK)
        return oct_wire_name_key(call, config, "model", err);
    if (oct_wire_put_parameters(call->arena, plan, &out->n_parameters, &out->parameters)) {
        const struct octet_plan_totals *totals = octet_plan_totals(plan);
        out->parameter_count = totals->parameters;
        out->parameter_bytes = totals->parameter_bytes;
        out->gradient_bytes = bytes_as(call, config, "grad_dtype", totals);
        out->optimizer_bytes = optimizer_bytes(call, config, totals);
        out->activation_bytes = totals->activation_bytes;
        out->flops_forward = totals->flops_forward;
        out->flops_backward = totals->flops_backward;
        out->batch_size = totals->batch_size;
        out->sequence_length = totals->sequence_length;
        status = put_estimate(call, config, in, out, err);
        *response = &out->base;
    } else {
        status = octet_arena_exhausted(call->arena, err);
    }
    octet_plan_unref(plan);
    return status;
}
