/* See serve.h. */
#include "serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"
#include "credentials.h"
#include "drain.h"
#include "log.h"
#include "loop.h"
#include "octet/context.h"
#include "rpc.h"
#include "signals.h"
#include "wire/methods.h"

enum { SWEEP_MS = 500, CONTROL_LANES = 1 };

/* Tidies up, ends calls whose request does not arrive, and asks again for calls where memory was
 * short. */
static void on_sweep(uv_timer_t *timer)
{
    struct loop *loop = OWNER_OF(timer, struct loop, sweep);
    int64_t receive_ms = loop->config->limits.receive_ms;
    char text[120];

    inbox_empty(&loop->inbox);
    uint64_t now_ns = octet_now_ns(); /* after it: calls that it began began before now */
    snprintf(text, sizeof text, "the request did not arrive within limits.receive_ms, %lld ms",
             (long long)receive_ms);
    for (struct call *call = loop->calls, *next; call; call = next) {
        next = call->next;
        if (call_is_late(call, now_ns, receive_ms))
            call_end(call, OCTET_DEADLINE_EXCEEDED, text);
    }
    call_accept_all(loop);
    call_give_tickets(loop);
}

/* A connection has sent more than the requests that are on their way may hold; which of them is too
 * large only gRPC knows, so all of that connection's end. */
static void on_excess(void *user, const struct peer_key *peer)
{
    struct loop *loop = user;
    char text[160];

    for (struct call *call = loop->calls, *next; call; call = next) {
        next = call->next;
        if (!call->is_receiving || !peer_key_equal(&call->peer_key, peer))
            continue;
        snprintf(text, sizeof text,
                 "the request is larger than %s, %lld bytes; reading stopped there",
                 call->method->limit_name, (long long)call->method->request_bytes_max);
        call_end(call, OCTET_RESOURCE_EXHAUSTED, text);
    }
}

/* ---- Facts for GetServerInfo ---- */

#define CPU_FEATURES(X)                                                                            \
    X(avx2)                                                                                        \
    X(fma)                                                                                         \
    X(f16c)                                                                                        \
    X(avx512f)                                                                                     \
    X(avx512bw)                                                                                    \
    X(avx512vl)                                                                                    \
    X(avx512vbmi)                                                                                  \
    X(avx512vnni)                                                                                  \
    X(avx512bf16)

struct facts {
    struct octet_server_facts told;
    const char *cpu_features[16];
};

static void facts_init(struct facts *facts, const struct config *config)
{
    static const char *const backends[] = {"cpu"}, *const accumulations[] = {"EXACT_ORDER"};
    size_t count = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
#define ADD(name)                                                                                  \
    if (__builtin_cpu_supports(#name))                                                             \
        facts->cpu_features[count++] = #name;
    CPU_FEATURES(ADD)
#undef ADD
#endif
    facts->told = (struct octet_server_facts){
        .message_bytes_max = (uint64_t)config->limits.max_message_bytes,
        .request_memory_bytes = (uint64_t)config->limits.request_memory_bytes,
        .queue_length = (uint64_t)config->limits.queue_length,
        .config_request_bytes = (uint64_t)config->limits.config_request_bytes,
        .lanes = (int32_t)config->threads,
        .backends = backends,
        .backend_count = 1,
        .cpu_features = facts->cpu_features,
        .cpu_feature_count = count,
        .kernels = "",
        .accumulations = accumulations,
        .accumulation_count = 1,
    };
}

/* ---- Start and end ---- */

/* Who waits for the file would wait for ever, so a start without it is none. */
static enum octet_status write_port_file(const struct config *config, int port,
                                         struct octet_error *err)
{
    char temporary[CONFIG_PATH_BYTES + 8];
    struct stat what;

    if (!config->port_file[0])
        return OCTET_OK;
    if (stat(config->port_file, &what) == 0 && !S_ISREG(what.st_mode))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "port_file",
                          "'%s' exists and is not a regular file", config->port_file);
    snprintf(temporary, sizeof temporary, "%s.new", config->port_file);
    FILE *file = fopen(temporary, "we");
    bool written = file && fprintf(file, "%d\n", port) > 0;
    if (file && fclose(file) != 0)
        written = false;
    /* Renamed, so that who waits for the file never reads half of it. */
    if (written && rename(temporary, config->port_file) == 0)
        return OCTET_OK;
    octet_fail(err, OCTET_INVALID_ARGUMENT, "port_file", "'%s' cannot be written: %s",
               config->port_file, strerror(errno));
    if (file)
        unlink(temporary);
    return OCTET_INVALID_ARGUMENT;
}

static void announce(struct loop *loop, int port)
{
    struct address address = loop->config->address;
    char text[CONFIG_TEXT_BYTES];

    if (!address.is_unix)
        address.port = port;
    address_format(&address, text, sizeof text);
    printf("octetd %s listening on %s\n", octet_version(), text);
    fflush(stdout);
    log_event(LOG_LEVEL_INFO, "listening", log_text("address", text),
              log_number("lanes", loop->config->threads),
              log_text("security", config_has_tls(loop->config) ? "tls" : "plaintext"),
              log_text("version", octet_version()), log_number("pid", getpid()));
}

static enum octet_status start_schedulers(struct loop *loop, struct octet_error *err)
{
    const struct config *config = loop->config;
    enum octet_status status = scheduler_start(
        &loop->schedulers[POOL_COMPUTE], (size_t)config->threads, config->limits.queue_length,
        "limits.queue_length", config->limits.memory_bytes, &loop->inbox, err);

    if (status == OCTET_OK)
        status = scheduler_start(&loop->schedulers[POOL_CONTROL], CONTROL_LANES,
                                 config->limits.control_calls, "limits.control_calls",
                                 config->limits.memory_bytes, &loop->inbox, err);
    return status;
}

/* What must have ended before the loop can. */
static void close_all(struct loop *loop)
{
    /* Whoever posts must have ended before the inbox goes. None of these waits for more than a
     * thread that is on its way out. */
    guard_stop(loop->guard);
    rpc_join(loop->rpc);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        scheduler_stop(&loop->schedulers[pool]);
    inbox_close(&loop->inbox);
    drain_close_handles(loop->drain);
    uv_close((uv_handle_t *)&loop->sweep, NULL);
}

/* The uv loop and the handles that stay until close_all. */
static enum octet_status open_handles(struct loop *loop, struct drain *drain,
                                      struct octet_error *err)
{
    int failure = uv_loop_init(&loop->uv);

    if (failure != 0)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no event loop: %s",
                          uv_strerror(failure));
    enum octet_status status = inbox_init(&loop->inbox, &loop->uv, err);
    if (status != OCTET_OK)
        goto close_loop;
    status = drain_init(drain, loop, close_all, err);
    if (status != OCTET_OK)
        goto close_inbox;
    uv_timer_init(&loop->uv, &loop->sweep);
    return OCTET_OK;

close_inbox:
    inbox_close(&loop->inbox);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    inbox_free(&loop->inbox);
close_loop:
    uv_loop_close(&loop->uv);
    return status;
}

