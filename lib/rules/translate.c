/* A reader of Python's pattern syntax that writes PCRE2's as it goes.
 *
 * For: see translate_private.h.
 * Not for: speed; a pattern is read once.
 * Decision: nothing of the source is copied through. Every item is read, checked and written anew
 * (literals escaped, classes as ranges of code points, names as numbers), so that syntax which only
 * PCRE2 has (\K, \R, (*VERB), (?R), [[:alpha:]], ...) cannot pass by accident.
 *
 * Where the two would still differ:
 * - Letters that are first assigned in Unicode 15 are unknown to PCRE2 10.42 (Unicode 14).
 * - A back-reference under (?i) compares by case folding in PCRE2 and by lower-casing in Python;
 * they part for some sixty letters outside ASCII, such as the long s.
 * - A turn of a repeat that matched nothing ends the repeat in Python, and not always in PCRE2. It
 * shows only where the repeated group asks for itself, as "(?(1)" or "\1", in its next turn.
 * - Repeat counts end at 65535 (Python: 2^32 - 2), \N{NAME} and group names outside ASCII are
 * refused. Source: Python 3.12, re/_parser.py and re/_compiler.py. */
#include "rules/translate_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "rules/charset_private.h"

enum {
    IGNORE_CASE = 1,
    MULTILINE = 2,
    DOT_ALL = 4,
    VERBOSE = 8,
    ASCII = 16,
    UNICODE = 32,
    LOCALE = 64,
    KIND_FLAGS = ASCII | UNICODE | LOCALE,
};

enum { REPEAT_MAX = 65535 };

/* How many characters something takes; saturates at WIDE, which stands for "any number". */
static const uint64_t WIDE = UINT64_MAX;
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

enum item_kind { NO_ITEM, UNIT, GROUP, POSITION, ASSERTION, REPEATED };

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

static bool read_alternatives(struct reader *r, unsigned flags, bool whole, struct width *width);

/* ---- errors and reading ---- */

static size_t position_of(const struct reader *r, size_t at)
{
    size_t characters = 0;

    for (size_t i = 0; i < at; i++)
        characters += ((unsigned char)r->text[i] & 0xc0) != 0x80;
    return characters;
}

/* The length of `text`, or less than `most` when it is longer; whole characters. */
static int cut(const char *text, size_t length, size_t most)
{
    size_t end = length < most ? length : most;

    while (end < length && end && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    return (int)end;
}

static bool refuse(struct reader *r, size_t at, const char *format, ...) OCTET_PRINTF(3, 4);
static bool refuse(struct reader *r, size_t at, const char *format, ...)
{
    char what[200], shown[201];
    int length = cut(r->text, r->length, sizeof shown - 1);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    for (int i = 0; i < length; i++) /* a message is one line */
        shown[i] = (unsigned char)r->text[i] < ' ' ? ' ' : r->text[i];
    r->status = octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "%s, at position %zu of '%.*s'",
                           what, position_of(r, at), length, shown);
    return false;
}

static bool exhausted(struct reader *r)
{
    r->status = octet_arena_exhausted(r->arena, r->err);
    return false;
}

/* Makes the token behind the current one the next. */
static bool advance_to(struct reader *r, size_t at)
{
    struct token t = {.at = at};

    if (at < r->length && r->text[at] == '\\') {
        if (at + 1 == r->length)
            return refuse(r, at, "a backslash ends the pattern");
        t.escaped = true;
        t.length = 1;
    }
    if (at < r->length)
        t.length = (unsigned char)(t.length + oct_utf8_read(r->text + at + t.length, &t.c));
    r->next = t;
    return true;
}

static bool advance(struct reader *r)
{
    return advance_to(r, r->next.at + r->next.length);
}

static bool next_is(const struct reader *r, char c)
{
    return r->next.length && !r->next.escaped && r->next.c == (unsigned char)c;
}

/* Takes the next token when it is `c`. *taken says whether; false: reading stopped. */
static bool accept(struct reader *r, char c, bool *taken)
{
    *taken = next_is(r, c);
    return !*taken || advance(r);
}

static bool is_digit(const struct token *t)
{
    return t->length && !t->escaped && t->c >= '0' && t->c <= '9';
}

