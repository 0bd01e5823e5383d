/* octetd with more methods, "Sleep", "SleepReading" and "SleepChanging", for tests of what happens
 * while a call runs. The shipped daemon has the same code and no such methods: a server is started
 * with the table of methods that it is given.
 *
 * Sleep takes a TraceRequest: batch_size = milliseconds to run, sequence_length = bytes to take
 * from the arena first, strict = do not listen to cancellation. It answers with parameters =
 * milliseconds it ran.
 *
 * The other two take a ForwardRequest: a session, and denominator = milliseconds to have it. They
 * answer with step = the place in the order in which such calls began, and mtp_acceptance[0] = how
 * many ran together when this one did, at most. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "octet/v1/octet.pb-c.h"
#include "octetd.h"
#include "wire/convert.h"
#include "wire/held.h"

static enum octet_status run_sleep(const struct octet_call *call, const ProtobufCMessage *message,
                                   ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__TraceRequest *request = (const Octet__V1__TraceRequest *)message;
    Octet__V1__TraceResponse *out = OCTET_NEW(call->arena, Octet__V1__TraceResponse);
    uint64_t start = octet_now_ns(), length = (uint64_t)request->batch_size * 1000000;

    if (!out || !octet_arena_alloc(call->arena, (size_t)request->sequence_length))
        return octet_arena_exhausted(call->arena, err);
    while (octet_now_ns() - start < length) {
        enum octet_status status = octet_cancel_check(call->cancel, err);
        if (status != OCTET_OK && !request->strict)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    octet__v1__trace_response__init(out);
    out->parameters = (int64_t)((octet_now_ns() - start) / 1000000);
    *response = &out->base;
    return OCTET_OK;
}

static enum octet_status run_with_session(const struct octet_call *call,
                                          const ProtobufCMessage *message,
                                          ProtobufCMessage **response, struct octet_error *err)
{
    static _Atomic int64_t begun, running;
    const Octet__V1__ForwardRequest *request = (const Octet__V1__ForwardRequest *)message;
    Octet__V1__ForwardResponse *out =
        oct_wire_new(call->arena, &octet__v1__forward_response__descriptor);
    double *most = OCTET_NEW_ARRAY(call->arena, 1, double);
    octet_held *held;
    enum octet_status status = oct_wire_session(call, request->session_id, &held, err);

    if (status != OCTET_OK || !out || !most)
        return status != OCTET_OK ? status : octet_arena_exhausted(call->arena, err);
    uint64_t end = octet_now_ns() + (uint64_t)request->denominator * 1000000;
    out->step = atomic_fetch_add(&begun, 1);
    atomic_fetch_add(&running, 1);
    while (status == OCTET_OK && octet_now_ns() < end) {
        double now = (double)atomic_load(&running);
        *most = now > *most ? now : *most;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        status = octet_cancel_check(call->cancel, err);
    }
    atomic_fetch_sub(&running, 1);
    out->mtp_acceptance = most;
    out->n_mtp_acceptance = 1;
    *response = &out->base;
    return status;
}

static struct octet_method on_session(const char *name, enum octet_access access)
{
    return (struct octet_method){.name = name,
                                 .request = &octet__v1__forward_request__descriptor,
                                 .response = &octet__v1__forward_response__descriptor,
                                 .run = run_with_session,
                                 .access = access};
}

int main(int argc, char **argv)
{
    struct octet_method *methods = calloc(octet_method_count + 3, sizeof *methods);

    memcpy(methods, octet_methods, octet_method_count * sizeof *methods);
    methods[octet_method_count] =
        (struct octet_method){.name = "Sleep",
                              .request = &octet__v1__trace_request__descriptor,
                              .response = &octet__v1__trace_response__descriptor,
                              .run = run_sleep};
    methods[octet_method_count + 1] = on_session("SleepReading", OCTET_ACCESS_READ);
    methods[octet_method_count + 2] = on_session("SleepChanging", OCTET_ACCESS_CHANGE);
    int status = octetd_main(argc, argv, methods, octet_method_count + 3);
    free(methods);
    return status;
}
