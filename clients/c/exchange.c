/* One exchange of messages: all six operations of a unary call in one batch, one wait. */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_private.h"

enum { POLL_MS = 20 };

/* The time left until the cancel's deadline, on gRPC's clock. */
static gpr_timespec deadline_of(const struct octet_cancel *cancel)
{
    if (!cancel || !cancel->deadline_ns)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    uint64_t now = octet_now_ns();
    int64_t left = cancel->deadline_ns > now ? (int64_t)(cancel->deadline_ns - now) : 0;
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left, GPR_TIMESPAN));
}

bool oct_client_wait(grpc_completion_queue *queue, void *tag, grpc_call *call,
                     const struct octet_cancel *cancel)
{
    bool told = false;

    for (;;) {
        gpr_timespec soon =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(POLL_MS, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_pluck(
            queue, tag, cancel ? soon : gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_OP_COMPLETE)
            return event.success != 0;
        if (!told && atomic_load_explicit(&cancel->cancelled, memory_order_relaxed)) {
            grpc_call_cancel(call, NULL);
            told = true;
        }
    }
}

void oct_client_authorize(const octet_client *client, struct exchange *x, grpc_op *op)
{
    if (!client->authorization)
        return;
    x->authorization.key = grpc_slice_from_static_string("authorization");
    x->authorization.value = grpc_slice_from_static_string(client->authorization);
    op->data.send_initial_metadata.count = 1;
    op->data.send_initial_metadata.metadata = &x->authorization;
}

static bool run_batch(octet_client *client, struct exchange *x, const struct octet_cancel *cancel)
{
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = x->sent},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &x->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &x->received},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &x->trailing,
                                        .status = &x->status,
                                        .status_details = &x->details,
                                        .error_string = &x->error_string}},
    };

    oct_client_authorize(client, x, &ops[0]);
    if (grpc_call_start_batch(x->call, ops, 6, x, NULL) != GRPC_CALL_OK)
        return false;
    (void)oct_client_wait(client->queue, x, x->call, cancel); /* the status tells */
    return true;
}

/* Copies the value of `key` as text; leaves `out` alone when it is not there. */
static void find_metadata(const struct exchange *x, const char *key, char *out, size_t size)
{
    const grpc_metadata_array *arrays[] = {&x->initial, &x->trailing};

    for (size_t a = 0; a < 2; a++)
        for (size_t i = 0; i < arrays[a]->count; i++) {
            const grpc_metadata *m = &arrays[a]->metadata[i];
            if (grpc_slice_str_cmp(m->key, key) != 0)
                continue;
            size_t length = GRPC_SLICE_LENGTH(m->value);
            snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1),
                     (const char *)GRPC_SLICE_START_PTR(m->value));
        }
}

/* The server's sentence back into field and text: the inverse of octet_error_message. */
static void read_error(const char *sentence, struct octet_error *err)
{
    static const char before[] = "field '", after[] = "': ";
    size_t prefix = sizeof before - 1;
    const char *end = strncmp(sentence, before, prefix) == 0 ? strstr(sentence, after) : NULL;

    if (!end || (size_t)(end - sentence) - prefix >= sizeof err->field)
        return;
    snprintf(err->field, sizeof err->field, "%.*s", (int)(end - sentence - (long)prefix),
             sentence + prefix);
    snprintf(err->text, sizeof err->text, "%s", end + sizeof after - 1);
}

/* gRPC says "Received message larger than max (A vs. B)" for both directions and names no setting.
 */
static bool report_size(const octet_client *client, const char *sentence, size_t request_size,
                        struct octet_error *err)
{
    const char *numbers = strstr(sentence, "message larger than max (");
    unsigned long long size, limit;

    if (!numbers || sscanf(strchr(numbers, '('), "(%llu vs. %llu)", &size, &limit) != 2)
        return false;
    if (size == request_size)
        octet_fail(
            err, OCTET_RESOURCE_EXHAUSTED, NULL,
            "the request has %llu bytes, %s accepts %llu (its setting limits.max_message_bytes)",
            size, client->target, limit);
    else
        octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                   "the reply of %s has %llu bytes, more than reply_bytes_max, %llu",
                   client->target, size, limit);
    return true;
}

enum octet_status oct_client_report(const octet_client *client, const struct exchange *x,
                                    size_t request_size, struct octet_error *err)
{
    char sentence[sizeof err->field + sizeof err->text];
    size_t length = GRPC_SLICE_LENGTH(x->details);

    snprintf(sentence, sizeof sentence, "%.*s",
             (int)(length < sizeof sentence ? length : sizeof sentence - 1),
             (const char *)GRPC_SLICE_START_PTR(x->details));
    switch (x->status) {
    case GRPC_STATUS_CANCELLED:
        return octet_fail(err, OCTET_CANCELLED, NULL, "the call was cancelled");
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return octet_fail(err, OCTET_DEADLINE_EXCEEDED, NULL, "%s did not answer in time",
                          client->target);
    case GRPC_STATUS_UNAVAILABLE:
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "%s: %s", client->target, sentence);
    default:
        if (report_size(client, sentence, request_size, err))
            return OCTET_RESOURCE_EXHAUSTED;
        octet_fail(err, (enum octet_status)x->status, NULL, "%s", sentence);
        if (err)
            read_error(sentence, err);
        return (enum octet_status)x->status;
    }
}