static bool is_octal(const struct token *t)
{
    return is_digit(t) && t->c < '8';
}

static bool is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- writing ---- */

static bool write_bytes(struct reader *r, const char *bytes, size_t count)
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

static bool write(struct reader *r, const char *text)
{
    return write_bytes(r, text, strlen(text));
}

static bool write_format(struct reader *r, const char *format, ...) OCTET_PRINTF(2, 3);
static bool write_format(struct reader *r, const char *format, ...)
{
    char text[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return write(r, text);
}

static bool write_on(void *user, const char *text)
{
    return write(user, text);
}

/* Puts what was written since `start` into a group that begins with `opening`, of 3 bytes. */
static bool wrap_from(struct reader *r, size_t start, const char *opening)
{
    size_t length = r->out_length - start;

    if (!write(r, opening) || !write(r, ")"))
        return false;
    memmove(r->out + start + 3, r->out + start, length);
    memcpy(r->out + start, opening, 3);
    r->out[r->out_length - 1] = ')';
    return true;
}

/* ---- items ---- */

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > WIDE - b ? WIDE : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return a && b > WIDE / a ? WIDE : a * b;
}

/* Begins a new last item; what writes it comes next. */
static void begin_item(struct reader *r, struct branch *b, enum item_kind kind, uint64_t width)
{
    b->sum.least = add(b->sum.least, b->last.width.least);
    b->sum.most = add(b->sum.most, b->last.width.most);
    b->last = (struct item){.kind = kind, .start = r->out_length, .width = {width, width}};
}

static bool position_item(struct reader *r, struct branch *b, const char *text)
{
    begin_item(r, b, POSITION, 0);
    return write(r, text);
}

/* PCRE2 compares without case exactly where Python does by Unicode's tables; by ASCII's the class
 * itself holds both cases. */
static bool is_caseless(unsigned flags)
{
    return (flags & IGNORE_CASE) && !(flags & ASCII);
}

static bool class_item(struct reader *r, struct branch *b, struct oct_charset *set)
{
    begin_item(r, b, UNIT, 1);
    if (b->flags & IGNORE_CASE)
        oct_charset_add_cases(set, b->flags & ASCII);
    return oct_charset_write(set, write_on, r);
}

static bool literal_item(struct reader *r, struct branch *b, uint32_t c)
{
    struct oct_charset set = {.ascii = b->flags & ASCII};

    oct_charset_add(&set, c, c);
    return class_item(r, b, &set);
}

static bool dot_item(struct reader *r, struct branch *b)
{
    begin_item(r, b, UNIT, 1);
    return write(r, b->flags & DOT_ALL ? "." : "\\N");
}

/* ---- escapes ---- */

/* Exactly `digits` hexadecimal digits behind the escape `escape`. */
static bool read_hex(struct reader *r, const struct token *escape, int digits, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < digits; i++) {
        uint32_t d = r->next.length && !r->next.escaped ? r->next.c : 0;
        if (d >= '0' && d <= '9')
            *c = *c * 16 + (d - '0');
        else if ((d | 32) >= 'a' && (d | 32) <= 'f' && is_letter(d))
            *c = *c * 16 + ((d | 32) - 'a' + 10);
        else
            return refuse(r, escape->at, "\\%c takes %d hexadecimal digits", (int)escape->c,
                          digits);
        if (!advance(r))
            return false;
    }
    if (*c > 0x10ffff)
        return refuse(r, escape->at, "\\U%08" PRIX32 " is beyond the last character, 10FFFF", *c);
    return true;
}

/* Up to `more` further octal digits. */
static bool read_octal(struct reader *r, const struct token *escape, int more, uint32_t *c)
{
    for (; more && is_octal(&r->next); more--) {
        *c = *c * 8 + (r->next.c - '0');
        if (!advance(r))
            return false;
    }
    if (*c > 0377)
        return refuse(r, escape->at, "octal escape \\%03" PRIo32 " is above \\377", *c);
    return true;
}

/* The escapes that stand for one character, inside classes and outside alike; its backslash and
 * letter are taken already. *known = false: another kind of escape. */
