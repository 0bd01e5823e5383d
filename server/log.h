/* One line a message on stderr: time, level, message, then key=value pairs.
 *
 * For: what an operator reads, by eye or by a collector of logs.
 * Not for: the trace, nor answers to clients.
 * Decision: a line is put together in a buffer and written by one write(2), so that lines of
 * several threads never mix. What does not fit into a line is cut. A reader that stops reading
 * costs lines, which are counted, never the daemon's time. */
#ifndef OCTET_SERVER_LOG_H
#define OCTET_SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_field {
    const char *key;  /* NULL ends a list */
    const char *text; /* NULL: number counts */
    int64_t number;
};

/* Lines below the level are not written. Set it before there are threads. */
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

/* fields end with one whose key is NULL. Texts may hold anything: what is not plain is quoted. */
void log_write(enum log_level level, const char *message, const struct log_field *fields);

static inline struct log_field log_text(const char *key, const char *text)
{
    return (struct log_field){.key = key, .text = text ? text : ""};
}

static inline struct log_field log_number(const char *key, int64_t number)
{
    return (struct log_field){.key = key, .number = number};
}

/* log_event(LOG_LEVEL_INFO, "listening", log_text("address", "127.0.0.1:1"), log_number("lanes",
 * 2)); */
#define log_event(level, message, ...)                                                             \
    log_write((level), (message), (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})

/* Sends gRPC's own lines through log_write, at most a few a second: a client that speaks rubbish
 * makes gRPC write a line each time. */
void log_take_grpc(void);

#endif