enum octet_status oct_client_take(grpc_byte_buffer *received, struct octet_client_reply *reply,
                                  struct octet_error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *piece;
    size_t at = 0;

    if (!received || !grpc_byte_buffer_reader_init(&reader, received))
        return octet_fail(err, OCTET_INTERNAL, NULL, "the server sent no message");
    reply->size = grpc_byte_buffer_length(received);
    reply->data = malloc(reply->size + 1);
    while (reply->data && at < reply->size && grpc_byte_buffer_reader_peek(&reader, &piece)) {
        memcpy((char *)reply->data + at, GRPC_SLICE_START_PTR(*piece), GRPC_SLICE_LENGTH(*piece));
        at += GRPC_SLICE_LENGTH(*piece);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return reply->data ? OCTET_OK
                       : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                                    "out of memory for a reply of %zu bytes", reply->size);
}

grpc_byte_buffer *oct_client_buffer(const void *bytes, size_t size)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, size);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);

    grpc_slice_unref(slice);
    return buffer;
}

void oct_client_start(octet_client *client, const char *method, const struct octet_cancel *cancel,
                      struct exchange *x)
{
    char path[128];

    *x = (struct exchange){.details = grpc_empty_slice()};
    snprintf(path, sizeof path, "/octet.v1.Octet/%s", method);
    grpc_slice slice = grpc_slice_from_copied_string(path);
    grpc_metadata_array_init(&x->initial);
    grpc_metadata_array_init(&x->trailing);
    x->call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                       client->queue, slice, NULL, deadline_of(cancel), NULL);
    grpc_slice_unref(slice);
}

void oct_client_end(struct exchange *x)
{
    grpc_call_unref(x->call);
    if (x->sent)
        grpc_byte_buffer_destroy(x->sent);
    if (x->received)
        grpc_byte_buffer_destroy(x->received);
    grpc_metadata_array_destroy(&x->initial);
    grpc_metadata_array_destroy(&x->trailing);
    grpc_slice_unref(x->details);
    gpr_free((void *)(uintptr_t)x->error_string);
}

void oct_client_read_metadata(const struct exchange *x, struct octet_client_reply *reply)
{
    char retry[32] = "";

    find_metadata(x, "octet-request-id", reply->request_id, sizeof reply->request_id);
    find_metadata(x, "retry-after-ms", retry, sizeof retry);
    if (retry[0])
        reply->retry_after_ms = strtoll(retry, NULL, 10);
}

/* ---- Requests in pieces ---- */

/* Memory of the caller's that gRPC holds. */
struct lent {
    _Atomic size_t pieces;
    size_t bytes; /* of the whole request */
};

static void on_piece_end(void *user)
{
    struct lent *lent = user;

    /* Release: gRPC has read the bytes before the caller may write to them. */
    atomic_fetch_sub_explicit(&lent->pieces, 1, memory_order_release);
}

/* Small pieces are copied, large ones stay where they lie. */
static grpc_byte_buffer *lend(const struct octet_client_piece *pieces, size_t count,
                              struct lent *lent)
{
    enum { LARGE_BYTES = 256 << 10 };
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(NULL, 0);

    *lent = (struct lent){.bytes = 0};
    for (size_t i = 0; i < count; i++) {
        const struct octet_client_piece *p = &pieces[i];
        lent->bytes += p->size;
        if (p->size >= LARGE_BYTES) {
            atomic_fetch_add_explicit(&lent->pieces, 1, memory_order_relaxed);
            grpc_slice_buffer_add(&buffer->data.raw.slice_buffer,
                                  grpc_slice_new_with_user_data((void *)(uintptr_t)p->bytes,
                                                                p->size, on_piece_end, lent));
        } else if (p->size > 0) {
            grpc_slice_buffer_add(&buffer->data.raw.slice_buffer,
                                  grpc_slice_from_copied_buffer(p->bytes, p->size));
        }
    }
    return buffer;
}

/* Returns when gRPC holds none of the caller's memory any more. After a whole call it is so at
 * once, or in a moment; a peer that stopped reading in the middle loses its connection. */
static void take_back(octet_client *client, struct lent *lent)
{
    enum { WAIT_MS = 200 };
    uint64_t until_ns = octet_now_ns() + WAIT_MS * UINT64_C(1000000);
    bool has_reconnected = false;

    while (atomic_load_explicit(&lent->pieces, memory_order_acquire) > 0) {
        /* Nothing carries this tag: gRPC's reading and writing is done by who waits. */
        grpc_completion_queue_pluck(
            client->queue, lent,
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(1, GPR_TIMESPAN)),
            NULL);
        if (!has_reconnected && octet_now_ns() > until_ns) {
            has_reconnected = true;
            oct_client_reconnect(client);
        }
    }
}

enum octet_status oct_client_exchange(octet_client *client, const char *method,
                                      const struct octet_client_piece *pieces, size_t count,
                                      const struct octet_cancel *cancel,
                                      struct octet_client_reply *reply, struct octet_error *err)
{
    struct exchange x;
    struct lent lent;
    enum octet_status status;

    *reply = (struct octet_client_reply){.retry_after_ms = -1};
    status =
        octet_cancel_check(cancel, err); /* gRPC lets a deadline that has just passed win or lose */
    if (status != OCTET_OK)
        return status;
    oct_client_start(client, method, cancel, &x);
    x.sent = lend(pieces, count, &lent);
    if (!run_batch(client, &x, cancel)) {
        status = octet_fail(err, OCTET_INTERNAL, NULL, "gRPC refused to start the call");
    } else {
        oct_client_read_metadata(&x, reply);
        status = x.status == GRPC_STATUS_OK ? oct_client_take(x.received, reply, err)
                                            : oct_client_report(client, &x, lent.bytes, err);
    }
    oct_client_end(&x);
    take_back(client, &lent);
    return status;
}

void octet_client_reply_clear(struct octet_client_reply *reply)
{
    free(reply->data);
    *reply = (struct octet_client_reply){.retry_after_ms = -1};
}
