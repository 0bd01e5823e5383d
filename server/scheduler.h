/* Scheduler: when a job runs.
 *
 * For: admission, the bounded queue, fairness between clients, and the checks before a lane is
 * given.
 * Not for: what a job does.
 * Decision: one queue a client (a gRPC connection), served in turn, so that a client with two
 * hundred calls delays another one's single call by one call a round and not by two hundred.
 * Within a client, in order of arrival.
 *
 * All functions run on the loop's thread. A place is held from admission (the request is still on
 * its way) until a lane takes the job or the place is given back. */
#ifndef OCTET_SERVER_SCHEDULER_H
#define OCTET_SERVER_SCHEDULER_H

#include "lanes.h"

enum { SCHEDULER_BUCKETS = 256 };

struct scheduler {
    struct lanes lanes;
    struct client *ring; /* whose turn it is; NULL: nobody waits */
    struct client *buckets[SCHEDULER_BUCKETS];
    int64_t places, places_max; /* admitted and without a lane */
    const char *limit_name;     /* of places_max */
    int64_t running, lanes_count;
    int64_t waiting_bytes;           /* of queued requests */
    int64_t memory_used, memory_max; /* waiting_bytes, budgets of running jobs, unsent replies */
    double run_ns_mean;              /* moving average */
    bool is_giving;                  /* in scheduler_run */
};

/* What a scheduler is made of. */
struct scheduler_settings {
    size_t lanes;
    int64_t places_max;
    const char *limit_name;
    int64_t memory_max;
    const char *kernels;
    struct crews *crews; /* NULL: for jobs that take no tensors */
    struct inbox *inbox;
};
enum octet_status scheduler_start(struct scheduler *scheduler,
                                  const struct scheduler_settings *settings,
                                  struct octet_error *err) OCTET_MUST_CHECK;
void scheduler_stop(struct scheduler *scheduler); /* nothing waits or runs any more */

/* Takes a place, or RESOURCE_EXHAUSTED naming the setting. */
enum octet_status scheduler_admit(struct scheduler *scheduler,
                                  struct octet_error *err) OCTET_MUST_CHECK;
/* Gives a place back whose request did not become a job. */
void scheduler_leave(struct scheduler *scheduler);

/* The place's request has arrived; client names whom it counts for. RESOURCE_EXHAUSTED when
 * requests that wait would hold more than half of the memory; the place is then given back and the
 * job is the caller's. */
enum octet_status scheduler_push(struct scheduler *scheduler, struct job *job, const char *client,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* The same for a job that waits for something else first: it counts as waiting, and gets no lane
 * until scheduler_unpark, which fails when there is no memory; the place is then given back and the
 * job is the caller's. */
enum octet_status scheduler_park(struct scheduler *scheduler, struct job *job,
                                 struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status scheduler_unpark(struct scheduler *scheduler, struct job *job, const char *client,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* Parks a finished job; it was admitted once, so no limit stops it. */
void scheduler_park_again(struct scheduler *scheduler, struct job *job);
/* A finished job that needs a larger budget (job->wants_memory) waits again, first of its client's;
 * it was admitted once, so no limit stops it. Returns false when there is no memory. */
bool scheduler_push_again(struct scheduler *scheduler, struct job *job, const char *client);
/* Takes a job out that no lane has yet; place and job are then the caller's no more and own.
 * Returns false when a lane has it. */
bool scheduler_remove(struct scheduler *scheduler, struct job *job);
/* First thing to do with a delivered `done`. */
void scheduler_finished(struct scheduler *scheduler, struct job *job);
/* Gives lanes what waits, as far as there are idle ones. A job whose deadline has passed or that
 * was cancelled gets no lane: its `done` is delivered from here. */
void scheduler_run(struct scheduler *scheduler);

/* Counts bytes that no job has any more, or (negative) no longer: replies on their way out. */
void scheduler_hold(struct scheduler *scheduler, int64_t bytes);

/* A guess after which time a refused client may find a place. */
int64_t scheduler_retry_ms(const struct scheduler *scheduler);

#endif
