/* Starts and stops a real octetd (or a server that speaks the same first line) for tests. */
#ifndef OCTET_TESTS_SERVER_DAEMON_H
#define OCTET_TESTS_SERVER_DAEMON_H

#include <stdbool.h>
#include <sys/types.h>

struct daemon {
    pid_t pid;
    char address[128]; /* where it listens, from its first line */
};

/* Runs program with the arguments (NULL ends them) and waits for "... listening on ADDRESS".
 * Returns false when it ends or says something else; the exit status is then in *status. The
 * child's stderr goes to log_path, or with NULL to ours. */
bool daemon_start(struct daemon *daemon, const char *program, const char *const *arguments,
                  const char *log_path, int *status);
void daemon_signal(const struct daemon *daemon, int signal);
/* Waits at most some seconds; kills it and returns -1 when that was too short. Else: the exit
 * status, or 1000 + the signal that ended it. */
int daemon_wait(struct daemon *daemon, int seconds);
/* Resident bytes and CPU milliseconds so far. */
long daemon_rss_kib(const struct daemon *daemon);
long daemon_cpu_ms(const struct daemon *daemon);

#endif