static bool read_character_escape(struct reader *r, const struct token *t, uint32_t *c, bool *known)
{
    static const char letters[] = "afnrtv\\", values[] = "\a\f\n\r\t\v\\";
    const char *found = t->c && t->c < 128 ? strchr(letters, (int)t->c) : NULL;

    *known = true;
    if (found) {
        *c = (unsigned char)values[found - letters];
        return true;
    }
    if (t->c == 'x')
        return read_hex(r, t, 2, c);
    if (t->c == 'u')
        return read_hex(r, t, 4, c);
    if (t->c == 'U')
        return read_hex(r, t, 8, c);
    if (t->c == 'N')
        return refuse(r, t->at, "names of characters (\\N{...}) are not supported; write \\uXXXX");
    *known = !is_letter(t->c) && !(t->c >= '0' && t->c <= '9');
    *c = t->c;
    return true;
}

/* The group behind a back-reference must be complete, and not begin in the same lookbehind. */
static bool check_reference(struct reader *r, size_t group, size_t at)
{
    if (!r->groups[group].closed)
        return refuse(r, at, "reference to group %zu inside itself", group);
    if (r->lookbehind_groups && group >= r->lookbehind_groups)
        return refuse(r, at, "reference to group %zu of the same lookbehind", group);
    return true;
}

static bool reference_item(struct reader *r, struct branch *b, size_t group, size_t at)
{
    if (!check_reference(r, group, at))
        return false;
    begin_item(r, b, UNIT, 0);
    b->last.width = r->groups[group].width;
    /* Where both cases are written out, the reference still has to ignore case. */
    if ((b->flags & IGNORE_CASE) && !is_caseless(b->flags))
        return write_format(r, "(?i:\\g{%zu})", group);
    return write_format(r, "\\g{%zu}", group);
}

/* \0 and three octal digits are a character, other digits a group. */
static bool digits_item(struct reader *r, struct branch *b, const struct token *t)
{
    uint32_t value = t->c - '0';

    if (t->c == '0') {
        if (!read_octal(r, t, 2, &value))
            return false;
        return literal_item(r, b, value);
    }
    if (is_digit(&r->next)) {
        struct token second = r->next;
        if (!advance(r))
            return false;
        if (t->c < '8' && is_octal(&second) && is_octal(&r->next)) {
            value = value * 8 + (second.c - '0');
            return read_octal(r, t, 1, &value) && literal_item(r, b, value);
        }
        value = value * 10 + (second.c - '0');
    }
    if (value >= r->group_count)
        return refuse(r, t->at, "reference to group %" PRIu32 ", but %zu are before it", value,
                      r->group_count - 1);
    return reference_item(r, b, value, t->at);
}

static bool boundary_item(struct reader *r, struct branch *b, bool negated)
{
#define WORD "[0-9A-Z_a-z]"
    if (b->flags & ASCII)
        return position_item(r, b,
                             negated ? "(?!\\A\\z)(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD
                                       ")(?!" WORD "))"
                                     : "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))");
#undef WORD
    /* In Python before 3.14 an empty text has no place that is no boundary. */
    return position_item(r, b, negated ? "(?!\\A\\z)\\B" : "\\b");
}

static bool escape_item(struct reader *r, struct branch *b, const struct token *t)
{
    struct oct_charset set = {.ascii = b->flags & ASCII};
    uint32_t c;
    bool known;

    if (t->c >= '0' && t->c <= '9')
        return digits_item(r, b, t);
    if (t->c == 'A')
        return position_item(r, b, "\\A");
    if (t->c == 'Z')
        return position_item(r, b, "\\z");
    if (t->c == 'b' || t->c == 'B')
        return boundary_item(r, b, t->c == 'B');
    if (oct_charset_add_category(&set, t->c))
        return class_item(r, b, &set);
    if (!read_character_escape(r, t, &c, &known))
        return false;
    if (!known)
        return refuse(r, t->at, "\\%c is no escape of Python's", (int)t->c);
    return literal_item(r, b, c);
}

/* ---- classes ---- */

