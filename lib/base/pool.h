/* Pool: one loop shared by threads.
 *
 * For: the parallel part of an operation. Not for: lanes (server), queues, or nested loops.
 * Decision: pthreadpool behind one function, so that its rules (yield, never nest) are kept in one
 * place. Items are handed out in no fixed order to no fixed thread; nothing may depend on either.
 */
#ifndef OCTET_BASE_POOL_H
#define OCTET_BASE_POOL_H

#include <stddef.h>

#include "octet/cancel.h"
#include "octet/status.h"

struct oct_pool;

/* threads: at least 1, the caller's own included. NULL when there is no memory. */
struct oct_pool *oct_pool_create(size_t threads);
void oct_pool_destroy(struct oct_pool *pool);         /* NULL is fine */
size_t oct_pool_threads(const struct oct_pool *pool); /* NULL: 1 */

/* task(user, item, thread) for item = 0 .. count - 1; thread < oct_pool_threads and no two tasks
 * run with the same one at a time. Tasks run in the floating-point environment of float_env.h.
 * Polls cancel (may be NULL) before each item: from then on no more items are begun, and the reason
 * is returned. pool may be NULL: the caller's thread does it all. */
enum octet_status oct_pool_run(struct oct_pool *pool, size_t count,
                               const struct octet_cancel *cancel,
                               void (*task)(void *user, size_t item, size_t thread), void *user,
                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
