/* See credentials.h. */
#include "credentials.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20, TOKEN_BYTES_MIN = 16, TOKEN_BYTES_MAX = 512, TOKENS_MAX = 1024 };

/* The whole file and a NUL; free() it. */
static enum octet_status file_read(const char *path, const char *setting, char **out,
                                   struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    char *text = NULL;
    FILE *file = fopen(path, "re");

    if (!file)
        return octet_fail(err, OCTET_NOT_FOUND, setting, "'%s' cannot be read: %s", path,
                          strerror(errno));
    text = malloc(FILE_BYTES_MAX + 1);
    if (!text) {
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        goto done;
    }
    size_t length = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file) || length > FILE_BYTES_MAX) {
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, setting,
                            "'%s' cannot be read or has more than %d bytes", path, FILE_BYTES_MAX);
        goto done;
    }
    text[length] = 0;
    *out = text;
    text = NULL;
done:
    free(text);
    fclose(file);
    return status;
}

/* A certificate file that holds none would only show as a failed handshake later. */
static enum octet_status pem_read(const char *path, const char *setting, char **out,
                                  struct octet_error *err)
{
    enum octet_status status = file_read(path, setting, out, err);

    if (status == OCTET_OK && !strstr(*out, "-----BEGIN ")) {
        free(*out);
        *out = NULL;
        return octet_fail(err, OCTET_INVALID_ARGUMENT, setting, "'%s' is not a PEM file", path);
    }
    return status;
}

enum octet_status credentials_create(const struct config *config, grpc_server_credentials **out,
                                     struct octet_error *err)
{
    char *certificate = NULL, *key = NULL, *authorities = NULL;
    bool mutual = config->tls.client_ca[0] != 0;
    enum octet_status status;

    if (!config_has_tls(config)) {
        *out = grpc_insecure_server_credentials_create();
        return OCTET_OK;
    }
    status = pem_read(config->tls.certificate, "tls.certificate", &certificate, err);
    if (status == OCTET_OK)
        status = pem_read(config->tls.key, "tls.key", &key, err);
    if (status == OCTET_OK && mutual)
        status = pem_read(config->tls.client_ca, "tls.client_ca", &authorities, err);
    if (status != OCTET_OK)
        goto done;

    grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = certificate};
    grpc_ssl_server_certificate_config *certificates =
        grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
    grpc_ssl_server_credentials_options *settings =
        grpc_ssl_server_credentials_create_options_using_config(
            mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                   : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            certificates);
    *out = grpc_ssl_server_credentials_create_with_options(settings); /* takes both */
    if (!*out)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "tls.certificate",
                            "no TLS with '%s' and '%s'", config->tls.certificate, config->tls.key);
done:
    free(authorities);
    free(key);
    free(certificate);
    return status;
}

/* What grpc_tls_certificate_provider_static_data_create takes. */
static grpc_tls_identity_pairs *own_identity(const char *key, const char *certificate)
{
    grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();

    grpc_tls_identity_pairs_add_pair(pairs, key, certificate);
    return pairs;
}

enum octet_status credentials_create_probe(const struct config *config,
                                           grpc_channel_credentials **out, struct octet_error *err)
{
    char *certificate = NULL, *key = NULL;
    enum octet_status status;

    if (!config_has_tls(config)) {
        *out = grpc_insecure_credentials_create();
        return OCTET_OK;
    }
    status = pem_read(config->tls.certificate, "tls.certificate", &certificate, err);
    if (status == OCTET_OK)
        status = pem_read(config->tls.key, "tls.key", &key, err);
    if (status != OCTET_OK)
        goto done;
    grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_static_data_create(
        certificate, own_identity(key, certificate));
    grpc_tls_credentials_options *settings = grpc_tls_credentials_options_create();
    grpc_tls_credentials_options_set_certificate_provider(settings, provider);
    grpc_tls_credentials_options_watch_identity_key_cert_pairs(settings);
    grpc_tls_credentials_options_set_verify_server_cert(settings, 0);
    grpc_tls_credentials_options_set_check_call_host(settings, 0);
    *out = grpc_tls_credentials_create(settings); /* takes settings */
    grpc_tls_certificate_provider_release(provider);
done:
    free(key);
    free(certificate);
    return status;
}

struct tokens {
    size_t count;
    struct token {
        size_t length;
        char text[TOKEN_BYTES_MAX]; /* zeros behind the token */
    } list[];
};

static enum octet_status token_add(struct tokens *tokens, const char *line, size_t length,
                                   struct octet_error *err)
{
    if (length == 0 || line[0] == '#')
        return OCTET_OK;
    for (size_t i = 0; i < length; i++)
        if (line[i] <= ' ' || line[i] > '~')
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "auth.token_file",
                              "token %zu holds a blank or an unprintable character",
                              tokens->count + 1);
    if (length < TOKEN_BYTES_MIN || length > TOKEN_BYTES_MAX || tokens->count == TOKENS_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "auth.token_file",
                          "token %zu has %zu characters; expected %d to %d, and at most %d tokens",
                          tokens->count + 1, length, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, TOKENS_MAX);
    struct token *token = &tokens->list[tokens->count++];
    token->length = length;
    memcpy(token->text, line, length);
    return OCTET_OK;
}

enum octet_status tokens_read(const struct config *config, struct tokens **out,
                              struct octet_error *err)
{
    struct tokens *tokens = NULL;
    char *text = NULL;

    *out = NULL;
    if (!config->auth.token_file[0])
        return OCTET_OK;
    enum octet_status status = file_read(config->auth.token_file, "auth.token_file", &text, err);
    if (status != OCTET_OK)
        return status;
    tokens = calloc(1, sizeof *tokens + TOKENS_MAX * sizeof tokens->list[0]);
    if (!tokens) {
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        goto done;
    }
    for (const char *line = text; *line && status == OCTET_OK;) {
        size_t length = strcspn(line, "\r\n");
        status = token_add(tokens, line, length, err);
        line += length;
        line += strspn(line, "\r\n");
    }
    if (status == OCTET_OK && tokens->count == 0)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "auth.token_file", "'%s' holds no token",
                            config->auth.token_file);
    if (status == OCTET_OK) {
        *out = tokens;
        tokens = NULL;
    }
done:
    free(tokens);
    free(text);
    return status;
}

/* Looks at every byte of the longest token, whatever differs and where. */
static unsigned token_differs(const struct token *token, const char *text, size_t length)
{
    unsigned differs = token->length != length;

    for (size_t i = 0; i < TOKEN_BYTES_MAX; i++)
        differs |= (unsigned)(unsigned char)(token->text[i] ^ text[i]);
    return differs;
}

bool tokens_accept(const struct tokens *tokens, const char *header, size_t length)
{
    static const char scheme[] = "Bearer ";
    char text[TOKEN_BYTES_MAX] = {0};
    unsigned accepted = 0;

    if (length < sizeof scheme - 1 || strncasecmp(header, scheme, sizeof scheme - 1) != 0)
        return false;
    header += sizeof scheme - 1;
    length -= sizeof scheme - 1;
    if (length > TOKEN_BYTES_MAX)
        return false;
    memcpy(text, header, length);
    for (size_t i = 0; i < tokens->count; i++)
        accepted |= token_differs(&tokens->list[i], text, length) == 0;
    return accepted;
}

void tokens_free(struct tokens *tokens)
{
    free(tokens);
}