/* One member of a class; t is taken already. *category: a set such as \d, added to `set`. */
static bool class_member(struct reader *r, const struct token *t, struct oct_charset *set,
                         uint32_t *c, bool *category)
{
    bool known;

    *category = false;
    *c = t->c;
    if (!t->escaped)
        return true;
    if (t->c == 'b') {
        *c = '\b';
        return true;
    }
    if (t->c >= '0' && t->c <= '7') {
        *c = t->c - '0';
        return read_octal(r, t, 2, c);
    }
    *category = oct_charset_add_category(set, t->c);
    if (*category)
        return true;
    if (!read_character_escape(r, t, c, &known))
        return false;
    return known || refuse(r, t->at, "\\%c is no escape of Python's in a class", (int)t->c);
}

static bool take_member_token(struct reader *r, size_t open, struct token *t)
{
    *t = r->next;
    if (!t->length)
        return refuse(r, open, "'[' without its ']'");
    return advance(r);
}

/* "a", "\d", "a-z" or a "-" before the end. *closed: the ']' was taken too. */
static bool class_element(struct reader *r, const struct token *t, size_t open,
                          struct oct_charset *set, bool *closed)
{
    struct token to;
    uint32_t low, high;
    bool low_category, high_category, dash;

    if (!class_member(r, t, set, &low, &low_category) || !accept(r, '-', &dash))
        return false;
    *closed = dash && next_is(r, ']');
    if (!dash || *closed) {
        if (!low_category)
            oct_charset_add(set, low, low);
        if (*closed)
            oct_charset_add(set, '-', '-');
        return !*closed || advance(r);
    }
    if (!take_member_token(r, open, &to) || !class_member(r, &to, set, &high, &high_category))
        return false;
    if (low_category || high_category || high < low)
        return refuse(r, t->at, "bad range in a class");
    oct_charset_add(set, low, high);
    return true;
}

static bool class_read(struct reader *r, struct branch *b, size_t open)
{
    struct oct_charset set = {.ascii = b->flags & ASCII};
    bool closed = false;

    if (!accept(r, '^', &set.negated))
        return false;
    for (bool empty = true; !closed; empty = false) {
        struct token t;
        if (!take_member_token(r, open, &t))
            return false;
        if (!t.escaped && t.c == ']' && !empty)
            break;
        if (!class_element(r, &t, open, &set, &closed))
            return false;
        if (oct_charset_is_full(&set))
            return refuse(r, open, "a class of more than %d ranges", OCT_CHARSET_RANGES_MAX);
    }
    return class_item(r, b, &set);
}

/* ---- quantifiers ---- */

struct repeat {
    uint64_t least, most; /* most = WIDE: no bound */
};

static bool read_count(struct reader *r, size_t at, uint64_t *count, bool *given)
{
    *given = is_digit(&r->next);
    if (*given)
        *count = 0;
    while (is_digit(&r->next)) {
        *count = *count * 10 + (r->next.c - '0');
        if (*count > REPEAT_MAX)
            return refuse(r, at, "a repeat count above %d", REPEAT_MAX);
        if (!advance(r))
            return false;
    }
    return true;
}

/* "{2}", "{2,}", "{,3}", "{2,3}"; anything else is a literal '{', and *literal says so. */
static bool read_braces(struct reader *r, const struct token *t, struct repeat *n, bool *literal)
{
    size_t behind = r->next.at;
    bool low_given, high_given, comma, end;

    *n = (struct repeat){0, WIDE};
    *literal = next_is(r, '}');
    if (*literal)
        return true;
    /* Digits that turn out to be literals may be of any number, hence two passes. */
    size_t at = behind;
    at += strspn(r->text + at, "0123456789");
    if (r->text[at] == ',')
        at += 1 + strspn(r->text + at + 1, "0123456789");
    *literal = r->text[at] != '}';
    if (*literal)
        return true;

    if (!read_count(r, t->at, &n->least, &low_given) || !accept(r, ',', &comma))
        return false;
    if (comma && !read_count(r, t->at, &n->most, &high_given))
        return false;
    if (!comma)
        n->most = n->least;
    if (n->most < n->least)
        return refuse(r, t->at, "a repeat count with its least above its most");
    return accept(r, '}', &end);
}

static bool write_repeat(struct reader *r, struct repeat n)
{
    if (n.least == 0 && n.most == WIDE)
        return write(r, "*");
    if (n.least == 1 && n.most == WIDE)
        return write(r, "+");
    if (n.least == 0 && n.most == 1)
        return write(r, "?");
    if (n.most == WIDE)
        return write_format(r, "{%" PRIu64 ",}", n.least);
    if (n.most == n.least)
        return write_format(r, "{%" PRIu64 "}", n.least);
    return write_format(r, "{%" PRIu64 ",%" PRIu64 "}", n.least, n.most);
}

