/* A reader of Python's pattern syntax that writes PCRE2's as it goes.
 *
 * For: see translate_private.h.
 * Not for: speed; a pattern is read once.
 * Decision: nothing of the source is copied through. Every item is read, checked and written anew
 * (literals escaped, classes as ranges of code points, names as numbers), so that syntax which only
 * PCRE2 has (\K, \R, (*VERB), (?R), [[:alpha:]], ...) cannot pass by accident.
 *
 * The two still differ in this:
 *
 * 1. Letters that are first assigned in Unicode 15 are unknown to PCRE2 10.42, which has
 * Unicode 14.
 *
 * 2. A back-reference under (?i) compares by case folding in PCRE2 and by lower-casing in Python;
 * they part for some sixty letters outside ASCII, such as the long s.
 *
 * 3. A turn of a repeat that matched nothing ends the repeat in Python, and not always in PCRE2. It
 * shows only where the repeated group asks for itself, as "(?(1)" or "\1", in its next turn.
 *
 * 4. Refused here: repeat counts above 65535, \N{NAME}, names of groups outside ASCII.
 *
 * Source: Python 3.12, re/_parser.py and re/_compiler.py. */
#include "rules/translate_private.h"

#include <inttypes.h>
#include <string.h>

#include "rules/charset_private.h"
#include "rules/reader_private.h"

enum { REPEAT_MAX = 65535 };

/* ---- quantifiers ---- */

struct repeat {
    uint64_t least, most; /* most = OCT_WIDE: no bound */
};

static bool read_count(struct reader *r, size_t at, uint64_t *count, bool *given)
{
    *given = oct_token_is_digit(&r->next);
    if (*given)
        *count = 0;
    while (oct_token_is_digit(&r->next)) {
        *count = *count * 10 + (r->next.c - '0');
        if (*count > REPEAT_MAX)
            return oct_reader_refuse(r, at, "a repeat count above %d", REPEAT_MAX);
        if (!oct_reader_advance(r))
            return false;
    }
    return true;
}

/* "{2}", "{2,}", "{,3}", "{2,3}"; anything else is a literal '{', and *literal says so. */
static bool read_braces(struct reader *r, const struct token *t, struct repeat *n, bool *literal)
{
    size_t behind = r->next.at;
    bool low_given, high_given, comma, end;

    *n = (struct repeat){0, OCT_WIDE};
    *literal = oct_reader_next_is(r, '}');
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

    if (!read_count(r, t->at, &n->least, &low_given) || !oct_reader_accept(r, ',', &comma))
        return false;
    if (comma && !read_count(r, t->at, &n->most, &high_given))
        return false;
    if (!comma)
        n->most = n->least;
    if (n->most < n->least)
        return oct_reader_refuse(r, t->at, "a repeat count with its least above its most");
    return oct_reader_accept(r, '}', &end);
}

static bool write_repeat(struct reader *r, struct repeat n)
{
    if (n.least == 0 && n.most == OCT_WIDE)
        return oct_reader_write(r, "*");
    if (n.least == 1 && n.most == OCT_WIDE)
        return oct_reader_write(r, "+");
    if (n.least == 0 && n.most == 1)
        return oct_reader_write(r, "?");
    if (n.most == OCT_WIDE)
        return oct_reader_write_format(r, "{%" PRIu64 ",}", n.least);
    if (n.most == n.least)
        return oct_reader_write_format(r, "{%" PRIu64 "}", n.least);
    return oct_reader_write_format(r, "{%" PRIu64 ",%" PRIu64 "}", n.least, n.most);
}

static bool repeat_item(struct reader *r, struct branch *b, const struct token *t, struct repeat n)
{
    struct item *item = &b->last;
    bool lazy, possessive = false;

    if (item->kind == OCT_NO_ITEM || item->kind == OCT_POSITION)
        return oct_reader_refuse(r, t->at, "'%c' with nothing before it to repeat", (int)t->c);
    if (item->kind == OCT_REPEATED)
        return oct_reader_refuse(r, t->at, "'%c' repeats what is repeated already", (int)t->c);
    if (!oct_reader_accept(r, '?', &lazy) || (!lazy && !oct_reader_accept(r, '+', &possessive)))
        return false;
    if (item->kind == OCT_ASSERTION && !oct_reader_wrap(r, item->start, "(?:"))
        return false;
    /* Python never goes back into a turn of a possessive repeat, even to reach the least count. */
    if (item->kind == OCT_GROUP && possessive && n.least > 1 &&
        !oct_reader_wrap(r, item->start, "(?>"))
        return false;
    item->kind = OCT_REPEATED;
    item->width.least = oct_width_times(item->width.least, n.least);
    item->width.most = item->width.most ? oct_width_times(item->width.most, n.most) : 0;
    return write_repeat(r, n) && (!lazy || oct_reader_write(r, "?")) &&
           (!possessive || oct_reader_write(r, "+"));
}

