/* Serve: the daemon's start, its running, and what it takes down in the end. */
#ifndef OCTET_SERVER_SERVE_H
#define OCTET_SERVER_SERVE_H

#include "config.h"
#include "method.h"

/* Serves until the drain has ended. Returns OCTET_OK after a clean end. */
enum octet_status serve(const struct config *config, const struct octet_method *methods,
                        size_t method_count, struct octet_error *err) OCTET_MUST_CHECK;

#endif
