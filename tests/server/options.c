/* Settings: what the command line and the config file accept, and what they say to a mistake. Would
 * show as a daemon that starts with a setting its user did not mean. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TLS_DIR OCTET_SOURCE_DIR "/tests/server/tls"

static char output[65536];

/* Runs octetd with the words; its output, both streams, is in `output`. Returns the exit status. */
static int run(const char *words)
{
    char command[1024];
    FILE *pipe;

    snprintf(command, sizeof command, "%s %s 2>&1", octetd_path, words);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int check_file(const char *text)
{
    char words[400];

    snprintf(words, sizeof words, "--check-config --config %s", config_file(text));
    return run(words);
}

#define EXPECT(status_, call, text)                                                                \
    do {                                                                                           \
        int status_got = (call);                                                                   \
        ck_assert_msg(status_got == (status_), "%s: status %d: %s", #call, status_got, output);    \
        ck_assert_msg(strstr(output, (text)) != NULL, "%s: no '%s' in: %s", #call, (text),         \
                      output);                                                                     \
    } while (0)

START_TEST(mistakes_are_named)
{
    EXPECT(2, run("--lisen 127.0.0.1:1"), "'--lisen'; the nearest is '--listen'");
    EXPECT(2, run("--threads"), "--threads needs a value");
    EXPECT(2, run("--threads=many"), "'many' is not a whole number from 0 to 1024");
    EXPECT(2, run("--threads 1025"), "0 to 1024");
    EXPECT(2, run("--threads -1"), "0 to 1024");
    EXPECT(2, run("serve"), "'serve'");
    EXPECT(2, run("--log-level loud"), "'loud'");
    EXPECT(2, run("--config /does/not/exist.yml"), "/does/not/exist.yml");
    EXPECT(2, run("--version=1"), "--version");
}
END_TEST

START_TEST(addresses_are_checked)
{
    static const char *const bad[] = {"localhost", "127.0.0.1:65536", "127.0.0.1:",   ":50051",
                                      "::1:50051", "127.0.0.1:5x",    "unix:relative"};
    static const char *const good[] = {"localhost:0", "127.0.0.1:65535", "[::1]:50051",
                                       "unix:/tmp/x.sock", "127.9.9.9:1"};
    char words[200];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(words, sizeof words, "--check-config --listen %s", bad[i]);
        ck_assert_msg(run(words) == 2, "%s was accepted", bad[i]);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(words, sizeof words, "--check-config --listen %s", good[i]);
        ck_assert_msg(run(words) == 0, "%s: %s", good[i], output);
    }
}
END_TEST

START_TEST(an_exposed_address_needs_protection)
{
    EXPECT(2, run("--check-config --listen 0.0.0.0:50051"), "--insecure");
    EXPECT(2, run("--check-config --listen [::]:50051"), "--insecure");
    EXPECT(2, run("--check-config --listen 10.1.2.3:50051"), "--insecure");
    EXPECT(2, run("--check-config --listen host.example:50051"), "--insecure");
    EXPECT(0, run("--check-config --listen 0.0.0.0:50051 --insecure"), "valid");
    EXPECT(2, check_file("listen: 0.0.0.0:1\ntls: {certificate: /a, key: /b}\n"), "--insecure");
    EXPECT(2, check_file("listen: 0.0.0.0:1\ntls: {certificate: /a, key: /b, client_ca: /c}\n"),
           "'/a' cannot be read");
    EXPECT(
        2,
        check_file("listen: 0.0.0.0:1\ntls: {certificate: /a, key: /b}\nauth: {token_file: /t}\n"),
        "'/a' cannot be read");
    EXPECT(0,
           check_file("listen: 0.0.0.0:1\ntls:\n  certificate: " TLS_DIR
                      "/server.pem\n  key: " TLS_DIR "/server.key\n  client_ca: " TLS_DIR
                      "/ca.pem\n"),
           "valid");
    EXPECT(2, check_file("tls: {certificate: /etc/passwd, key: /etc/passwd}\n"), "tls.certificate");
    EXPECT(2, check_file("auth: {token_file: /dev/null}\n"), "auth.token_file");
    EXPECT(2, check_file("listen: 0.0.0.0:1\nauth: {token_file: /t}\n"), "--insecure");
    EXPECT(2, check_file("tls: {certificate: /a}\n"), "tls.key");
    EXPECT(2, check_file("tls: {client_ca: /a}\n"), "tls.certificate");
}
END_TEST

START_TEST(files_are_read_strictly)
{
    EXPECT(0, check_file(""), "valid");
    EXPECT(0, check_file("# nothing\n"), "valid");
    EXPECT(0, check_file("threads: 3\nlimits:\n  queue_length: 7\n  max_message_bytes: 64MiB\n"),
           "valid");
    EXPECT(2, check_file("threads: 3\nlimits:\n  queue_lenght: 7\n"),
           "line 3: unknown key 'limits.queue_lenght'; the nearest is 'limits.queue_length'");
    EXPECT(2, check_file("threads: 3\nthreads: 4\n"), "line 2: the key stands here for the second");
    EXPECT(2, check_file("limits: {queue_length: 0}\n"), "limits.queue_length");
    EXPECT(2, check_file("limits: {queue_length: 12KiB}\n"), "12KiB");
    EXPECT(2, check_file("limits: [1]\n"), "not a list");
    EXPECT(2, check_file("limits: {a: {b: 1}}\n"), "line 1");
    EXPECT(2, check_file("threads: &a 3\nlog_level: *a\n"), "line 2");
    EXPECT(2, check_file("- 1\n"), "expected keys and values");
    EXPECT(2, check_file("threads: 1\n---\nthreads: 2\n"), "second document");
    EXPECT(2, check_file("threads: '3\n"), "not YAML");
    EXPECT(2, check_file("insecure: yes\n"), "true or false");
    EXPECT(2, check_file("limits: {config_request_bytes: 2GiB}\n"), "limits.config_request_bytes");
    EXPECT(2, check_file("limits: {config_request_bytes: 2MiB, max_message_bytes: 1MiB}\n"),
           "limits.max_message_bytes");
    EXPECT(2, check_file("limits: {max_message_bytes: 99999999999999999999}\n"), "whole number");
    EXPECT(2, check_file("limits: {request_memory_bytes: 1KiB}\n"), "limits.request_memory_bytes");
    EXPECT(2, check_file("lane_threads: 1025\n"), "lane_threads");
}
END_TEST

START_TEST(the_command_line_overrides_the_file)
{
    char words[400];

    snprintf(words, sizeof words, "--threads 5 --config %s --print-config",
             config_file("threads: 3\nlimits: {queue_length: 7}\n"));
    EXPECT(0, run(words), "\nthreads: 5\n");
    ck_assert_ptr_nonnull(strstr(output, "queue_length: 7\n"));
}
END_TEST

/* configs/octetd.yaml is --print-config's output, so it names every setting with its default. */
START_TEST(the_shipped_config_is_the_default_one)
{
    static char shipped[65536];
    FILE *file = fopen(OCTET_SOURCE_DIR "/configs/octetd.yaml", "re");

    ck_assert_ptr_nonnull(file);
    size_t length = fread(shipped, 1, sizeof shipped - 1, file);
    fclose(file);
    shipped[length] = 0;
    ck_assert_int_eq(run("--print-config"), 0);
    ck_assert_str_eq(output, shipped);
    EXPECT(0, run("--check-config --config " OCTET_SOURCE_DIR "/configs/octetd.yaml"), "valid");
}
END_TEST

START_TEST(help_and_version)
{
    EXPECT(0, run("--help"), "--check-config");
    ck_assert_ptr_nonnull(strstr(output, "limits.queue_length"));
    EXPECT(0, run("--version"), "octetd 0.1.0 (");
}
END_TEST

START_TEST(health_asks_a_running_daemon)
{
    struct daemon d;
    char words[200];

    start_daemon(&d, octetd_path, NULL);
    snprintf(words, sizeof words, "--health --listen %s", d.address);
    EXPECT(0, run(words), "SERVING");
    stop_daemon(&d);
    EXPECT(1, run(words), "UNAVAILABLE");
}
END_TEST

START_TEST(the_port_file_holds_the_bound_port)
{
    struct daemon d;
    char path[300], line[32] = "";
    const char *more[] = {"--port-file", path, NULL};

    snprintf(path, sizeof path, "%s.port", log_path);
    start_daemon(&d, octetd_path, more);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    fclose(file);
    ck_assert_int_eq(strtol(line, NULL, 10), strtol(strrchr(d.address, ':') + 1, NULL, 10));
    remove(path);
    stop_daemon(&d);
}
END_TEST

/* A start without the file would leave its reader waiting; a device must not be replaced by it. */
START_TEST(a_port_file_that_cannot_be_written_ends_the_start)
{
    struct stat device;

    EXPECT(1, run("--listen 127.0.0.1:0 --port-file /dev/full"), "is not a regular file");
    ck_assert_int_eq(stat("/dev/full", &device), 0);
    ck_assert(S_ISCHR(device.st_mode));
    EXPECT(1, run("--listen 127.0.0.1:0 --port-file /nowhere/port"), "cannot be written");
}
END_TEST

TCase *options_tests(void)
{
    TCase *tests = tcase_create("options");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, addresses_are_checked);
    tcase_add_test(tests, an_exposed_address_needs_protection);
    tcase_add_test(tests, files_are_read_strictly);
    tcase_add_test(tests, the_command_line_overrides_the_file);
    tcase_add_test(tests, the_shipped_config_is_the_default_one);
    tcase_add_test(tests, help_and_version);
    tcase_add_test(tests, health_asks_a_running_daemon);
    tcase_add_test(tests, the_port_file_holds_the_bound_port);
    tcase_add_test(tests, a_port_file_that_cannot_be_written_ends_the_start);
    return tests;
}
