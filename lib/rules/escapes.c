/* Literals, escapes, classes; see reader_private.h. */
#include <inttypes.h>
#include <string.h>

#include "rules/charset_private.h"
#include "rules/reader_private.h"

/* ---- items ---- */

bool oct_read_position(struct reader *r, struct branch *b, const char *text)
{
    oct_reader_begin_item(r, b, OCT_POSITION, 0);
    return oct_reader_write(r, text);
}

static bool write_on(void *user, const char *text)
{
    return oct_reader_write(user, text);
}

static bool class_item(struct reader *r, struct branch *b, struct oct_charset *set)
{
    oct_reader_begin_item(r, b, OCT_UNIT, 1);
    if (b->flags & OCT_IGNORE_CASE)
        oct_charset_add_cases(set, b->flags & OCT_ASCII);
    return oct_charset_write(set, write_on, r);
}

bool oct_read_literal(struct reader *r, struct branch *b, uint32_t c)
{
    struct oct_charset set = {.ascii = b->flags & OCT_ASCII};

    oct_charset_add(&set, c, c);
    return class_item(r, b, &set);
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
        else if ((d | 32) >= 'a' && (d | 32) <= 'f' && oct_is_letter(d))
            *c = *c * 16 + ((d | 32) - 'a' + 10);
        else
            return oct_reader_refuse(r, escape->at, "\\%c takes %d hexadecimal digits",
                                     (int)escape->c, digits);
        if (!oct_reader_advance(r))
            return false;
    }
    if (*c > 0x10ffff)
        return oct_reader_refuse(r, escape->at,
                                 "\\U%08" PRIX32 " is beyond the last character, 10FFFF", *c);
    return true;
}

/* Up to `more` further octal digits. */
static bool read_octal(struct reader *r, const struct token *escape, int more, uint32_t *c)
{
    for (; more && oct_token_is_octal(&r->next); more--) {
        *c = *c * 8 + (r->next.c - '0');
        if (!oct_reader_advance(r))
            return false;
    }
    if (*c > 0377)
        return oct_reader_refuse(r, escape->at, "octal escape \\%03" PRIo32 " is above \\377", *c);
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
        return oct_reader_refuse(r, t->at,
                                 "names of characters (\\N{...}) are not supported; write \\uXXXX");
    *known = !oct_is_letter(t->c) && !(t->c >= '0' && t->c <= '9');
    *c = t->c;
    return true;
}

/* The group behind a back-reference must be complete, and not begin in the same lookbehind. */
bool oct_reader_check_reference(struct reader *r, size_t group, size_t at)
{
    if (!r->groups[group].closed)
        return oct_reader_refuse(r, at, "reference to group %zu inside itself", group);
    if (r->lookbehind_groups && group >= r->lookbehind_groups)
        return oct_reader_refuse(r, at, "reference to group %zu of the same lookbehind", group);
    return true;
}

bool oct_read_reference(struct reader *r, struct branch *b, size_t group, size_t at)
{
    if (!oct_reader_check_reference(r, group, at))
        return false;
    oct_reader_begin_item(r, b, OCT_UNIT, 0);
    b->last.width = r->groups[group].width;
    /* Where both cases are written out, the reference still has to ignore case. */
    if ((b->flags & OCT_IGNORE_CASE) && !oct_is_caseless(b->flags))
        return oct_reader_write_format(r, "(?i:\\g{%zu})", group);
    return oct_reader_write_format(r, "\\g{%zu}", group);
}

/* \0 and three octal digits are a character, other digits a group. */
static bool digits_item(struct reader *r, struct branch *b, const struct token *t)
{
    uint32_t value = t->c - '0';

    if (t->c == '0') {
        if (!read_octal(r, t, 2, &value))
            return false;
        return oct_read_literal(r, b, value);
    }
    if (oct_token_is_digit(&r->next)) {
        struct token second = r->next;
        if (!oct_reader_advance(r))
            return false;
        if (t->c < '8' && oct_token_is_octal(&second) && oct_token_is_octal(&r->next)) {
            value = value * 8 + (second.c - '0');
            return read_octal(r, t, 1, &value) && oct_read_literal(r, b, value);
        }
        value = value * 10 + (second.c - '0');
    }
    if (value >= r->group_count)
        return oct_reader_refuse(r, t->at, "reference to group %" PRIu32 ", but %zu are before it",
                                 value, r->group_count - 1);
    return oct_read_reference(r, b, value, t->at);
}

static bool boundary_item(struct reader *r, struct branch *b, bool negated)
{
#define WORD "[0-9A-Z_a-z]"
    if (b->flags & OCT_ASCII)
        return oct_read_position(
            r, b,
            negated ? "(?!\\A\\z)(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))"
                    : "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))");
#undef WORD
    /* In Python before 3.14 an empty text has no place that is no boundary. */
    return oct_read_position(r, b, negated ? "(?!\\A\\z)\\B" : "\\b");
}

bool oct_read_escape(struct reader *r, struct branch *b, const struct token *t)
{
    struct oct_charset set = {.ascii = b->flags & OCT_ASCII};
    uint32_t c;
    bool known;

    if (t->c >= '0' && t->c <= '9')
        return digits_item(r, b, t);
    if (t->c == 'A')
        return oct_read_position(r, b, "\\A");
    if (t->c == 'Z')
        return oct_read_position(r, b, "\\z");
    if (t->c == 'b' || t->c == 'B')
        return boundary_item(r, b, t->c == 'B');
    if (oct_charset_add_category(&set, t->c))
        return class_item(r, b, &set);
    if (!read_character_escape(r, t, &c, &known))
        return false;
    if (!known)
        return oct_reader_refuse(r, t->at, "\\%c is no escape of Python's", (int)t->c);
    return oct_read_literal(r, b, c);
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
    return known ||
           oct_reader_refuse(r, t->at, "\\%c is no escape of Python's in a class", (int)t->c);
}

static bool take_member_token(struct reader *r, size_t open, struct token *t)
{
    *t = r->next;
    if (!t->length)
        return oct_reader_refuse(r, open, "'[' without its ']'");
    return oct_reader_advance(r);
}

/* "a", "\d", "a-z" or a "-" before the end. *closed: the ']' was taken too. */
static bool class_element(struct reader *r, const struct token *t, size_t open,
                          struct oct_charset *set, bool *closed)
{
    struct token to;
    uint32_t low, high;
    bool low_category, high_category, dash;

    if (!class_member(r, t, set, &low, &low_category) || !oct_reader_accept(r, '-', &dash))
        return false;
    *closed = dash && oct_reader_next_is(r, ']');
    if (!dash || *closed) {
        if (!low_category)
            oct_charset_add(set, low, low);
        if (*closed)
            oct_charset_add(set, '-', '-');
        return !*closed || oct_reader_advance(r);
    }
    if (!take_member_token(r, open, &to) || !class_member(r, &to, set, &high, &high_category))
        return false;
    if (low_category || high_category || high < low)
        return oct_reader_refuse(r, t->at, "bad range in a class");
    oct_charset_add(set, low, high);
    return true;
}

bool oct_read_class(struct reader *r, struct branch *b, size_t open)
{
    struct oct_charset set = {.ascii = b->flags & OCT_ASCII};
    bool closed = false;

    if (!oct_reader_accept(r, '^', &set.negated))
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
            return oct_reader_refuse(r, open, "a class of more than %d ranges",
                                     OCT_CHARSET_RANGES_MAX);
    }
    return class_item(r, b, &set);
}
