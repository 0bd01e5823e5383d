/* Pieces of the server that need no daemon: names of peers, tokens, the index of descriptors. */
#include "suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "credentials.h"
#include "crews.h"
#include "guard.h"
#include "log.h"
#include "services/reflection.h"

START_TEST(peers_are_told_apart)
{
    struct peer_key a = peer_key_parse("ipv4:127.0.0.1:48524");
    struct peer_key same = peer_key_parse("ipv6:%5B::ffff:127.0.0.1%5D:48524");
    struct peer_key port = peer_key_parse("ipv4:127.0.0.1:48525");
    struct peer_key v6 = peer_key_parse("ipv6:%5Bfe80::1%25eth0%5D:48524");
    struct peer_key bare = peer_key_parse("ipv6:[fe80::1]:48524");
    struct peer_key none = {.port = 0};
    struct peer_key unix_socket = peer_key_parse("unix:/tmp/a.sock");

    ck_assert_int_eq(a.port, 48524);
    ck_assert(peer_key_equal(&a, &same));
    ck_assert(!peer_key_equal(&a, &port));
    ck_assert(!peer_key_equal(&a, &v6));
    ck_assert(peer_key_equal(&v6, &bare));
    ck_assert(peer_key_equal(&unix_socket, &none));
}
END_TEST

/* Threads that compute: never more than lanes, or one crew, when a crew is lent. */
START_TEST(a_crew_is_lent_where_lanes_leave_room)
{
    struct crews crews;
    struct octet_error err;

    ck_assert_int_eq(crews_start(&crews, "", 4, 2, 3, &err), OCTET_OK); /* two crews, three lanes */
    ck_assert_uint_eq(crews.idle_count, 2);
    octet_workers *first = crews_begin(&crews, true);
    ck_assert_ptr_nonnull(first);
    ck_assert_int_eq(octet_workers_threads(first), 2);
    ck_assert_ptr_null(crews_begin(&crews, true)); /* 2 + 2 are more than 3 */
    ck_assert_ptr_null(crews_begin(&crews, false));
    ck_assert_int_eq(crews.busy, 4); /* it began before the others did */
    crews_end(&crews, first);
    ck_assert_ptr_null(crews_begin(&crews, true)); /* two lanes are busy */
    crews_end(&crews, NULL);
    crews_end(&crews, NULL);
    octet_workers *second = crews_begin(&crews, true); /* 1 + 2 */
    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(crews.busy, 3);
    crews_end(&crews, second);
    crews_end(&crews, NULL);
    ck_assert_int_eq(crews.busy, 0);
    crews_stop(&crews);
}
END_TEST

static enum octet_status tokens_from(const char *text, struct tokens **tokens,
                                     struct octet_error *err)
{
    static struct config config;

    snprintf(config.auth.token_file, sizeof config.auth.token_file, "%s", config_file(text));
    return tokens_read(&config, tokens, err);
}

static bool accepts(const struct tokens *tokens, const char *header)
{
    return tokens_accept(tokens, header, strlen(header));
}

START_TEST(tokens_are_accepted_whole)
{
    struct tokens *tokens;
    struct octet_error error;

    ck_assert_int_eq(
        tokens_from("# ours\n0123456789abcdef\r\n\nABCDEFGHIJKLMNOPQRST\n", &tokens, &error),
        OCTET_OK);
    ck_assert(accepts(tokens, "Bearer 0123456789abcdef"));
    ck_assert(accepts(tokens, "bearer ABCDEFGHIJKLMNOPQRST"));
    ck_assert(!accepts(tokens, "Bearer 0123456789abcde"));
    ck_assert(!accepts(tokens, "Bearer 0123456789abcdef0"));
    ck_assert(!accepts(tokens, "Bearer 0123456789abcdeF"));
    ck_assert(!accepts(tokens, "Bearer "));
    ck_assert(!accepts(tokens, "0123456789abcdef"));
    ck_assert(!accepts(tokens, ""));
    ck_assert(!accepts(tokens, "Bearer # ours"));
    /* A token with zeros behind it is not the token. */
    ck_assert(!tokens_accept(tokens, "Bearer 0123456789abcdef\0\0", 25));
    tokens_free(tokens);
}
END_TEST