static bool repeat_item(struct reader *r, struct branch *b, const struct token *t, struct repeat n)
{
    struct item *item = &b->last;
    bool lazy, possessive = false;

    if (item->kind == NO_ITEM || item->kind == POSITION)
        return refuse(r, t->at, "'%c' with nothing before it to repeat", (int)t->c);
    if (item->kind == REPEATED)
        return refuse(r, t->at, "'%c' repeats what is repeated already", (int)t->c);
    if (!accept(r, '?', &lazy) || (!lazy && !accept(r, '+', &possessive)))
        return false;
    if (item->kind == ASSERTION && !wrap_from(r, item->start, "(?:"))
        return false;
    /* Python never goes back into a turn of a possessive repeat, even to reach the least count. */
    if (item->kind == GROUP && possessive && n.least > 1 && !wrap_from(r, item->start, "(?>"))
        return false;
    item->kind = REPEATED;
    item->width.least = times(item->width.least, n.least);
    item->width.most = item->width.most ? times(item->width.most, n.most) : 0;
    return write_repeat(r, n) && (!lazy || write(r, "?")) && (!possessive || write(r, "+"));
}

static bool quantifier_read(struct reader *r, struct branch *b, const struct token *t)
{
    struct repeat n = {t->c == '+', t->c == '?' ? 1 : WIDE};
    bool literal = false;

    if (t->c == '{' && !read_braces(r, t, &n, &literal))
        return false;
    return literal ? literal_item(r, b, '{') : repeat_item(r, b, t, n);
}

/* ---- groups ---- */

/* The name up to `end`, which is taken too. */
static bool read_name(struct reader *r, char end, const char **name, size_t *length)
{
    size_t at = r->next.at;

    *name = r->text + at;
    while (!next_is(r, end)) {
        if (!r->next.length)
            return refuse(r, at, "a group's name without its '%c'", end);
        if (!advance(r))
            return false;
    }
    *length = r->next.at - at;
    return *length ? advance(r) : refuse(r, at, "a group's name is missing");
}

static bool check_name(struct reader *r, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (!is_letter(c) && c != '_' && (i == 0 || c < '0' || c > '9'))
            return refuse(r, (size_t)(name - r->text),
                          "'%.*s' is no name for a group (ASCII letters, digits and '_')",
                          cut(name, length, 40), name);
    }
    return true;
}

/* 0: there is none. */
static size_t find_group(const struct reader *r, const char *name, size_t length)
{
    for (size_t i = 1; i < r->group_count; i++)
        if (r->groups[i].name && r->groups[i].name_length == length &&
            !memcmp(r->groups[i].name, name, length))
            return i;
    return 0;
}

static bool find_named(struct reader *r, const char *name, size_t length, size_t *group)
{
    if (!check_name(r, name, length))
        return false;
    *group = find_group(r, name, length);
    if (!*group)
        return refuse(r, (size_t)(name - r->text), "no group before this is named '%.*s'",
                      cut(name, length, 40), name);
    return true;
}

static bool close_group(struct reader *r, size_t open)
{
    bool closed;

    if (!accept(r, ')', &closed))
        return false;
    if (!closed)
        return refuse(r, open, "'(' without its ')'");
    return write(r, ")");
}

/* (?=...) and its three kin; up to the '=' or '!' all is taken. */
static bool assertion_read(struct reader *r, struct branch *b, size_t open, bool behind,
                           bool negated)
{
    size_t outer = r->lookbehind_groups;
    struct width width;

    begin_item(r, b, ASSERTION, 0);
    if (behind && !outer)
        r->lookbehind_groups = r->group_count;
    if (!write_format(r, "(?%s%c", behind ? "<" : "", negated ? '!' : '=') ||
        !read_alternatives(r, b->flags, false, &width))
        return false;
    r->lookbehind_groups = outer;
    if (!close_group(r, open))
        return false;
    if (behind && width.least != width.most)
        return refuse(r, open, "a lookbehind must match texts of one length only");
    return true;
}

