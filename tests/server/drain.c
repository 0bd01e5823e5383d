/* Start and end: a drain lets calls finish, the grace period ends those that do not, a second
 * signal ends all, and two daemons do not share an address. Would show as a cancelled call, an exit
 * status other than 0, or a process that stays. */
#include "suite.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLEEP "/octet.v1.Octet/Sleep"
#define INFO "/octet.v1.Octet/GetServerInfo"

static struct pending *start_sleep(struct client *client, int ms, bool deaf)
{
    uint8_t bytes[64];
    size_t length = sleep_request(bytes, ms, 0, deaf);

    return client_start(client, SLEEP, bytes, length, 0, NULL);
}

START_TEST(calls_in_flight_finish_and_new_ones_are_refused)
{
    enum { CALLS = 10 };
    struct daemon d;
    struct pending *pending[CALLS];
    struct reply reply;
    const char *const more[] = {"--threads", "2", "--config",
                                config_file("drain:\n  delay_ms: 600\n"), NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    for (int i = 0; i < CALLS; i++) /* two run, eight wait */
        pending[i] = start_sleep(client, 300, false);
    pause_ms(WITH_SANITIZER ? 500 : 150); /* all have arrived */
    daemon_signal(&d, SIGTERM);
    pause_ms(100);
    /* During the delay the port is open: our own refusal, and health says why. */
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 14);
    ck_assert_str_eq(reply.text, "the server is shutting down");
    ck_assert_uint_gt(strlen(reply.request_id), 0);
    reply_free(&reply);
    client_call(client, "/grpc.health.v1.Health/Check", "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    ck_assert_int_eq(reply.bytes[1], 2); /* NOT_SERVING */
    reply_free(&reply);
    for (int i = 0; i < CALLS; i++) {
        client_wait(pending[i], &reply);
        ck_assert_msg(reply.status == 0, "call %d: status %d: %s", i, reply.status, reply.text);
        reply_free(&reply);
    }
    ck_assert_int_eq(daemon_wait(&d, 30), 0);
    client_call(client, INFO, "", 0, 2000, &reply);
    ck_assert_int_eq(reply.status, 14);
    reply_free(&reply);
    client_close(client);
}
END_TEST

START_TEST(the_grace_period_ends_calls_that_do_not)
{
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--config", config_file("drain:\n  delay_ms: 0\n  grace_ms: 300\n"),
                                NULL};

    start_daemon(&d, slow_path, more);
    struct client *client = connect_now(&d);
    struct pending *pending = start_sleep(client, 60000, false);
    pause_ms(200);
    long long start = now_ms();
    daemon_signal(&d, SIGINT);
    client_wait(pending, &reply);
    ck_assert_int_ne(reply.status, 0);
    reply_free(&reply);
    ck_assert_int_eq(daemon_wait(&d, 30), 0);
    ck_assert_int_lt(now_ms() - start, 10000);
    client_close(client);
}
END_TEST

START_TEST(a_second_signal_ends_it_at_once)
{
    struct daemon d;
    struct reply reply;

    start_daemon(&d, slow_path, NULL);
    struct client *client = connect_now(&d);
    struct pending *pending = start_sleep(client, 60000, true);
    pause_ms(200);
    daemon_signal(&d, SIGTERM);
    pause_ms(100);
    long long start = now_ms();
    daemon_signal(&d, SIGTERM);
    ck_assert_int_eq(daemon_wait(&d, 30), 128 + SIGTERM);
    ck_assert_int_lt(now_ms() - start, 5000);
    client_wait(pending, &reply);
    ck_assert_int_ne(reply.status, 0);
    reply_free(&reply);
    client_close(client);
}
END_TEST

/* A child that gets the signal before it is octetd must die of it, and not run Check's handler,
 * which would end the whole process group. */
static pid_t fork_octetd(void)
{
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &term, NULL);
        /* Only system calls: a thread of gRPC's may hold any lock at the moment of the fork. */
        int nothing = open("/dev/null", O_WRONLY),
            log = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (dup2(nothing, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
            _exit(126);
        execl(octetd_path, octetd_path, "--listen", "127.0.0.1:0", (char *)NULL);
        _exit(127);
    }
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    ck_assert_int_gt(pid, 0);
    return pid;
}

