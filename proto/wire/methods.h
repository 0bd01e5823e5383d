/* The methods of octet.v1.Octet: one list, read by the server (dispatch), the command line
 * (which runs the same functions in its own process) and the fuzz targets.
 *
 * For: request message in, response message out, through liboctet.
 * Not for: transport; nothing here knows of gRPC, threads or queues.
 * Decision: a method is a pure function of request and facts, so "local" and "--server" cannot
 * differ. A method on a session gets the session lent for the call; whoever calls sees to it that
 * one that changes it is alone. */
#ifndef OCTET_WIRE_METHODS_H
#define OCTET_WIRE_METHODS_H

#include <protobuf-c/protobuf-c.h>

#include "octet/octet.h"

/* Where sessions may be placed. */
struct octet_server_backend {
    const char *name, *device; /* "cpu" and "0", "cuda" and "1" */
    octet_backend *opened;     /* NULL: the CPU */
};

/* What GetServerInfo tells of the process that answers; all borrowed. */
struct octet_server_facts {
    uint64_t message_bytes_max, request_memory_bytes, queue_length, config_request_bytes;
    uint64_t sessions, session_memory_bytes;
    int32_t lanes;
    int32_t lane_threads;                        /* the most that a call's workers have; 0: 1 */
    const struct octet_server_backend *backends; /* the first is the default */
    size_t backend_count;
    const char *const *cpu_features;
    size_t cpu_feature_count;
    const char *kernels;
    const char *const *accumulations;
    size_t accumulation_count;
};

typedef struct octet_held octet_held; /* a session as methods know it; wire/held.h */
struct octet_host;                    /* who keeps sessions; wire/held.h */

enum { OCTET_SESSION_ID_BYTES = 40 };

/* What of a session a method wants while it runs: to read it beside other readers, to change it
 * alone, to end it. */
enum octet_access { OCTET_ACCESS_NONE, OCTET_ACCESS_READ, OCTET_ACCESS_CHANGE, OCTET_ACCESS_END };

enum octet_method_shape {
    OCTET_METHOD_UNARY,
    OCTET_METHOD_UPLOAD,  /* runs for each request message, and once more, without, for the reply */
    OCTET_METHOD_DOWNLOAD /* runs with the request, then without, as long as there is more */
};

/* What a method tells beside its reply, and what a stream's calls have in common; zeros at the
 * start. The caller frees state with state_free when both are set. */
struct octet_exchange {
    /* Set by a method that failed because it was not lent this session. */
    char wanted_session[OCTET_SESSION_ID_BYTES];
    bool has_changed; /* a session was changed: the method must not run again for this request */
    char session[OCTET_SESSION_ID_BYTES]; /* that the call is about, when it is known */
    bool is_last;  /* of an upload, set by the caller: the client has said all */
    bool has_more; /* of a download */
    void *state;
    void (*state_free)(void *state);
};

struct octet_call {
    octet_context *context;
    octet_arena *arena; /* request, working memory and response live in it */
    const struct octet_cancel *cancel;
    const struct octet_server_facts *facts;
    octet_workers *workers;          /* may be NULL for methods that take no tensors */
    const struct octet_host *host;   /* NULL: no sessions here */
    octet_held *session;             /* lent for the call; NULL: none */
    struct octet_exchange *exchange; /* may be NULL for unary methods */
};

struct octet_method {
    const char *name; /* "Trace"; its path is "/octet.v1.Octet/Trace" */
    const ProtobufCMessageDescriptor *request, *response;
    /* *response is in the call's arena. Errors carry the wire's field names ("model.overrides[x]").
     */
    enum octet_status (*run)(const struct octet_call *call, const ProtobufCMessage *request,
                             ProtobufCMessage **response, struct octet_error *err);
    bool is_constant;   /* the answer to an empty request stays the same while the process runs */
    bool takes_tensors; /* computes with workers; its messages may be as large as any */
    /* Of the session that field 1 of the request names. */
    enum octet_access access;
    enum octet_method_shape shape; /* of streams, request is NULL in all calls but those with one */
    bool is_light;                 /* reads a table, computes nothing */
};

extern const struct octet_method octet_methods[];
extern const size_t octet_method_count;
const struct octet_method *octet_method_find(const char *name); /* NULL: no such method */

/* Decodes into the arena. Errors: INVALID_ARGUMENT for malformed bytes, text that is not UTF-8 or
 * holds a NUL (field named); RESOURCE_EXHAUSTED when the arena's budget is too small. */
enum octet_status octet_wire_decode(const ProtobufCMessageDescriptor *descriptor,
                                    octet_arena *arena, const uint8_t *bytes, size_t length,
                                    ProtobufCMessage **out,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* The same, but the message's `buffers` stay where they lie in `bytes`, which must outlive the
 * message. */
enum octet_status octet_wire_decode_in_place(const ProtobufCMessageDescriptor *descriptor,
                                             octet_arena *arena, const uint8_t *bytes,
                                             size_t length, ProtobufCMessage **out,
                                             struct octet_error *err) OCTET_MUST_CHECK;

/* Puts a message together from the pieces in which it arrived, so that its large `buffers` are
 * aligned to 8 bytes: tensors can then be used where they lie. What comes out is the same message;
 * protobuf lets a tag be written longer than it must be, and that is where the bytes go. Malformed
 * messages come out as they are.
 * Life: init -> add, piece after piece -> end, which returns the length of the message in `out`. */
enum { OCTET_GATHER_PADDING = 256 }; /* what it may add in all; later buffers stay as they are */
struct octet_wire_gather {
    uint8_t *out; /* 16-aligned, room for the pieces and OCTET_GATHER_PADDING */
    size_t used;
    /* The rest is its own. */
    uint32_t number;  /* of the field `buffers`; 0: none */
    uint8_t head[32]; /* of a record, as far as it has come */
    size_t head_bytes, padding;
    uint64_t left; /* of a record's value */
    bool is_plain; /* copy only */
};
/* descriptor NULL: nothing is aligned. */
void octet_wire_gather_init(struct octet_wire_gather *gather,
                            const ProtobufCMessageDescriptor *descriptor, uint8_t *out);
void octet_wire_gather_add(struct octet_wire_gather *gather, const uint8_t *piece, size_t length);
size_t octet_wire_gather_end(struct octet_wire_gather *gather);

/* proto3 JSON with original field names, fields with default values included, 2 spaces indented.
 * write(user, text, length) returns false to stop. Returns false when stopped. */
bool octet_wire_json(const ProtobufCMessage *message,
                     bool (*write)(void *user, const char *text, size_t length), void *user);

#endif
