/* What the client's files share. */
#ifndef OCTET_CLIENT_PRIVATE_H
#define OCTET_CLIENT_PRIVATE_H

#include <grpc/grpc.h>

#include "octet_client.h"

struct octet_client {
    grpc_channel *channel;
    grpc_completion_queue *queue; /* one call at a time plucks from it */
    char *authorization;          /* "Bearer TOKEN" or NULL */
    char *target;                 /* for messages */
    uint64_t reply_bytes_max;
    uint64_t request_bytes_max; /* the server's, asked for once; 0: not yet known */
};

/* The call itself, without a look at the request's size. */
enum octet_status oct_client_exchange(octet_client *client, const char *method, const void *request,
                                      size_t request_size, const struct octet_cancel *cancel,
                                      struct octet_client_reply *reply,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* Refuses a request that the server would refuse, before its bytes travel. Small ones pass unasked.
 */
enum octet_status oct_client_check_size(octet_client *client, size_t request_size,
                                        const struct octet_cancel *cancel,
                                        struct octet_error *err) OCTET_MUST_CHECK;

#endif