/* Is the process octetd, with a handler for SIGTERM installed? Before it is, Check's handler shows.
 */
static bool has_begun(pid_t pid)
{
    char path[64], line[PATH_MAX], wanted[PATH_MAX];
    bool caught = false;

    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t length = readlink(path, line, sizeof line - 1);
    if (length < 0 || !realpath(octetd_path, wanted))
        return false;
    line[length] = 0;
    if (strcmp(line, wanted) != 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "SigCgt:", 7) == 0)
            caught = strtoull(line + 7, NULL, 16) >> (SIGTERM - 1) & 1;
    fclose(file);
    return caught;
}

/* From the first moment of main on, a signal leads to a clean end. */
START_TEST(a_signal_during_the_start_is_not_lost)
{
    for (int ms = 0; ms < 40; ms += 3) {
        struct daemon d = {.pid = fork_octetd()};
        while (!has_begun(d.pid))
            pause_ms(1);
        pause_ms(ms);
        daemon_signal(&d, SIGTERM);
        int status = daemon_wait(&d, 30);
        ck_assert_msg(status == 0, "after %d ms: status %d", ms, status);
    }
}
END_TEST

START_TEST(an_idle_client_does_not_hold_the_end_up)
{
    struct daemon d;
    struct reply reply;

    start_daemon(&d, octetd_path, NULL);
    struct client *client = connect_now(&d);
    client_call(client, INFO, "", 0, 5000, &reply);
    reply_free(&reply);
    long long start = now_ms();
    stop_daemon(&d);
    ck_assert_int_lt(now_ms() - start, 5000);
    client_close(client);
}
END_TEST

START_TEST(a_second_daemon_is_refused_the_address)
{
    struct daemon first, second;
    char path[280];
    int status = 0;

    start_daemon(&first, octetd_path, NULL);
    const char *const same[] = {"--listen", first.address, NULL};
    ck_assert(!daemon_start(&second, octetd_path, same, log_path, &status));
    ck_assert_int_eq(status, 1);
    ck_assert(log_has("Address already in use"));
    stop_daemon(&first);

    snprintf(path, sizeof path, "unix:/tmp/octetd-test-%d.sock", (int)getpid());
    const char *const unix_socket[] = {"--listen", path, NULL};
    ck_assert(daemon_start(&first, octetd_path, unix_socket, log_path, &status));
    ck_assert_str_eq(first.address, path);
    ck_assert(!daemon_start(&second, octetd_path, unix_socket, log_path, &status));
    ck_assert_int_eq(status, 1);
    struct client *client = client_connect(path); /* the first one still has it */
    struct reply reply;
    client_call(client, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    reply_free(&reply);
    client_close(client);
    stop_daemon(&first);
}
END_TEST

START_TEST(after_kill_9_the_same_address_serves_again)
{
    struct daemon d;
    struct reply reply;
    char address[128];
    int status = 0;

    start_daemon(&d, octetd_path, NULL);
    memcpy(address, d.address, sizeof address);
    struct client *client = client_connect(address);
    client_call(client, INFO, "", 0, 5000, &reply);
    reply_free(&reply);
    daemon_signal(&d, SIGKILL);
    ck_assert_int_eq(daemon_wait(&d, 10), 1000 + SIGKILL);
    const char *const same[] = {"--listen", address, NULL};
    ck_assert(daemon_start(&d, octetd_path, same, log_path, &status));
    struct client *fresh = client_connect(address);
    client_call(fresh, INFO, "", 0, 5000, &reply);
    ck_assert_int_eq(reply.status, 0);
    reply_free(&reply);
    client_close(fresh);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

TCase *drain_tests(void)
{
    TCase *tests = tcase_create("drain");

    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, calls_in_flight_finish_and_new_ones_are_refused);
    tcase_add_test(tests, the_grace_period_ends_calls_that_do_not);
    tcase_add_test(tests, a_second_signal_ends_it_at_once);
    tcase_add_test(tests, a_signal_during_the_start_is_not_lost);
    tcase_add_test(tests, an_idle_client_does_not_hold_the_end_up);
    tcase_add_test(tests, a_second_daemon_is_refused_the_address);
    tcase_add_test(tests, after_kill_9_the_same_address_serves_again);
    return tests;
}
