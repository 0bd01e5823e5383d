/* Who may connect and who may call: TLS files and bearer tokens. */
#ifndef OCTET_SERVER_CREDENTIALS_H
#define OCTET_SERVER_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#include <grpc/grpc_security.h>

#include "config.h"

/* Plaintext without tls.certificate; with tls.client_ca clients must bring a certificate.
 * Errors: NOT_FOUND, INVALID_ARGUMENT naming the setting and the file. */
enum octet_status credentials_create(const struct config *config, grpc_server_credentials **out,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* For --health: a client that does not verify whom it asks (the answer is one bit, and it asks the
 * address that it was told), but shows the daemon's own certificate where one is demanded. */
enum octet_status credentials_create_probe(const struct config *config,
                                           grpc_channel_credentials **out,
                                           struct octet_error *err) OCTET_MUST_CHECK;

struct tokens;

/* *out is NULL when auth.token_file is not set. A token is a line of 16 to 512 visible characters;
 * empty lines and lines that begin with # do not count. */
enum octet_status tokens_read(const struct config *config, struct tokens **out,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* Is `header` (of `length` bytes) "Bearer " and one of the tokens? The time taken tells nothing of
 * how much of a token was right. */
bool tokens_accept(const struct tokens *tokens, const char *header, size_t length);
void tokens_free(struct tokens *tokens); /* NULL is fine */

#endif
