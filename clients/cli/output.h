/* Standard output: one large buffer, errors kept until the end, units and tables for people.
 *
 * Life: output_start before anything else; output_flush last, and its answer is the program's. */
#ifndef OCTET_CLI_OUTPUT_H
#define OCTET_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"

struct output {
    int fd;
    int error;   /* errno of the first write that failed; from then on nothing is written */
    bool colour; /* a terminal, and NO_COLOR is not set */
    size_t used;
    char buffer[64 * 1024];
};

void output_start(struct output *out, int fd);
void output_write(struct output *out, const char *text, size_t length);
void output_text(struct output *out, const char *text);
void output_printf(struct output *out, const char *format, ...) OCTET_PRINTF(2, 3);
bool output_flush(struct output *out); /* false: out->error says why */
/* As octet_wire_json wants it; user is the output. */
bool output_json(void *user, const char *text, size_t length);

/* Escape sequences, empty where colour is off. */
enum colour { COLOUR_NONE, COLOUR_RED, COLOUR_GREEN, COLOUR_YELLOW, COLOUR_DIM, COLOUR_BOLD };
const char *output_colour(const struct output *out, enum colour colour);

/* "1.234 T" and "1.50 GiB": four digits at most; ">9.22 E" for INT64_MAX, which stands for more
 * than fits. The returned text is the buffer. */
const char *human_count(int64_t value, char buffer[32]);
const char *human_bytes(int64_t value, char buffer[32]);
/* "93.1 %"; "-" when the whole is 0, "?" when it is INT64_MAX. Never "100.0 %" for less than all,
 * nor "0.0 %" for more than none. */
const char *human_share(int64_t part, int64_t whole, char buffer[32]);

/* A table whose columns are as wide as their widest cell. */
struct column {
    const char *title;
    bool right; /* numbers stand on the right */
};
struct table;

struct table *table_create(octet_arena *arena, const struct column *columns, size_t count);
/* Cells are borrowed until the table is printed; a NULL cell stands for "no memory" and fails the
 * row. */
bool table_add(struct table *table, const char *const *cells, enum colour colour);
void table_print(const struct table *table, struct output *out);

#endif
