/* SIGTERM, SIGINT and SIGHUP. The first asks for a drain, the second ends the process at once with
 * 128 + its number.
 *
 * Decision: plain handlers, installed before anything else is done, so that a signal during
 * start-up is neither lost nor deadly, and a second one works even when the loop hangs. */
#ifndef OCTET_SERVER_SIGNALS_H
#define OCTET_SERVER_SIGNALS_H

#include <uv.h>

void signals_install(void);
/* From now on the first signal wakes `wake`; one that came before does so at once. */
void signals_watch(uv_async_t *wake);
/* `wake` is about to be closed. */
void signals_unwatch(void);
/* The signal that came; 0: none. */
int signals_first(void);

#endif
