/* Options -> a gRPC channel. */
#include <errno.h>
#include <grpc/compression.h>
#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_private.h"

enum { PEM_BYTES_MAX = 1024 * 1024 };

static bool is_set(const char *text)
{
    return text && text[0];
}

void octet_client_options_from_environment(struct octet_client_options *options)
{
    *options = (struct octet_client_options){
        .target = getenv("OCTET_SERVER"),
        .tls_ca = getenv("OCTET_TLS_CA"),
        .tls_cert = getenv("OCTET_TLS_CERT"),
        .tls_key = getenv("OCTET_TLS_KEY"),
        .token = getenv("OCTET_TOKEN"),
    };
}

/* The file's text, malloc'ed; NULL after writing err. */
static char *read_pem(const char *field, const char *path, struct octet_error *err)
{
    char *text = malloc(PEM_BYTES_MAX + 1);
    FILE *file = text ? fopen(path, "rb") : NULL;
    size_t size = 0;

    if (!text) {
        octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        return NULL;
    }
    if (file)
        size = fread(text, 1, PEM_BYTES_MAX + 1, file);
    if (!file || ferror(file))
        octet_fail(err, OCTET_INVALID_ARGUMENT, field, "cannot read '%s': %s", path,
                   strerror(errno));
    else if (size > PEM_BYTES_MAX)
        octet_fail(err, OCTET_INVALID_ARGUMENT, field, "'%s' is larger than %d bytes", path,
                   PEM_BYTES_MAX);
    else if (!memmem(text, size, "-----BEGIN ", 11) || memchr(text, 0, size))
        octet_fail(err, OCTET_INVALID_ARGUMENT, field, "'%s' is not a PEM file", path);
    else {
        text[size] = '\0';
        fclose(file);
        return text;
    }
    if (file)
        fclose(file);
    free(text);
    return NULL;
}

static enum octet_status tls_credentials(const struct octet_client_options *options,
                                         grpc_channel_credentials **out, struct octet_error *err)
{
    char *ca = NULL, *cert = NULL, *key = NULL;
    enum octet_status status = OCTET_INVALID_ARGUMENT;
    bool mutual = is_set(options->tls_cert) || is_set(options->tls_key);

    if (!is_set(options->tls_ca))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "tls_ca",
                          "is needed with tls_cert and tls_key: it says whom to trust");
    if (mutual && (!is_set(options->tls_cert) || !is_set(options->tls_key)))
        return octet_fail(err, OCTET_INVALID_ARGUMENT,
                          is_set(options->tls_cert) ? "tls_key" : "tls_cert",
                          "is not set: a client certificate needs both");
    ca = read_pem("tls_ca", options->tls_ca, err);
    if (!ca)
        goto done;
    if (mutual) {
        cert = read_pem("tls_cert", options->tls_cert, err);
        key = cert ? read_pem("tls_key", options->tls_key, err) : NULL;
        if (!key)
            goto done;
    }
    grpc_ssl_pem_key_cert_pair pair = {key, cert};
    *out = grpc_ssl_credentials_create(ca, mutual ? &pair : NULL, NULL, NULL);
    status = *out ? OCTET_OK
                  : octet_fail(err, OCTET_INVALID_ARGUMENT, "tls_ca", "makes no TLS credentials");
done:
    free(key);
    free(cert);
    free(ca);
    return status;
}

/* Does the target stay on this machine? Then a token may travel in clear text, and no proxy is
 * asked. */
static bool is_local(const char *target)
{
    static const char *const prefixes[] = {"127.",
                                           "localhost:", "[::1]:", "unix:", "unix-abstract:"};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(target, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static enum octet_status check_options(const struct octet_client_options *options, bool tls,
                                       struct octet_error *err)
{
    if (!is_set(options->target))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "target", "is empty, expected HOST:PORT");
    if (strncmp(options->target, "unix", 4) != 0) {
        const char *colon = strrchr(options->target, ':');
        char *end;
        unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
        if (!colon || colon == options->target || *end || port == 0 || port > 65535)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "target",
                              "'%s' is not HOST:PORT with a port from 1 to 65535", options->target);
    }
    if (!is_set(options->token))
        return OCTET_OK;
    for (const char *c = options->token; *c; c++)
        if (*c <= ' ' || *c > '~')
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "token",
                              "holds a byte that is not printable ASCII");
    if (!tls && !is_local(options->target))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "token",
                          "would travel in clear text to %s: set tls_ca", options->target);
    return OCTET_OK;
}

