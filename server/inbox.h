/* Inbox: how other threads hand things to the loop.
 *
 * For: gRPC's completion-queue thread and the lanes, which post events; the loop delivers them.
 * Decision: uv_async_send coalesces, so a wake-up carries nothing; the loop takes the whole list.
 * Events that only tidy up do not wake the loop: they are delivered with the next one that does, or
 * by inbox_empty, which a timer calls. A small call makes five events, of which three are urgent.
 *
 * Life: 1. An event belongs to whoever may post it; once posted, to the loop. 2. An event is posted
 * at most once before it is delivered. 3. Close the inbox when the threads that post have been
 * joined. */
#ifndef OCTET_SERVER_INBOX_H
#define OCTET_SERVER_INBOX_H

#include <stdbool.h>
#include <uv.h>

#include "octet/status.h"

/* Part of a larger struct, which the functions find with OWNER_OF. */
struct event {
    void (*deliver)(struct event *event, bool ok); /* on the loop's thread */
    bool (*can_wait)(const struct event *event);   /* on the poster's; NULL: it cannot */
    /* On gRPC's queue thread, for what need not wait for the loop; NULL: nothing. The first runs
     * before the event is posted, and returns whether the second is to run after that. */
    bool (*before)(struct event *event);
    void (*after)(struct event *event);
    struct event *next;
    bool ok;
};

#define OWNER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct inbox {
    uv_mutex_t lock; /* guards all but wake */
    struct event *first, *last;
    bool is_woken;   /* the loop is on its way */
    bool is_patient; /* events that can wait do */
    uv_async_t wake;
};

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop,
                             struct octet_error *err) OCTET_MUST_CHECK;
void inbox_post(struct inbox *inbox, struct event *event, bool ok); /* any thread */
/* On the loop. */
void inbox_empty(struct inbox *inbox);   /* delivers what is there */
void inbox_no_wait(struct inbox *inbox); /* from now on every event wakes the loop */
/* uv_close; the mutex goes in inbox_free, after the loop has ended. */
void inbox_close(struct inbox *inbox);
void inbox_free(struct inbox *inbox);

#endif
