/* See tcp_bytes.h. */
#include "tcp_bytes.h"

#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

bool tcp_bytes_read(int fd, struct tcp_bytes *out)
{
    struct tcp_info info = {.tcpi_state = 0};
    socklen_t length = sizeof info;
    int unread;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return false;
    out->received = (int64_t)info.tcpi_bytes_received;
    if (ioctl(fd, SIOCINQ, &unread) == 0)
        out->received -= unread;
    out->sent = (int64_t)info.tcpi_bytes_acked;
    return true;
}
