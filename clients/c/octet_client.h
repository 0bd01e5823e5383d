/* Calls to an octetd from C.
 *
 * For: calls of octet.v1.Octet: serialized request in, serialized reply out, with deadline,
 * cancellation, TLS and token; messages of a stream one by one.
 * Not for: messages themselves; pack and unpack with the code that protoc-c (or any protobuf) makes
 * of proto/octet/v1/octet.proto.
 *
 *     struct octet_client_options options;
 *     struct octet_client_reply reply;
 *     octet_client_options_from_environment(&options);
 *     if (octet_client_connect(&options, &client, &err) == OCTET_OK &&
 *         octet_client_call(client, "Trace", bytes, size, NULL, &reply, &err) == OCTET_OK) {
 *         ... reply.data, reply.size ...
 *         octet_client_reply_clear(&reply);
 *     }
 *     octet_client_destroy(client);
 *
 * Life: 1. A client may be used by one thread at a time; different clients are independent. 2. A
 * connection is made at the first call and remade when it is lost. 3. A reply belongs to the caller
 * until cleared. */
#ifndef OCTET_CLIENT_H
#define OCTET_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/cancel.h"
#include "octet/status.h"

typedef struct octet_client octet_client;

/* All texts are borrowed during octet_client_connect only. NULL or "" = not set. */
struct octet_client_options {
    const char *target; /* "HOST:PORT" or "unix:/path/of/socket" */
    const char
        *tls_ca; /* file: PEM certificates of who may have signed the server's; switches TLS on */
    const char *tls_cert; /* files: the client's own certificate and its key, for mutual TLS */
    const char *tls_key;
    const char *token;        /* sent as "authorization: Bearer TOKEN" */
    uint64_t reply_bytes_max; /* largest reply that is accepted; 0 = 1 GiB */
};

/* OCTET_SERVER, OCTET_TLS_CA, OCTET_TLS_CERT, OCTET_TLS_KEY, OCTET_TOKEN. Borrows from the
 * environment. */
OCTET_API void octet_client_options_from_environment(struct octet_client_options *options);

/* Errors: INVALID_ARGUMENT with the option's name as field ("tls_ca": a file that cannot be read;
 * "token": it would travel in clear text to another machine); RESOURCE_EXHAUSTED. A server that is
 * not there is reported by the first call. */
OCTET_API enum octet_status octet_client_connect(const struct octet_client_options *options,
                                                 octet_client **out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_client_destroy(octet_client *client); /* NULL is fine */

struct octet_client_reply {
    void *data; /* serialized reply; malloc'ed */
    size_t size;
    char request_id[64];    /* the server's name for the call, for its log; "" when it sent none */
    int64_t retry_after_ms; /* a busy server's wish; -1 when it sent none. Written on errors too */
};
OCTET_API void octet_client_reply_clear(struct octet_client_reply *reply);

/* Calls octet.v1.Octet/METHOD and waits. cancel (NULL = never) has the deadline and a flag that
 * another thread or a signal handler may set; it is looked at every 20 ms. Errors: the server's own
 * status, with err->field and err->text as in a local call; CANCELLED, DEADLINE_EXCEEDED;
 * UNAVAILABLE (no server there; the text names the target); RESOURCE_EXHAUSTED when request or
 * reply is larger than a limit (the text names limit and setting). */
OCTET_API enum octet_status octet_client_call(octet_client *client, const char *method,
                                              const void *request, size_t request_size,
                                              const struct octet_cancel *cancel,
                                              struct octet_client_reply *reply,
                                              struct octet_error *err) OCTET_MUST_CHECK;

/* The same with a request in pieces, one after the other. A large piece is sent from where it lies,
 * without a copy: for a message's head and the buffers behind it. What a peer has not taken when
 * the call ends early may cost the connection; the next call makes a new one. */
struct octet_client_piece {
    const void *bytes;
    size_t size;
};
OCTET_API enum octet_status octet_client_call_pieces(octet_client *client, const char *method,
                                                     const struct octet_client_piece *pieces,
                                                     size_t count,
                                                     const struct octet_cancel *cancel,
                                                     struct octet_client_reply *reply,
                                                     struct octet_error *err) OCTET_MUST_CHECK;

/* A call with a stream of messages in one direction: PutTensors (many sent, one received) and
 * GetTensors (one sent, many received).
 *
 *     octet_client_stream_open(client, "PutTensors", NULL, &stream, &err)
 *     octet_client_stream_send(stream, bytes, size, &err)                      once a message
 *     octet_client_stream_close_send(stream, &err)                             no more to send
 *     octet_client_stream_receive(stream, &reply, &more, &err)                 until more is false
 *     octet_client_stream_destroy(stream)
 *
 * Life: 1. A client has one call at a time, so a stream is destroyed before the next call. 2. One
 * message is in memory at a time in each direction: send returns when the transport has taken it,
 * and the next is asked for by receive. 3. Destroying a stream that has not ended cancels it. 4.
 * cancel is used until the stream is destroyed. */
typedef struct octet_client_stream octet_client_stream;

/* Errors: CANCELLED, DEADLINE_EXCEEDED (of cancel, before it starts); RESOURCE_EXHAUSTED. A server
 * that is not there is reported by the calls below. */
OCTET_API enum octet_status octet_client_stream_open(octet_client *client, const char *method,
                                                     const struct octet_cancel *cancel,
                                                     octet_client_stream **out,
                                                     struct octet_error *err) OCTET_MUST_CHECK;
/* Errors: the call's own, when the server has ended it; as of octet_client_call. */
OCTET_API enum octet_status octet_client_stream_send(octet_client_stream *stream,
                                                     const void *message, size_t size,
                                                     struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status
octet_client_stream_close_send(octet_client_stream *stream,
                               struct octet_error *err) OCTET_MUST_CHECK;
/* *more false: the stream has ended in order, and reply is empty. Errors: as of octet_client_call.
 */
OCTET_API enum octet_status octet_client_stream_receive(octet_client_stream *stream,
                                                        struct octet_client_reply *reply,
                                                        bool *more,
                                                        struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_client_stream_destroy(octet_client_stream *stream); /* NULL is fine */

#endif
