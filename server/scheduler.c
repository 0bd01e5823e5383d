/* See scheduler.h. */
#include "scheduler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One who waits. In the ring exactly while it has jobs. */
struct client {
    char name[96];
    struct job *first, *last;
    struct client *next, *previous; /* the ring */
    struct client *chain;           /* of the bucket */
};

enum octet_status scheduler_start(struct scheduler *s, const struct scheduler_settings *settings,
                                  struct octet_error *err)
{
    *s = (struct scheduler){.places_max = settings->places_max,
                            .limit_name = settings->limit_name,
                            .memory_max = settings->memory_max,
                            .lanes_count = (int64_t)settings->lanes,
                            .run_ns_mean = 1e6};
    return lanes_start(&s->lanes, settings->lanes, settings->kernels, settings->crews,
                       settings->inbox, err);
}

void scheduler_stop(struct scheduler *s)
{
    lanes_stop(&s->lanes);
}

enum octet_status scheduler_admit(struct scheduler *s, struct octet_error *err)
{
    if (s->places >= s->places_max)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "%" PRId64 " calls wait already, as many as %s allows; try again later",
                          s->places, s->limit_name);
    s->places++;
    return OCTET_OK;
}

void scheduler_leave(struct scheduler *s)
{
    s->places--;
}

/* FNV-1a. */
static struct client **bucket_of(struct scheduler *s, const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &s->buckets[hash % SCHEDULER_BUCKETS];
}

static void ring_add(struct scheduler *s, struct client *client)
{
    if (!s->ring) {
        s->ring = client->next = client->previous = client;
        return;
    }
    client->next = s->ring; /* before the one whose turn it is = last in the round */
    client->previous = s->ring->previous;
    client->previous->next = client;
    client->next->previous = client;
}

static struct client *client_get(struct scheduler *s, const char *name)
{
    struct client **bucket = bucket_of(s, name);

    for (struct client *client = *bucket; client; client = client->chain)
        if (strcmp(client->name, name) == 0)
            return client;
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    snprintf(client->name, sizeof client->name, "%s", name);
    client->chain = *bucket;
    *bucket = client;
    ring_add(s, client);
    return client;
}

static void client_drop(struct scheduler *s, struct client *client)
{
    struct client **link = bucket_of(s, client->name);

    while (*link != client)
        link = &(*link)->chain;
    *link = client->chain;
    client->next->previous = client->previous;
    client->previous->next = client->next;
    if (s->ring == client)
        s->ring = client->next == client ? NULL : client->next;
    free(client);
}

static void count_waiting(struct scheduler *s, const struct job *job)
{
    s->waiting_bytes += (int64_t)job->body_bytes;
    s->memory_used += (int64_t)job->body_bytes;
}

enum octet_status scheduler_park(struct scheduler *s, struct job *job, struct octet_error *err)
{
    if (s->waiting_bytes > 0 && s->waiting_bytes + (int64_t)job->body_bytes > s->memory_max / 2) {
        s->places--;
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "waiting requests hold %" PRId64
                          " bytes, half of limits.memory_bytes; try "
                          "again later",
                          s->waiting_bytes);
    }
    job->is_parked = true;
    count_waiting(s, job);
    return OCTET_OK;
}

void scheduler_park_again(struct scheduler *s, struct job *job)
{
    s->places++;
    job->is_parked = true;
    count_waiting(s, job);
}

/* Place and bytes of a parked job. */
static void forget_parked(struct scheduler *s, struct job *job)
{
    job->is_parked = false;
    s->places--;
    s->waiting_bytes -= (int64_t)job->body_bytes;
    s->memory_used -= (int64_t)job->body_bytes;
}

static void append(struct client *client, struct job *job)
{
    job->client = client;
    job->next = NULL;
    job->previous = client->last;
    if (client->last)
        client->last->next = job;
    else
        client->first = job;
    client->last = job;
}

