/* Drain: how the daemon ends.
 *
 *   SERVING --signal--> DRAINING --delay--> CLOSING --last call--> QUEUE --last event--> ENDED
 *                                              `--grace--> CANCELLING --'
 *
 * DRAINING: the port is open, health says NOT_SERVING, new calls get our own UNAVAILABLE. CLOSING:
 * the port is closed, calls that were admitted go on, streams end. CANCELLING: what still runs is
 * told to stop. A lane that does not listen to that for some seconds more is a fault; the process
 * then ends with status 1. */
#ifndef OCTET_SERVER_DRAIN_H
#define OCTET_SERVER_DRAIN_H

#include <uv.h>

#include "inbox.h"

struct loop;

enum drain_phase {
    DRAIN_SERVING,
    DRAIN_DRAINING,
    DRAIN_CLOSING,
    DRAIN_CANCELLING,
    DRAIN_QUEUE,
    DRAIN_ENDED
};

struct drain {
    struct loop *loop;
    void (*on_ended)(struct loop *loop); /* the last call is freed and gRPC's thread is done */
    enum drain_phase phase;
    uint64_t asked_ns; /* when the signal was seen; the grace period starts then */
    uv_timer_t timer;  /* the end of the phase */
    uv_async_t signalled;
    struct event shut, closed;
};

/* Sets the loop's phase from then on, and hears of its calls' ends. */
enum octet_status drain_init(struct drain *drain, struct loop *loop,
                             void (*on_ended)(struct loop *loop),
                             struct octet_error *err) OCTET_MUST_CHECK;
void drain_begin(struct drain *drain);
void drain_close_handles(struct drain *drain);

#endif
