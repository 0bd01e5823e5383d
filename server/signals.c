/* See signals.h. */
#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* A process has one set of handlers. Handlers run on any thread: sequentially consistent atomics,
 * so that either the handler sees `waker` or signals_watch sees `first`. */
static _Atomic int first;
static uv_async_t *_Atomic waker;

static void on_signal(int number)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&first, &none, number))
        _exit(128 + number);
    uv_async_t *wake = atomic_load(&waker);
    if (wake)
        uv_async_send(wake); /* async-signal-safe, by libuv's manual */
}

void signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL); /* its terminal went: there is nothing to read again */
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* a write then fails, and is reported */
}

void signals_watch(uv_async_t *wake)
{
    atomic_store(&waker, wake);
    if (atomic_load(&first))
        uv_async_send(wake);
}

void signals_unwatch(void)
{
    atomic_store(&waker, NULL);
}

int signals_first(void)
{
    return atomic_load(&first);
}
