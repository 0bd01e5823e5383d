/* octetd with one more method, "Sleep", for tests of what happens while a call runs. The shipped
 * daemon has the same code and no such method: a server is started with the table of methods that
 * it is given.
 *
 * Sleep takes a TraceRequest: batch_size = milliseconds to run, sequence_length = bytes to take
 * from the arena first, strict = do not listen to cancellation. It answers with parameters =
 * milliseconds it ran. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "octet/v1/octet.pb-c.h"
#include "octetd.h"
#include "wire/methods.h"

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

int main(int argc, char **argv)
{
    struct octet_method *methods = calloc(octet_method_count + 1, sizeof *methods);

    memcpy(methods, octet_methods, octet_method_count * sizeof *methods);
    methods[octet_method_count] =
        (struct octet_method){.name = "Sleep",
                              .request = &octet__v1__trace_request__descriptor,
                              .response = &octet__v1__trace_response__descriptor,
                              .run = run_sleep};
    int status = octetd_main(argc, argv, methods, octet_method_count + 1);
    free(methods);
    return status;
}
