/* What is running, told on a terminal when it takes longer than two seconds.
 *
 * Life: one at a time; progress_end before anything else is printed. */
#ifndef OCTET_CLI_PROGRESS_H
#define OCTET_CLI_PROGRESS_H

/* what: "dot_general of [4096, 7168] and [7168, 2048]", borrowed until progress_end. Does nothing
 * when standard error is no terminal. */
void progress_start(const char *what);
void progress_end(void);
/* What of it is under way, "128x2048x2048"; a copy is kept, NULL is fine. */
void progress_say(const char *part);

#endif
