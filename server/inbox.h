/* Inbox: how other threads hand things to the loop.
 *
 * For: gRPC's completion-queue thread and the lanes, which post events; the loop delivers them.
 * Decision: uv_async_send coalesces, so a wake-up carries nothing; the loop takes the whole list.
 *
 * Life: 1. An event belongs to whoever may post it; once posted, to the loop. 2. An event is posted
 * at most once before it is delivered. 3. Close the inbox when nobody can post any more. */
#ifndef OCTET_SERVER_INBOX_H
#define OCTET_SERVER_INBOX_H

#include <stdbool.h>
#include <uv.h>

#include "octet/status.h"

/* Part of a larger struct, which deliver finds with OWNER_OF. Runs on the loop's thread. */
struct event {
    void (*deliver)(struct event *event, bool ok);
    struct event *next;
    bool ok;
};

#define OWNER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct inbox {
    uv_mutex_t lock; /* guards first and last */
    struct event *first, *last;
    uv_async_t wake;
};

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop,
                             struct octet_error *err) OCTET_MUST_CHECK;
void inbox_post(struct inbox *inbox, struct event *event, bool ok); /* any thread */
/* uv_close; the mutex goes in inbox_free, after the loop has ended. */
void inbox_close(struct inbox *inbox);
void inbox_free(struct inbox *inbox);

#endif
