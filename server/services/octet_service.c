/* octet.v1.Octet on a lane: bytes -> message -> the method -> message -> bytes. The methods
 * themselves are proto/wire's; nothing here knows one by name. */
#include "job.h"
#include "services/services.h"
#include "wire/methods.h"

enum octet_status octet_service_run(struct job *job, struct octet_error *err)
{
    const struct octet_method *method = job->method->method;
    const struct octet_call call = {
        .context = job->settings->context,
        .arena = job->arena,
        .cancel = &job->cancel,
        .facts = job->settings->facts,
    };
    ProtobufCMessage *request, *response;
    enum octet_status status =
        octet_wire_decode(method->request, job->arena, job->bytes, job->length, &request, err);

    if (status == OCTET_OK)
        status = method->run(&call, request, &response, err);
    if (status == OCTET_OK)
        status = job_reply(job, response, err);
    return status;
}
