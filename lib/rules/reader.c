/* Tokens of a pattern, its errors, and the text that is written; see reader_private.h. */
#include "rules/reader_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rules/charset_private.h"
#include "rules/translate_private.h"

/* ---- errors and tokens ---- */

static size_t position_of(const struct reader *r, size_t at)
{
    size_t characters = 0;

    for (size_t i = 0; i < at; i++)
        characters += ((unsigned char)r->text[i] & 0xc0) != 0x80;
    return characters;
}

/* The length of `text`, or less than `most` when it is longer; whole characters. */
int oct_reader_cut(const char *text, size_t length, size_t most)
{
    size_t end = length < most ? length : most;

    while (end < length && end && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    return (int)end;
}

const char *oct_pattern_show(const char *text, char *buffer, size_t size)
{
    int length = oct_reader_cut(text, strlen(text), size - 1);

    for (int i = 0; i < length; i++)
        buffer[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
    buffer[length] = '\0';
    return buffer;
}

bool oct_reader_refuse(struct reader *r, size_t at, const char *format, ...)
{
    char what[200], line[200], shown[201];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    r->status = octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "%s, at position %zu of '%s'",
                           oct_pattern_show(what, line, sizeof line), position_of(r, at),
                           oct_pattern_show(r->text, shown, sizeof shown));
    return false;
}

static bool exhausted(struct reader *r)
{
    r->status = octet_arena_exhausted(r->arena, r->err);
    return false;
}

/* Makes the token behind the current one the next. */
bool oct_reader_advance_to(struct reader *r, size_t at)
{
    struct token t = {.at = at};

    if (at < r->length && r->text[at] == '\\') {
        if (at + 1 == r->length)
            return oct_reader_refuse(r, at, "a backslash ends the pattern");
        t.escaped = true;
        t.length = 1;
    }
    if (at < r->length)
        t.length = (unsigned char)(t.length + oct_utf8_read(r->text + at + t.length, &t.c));
    r->next = t;
    return true;
}

bool oct_reader_advance(struct reader *r)
{
    return oct_reader_advance_to(r, r->next.at + r->next.length);
}

bool oct_reader_next_is(const struct reader *r, char c)
{
    return r->next.length && !r->next.escaped && r->next.c == (unsigned char)c;
}

/* Takes the next token when it is `c`. *taken says whether; false: reading stopped. */
bool oct_reader_accept(struct reader *r, char c, bool *taken)
{
    *taken = oct_reader_next_is(r, c);
    return !*taken || oct_reader_advance(r);
}

/* ---- writing ---- */

bool oct_reader_write_bytes(struct reader *r, const char *bytes, size_t count)
{
    if (r->out_capacity - r->out_length < count) {
        size_t capacity = 2 * (r->out_capacity + count);
        char *larger = octet_arena_alloc(r->arena, capacity);
        if (!larger)
            return exhausted(r);
        if (r->out_length)
            memcpy(larger, r->out, r->out_length);
        r->out = larger;
        r->out_capacity = capacity;
    }
    memcpy(r->out + r->out_length, bytes, count);
    r->out_length += count;
    return true;
}

bool oct_reader_write(struct reader *r, const char *text)
{
    return oct_reader_write_bytes(r, text, strlen(text));
}

bool oct_reader_write_format(struct reader *r, const char *format, ...)
{
    char text[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return oct_reader_write(r, text);
}

/* Puts what was written since `start` into a group that begins with `opening`, of 3 bytes. */
bool oct_reader_wrap(struct reader *r, size_t start, const char *opening)
{
    size_t length = r->out_length - start;

    if (!oct_reader_write(r, opening) || !oct_reader_write(r, ")"))
        return false;
    memmove(r->out + start + 3, r->out + start, length);
    memcpy(r->out + start, opening, 3);
    r->out[r->out_length - 1] = ')';
    return true;
}

/* Begins a new last item; what writes it comes next. */
void oct_reader_begin_item(struct reader *r, struct branch *b, enum item_kind kind, uint64_t width)
{
    b->sum.least = oct_width_add(b->sum.least, b->last.width.least);
    b->sum.most = oct_width_add(b->sum.most, b->last.width.most);
    b->last = (struct item){.kind = kind, .start = r->out_length, .width = {width, width}};
}
