/* Call: one RPC from its arrival to its last event.
 *
 * For: the conversation with gRPC about one call: admission, reading, replying, cancellation.
 * Not for: what is in the messages; a call moves them between gRPC and jobs.
 * Decision: a call is admitted before its body is read. Until then gRPC's flow control keeps the
 * body at the client, so a crowd of large requests costs windows and not memory.
 *
 * Life: made to wait for an arrival; freed when all its events have come back, no job is left and
 * nothing more will be sent. A call that the client gave up is dropped without a status. */
#ifndef OCTET_SERVER_CALL_H
#define OCTET_SERVER_CALL_H

#include <grpc/grpc.h>

#include "guard.h"
#include "health.h"
#include "inbox.h"
#include "method.h"
#include "sessions.h"

struct loop;
struct job;

enum { REQUEST_ID_BYTES = 129, PEER_BYTES = 96, MESSAGE_BYTES = 1400 };

struct call {
    struct loop *loop;
    struct call *next, *previous; /* loop->calls */
    const struct method *method;  /* NULL: unknown, being refused */
    grpc_call *handle;
    grpc_call_details details;
    grpc_metadata_array metadata;
    char peer[PEER_BYTES]; /* "ipv4:127.0.0.1:48524" */
    struct peer_key peer_key;
    char request_id[REQUEST_ID_BYTES]; /* the client's or ours */
    uint64_t arrived_ns, deadline_ns;  /* deadline 0: none */

    /* Events that gRPC owes us. */
    struct event arrival, closing, receipt, sending, ending;
    int owed;
    bool is_closing_watched;
    int cancelled; /* RECV_CLOSE_ON_SERVER's answer */
    grpc_byte_buffer *received;

    bool is_gone;      /* the client gave up, or the connection is lost: send nothing more */
    bool has_place;    /* of the scheduler, without a job */
    bool is_stream;    /* counted in loop->streams */
    bool is_receiving; /* a request is on its way */
    bool is_expected;  /* by the guard */
    uint64_t receiving_since_ns;
    bool is_sending, has_sent; /* a message is under way; the initial metadata is out */
    bool is_ending;            /* the status was given to gRPC, or waits for is_sending */
    grpc_byte_buffer *outgoing;
    int64_t held_bytes; /* of the reply, in the scheduler's account */
    struct job *job;
    struct watcher watcher;         /* of CALL_WATCH */
    struct claim claim;             /* on the session that the call is about */
    struct octet_exchange exchange; /* a job's while there is one */
    int loans;                      /* sessions that a job of this call asked for */
    uint64_t sending_since_ns;

    enum octet_status status; /* as it ended, and the text */
    char text[MESSAGE_BYTES];
    char retry_ms[24];
    grpc_metadata initial[2], trailing[2];
};

/* Asks for as many calls as may arrive before the loop comes to ask again, unless the daemon ends.
 */
void call_accept_all(struct loop *loop);
/* Ends a call that is open, if its end is not under way yet. */
void call_end(struct call *call, enum octet_status status, const char *text);
/* Its request did not arrive in time. */
bool call_is_late(const struct call *call, uint64_t now_ns, int64_t receive_ms);
/* A client that does not take what it asked for keeps others from the session: cancels the call. */
void call_check_sending(struct call *call, uint64_t now_ns, int64_t receive_ms);

#endif
