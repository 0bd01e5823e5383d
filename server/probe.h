/* octetd --health: asks a running daemon's health service. */
#ifndef OCTET_SERVER_PROBE_H
#define OCTET_SERVER_PROBE_H

#include "config.h"

/* OCTET_OK: it serves. UNAVAILABLE: it does not, or nobody answers within some seconds. */
enum octet_status probe_health(const struct config *config,
                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
