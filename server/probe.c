/* See probe.h. One unary call with everything in one batch; the request is the empty message
 * (service ""). */
#include "probe.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "credentials.h"
#include "health.h"

enum { PATIENCE_MS = 3000, OPS = 6 };

struct exchange {
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *request, *response;
    grpc_status_code status;
    grpc_slice details;
};

static void fill(grpc_op ops[OPS], struct exchange *x)
{
    memset(ops, 0, OPS * sizeof *ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = x->request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &x->initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &x->response;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &x->trailing;
    ops[5].data.recv_status_on_client.status = &x->status;
    ops[5].data.recv_status_on_client.status_details = &x->details;
}

/* HealthCheckResponse: field 1, a varint; absent when it is 0. */
static int serving_status(grpc_byte_buffer *response)
{
    grpc_byte_buffer_reader reader;
    int status = 0;

    if (!response || !grpc_byte_buffer_reader_init(&reader, response))
        return 0;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    if (GRPC_SLICE_LENGTH(all) == 2 && GRPC_SLICE_START_PTR(all)[0] == 1 << 3)
        status = GRPC_SLICE_START_PTR(all)[1];
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return status;
}

static enum octet_status judge(const char *target, const struct exchange *x,
                               struct octet_error *err)
{
    if (x->status != GRPC_STATUS_OK)
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "%s: %s: %.*s", target,
                          octet_status_name((enum octet_status)x->status),
                          (int)GRPC_SLICE_LENGTH(x->details),
                          (const char *)GRPC_SLICE_START_PTR(x->details));
    if (serving_status(x->response) != SERVING)
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "%s: not serving", target);
    return OCTET_OK;
}

static enum octet_status ask(grpc_channel *channel, const char *target, struct octet_error *err)
{
    struct exchange x = {.request = NULL};
    grpc_op ops[OPS];
    grpc_slice empty = grpc_empty_slice();
    gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(PATIENCE_MS, GPR_TIMESPAN));
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_call *call = grpc_channel_create_call(
        channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
        grpc_slice_from_static_string("/grpc.health.v1.Health/Check"), NULL, until, NULL);

    grpc_metadata_array_init(&x.initial);
    grpc_metadata_array_init(&x.trailing);
    x.request = grpc_raw_byte_buffer_create(&empty, 1);
    fill(ops, &x);
    grpc_call_start_batch(call, ops, OPS, &x, NULL);
    /* The deadline ends the call, hence the batch. */
    grpc_completion_queue_pluck(queue, &x, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    enum octet_status status = judge(target, &x, err);

    grpc_byte_buffer_destroy(x.request);
    if (x.response)
        grpc_byte_buffer_destroy(x.response);
    grpc_slice_unref(x.details);
    grpc_metadata_array_destroy(&x.initial);
    grpc_metadata_array_destroy(&x.trailing);
    grpc_call_unref(call);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return status;
}

/* Where a daemon that listens everywhere is asked: on loopback. */
static struct address local_form(const struct address *listening)
{
    struct address address = *listening;

    if (strcmp(address.host, "0.0.0.0") == 0)
        snprintf(address.host, sizeof address.host, "127.0.0.1");
    else if (strcmp(address.host, "::") == 0)
        snprintf(address.host, sizeof address.host, "::1");
    return address;
}

enum octet_status probe_health(const struct config *config, struct octet_error *err)
{
    struct address address = local_form(&config->address);
    char target[CONFIG_TEXT_BYTES];
    grpc_channel_credentials *credentials;
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_HTTP_PROXY};
    grpc_channel_args args = {.num_args = 1, .args = &arg};

    address_format(&address, target, sizeof target);
    grpc_init();
    enum octet_status status = credentials_create_probe(config, &credentials, err);
    if (status == OCTET_OK) {
        grpc_channel *channel = grpc_channel_create(target, credentials, &args);
        grpc_channel_credentials_release(credentials);
        status = ask(channel, target, err);
        grpc_channel_destroy(channel);
    }
    grpc_shutdown();
    return status;
}
