/* Crews: sets of worker threads that lanes borrow for large operations.
 *
 * For: one operation alone uses the machine, and many at once do not fight for it. A lane computes
 * with a thread of its own, or with a crew when the operation is large and a crew is free.
 * Not for: when something runs, nor the results: these do not depend on the number of threads.
 *
 * Life: start -> take and give, from any thread -> stop, when all have been given back. */
#ifndef OCTET_SERVER_CREWS_H
#define OCTET_SERVER_CREWS_H

#include <uv.h>

#include "octet/workers.h"

struct crews {
    uv_mutex_t lock; /* guards idle_count and idle's entries */
    octet_workers **idle;
    size_t idle_count;
};

/* cpus / threads crews of `threads` each, at least one; none where threads is 1. */
enum octet_status crews_start(struct crews *crews, const char *kernels, int32_t cpus,
                              int32_t threads, struct octet_error *err) OCTET_MUST_CHECK;
/* NULL: none is free. */
octet_workers *crews_take(struct crews *crews);
void crews_give(struct crews *crews, octet_workers *crew);
void crews_stop(struct crews *crews); /* fine after a failed or no start */

#endif
