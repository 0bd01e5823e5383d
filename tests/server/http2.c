/* See http2.h. */
#include "http2.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int http2_connect(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

bool http2_send(int fd, const void *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes = (const char *)bytes + n;
        length -= (size_t)n;
    }
    return true;
}

bool http2_frame(int fd, int type, int flags, int stream, const void *bytes, size_t length)
{
    uint8_t head[9] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length,
        (uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
        (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream,
    };

    return http2_send(fd, head, sizeof head) && http2_send(fd, bytes, length);
}

bool http2_preface(int fd)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    return http2_send(fd, preface, sizeof preface - 1) &&
           http2_frame(fd, FRAME_SETTINGS, 0, 0, "", 0);
}

/* HPACK: a literal whose name is in the static table, or new (index 0). */
static size_t put_text(uint8_t *out, const char *text)
{
    size_t length = strlen(text); /* below 127: one byte of length */

    out[0] = (uint8_t)length;
    memcpy(out + 1, text, length);
    return length + 1;
}

bool http2_call(int fd, const char *path)
{
    uint8_t block[512] = {0x83, 0x86, 0x04}; /* POST, http, :path */
    size_t n = 3;

    n += put_text(block + n, path);
    block[n++] = 0x01; /* :authority */
    n += put_text(block + n, "localhost");
    block[n++] = 0x0f; /* content-type: 31 in the static table */
    block[n++] = 0x10;
    n += put_text(block + n, "application/grpc");
    block[n++] = 0x00;
    n += put_text(block + n, "te");
    n += put_text(block + n, "trailers");
    return http2_frame(fd, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, n);
}

bool http2_message(int fd, const void *bytes, size_t length)
{
    uint8_t data[512] = {0, (uint8_t)(length >> 24), (uint8_t)(length >> 16),
                         (uint8_t)(length >> 8), (uint8_t)length};

    memcpy(data + 5, bytes, length);
    return http2_frame(fd, FRAME_DATA, FLAG_END_STREAM, 1, data, length + 5);
}

static long long clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

bool http2_is_closed(int fd, int wait_ms)
{
    long long until = clock_ms() + wait_ms;

    for (;;) {
        char buffer[4096];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        long long left = until - clock_ms();
        if (left < 0 || poll(&p, 1, (int)left) == 0)
            return false;
        if (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) <= 0)
            return true;
    }
}

void http2_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}
