/* The real octetd over the wire. Each file tests one thing that can go wrong: calls.c answers,
 * queue.c order and limits, drain.c start and end, hostile.c clients that mean harm or die,
 * options.c settings, parts.c pieces that need no daemon, tensors.c large messages and what is
 * computed.
 *
 *     test_server OCTETD SLOW */
#include "suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "octet/v1/octet.pb-c.h"

const char *octetd_path, *slow_path;
char log_path[256];

void start_daemon(struct daemon *daemon, const char *program, const char *const *more)
{
    const char *arguments[24] = {"--listen", "127.0.0.1:0"};
    size_t count = 2;
    int status = 0;

    for (; more && *more; more++)
        arguments[count++] = *more;
    ck_assert_msg(daemon_start(daemon, program, arguments, log_path, &status),
                  "%s did not start: status %d; see %s", program, status, log_path);
}

void stop_daemon(struct daemon *daemon)
{
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait(daemon, 60), 0);
}

const char *config_file(const char *text)
{
    static char path[300];

    snprintf(path, sizeof path, "%s.yml", log_path);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    fclose(file);
    return path;
}

bool log_has(const char *text)
{
    char line[8192];
    bool found = false;
    FILE *file = fopen(log_path, "re");

    ck_assert_ptr_nonnull(file);
    while (!found && fgets(line, sizeof line, file))
        found = strstr(line, text) != NULL;
    fclose(file);
    return found;
}

size_t sleep_request(uint8_t out[64], int ms, long long arena_bytes, bool deaf)
{
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;

    request.batch_size = ms;
    request.sequence_length = arena_bytes;
    request.strict = deaf;
    return octet__v1__trace_request__pack(&request, out);
}

long long sleep_answer(const struct reply *reply)
{
    long long ms = -1;

    if (reply->status != 0)
        return -1;
    Octet__V1__TraceResponse *response =
        octet__v1__trace_response__unpack(NULL, reply->length, reply->bytes);
    if (response)
        ms = response->parameters;
    octet__v1__trace_response__free_unpacked(response, NULL);
    return ms;
}

struct client *connect_now(const struct daemon *daemon)
{
    /* Now and then gRPC 1.51 takes a connection that is on its way for failed: it looks at errno
     * after other calls, which sanitizers change (tcp_client_posix.cc). */
    for (int attempt = 0;; attempt++) {
        struct client *client = client_connect(daemon->address);
        struct reply reply;
        client_call(client, "/grpc.health.v1.Health/Check", "", 0, 20000, &reply);
        int status = reply.status;
        reply_free(&reply);
        if (status == 0)
            return client;
        ck_assert_msg(status == 14 && attempt < 2, "status %d", status);
        client_close(client);
    }
}

void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

long long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: test_server OCTETD SLOW\n");
        return 2;
    }
    octetd_path = argv[1];
    slow_path = argv[2];
    snprintf(log_path, sizeof log_path, "server-%d.log", (int)getpid());
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("server");
    suite_add_tcase(suite, parts_tests());
    suite_add_tcase(suite, options_tests());
    suite_add_tcase(suite, calls_tests());
    suite_add_tcase(suite, queue_tests());
    suite_add_tcase(suite, drain_tests());
    suite_add_tcase(suite, hostile_tests());
    suite_add_tcase(suite, tensors_tests());
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* gRPC does not live on in a child */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (failed == 0) {
        char config[300];
        snprintf(config, sizeof config, "%s.yml", log_path);
        unlink(config);
        unlink(log_path);
    }
    return failed != 0;
}