START_TEST(bad_token_files_are_refused)
{
    static const char *const bad[] = {"", "# none\n", "short\n", "has a blank inside it\n"};
    struct tokens *tokens;
    struct octet_error error;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(tokens_from(bad[i], &tokens, &error), OCTET_INVALID_ARGUMENT);
        ck_assert_ptr_null(tokens);
        ck_assert_str_eq(error.field, "auth.token_file");
    }
}
END_TEST

START_TEST(symbols_find_their_file)
{
    static const struct {
        const char *symbol, *file;
    } cases[] = {
        {"octet.v1.Octet", "octet/v1/octet.proto"},
        {"octet.v1.Octet.Trace", "octet/v1/octet.proto"},
        {".octet.v1.TraceRequest", "octet/v1/octet.proto"},
        {"octet.v1.TraceRequest.against", "octet/v1/octet.proto"},
        {"octet.v1.ModelConfig.OverridesEntry", "octet/v1/octet.proto"},
        {"octet.v1.DataType", "octet/v1/octet.proto"},
        {"octet.v1.DATA_TYPE_F8_E4M3FN", "octet/v1/octet.proto"},
        {"grpc.health.v1.Health.Watch", "grpc/health/v1/health.proto"},
        {"grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"},
        {"grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto"},
        {"grpc.reflection.v1.ServerReflectionRequest.list_services",
         "grpc/reflection/v1/reflection.proto"},
        {"grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto"},
    };
    struct reflection *r;
    struct octet_error error;

    ck_assert_int_eq(reflection_create(&r, &error), OCTET_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int index = reflection_file_with(r, cases[i].symbol);
        ck_assert_msg(index >= 0, "%s is not known", cases[i].symbol);
        const struct reflection_file *file = reflection_file(r, index);
        ck_assert_uint_eq(file->name_length, strlen(cases[i].file));
        ck_assert_mem_eq(file->name, cases[i].file, file->name_length);
        ck_assert_int_eq(reflection_file_named(r, cases[i].file), index);
    }
    ck_assert_int_eq(reflection_file_with(r, "octet.v1"), -1);
    ck_assert_int_eq(reflection_file_with(r, "octet.v1.Octet.Nothing"), -1);
    ck_assert_int_eq(reflection_file_with(r, ""), -1);
    ck_assert_int_eq(reflection_file_named(r, "octet.proto"), -1);
    ck_assert(reflection_is_message(r, "octet.v1.Trace"));
    ck_assert(!reflection_is_message(r, "octet.v1.Octet"));
    reflection_free(r);
}
END_TEST

/* A collector of logs that has stopped reading. */
START_TEST(a_stuck_reader_of_the_log_costs_lines_only)
{
    static char chunk[65536];
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETPIPE_SZ, (int)sizeof chunk), sizeof chunk);
    ck_assert_int_eq(write(ends[1], chunk, sizeof chunk), sizeof chunk);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0); /* whoever blocks now, blocks for ever */
    int before = dup(STDERR_FILENO);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    for (int i = 0; i < 7; i++)
        log_event(LOG_LEVEL_ERROR, "held back");
    ck_assert_int_eq(read(ends[0], chunk, sizeof chunk), sizeof chunk);
    log_event(LOG_LEVEL_ERROR, "through");
    ck_assert_int_eq(dup2(before, STDERR_FILENO), STDERR_FILENO);
    ssize_t length = read(ends[0], chunk, sizeof chunk - 1);
    ck_assert_int_gt(length, 0);
    chunk[length] = '\0';
    ck_assert_ptr_nonnull(strstr(chunk, "msg=\"log lines lost\" count=7\n"));
    ck_assert_ptr_nonnull(strstr(chunk, "msg=\"through\"\n"));
    ck_assert_ptr_null(strstr(chunk, "held back"));
}
END_TEST

TCase *parts_tests(void)
{
    TCase *tests = tcase_create("parts");

    tcase_add_test(tests, peers_are_told_apart);
    tcase_add_test(tests, a_crew_is_lent_where_lanes_leave_room);
    tcase_add_test(tests, tokens_are_accepted_whole);
    tcase_add_test(tests, bad_token_files_are_refused);
    tcase_add_test(tests, a_stuck_reader_of_the_log_costs_lines_only);
    tcase_add_test(tests, symbols_find_their_file);
    return tests;
}
