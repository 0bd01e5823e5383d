/* Pieces of requests on a daemon's sessions, for octet session and octet train. */
#ifndef OCTET_CLI_SESSIONS_H
#define OCTET_CLI_SESSIONS_H

#include "session.h"

/* A name for a request that changes something, the same when it is sent again: "prefix-hex-step".
 * step < 0: left out. NULL: no memory. */
char *request_id(octet_arena *arena, const char *prefix, int64_t step);

/* CreateSession of the command's model and options. from: a checkpoint's name in place of the
 * model, NULL: none. */
enum octet_status sessions_create(struct session *session, const char *from,
                                  Octet__V1__Session **out,
                                  struct octet_error *err) OCTET_MUST_CHECK;
/* Elements of all parameters. */
int64_t sessions_count_values(const Octet__V1__Session *s);
/* "33 of 59 traced ops on opencl"; "" where all of them are the CPU's, or none is told. */
const char *sessions_placement(const Octet__V1__Session *s, char out[96]);
enum octet_status sessions_save(struct session *session, const char *session_id, const char *name,
                                Octet__V1__Checkpoint **out,
                                struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status sessions_delete(struct session *session, const char *session_id,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* transfer.c: between a session and a safetensors file, a chunk at a time. tensors, bytes: what
 * went over. names: patterns of those that are wanted, all when there are none. */
enum octet_status transfer_put(struct session *session, const char *session_id,
                               Octet__V1__TensorKind kind, const char *path, int64_t *tensors,
                               int64_t *bytes, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status transfer_get(struct session *session, const char *session_id,
                               Octet__V1__TensorKind kind, char **names, size_t name_count,
                               const char *path, int64_t *tensors, int64_t *bytes,
                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