static grpc_channel *create_channel(const octet_client *client)
{
    char receive[] = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, send[] = GRPC_ARG_MAX_SEND_MESSAGE_LENGTH;
    char retries[] = GRPC_ARG_ENABLE_RETRIES, proxy[] = GRPC_ARG_ENABLE_HTTP_PROXY;
    char frame[] = GRPC_ARG_HTTP2_MAX_FRAME_SIZE, chunk[] = GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE;
    char encodings[] = GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET;
    char own[] = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL;
    grpc_arg list[] = {
        {.type = GRPC_ARG_INTEGER, .key = receive, .value.integer = (int)client->reply_bytes_max},
        {.type = GRPC_ARG_INTEGER, .key = send, .value.integer = -1},
        {.type = GRPC_ARG_INTEGER, .key = retries, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER, .key = encodings, .value.integer = 1},
        /* As the server's: fewer, larger frames. */
        {.type = GRPC_ARG_INTEGER, .key = frame, .value.integer = 4 << 20},
        {.type = GRPC_ARG_INTEGER, .key = chunk, .value.integer = 1 << 20},
        {.type = GRPC_ARG_INTEGER, .key = proxy, .value.integer = !is_local(client->target)},
        /* Else two clients of one server share a connection, which the one may end. */
        {.type = GRPC_ARG_INTEGER, .key = own, .value.integer = 1},
    };
    grpc_channel_args args = {sizeof list / sizeof *list, list};

    return grpc_channel_create(client->target, client->credentials, &args);
}

void oct_client_reconnect(octet_client *client)
{
    grpc_channel_destroy(client->channel);
    client->channel = create_channel(client);
}

enum octet_status octet_client_connect(const struct octet_client_options *options,
                                       octet_client **out, struct octet_error *err)
{
    bool tls = is_set(options->tls_ca) || is_set(options->tls_cert) || is_set(options->tls_key);
    enum octet_status status = check_options(options, tls, err);

    if (status != OCTET_OK)
        return status;
    octet_client *client = calloc(1, sizeof *client);
    if (!client)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    grpc_init();
    client->reply_bytes_max = options->reply_bytes_max ? options->reply_bytes_max : 1u << 30;
    if (client->reply_bytes_max > INT32_MAX)
        client->reply_bytes_max = INT32_MAX; /* protobuf's own end */
    client->target = strdup(options->target);
    if (!client->target || (is_set(options->token) &&
                            asprintf(&client->authorization, "Bearer %s", options->token) < 0)) {
        client->authorization = NULL;
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        goto done;
    }
    if (tls)
        status = tls_credentials(options, &client->credentials, err);
    else
        client->credentials = grpc_insecure_credentials_create();
    if (status != OCTET_OK)
        goto done;
    client->queue = grpc_completion_queue_create_for_pluck(NULL);
    client->channel = create_channel(client);
done:
    if (status == OCTET_OK)
        *out = client;
    else
        octet_client_destroy(client);
    return status;
}

void octet_client_destroy(octet_client *client)
{
    if (!client)
        return;
    if (client->channel)
        grpc_channel_destroy(client->channel);
    if (client->queue) {
        grpc_completion_queue_shutdown(
            client->queue); /* no call is under way: it is empty at once */
        grpc_completion_queue_destroy(client->queue);
    }
    if (client->credentials)
        grpc_channel_credentials_release(client->credentials);
    if (client->authorization)
        explicit_bzero(client->authorization, strlen(client->authorization));
    free(client->authorization);
    free(client->target);
    free(client);
    grpc_shutdown();
}