enum octet_status scheduler_unpark(struct scheduler *s, struct job *job, const char *name,
                                   struct octet_error *err)
{
    struct client *client = client_get(s, name);

    if (!client) {
        forget_parked(s, job);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    job->is_parked = false;
    append(client, job);
    return OCTET_OK;
}

enum octet_status scheduler_push(struct scheduler *s, struct job *job, const char *name,
                                 struct octet_error *err)
{
    enum octet_status status = scheduler_park(s, job, err);

    return status == OCTET_OK ? scheduler_unpark(s, job, name, err) : status;
}

bool scheduler_push_again(struct scheduler *s, struct job *job, const char *name)
{
    struct client *client = client_get(s, name);

    if (!client)
        return false;
    job->client = client;
    job->previous = NULL;
    job->next = client->first;
    if (client->first)
        client->first->previous = job;
    else
        client->last = job;
    client->first = job;
    s->places++;
    count_waiting(s, job);
    return true;
}

void scheduler_hold(struct scheduler *s, int64_t bytes)
{
    s->memory_used += bytes;
}

/* Takes the job out of its client's queue; the place goes with it. */
static void unlink_job(struct scheduler *s, struct job *job)
{
    struct client *client = job->client;

    if (job->previous)
        job->previous->next = job->next;
    else
        client->first = job->next;
    if (job->next)
        job->next->previous = job->previous;
    else
        client->last = job->previous;
    job->next = job->previous = NULL;
    job->client = NULL;
    if (!client->first)
        client_drop(s, client);
    s->places--;
    s->waiting_bytes -= (int64_t)job->body_bytes;
}

bool scheduler_remove(struct scheduler *s, struct job *job)
{
    if (job->is_parked) {
        forget_parked(s, job);
        return true;
    }
    if (job->has_lane || !job->client)
        return false;
    unlink_job(s, job);
    s->memory_used -= (int64_t)job->body_bytes;
    return true;
}

void scheduler_finished(struct scheduler *s, struct job *job)
{
    if (!job->has_lane) {
        s->memory_used -= (int64_t)job->body_bytes;
        return;
    }
    job->has_lane = false;
    s->memory_used -= (int64_t)job->memory_bytes;
    s->running--;
    s->run_ns_mean += ((double)(job->ended_ns - job->started_ns) - s->run_ns_mean) / 16;
}

/* What a job takes beyond its request, which is counted from the moment it waits. */
static int64_t more_bytes(const struct job *job)
{
    return (int64_t)job->memory_bytes - (int64_t)job->body_bytes;
}

/* Is there a lane, and memory for one more? A job that is alone always fits: its budget is no more
 * than all the memory there is. */
static bool may_run(const struct scheduler *s, const struct job *job)
{
    return s->running < s->lanes_count &&
           (s->running == 0 || s->memory_used + more_bytes(job) <= s->memory_max);
}

void scheduler_run(struct scheduler *s)
{
    if (s->is_giving) /* called by a `done` that is delivered below */
        return;
    s->is_giving = true;
    while (s->ring && may_run(s, s->ring->first)) {
        struct job *job = s->ring->first;
        s->ring = s->ring->next; /* the next client's turn; unlinking may free this one */
        unlink_job(s, job);
        job->status = octet_cancel_check(&job->cancel, &job->error);
        if (job->status != OCTET_OK) {
            job->done.deliver(&job->done, true);
            continue;
        }
        job->has_lane = true;
        s->memory_used += more_bytes(job);
        s->running++;
        lanes_give(&s->lanes, job);
    }
    s->is_giving = false;
}

int64_t scheduler_retry_ms(const struct scheduler *s)
{
    enum { SHORTEST_MS = 10, LONGEST_MS = 10000 };
    double ms = s->run_ns_mean * (double)(s->places + 1) / (double)s->lanes_count / 1e6;

    return ms < SHORTEST_MS ? SHORTEST_MS : ms > LONGEST_MS ? LONGEST_MS : (int64_t)ms;
}
