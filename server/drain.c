/* See drain.h. */
#include "drain.h"

#include <stdlib.h>
#include <unistd.h>

#include "call.h"
#include "log.h"
#include "loop.h"
#include "rpc.h"
#include "signals.h"

enum {
    STUBBORN_LANE_MS = 10000,
    GOODBYE_MS = 500, /* for connections without calls to close by themselves */
};

static void on_delay_over(uv_timer_t *timer);
static void on_goodbye_over(uv_timer_t *timer);
static void on_grace_over(uv_timer_t *timer);
static void on_lane_stubborn(uv_timer_t *timer);

static void on_signalled(uv_async_t *async)
{
    struct drain *drain = OWNER_OF(async, struct drain, signalled);

    inbox_enter(&drain->loop->inbox);
    if (signals_first() && drain->phase == DRAIN_SERVING)
        drain_begin(drain);
    inbox_leave(&drain->loop->inbox);
}

static struct drain *drain_of(uv_timer_t *timer)
{
    return OWNER_OF(timer, struct drain, timer);
}

/* gRPC has no call left and takes none: the queue can be closed. */
static void on_shut(struct event *event, bool ok)
{
    struct drain *drain = OWNER_OF(event, struct drain, shut);

    (void)ok;
    drain->phase = DRAIN_QUEUE;
    /* Calls that clients gave up may still have a lane. */
    uv_timer_start(&drain->timer, on_lane_stubborn, STUBBORN_LANE_MS, 0);
    rpc_close(drain->loop->rpc, &drain->closed);
}

/* A call was freed: it may have been the last. */
static void drain_check(struct drain *drain)
{
    if (drain->loop->open > 0)
        return;
    if (drain->phase == DRAIN_CLOSING)
        uv_timer_start(&drain->timer, on_goodbye_over, GOODBYE_MS, 0);
    else if (drain->phase == DRAIN_ENDED)
        drain->on_ended(drain->loop);
}

static void on_closed(struct event *event, bool ok)
{
    struct drain *drain = OWNER_OF(event, struct drain, closed);

    (void)ok;
    drain->phase = DRAIN_ENDED;
    drain_check(drain);
}

enum octet_status drain_init(struct drain *drain, struct loop *loop,
                             void (*on_ended)(struct loop *loop), struct octet_error *err)
{
    *drain = (struct drain){.loop = loop, .on_ended = on_ended, .phase = DRAIN_SERVING};
    loop->drain = drain;
    loop->on_call_freed = drain_check;
    drain->shut.deliver = on_shut;
    drain->closed.deliver = on_closed;
    uv_timer_init(&loop->uv, &drain->timer);
    int failure = uv_async_init(&loop->uv, &drain->signalled, on_signalled);
    if (failure == 0)
        return OCTET_OK;
    uv_close((uv_handle_t *)&drain->timer, NULL);
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "%s", uv_strerror(failure));
}

void drain_begin(struct drain *drain)
{
    struct loop *loop = drain->loop;

    drain->phase = DRAIN_DRAINING;
    loop->phase = LOOP_DRAINING;
    drain->asked_ns = octet_now_ns();
    log_event(LOG_LEVEL_INFO, "draining", log_number("signal", signals_first()),
              log_number("calls", loop->open), log_number("delay_ms", loop->config->drain.delay_ms),
              log_number("grace_ms", loop->config->drain.grace_ms));
    inbox_stay(&loop->inbox); /* a call's end may start timers here */
    health_set(&loop->health, false);
    uv_timer_start(&drain->timer, on_delay_over, (uint64_t)loop->config->drain.delay_ms, 0);
}

/* Streams have no end of their own: a watcher has heard NOT_SERVING, a dialogue waits for a
 * question. */
static void end_streams(struct loop *loop)
{
    for (struct call *call = loop->calls, *next; call; call = next) {
        next = call->next;
        if (!call->method)
            continue;
        if (call->method->shape == CALL_WATCH)
            call_end(call, OCTET_OK, "");
        else if (call->method->shape == CALL_DIALOGUE)
            call_end(call, OCTET_UNAVAILABLE, "the server is shutting down");
    }
}

static void on_delay_over(uv_timer_t *timer)
{
    struct drain *drain = drain_of(timer);
    uint64_t passed_ms = (octet_now_ns() - drain->asked_ns) / 1000000;
    uint64_t grace_ms = (uint64_t)drain->loop->config->drain.grace_ms;

    inbox_enter(&drain->loop->inbox);
    drain->phase = DRAIN_CLOSING;
    drain->loop->phase = LOOP_CLOSING;
    end_streams(drain->loop);
    rpc_shutdown(drain->loop->rpc, &drain->shut);
    uv_timer_start(timer, on_grace_over, grace_ms > passed_ms ? grace_ms - passed_ms : 0, 0);
    drain_check(drain);
    inbox_leave(&drain->loop->inbox);
}

static void on_lane_stubborn(uv_timer_t *timer)
{
    log_event(LOG_LEVEL_ERROR, "a cancelled call did not stop; giving up",
              log_number("calls", drain_of(timer)->loop->open));
    _exit(EXIT_FAILURE);
}

/* gRPC waits for clients to answer its goodbye, and a mute one would use up the grace period. */
static void on_goodbye_over(uv_timer_t *timer)
{
    struct drain *drain = drain_of(timer);

    rpc_cancel_calls(drain->loop->rpc);
    uv_timer_start(timer, on_lane_stubborn, STUBBORN_LANE_MS, 0);
}

static void on_grace_over(uv_timer_t *timer)
{
    struct drain *drain = drain_of(timer);

    log_event(LOG_LEVEL_WARNING, "the grace period is over; cancelling",
              log_number("calls", drain->loop->open));
    if (drain->phase == DRAIN_CLOSING)
        drain->phase = DRAIN_CANCELLING;
    rpc_cancel_calls(drain->loop->rpc);
    uv_timer_start(timer, on_lane_stubborn, STUBBORN_LANE_MS, 0);
}

void drain_close_handles(struct drain *drain)
{
    signals_unwatch();
    uv_close((uv_handle_t *)&drain->timer, NULL);
    uv_close((uv_handle_t *)&drain->signalled, NULL);
}
