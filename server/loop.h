/* Loop: what belongs to whoever has the turn (inbox.h), for those who work on it: calls (call.h),
 * the start (serve.h) and the end (drain.h).
 *
 * Decision: they move pointers. Nothing on the loop decodes, parses, computes or waits, so a call's
 * way through it takes microseconds whatever the call is about. */
#ifndef OCTET_SERVER_LOOP_H
#define OCTET_SERVER_LOOP_H

#include <uv.h>

#include "blocks.h"
#include "config.h"
#include "crews.h"
#include "guard.h"
#include "health.h"
#include "inbox.h"
#include "job.h"
#include "scheduler.h"
#include "sessions.h"
#include "services/services.h"

struct call;
struct drain;
struct rpc;
struct tokens;

enum loop_phase {
    LOOP_SERVING,
    LOOP_DRAINING, /* new calls are refused, but for public methods */
    LOOP_CLOSING,  /* there are no new calls */
};

struct loop {
    uv_loop_t uv;
    const struct config *config;
    struct inbox inbox;
    struct rpc *rpc;
    struct crews crews;
    struct blocks *blocks;
    struct scheduler schedulers[POOL_COUNT];
    struct services services;
    struct sessions sessions;
    struct job_settings job_settings;
    struct health health;
    struct tokens *tokens; /* NULL: none asked for */
    struct guard *guard;   /* NULL: not started, or a unix socket */
    uv_timer_t sweep;      /* looks for late requests */
    uv_work_t tidy;        /* gives memory back, on libuv's pool */
    bool is_tidying;
    uint64_t large_ns;  /* when a job last left much free memory behind; 0: since then tidied up */
    uint64_t tidied_ns; /* the last time */

    enum loop_phase phase;
    struct call *calls;                         /* the open ones, newest first */
    int64_t open;                               /* how many these are */
    int64_t streams;                            /* of these, watches and dialogues */
    int accepting;                              /* calls that wait for an arrival */
    void (*on_call_freed)(struct drain *drain); /* it may have been the last */
    struct drain *drain;
    uint64_t id_seed, id_count;
    struct {
        int64_t calls, ok, failed, refused, cancelled;
    } counts;
};

#endif
