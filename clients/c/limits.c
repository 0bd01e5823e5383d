/* The server's limit on messages, asked for once and only when a request is large enough to need
 * it. */
#include <inttypes.h>

#include "client_private.h"
#include "octet/v1/octet.pb-c.h"

/* Servers as a rule accept this (gRPC's own default is 4 MiB), so smaller requests cost no
 * question; one that does not says so itself. */
enum { UNASKED_BYTES = 1024 * 1024 };

enum octet_status oct_client_check_size(octet_client *client, size_t request_size,
                                        const struct octet_cancel *cancel, struct octet_error *err)
{
    struct octet_client_reply reply;

    if (request_size <= UNASKED_BYTES)
        return OCTET_OK;
    if (!client->request_bytes_max) {
        enum octet_status status =
            oct_client_exchange(client, "GetServerInfo", NULL, 0, cancel, &reply, err);
        if (status != OCTET_OK)
            return status;
        Octet__V1__GetServerInfoResponse *info =
            octet__v1__get_server_info_response__unpack(NULL, reply.size, reply.data);
        octet_client_reply_clear(&reply);
        if (!info)
            return octet_fail(err, OCTET_INTERNAL, NULL, "%s: GetServerInfo's reply is malformed",
                              client->target);
        if (info->limits && info->limits->max_message_bytes > 0)
            client->request_bytes_max = (uint64_t)info->limits->max_message_bytes;
        else
            client->request_bytes_max = UINT64_MAX;
        octet__v1__get_server_info_response__free_unpacked(info, NULL);
    }
    if (request_size > client->request_bytes_max)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the request has %zu bytes, %s accepts %" PRIu64
                          " (its setting limits.max_message_bytes)",
                          request_size, client->target, client->request_bytes_max);
    return OCTET_OK;
}
