/* Reading a pattern of Python's and writing PCRE2's: what the files of the translator share.
 *
 * For: translate.c (sequences and quantifiers), escapes.c (escapes and classes), groups.c.
 * Not for: others, who have oct_pattern_translate.
 * Decision: functions return false when reading stops; why is in reader.status, and told already.
 */
#ifndef OCTET_RULES_READER_PRIVATE_H
#define OCTET_RULES_READER_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"

/* Python's flags, in the order of their letters "imsxauL". */
enum {
    OCT_IGNORE_CASE = 1,
    OCT_MULTILINE = 2,
    OCT_DOT_ALL = 4,
    OCT_VERBOSE = 8,
    OCT_ASCII = 16,
    OCT_UNICODE = 32,
    OCT_LOCALE = 64,
    OCT_KIND_FLAGS = OCT_ASCII | OCT_UNICODE | OCT_LOCALE,
};

/* How many characters something takes; saturates at OCT_WIDE, which stands for "any number". */
#define OCT_WIDE UINT64_MAX
struct width {
    uint64_t least, most;
};

/* Python's unit of reading: one character, or a backslash with the character behind it. */
struct token {
    size_t at;
    uint32_t c;
    unsigned char length; /* bytes; 0 at the end of the pattern */
    bool escaped;
};

struct group {
    const char *name; /* in the pattern; NULL: none */
    size_t name_length;
    struct width width;
    bool closed;
};

enum item_kind { OCT_NO_ITEM, OCT_UNIT, OCT_GROUP, OCT_POSITION, OCT_ASSERTION, OCT_REPEATED };

struct item {
    enum item_kind kind;
    size_t start; /* in the output */
    struct width width;
};

/* A sequence of items up to '|' or ')'. */
struct branch {
    unsigned flags;
    bool first;       /* of the whole pattern: (?i) may stand here, before any item */
    struct width sum; /* without the last item, which a quantifier may still change */
    struct item last;
};

struct reader {
    octet_arena *arena;
    struct octet_error *err;
    enum octet_status status; /* why reading stopped */
    const char *text;
    size_t length;
    struct token next;
    char *out;
    size_t out_length, out_capacity;
    struct group *groups; /* [0] is unused */
    size_t group_count;
    size_t lookbehind_groups;   /* groups when the outermost lookbehind began; 0: in none */
    size_t forward, forward_at; /* the largest group that a conditional names, and where */
    unsigned flags;             /* of the whole pattern */
    int depth;
};

/* ---- reader.c ---- */

/* INVALID_ARGUMENT with a sentence that tells the position of byte `at`. Returns false. */
bool oct_reader_refuse(struct reader *r, size_t at, const char *format, ...) OCTET_PRINTF(3, 4);
/* The length of `text`, or less than `most` when it is longer; whole characters. */
int oct_reader_cut(const char *text, size_t length, size_t most);

/* Makes the token at `at`, or the one behind the next, the next. */
bool oct_reader_advance_to(struct reader *r, size_t at);
bool oct_reader_advance(struct reader *r);
bool oct_reader_next_is(const struct reader *r, char c);
/* Takes the next token when it is `c`. *taken says whether. */
bool oct_reader_accept(struct reader *r, char c, bool *taken);

bool oct_reader_write(struct reader *r, const char *text);
bool oct_reader_write_bytes(struct reader *r, const char *bytes, size_t count);
bool oct_reader_write_format(struct reader *r, const char *format, ...) OCTET_PRINTF(2, 3);
/* Puts what was written since `start` into a group that begins with `opening`, of 3 bytes. */
bool oct_reader_wrap(struct reader *r, size_t start, const char *opening);

/* Begins a new last item; what writes it comes next. */
void oct_reader_begin_item(struct reader *r, struct branch *b, enum item_kind kind, uint64_t width);

/* ---- escapes.c ---- */

bool oct_read_literal(struct reader *r, struct branch *b, uint32_t c);
bool oct_read_position(struct reader *r, struct branch *b, const char *text);
bool oct_read_escape(struct reader *r, struct branch *b, const struct token *t); /* t is taken */
bool oct_read_class(struct reader *r, struct branch *b, size_t open);            /* '[' is taken */
bool oct_read_reference(struct reader *r, struct branch *b, size_t group, size_t at);
/* The group behind a back-reference must be complete, and not begin in the same lookbehind. */
bool oct_reader_check_reference(struct reader *r, size_t group, size_t at);

/* ---- groups.c ---- */

bool oct_read_group(struct reader *r, struct branch *b, size_t open); /* '(' is taken */

/* ---- translate.c ---- */

/* Up to '|', ')' or the end; then b->sum is the width of all. */
bool oct_read_branch(struct reader *r, struct branch *b);
/* whole: the pattern itself, whose flags may be set at its start. */
bool oct_read_alternatives(struct reader *r, unsigned flags, bool whole, struct width *width);

/* ---- small questions ---- */

static inline bool oct_token_is_digit(const struct token *t)
{
    return t->length && !t->escaped && t->c >= '0' && t->c <= '9';
}

static inline bool oct_token_is_octal(const struct token *t)
{
    return oct_token_is_digit(t) && t->c < '8';
}

static inline bool oct_is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline uint64_t oct_width_add(uint64_t a, uint64_t b)
{
    return a > OCT_WIDE - b ? OCT_WIDE : a + b;
}

static inline uint64_t oct_width_times(uint64_t a, uint64_t b)
{
    return a && b > OCT_WIDE / a ? OCT_WIDE : a * b;
}

/* PCRE2 compares without case exactly where Python does by Unicode's tables; by ASCII's the class
 * itself holds both cases. */
static inline bool oct_is_caseless(unsigned flags)
{
    return (flags & OCT_IGNORE_CASE) && !(flags & OCT_ASCII);
}

#endif
