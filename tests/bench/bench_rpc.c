/* Latency of a small unary call: octetd's GetServerInfo beside a bare gRPC core server that echoes,
 * the two called in turn by one client. Figures of one machine mean little; the ratio is what to
 * watch. The goal is a ratio of at most 2: octetd's way through loop and lane may cost as much
 * again as gRPC itself.
 *
 *     bench_rpc OCTETD [--json] [--rounds N]
 *
 * With a daemon that traces, a cached Trace of deepseek3-671b is timed too (goal: p50 below 2 ms).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "client.h"
#include "daemon.h"
#include "octet/v1/octet.pb-c.h"

enum { WARM_UP = 200, TRACE_ROUNDS = 50 };

/* ---- The peer: one thread, one call at a time, no thought ---- */

struct echo {
    grpc_server *server;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *body;
    int cancelled;
};

static bool wait_event(struct echo *e)
{
    return grpc_completion_queue_next(e->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success;
}

static void echo_one(struct echo *e)
{
    grpc_op ops[3] = {{.op = GRPC_OP_RECV_MESSAGE}};
    grpc_slice no_text = grpc_empty_slice();

    ops[0].data.recv_message.recv_message = &e->body;
    grpc_call_start_batch(e->call, ops, 1, e, NULL);
    wait_event(e);
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = e->body;
    ops[2].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[2].data.send_status_from_server.status_details = &no_text;
    grpc_call_start_batch(e->call, ops, 3, e, NULL);
    wait_event(e);
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[0].data.recv_close_on_server.cancelled = &e->cancelled;
    grpc_call_start_batch(e->call, ops, 1, e, NULL);
    wait_event(e);
    if (e->body)
        grpc_byte_buffer_destroy(e->body);
    e->body = NULL;
    grpc_call_unref(e->call);
}

static int echo_main(void)
{
    struct echo e = {.server = NULL};
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();

    grpc_init();
    e.server = grpc_server_create(NULL, NULL);
    e.queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(e.server, e.queue, NULL);
    int port = grpc_server_add_http2_port(e.server, "127.0.0.1:0", credentials);
    grpc_server_start(e.server);
    printf("echo listening on 127.0.0.1:%d\n", port);
    fflush(stdout);
    for (;;) { /* until the bench ends it */
        grpc_call_details_init(&e.details);
        grpc_metadata_array_init(&e.metadata);
        grpc_server_request_call(e.server, &e.call, &e.details, &e.metadata, e.queue, e.queue, &e);
        if (!wait_event(&e))
            return 1;
        echo_one(&e);
        grpc_call_details_destroy(&e.details);
        grpc_metadata_array_destroy(&e.metadata);
    }
}

/* ---- Measuring ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double time_call(struct client *client, const char *path, const void *bytes, size_t length)
{
    struct reply reply;
    double start = now_us();

    client_call(client, path, bytes, length, 0, &reply);
    double took = now_us() - start;
    if (reply.status != 0) {
        fprintf(stderr, "bench_rpc: %s: status %d: %s\n", path, reply.status, reply.text);
        exit(1);
    }
    reply_free(&reply);
    return took;
}

struct figures {
    double p50, p99, cpu; /* microseconds; cpu: of the server, a call */
};

static struct figures figures_of(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, by_size);
    return (struct figures){.p50 = samples[count / 2], .p99 = samples[count * 99 / 100]};
}

/* request: empty, or an unknown field, with which GetServerInfo takes the way through a lane. */
static void small_calls(struct client *octet, struct client *echo, const char *request,
                        size_t rounds, struct figures *ours, struct figures *peers)
{
    size_t length = strlen(request);
    double *a = calloc(rounds, sizeof *a), *b = calloc(rounds, sizeof *b);

    for (size_t i = 0; i < WARM_UP; i++) {
        time_call(octet, "/octet.v1.Octet/GetServerInfo", request, length);
        time_call(echo, "/bench.Echo/Echo", request, length);
    }
    for (size_t i = 0; i < rounds; i++) {
        a[i] = time_call(octet, "/octet.v1.Octet/GetServerInfo", request, length);
        b[i] = time_call(echo, "/bench.Echo/Echo", request, length);
    }
    *ours = figures_of(a, rounds);
    *peers = figures_of(b, rounds);
    free(b);
    free(a);
}

static struct figures traces(struct client *octet)
{
    Octet__V1__ModelConfig__OverridesEntry entry = OCTET__V1__MODEL_CONFIG__OVERRIDES_ENTRY__INIT;
    Octet__V1__ModelConfig__OverridesEntry *entries[] = {&entry};
    Octet__V1__ModelConfig model = OCTET__V1__MODEL_CONFIG__INIT;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    uint8_t bytes[256];
    double samples[TRACE_ROUNDS];

