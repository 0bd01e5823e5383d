/* See progress.h. A thread of its own writes the line, so that what computes need not look at a
 * clock; without the thread there is no line, and nothing else is lost. */
#include "progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QUIET_SECONDS = 2 };

static struct {
    pthread_mutex_t lock; /* guards stop and part */
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stop;
    const char *what;
    char part[64];
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *tell(void *user)
{
    struct timespec next;
    bool shown = false;

    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&progress.lock);
    for (int seconds = QUIET_SECONDS; !progress.stop; seconds++) {
        next.tv_sec += shown ? 1 : QUIET_SECONDS;
        while (!progress.stop &&
               pthread_cond_timedwait(&progress.changed, &progress.lock, &next) != ETIMEDOUT)
            ; /* woken for no reason */
        if (progress.stop)
            break;
        fprintf(stderr, "\r%s%s%s: %d s (Ctrl-C stops it)\x1b[K ", progress.what,
                progress.part[0] ? " " : "", progress.part, seconds);
        fflush(stderr);
        shown = true;
    }
    pthread_mutex_unlock(&progress.lock);
    if (shown)
        fputs("\r\x1b[K", stderr);
    return NULL;
}

void progress_start(const char *what)
{
    const char *terminal = getenv("TERM");
    pthread_condattr_t monotonic;

    if (!isatty(STDERR_FILENO) || !terminal || strcmp(terminal, "dumb") == 0)
        return;
    progress.what = what;
    progress.stop = false;
    progress.part[0] = '\0';
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&progress.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    progress.running = pthread_create(&progress.thread, NULL, tell, NULL) == 0;
}

void progress_say(const char *part)
{
    pthread_mutex_lock(&progress.lock);
    snprintf(progress.part, sizeof progress.part, "%s", part ? part : "");
    pthread_mutex_unlock(&progress.lock);
}

void progress_end(void)
{
    if (!progress.running)
        return;
    pthread_mutex_lock(&progress.lock);
    progress.stop = true;
    pthread_cond_signal(&progress.changed);
    pthread_mutex_unlock(&progress.lock);
    pthread_join(progress.thread, NULL);
    pthread_cond_destroy(&progress.changed);
    progress.running = false;
}
