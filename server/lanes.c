/* See lanes.h. */
#include "lanes.h"

#include <stdlib.h>

/* Regular expressions and YAML of a request are bounded, but may use some stack. */
enum { STACK_BYTES = 8 << 20 };

static struct job *take(struct lanes *lanes)
{
    uv_mutex_lock(&lanes->lock);
    while (!lanes->first && !lanes->stopping)
        uv_cond_wait(&lanes->work, &lanes->lock);
    struct job *job = lanes->first;
    if (job) {
        lanes->first = job->next;
        if (!lanes->first)
            lanes->last = NULL;
    }
    uv_mutex_unlock(&lanes->lock);
    return job;
}

static void lane_main(void *argument)
{
    struct lanes *lanes = argument;

    for (struct job *job; (job = take(lanes)) != NULL;) {
        job->started_ns = octet_now_ns();
        job_run(job);
        job->ended_ns = octet_now_ns();
        inbox_post(lanes->inbox, &job->done, true);
    }
}

enum octet_status lanes_start(struct lanes *lanes, size_t count, struct inbox *inbox,
                              struct octet_error *err)
{
    uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK_BYTES};

    *lanes = (struct lanes){.inbox = inbox};
    lanes->threads = calloc(count, sizeof *lanes->threads);
    if (!lanes->threads || uv_mutex_init(&lanes->lock) != 0)
        goto failed;
    if (uv_cond_init(&lanes->work) != 0) {
        uv_mutex_destroy(&lanes->lock);
        goto failed;
    }
    for (; lanes->count < count; lanes->count++) {
        int failure =
            uv_thread_create_ex(&lanes->threads[lanes->count], &options, lane_main, lanes);
        if (failure != 0) {
            lanes_stop(lanes);
            return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "threads",
                              "only %zu of %zu threads could be started: %s", lanes->count, count,
                              uv_strerror(failure));
        }
    }
    return OCTET_OK;

failed:
    free(lanes->threads);
    lanes->threads = NULL;
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
    uv_mutex_unlock(&lanes->lock);
    uv_cond_signal(
        &lanes->work); /* unlocked: the lane that wakes would only wait for the lock again */
}

void lanes_stop(struct lanes *lanes)
{
    if (!lanes->threads)
        return;
    uv_mutex_lock(&lanes->lock);
    lanes->stopping = true;
    uv_cond_broadcast(&lanes->work);
    uv_mutex_unlock(&lanes->lock);
    for (size_t i = 0; i < lanes->count; i++)
        uv_thread_join(&lanes->threads[i]);
    uv_cond_destroy(&lanes->work);
    uv_mutex_destroy(&lanes->lock);
    free(lanes->threads);
    lanes->threads = NULL;
}
