/* A small gRPC client on the C core, for tests and benches that talk to a real daemon.
 *
 * Life: a client is used by one thread. A pending call is started, waited for, freed. */
#ifndef OCTET_TESTS_SERVER_CLIENT_H
#define OCTET_TESTS_SERVER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;
struct pending;

struct reply {
    int status;
    char text[2048];
    char request_id[160]; /* trailing octet-request-id; "" = none */
    char initial_id[160]; /* the same from the initial metadata */
    char retry_ms[32];    /* trailing retry-after-ms; "" = none */
    uint8_t *bytes;       /* [length]; NULL: no message */
    size_t length;
};

struct client *client_connect(const char *target);
/* As client_connect, with keepalive pings this often. */
struct client *client_connect_pinging(const char *target, int keepalive_ms);
void client_close(struct client *client);

/* metadata: key, value, key, value, ..., NULL; may be NULL. deadline_ms 0: none. */
struct pending *client_start(struct client *client, const char *path, const void *bytes,
                             size_t length, int deadline_ms, const char *const *metadata);
void client_cancel(struct pending *pending);
/* Waits, fills the reply (reply_free it) and frees the call. */
void client_wait(struct pending *pending, struct reply *reply);
void client_call(struct client *client, const char *path, const void *bytes, size_t length,
                 int deadline_ms, struct reply *reply);
void reply_free(struct reply *reply);

#endif
