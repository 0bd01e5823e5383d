/* Keeps the last file descriptors of the process for the daemon itself.
 *
 * For: a fault of gRPC 1.51. Its listener gives up for good, without an error to us, at the first
 * accept4 that fails for want of a descriptor (tcp_server_posix.cc, on_read); a crowd of
 * connections would make the daemon deaf.
 * Not for: limits.connections, which the guard holds.
 * Decision: accept.c defines accept4 itself, and the program's definition goes before libc's in
 * every library that it loads. A connection whose number lies among the last is closed at once, so
 * that gRPC never sees the failure. No thread of ours is fast enough to do it from outside. */
#ifndef OCTET_SERVER_ACCEPT_H
#define OCTET_SERVER_ACCEPT_H

#include "octet/status.h"

/* Takes as many descriptors as the process may have. *connections_max: how many are left for
 * connections. Before there are threads. Errors: RESOURCE_EXHAUSTED when that would be none. */
enum octet_status accept_init(int *connections_max, struct octet_error *err) OCTET_MUST_CHECK;

#endif
