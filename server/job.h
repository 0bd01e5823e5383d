/* Job: one request message on its way through a lane.
 *
 * For: what the loop, the scheduler and a lane hand to each other. One owner at a time: loop ->
 * scheduler -> lane -> loop; whoever gives the pointer away does not look back. The one exception
 * is cancel.cancelled, which the loop may set at any time.
 * Not for: the call (call.h); a lane never touches it.
 *
 * Life: made when a message has arrived; freed by the loop after `done` was delivered. The arena
 * exists only while a lane runs the job: decoded request, working memory and reply message live
 * and die in it, and only the reply's bytes leave it.
 *
 * Budget: request, arena and reply together. That of a method with tensors is first guessed from
 * the request's size, so that many small ones run at a time; a job for which that was too little
 * says so (wants_memory) and runs once more with a larger one. */
#ifndef OCTET_SERVER_JOB_H
#define OCTET_SERVER_JOB_H

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <protobuf-c/protobuf-c.h>

#include "blocks.h"
#include "inbox.h"
#include "method.h"
#include "octet/arena.h"
#include "octet/cancel.h"
#include "octet/workers.h"

struct call;
struct client;
struct octet_exchange;
struct octet_host;
struct sessions;

/* What all jobs share; set at start, then read-only. */
struct job_settings {
    struct octet_context *context;
    const struct octet_server_facts *facts;
    struct inbox *inbox;
    struct blocks *blocks;
    struct sessions *sessions;
    const struct octet_host *host; /* the sessions', as methods see them */
    int64_t reply_bytes_max;
    uint64_t fail_alloc; /* OCTET_FAIL_ALLOC: the n-th allocation of each request fails; 0: none */
};

struct job {
    struct call *call; /* the loop's */
    const struct method *method;
    const struct job_settings *settings;
    grpc_byte_buffer *body; /* the job's; the lane frees it once it is in one piece or decoded */
    bool has_body;          /* else it goes on with a stream */
    size_t body_bytes;
    uint64_t memory_bytes;   /* its budget */
    uint64_t memory_wanted;  /* its next one, with wants_memory */
    bool wants_memory;       /* it did not suffice: to run again */
    bool was_large;          /* left much free memory behind */
    bool is_reply_too_large; /* for any message; more memory does not help */
    bool wants_session;      /* another session than it was lent: exchange->wanted_session */
    struct octet_held *held; /* the session that it was lent; NULL: none */
    struct octet_exchange *exchange; /* the call's, lent too */
    struct octet_cancel cancel;

    /* While a lane runs it. */
    octet_arena *arena;
    octet_workers *workers; /* of methods that take tensors */
    struct block message;   /* the job's own copy of a body of several slices */
    const uint8_t *bytes;   /* [length], the message in one piece */
    size_t length;

    /* The lane's answer. */
    enum octet_status status;
    struct octet_error error; /* when status is not OCTET_OK */
    bool has_reply;
    grpc_slice reply;
    int64_t answer; /* of methods that answer with a number: a watch's service */

    struct event done;
    uint64_t queued_ns, started_ns, ended_ns;

    /* The scheduler's and the lanes'. */
    struct job *next, *previous;
    struct client *client;
    bool has_lane, is_parked;
};

/* Takes body, which may be NULL. NULL when there is no memory; body is then freed. */
struct job *job_create(struct call *call, const struct method *method,
                       const struct job_settings *settings, grpc_byte_buffer *body);
void job_free(struct job *job);

/* On a lane. Everything but posting `done`. */
void job_run(struct job *job);

/* For method->run: encodes `message` into job->reply. Errors: RESOURCE_EXHAUSTED. */
enum octet_status job_reply(struct job *job, const ProtobufCMessage *message,
                            struct octet_error *err) OCTET_MUST_CHECK;

#endif
