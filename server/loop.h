/* Loop: the thread that owns the daemon's state.
 *
 * For: calls, admission, timers, signals, the start and the end. It moves pointers: it never
 * decodes, parses, computes or waits, so a call's way through it takes microseconds whatever the
 * call is about.
 * Not for: gRPC's queue (rpc.h), when jobs run (scheduler.h), how the end goes (drain.h). */
#ifndef OCTET_SERVER_LOOP_H
#define OCTET_SERVER_LOOP_H

#include <uv.h>

#include "call.h"
#include "config.h"
#include "drain.h"
#include "guard.h"
#include "health.h"
#include "inbox.h"
#include "job.h"
#include "scheduler.h"
#include "services/services.h"

struct rpc;
struct tokens;

struct loop {
    uv_loop_t uv;
    const struct config *config;
    struct inbox inbox;
    struct rpc *rpc;
    struct scheduler schedulers[POOL_COUNT];
    struct services services;
    struct job_settings job_settings;
    struct health health;
    struct tokens *tokens; /* NULL: none asked for */
    struct drain drain;
    struct guard *guard; /* NULL: not started, or a unix socket */
    uv_timer_t sweep;    /* looks for late requests */

    struct call calls;   /* the ring's fixed point */
    int64_t open;        /* calls in the ring */
    int64_t streams;     /* of these, watches and dialogues */
    _Atomic int tickets; /* places given out in advance; the loop adds, the queue thread takes */
    int accepting;       /* calls that wait for an arrival */
    uint64_t id_seed, id_count;
    struct {
        int64_t calls, ok, failed, refused, cancelled;
    } counts;
};

/* Serves until the drain has ended. Returns OCTET_OK after a clean end. */
enum octet_status loop_run(const struct config *config, const struct octet_method *methods,
                           size_t method_count, struct octet_error *err) OCTET_MUST_CHECK;

/* For call.c. */
enum { LOOP_ACCEPTS = 16 }; /* calls that may arrive before the loop comes to ask for more */
void loop_accept(struct loop *loop); /* fills the supply up, unless the daemon ends */
void loop_call_opened(struct loop *loop, struct call *call);
void loop_call_freed(struct loop *loop, struct call *call);

/* For drain.c: the last call has ended and gRPC's thread is done; stops the loop. */
void loop_close(struct loop *loop);

#endif