static bool quantifier_read(struct reader *r, struct branch *b, const struct token *t)
{
    struct repeat n = {t->c == '+', t->c == '?' ? 1 : OCT_WIDE};
    bool literal = false;

    if (t->c == '{' && !read_braces(r, t, &n, &literal))
        return false;
    return literal ? oct_read_literal(r, b, '{') : repeat_item(r, b, t, n);
}

/* ---- sequences ---- */

static bool dot_item(struct reader *r, struct branch *b)
{
    oct_reader_begin_item(r, b, OCT_UNIT, 1);
    return oct_reader_write(r, b->flags & OCT_DOT_ALL ? "." : "\\N");
}

/* In verbose mode: takes white space (done) or a comment's text. *blank: it was one of them. */
static bool skip_blank(struct reader *r, const struct token *t, bool *blank)
{
    *blank = !t->escaped && t->c < 128 && t->c && strchr(" \t\n\r\v\f#", (int)t->c);
    if (!*blank || t->c != '#')
        return true;
    while (r->next.length && !oct_reader_next_is(r, '\n'))
        if (!oct_reader_advance(r))
            return false;
    return !r->next.length || oct_reader_advance(r);
}

static bool read_item(struct reader *r, struct branch *b, const struct token *t)
{
    if (t->escaped)
        return oct_read_escape(r, b, t);
    switch (t->c) {
    case '[':
        return oct_read_class(r, b, t->at);
    case '*':
    case '+':
    case '?':
    case '{':
        return quantifier_read(r, b, t);
    case '.':
        return dot_item(r, b);
    case '(':
        return oct_read_group(r, b, t->at);
    case '^':
        return oct_read_position(r, b, b->flags & OCT_MULTILINE ? "^" : "\\A");
    case '$':
        return oct_read_position(r, b, b->flags & OCT_MULTILINE ? "$" : "\\Z");
    default:
        return oct_read_literal(r, b, t->c);
    }
}

/* Up to '|', ')' or the end; then b->sum is the width of all. */
bool oct_read_branch(struct reader *r, struct branch *b)
{
    while (r->next.length && !oct_reader_next_is(r, '|') && !oct_reader_next_is(r, ')')) {
        struct token t = r->next;
        bool blank = false;
        if (!oct_reader_advance(r) || ((b->flags & OCT_VERBOSE) && !skip_blank(r, &t, &blank)))
            return false;
        if (!blank && !read_item(r, b, &t))
            return false;
    }
    oct_reader_begin_item(r, b, OCT_NO_ITEM, 0);
    return true;
}

/* whole: the pattern itself, whose flags may be set at its start. */
bool oct_read_alternatives(struct reader *r, unsigned flags, bool whole, struct width *width)
{
    *width = (struct width){OCT_WIDE, 0};
    for (bool first = true, more = true; more; first = false) {
        struct branch b = {.flags = whole ? r->flags : flags, .first = whole && first};
        if (!oct_read_branch(r, &b) || !oct_reader_accept(r, '|', &more) ||
            (more && !oct_reader_write(r, "|")))
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
    if (!oct_reader_advance_to(r, 0) || !oct_read_alternatives(r, 0, true, &width))
        return false;
    if (r->next.length)
        return oct_reader_refuse(r, r->next.at, "')' without its '('");
    if (r->forward >= r->group_count)
        return oct_reader_refuse(r, r->forward_at, "reference to group %zu, but there are %zu",
                                 r->forward, r->group_count - 1);
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
    if (!read_pattern(&r) || !oct_reader_write_bytes(&r, "", 1))
        return r.status;
    *out = (struct oct_translation){
        .text = r.out, .length = r.out_length - 1, .caseless = oct_is_caseless(r.flags)};
    return OCTET_OK;
}
