/* Inbox: how threads take turns at being the loop.
 *
 * For: gRPC's completion-queue thread and the lanes, which post events; an event changes what the
 * loop owns (loop.h).
 * Decision: the loop's state belongs to whoever has the turn, and that is one thread at a time. Who
 * posts an event while nobody has the turn takes it and delivers the event at once; who finds it
 * taken leaves the event to the one that has it. So a small call is read, judged and answered
 * without a change of threads, which costs more than all of its work, and nobody ever waits for the
 * turn but the thread that runs libuv's loop.
 *
 * Life: 1. An event belongs to whoever may post it; once posted, to the inbox. 2. An event is
 * posted at most once before it is delivered. 3. Close the inbox when the threads that post have
 * been joined. 4. Who posts holds no lock that a delivery takes, except with needs_loop. */
#ifndef OCTET_SERVER_INBOX_H
#define OCTET_SERVER_INBOX_H

#include <stdbool.h>
#include <uv.h>

#include "octet/status.h"

/* Part of a larger struct, which the functions find with OWNER_OF. */
struct event {
    void (*deliver)(struct event *event, bool ok); /* with the turn, on any thread */
    bool needs_loop; /* on the loop's own thread: libuv's functions are called */
    struct event *next;
    bool ok;
};

#define OWNER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct inbox {
    uv_mutex_t lock; /* guards all but wake */
    uv_cond_t given; /* the turn, while is_awaited */
    struct event *first, *last;
    bool is_taken;   /* somebody has the turn */
    bool is_awaited; /* the loop's thread waits for it: it is the next */
    bool is_loops;   /* only the loop's thread takes it */
    bool is_woken;   /* the loop's thread is on its way */
    uv_async_t wake;
};

enum octet_status inbox_init(struct inbox *inbox, uv_loop_t *loop,
                             struct octet_error *err) OCTET_MUST_CHECK;
void inbox_post(struct inbox *inbox, struct event *event, bool ok); /* any thread */
/* On the loop's thread, around all that it does with the loop's state on its own. */
void inbox_enter(struct inbox *inbox);
void inbox_leave(struct inbox *inbox);
/* With the turn: from now on all events are delivered on the loop's thread. */
void inbox_stay(struct inbox *inbox);
/* uv_close; the locks go in inbox_free, after the loop has ended. */
void inbox_close(struct inbox *inbox);
void inbox_free(struct inbox *inbox);

#endif
