/* Health: does the daemon serve, and who wants to know when that changes.
 *
 * For: the state behind grpc.health.v1 and the list of its watchers.
 * Decision: all known services share one state; they live and drain together. */
#ifndef OCTET_SERVER_HEALTH_H
#define OCTET_SERVER_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* grpc.health.v1's numbers. */
enum serving { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

/* Part of a call that watches. */
struct watcher {
    void (*tell)(struct watcher *watcher); /* the state has changed; may end the watch */
    struct watcher *next, *previous;       /* NULL: not watching */
    int service;                           /* as health_service gives it */
    enum serving told;                     /* what the client heard last; 0: nothing yet */
};

struct health {
    _Atomic bool
        is_serving; /* the loop writes, lanes read; relaxed: nothing hangs on it but the answer */
    struct watcher watchers; /* the ring's fixed point; the loop's */
};

void health_init(struct health *health);
/* >= 0 for "" and "octet.v1.Octet", -1 for others. */
int health_service(const char *name);
enum serving health_status(const struct health *health, int service);

/* On the loop. health_set tells every watcher. */
void health_set(struct health *health, bool is_serving);
void health_watch(struct health *health, struct watcher *watcher, int service,
                  void (*tell)(struct watcher *watcher));
void health_unwatch(struct watcher *watcher); /* fine when it does not watch */

#endif
