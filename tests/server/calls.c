/* Answers: the right one to each kind of request, errors with their status, sentence and metadata.
 * Would show as a wrong status, a missing id, or a request that is taken although it is too large.
 */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/v1/octet.pb-c.h"

static struct daemon daemon_;
static struct client *client;

static void setup(void)
{
    start_daemon(&daemon_, octetd_path, NULL);
    client = client_connect(daemon_.address);
}

static void teardown(void)
{
    client_close(client);
    stop_daemon(&daemon_);
}

#define INFO "/octet.v1.Octet/GetServerInfo"

START_TEST(info_tells_what_the_server_is)
{
    struct reply reply;

    /* An unknown field takes the way through a lane, nothing the short one: the same answer. */
    struct reply long_way;
    client_call(client, INFO, "\x98\x06\x01", 3, 5000, &long_way);
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    ck_assert_int_eq(long_way.status, 0);
    ck_assert_uint_eq(long_way.length, reply.length);
    ck_assert_mem_eq(long_way.bytes, reply.bytes, reply.length);
    reply_free(&long_way);
    Octet__V1__GetServerInfoResponse *info =
        octet__v1__get_server_info_response__unpack(NULL, reply.length, reply.bytes);
    ck_assert_ptr_nonnull(info);
    ck_assert_str_eq(info->version, "0.1.0");
    ck_assert_ptr_nonnull(info->limits);
    ck_assert_int_eq(info->limits->max_message_bytes, 1 << 30);
    ck_assert_int_ge(info->limits->request_memory_bytes, 64 << 20);
    ck_assert_int_eq(info->limits->config_request_bytes, 4 << 20);
    ck_assert_int_eq(info->limits->queue_length, 256);
    ck_assert_int_ge(info->limits->lanes, 1);
    octet__v1__get_server_info_response__free_unpacked(info, NULL);
    reply_free(&reply);
}
END_TEST

START_TEST(sane_request_ids_come_back_and_others_are_replaced)
{
    static const struct {
        const char *key, *value;
        bool kept;
    } cases[] = {
        {"x-request-id", "run-7:step.3_a", true},
        {"octet-request-id", "0123456789abcdef", true},
        {"x-request-id", "two words", false},
        {"x-request-id", "semi;colon", false},
        {"x-request-id", "", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *metadata[] = {cases[i].key, cases[i].value, NULL};
        struct reply reply;
        client_wait(client_start(client, INFO, "", 0, 5000, metadata), &reply);
        ck_assert_int_eq(reply.status, 0);
        ck_assert_str_eq(reply.request_id, reply.initial_id);
        if (cases[i].kept)
            ck_assert_str_eq(reply.request_id, cases[i].value);
        else
            ck_assert_uint_eq(strlen(reply.request_id), 16);
        reply_free(&reply);
    }
}
END_TEST

START_TEST(made_up_ids_differ)
{
    struct reply a, b;

    client_call(client, INFO, "", 0, 5000, &a);
    client_call(client, INFO, "", 0, 5000, &b);
    ck_assert_uint_eq(strlen(a.request_id), 16);
    ck_assert_str_ne(a.request_id, b.request_id);
    reply_free(&a);
    reply_free(&b);
}
END_TEST

START_TEST(unknown_methods_are_named)
{
    static const char *const paths[] = {"/octet.v1.Octet/Tracee", "/octet.v2.Octet/Trace", "/"};
    struct reply reply;

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        client_call(client, paths[i], "", 0, 5000, &reply);
        ck_assert_int_eq(reply.status, 12);
        ck_assert_ptr_nonnull(strstr(reply.text, paths[i]));
        ck_assert_uint_gt(strlen(reply.request_id), 0);
        reply_free(&reply);
    }
}
END_TEST

START_TEST(malformed_requests_are_invalid)
{
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {{"\xff\xff", 2},
                 {"\x0a\x05"
                  "ab",
                  4},
                 {"\x0b", 1}};
    struct reply reply;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        client_call(client, "/octet.v1.Octet/Trace", cases[i].bytes, cases[i].length, 5000, &reply);
        ck_assert_msg(reply.status == 3, "case %zu: status %d: %s", i, reply.status, reply.text);
        ck_assert_uint_gt(strlen(reply.text), 0);
        reply_free(&reply);
    }
}
END_TEST

/* An unknown field of n bytes in all: well-formed, whatever its size. */
static uint8_t *padding(size_t n)
{
    uint8_t *bytes = calloc(1, n);
    size_t length = n - 6;

    bytes[0] = 0xfa; /* field 31, bytes */
    bytes[1] = 0x01;
    for (int i = 0; i < 4; i++, length >>= 7)
        bytes[2 + i] = (uint8_t)((length & 0x7f) | (i < 3 ? 0x80 : 0));
    return bytes;
}

