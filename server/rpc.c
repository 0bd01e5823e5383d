/* See rpc.h. The settings of gRPC and the reasons for them stand in server_arguments. */
#include "rpc.h"

#include <limits.h>
#include <stdlib.h>

#include <grpc/compression.h>
#include <grpc/grpc_security.h>

#include "credentials.h"
#include "thread_name.h"

/* gRPC is not instrumented: TSan must be told that a tag given to it happens before the same tag
 * comes back from the queue. */
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define HANDED_OUT(tag) __tsan_release(tag)
#define CAME_BACK(tag) __tsan_acquire(tag)
#else
#define HANDED_OUT(tag) ((void)(tag))
#define CAME_BACK(tag) ((void)(tag))
#endif

struct rpc {
    grpc_server *server;
    grpc_completion_queue *queue;
    struct inbox *inbox;
    uv_thread_t thread;
    struct event *closed; /* rpc_close's; read by the thread after the queue's end */
    bool has_started, has_thread;
};

static void queue_main(void *argument)
{
    struct rpc *rpc = argument;

    thread_name("octet-queue");
    for (;;) {
        grpc_event e =
            grpc_completion_queue_next(rpc->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN)
            break;
        CAME_BACK(e.tag);
        inbox_post(rpc->inbox, e.tag, e.success != 0);
    }
    CAME_BACK(rpc);
    inbox_post(rpc->inbox, rpc->closed, true);
}

static grpc_arg integer(const char *key, int64_t value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER,
                      .key = (char *)(uintptr_t)key,
                      .value.integer = value > INT_MAX ? INT_MAX : (int)value};
}

enum { ARGUMENTS_MAX = 16 };

static size_t server_arguments(const struct config *config, grpc_arg out[ARGUMENTS_MAX])
{
    size_t n = 0;

    out[n++] = integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, config->limits.max_message_bytes);
    out[n++] = integer(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    out[n++] = integer(GRPC_ARG_MAX_METADATA_SIZE, config->limits.metadata_bytes);
    out[n++] = integer(GRPC_ARG_MAX_CONCURRENT_STREAMS, config->limits.streams_per_connection);
    /* gRPC's default lets a second daemon take the same port and half of the calls without an
     * error. */
    out[n++] = integer(GRPC_ARG_ALLOW_REUSEPORT, 0);
    /* Bit 0 = identity only. Left on, a gzip bomb is inflated before its size is looked at, on our
     * loop. */
    out[n++] = integer(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
    out[n++] = integer(GRPC_ARG_KEEPALIVE_TIME_MS, config->keepalive.interval_ms);
    out[n++] = integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, config->keepalive.timeout_ms);
    out[n++] = integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    /* A long quiet call with client keepalive is lawful here; gRPC's default is one ping in 5
     * minutes. */
    out[n++] = integer(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                       config->keepalive.client_interval_ms);
    /* Fewer, larger frames for large messages (64 MB echo: 567 -> 703 MB/s). */
    out[n++] = integer(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
    out[n++] = integer(GRPC_ARG_TCP_READ_CHUNK_SIZE, 64 << 10);
    out[n++] = integer(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 1 << 20);
    return n;
}

/* How large a request is shows only when all of it is there. The quota is for a crowd that sends at
 * the same time: gRPC ends calls, with RESOURCE_EXHAUSTED, that would take what it holds above it,
 * and may close connections without calls (their next one gets UNAVAILABLE).
 * 20 requests of 64 MiB and memory_bytes of 384 MiB: 520 MiB at most, and 1,090 without. */
static grpc_resource_quota *create_quota(const struct config *config)
{
    grpc_resource_quota *quota = grpc_resource_quota_create("octetd");

    grpc_resource_quota_resize(quota, (size_t)(config->limits.memory_bytes / 4 * 3));
    return quota;
}

enum octet_status rpc_create(const struct config *config, struct inbox *inbox, struct rpc **out,
                             struct octet_error *err)
{
    grpc_arg arguments[ARGUMENTS_MAX];
    grpc_channel_args list = {.args = arguments};
    struct rpc *rpc = calloc(1, sizeof *rpc);

    if (!rpc)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    rpc->inbox = inbox;
    list.num_args = server_arguments(config, arguments);
    grpc_init();
    grpc_resource_quota *quota = create_quota(config);
    arguments[list.num_args++] = (grpc_arg){
        .type = GRPC_ARG_POINTER,
        .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
        .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()},
    };
    rpc->server = grpc_server_create(&list, NULL);
    grpc_resource_quota_unref(quota);
    rpc->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(rpc->server, rpc->queue, NULL);
    *out = rpc;
    return OCTET_OK;
}

