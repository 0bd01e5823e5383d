/* See accept.h. */
#include "accept.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "octet/cancel.h"

/* The daemon's own: standard streams, epoll and event descriptors, files that are read. */
enum { OWN_FILES = 32, LOG_EVERY_NS = 1000000000 };

/* The process has one table of descriptors. Written before there are threads. */
static int first_own = INT_MAX;

static void count_refused(void)
{
    static _Atomic int64_t refused;
    static _Atomic uint64_t last_ns;
    uint64_t now = octet_now_ns(), last = atomic_load(&last_ns);
    int64_t count = atomic_fetch_add(&refused, 1) + 1;

    if (now - last < LOG_EVERY_NS || !atomic_compare_exchange_strong(&last_ns, &last, now))
        return;
    atomic_fetch_sub(&refused, count);
    log_event(LOG_LEVEL_WARNING, "connections refused: no file descriptors are left",
              log_number("count", count), log_number("files", first_own + OWN_FILES));
}

__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address,
                                                   socklen_t *length, int flags)
{
    socklen_t room = length ? *length : 0;

    for (;;) {
        if (length)
            *length = room;
        int fd = (int)syscall(SYS_accept4, listener, address, length, flags);
        if (fd >= 0 && fd < first_own)
            return fd;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            count_refused();
            errno = EAGAIN; /* "none is waiting": it is asked again when the next one comes */
            return -1;
        }
        if (fd < 0)
            return fd;
        close(fd);
        count_refused();
    }
}

enum octet_status accept_init(int *connections_max, struct octet_error *err)
{
    struct rlimit limit;

    *connections_max = INT_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX)
        return OCTET_OK;
    if (limit.rlim_cur < limit.rlim_max) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max < INT_MAX ? limit.rlim_max : INT_MAX;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before;
    }
    if (limit.rlim_cur < 2 * OWN_FILES)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the process may open %lld files; octetd needs %d (ulimit -n)",
                          (long long)limit.rlim_cur, 2 * OWN_FILES);
    first_own = (int)limit.rlim_cur - OWN_FILES;
    *connections_max = first_own - OWN_FILES; /* both ends of the numbers are in use */
    return OCTET_OK;
}
