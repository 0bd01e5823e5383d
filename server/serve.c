/* See serve.h. */
#include "serve.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends.h"
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

/* ---- Memory that large requests leave behind ---- */

/* How long it stays for the next one. Back it goes on another thread: a gigabyte takes
 * milliseconds. */
#define TIDY_AFTER_NS UINT64_C(1000000000)
#define TIDY_AGAIN_NS UINT64_C(4000000000) /* gRPC frees some things late */

static void tidy_work(uv_work_t *work)
{
    struct loop *loop = OWNER_OF(work, struct loop, tidy);

    blocks_tidy(loop->blocks);
    malloc_trim(0); /* glibc keeps what threads free, for each thread */
}

static void on_tidied(uv_work_t *work, int status)
{
    (void)status;
    OWNER_OF(work, struct loop, tidy)->is_tidying = false;
}

static void tidy_up(struct loop *loop, uint64_t now_ns)
{
    uint64_t pause_ns = loop->tidied_ns > loop->large_ns ? TIDY_AGAIN_NS : TIDY_AFTER_NS;

    if (!loop->large_ns || loop->is_tidying || now_ns - loop->large_ns < pause_ns)
        return;
    if (pause_ns == TIDY_AGAIN_NS)
        loop->large_ns = 0;
    loop->tidied_ns = now_ns;
    loop->is_tidying = uv_queue_work(&loop->uv, &loop->tidy, tidy_work, on_tidied) == 0;
}

/* Tidies up, ends calls whose request does not arrive, and asks again for calls where memory was
 * short. */
static void on_sweep(uv_timer_t *timer)
{
    struct loop *loop = OWNER_OF(timer, struct loop, sweep);
    int64_t receive_ms = loop->config->limits.receive_ms;
    char text[120];

    inbox_enter(&loop->inbox);
    uint64_t now_ns = octet_now_ns(); /* with the turn: all calls began before now */
    snprintf(text, sizeof text, "the request did not arrive in time (limits.receive_ms is %lld)",
             (long long)receive_ms);
    for (struct call *call = loop->calls, *next; call; call = next) {
        next = call->next;
        if (call_is_late(call, now_ns, receive_ms))
            call_end(call, OCTET_DEADLINE_EXCEEDED, text);
        else
            call_check_sending(call, now_ns, receive_ms);
    }
    sessions_sweep(&loop->sessions, now_ns);
    tidy_up(loop, now_ns);
    call_accept_all(loop);
    inbox_leave(&loop->inbox);
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

struct facts {
    struct octet_server_facts told;
    const char *cpu_features[32];
    char kernels[32];
};

static void facts_init(struct facts *facts, const struct config *config,
                       const struct backends *backends)
{
    static const char *const accumulations[] = {"EXACT_ORDER", "FAST"};
    size_t count = 0;

    while (count < sizeof facts->cpu_features / sizeof *facts->cpu_features &&
           (facts->cpu_features[count] = octet_cpu_feature(count)) != NULL)
        count++;
    facts->told = (struct octet_server_facts){
        .message_bytes_max = (uint64_t)config->limits.max_message_bytes,
        .request_memory_bytes = (uint64_t)config->limits.request_memory_bytes,
        .queue_length = (uint64_t)config->limits.queue_length,
        .config_request_bytes = (uint64_t)config->limits.config_request_bytes,
        .sessions = (uint64_t)config->limits.sessions,
        .session_memory_bytes = (uint64_t)config->limits.session_memory_bytes,
        .lanes = (int32_t)config->threads,
        .lane_threads = (int32_t)config->lane_threads,
        .backends = backends->list,
        .backend_count = backends->count,
        .cpu_features = facts->cpu_features,
        .cpu_feature_count = count,
        .kernels = facts->kernels,
        .accumulations = accumulations,
        .accumulation_count = 2,
    };
}

/* The set that all lanes will compute with; the default one is chosen by what the CPU has. */
static enum octet_status choose_kernels(struct facts *facts, const struct config *config,
                                        struct octet_error *err)
{
    octet_workers *workers;
    enum octet_status status = octet_workers_create(config->kernels, 1, &workers, err);

    if (status != OCTET_OK)
        return status;
    snprintf(facts->kernels, sizeof facts->kernels, "%s", octet_workers_kernels(workers));
    octet_workers_destroy(workers);
    return OCTET_OK;
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
              log_text("kernels", loop->job_settings.facts->kernels),
              log_text("security", config_has_tls(loop->config) ? "tls" : "plaintext"),
              log_text("version", octet_version()), log_number("pid", getpid()));
}

static enum octet_status start_schedulers(struct loop *loop, struct octet_error *err)
{
    const struct config *config = loop->config;
    const struct scheduler_settings compute = {
        .lanes = (size_t)config->threads,
        .places_max = config->limits.queue_length,
        .limit_name = "limits.queue_length",
        .memory_max = config->limits.memory_bytes,
        .kernels = config->kernels,
        .crews = &loop->crews,
        .inbox = &loop->inbox,
    };
    const struct scheduler_settings control = {
        .lanes = CONTROL_LANES,
        .places_max = config->limits.control_calls,
        .limit_name = "limits.control_calls",
        .memory_max = config->limits.memory_bytes,
        .inbox = &loop->inbox,
    };
    enum octet_status status =
        crews_start(&loop->crews, config->kernels, (int32_t)uv_available_parallelism(),
                    (int32_t)config->lane_threads, (int32_t)config->threads, err);

    if (status == OCTET_OK)
        status = scheduler_start(&loop->schedulers[POOL_COMPUTE], &compute, err);
    if (status == OCTET_OK)
        status = scheduler_start(&loop->schedulers[POOL_CONTROL], &control, err);
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
    crews_stop(&loop->crews);
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
    inbox_enter(&loop->inbox);
    call_accept_all(loop);
    health_set(&loop->health, true);
    inbox_leave(&loop->inbox);
    uv_timer_start(&loop->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    sessions_check_directory(loop->config);
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

    *loop = (struct loop){.config = config, .blocks = blocks_create()};
    health_init(&loop->health);
    if (getrandom(&loop->id_seed, sizeof loop->id_seed, GRND_NONBLOCK) != sizeof loop->id_seed)
        loop->id_seed = octet_now_ns() ^ (uint64_t)getpid() << 32;
    loop->job_settings = (struct job_settings){
        .inbox = &loop->inbox,
        .blocks = loop->blocks,
        .sessions = &loop->sessions,
        .host = &loop->sessions.host,
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
    struct backends backends = {.count = 0};
    octet_context *context = NULL;
    bool has_served = false;

    init(&loop, config);
    if (!loop.blocks)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    enum octet_status status = open_handles(&loop, &drain, err);
    if (status != OCTET_OK)
        goto done;
    status = backends_open(&backends, config, err);
    facts_init(&facts, config, &backends);
    if (status == OCTET_OK)
        status = choose_kernels(&facts, config, err);
    if (status == OCTET_OK)
        status = octet_context_create(NULL, &context, err);
    if (status == OCTET_OK)
        status = sessions_init(&loop.sessions, config, &loop.uv, &loop.inbox, err);
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
    sessions_free(&loop.sessions);
    backends_close(&backends);
    services_free(&loop.services);
    tokens_free(loop.tokens);
    octet_context_destroy(context);
    guard_free(loop.guard);
    inbox_free(&loop.inbox);
    uv_loop_close(&loop.uv);
done:
    blocks_unref(loop.blocks);
    return status;
}
