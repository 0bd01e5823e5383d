/* Clients that mean harm, are broken or die. Would show as a daemon that crashes, stops listening,
 * burns CPU, grows, or lets the others wait. After each attack a well-behaved client must be served
 * as before. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http2.h"

#define INFO "/octet.v1.Octet/GetServerInfo"
#define SLEEP "/octet.v1.Octet/Sleep"

static void expect_service(const struct daemon *d)
{
    struct client *client = client_connect(d->address);
    struct reply reply;

    client_call(client, INFO, "", 0, 20000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    client_close(client);
}

START_TEST(rubbish_and_http_1_are_turned_away)
{
    static const char http1[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct daemon d;
    uint8_t rubbish[4096];
    unsigned random = 7;

    start_daemon(&d, octetd_path, NULL);
    int fd = http2_connect(d.address);
    http2_send(fd, http1, sizeof http1 - 1);
    ck_assert(http2_is_closed(fd, 10000));
    close(fd);
    for (int i = 0; i < 50; i++) {
        for (size_t k = 0; k < sizeof rubbish; k++)
            rubbish[k] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
        fd = http2_connect(d.address);
        if (i % 2) /* rubbish behind a good beginning reaches the frame parser */
            http2_preface(fd);
        http2_send(fd, rubbish, sizeof rubbish);
        close(fd);
    }
    expect_service(&d);
    stop_daemon(&d);
}
END_TEST

/* CVE-2023-33953, as replayed on gRPC 1.51: 43 MB accepted in 40 s, nearly all of it CPU. */
START_TEST(an_endless_header_is_cut_early)
{
    static uint8_t block[16384];
    static const uint8_t start[] = {0x00, 0x01, 'a', 0x7f, 0xff, 0xff, 0xff, 0x7f};
    enum { LONGEST = 64 << 20 };
    struct daemon d;
    size_t sent = 0;

    start_daemon(&d, octetd_path, NULL);
    long cpu = daemon_cpu_ms(&d), rss = daemon_rss_kib(&d);
    int fd = http2_connect(d.address);
    memset(block, 'x', sizeof block);
    ck_assert(http2_preface(fd));
    ck_assert(http2_frame(fd, FRAME_HEADERS, 0, 1, start, sizeof start));
    while (sent < LONGEST && http2_frame(fd, FRAME_CONTINUATION, 0, 1, block, sizeof block))
        sent += sizeof block;
    ck_assert_msg(sent < LONGEST, "%zu bytes were taken", sent);
    close(fd);
    cpu = daemon_cpu_ms(&d) - cpu;
    rss = daemon_rss_kib(&d) - rss;
    ck_assert_msg(WITH_SANITIZER || cpu < 1500, "it cost %ld ms of CPU", cpu);
    ck_assert_msg(WITH_SANITIZER || rss < 64 * 1024, "it cost %ld KiB", rss);
    expect_service(&d);
    stop_daemon(&d);
    ck_assert(log_has("connection cut"));
}
END_TEST

/* With a call open whose request is on its way, more is allowed; not much more. */
START_TEST(an_endless_header_beside_an_open_call_is_cut_too)
{
    static uint8_t block[16384];
    static const uint8_t start[] = {0x00, 0x01, 'a', 0x7f, 0xff, 0xff, 0xff, 0x7f};
    enum { LONGEST = 128 << 20 };
    struct daemon d;
    size_t sent = 0;

    start_daemon(&d, octetd_path, NULL);
    long cpu = daemon_cpu_ms(&d);
    int fd = http2_connect(d.address);
    memset(block, 'x', sizeof block);
    ck_assert(http2_preface(fd));
    ck_assert(http2_call(fd, INFO));
    ck_assert(http2_frame(fd, FRAME_DATA, 0, 1, "\0\0\0\0\xc8", 5));
    pause_ms(100);
    ck_assert(http2_frame(fd, FRAME_HEADERS, 0, 3, start, sizeof start));
    while (sent < LONGEST && http2_frame(fd, FRAME_CONTINUATION, 0, 3, block, sizeof block))
        sent += sizeof block;
    ck_assert_msg(sent < LONGEST, "%zu bytes were taken", sent);
    close(fd);
    cpu = daemon_cpu_ms(&d) - cpu;
    ck_assert_msg(WITH_SANITIZER || cpu < 5000, "it cost %ld ms of CPU", cpu);
    expect_service(&d);
    stop_daemon(&d);
}
END_TEST

