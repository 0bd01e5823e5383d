/* Lanes: the threads that compute.
 *
 * For: running jobs, one at a time a lane. A job goes back to the loop as its `done` event.
 * Not for: when a job runs, and which (scheduler.h gives no more jobs than there are idle lanes).
 *
 * Life: start -> give ... -> stop, when no job is left with a lane. */
#ifndef OCTET_SERVER_LANES_H
#define OCTET_SERVER_LANES_H

#include <uv.h>

#include "crews.h"
#include "job.h"

struct lane {
    struct lanes *lanes;
    octet_workers *own; /* one thread: the lane's; NULL where no job takes tensors */
    uv_thread_t thread;
};

struct lanes {
    uv_mutex_t lock; /* guards all but inbox, crews, all and count */
    uv_cond_t work;
    struct job *first, *last;
    size_t queued;  /* jobs */
    size_t looking; /* lanes that will see a job without being woken */
    bool stopping;
    struct inbox *inbox;
    struct crews *crews;
    struct lane *all;
    size_t count; /* of lanes that run */
};

/* kernels: what lanes compute with; crews NULL: they take no tensors. */
enum octet_status lanes_start(struct lanes *lanes, size_t count, const char *kernels,
                              struct crews *crews, struct inbox *inbox,
                              struct octet_error *err) OCTET_MUST_CHECK;
void lanes_give(struct lanes *lanes, struct job *job);
void lanes_stop(struct lanes *lanes); /* waits for the threads; fine after a failed start */

#endif
