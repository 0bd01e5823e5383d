/* See inbox.h. */
#include "inbox.h"

#include <stddef.h>

void inbox_empty(struct inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    struct event *event = inbox->first;
    inbox->first = inbox->last = NULL;
    inbox->is_woken = false;
    uv_mutex_unlock(&inbox->lock);
    while (event) {
        struct event *next = event->next; /* deliver may free the event or post it again */
        event->deliver(event, event->ok);
        event = next;
    }
}

static void on_wake(uv_async_t *wake)
{
    inbox_empty(OWNER_OF(wake, struct inbox, wake));
}

void inbox_no_wait(struct inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    inbox->is_patient = false;
    if (inbox->first)
        uv_async_send(&inbox->wake);
    uv_mutex_unlock(&inbox->lock);
}

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop, struct octet_error *err)
{
    inbox->first = inbox->last = NULL;
    inbox->is_woken = false;
    inbox->is_patient = true;
    int failure = uv_mutex_init(&inbox->lock);
    if (failure == 0) {
        failure = uv_async_init(loop, &inbox->wake, on_wake);
        if (failure != 0)
            uv_mutex_destroy(&inbox->lock);
    }
    if (failure != 0)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no inbox could be made: %s",
                          uv_strerror(failure));
    return OCTET_OK;
}

void inbox_post(struct inbox *inbox, struct event *event, bool ok)
{
    bool can_wait = event->can_wait && event->can_wait(event);

    event->ok = ok;
    event->next = NULL;
    uv_mutex_lock(&inbox->lock);
    if (inbox->last)
        inbox->last->next = event;
    else
        inbox->first = event;
    inbox->last = event;
    bool wakes = !inbox->is_woken && !(can_wait && inbox->is_patient);
    inbox->is_woken |= wakes;
    uv_mutex_unlock(&inbox->lock);
    if (wakes) /* unlocked: the loop that wakes would only wait for the lock */
        uv_async_send(&inbox->wake);
}

void inbox_close(struct inbox *inbox)
{
    uv_close((uv_handle_t *)&inbox->wake, NULL);
}

void inbox_free(struct inbox *inbox)
{
    uv_mutex_destroy(&inbox->lock);
}
