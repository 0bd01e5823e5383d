/* What the files of the server suite share: the programs under test and how they are started. */
#ifndef OCTET_TESTS_SERVER_SUITE_H
#define OCTET_TESTS_SERVER_SUITE_H

#include <check.h>

#include "client.h"
#include "daemon.h"

extern const char *octetd_path, *slow_path; /* the shipped daemon; the one with Sleep */
extern char log_path[256];                  /* where daemons of this run write their log */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif
#ifndef WITH_SANITIZER
#define WITH_SANITIZER 0
#endif

/* On port 0 unless the arguments say --listen; fails the test when it does not start. */
void start_daemon(struct daemon *daemon, const char *program, const char *const *more);
/* SIGTERM; the exit status must be 0: a sanitizer's find makes it another. */
void stop_daemon(struct daemon *daemon);
/* Writes a config file of this text; returns its path (static). */
const char *config_file(const char *text);
/* Does the log hold this text? */
bool log_has(const char *text);

/* A Sleep request; returns its length. */
size_t sleep_request(uint8_t out[64], int ms, long long arena_bytes, bool deaf);
long long sleep_answer(const struct reply *reply); /* its milliseconds, -1 = not OK */
/* A client whose connection stands, so that calls started one after the other arrive in time. */
struct client *connect_now(const struct daemon *daemon);
void pause_ms(int ms);
long long now_ms(void);

TCase *calls_tests(void);
TCase *queue_tests(void);
TCase *drain_tests(void);
TCase *hostile_tests(void);
TCase *options_tests(void);
TCase *parts_tests(void);
TCase *tensors_tests(void);

#endif
