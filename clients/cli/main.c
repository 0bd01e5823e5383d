/* octet: the command line. Parses, runs one command, writes what it printed, and says how it went.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"

enum { MEMORY_BYTES_DEFAULT = 1024 * 1024 * 1024 };

static struct octet_cancel cancel; /* here for the signal handler's sake */
static volatile sig_atomic_t signal_caught;

static void on_interrupt(int number)
{
    signal_caught = number;
    atomic_store_explicit(&cancel.cancelled, true, memory_order_relaxed);
}

/* The first Ctrl-C ends the running call in order, the second ends the process. A batch system's
 * SIGTERM and a terminal that goes away (unless nohup says to ignore that) are taken alike. */
static void catch_interrupt(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i] != SIGHUP ||
            (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN))
            sigaction(signals[i], &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write then fails, and is reported */
}

/* A descriptor 0, 1 or 2 that is closed would be given to the next file that is opened, and output
 * would go there. /dev/null, opened so that writing fails, takes its place. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            _exit(EXIT_FAILED);
}

static int finish(struct output *out, int status)
{
    if (output_flush(out))
        return status;
    if (out->error ==
        EPIPE) { /* the reader has seen enough, and SIGPIPE is ignored here: end as by it */
        return 128 + SIGPIPE;
    }
    fprintf(stderr, "octet: cannot write to standard output: %s\n", strerror(out->error));
    return EXIT_FAILED;
}

static int run(octet_arena *arena, int argc, char **argv, struct output *out)
{
    struct arguments arguments;
    struct octet_error err = {0};
    struct session session = {
        .arguments = &arguments, .arena = arena, .out = out, .cancel = &cancel};

    if (arguments_parse(arena, argc, argv, &arguments, &err) != OCTET_OK) {
        fprintf(stderr, "octet%s%s: ", arguments.command ? " " : "",
                arguments.command ? arguments.command->name : "");
        print_safe(err.text);
        fputc('\n', stderr);
        return EXIT_FAILED;
    }
    if (arguments.help || arguments.version || arguments.command->id == COMMAND_HELP)
        return run_help(&session);
    if (octet_context_create(NULL, &session.context, &err) != OCTET_OK)
        return report(&session, &err);
    int status = arguments.command->run(&session);
    session_end(&session);
    octet_context_destroy(session.context);
    return status;
}

/* What the machine has: arrays come from the user's own files. */
static size_t memory_bytes_max(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    size_t bytes;

    if (pages <= 0 || page_bytes <= 0 ||
        __builtin_mul_overflow((size_t)pages, (size_t)page_bytes, &bytes))
        return MEMORY_BYTES_DEFAULT;
    return bytes;
}

int main(int argc, char **argv)
{
    static struct output out;
    octet_arena *arena = octet_arena_create(memory_bytes_max());
    const char *fail_at = getenv("OCTET_FAIL_ALLOC");

    fill_standard_descriptors();
    catch_interrupt();
    output_start(&out, STDOUT_FILENO);
    if (!arena) {
        fputs("octet: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    if (fail_at) /* for tests of the error paths */
        octet_arena_fail_at(arena, strtoull(fail_at, NULL, 10));
    int status = run(arena, argc, argv, &out);
    if (status == EXIT_INTERRUPTED && signal_caught)
        status = 128 + signal_caught; /* as shells report it */
    status = finish(&out, status);
    octet_arena_destroy(arena);
    return status;
}
