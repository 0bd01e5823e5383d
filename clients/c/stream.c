/* A call with many messages in one direction.
 *
 * Decision: the status is asked for when the call starts and stays open until the end, so that a
 * server that ends the call early fails the operation that is under way instead of leaving it. */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>

#include "client_private.h"

struct octet_client_stream {
    octet_client *client;
    const struct octet_cancel *cancel;
    struct exchange x;
    char opening, sending, receiving, ending; /* their addresses are the tags of batches */
    bool started, has_ended;
    size_t sent_bytes; /* of the last message, for the error of one that is too large */
};

/* The batch that brings the status; it has been under way since the call started. */
static void end(octet_client_stream *stream)
{
    if (stream->started && !stream->has_ended)
        (void)oct_client_wait(stream->client->queue, &stream->ending, stream->x.call,
                              stream->cancel);
    stream->has_ended = true;
}

/* What an operation that did not succeed means: the call is over, or soon will be. */
static enum octet_status failure(octet_client_stream *stream, struct octet_error *err)
{
    end(stream);
    if (stream->x.status != GRPC_STATUS_OK)
        return oct_client_report(stream->client, &stream->x, stream->sent_bytes, err);
    return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                      "the server has ended the stream before all was sent");
}

static bool start(octet_client_stream *stream)
{
    struct exchange *x = &stream->x;
    grpc_op open = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_op rest[2] = {
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &x->initial},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &x->trailing,
                                        .status = &x->status,
                                        .status_details = &x->details,
                                        .error_string = &x->error_string}},
    };

    oct_client_authorize(stream->client, x, &open);
    if (grpc_call_start_batch(x->call, rest, 2, &stream->ending, NULL) != GRPC_CALL_OK)
        return false;
    stream->started = true;
    if (grpc_call_start_batch(x->call, &open, 1, &stream->opening, NULL) != GRPC_CALL_OK)
        return false;
    return true;
}

enum octet_status octet_client_stream_open(octet_client *client, const char *method,
                                           const struct octet_cancel *cancel,
                                           octet_client_stream **out, struct octet_error *err)
{
    enum octet_status status = octet_cancel_check(cancel, err);

    if (status != OCTET_OK)
        return status;
    octet_client_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    stream->client = client;
    stream->cancel = cancel;
    oct_client_start(client, method, cancel, &stream->x);
    if (!start(stream)) {
        octet_client_stream_destroy(stream);
        return octet_fail(err, OCTET_INTERNAL, NULL, "gRPC refused to start the call");
    }
    /* Done at once, whatever becomes of the connection. */
    (void)oct_client_wait(client->queue, &stream->opening, stream->x.call, cancel);
    *out = stream;
    return OCTET_OK;
}

static enum octet_status run(octet_client_stream *stream, grpc_op *op, char *tag,
                             struct octet_error *err)
{
    if (stream->has_ended)
        return failure(stream, err);
    if (grpc_call_start_batch(stream->x.call, op, 1, tag, NULL) != GRPC_CALL_OK)
        return octet_fail(err, OCTET_INTERNAL, NULL, "gRPC refused a part of the stream");
    if (!oct_client_wait(stream->client->queue, tag, stream->x.call, stream->cancel))
        return failure(stream, err);
    return OCTET_OK;
}

enum octet_status octet_client_stream_send(octet_client_stream *stream, const void *message,
                                           size_t size, struct octet_error *err)
{
    grpc_byte_buffer *buffer = oct_client_buffer(message, size);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};

    stream->sent_bytes = size;
    enum octet_status status = run(stream, &op, &stream->sending, err);
    grpc_byte_buffer_destroy(buffer);
    return status;
}

enum octet_status octet_client_stream_close_send(octet_client_stream *stream,
                                                 struct octet_error *err)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    return run(stream, &op, &stream->sending, err);
}

enum octet_status octet_client_stream_receive(octet_client_stream *stream,
                                              struct octet_client_reply *reply, bool *more,
                                              struct octet_error *err)
{
    struct exchange *x = &stream->x;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &x->received};
    enum octet_status status = OCTET_OK;

    *reply = (struct octet_client_reply){.retry_after_ms = -1};
    *more = false;
    if (!stream->has_ended)
        status = run(stream, &op, &stream->receiving, err);
    if (status == OCTET_OK && !stream->has_ended && x->received) {
        status = oct_client_take(x->received, reply, err);
        grpc_byte_buffer_destroy(x->received);
        x->received = NULL;
        *more = status == OCTET_OK;
        return status;
    }
    end(stream); /* no message any more: the status follows */
    oct_client_read_metadata(x, reply);
    return x->status == GRPC_STATUS_OK
               ? status
               : oct_client_report(stream->client, x, stream->sent_bytes, err);
}

void octet_client_stream_destroy(octet_client_stream *stream)
{
    if (!stream)
        return;
    if (stream->started && !stream->has_ended)
        grpc_call_cancel(stream->x.call, NULL);
    end(stream);
    oct_client_end(&stream->x);
    free(stream);
}
