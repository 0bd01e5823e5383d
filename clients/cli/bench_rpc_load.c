/* Many connections, one thread; see bench_rpc_load.h. */
#include "bench_rpc_load.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/cancel.h"

enum { OPS = 6 };

/* One connection and the call under way on it. */
struct lane {
    struct load *load;
    grpc_channel *channel;
    grpc_call *call;
    grpc_byte_buffer *sent, *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    uint64_t started_ns;
};

struct load {
    grpc_completion_queue *queue;
    grpc_slice path, body;
    size_t connections;
    struct lane *lanes;
};

static grpc_arg integer(const char *key, int value)
{
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static void start(struct lane *lane)
{
    grpc_op ops[OPS] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    struct load *load = lane->load;

    lane->started_ns = octet_now_ns();
    lane->sent = grpc_raw_byte_buffer_create(&load->body, 1);
    lane->received = NULL;
    grpc_metadata_array_init(&lane->initial);
    grpc_metadata_array_init(&lane->trailing);
    ops[1].data.send_message.send_message = lane->sent;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &lane->initial;
    ops[4].data.recv_message.recv_message = &lane->received;
    ops[5].data.recv_status_on_client.trailing_metadata = &lane->trailing;
    ops[5].data.recv_status_on_client.status = &lane->status;
    ops[5].data.recv_status_on_client.status_details = &lane->details;
    lane->call =
        grpc_channel_create_call(lane->channel, NULL, GRPC_PROPAGATE_DEFAULTS, load->queue,
                                 load->path, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (grpc_call_start_batch(lane->call, ops, OPS, lane, NULL) != GRPC_CALL_OK)
        abort(); /* a batch that breaks gRPC's rules */
}

static double end(struct lane *lane)
{
    double took = 1e-9 * (double)(octet_now_ns() - lane->started_ns);

    if (lane->status != GRPC_STATUS_OK) {
        fprintf(stderr, "octet-bench-rpc: a call ended with status %d: %.*s\n", (int)lane->status,
                (int)GRPC_SLICE_LENGTH(lane->details),
                (const char *)GRPC_SLICE_START_PTR(lane->details));
        exit(EXIT_FAILURE);
    }
    grpc_byte_buffer_destroy(lane->sent);
    if (lane->received)
        grpc_byte_buffer_destroy(lane->received);
    grpc_slice_unref(lane->details);
    grpc_metadata_array_destroy(&lane->initial);
    grpc_metadata_array_destroy(&lane->trailing);
    grpc_call_unref(lane->call);
    return took;
}

double load_run(struct load *load, size_t calls, double *latencies)
{
    uint64_t begun = octet_now_ns();
    size_t started = 0, ended = 0;

    while (started < load->connections && started < calls)
        start(&load->lanes[started++]);
    while (ended < calls) {
        grpc_event event =
            grpc_completion_queue_next(load->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        struct lane *lane = event.tag;
        latencies[ended++] = end(lane);
        if (started < calls) {
            start(lane);
            started++;
        }
    }
    return 1e-9 * (double)(octet_now_ns() - begun);
}

static grpc_channel *connect_to(const char *target)
{
    grpc_arg list[] = {integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0), integer(GRPC_ARG_ENABLE_RETRIES, 0),
                       /* else all channels would share one connection */
                       integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1)};
    grpc_channel_args arguments = {sizeof list / sizeof *list, list};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, credentials, &arguments);

    grpc_channel_credentials_release(credentials);
    return channel;
}

struct load *load_open(const char *target, const struct load_request *request, size_t connections)
{
    struct load *load = calloc(1, sizeof *load);
    double *latencies = calloc(connections, sizeof *latencies);

    if (load)
        load->lanes = calloc(connections, sizeof *load->lanes);
    if (!load || !load->lanes || !latencies) {
        fprintf(stderr, "octet-bench-rpc: out of memory\n");
        exit(EXIT_FAILURE);
    }
    grpc_init();
    load->queue = grpc_completion_queue_create_for_next(NULL);
    load->path = grpc_slice_from_copied_string(request->path);
    load->body = grpc_slice_from_copied_buffer(request->bytes, request->length);
    load->connections = connections;
    for (size_t i = 0; i < connections; i++) {
        load->lanes[i].load = load;
        load->lanes[i].channel = connect_to(target);
    }
    load_run(load, connections, latencies);
    free(latencies);
    return load;
}

void load_close(struct load *load)
{
    for (size_t i = 0; i < load->connections; i++)
        grpc_channel_destroy(load->lanes[i].channel);
    grpc_completion_queue_shutdown(load->queue);
    while (
        grpc_completion_queue_next(load->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
        GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(load->queue);
    grpc_slice_unref(load->path);
    grpc_slice_unref(load->body);
    free(load->lanes);
    free(load);
    grpc_shutdown();
}
