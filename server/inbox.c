/* See inbox.h. */
#include "inbox.h"

#include <stddef.h>

/* Events that a thread delivers before it goes back to its own work; the loop's goes on. */
enum { EVENTS_MAX = 64 };

/* The next event that this thread may deliver. The lock is held. */
static struct event *take(struct inbox *inbox, bool is_loop, int count)
{
    struct event *event = inbox->first;

    if (!event || (count >= EVENTS_MAX && !inbox->is_loops))
        return NULL;
    if (!is_loop && (event->needs_loop || inbox->is_loops || inbox->is_awaited))
        return NULL;
    inbox->first = event->next;
    if (!inbox->first)
        inbox->last = NULL;
    return event;
}

/* Sends for the loop's thread, and gives the lock up. */
static void wake(struct inbox *inbox)
{
    bool sends = !inbox->is_woken;

    inbox->is_woken = true;
    uv_mutex_unlock(&inbox->lock);
    if (sends)
        uv_async_send(&inbox->wake);
}

/* The turn is the caller's, and the lock; gives both up. */
static void deliver(struct inbox *inbox, bool is_loop)
{
    struct event *event;

    for (int count = 0; (event = take(inbox, is_loop, count)) != NULL; count++) {
        uv_mutex_unlock(&inbox->lock);
        event->deliver(event, event->ok); /* may free the event or post it again */
        uv_mutex_lock(&inbox->lock);
    }
    inbox->is_taken = false;
    if (inbox->is_awaited) {
        uv_mutex_unlock(&inbox->lock); /* first: who wakes would only wait for it */
        uv_cond_signal(&inbox->given);
    } else if (inbox->first) {
        wake(inbox);
    } else {
        uv_mutex_unlock(&inbox->lock);
    }
}

void inbox_post(struct inbox *inbox, struct event *event, bool ok)
{
    event->ok = ok;
    event->next = NULL;
    uv_mutex_lock(&inbox->lock);
    if (inbox->last)
        inbox->last->next = event;
    else
        inbox->first = event;
    inbox->last = event;
    if (event->needs_loop) {
        wake(inbox);
    } else if (inbox->is_taken || inbox->is_awaited) {
        uv_mutex_unlock(&inbox->lock);
    } else {
        inbox->is_taken = true;
        deliver(inbox, false);
    }
}

void inbox_enter(struct inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    inbox->is_awaited = true;
    while (inbox->is_taken)
        uv_cond_wait(&inbox->given, &inbox->lock);
    inbox->is_awaited = false;
    inbox->is_taken = true;
    uv_mutex_unlock(&inbox->lock);
}

void inbox_leave(struct inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    deliver(inbox, true);
}

static void on_wake(uv_async_t *async)
{
    struct inbox *inbox = OWNER_OF(async, struct inbox, wake);

    uv_mutex_lock(&inbox->lock);
    inbox->is_woken = false;
    uv_mutex_unlock(&inbox->lock);
    inbox_enter(inbox);
    inbox_leave(inbox);
}

void inbox_stay(struct inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    inbox->is_loops = true;
    uv_mutex_unlock(&inbox->lock);
}

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop, struct octet_error *err)
{
    *inbox = (struct inbox){.first = NULL};
    int failure = uv_mutex_init(&inbox->lock);
    if (failure != 0)
        goto failed;
    failure = uv_cond_init(&inbox->given);
    if (failure != 0)
        goto failed_after_lock;
    failure = uv_async_init(loop, &inbox->wake, on_wake);
    if (failure == 0)
        return OCTET_OK;
    uv_cond_destroy(&inbox->given);
failed_after_lock:
    uv_mutex_destroy(&inbox->lock);
failed:
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no inbox could be made: %s",
                      uv_strerror(failure));
}

void inbox_close(struct inbox *inbox)
{
    uv_close((uv_handle_t *)&inbox->wake, NULL);
}

void inbox_free(struct inbox *inbox)
{
    uv_cond_destroy(&inbox->given);
    uv_mutex_destroy(&inbox->lock);
}