/* One byte of header a time stays below every limit on frames; the account of the connection still
 * grows. */
START_TEST(a_header_in_tiny_frames_is_cut_too)
{
    static const uint8_t start[] = {0x00, 0x01, 'a', 0x7f, 0xff, 0xff, 0xff, 0x7f};
    struct daemon d;
    uint8_t frames[10 * 512];
    int rounds = 0;

    for (size_t i = 0; i < sizeof frames; i += 10)
        memcpy(frames + i, "\0\0\1\x09\0\0\0\0\1x", 10);
    start_daemon(&d, octetd_path, NULL);
    int fd = http2_connect(d.address);
    ck_assert(http2_preface(fd));
    ck_assert(http2_frame(fd, FRAME_HEADERS, 0, 1, start, sizeof start));
    while (rounds < 4000 && http2_send(fd, frames, sizeof frames))
        rounds++;
    ck_assert_msg(rounds < 4000, "%d rounds were taken", rounds);
    close(fd);
    expect_service(&d);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_dripping_client_loses_its_place)
{
    struct daemon d;
    struct reply reply;
    const char *const more[] = {
        "--config", config_file("limits:\n  queue_length: 1\n  receive_ms: 1500\n"), NULL};

    start_daemon(&d, octetd_path, more);
    struct client *client = connect_now(&d);
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    reply_free(&reply);
    int fd = http2_connect(d.address);
    ck_assert(http2_preface(fd));
    ck_assert(http2_call(fd, INFO));
    pause_ms(200);
    client_call(client, INFO, "", 0, 5000, &reply); /* the one place is taken */
    ck_assert_int_eq(reply.status, 8);
    reply_free(&reply);
    for (int i = 0; i < 30; i++) { /* a byte of a message of 200 each 100 ms */
        http2_frame(fd, FRAME_DATA, 0, 1, i ? "x" : "\0\0\0\0\xc8", i ? 1 : 5);
        pause_ms(100);
    }
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    close(fd);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_client_killed_in_its_call_frees_the_lane)
{
    struct daemon d;
    uint8_t bytes[64];
    size_t length = sleep_request(bytes, 60000, 0, false);
    const char *const more[] = {"--threads", "1", NULL};

    start_daemon(&d, slow_path, more);
    for (int i = 0; i < 3; i++) {
        int fd = http2_connect(d.address);
        ck_assert(http2_preface(fd));
        ck_assert(http2_call(fd, SLEEP));
        ck_assert(http2_message(fd, bytes, length));
        pause_ms(150);
        http2_reset(fd);
    }
    long long start = now_ms();
    expect_service(&d);
    ck_assert_int_lt(now_ms() - start, 5000);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_call_without_a_message_is_invalid)
{
    struct daemon d;

    start_daemon(&d, octetd_path, NULL);
    int fd = http2_connect(d.address);
    ck_assert(http2_preface(fd));
    ck_assert(http2_call(fd, INFO));
    ck_assert(http2_frame(fd, FRAME_DATA, FLAG_END_STREAM, 1, "", 0));
    ck_assert(!http2_is_closed(fd, 300)); /* an answer, not a broken connection */
    close(fd);
    expect_service(&d);
    stop_daemon(&d);
}
END_TEST