/* The group that a conditional asks for: a name, or a number that may come later. */
static bool read_condition(struct reader *r, size_t *group)
{
    const char *name;
    size_t length, at = r->next.at;

    if (!read_name(r, ')', &name, &length))
        return false;
    if (strspn(name, "0123456789") < length)
        return find_named(r, name, length, group);
    *group = 0;
    for (size_t i = 0; i < length && *group <= r->length; i++)
        *group = *group * 10 + (size_t)(name[i] - '0');
    if (!*group)
        return refuse(r, at, "groups are numbered from 1");
    if (*group > r->forward) {
        r->forward = *group;
        r->forward_at = at;
    }
    return true;
}

static bool read_branch(struct reader *r, struct branch *b);

/* (?(1)yes|no); "(?(" is taken. */
static bool conditional_read(struct reader *r, struct branch *b, size_t open)
{
    size_t group, at = r->next.at;
    struct branch yes = {.flags = b->flags}, no = {.flags = b->flags};
    bool other;

    if (!read_condition(r, &group))
        return false;
    if (r->lookbehind_groups &&
        (group >= r->group_count ? !refuse(r, at, "reference to group %zu inside itself", group)
                                 : !check_reference(r, group, at)))
        return false;
    begin_item(r, b, GROUP, 0);
    if (!write_format(r, "(?(%zu)", group) || !read_branch(r, &yes) || !accept(r, '|', &other))
        return false;
    if (other && (!write(r, "|") || !read_branch(r, &no)))
        return false;
    if (other && next_is(r, '|'))
        return refuse(r, r->next.at, "a conditional group with more than two branches");
    if (!close_group(r, open))
        return false;
    struct width w = yes.sum, n = no.sum;
    b->last.width = (struct width){!other || n.least < w.least ? n.least : w.least,
                                   other && n.most > w.most ? n.most : w.most};
    return true;
}

static unsigned flag_of(const struct token *t)
{
    static const char letters[] = "imsxauL";
    const char *found =
        t->length && !t->escaped && t->c && t->c < 128 ? strchr(letters, (int)t->c) : NULL;

    return found ? 1u << (found - letters) : 0;
}

/* Letters up to one of `ends`, which stays next. */
static bool read_flags(struct reader *r, const char *ends, unsigned *flags)
{
    *flags = 0;
    for (;;) {
        unsigned flag = flag_of(&r->next);
        if (!flag && *flags)
            for (const char *end = ends; *end; end++)
                if (next_is(r, *end))
                    return true;
        if (!flag)
            return refuse(r, r->next.at, "expected a flag (a, i, m, s, u, x)%s%s",
                          *flags ? " or one of " : "", *flags ? ends : "");
        if (flag == LOCALE)
            return refuse(r, r->next.at, "flag L is for patterns of bytes");
        *flags |= flag;
        if ((*flags & ASCII) && (*flags & UNICODE))
            return refuse(r, r->next.at, "flags a and u exclude each other");
        if (!advance(r))
            return false;
    }
}

static bool global_flags(struct reader *r, struct branch *b, size_t open, unsigned flags)
{
    if (!b->first || b->last.kind != NO_ITEM)
        return refuse(r, open, "flags for the whole pattern must stand at its start");
    r->flags |= flags;
    if ((r->flags & ASCII) && (r->flags & UNICODE))
        return refuse(r, open, "flags a and u exclude each other");
    b->flags = r->flags;
    return advance(r);
}

/* "(?i)", "(?i-s:" or "(?-s:", of which "(?" is taken. *scoped: a group begins, with *flags. */
static bool flags_read(struct reader *r, struct branch *b, size_t open, unsigned *flags,
                       bool *scoped)
{
    unsigned on = 0, off = 0;
    bool minus;

    *scoped = true;
    if (!next_is(r, '-') && !read_flags(r, ")-:", &on))
        return false;
    if (next_is(r, ')')) {
        *scoped = false;
        return global_flags(r, b, open, on);
    }
    if (!accept(r, '-', &minus) || (minus && !read_flags(r, ":", &off)))
        return false;
    if (off & KIND_FLAGS)
        return refuse(r, open, "flags a and u cannot be switched off");
    if (on & off)
        return refuse(r, open, "a flag is switched on and off at once");
    *flags = b->flags;
    if (on & KIND_FLAGS)
        *flags &= ~(unsigned)KIND_FLAGS;
    *flags = (*flags | on) & ~off;
    return advance(r);
}

