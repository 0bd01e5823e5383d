/* See log.h. */
#include "log.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <grpc/support/log.h>

enum { LINE_BYTES = 4096, GRPC_LINES_PER_SECOND = 5 };

/* The process has one stderr, hence one level. Written by main before there are threads. */
static enum log_level threshold = LOG_LEVEL_INFO;

struct line {
    char bytes[LINE_BYTES];
    size_t length; /* at most LINE_BYTES - 1: the newline always fits */
};

static void put(struct line *line, char c)
{
    if (line->length < sizeof line->bytes - 1)
        line->bytes[line->length++] = c;
}

static void put_all(struct line *line, const char *text)
{
    while (*text)
        put(line, *text++);
}

static bool is_plain(const char *text)
{
    if (!*text)
        return false;
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == '"' || *text == '=' || *text == '\\' ||
            *text == 0x7f)
            return false;
    return true;
}

/* A client's text must not be able to begin a line of its own or move the terminal's cursor. */
static void put_quoted(struct line *line, const char *text)
{
    static const char digits[] = "0123456789abcdef";

    put(line, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put(line, '\\');
            put(line, (char)c);
        } else if (c < ' ' || c == 0x7f) {
            put_all(line, "\\x");
            put(line, digits[c >> 4]);
            put(line, digits[c & 15]);
        } else {
            put(line, (char)c);
        }
    }
    put(line, '"');
}

static void put_text(struct line *line, const char *text)
{
    if (is_plain(text))
        put_all(line, text);
    else
        put_quoted(line, text);
}

static void put_time(struct line *line)
{
    struct timespec now;
    struct tm utc;
    char text[64];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(text, sizeof text, "time=%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + length, sizeof text - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
    put_all(line, text);
}

void log_set_level(enum log_level level)
{
    threshold = level;
}

bool log_enabled(enum log_level level)
{
    return level <= threshold;
}

static bool has_room(void)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&room, 1, 0) != 0; /* an error does not block either */
}

/* A pipe that polls writable takes a page, which is a line, without blocking: as long as one thread
 * at a time does so. */
static void write_line(const char *bytes, size_t length)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t lost;
    char text[96];

    pthread_mutex_lock(&one_at_a_time);
    if (lost && has_room()) {
        int size = snprintf(text, sizeof text, "level=warning msg=\"log lines lost\" count=%llu\n",
                            (unsigned long long)lost);
        lost = 0;
        /* A log that cannot be written has nowhere to say so. */
        ssize_t written = write(STDERR_FILENO, text, (size_t)size);
        (void)written;
    }
    if (has_room()) {
        ssize_t written = write(STDERR_FILENO, bytes, length);
        (void)written;
    } else {
        lost++;
    }
    pthread_mutex_unlock(&one_at_a_time);
}

void log_write(enum log_level level, const char *message, const struct log_field *fields)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    struct line line = {.length = 0};

    if (!log_enabled(level))
        return;
    put_time(&line);
    put_all(&line, " level=");
    put_all(&line, names[level]);
    put_all(&line, " msg=");
    put_quoted(&line, message);
    for (; fields->key; fields++) {
        put(&line, ' ');
        put_all(&line, fields->key);
        put(&line, '=');
        if (fields->text) {
            put_text(&line, fields->text);
        } else {
            char digits[24];
            snprintf(digits, sizeof digits, "%lld", (long long)fields->number);
            put_all(&line, digits);
        }
    }
    line.bytes[line.length++] = '\n';
    write_line(line.bytes, line.length);
}

/* Counts lines in the running second. Returns whether one more may pass; *left_out is then how many
 * were held back before it. The counts are statistics: relaxed order is enough, and a line too many
 * or too few when two threads meet at a second's turn does no harm. */
static bool grpc_line_may_pass(int64_t *left_out)
{
    static _Atomic int64_t second, lines, held_back;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (atomic_exchange_explicit(&second, (int64_t)now.tv_sec, memory_order_relaxed) != now.tv_sec)
        atomic_store_explicit(&lines, 0, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&lines, 1, memory_order_relaxed) >= GRPC_LINES_PER_SECOND) {
        atomic_fetch_add_explicit(&held_back, 1, memory_order_relaxed);
        return false;
    }
    *left_out = atomic_exchange_explicit(&held_back, 0, memory_order_relaxed);
    return true;
}

/* gRPC calls ERROR what is a client's bad handshake: to the daemon that is a warning. */
static void on_grpc_line(gpr_log_func_args *args)
{
    enum log_level level =
        args->severity == GPR_LOG_SEVERITY_ERROR ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG;
    int64_t left_out;

    if (log_enabled(level) && grpc_line_may_pass(&left_out))
        log_event(level, "grpc", log_text("text", args->message), log_number("left_out", left_out));
}

void log_take_grpc(void)
{
    gpr_set_log_function(on_grpc_line);
}
