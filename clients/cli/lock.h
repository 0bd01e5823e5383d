/* Lock files: the trace of a config as it was accepted, so that a later change of it is noticed. */
#ifndef OCTET_CLI_LOCK_H
#define OCTET_CLI_LOCK_H

#include "session.h"

enum lock_state { LOCK_ABSENT, LOCK_WRITTEN, LOCK_SAME, LOCK_DIFFERS };

/* Compares the trace with the file. Without a file: writes it when may_write, else leaves things as
 * they are (LOCK_ABSENT). *changes: of LOCK_DIFFERS, what changed, a line each: "- old", "+ new".
 * Errors: INVALID_ARGUMENT when the file cannot be read or written, or is no lock file. */
enum octet_status lock_check(struct session *session, const Octet__V1__Trace *trace, bool may_write,
                             enum lock_state *state, const char **changes,
                             struct octet_error *err) OCTET_MUST_CHECK;

#endif
