/* See health.h. */
#include "health.h"

#include <string.h>

void health_init(struct health *health)
{
    atomic_init(&health->is_serving, false);
    health->watchers.next = health->watchers.previous = &health->watchers;
}

int health_service(const char *name)
{
    return name[0] == 0 ? 0 : strcmp(name, "octet.v1.Octet") == 0 ? 1 : -1;
}

enum serving health_status(const struct health *health, int service)
{
    if (service < 0)
        return SERVICE_UNKNOWN;
    return atomic_load_explicit(&health->is_serving, memory_order_relaxed) ? SERVING : NOT_SERVING;
}

void health_watch(struct health *health, struct watcher *watcher, int service,
                  void (*tell)(struct watcher *watcher))
{
    watcher->tell = tell;
    watcher->service = service;
    watcher->told = 0;
    watcher->next = &health->watchers;
    watcher->previous = health->watchers.previous;
    watcher->previous->next = watcher;
    watcher->next->previous = watcher;
}

void health_unwatch(struct watcher *watcher)
{
    if (!watcher->next)
        return;
    watcher->next->previous = watcher->previous;
    watcher->previous->next = watcher->next;
    watcher->next = watcher->previous = NULL;
}

void health_set(struct health *health, bool is_serving)
{
    atomic_store_explicit(&health->is_serving, is_serving, memory_order_relaxed);
    for (struct watcher *w = health->watchers.next, *next; w != &health->watchers; w = next) {
        next = w->next; /* telling may take it out of the ring */
        w->tell(w);
    }
}
