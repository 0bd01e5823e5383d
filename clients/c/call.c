/* A call as programs make it: sized first, then exchanged. */
#include "client_private.h"

enum octet_status octet_client_call(octet_client *client, const char *method, const void *request,
                                    size_t request_size, const struct octet_cancel *cancel,
                                    struct octet_client_reply *reply, struct octet_error *err)
{
    *reply = (struct octet_client_reply){.retry_after_ms = -1};
    enum octet_status status = oct_client_check_size(client, request_size, cancel, err);
    if (status == OCTET_OK)
        status = oct_client_exchange(client, method, request, request_size, cancel, reply, err);
    return status;
}
