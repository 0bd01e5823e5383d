/* A listening address: HOST:PORT, [IPV6]:PORT or unix:/path. */
#ifndef OCTET_SERVER_ADDRESS_H
#define OCTET_SERVER_ADDRESS_H

#include <stdbool.h>

#include "octet/status.h"

struct address {
    bool is_unix;
    char host[256]; /* without brackets; the path when is_unix */
    int port;       /* 0 asks for a free one */
};

/* Errors: INVALID_ARGUMENT naming what was expected. */
enum octet_status address_parse(const char *text, struct address *out,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* Reachable from this machine only: 127.0.0.0/8, ::1, localhost, a unix socket. */
bool address_is_local(const struct address *address);

/* "127.0.0.1:50051", "[::1]:50051", "unix:/path". Returns buffer. */
const char *address_format(const struct address *address, char *buffer, size_t size);

/* Tries to bind the address, and says why when that does not work: gRPC's own answer is "no port",
 * and it would take an unix socket away from a daemon that listens on it. A race with another
 * process remains; gRPC's own bind then fails too. Host names are not tried. */
enum octet_status address_probe(const struct address *address,
                                struct octet_error *err) OCTET_MUST_CHECK;

#endif