/* protobuf-c makes 76 bytes of memory out of 1 on the wire: the arena's budget is what holds it. */
START_TEST(amplified_messages_stay_within_the_budget)
{
    enum { BYTES = 4 << 20 };
    struct daemon d;
    struct reply reply;
    uint8_t *bytes = malloc(BYTES);

    start_daemon(&d, octetd_path, NULL);
    struct client *client = connect_now(&d);
    long before = daemon_rss_kib(&d);
    for (size_t i = 0; i < BYTES; i += 2)
        memcpy(bytes + i, "\x12\x00", 2); /* TraceRequest.rules, an empty rule */
    for (int round = 0; round < 3; round++) {
        client_call(client, "/octet.v1.Octet/Trace", bytes, BYTES, 60000, &reply);
        ck_assert_msg(reply.status == 8 || reply.status == 3, "status %d: %s", reply.status,
                      reply.text);
        reply_free(&reply);
    }
    pause_ms(2500); /* an idle daemon gives memory back */
    long growth = daemon_rss_kib(&d) - before;
    ck_assert_msg(WITH_SANITIZER || growth < 32 * 1024, "grew by %ld KiB", growth);
    /* Deep nesting: each level a field 1 with the rest inside. */
    size_t at = BYTES;
    for (size_t length = 0; at > BYTES - 34000 && length < 1 << 21; length = BYTES - at) {
        at -= length < 128 ? 2 : length < 16384 ? 3 : 4;
        uint8_t *p = bytes + at;
        *p++ = 0x0a;
        for (; length >= 128; length >>= 7)
            *p++ = (uint8_t)(length | 0x80);
        *p = (uint8_t)length;
    }
    client_call(client, "/octet.v1.Octet/Trace", bytes + at, BYTES - at, 60000, &reply);
    ck_assert_int_ne(reply.status, 0);
    ck_assert_int_ne(reply.status, 14);
    reply_free(&reply);
    client_close(client);
    expect_service(&d);
    stop_daemon(&d);
    free(bytes);
}
END_TEST

START_TEST(connections_beyond_the_limit_are_closed)
{
    enum { CROWD = 40 };
    struct daemon d;
    struct reply reply;
    int fds[CROWD], open_ones = 0;
    const char *const more[] = {"--config", config_file("limits:\n  connections: 8\n"), NULL};

    start_daemon(&d, octetd_path, more);
    struct client *client = connect_now(&d);
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    reply_free(&reply);
    pause_ms(300); /* seen by the guard before the crowd comes */
    for (int i = 0; i < CROWD; i++)
        fds[i] = http2_connect(d.address);
    pause_ms(1000);
    for (int i = 0; i < CROWD; i++) {
        open_ones += fds[i] >= 0 && !http2_is_closed(fds[i], 0);
        close(fds[i]);
    }
    ck_assert_msg(open_ones <= 8, "%d connections stayed", open_ones);
    client_call(client, INFO, "", 0, 5000, &reply); /* the older one was not touched */
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    client_close(client);
    pause_ms(300);
    expect_service(&d);
    stop_daemon(&d);
}
END_TEST

/* gRPC would stop listening for good at the first connection for which there is no descriptor. The
 * crowd comes at once, before the guard looks. */
START_TEST(a_crowd_does_not_use_up_the_descriptors)
{
    enum { CROWD = 400 };
    struct daemon d;
    int fds[CROWD], status;
    char command[600];
    const char *const arguments[] = {"-c", command, NULL};

    snprintf(command, sizeof command, "ulimit -n 200 && exec %s --listen 127.0.0.1:0", octetd_path);
    ck_assert(daemon_start(&d, "/bin/sh", arguments, log_path, &status));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CROWD; i++)
            fds[i] = http2_connect(d.address);
        pause_ms(400);
        for (int i = 0; i < CROWD; i++)
            close(fds[i]);
    }
    pause_ms(300);
    expect_service(&d);
    stop_daemon(&d);
    ck_assert(log_has("fewer connections than asked for"));
    ck_assert(log_has("no file descriptors are left"));
}
END_TEST

TCase *hostile_tests(void)
{
    TCase *tests = tcase_create("hostile");

    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, rubbish_and_http_1_are_turned_away);
    tcase_add_test(tests, an_endless_header_is_cut_early);
    tcase_add_test(tests, an_endless_header_beside_an_open_call_is_cut_too);
    tcase_add_test(tests, a_header_in_tiny_frames_is_cut_too);
    tcase_add_test(tests, a_dripping_client_loses_its_place);
    tcase_add_test(tests, a_client_killed_in_its_call_frees_the_lane);
    tcase_add_test(tests, a_call_without_a_message_is_invalid);
    tcase_add_test(tests, amplified_messages_stay_within_the_budget);
    tcase_add_test(tests, connections_beyond_the_limit_are_closed);
    tcase_add_test(tests, a_crowd_does_not_use_up_the_descriptors);
    return tests;
}
