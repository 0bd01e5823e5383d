/* What a command works with, and the commands themselves.
 *
 * Life: main makes one session, runs one command in it, and ends it. All memory that a command asks
 * for is the session's arena's. */
#ifndef OCTET_CLI_SESSION_H
#define OCTET_CLI_SESSION_H

#include "octet/octet.h"
#include "octet/v1/octet.pb-c.h"
#include "options.h"
#include "output.h"

/* Exit statuses, as help tells them. */
enum {
    EXIT_FINE = 0,
    EXIT_FOUND = 1,         /* check found errors, verify found differences */
    EXIT_FAILED = 2,        /* wrong use or input, no daemon, output that cannot be written */
    EXIT_INTERRUPTED = 130, /* main tells another signal than SIGINT as 128 + its number */
};

struct remote;

struct session {
    const struct arguments *arguments;
    octet_arena *arena;
    octet_context *context;
    struct output *out;          /* standard output */
    struct octet_cancel *cancel; /* set by SIGINT, SIGTERM and SIGHUP */
    octet_workers *workers;      /* of calls in this process; made by the first that needs them */
    struct remote *remote;       /* the connection to a daemon; made by the first call */
};

int run_trace(struct session *session);
int run_check(struct session *session);
int run_verify(struct session *session);
int run_inspect(struct session *session);
int run_plan(struct session *session);
int run_quantize(struct session *session);
int run_dequantize(struct session *session);
int run_dot(struct session *session);
int run_gmm(struct session *session);
int run_bench(struct session *session);
int run_session(struct session *session);
int run_train(struct session *session);
int run_plot(struct session *session);
int run_info(struct session *session);
int run_completion(struct session *session);
int run_help(struct session *session);

/* error.c: writes "octet: ..." in the user's terms to standard error and returns the exit status.
 */
/* Text onto standard error. Control characters could steer the terminal, and bytes that are no
 * UTF-8 confuse it: a text from a file or a daemon is shown, not obeyed. */
void print_safe(const char *text);
int report(struct session *session, const struct octet_error *err);

/* transport.c: the one way to an answer. Without a daemon the method runs in this process, on the
 * same bytes that a daemon would get; with one, they travel. *response is in the arena, which may
 * be another one at each call. */
enum octet_status session_call(struct session *session, const char *method,
                               const ProtobufCMessage *request, ProtobufCMessage **response,
                               struct octet_error *err) OCTET_MUST_CHECK;
/* The same for what only a daemon does: calls on the sessions that it holds. answer: the reply's
 * type. A request that changes something has a request_id, since it may be sent twice. Without
 * --timeout it may take as long as it takes. */
enum octet_status session_ask(struct session *session, const char *method,
                              const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *answer, ProtobufCMessage **response,
                              struct octet_error *err) OCTET_MUST_CHECK;

/* A call with many messages in one direction; no other call until stream_end, which cancels one
 * that has not come to its end. */
struct stream;
enum octet_status stream_open(struct session *session, const char *method, struct stream **out,
                              struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status stream_send(struct stream *stream, const ProtobufCMessage *message,
                              struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status stream_close_send(struct stream *stream,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* *out is good until the next; NULL: there are no more. */
enum octet_status stream_receive(struct stream *stream, const ProtobufCMessageDescriptor *what,
                                 ProtobufCMessage **out, struct octet_error *err) OCTET_MUST_CHECK;
void stream_end(struct stream *stream); /* NULL is fine */
/* "HOST:PORT" of the daemon that is asked, NULL for none. */
const char *session_server(const struct session *session);
void session_end(struct session *session); /* workers and connection, where they were made */

/* request.c */
enum octet_status request_model(struct session *session, bool against, Octet__V1__ModelConfig **out,
                                struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status request_rules(struct session *session, size_t *count,
                                Octet__V1__QuantizationRule ***out,
                                struct octet_error *err) OCTET_MUST_CHECK;
/* The name of the environment variable that set `key`, NULL when none did or an argument overrode
 * it. */
const char *request_variable(struct session *session, const char *key);
/* Model and settings in one line, as they were given: "deepseek3-671b quantization=fp8_full". */
const char *request_title(struct session *session);

/* file.c: a whole file ("-": standard input) as text of at most `bytes_max` bytes without a NUL. */
enum octet_status file_read(octet_arena *arena, const char *path, size_t bytes_max, char **text,
                            size_t *length, struct octet_error *err) OCTET_MUST_CHECK;
/* Puts the text in the file's place in one step: a reader sees the old file or the new one. */
enum octet_status file_replace(const char *path, const char *text, size_t length,
                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
