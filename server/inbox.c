/* See inbox.h. */
#include "inbox.h"

#include <stddef.h>

static void on_wake(uv_async_t *wake)
{
    struct inbox *inbox = OWNER_OF(wake, struct inbox, wake);

    uv_mutex_lock(&inbox->lock);
    struct event *event = inbox->first;
    inbox->first = inbox->last = NULL;
    uv_mutex_unlock(&inbox->lock);
    while (event) {
        struct event *next = event->next; /* deliver may free the event or post it again */
        event->deliver(event, event->ok);
        event = next;
    }
}

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop, struct octet_error *err)
{
    inbox->first = inbox->last = NULL;
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
    event->ok = ok;
    event->next = NULL;
    uv_mutex_lock(&inbox->lock);
    bool was_empty = inbox->first == NULL;
    if (was_empty)
        inbox->first = event;
    else
        inbox->last->next = event;
    inbox->last = event;
    /* Under the lock, so that the inbox cannot be closed between the two; and only for the first
     * event: whoever put it there has woken the loop, which has not come yet. */
    if (was_empty)
        uv_async_send(&inbox->wake);
    uv_mutex_unlock(&inbox->lock);
}

void inbox_close(struct inbox *inbox)
{
    uv_close((uv_handle_t *)&inbox->wake, NULL);
}

void inbox_free(struct inbox *inbox)
{
    uv_mutex_destroy(&inbox->lock);
}
