/* Just enough HTTP/2 by hand for clients that break its rules. */
#ifndef OCTET_TESTS_SERVER_HTTP2_H
#define OCTET_TESTS_SERVER_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_SETTINGS = 4, FRAME_CONTINUATION = 9 };
enum { FLAG_END_STREAM = 1, FLAG_END_HEADERS = 4 };

/* Connects to HOST:PORT of a daemon. -1: refused. */
int http2_connect(const char *address);
/* Each returns false when the peer has closed the connection. */
bool http2_send(int fd, const void *bytes, size_t length);
bool http2_preface(int fd);
bool http2_frame(int fd, int type, int flags, int stream, const void *bytes, size_t length);
/* HEADERS of a gRPC call on stream 1. */
bool http2_call(int fd, const char *path);
/* A gRPC message in one DATA frame, ending the stream. */
bool http2_message(int fd, const void *bytes, size_t length);
/* Has the peer closed or reset the connection? Waits at most this long; what arrives is thrown
 * away. */
bool http2_is_closed(int fd, int wait_ms);
/* Closes with a reset, as the kernel does for a killed process with unread data. */
void http2_reset(int fd);

#endif
