/* The bare gRPC server; see bench_rpc_load.h. */
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>

#include "bench_rpc_load.h"

enum { ACCEPTS = 128 };

enum phase { ARRIVING, RECEIVING, ANSWERING };

struct bare {
    grpc_server *server;
    grpc_completion_queue *queue;
};

struct bare_call {
    struct bare *bare;
    enum phase phase;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *body;
    int cancelled;
};

static void accept_call(struct bare_call *c)
{
    c->phase = ARRIVING;
    c->body = NULL;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    grpc_server_request_call(c->bare->server, &c->call, &c->details, &c->metadata, c->bare->queue,
                             c->bare->queue, c);
}

static void receive(struct bare_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &c->body;
    c->phase = RECEIVING;
    grpc_call_start_batch(c->call, &op, 1, c, NULL);
}

static void answer(struct bare_call *c)
{
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};

    if (!c->body || grpc_byte_buffer_length(c->body) > LOAD_ECHO_BYTES_MAX) {
        if (c->body)
            grpc_byte_buffer_destroy(c->body);
        c->body = grpc_raw_byte_buffer_create(NULL, 0);
    }
    ops[1].data.send_message.send_message = c->body;
    ops[3].data.recv_close_on_server.cancelled = &c->cancelled;
    c->phase = ANSWERING;
    grpc_call_start_batch(c->call, ops, 4, c, NULL);
}

static void end(struct bare_call *c)
{
    grpc_byte_buffer_destroy(c->body);
    grpc_metadata_array_destroy(&c->metadata);
    grpc_call_details_destroy(&c->details);
    grpc_call_unref(c->call);
    accept_call(c);
}

static void go_on(struct bare_call *c)
{
    switch (c->phase) {
    case ARRIVING:
        receive(c);
        break;
    case RECEIVING:
        answer(c);
        break;
    case ANSWERING:
        end(c);
        break;
    }
}

static grpc_arg integer(const char *key, int value)
{
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

int bare_server_main(void)
{
    grpc_arg list[] = {integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1),
                       integer(GRPC_ARG_ALLOW_REUSEPORT, 0)};
    grpc_channel_args arguments = {sizeof list / sizeof *list, list};
    struct bare bare;
    struct bare_call *calls = calloc(ACCEPTS, sizeof *calls);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    grpc_init();
    bare.server = grpc_server_create(&arguments, NULL);
    bare.queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(bare.server, bare.queue, NULL);
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(bare.server, "127.0.0.1:0", credentials);
    grpc_server_credentials_release(credentials);
    if (!calls || port == 0)
        return EXIT_FAILURE;
    grpc_server_start(bare.server);
    for (int i = 0; i < ACCEPTS; i++) {
        calls[i].bare = &bare;
        accept_call(&calls[i]);
    }
    printf("%d\n", port);
    fflush(stdout);
    for (;;) { /* until it is killed */
        grpc_event event =
            grpc_completion_queue_next(bare.queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_OP_COMPLETE)
            go_on(event.tag);
    }
}