enum octet_status rpc_listen(struct rpc *rpc, const struct config *config, int *port,
                             struct octet_error *err)
{
    char target[CONFIG_TEXT_BYTES];
    grpc_server_credentials *credentials;
    enum octet_status status = address_probe(&config->address, err);

    if (status == OCTET_OK)
        status = credentials_create(config, &credentials, err);
    if (status != OCTET_OK)
        return status;
    address_format(&config->address, target, sizeof target);
    *port = grpc_server_add_http2_port(rpc->server, target, credentials);
    grpc_server_credentials_release(credentials);
    if (*port == 0)
        return octet_fail(err, OCTET_UNAVAILABLE, "listen",
                          "cannot listen on %s%s; gRPC's reason is in the log", target,
                          config_has_tls(config) ? " (or the TLS files do not fit together)" : "");
    return OCTET_OK;
}

enum octet_status rpc_serve(struct rpc *rpc, struct octet_error *err)
{
    grpc_server_start(rpc->server);
    int failure = uv_thread_create(&rpc->thread, queue_main, rpc);
    if (failure != 0)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no thread could be started: %s",
                          uv_strerror(failure));
    rpc->has_started = rpc->has_thread = true;
    return OCTET_OK;
}

void rpc_request_call(struct rpc *rpc, grpc_call **call, grpc_call_details *details,
                      grpc_metadata_array *metadata, struct event *event)
{
    HANDED_OUT(event);
    grpc_call_error error = grpc_server_request_call(rpc->server, call, details, metadata,
                                                     rpc->queue, rpc->queue, event);
    /* Only misuse fails here; the event must come back all the same. */
    if (error != GRPC_CALL_OK)
        inbox_post(rpc->inbox, event, false);
}

void rpc_start(grpc_call *call, const grpc_op *ops, size_t count, struct event *event)
{
    HANDED_OUT(event);
    grpc_call_error error = grpc_call_start_batch(call, ops, count, event, NULL);
    if (error != GRPC_CALL_OK)
        abort(); /* ours: a batch that breaks gRPC's rules; waiting for its event would hang */
}

void rpc_shutdown(struct rpc *rpc, struct event *event)
{
    HANDED_OUT(event);
    grpc_server_shutdown_and_notify(rpc->server, rpc->queue, event);
}

void rpc_cancel_calls(struct rpc *rpc)
{
    grpc_server_cancel_all_calls(rpc->server);
}

void rpc_close(struct rpc *rpc, struct event *event)
{
    rpc->closed = event;
    HANDED_OUT(rpc);
    grpc_completion_queue_shutdown(rpc->queue);
}

/* Without a thread the server was never started; shutting it down is then at once, but must be
 * asked. */
static void shut_down_unstarted(struct rpc *rpc)
{
    grpc_server_shutdown_and_notify(rpc->server, rpc->queue, NULL);
    grpc_completion_queue_shutdown(rpc->queue);
    while (grpc_completion_queue_next(rpc->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ;
}

void rpc_join(struct rpc *rpc)
{
    if (rpc && rpc->has_thread)
        uv_thread_join(&rpc->thread);
    if (rpc)
        rpc->has_thread = false;
}

void rpc_destroy(struct rpc *rpc)
{
    if (!rpc)
        return;
    rpc_join(rpc);
    if (!rpc->has_started)
        shut_down_unstarted(rpc);
    grpc_server_destroy(rpc->server);
    grpc_completion_queue_destroy(rpc->queue);
    grpc_shutdown();
    free(rpc);
}
