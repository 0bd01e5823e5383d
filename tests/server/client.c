/* See client.h. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>

enum { OPS = 6, METADATA_MAX = 8 };

struct client {
    grpc_channel *channel;
    grpc_completion_queue *queue;
};

struct pending {
    struct client *client;
    grpc_call *call;
    grpc_byte_buffer *request, *response;
    grpc_metadata_array initial, trailing;
    grpc_metadata metadata[METADATA_MAX];
    grpc_status_code status;
    grpc_slice details;
};

static grpc_arg integer(const char *key, int value)
{
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static struct client *connect_with(const char *target, grpc_arg *more, size_t more_count)
{
    grpc_arg list[8] = {
        integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        integer(GRPC_ARG_ENABLE_RETRIES, 0),
        integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1),
        integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
    };
    grpc_channel_args args = {.num_args = 4 + more_count, .args = list};
    struct client *client = calloc(1, sizeof *client);

    for (size_t i = 0; i < more_count; i++)
        list[4 + i] = more[i];
    grpc_init();
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    client->queue = grpc_completion_queue_create_for_pluck(NULL);
    return client;
}

struct client *client_connect(const char *target)
{
    return connect_with(target, NULL, 0);
}

struct client *client_connect_pinging(const char *target, int keepalive_ms)
{
    grpc_arg more[3] = {integer(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms),
                        integer(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
                        integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)};

    return connect_with(target, more, 3);
}

void client_close(struct client *client)
{
    grpc_channel_destroy(client->channel);
    grpc_completion_queue_shutdown(client->queue);
    grpc_completion_queue_destroy(client->queue);
    grpc_shutdown();
    free(client);
}

static size_t fill(grpc_op ops[OPS], struct pending *p, size_t metadata_count)
{
    memset(ops, 0, OPS * sizeof *ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].data.send_initial_metadata.count = metadata_count;
    ops[0].data.send_initial_metadata.metadata = p->metadata;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = p->request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &p->initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &p->response;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &p->trailing;
    ops[5].data.recv_status_on_client.status = &p->status;
    ops[5].data.recv_status_on_client.status_details = &p->details;
    return OPS;
}

struct pending *client_start(struct client *client, const char *path, const void *bytes,
                             size_t length, int deadline_ms, const char *const *metadata)
{
    grpc_op ops[OPS];
    struct pending *p = calloc(1, sizeof *p);
    grpc_slice body = grpc_slice_from_copied_buffer(bytes, length);
    gpr_timespec until = deadline_ms ? gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                                    gpr_time_from_millis(deadline_ms, GPR_TIMESPAN))
                                     : gpr_inf_future(GPR_CLOCK_MONOTONIC);
    size_t count = 0;

    for (; metadata && *metadata && count < METADATA_MAX; metadata += 2)
        p->metadata[count++] = (grpc_metadata){.key = grpc_slice_from_static_string(metadata[0]),
                                               .value = grpc_slice_from_static_string(metadata[1])};
    p->client = client;
    p->request = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    grpc_metadata_array_init(&p->initial);
    grpc_metadata_array_init(&p->trailing);
    grpc_slice method = grpc_slice_from_copied_string(path);
    p->call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                       client->queue, method, NULL, until, NULL);
    grpc_slice_unref(method);
    if (grpc_call_start_batch(p->call, ops, fill(ops, p, count), p, NULL) != GRPC_CALL_OK)
        abort();
    return p;
}

void client_cancel(struct pending *pending)
{
    grpc_call_cancel(pending->call, NULL);
}

static void copy_text(char *out, size_t size, grpc_slice slice)
{
    snprintf(out, size, "%.*s", (int)GRPC_SLICE_LENGTH(slice),
             (const char *)GRPC_SLICE_START_PTR(slice));
}

static void copy_metadata(const grpc_metadata_array *array, const char *key, char *out, size_t size)
{
    out[0] = 0;
    for (size_t i = 0; i < array->count; i++)
        if (GRPC_SLICE_LENGTH(array->metadata[i].key) == strlen(key) &&
            memcmp(GRPC_SLICE_START_PTR(array->metadata[i].key), key, strlen(key)) == 0)
            copy_text(out, size, array->metadata[i].value);
}

static void copy_response(struct pending *p, struct reply *reply)
{
    grpc_byte_buffer_reader reader;

    if (!p->response || !grpc_byte_buffer_reader_init(&reader, p->response))
        return;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    reply->length = GRPC_SLICE_LENGTH(all);
    reply->bytes = malloc(reply->length + 1);
    memcpy(reply->bytes, GRPC_SLICE_START_PTR(all), reply->length);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
}

void client_wait(struct pending *p, struct reply *reply)
{
    grpc_completion_queue_pluck(p->client->queue, p, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    *reply = (struct reply){.status = (int)p->status};
    copy_text(reply->text, sizeof reply->text, p->details);
    copy_metadata(&p->initial, "octet-request-id", reply->initial_id, sizeof reply->initial_id);
    copy_metadata(&p->trailing, "octet-request-id", reply->request_id, sizeof reply->request_id);
    copy_metadata(&p->trailing, "retry-after-ms", reply->retry_ms, sizeof reply->retry_ms);
    copy_response(p, reply);
    grpc_byte_buffer_destroy(p->request);
    if (p->response)
        grpc_byte_buffer_destroy(p->response);
    grpc_slice_unref(p->details);
    grpc_metadata_array_destroy(&p->initial);
    grpc_metadata_array_destroy(&p->trailing);
    grpc_call_unref(p->call);
    free(p);
}

void client_call(struct client *client, const char *path, const void *bytes, size_t length,
                 int deadline_ms, struct reply *reply)
{
    client_wait(client_start(client, path, bytes, length, deadline_ms, NULL), reply);
}

void reply_free(struct reply *reply)
{
    free(reply->bytes);
    reply->bytes = NULL;
}
