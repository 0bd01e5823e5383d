/* Sessions: the table of those that this daemon holds.
 *
 * For: ids, leases, limits on their number and memory, and who may work on one when: calls that
 * change a session one at a time, calls that read it beside each other, all in order of arrival.
 * Not for: what is in a session (proto/wire/held.h), nor when a job gets a lane (scheduler.h).
 *
 * Life: 1. A claim is part of a call: claim -> granted -> release, or release while it waits. 2. A
 * session that was deleted or whose lease has ended leaves the table at once and is freed when its
 * last claim is released. 3. A lease does not end while there are claims.
 *
 * Threads: claims are the loop's. The table, its sums and its leases are shared with lanes, which
 * make sessions and answer KeepAlive and ListSessions; `lock` guards these. */
#ifndef OCTET_SERVER_SESSIONS_H
#define OCTET_SERVER_SESSIONS_H

#include <uv.h>

#include "config.h"
#include "inbox.h"
#include "wire/held.h"

struct session;
struct making;

struct sessions {
    uv_mutex_t lock; /* guards all below but `uv`, `inbox` and `config` */
    struct session *first;
    struct making *making; /* request ids of CreateSession calls that are running */
    int64_t count, count_max;
    uint64_t memory, memory_max; /* sum of the sessions' peaks */
    const struct config *config;
    uv_loop_t *uv;
    struct inbox *inbox;
    struct octet_host host;
};

enum octet_status sessions_init(struct sessions *sessions, const struct config *config,
                                uv_loop_t *uv, struct inbox *inbox,
                                struct octet_error *err) OCTET_MUST_CHECK;
/* After the loop and the lanes have ended. Fine after a failed or no init. */
void sessions_free(struct sessions *sessions);
/* Ends sessions whose lease is over. */
void sessions_sweep(struct sessions *sessions, uint64_t now_ns);
/* Makes data_dir if it is not there, and warns when checkpoints cannot be written. */
void sessions_check_directory(const struct config *config);

/* A call's share in a session. */
struct claim {
    struct session *session; /* NULL: none */
    enum octet_access access;
    bool is_granted;
    struct claim *next;
    /* The claim is granted, or, with false, its session has ended meanwhile; then the claim is
     * over. */
    void (*on_turn)(struct claim *claim, bool granted);
};

/* Renews the lease and waits for its turn, which may come at once. false: no such session. */
bool sessions_claim(struct sessions *sessions, const char *id, enum octet_access access,
                    struct claim *claim, void (*on_turn)(struct claim *claim, bool granted));
/* Fine without a session. */
void sessions_release(struct sessions *sessions, struct claim *claim);
octet_held *claim_held(const struct claim *claim);
/* The session has just been made, and nobody will ever know its id. */
void sessions_forget(struct sessions *sessions, const char *id);

/* On a lane that has the session to itself: takes it out of the table and frees its numbers. */
void sessions_retire(struct sessions *sessions, octet_held *held);

#endif
