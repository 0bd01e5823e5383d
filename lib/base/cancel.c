/* The poll that long work makes between its steps. */
#include "octet/cancel.h"

#include <time.h>

uint64_t octet_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

enum octet_status octet_cancel_check(const struct octet_cancel *cancel, struct octet_error *err)
{
    if (!cancel)
        return OCTET_OK;
    if (atomic_load_explicit(&cancel->cancelled, memory_order_relaxed))
        return octet_fail(err, OCTET_CANCELLED, NULL, "the call was cancelled");
    if (cancel->deadline_ns && octet_now_ns() >= cancel->deadline_ns)
        return octet_fail(err, OCTET_DEADLINE_EXCEEDED, NULL, "the deadline has passed");
    return OCTET_OK;
}