START_TEST(requests_may_have_the_limit_and_no_byte_more)
{
    enum { LIMIT = 4 << 20 };
    uint8_t *bytes = padding(LIMIT), *larger = padding(LIMIT + 1);
    struct reply reply;

    client_call(client, INFO, bytes, LIMIT, 20000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    client_call(client, INFO, larger, LIMIT + 1, 20000, &reply);
    ck_assert_int_eq(reply.status, 8);
    ck_assert_ptr_nonnull(strstr(reply.text, "4194305"));
    ck_assert_ptr_nonnull(strstr(reply.text, "4194304"));
    ck_assert_ptr_nonnull(strstr(reply.text, "limits.config_request_bytes"));
    ck_assert_str_ne(reply.retry_ms, "");
    reply_free(&reply);
    free(larger);
    free(bytes);
}
END_TEST

START_TEST(a_much_too_large_request_is_stopped_on_the_way)
{
    enum { BYTES = 200 << 20 };
    uint8_t *bytes = padding(BYTES);
    long before = daemon_rss_kib(&daemon_);
    struct pending *pending = client_start(client, INFO, bytes, BYTES, 60000, NULL);
    struct reply reply;

    client_wait(pending, &reply);
    ck_assert_int_eq(reply.status, 8);
    ck_assert_ptr_nonnull(strstr(reply.text, "limits.config_request_bytes"));
    reply_free(&reply);
    pause_ms(2500); /* an idle daemon gives memory back */
    long after = daemon_rss_kib(&daemon_);
    ck_assert_msg(WITH_SANITIZER || after - before < 48 * 1024, "grew by %ld KiB", after - before);
    for (int i = 0; i < 30; i++) { /* the connection stays, also when the guard looks again */
        client_call(client, INFO, "", 0, 20000, &reply);
        ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
        reply_free(&reply);
        pause_ms(100);
    }
    free(bytes);
}
END_TEST

/* gRPC ends the whole connection then; others' stay. */
START_TEST(too_much_metadata_hurts_only_its_connection)
{
    static char value[100001];
    const char *metadata[] = {"x-large", value, NULL};
    struct client *other = connect_now(&daemon_);
    struct reply reply;

    memset(value, 'a', sizeof value - 1);
    client_wait(client_start(other, INFO, "", 0, 5000, metadata), &reply);
    ck_assert_int_eq(reply.status, 8);
    reply_free(&reply);
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    client_close(other);
}
END_TEST

/* Long enough that the loop's timer comes in between: it must not take a call that has just begun
 * for one whose request is late. */
START_TEST(thousands_of_calls_in_a_row_succeed)
{
    for (long long end = now_ms() + 2000; now_ms() < end;) {
        struct reply reply;
        client_call(client, INFO, "", 0, 20000, &reply);
        ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
        reply_free(&reply);
    }
}
END_TEST

/* Each allocation of a request fails once: the answer says so, and the daemon lives. */
START_TEST(every_allocation_may_fail)
{
    int refused = 0, status = 8;
    const char *const more[] = {"--config", config_file("drain:\n  delay_ms: 0\n"), NULL};

    for (int n = 1; status != 0; n++) {
        char number[16];
        struct daemon failing;
        struct reply reply;
        snprintf(number, sizeof number, "%d", n);
        setenv("OCTET_FAIL_ALLOC", number, 1);
        start_daemon(&failing, octetd_path, more);
        unsetenv("OCTET_FAIL_ALLOC");
        struct client *c = client_connect(failing.address);
        client_call(c, INFO, "", 0, 10000, &reply);
        status = reply.status;
        ck_assert_msg(status == 0 || status == 8, "allocation %d: status %d: %s", n, status,
                      reply.text);
        refused += status == 8;
        reply_free(&reply);
        client_close(c);
        stop_daemon(&failing);
        ck_assert_int_lt(n, 100);
    }
    ck_assert_int_gt(refused, 0);
}
END_TEST

TCase *calls_tests(void)
{
    TCase *tests = tcase_create("calls");

    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_add_test(tests, info_tells_what_the_server_is);
    tcase_add_test(tests, sane_request_ids_come_back_and_others_are_replaced);
    tcase_add_test(tests, made_up_ids_differ);
    tcase_add_test(tests, unknown_methods_are_named);
    tcase_add_test(tests, malformed_requests_are_invalid);
    tcase_add_test(tests, requests_may_have_the_limit_and_no_byte_more);
    tcase_add_test(tests, a_much_too_large_request_is_stopped_on_the_way);
    tcase_add_test(tests, too_much_metadata_hurts_only_its_connection);
    tcase_add_test(tests, thousands_of_calls_in_a_row_succeed);
    tcase_add_test(tests, every_allocation_may_fail);
    return tests;
}
