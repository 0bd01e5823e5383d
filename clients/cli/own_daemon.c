/* See own_daemon.h. */
#include "own_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Beside this program, or where the build puts it. NULL: not there. */
static const char *find_program(octet_arena *arena)
{
    static const char *const places[] = {"octetd", "../../server/octetd"};
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    if (length <= 0)
        return NULL;
    program[length] = '\0';
    *(strrchr(program, '/') + 1) = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *path = octet_arena_format(arena, "%s%s", program, places[i]);
        if (path && access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* In the child; nothing of the parent's is touched but descriptors. */
_Noreturn static void become(const char *program, char *const *arguments, const char *log,
                             pid_t parent)
{
    int null = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(out, 2) < 0)
        _exit(127);
    execv(program, arguments);
    _exit(127);
}

/* The first line of a file that is not empty: the cause; "" when there is none. */
static void first_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    char line[512];

    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0])
            snprintf(out, size, "%.*s", (int)size - 1, line);
    }
    if (file)
        fclose(file);
}

static bool read_port(const char *path, struct own_daemon *daemon)
{
    FILE *file = fopen(path, "r");
    int port = 0;
    bool good = file && fscanf(file, "%d", &port) == 1 && port > 0;

    if (file)
        fclose(file);
    if (good)
        snprintf(daemon->address, sizeof daemon->address, "127.0.0.1:%d", port);
    return good;
}

static enum octet_status wait_for_port(octet_arena *arena, const struct octet_cancel *cancel,
                                       struct own_daemon *daemon, struct octet_error *err)
{
    static const struct timespec pause = {.tv_nsec = 10000000};
    const char *port = octet_arena_format(arena, "%s/port", daemon->folder);
    const char *log = octet_arena_format(arena, "%s/log", daemon->folder);
    char line[400];

    if (!port || !log)
        return octet_arena_exhausted(arena, err);
    while (!read_port(port, daemon)) {
        if (waitpid(daemon->process, NULL, WNOHANG) != 0) {
            daemon->process = 0;
            first_line(log, line, sizeof line);
            return octet_fail(err, OCTET_UNAVAILABLE, NULL, "octetd did not start: %s",
                              line[0] ? line : "it said nothing");
        }
        enum octet_status status = octet_cancel_check(cancel, err);
        if (status != OCTET_OK)
            return status;
        nanosleep(&pause, NULL);
    }
    return OCTET_OK;
}

static enum octet_status make_folders(octet_arena *arena, const char *data_dir,
                                      struct own_daemon *out, struct octet_error *err)
{
    const char *temporary = getenv("TMPDIR");

    if (mkdir(data_dir, 0777) != 0 && errno != EEXIST)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --data-dir '%s': %s", data_dir,
                          strerror(errno));
    out->folder = octet_arena_format(arena, "%s/octet-XXXXXX", temporary ? temporary : "/tmp");
    if (!out->folder)
        return octet_arena_exhausted(arena, err);
    if (!mkdtemp(out->folder)) {
        out->folder = NULL;
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "no temporary folder can be made: %s",
                          strerror(errno));
    }
    return OCTET_OK;
}

static enum octet_status launch(octet_arena *arena, const char *program, const char *data_dir,
                                int64_t threads, const char *backend, struct own_daemon *out,
                                struct octet_error *err)
{
    char *port = octet_arena_format(arena, "%s/port", out->folder);
    char *log = octet_arena_format(arena, "%s/log", out->folder);
    char *count = octet_arena_format(arena, "%lld", (long long)threads);
    const char *arguments[] = {program,
                               "--listen",
                               "127.0.0.1:0",
                               "--port-file",
                               port,
                               "--data-dir",
                               data_dir,
                               "--log-level",
                               "error",
                               "--threads",
                               count,
                               "--backends",
                               backend ? backend : "cpu",
                               NULL};
    pid_t parent = getpid();

    if (!port || !log || !count)
        return octet_arena_exhausted(arena, err);
    out->process = fork();
    if (out->process == 0)
        become(program, (char *const *)(uintptr_t)arguments, log, parent);
    if (out->process < 0) {
        out->process = 0;
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "octetd cannot be started: %s",
                          strerror(errno));
    }
    return OCTET_OK;
}

enum octet_status own_daemon_start(octet_arena *arena, const char *data_dir, int64_t threads,
                                   const char *backend, const struct octet_cancel *cancel,
                                   struct own_daemon *out, struct octet_error *err)
{
    const char *program = find_program(arena);

    *out = (struct own_daemon){0};
    if (!program)
        return octet_fail(err, OCTET_UNAVAILABLE, NULL,
                          "there is no octetd beside this program; start one elsewhere and give "
                          "--server HOST:PORT");
    enum octet_status status = make_folders(arena, data_dir, out, err);
    if (status == OCTET_OK)
        status = launch(arena, program, data_dir, threads, backend, out, err);
    return status == OCTET_OK ? wait_for_port(arena, cancel, out, err) : status;
}

void own_daemon_stop(struct own_daemon *daemon)
{
    static const char *const files[] = {"port", "log"};
    char path[PATH_MAX];

    if (daemon->process > 0) {
        kill(daemon->process, SIGTERM);
        while (waitpid(daemon->process, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    for (size_t i = 0; daemon->folder && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", daemon->folder, files[i]);
        unlink(path);
    }
    if (daemon->folder)
        rmdir(daemon->folder);
    *daemon = (struct own_daemon){0};
}
