/* Order and limits: what waits, who is served next, what a full queue answers, and that a call
 * which nobody waits for any longer stops. Would show as a refusal without a hint, as one client
 * starving another, or as lanes that stay busy. */
#include "suite.h"

#include <stdlib.h>
#include <string.h>

#define SLEEP "/octet.v1.Octet/Sleep"
#define INFO "/octet.v1.Octet/GetServerInfo"

static struct pending *start_sleep(struct client *client, int ms, int deadline_ms)
{
    uint8_t bytes[64];
    size_t length = sleep_request(bytes, ms, 0, false);

    return client_start(client, SLEEP, bytes, length, deadline_ms, NULL);
}

START_TEST(a_full_queue_refuses_with_a_hint)
{
    enum { QUEUE = 4, CALLS = 20 };
    struct daemon d;
    struct pending *pending[CALLS];
    int ok = 0, refused = 0;
    const char *const more[] = {"--threads", "1", "--config",
                                config_file("limits:\n  queue_length: 4\n"), NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    for (int i = 0; i < CALLS; i++)
        pending[i] = start_sleep(client, 300, 0);
    for (int i = 0; i < CALLS; i++) {
        struct reply reply;
        client_wait(pending[i], &reply);
        if (reply.status == 0) {
            ok++;
        } else {
            ck_assert_int_eq(reply.status, 8);
            ck_assert_ptr_nonnull(strstr(reply.text, "limits.queue_length"));
            ck_assert_int_gt(strtol(reply.retry_ms, NULL, 10), 0);
            refused++;
        }
        reply_free(&reply);
    }
    /* One on the lane, four that wait; one more if the lane was given before the others came. */
    ck_assert_msg(ok >= QUEUE && ok <= QUEUE + 2, "%d calls were served", ok);
    ck_assert_int_eq(ok + refused, CALLS);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(one_call_of_another_client_does_not_wait_for_a_crowd)
{
    enum { CROWD = 20 };
    struct daemon d;
    struct pending *crowd[CROWD];
    struct reply reply;
    const char *const more[] = {"--threads", "1", NULL};

    start_daemon(&d, slow_path, more);
    struct client *greedy = connect_now(&d), *modest = connect_now(&d);
    for (int i = 0; i < CROWD; i++)
        crowd[i] = start_sleep(greedy, 100, 0);
    pause_ms(150);
    long long start = now_ms();
    client_wait(start_sleep(modest, 10, 0), &reply);
    long long took = now_ms() - start;
    ck_assert_int_eq(reply.status, 0);
    reply_free(&reply);
    /* At most the call that runs and one of the greedy client's: 200 ms; the whole crowd: 2000. */
    ck_assert_msg(took < 1000, "waited %lld ms", took);
    for (int i = 0; i < CROWD; i++) {
        client_wait(crowd[i], &reply);
        ck_assert_int_eq(reply.status, 0);
        reply_free(&reply);
    }
    client_close(greedy);
    client_close(modest);
    stop_daemon(&d);
}
END_TEST

START_TEST(health_answers_while_every_lane_is_busy)
{
    struct daemon d;
    struct pending *pending[3];
    struct reply reply;
    const char *const more[] = {"--threads", "1", "--config",
                                config_file("limits:\n  queue_length: 2\n"), NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    for (int i = 0; i < 3; i++) {
        pending[i] = start_sleep(client, 700, 0);
        pause_ms(50);
    }
    long long start = now_ms();
    client_call(client, "/grpc.health.v1.Health/Check", "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    ck_assert_uint_eq(reply.length, 2);
    ck_assert_int_eq(reply.bytes[1], 1);
    ck_assert_int_lt(now_ms() - start, 500);
    reply_free(&reply);
    for (int i = 0; i < 3; i++) {
        client_wait(pending[i], &reply);
        ck_assert_int_eq(reply.status, 0);
        reply_free(&reply);
    }
    client_close(client);
    stop_daemon(&d);
}
END_TEST

/* A lane that went on for a minute would make the call after it wait. */
static void expect_lane_is_free(struct client *client)
{
    struct reply reply;
    long long start = now_ms();

    client_call(client, INFO, "", 0, 50000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    ck_assert_int_lt(now_ms() - start, WITH_SANITIZER ? 40000 : 5000);
    reply_free(&reply);
}

START_TEST(deadline_cancel_and_death_stop_the_work)
{
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--threads", "1", NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d), *dying = connect_now(&d);
    client_wait(start_sleep(client, 60000, 200), &reply);
    ck_assert_int_eq(reply.status, 4);
    reply_free(&reply);
    expect_lane_is_free(client);

    struct pending *pending = start_sleep(client, 60000, 0);
    pause_ms(100);
    client_cancel(pending);
    client_wait(pending, &reply);
    ck_assert_int_eq(reply.status, 1);
    reply_free(&reply);
    expect_lane_is_free(client);

    pending = start_sleep(dying, 60000, 0);
    pause_ms(100);
    client_cancel(pending);
    client_wait(pending, &reply);
    reply_free(&reply);
    client_close(dying); /* the connection goes with the call */
    expect_lane_is_free(client);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_call_whose_deadline_passes_in_the_queue_gets_no_lane)
{
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--threads", "1", "--log-level", "debug", NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    struct pending *first = start_sleep(client, 600, 0);
    pause_ms(100);
    struct pending *second = start_sleep(client, 60000, 150);
    client_wait(second, &reply);
    ck_assert_int_eq(reply.status, 4);
    reply_free(&reply);
    client_wait(first, &reply);
    ck_assert_int_ge(sleep_answer(&reply), 600);
    reply_free(&reply);
    expect_lane_is_free(client);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_request_beyond_its_memory_is_refused)
{
    struct daemon d;
    struct reply reply;
    uint8_t bytes[64];

    start_daemon(&d, slow_path, NULL);
    struct client *client = connect_now(&d);
    size_t length = sleep_request(bytes, 0, 300LL << 20, false);
    client_call(client, SLEEP, bytes, length, 5000, &reply);
    ck_assert_int_eq(reply.status, 8);
    ck_assert_str_ne(reply.retry_ms, "");
    reply_free(&reply);
    length = sleep_request(bytes, 0, 200LL << 20, false);
    client_call(client, SLEEP, bytes, length, 5000, &reply);
    ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
    reply_free(&reply);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

/* Calls with deadlines of 1 to 20 ms; the same ones each time. */
enum { STORM = WITH_SANITIZER ? 500 : 5000 };

static void storm(struct client *client, unsigned *random, int tally[17])
{
    enum { AT_A_TIME = 50 };

    for (int i = 0; i < STORM; i += AT_A_TIME) {
        struct pending *pending[AT_A_TIME];
        for (int k = 0; k < AT_A_TIME; k++) {
            *random = *random * 1664525u + 1013904223u;
            pending[k] =
                start_sleep(client, (int)(*random >> 20) % 15, 1 + (int)(*random >> 8) % 20);
        }
        for (int k = 0; k < AT_A_TIME; k++) {
            struct reply reply;
            client_wait(pending[k], &reply);
            tally[reply.status]++;
            reply_free(&reply);
        }
    }
}

START_TEST(storms_of_cancelled_calls_leave_nothing_behind)
{
    struct daemon d;
    int tally[17] = {0};
    unsigned random = 1;
    const char *const more[] = {"--threads", "2", NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    storm(client, &random, tally);
    long before = daemon_rss_kib(&d);
    storm(client, &random, tally);
    long growth = daemon_rss_kib(&d) - before;
    expect_lane_is_free(client);
    ck_assert_int_gt(tally[4], 50); /* many deadlines passed */
    ck_assert_int_eq(tally[0] + tally[4] + tally[8] + tally[1], 2 * STORM);
    ck_assert_msg(WITH_SANITIZER || growth < 5 * 1024, "grew by %ld KiB", growth);
    client_close(client);
    stop_daemon(&d);
    ck_assert(log_has("msg=\"stopped\" calls="));
}
END_TEST

START_TEST(thirty_two_clients_at_once)
{
    enum { CLIENTS = 32, ROUNDS = 20 };
    struct daemon d;
    struct client *clients[CLIENTS];
    struct pending *pending[CLIENTS];

    start_daemon(&d, slow_path, NULL);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_now(&d);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++)
            pending[i] = i % 4 ? client_start(clients[i], INFO, "", 0, 20000, NULL)
                               : start_sleep(clients[i], 2, 20000);
        for (int i = 0; i < CLIENTS; i++) {
            struct reply reply;
            client_wait(pending[i], &reply);
            ck_assert_msg(reply.status == 0, "client %d: status %d: %s", i, reply.status,
                          reply.text);
            reply_free(&reply);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        client_close(clients[i]);
    stop_daemon(&d);
}
END_TEST

TCase *queue_tests(void)
{
    TCase *tests = tcase_create("queue");

    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, a_full_queue_refuses_with_a_hint);
    tcase_add_test(tests, one_call_of_another_client_does_not_wait_for_a_crowd);
    tcase_add_test(tests, health_answers_while_every_lane_is_busy);
    tcase_add_test(tests, deadline_cancel_and_death_stop_the_work);
    tcase_add_test(tests, a_call_whose_deadline_passes_in_the_queue_gets_no_lane);
    tcase_add_test(tests, a_request_beyond_its_memory_is_refused);
    tcase_add_test(tests, storms_of_cancelled_calls_leave_nothing_behind);
    tcase_add_test(tests, thirty_two_clients_at_once);
    return tests;
}
