/* Crews: sets of worker threads that lanes borrow for large operations.
 *
 * For: one operation alone uses the machine, and many at once do not fight for it. A lane computes
 * with a thread of its own, or with a crew when the operation is large, a crew is free, and the
 * lanes that compute leave room for it: busy lanes get no crew, or threads would crowd the CPUs.
 * Not for: when something runs, nor the results: these do not depend on the number of threads.
 *
 * Life: start -> take and give, from any thread -> stop, when all have been given back. */
#ifndef OCTET_SERVER_CREWS_H
#define OCTET_SERVER_CREWS_H

#include <stdbool.h>
#include <uv.h>

#include "octet/workers.h"

struct crews {
    uv_mutex_t lock; /* guards idle_count, idle's entries and busy */
    octet_workers **idle;
    size_t idle_count;
    int32_t busy;     /* threads that compute */
    int32_t busy_max; /* with which a crew may be lent */
    int32_t threads;  /* of a crew */
};

/* cpus / threads crews of `threads` each, at least one; none where threads is 1. The lanes and the
 * threads of lent crews are at most max(lanes, threads) when a crew is lent; lanes that begin later
 * add one thread each. */
enum octet_status crews_start(struct crews *crews, const char *kernels, int32_t cpus,
                              int32_t threads, int32_t lanes,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* A lane begins an operation: with a crew, or (NULL) alone. crews_end takes what it got. */
octet_workers *crews_begin(struct crews *crews, bool is_large);
void crews_end(struct crews *crews, octet_workers *crew);
void crews_stop(struct crews *crews); /* fine after a failed or no start */

#endif
