/* Cancellation and deadlines, polled by long work. */
#ifndef OCTET_CANCEL_H
#define OCTET_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "octet/status.h"

struct octet_cancel {
    _Atomic bool cancelled; /* any thread may set it; relaxed: only the delay depends on it */
    uint64_t deadline_ns;   /* on CLOCK_MONOTONIC; 0 = none. Set before the work starts */
};

/* OCTET_OK, OCTET_CANCELLED or OCTET_DEADLINE_EXCEEDED. cancel may be NULL: never cancelled. */
OCTET_API enum octet_status octet_cancel_check(const struct octet_cancel *cancel,
                                               struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API uint64_t octet_now_ns(void); /* CLOCK_MONOTONIC */

#endif
