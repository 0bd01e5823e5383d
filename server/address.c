/* See address.h. */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static enum octet_status unix_parse(const char *path, struct address *out, struct octet_error *err)
{
    struct sockaddr_un sockaddr;

    if (path[0] != '/')
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "'unix:%s' is not an address: a unix socket needs an absolute path",
                          path);
    if (strlen(path) >= sizeof sockaddr.sun_path)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "the path of a unix socket may have %zu bytes, this one has %zu",
                          sizeof sockaddr.sun_path - 1, strlen(path));
    out->is_unix = true;
    snprintf(out->host, sizeof out->host, "%s", path);
    return OCTET_OK;
}

enum octet_status address_parse(const char *text, struct address *out, struct octet_error *err)
{
    char host[sizeof out->host];
    char *end;

    *out = (struct address){.is_unix = false};
    if (strncmp(text, "unix:", 5) == 0)
        return unix_parse(text + 5, out, err);
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || (size_t)(colon - text) >= sizeof host)
        goto malformed;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    if (host[0] == '[' && colon[-1] == ']') {
        host[colon - text - 1] = 0;
        memmove(host, host + 1, strlen(host));
    } else if (strchr(host, ':')) {
        goto malformed; /* IPv6 without brackets: the port would be a guess */
    }
    if (!host[0] || colon[1] < '0' || colon[1] > '9')
        goto malformed;
    long port = strtol(colon + 1, &end, 10);
    if (*end || port > 65535)
        goto malformed;
    memcpy(out->host, host, sizeof host);
    out->port = (int)port;
    return OCTET_OK;

malformed:
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                      "'%s' is not an address: expected HOST:PORT with a port of 0 to 65535, "
                      "[IPV6]:PORT or unix:/path",
                      text);
}

bool address_is_local(const struct address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (address->is_unix || strcmp(address->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

const char *address_format(const struct address *address, char *buffer, size_t size)
{
    if (address->is_unix)
        snprintf(buffer, size, "unix:%s", address->host);
    else if (strchr(address->host, ':'))
        snprintf(buffer, size, "[%s]:%d", address->host, address->port);
    else
        snprintf(buffer, size, "%s:%d", address->host, address->port);
    return buffer;
}

/* gRPC removes a socket's file before it binds, whoever listens there. */
static int unix_probe(const struct address *address)
{
    struct sockaddr_un sockaddr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    memcpy(sockaddr.sun_path, address->host, strlen(address->host) + 1);
    int failure = connect(fd, (struct sockaddr *)&sockaddr, sizeof sockaddr) == 0 ? EADDRINUSE : 0;
    close(fd);
    return failure;
}

static int tcp_probe(const struct sockaddr *sockaddr, socklen_t length)
{
    int on = 1, failure = 0;
    int fd = socket(sockaddr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    /* As gRPC: without it, connections in TIME_WAIT would keep a restarted daemon off its port. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, sockaddr, length) != 0 || listen(fd, 1) != 0)
        failure = errno;
    close(fd);
    return failure;
}

enum octet_status address_probe(const struct address *address, struct octet_error *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)address->port)};
    char text[300];
    int failure = 0;

    if (address->is_unix)
        failure = unix_probe(address);
    else if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1)
        failure = tcp_probe((struct sockaddr *)&v4, sizeof v4);
    else if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1)
        failure = tcp_probe((struct sockaddr *)&v6, sizeof v6);
    if (failure == 0)
        return OCTET_OK;
    return octet_fail(err, OCTET_UNAVAILABLE, "listen", "cannot listen on %s: %s",
                      address_format(address, text, sizeof text), strerror(failure));
}