static bool open_capture(struct reader *r, size_t open, const char *name, size_t name_length)
{
    if (name && find_group(r, name, name_length))
        return refuse(r, open, "a second group is named '%.*s'", cut(name, name_length, 40), name);
    r->groups[r->group_count++] = (struct group){.name = name, .name_length = name_length};
    return true;
}

static bool capture_read(struct reader *r, struct branch *b, size_t open, const char *name,
                         size_t name_length)
{
    size_t number = r->group_count;

    begin_item(r, b, GROUP, 0);
    if (!open_capture(r, open, name, name_length) || !write(r, "(") ||
        !read_alternatives(r, b->flags, false, &b->last.width) || !close_group(r, open))
        return false;
    r->groups[number].width = b->last.width;
    r->groups[number].closed = true;
    return true;
}

/* A group without a number, written with `opening`. */
static bool plain_group_read(struct reader *r, struct branch *b, size_t open, unsigned flags,
                             const char *opening)
{
    begin_item(r, b, GROUP, 0);
    return write(r, opening) && read_alternatives(r, flags, false, &b->last.width) &&
           close_group(r, open);
}

static bool comment_read(struct reader *r, size_t open)
{
    bool end = false;

    while (!end) {
        if (!r->next.length)
            return refuse(r, open, "a comment without its ')'");
        end = next_is(r, ')');
        if (!advance(r))
            return false;
    }
    return true;
}

/* "(?P" is taken. */
static bool python_group_read(struct reader *r, struct branch *b, size_t open)
{
    const char *name;
    size_t length, group;
    bool named, reference = false;

    if (!accept(r, '<', &named) || (!named && !accept(r, '=', &reference)))
        return false;
    if (named)
        return read_name(r, '>', &name, &length) && check_name(r, name, length) &&
               capture_read(r, b, open, name, length);
    if (reference)
        return read_name(r, ')', &name, &length) && find_named(r, name, length, &group) &&
               reference_item(r, b, group, open);
    return refuse(r, open, "'(?P' is followed by neither '<' nor '='");
}

/* (?<=...), (?<!...); "(?<" is taken. */
static bool behind_read(struct reader *r, struct branch *b, size_t open)
{
    bool equal, negated = false;

    if (!accept(r, '=', &equal) || (!equal && !accept(r, '!', &negated)))
        return false;
    if (!equal && !negated)
        return refuse(r, open,
                      "'(?<' is followed by neither '=' nor '!' (a named group is "
                      "(?P<name>...))");
    return assertion_read(r, b, open, true, negated);
}

/* "(?" is taken, the character that tells the kind is next. */
static bool extension_read(struct reader *r, struct branch *b, size_t open)
{
    struct token t = r->next;
    unsigned flags = b->flags;
    bool scoped;

    if (flag_of(&t) || next_is(r, '-')) {
        if (!flags_read(r, b, open, &flags, &scoped))
            return false;
        if (!scoped)
            return true;
        const char *opening = is_caseless(flags) == is_caseless(b->flags) ? "(?:"
                              : is_caseless(flags)                        ? "(?i:"
                                                                          : "(?-i:";
        return plain_group_read(r, b, open, flags, opening);
    }
    if (!t.length)
        return refuse(r, open, "'(?' ends the pattern");
    if (!advance(r))
        return false;
    switch (t.escaped ? 0 : t.c) {
    case 'P':
        return python_group_read(r, b, open);
    case ':':
        return plain_group_read(r, b, open, b->flags, "(?:");
    case '>':
        return plain_group_read(r, b, open, b->flags, "(?>");
    case '#':
        return comment_read(r, open);
    case '=':
    case '!':
        return assertion_read(r, b, open, false, t.c == '!');
    case '<':
        return behind_read(r, b, open);
    case '(':
        return conditional_read(r, b, open);
    default:
        return refuse(r, open, "'(?%.*s' begins no group of Python's", (int)t.length,
                      r->text + t.at);
    }
}

