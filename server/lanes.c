/* See lanes.h. */
#include "lanes.h"

#include <sched.h>
#include <stdlib.h>

#include "thread_name.h"

/* Regular expressions and YAML of a request are bounded, but may use some stack. */
enum { STACK_BYTES = 8 << 20 };

/* A lane that has ended a job looks again, with others on its CPU in between, before it sleeps:
 * under load the next job is there by then, and waking a thread costs as much as a small job (two
 * CPUs, 64 connections, small Quantize: 28 -> 40 thousand calls/s with 1 to 3 looks, 34 with 30).
 */
enum { LOOKS = 2 };

static struct job *take(struct lanes *lanes)
{
    uv_mutex_lock(&lanes->lock);
    lanes->looking++;
    for (int i = 0; i < LOOKS && !lanes->first && !lanes->stopping; i++) {
        uv_mutex_unlock(&lanes->lock);
        sched_yield();
        uv_mutex_lock(&lanes->lock);
    }
    lanes->looking--;
    while (!lanes->first && !lanes->stopping)
        uv_cond_wait(&lanes->work, &lanes->lock);
    struct job *job = lanes->first;
    if (job) {
        lanes->first = job->next;
        lanes->queued--;
        if (!lanes->first)
            lanes->last = NULL;
    }
    uv_mutex_unlock(&lanes->lock);
    return job;
}

/* Below this a crew's threads would take longer to wake than the work takes. */
enum { CREW_REQUEST_BYTES = 256 << 10 };

static void run(struct lane *lane, struct job *job)
{
    struct crews *crews = lane->lanes->crews;
    bool is_large = job->method->is_step ||
                    (job->method->takes_tensors && job->body_bytes >= CREW_REQUEST_BYTES);
    octet_workers *crew = crews ? crews_begin(crews, is_large) : NULL;

    job->workers = crew ? crew : lane->own;
    job_run(job);
    job->workers = NULL;
    if (crews)
        crews_end(crews, crew);
}

static void lane_main(void *argument)
{
    struct lane *lane = argument;

    thread_name(lane->own ? "octet-lane" : "octet-control");
    for (struct job *job; (job = take(lane->lanes)) != NULL;) {
        job->started_ns = octet_now_ns();
        run(lane, job);
        job->ended_ns = octet_now_ns();
        inbox_post(lane->lanes->inbox, &job->done, true);
    }
}

static enum octet_status start_one(struct lanes *lanes, const char *kernels,
                                   struct octet_error *err)
{
    uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK_BYTES};
    struct lane *lane = &lanes->all[lanes->count];

    lane->lanes = lanes;
    if (lanes->crews) {
        enum octet_status status = octet_workers_create(kernels, 1, &lane->own, err);
        if (status != OCTET_OK)
            return status;
    }
    int failure = uv_thread_create_ex(&lane->thread, &options, lane_main, lane);
    if (failure != 0) {
        octet_workers_destroy(lane->own);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "threads",
                          "only %zu threads could be started: %s", lanes->count,
                          uv_strerror(failure));
    }
    lanes->count++;
    return OCTET_OK;
}

enum octet_status lanes_start(struct lanes *lanes, size_t count, const char *kernels,
                              struct crews *crews, struct inbox *inbox, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    *lanes = (struct lanes){.inbox = inbox, .crews = crews};
    lanes->all = calloc(count, sizeof *lanes->all);
    if (!lanes->all || uv_mutex_init(&lanes->lock) != 0)
        goto failed;
    if (uv_cond_init(&lanes->work) != 0) {
        uv_mutex_destroy(&lanes->lock);
        goto failed;
    }
    while (status == OCTET_OK && lanes->count < count)
        status = start_one(lanes, kernels, err);
    if (status != OCTET_OK)
        lanes_stop(lanes);
    return status;

failed:
    free(lanes->all);
    lanes->all = NULL;
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
}

void lanes_give(struct lanes *lanes, struct job *job)
{
    job->next = NULL;
    uv_mutex_lock(&lanes->lock);
    if (lanes->last)
        lanes->last->next = job;
    else
        lanes->first = job;
    lanes->last = job;
    bool wakes = ++lanes->queued > lanes->looking;
    uv_mutex_unlock(&lanes->lock);
    if (wakes)
        uv_cond_signal(
            &lanes->work); /* unlocked: the lane that wakes would only wait for the lock again */
}

void lanes_stop(struct lanes *lanes)
{
    if (!lanes->all)
        return;
    uv_mutex_lock(&lanes->lock);
    lanes->stopping = true;
    uv_cond_broadcast(&lanes->work);
    uv_mutex_unlock(&lanes->lock);
    for (size_t i = 0; i < lanes->count; i++)
        uv_thread_join(&lanes->all[i].thread);
    for (size_t i = 0; i < lanes->count; i++)
        octet_workers_destroy(lanes->all[i].own);
    uv_cond_destroy(&lanes->work);
    uv_mutex_destroy(&lanes->lock);
    free(lanes->all);
    lanes->all = NULL;
}
