/* Held sessions: what the methods know of a session beside its numbers, and who keeps it.
 *
 * For: id, lease, and the requests that were applied, so that one that comes again is answered from
 * memory. Not for: when a method may run on it (the server's table), nor the numbers
 * (octet_session).
 *
 * Life: made by CreateSession, handed to the host with keep(), destroyed by the host. All but info
 * follows the session's rule: one that changes it, or any number that read. */
#ifndef OCTET_WIRE_HELD_H
#define OCTET_WIRE_HELD_H

#include <stdatomic.h>

#include "wire/methods.h"

enum {
    OCTET_NAME_BYTES = 129,
    OCT_WIRE_APPLIED_MAX = 64,
    OCT_WIRE_FORGOTTEN_MAX = 4096,
    OCT_WIRE_ACCEPTANCE_MAX = 8
};

/* A request that changed the session, and its figures. */
struct oct_wire_applied {
    char id[OCTET_NAME_BYTES];
    char method[24];
    int64_t step;     /* that the request was for: steps before it */
    uint64_t payload; /* hash of what it carried beside id and step; 0: not known */
    int64_t step_after, accumulated;
    struct octet_losses losses;
    double grad_norm, learning_rate;
    char digest[33];
    size_t acceptance_count;
    double acceptance[OCT_WIRE_ACCEPTANCE_MAX];
    char name[OCTET_NAME_BYTES]; /* of a checkpoint, and what else is told of it */
    uint64_t bytes;
    int64_t saved_at;
};

struct octet_held {
    char id[OCTET_SESSION_ID_BYTES];
    char request_id[OCTET_NAME_BYTES]; /* that made it; "" = none */
    char model[128];
    octet_session *session;
    struct octet_session_memory memory;
    enum octet_accumulation accumulation;
    int64_t lease_ms;
    /* Read by ListSessions while others change the session; relaxed: each by itself is a figure. */
    _Atomic int64_t step, accumulated;

    struct oct_wire_applied applied[OCT_WIRE_APPLIED_MAX]; /* a ring, the oldest overwritten */
    size_t applied_count, applied_next;
    /* Hashes of ids that left the ring in the step that is under way: gradients that a long
     * accumulation has counted must not be counted again. */
    uint64_t forgotten[OCT_WIRE_FORGOTTEN_MAX];
    size_t forgotten_count;
    int64_t forgotten_step; /* the session's step that they belong to */
    /* The last reply of a method that changed the session, whole, where it is not too large. */
    char kept_id[OCTET_NAME_BYTES];
    uint8_t *kept;
    size_t kept_bytes;
};

/* What ListSessions tells. */
struct octet_held_info {
    char id[OCTET_SESSION_ID_BYTES], model[128];
    enum octet_session_mode mode;
    enum octet_accumulation accumulation;
    const char *backend; /* "cpu"; lives as long as the program */
    struct octet_session_memory memory;
    int64_t step, accumulated, batch_size, sequence_length, lease_ms;
};

/* Who keeps sessions. All functions may be called on any thread. */
struct octet_host {
    void *user;
    int64_t lease_ms, lease_ms_max; /* what 0 stands for; the longest */
    /* CreateSession with this request id begins. known: the session that it made before, or "".
     * UNAVAILABLE while another call with it has not ended. Each begin that is OK and knew nothing
     * is followed by an end. */
    enum octet_status (*begin)(void *user, const char *request_id,
                               char known[OCTET_SESSION_ID_BYTES], struct octet_error *err);
    void (*end)(void *user, const char *request_id);
    /* Room for one more that takes peak_bytes. RESOURCE_EXHAUSTED with both numbers. */
    enum octet_status (*admit)(void *user, uint64_t peak_bytes, struct octet_error *err);
    void (*withdraw)(void *user, uint64_t peak_bytes);
    uint64_t (*room)(void *user);         /* bytes that admit would take now */
    struct octet_session_account account; /* the same bytes, for what sessions take beyond peaks */
    /* Takes one that was admitted, which may be gone as soon as this returns; writes its id. */
    enum octet_status (*keep)(void *user, octet_held *held, char id[OCTET_SESSION_ID_BYTES],
                              struct octet_error *err);
    /* Renews a lease; false: no such session. */
    bool (*touch)(void *user, const char *id, int64_t *lease_ms);
    enum octet_status (*list)(void *user, octet_arena *arena, struct octet_held_info **out,
                              size_t *count, struct octet_error *err);
    /* Where checkpoints lie. FAILED_PRECONDITION: nowhere, or (writes) not writable. */
    enum octet_status (*directory)(void *user, bool writes, const char **out,
                                   struct octet_error *err);
};

/* Takes the session, also when it fails (NULL: no memory). */
octet_held *octet_held_create(octet_session *session);
void octet_held_destroy(octet_held *held); /* NULL is fine */
void octet_held_tell(const octet_held *held, struct octet_held_info *out);

/* ---- For the methods ---- */

/* The session has changed: what ListSessions and DescribeSession tell of it follows. */
void oct_wire_tell_state(octet_held *held);

/* The session that the request names; it was lent to the call, or the exchange says that it is
 * wanted. Errors: INVALID_ARGUMENT, NOT_FOUND, UNAVAILABLE with exchange->wanted_session. */
enum octet_status oct_wire_session(const struct octet_call *call, const char *id, octet_held **out,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* A request_id that a client chose. An empty one passes. */
enum octet_status oct_wire_check_id(const char *id, struct octet_error *err) OCTET_MUST_CHECK;
/* A checkpoint's name, which becomes a file's: letters, digits and -_. and no dot first. */
enum octet_status oct_wire_check_checkpoint(const char *name, const char *field,
                                            struct octet_error *err) OCTET_MUST_CHECK;

/* A request of the step under way whose figures are no longer kept. */
bool oct_wire_is_forgotten(const octet_held *held, const char *id);
/* applied.c. A request that comes again: *out is what it did the first time; NULL: it is new.
 * payload: hash of what the request carries; 0: nothing that could differ. Errors: INVALID_ARGUMENT
 * "request_id" when another method, one for another step or with another payload had this id;
 * FAILED_PRECONDITION "step" when it is new and for another step, "request_id" when it was applied
 * and its figures are forgotten; RESOURCE_EXHAUSTED when so many ids have come since the last step
 * that no more could be known again. A request without an id and with step 0 is for any step. */
enum octet_status oct_wire_find_applied(const octet_held *held, const char *method, const char *id,
                                        int64_t step, uint64_t payload,
                                        const struct oct_wire_applied **out,
                                        struct octet_error *err) OCTET_MUST_CHECK;
/* Remembers it, whatever its id, and what ListSessions tells. Cannot fail. */
void oct_wire_add_applied(octet_held *held, const struct oct_wire_applied *applied);
/* Keeps the reply for the last request, if it has an id; too large ones are left out. */
void oct_wire_keep_reply(octet_held *held, const char *id, const ProtobufCMessage *reply);
/* The kept reply to this request, decoded; NULL: there is none. */
enum octet_status oct_wire_kept_reply(const struct octet_call *call, const octet_held *held,
                                      const char *id, const ProtobufCMessageDescriptor *descriptor,
                                      ProtobufCMessage **out,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* The record as JSON text, in the arena, and back; what is not such text is no record. */
char *oct_wire_applied_note(const octet_held *held, octet_arena *arena);
void oct_wire_read_note(octet_held *held, const char *note);

#endif
