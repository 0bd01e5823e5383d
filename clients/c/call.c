/* A call as programs make it: sized first, then exchanged. */
#include "client_private.h"

enum octet_status octet_client_call_pieces(octet_client *client, const char *method,
                                           const struct octet_client_piece *pieces, size_t count,
                                           const struct octet_cancel *cancel,
                                           struct octet_client_reply *reply,
                                           struct octet_error *err)
{
    size_t size = 0;

    *reply = (struct octet_client_reply){.retry_after_ms = -1};
    for (size_t i = 0; i < count; i++)
        size += pieces[i].size;
    enum octet_status status = oct_client_check_size(client, size, cancel, err);
    if (status == OCTET_OK)
        status = oct_client_exchange(client, method, pieces, count, cancel, reply, err);
    return status;
}

enum octet_status octet_client_call(octet_client *client, const char *method, const void *request,
                                    size_t request_size, const struct octet_cancel *cancel,
                                    struct octet_client_reply *reply, struct octet_error *err)
{
    const struct octet_client_piece piece = {request, request_size};

    return octet_client_call_pieces(client, method, &piece, 1, cancel, reply, err);
}