static enum octet_status run(struct loop *loop, struct octet_error *err)
{
    int port;
    enum octet_status status = rpc_listen(loop->rpc, loop->config, &port, err);

    if (status == OCTET_OK)
        status = guard_start(loop->config, port, &loop->inbox, on_excess, loop, &loop->guard, err);
    if (status == OCTET_OK)
        status = write_port_file(loop->config, port, err);
    if (status == OCTET_OK)
        status = rpc_serve(loop->rpc, err);
    if (status != OCTET_OK)
        return status;
    call_give_tickets(loop);
    call_accept_all(loop);
    health_set(&loop->health, true);
    uv_timer_start(&loop->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    announce(loop, port);
    signals_watch(&loop->drain->signalled);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    log_event(LOG_LEVEL_INFO, "stopped", log_number("calls", loop->counts.calls),
              log_number("ok", loop->counts.ok), log_number("failed", loop->counts.failed),
              log_number("refused", loop->counts.refused),
              log_number("cancelled", loop->counts.cancelled));
    return OCTET_OK;
}

static void init(struct loop *loop, const struct config *config)
{
    const char *fail_alloc = getenv("OCTET_FAIL_ALLOC");

    *loop = (struct loop){.config = config};
    health_init(&loop->health);
    if (getrandom(&loop->id_seed, sizeof loop->id_seed, GRND_NONBLOCK) != sizeof loop->id_seed)
        loop->id_seed = octet_now_ns() ^ (uint64_t)getpid() << 32;
    loop->job_settings = (struct job_settings){
        .inbox = &loop->inbox,
        .reply_bytes_max = config->limits.max_message_bytes,
        .fail_alloc = fail_alloc ? strtoull(fail_alloc, NULL, 10) : 0,
    };
}

enum octet_status serve(const struct config *config, const struct octet_method *methods,
                        size_t method_count, struct octet_error *err)
{
    struct loop loop;
    struct drain drain;
    struct facts facts = {.told = {.lanes = 0}};
    octet_context *context = NULL;
    bool has_served = false;

    init(&loop, config);
    facts_init(&facts, config);
    enum octet_status status = open_handles(&loop, &drain, err);
    if (status != OCTET_OK)
        return status;
    status = octet_context_create(NULL, &context, err);
    if (status == OCTET_OK)
        status = tokens_read(config, &loop.tokens, err);
    if (status == OCTET_OK)
        status = services_create(config, methods, method_count, &loop.health, &loop.services, err);
    if (status == OCTET_OK)
        status = start_schedulers(&loop, err);
    if (status == OCTET_OK)
        status = rpc_create(config, &loop.inbox, &loop.rpc, err);
    if (status == OCTET_OK) {
        loop.job_settings.context = context;
        loop.job_settings.facts = &facts.told;
        status = services_prepare(&loop.services, &loop.job_settings, err);
    }
    if (status == OCTET_OK) {
        status = run(&loop, err);
        has_served = status == OCTET_OK;
    }
    if (!has_served) {
        close_all(&loop);
        uv_run(&loop.uv, UV_RUN_DEFAULT);
    }
    rpc_destroy(loop.rpc);
    services_free(&loop.services);
    tokens_free(loop.tokens);
    octet_context_destroy(context);
    guard_free(loop.guard);
    inbox_free(&loop.inbox);
    uv_loop_close(&loop.uv);
    return status;
}
