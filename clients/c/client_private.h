/* What the client's files share. */
#ifndef OCTET_CLIENT_PRIVATE_H
#define OCTET_CLIENT_PRIVATE_H

#include <grpc/grpc.h>
#include <stdbool.h>

#include "octet_client.h"

struct octet_client {
    grpc_channel *channel;
    grpc_channel_credentials *credentials; /* of the channel */
    grpc_completion_queue *queue;          /* one call at a time plucks from it */
    char *authorization;                   /* "Bearer TOKEN" or NULL */
    char *target;                          /* for messages */
    uint64_t reply_bytes_max;
    uint64_t request_bytes_max; /* the server's, asked for once; 0: not yet known */
};

/* One call: what gRPC keeps pointers to while it runs. */
struct exchange {
    grpc_call *call;
    grpc_byte_buffer *sent, *received;
    grpc_metadata_array initial, trailing;
    grpc_metadata authorization;
    grpc_status_code status;
    grpc_slice details;
    const char *error_string; /* gRPC's own; freed by gpr_free */
};

/* Makes the call of a method, with the deadline; oct_client_end frees all of it. */
void oct_client_start(octet_client *client, const char *method, const struct octet_cancel *cancel,
                      struct exchange *x);
void oct_client_end(struct exchange *x);
/* The token goes with SEND_INITIAL_METADATA. */
void oct_client_authorize(const octet_client *client, struct exchange *x, grpc_op *op);
/* A copy of the bytes. */
grpc_byte_buffer *oct_client_buffer(const void *bytes, size_t size);
/* Ends when the tag's operations have: after a cancellation gRPC still ends them all. Returns
 * gRPC's "success". */
bool oct_client_wait(grpc_completion_queue *queue, void *tag, grpc_call *call,
                     const struct octet_cancel *cancel);
/* A status that is not OK, as an error. */
enum octet_status oct_client_report(const octet_client *client, const struct exchange *x,
                                    size_t request_size, struct octet_error *err);
void oct_client_read_metadata(const struct exchange *x, struct octet_client_reply *reply);
enum octet_status oct_client_take(grpc_byte_buffer *received, struct octet_client_reply *reply,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* A new connection in the place of the old one, which ends with all that is on its way. */
void oct_client_reconnect(octet_client *client);

/* The call itself, without a look at the request's size. */
enum octet_status oct_client_exchange(octet_client *client, const char *method,
                                      const struct octet_client_piece *pieces, size_t count,
                                      const struct octet_cancel *cancel,
                                      struct octet_client_reply *reply,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* Refuses a request that the server would refuse, before its bytes travel. Small ones pass unasked.
 */
enum octet_status oct_client_check_size(octet_client *client, size_t request_size,
                                        const struct octet_cancel *cancel,
                                        struct octet_error *err) OCTET_MUST_CHECK;

#endif