    entry.key = (char *)"quantization";
    entry.value = (char *)"fp8_full";
    model.name = (char *)"deepseek3-671b";
    model.n_overrides = 1;
    model.overrides = entries;
    request.model = &model;
    size_t length = octet__v1__trace_request__pack(&request, bytes);
    time_call(octet, "/octet.v1.Octet/Trace", bytes, length); /* fills the cache */
    for (size_t i = 0; i < TRACE_ROUNDS; i++)
        samples[i] = time_call(octet, "/octet.v1.Octet/Trace", bytes, length);
    return figures_of(samples, TRACE_ROUNDS);
}

static void print_figures(bool json, const struct figures *ours, const struct figures *peers,
                          const struct figures lane[2], const struct figures *trace)
{
    double ratio = ours->p50 / peers->p50, lane_ratio = lane[0].p50 / lane[1].p50;

    if (json) {
        printf("{\"rows\": [{\"call\": \"GetServerInfo\", \"peer\": \"grpc-core-echo\", "
               "\"p50_us\": %.1f, "
               "\"p99_us\": %.1f, \"cpu_us\": %.1f, \"peer_p50_us\": %.1f, \"peer_p99_us\": %.1f, "
               "\"peer_cpu_us\": %.1f, \"ratio\": %.2f}, ",
               ours->p50, ours->p99, ours->cpu, peers->p50, peers->p99, peers->cpu, ratio);
        printf("{\"call\": \"GetServerInfo, through a lane\", \"peer\": \"grpc-core-echo\", "
               "\"p50_us\": %.1f, \"peer_p50_us\": %.1f, \"ratio\": %.2f}, ",
               lane[0].p50, lane[1].p50, lane_ratio);
        printf(
            "{\"call\": \"Trace deepseek3-671b, cached\", \"p50_us\": %.1f, \"p99_us\": %.1f}]}\n",
            trace->p50, trace->p99);
        return;
    }
    printf("GetServerInfo    p50 %6.1f us  p99 %7.1f us  server's CPU %5.1f us a call\n", ours->p50,
           ours->p99, ours->cpu);
    printf("bare gRPC echo   p50 %6.1f us  p99 %7.1f us  server's CPU %5.1f us a call\n",
           peers->p50, peers->p99, peers->cpu);
    printf("ratio of p50     %.2f (goal: at most 2)\n", ratio);
    printf("through a lane   p50 %6.1f us, echo %.1f us, ratio %.2f\n", lane[0].p50, lane[1].p50,
           lane_ratio);
    printf("Trace of deepseek3-671b, cached: p50 %.1f us  p99 %.1f us (goal: p50 below 2000)\n",
           trace->p50, trace->p99);
}

int main(int argc, char **argv)
{
    struct daemon octetd, peer;
    struct figures ours, peers, lane[2], trace;
    bool json = false;
    size_t rounds = 5000;
    int status = 0;

    if (argc > 1 && strcmp(argv[1], "--echo") == 0)
        return echo_main();
    if (argc < 2) {
        fprintf(stderr, "usage: bench_rpc OCTETD [--json] [--rounds N]\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        json |= strcmp(argv[i], "--json") == 0;
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = strtoul(argv[++i], NULL, 10);
    }
    const char *const ours_arguments[] = {"--listen", "127.0.0.1:0", "--log-level", "error", NULL};
    const char *const peer_arguments[] = {"--echo", NULL};
    if (!daemon_start(&octetd, argv[1], ours_arguments, NULL, &status) ||
        !daemon_start(&peer, "/proc/self/exe", peer_arguments, NULL, &status) || rounds == 0) {
        fprintf(stderr, "bench_rpc: a server did not start (status %d)\n", status);
        return 1;
    }
    struct client *octet = client_connect(octetd.address), *echo = client_connect(peer.address);
    long our_cpu = daemon_cpu_ms(&octetd), peer_cpu = daemon_cpu_ms(&peer);
    small_calls(octet, echo, "", rounds, &ours, &peers);
    ours.cpu = 1e3 * (double)(daemon_cpu_ms(&octetd) - our_cpu) / (double)(rounds + WARM_UP);
    peers.cpu = 1e3 * (double)(daemon_cpu_ms(&peer) - peer_cpu) / (double)(rounds + WARM_UP);
    small_calls(octet, echo, "\x98\x06\x01", rounds, &lane[0], &lane[1]);
    trace = traces(octet);
    print_figures(json, &ours, &peers, lane, &trace);
    client_close(octet);
    client_close(echo);
    daemon_signal(&peer, SIGKILL);
    daemon_wait(&peer, 5);
    daemon_signal(&octetd, SIGTERM);
    return daemon_wait(&octetd, 30) == 0 ? 0 : 1;
}
