/* What the kernel counted of a TCP connection. A file of its own, since <linux/tcp.h>, which has
 * the counters, and <netinet/tcp.h>, which libuv includes, define the same names. */
#ifndef OCTET_SERVER_TCP_BYTES_H
#define OCTET_SERVER_TCP_BYTES_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_bytes {
    int64_t received; /* and read by the process */
    int64_t sent;     /* and acknowledged */
};

/* False when it is no TCP socket. */
bool tcp_bytes_read(int fd, struct tcp_bytes *out);

#endif
