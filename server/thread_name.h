/* The calling thread's name, and that of the threads it makes from then on: what top -H and
 * /proc/PID/task show. At most 15 letters. */
#ifndef OCTET_SERVER_THREAD_NAME_H
#define OCTET_SERVER_THREAD_NAME_H

#include <sys/prctl.h>

static inline void thread_name(const char *name)
{
    (void)prctl(PR_SET_NAME, name);
}

#endif
