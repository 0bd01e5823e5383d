/* An octetd of this process's own, for commands that need one when none is named.
 *
 * Life: it serves on a free port of this machine's loopback, in a process group of its own (Ctrl-C
 * of the terminal is not for it), and ends with own_daemon_stop or with this process. */
#ifndef OCTET_CLI_OWN_DAEMON_H
#define OCTET_CLI_OWN_DAEMON_H

#include <sys/types.h>

#include "octet/arena.h"
#include "octet/cancel.h"

struct own_daemon {
    pid_t process; /* 0: none */
    char address[32];
    char *folder; /* of its port and log; removed at the end */
};

/* data_dir: where its checkpoints go; made when it is not there. threads: 0: octetd's choice.
 * backend: as octetd's --backends has it; NULL: the CPU. Errors: UNAVAILABLE with the first line of
 * its log. */
enum octet_status own_daemon_start(octet_arena *arena, const char *data_dir, int64_t threads,
                                   const char *backend, const struct octet_cancel *cancel,
                                   struct own_daemon *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;
void own_daemon_stop(struct own_daemon *daemon);

#endif
