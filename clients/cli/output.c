/* Buffered output, units, tables; see output.h. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void output_start(struct output *out, int fd)
{
    const char *plain = getenv("NO_COLOR"), *terminal = getenv("TERM");

    out->fd = fd;
    out->error = 0;
    out->used = 0;
    out->colour = !(plain && plain[0]) && terminal && strcmp(terminal, "dumb") != 0 && isatty(fd);
}

bool output_flush(struct output *out)
{
    size_t done = 0;

    while (!out->error && done < out->used) {
        ssize_t n = write(out->fd, out->buffer + done, out->used - done);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            out->error = errno;
    }
    out->used = 0;
    return !out->error;
}

void output_write(struct output *out, const char *text, size_t length)
{
    while (length && !out->error) {
        size_t room = sizeof out->buffer - out->used, n = length < room ? length : room;
        memcpy(out->buffer + out->used, text, n);
        out->used += n;
        text += n;
        length -= n;
        if (out->used == sizeof out->buffer)
            output_flush(out);
    }
}

void output_text(struct output *out, const char *text)
{
    output_write(out, text, strlen(text));
}

void output_printf(struct output *out, const char *format, ...)
{
    va_list arguments;
    char small[1024], *text = small;

    va_start(arguments, format);
    int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof small) {
        va_start(arguments, format);
        length = vasprintf(&text, format, arguments);
        va_end(arguments);
    }
    if (length >= 0)
        output_write(out, text, (size_t)length);
    else if (!out->error)
        out->error = ENOMEM;
    if (text != small && length >= 0)
        free(text);
}

bool output_json(void *user, const char *text, size_t length)
{
    struct output *out = user;

    output_write(out, text, length);
    return !out->error;
}

const char *output_colour(const struct output *out, enum colour colour)
{
    static const char *const sequences[] = {"\x1b[0m",  "\x1b[31m", "\x1b[32m",
                                            "\x1b[33m", "\x1b[2m",  "\x1b[1m"};

    return out->colour ? sequences[colour] : "";
}

static const char *human(int64_t value, int step, const char *const *units, size_t count,
                         char buffer[32])
{
    double scaled = (double)value;
    size_t unit = 0;

    /* 999.95 would print as "1000.0": it belongs to the next unit. */
    while (scaled >= (double)step - 0.05 && unit + 1 < count) {
        scaled /= step;
        unit++;
    }
    const char *more = value == INT64_MAX ? ">" : ""; /* the sum did not fit */
    int digits = unit == 0 ? 0 : scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
    snprintf(buffer, 32, "%s%.*f%s%s", more, digits, scaled, units[unit][0] ? " " : "",
             units[unit]);
    return buffer;
}

const char *human_count(int64_t value, char buffer[32])
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};

    return human(value, 1000, units, sizeof units / sizeof *units, buffer);
}

const char *human_bytes(int64_t value, char buffer[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

    return human(value, 1024, units, sizeof units / sizeof *units, buffer);
}

const char *human_share(int64_t part, int64_t whole, char buffer[32])
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;

    if (!whole)
        snprintf(buffer, 32, "-");
    else if (whole == INT64_MAX)
        snprintf(buffer, 32, "?");
    else if (part < whole && percent >= 99.95)
        snprintf(buffer, 32, ">99.9 %%");
    else if (part > 0 && percent < 0.05)
        snprintf(buffer, 32, "<0.1 %%");
    else
        snprintf(buffer, 32, "%.1f %%", percent);
    return buffer;
}

struct row {
    enum colour colour;
    const char *const *cells;
};

struct table {
    octet_arena *arena;
    const struct column *columns;
    size_t column_count;
    struct row *rows;
    size_t row_count, row_room;
};

struct table *table_create(octet_arena *arena, const struct column *columns, size_t count)
{
    struct table *table = OCTET_NEW(arena, struct table);

    if (table)
        *table = (struct table){.arena = arena, .columns = columns, .column_count = count};
    return table;
}

bool table_add(struct table *table, const char *const *cells, enum colour colour)
{
    size_t bytes = table->column_count * sizeof *cells;

    for (size_t i = 0; i < table->column_count; i++)
        if (!cells[i])
            return false;
    if (table->row_count == table->row_room) {
        size_t room = table->row_room ? 2 * table->row_room : 64;
        struct row *rows = OCTET_NEW_ARRAY(table->arena, room, struct row);
        if (!rows)
            return false;
        if (table->row_count)
            memcpy(rows, table->rows, table->row_count * sizeof *rows);
        table->rows = rows;
        table->row_room = room;
    }
    const char **copy = octet_arena_alloc(table->arena, bytes);
    if (!copy)
        return false;
    memcpy(copy, cells, bytes);
    table->rows[table->row_count++] = (struct row){colour, copy};
    return true;
}

/* Characters, not bytes; the cells hold nothing wide. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += (*text & 0xc0) != 0x80;
    return width;
}

/* Ends with its last cell that holds something: no blanks before the line's end. */
static void print_row(const struct table *table, const char *const *cells, const size_t *widths,
                      struct output *out)
{
    size_t count = table->column_count;

    while (count > 1 && !cells[count - 1][0])
        count--;
    for (size_t c = 0; c < count; c++) {
        size_t padding = widths[c] - width_of(cells[c]);
        bool last = c + 1 == count;
        if (table->columns[c].right)
            output_printf(out, "%*s", (int)padding, "");
        output_text(out, cells[c]);
        if (!table->columns[c].right && !last)
            output_printf(out, "%*s", (int)padding, "");
        output_text(out, last ? "\n" : "  ");
    }
}

void table_print(const struct table *table, struct output *out)
{
    enum { COLUMNS_MAX = 16 };
    size_t widths[COLUMNS_MAX];
    const char *titles[COLUMNS_MAX];

    for (size_t c = 0; c < table->column_count; c++) {
        titles[c] = table->columns[c].title;
        widths[c] = width_of(titles[c]);
        for (size_t r = 0; r < table->row_count; r++) {
            size_t width = width_of(table->rows[r].cells[c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    output_text(out, output_colour(out, COLOUR_BOLD));
    print_row(table, titles, widths, out);
    output_text(out, output_colour(out, COLOUR_NONE));
    for (size_t r = 0; r < table->row_count; r++) {
        enum colour colour = table->rows[r].colour;
        if (colour)
            output_text(out, output_colour(out, colour));
        print_row(table, table->rows[r].cells, widths, out);
        if (colour)
            output_text(out, output_colour(out, COLOUR_NONE));
    }
}
