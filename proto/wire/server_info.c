/* The GetServerInfo method. Texts are the process's own and outlive every call. */
#include <string.h>

#include "wire/convert.h"

static bool put_limits(const struct octet_call *call, Octet__V1__GetServerInfoResponse *out)
{
    const struct octet_server_facts *facts = call->facts;
    const struct octet_limits *limits = octet_context_limits(call->context);

    out->limits = oct_wire_new(call->arena, &octet__v1__limits__descriptor);
    if (!out->limits)
        return false;
    out->limits->max_message_bytes = (int64_t)facts->message_bytes_max;
    out->limits->request_memory_bytes = (int64_t)facts->request_memory_bytes;
    out->limits->queue_length = (int64_t)facts->queue_length;
    out->limits->config_request_bytes = (int64_t)facts->config_request_bytes;
    out->limits->sessions = (int64_t)facts->sessions;
    out->limits->session_memory_bytes = (int64_t)facts->session_memory_bytes;
    out->limits->lanes = facts->lanes;
    out->limits->graph_nodes = limits->graph_nodes;
    out->limits->rules = limits->rules;
    out->limits->yaml_bytes = limits->yaml_bytes;
    return true;
}

static bool put_models(octet_arena *arena, Octet__V1__GetServerInfoResponse *out)
{
    size_t count = octet_model_count();

    out->models = OCTET_NEW_ARRAY(arena, count, char *);
    if (!out->models)
        return false;
    for (size_t i = 0; i < count; i++)
        out->models[i] = (char *)octet_model_name(i);
    out->n_models = count;
    return true;
}

/* "cpu", "cuda", "cuda:1". */
static bool put_backends(const struct octet_call *call, Octet__V1__GetServerInfoResponse *out)
{
    const struct octet_server_facts *facts = call->facts;

    out->backends = OCTET_NEW_ARRAY(call->arena, facts->backend_count, char *);
    if (!out->backends)
        return false;
    for (size_t i = 0; i < facts->backend_count; i++) {
        const struct octet_server_backend *b = &facts->backends[i];
        bool is_first = strcmp(b->device, "0") == 0;
        out->backends[i] = octet_arena_format(call->arena, "%s%s%s", b->name, is_first ? "" : ":",
                                              is_first ? "" : b->device);
        if (!out->backends[i])
            return false;
    }
    out->n_backends = facts->backend_count;
    return true;
}

enum octet_status oct_wire_get_server_info(const struct octet_call *call,
                                           const ProtobufCMessage *request,
                                           ProtobufCMessage **response, struct octet_error *err)
{
    const struct octet_server_facts *facts = call->facts;
    Octet__V1__GetServerInfoResponse *out =
        oct_wire_new(call->arena, &octet__v1__get_server_info_response__descriptor);

    (void)request; /* it has no fields */
    if (!out || !put_limits(call, out) || !put_models(call->arena, out) || !put_backends(call, out))
        return octet_arena_exhausted(call->arena, err);
    out->version = (char *)octet_version();
    out->git_commit = (char *)octet_git_commit();
    if (facts->kernels)
        out->kernels = (char *)facts->kernels;
    out->cpu_features = (char **)facts->cpu_features;
    out->n_cpu_features = facts->cpu_feature_count;
    out->accumulations = (char **)facts->accumulations;
    out->n_accumulations = facts->accumulation_count;
    *response = &out->base;
    return OCTET_OK;
}
