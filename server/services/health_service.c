/* grpc.health.v1 on a lane. Check answers here; Watch only finds out which service is meant, and
 * the loop keeps the stream. */
#include "grpc/health/v1/health.pb-c.h"
#include "job.h"
#include "services/services.h"
#include "wire/methods.h"

static enum octet_status read_service(struct job *job, int *service, const char **name,
                                      struct octet_error *err)
{
    ProtobufCMessage *message;
    enum octet_status status =
        octet_wire_decode(&grpc__health__v1__health_check_request__descriptor, job->arena,
                          job->bytes, job->length, &message, err);

    if (status == OCTET_OK) {
        *name = ((Grpc__Health__V1__HealthCheckRequest *)message)->service;
        *service = health_service(*name);
    }
    return status;
}

enum octet_status health_service_check(struct job *job, struct octet_error *err)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const char *name;
    int service;
    enum octet_status status = read_service(job, &service, &name, err);

    if (status != OCTET_OK)
        return status;
    if (service < 0)
        return octet_fail(err, OCTET_NOT_FOUND, "service",
                          "'%.100s' is not served here; expected '' or 'octet.v1.Octet'", name);
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)health_status(
        job->method->data, service);
    return job_reply(job, &response.base, err);
}

enum octet_status health_service_watch(struct job *job, struct octet_error *err)
{
    const char *name;
    int service;
    enum octet_status status = read_service(job, &service, &name, err);

    if (status == OCTET_OK)
        job->answer = service;
    return status;
}
