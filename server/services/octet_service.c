/* octet.v1.Octet on a lane: bytes -> message -> the method -> message -> bytes. The methods
 * themselves are proto/wire's; nothing here knows one by name. */
#include <stdlib.h>

#include "job.h"
#include "services/services.h"
#include "sessions.h"
#include "wire/methods.h"

enum octet_status octet_service_run(struct job *job, struct octet_error *err)
{
    const struct octet_method *method = job->method->method;
    const struct octet_call call = {
        .context = job->settings->context,
        .arena = job->arena,
        .cancel = &job->cancel,
        .facts = job->settings->facts,
        .workers = job->workers,
        .host = job->settings->host,
        .session = job->held,
        .exchange = job->exchange,
    };
    ProtobufCMessage *request = NULL, *response;
    enum octet_status status = OCTET_OK;

    if (job->has_body)
        status = octet_wire_decode_in_place(method->request, job->arena, job->bytes, job->length,
                                            &request, err);
    if (status == OCTET_OK)
        status = method->run(&call, request, &response, err);
    if (status == OCTET_OK && !(method->shape == OCTET_METHOD_UPLOAD && request))
        status = job_reply(job, response, err);
    if (status == OCTET_OK && method->access == OCTET_ACCESS_END)
        sessions_retire(job->settings->sessions, job->held);
    return status;
}

enum octet_status octet_service_prepare(struct method *method, const struct job_settings *settings,
                                        struct octet_error *err)
{
    struct octet_cancel never = {.deadline_ns = 0};
    struct octet_call call = {
        .context = settings->context, .cancel = &never, .facts = settings->facts};
    ProtobufCMessage *request, *response;

    /* With a failure to be injected, every call is to take the whole way. */
    if (!method->method->is_constant || settings->fail_alloc)
        return OCTET_OK;
    call.arena = octet_arena_create(method->memory_bytes);
    if (!call.arena)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    enum octet_status status =
        octet_wire_decode(method->method->request, call.arena, NULL, 0, &request, err);
    if (status == OCTET_OK)
        status = method->method->run(&call, request, &response, err);
    if (status == OCTET_OK) {
        method->constant_length = protobuf_c_message_get_packed_size(response);
        method->constant = malloc(method->constant_length + 1);
        if (method->constant)
            protobuf_c_message_pack(response, method->constant);
        else
            status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    octet_arena_destroy(call.arena);
    return status;
}