static bool group_read(struct reader *r, struct branch *b, size_t open)
{
    bool extension;

    if (r->depth == OCT_PATTERN_DEPTH_MAX)
        return refuse(r, open, "groups nested deeper than %d", OCT_PATTERN_DEPTH_MAX);
    r->depth++;
    bool read = accept(r, '?', &extension) &&
                (extension ? extension_read(r, b, open) : capture_read(r, b, open, NULL, 0));
    r->depth--;
    return read;
}

/* ---- sequences ---- */

/* In verbose mode: takes white space (done) or a comment's text. *blank: it was one of them. */
static bool skip_blank(struct reader *r, const struct token *t, bool *blank)
{
    *blank = !t->escaped && t->c < 128 && t->c && strchr(" \t\n\r\v\f#", (int)t->c);
    if (!*blank || t->c != '#')
        return true;
    while (r->next.length && !next_is(r, '\n'))
        if (!advance(r))
            return false;
    return !r->next.length || advance(r);
}

static bool read_item(struct reader *r, struct branch *b, const struct token *t)
{
    if (t->escaped)
        return escape_item(r, b, t);
    switch (t->c) {
    case '[':
        return class_read(r, b, t->at);
    case '*':
    case '+':
    case '?':
    case '{':
        return quantifier_read(r, b, t);
    case '.':
        return dot_item(r, b);
    case '(':
        return group_read(r, b, t->at);
    case '^':
        return position_item(r, b, b->flags & MULTILINE ? "^" : "\\A");
    case '$':
        return position_item(r, b, b->flags & MULTILINE ? "$" : "\\Z");
    default:
        return literal_item(r, b, t->c);
    }
}

/* Up to '|', ')' or the end; then b->sum is the width of all. */
static bool read_branch(struct reader *r, struct branch *b)
{
    while (r->next.length && !next_is(r, '|') && !next_is(r, ')')) {
        struct token t = r->next;
        bool blank = false;
        if (!advance(r) || ((b->flags & VERBOSE) && !skip_blank(r, &t, &blank)))
            return false;
        if (!blank && !read_item(r, b, &t))
            return false;
    }
    begin_item(r, b, NO_ITEM, 0);
    return true;
}

/* whole: the pattern itself, whose flags may be set at its start. */
static bool read_alternatives(struct reader *r, unsigned flags, bool whole, struct width *width)
{
    *width = (struct width){WIDE, 0};
    for (bool first = true, more = true; more; first = false) {
        struct branch b = {.flags = whole ? r->flags : flags, .first = whole && first};
        if (!read_branch(r, &b) || !accept(r, '|', &more) || (more && !write(r, "|")))
            return false;
        width->least = b.sum.least < width->least ? b.sum.least : width->least;
        width->most = b.sum.most > width->most ? b.sum.most : width->most;
    }
    return true;
}

static bool read_pattern(struct reader *r)
{
    struct width width;

    for (size_t i = 0; i < r->length;) {
        uint32_t c;
        int length = oct_utf8_read(r->text + i, &c);
        if (!length) {
            r->status = octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL,
                                   "byte %zu of the pattern is not UTF-8", i);
            return false;
        }
        i += (size_t)length;
    }
    if (!advance_to(r, 0) || !read_alternatives(r, 0, true, &width))
        return false;
    if (r->next.length)
        return refuse(r, r->next.at, "')' without its '('");
    if (r->forward >= r->group_count)
        return refuse(r, r->forward_at, "reference to group %zu, but there are %zu", r->forward,
                      r->group_count - 1);
    return true;
}

enum octet_status oct_pattern_translate(octet_arena *arena, const char *pattern, size_t length,
                                        struct oct_translation *out, struct octet_error *err)
{
    struct reader r = {.arena = arena, .err = err, .text = pattern, .length = length};
    size_t groups = 1;

    for (size_t i = 0; i < length; i++)
        groups += pattern[i] == '(';
    r.groups = OCTET_NEW_ARRAY(arena, groups, struct group);
    r.group_count = 1;
    if (!r.groups)
        return octet_arena_exhausted(arena, err);
    if (!read_pattern(&r) || !write_bytes(&r, "", 1))
        return r.status;
    *out = (struct oct_translation){
        .text = r.out, .length = r.out_length - 1, .caseless = is_caseless(r.flags)};
    return OCTET_OK;
}
