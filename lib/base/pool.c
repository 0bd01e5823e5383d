/* See pool.h. */
#include "base/pool.h"

#include <pthreadpool.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/float_env.h"

/* ThreadSanitizer does not see inside pthreadpool: these tell it of the hand-over that pthreadpool
 * does. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#else
#define __tsan_acquire(address) ((void)(address))
#define __tsan_release(address) ((void)(address))
#endif

struct oct_pool {
    pthreadpool_t threads;
    size_t count;
};

struct run {
    void (*task)(void *user, size_t item, size_t thread);
    void *user;
    const struct octet_cancel *cancel;
    size_t count;
    _Atomic size_t next; /* item to be taken; relaxed: pthreadpool orders begin and end of a run */
};

struct oct_pool *oct_pool_create(size_t threads)
{
    struct oct_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->count = threads;
    /* Threads inherit the mask: the program's signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->threads = pthreadpool_create(threads);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!pool->threads) {
        free(pool);
        return NULL;
    }
    return pool;
}

void oct_pool_destroy(struct oct_pool *pool)
{
    if (!pool)
        return;
    pthreadpool_destroy(pool->threads);
    free(pool);
}

size_t oct_pool_threads(const struct oct_pool *pool)
{
    return pool ? pool->count : 1;
}

/* One participant: takes items until none are left or the run is cancelled. */
static void participate(void *argument, size_t thread)
{
    struct run *run = argument;
    size_t item;

    __tsan_acquire(run);
    struct oct_float_env env = oct_float_env_enter();
    while ((item = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) < run->count &&
           octet_cancel_check(run->cancel, NULL) == OCTET_OK)
        run->task(run->user, item, thread);
    oct_float_env_leave(env);
    __tsan_release(run);
}

enum octet_status oct_pool_run(struct oct_pool *pool, size_t count,
                               const struct octet_cancel *cancel,
                               void (*task)(void *user, size_t item, size_t thread), void *user,
                               struct octet_error *err)
{
    struct run run = {.task = task, .user = user, .cancel = cancel, .count = count};
    size_t threads = oct_pool_threads(pool) < count ? oct_pool_threads(pool) : count;

    if (threads > 1) {
        __tsan_release(&run);
        /* Without YIELD waiting threads spin, for longer than most of our loops run. */
        pthreadpool_parallelize_1d(pool->threads, participate, &run, threads,
                                   PTHREADPOOL_FLAG_YIELD_WORKERS);
        __tsan_acquire(&run);
    } else {
        participate(&run, 0);
    }
    return octet_cancel_check(cancel, err);
}
