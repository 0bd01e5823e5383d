/* Groups, assertions, conditionals, flags; see reader_private.h. */
#include <string.h>

#include "rules/reader_private.h"
#include "rules/translate_private.h"

/* ---- names and references ---- */

/* The name up to `end`, which is taken too. */
static bool read_name(struct reader *r, char end, const char **name, size_t *length)
{
    size_t at = r->next.at;

    *name = r->text + at;
    while (!oct_reader_next_is(r, end)) {
        if (!r->next.length)
            return oct_reader_refuse(r, at, "a group's name without its '%c'", end);
        if (!oct_reader_advance(r))
            return false;
    }
    *length = r->next.at - at;
    return *length ? oct_reader_advance(r) : oct_reader_refuse(r, at, "a group's name is missing");
}

static bool check_name(struct reader *r, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (!oct_is_letter(c) && c != '_' && (i == 0 || c < '0' || c > '9'))
            return oct_reader_refuse(
                r, (size_t)(name - r->text),
                "'%.*s' is no name for a group (ASCII letters, digits and '_')",
                oct_reader_cut(name, length, 40), name);
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
        return oct_reader_refuse(r, (size_t)(name - r->text),
                                 "no group before this is named '%.*s'",
                                 oct_reader_cut(name, length, 40), name);
    return true;
}

static bool close_group(struct reader *r, size_t open)
{
    bool closed;

    if (!oct_reader_accept(r, ')', &closed))
        return false;
    if (!closed)
        return oct_reader_refuse(r, open, "'(' without its ')'");
    return oct_reader_write(r, ")");
}

/* (?=...) and its three kin; up to the '=' or '!' all is taken. */
static bool assertion_read(struct reader *r, struct branch *b, size_t open, bool behind,
                           bool negated)
{
    size_t outer = r->lookbehind_groups;
    struct width width;

    oct_reader_begin_item(r, b, OCT_ASSERTION, 0);
    if (behind && !outer)
        r->lookbehind_groups = r->group_count;
    if (!oct_reader_write_format(r, "(?%s%c", behind ? "<" : "", negated ? '!' : '=') ||
        !oct_read_alternatives(r, b->flags, false, &width))
        return false;
    r->lookbehind_groups = outer;
    if (!close_group(r, open))
        return false;
    if (behind && width.least != width.most)
        return oct_reader_refuse(r, open, "a lookbehind must match texts of one length only");
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
        return oct_reader_refuse(r, at, "groups are numbered from 1");
    if (*group > r->forward) {
        r->forward = *group;
        r->forward_at = at;
    }
    return true;
}

/* A conditional in a lookbehind asks only for groups that a back-reference may name there. */
static bool check_behind(struct reader *r, size_t group, size_t at)
{
    if (group >= r->group_count)
        return oct_reader_refuse(r, at, "reference to group %zu, which is not before it", group);
    return oct_reader_check_reference(r, group, at);
}

/* (?(1)yes|no); "(?(" is taken. */
static bool conditional_read(struct reader *r, struct branch *b, size_t open)
{
    size_t group, at = r->next.at;
    struct branch yes = {.flags = b->flags}, no = {.flags = b->flags};
    bool other;

    if (!read_condition(r, &group))
        return false;
    if (r->lookbehind_groups && !check_behind(r, group, at))
        return false;
    oct_reader_begin_item(r, b, OCT_GROUP, 0);
    if (!oct_reader_write_format(r, "(?(%zu)", group) || !oct_read_branch(r, &yes) ||
        !oct_reader_accept(r, '|', &other))
        return false;
    if (other && (!oct_reader_write(r, "|") || !oct_read_branch(r, &no)))
        return false;
    if (other && oct_reader_next_is(r, '|'))
        return oct_reader_refuse(r, r->next.at, "a conditional group with more than two branches");
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
                if (oct_reader_next_is(r, *end))
                    return true;
        if (!flag)
            return oct_reader_refuse(r, r->next.at, "expected a flag (a, i, m, s, u, x)%s%s",
                                     *flags ? " or one of " : "", *flags ? ends : "");
        if (flag == OCT_LOCALE)
            return oct_reader_refuse(r, r->next.at, "flag L is for patterns of bytes");
        *flags |= flag;
        if ((*flags & OCT_ASCII) && (*flags & OCT_UNICODE))
            return oct_reader_refuse(r, r->next.at, "flags a and u exclude each other");
        if (!oct_reader_advance(r))
            return false;
    }
}

static bool global_flags(struct reader *r, struct branch *b, size_t open, unsigned flags)
{
    if (!b->first || b->last.kind != OCT_NO_ITEM)
        return oct_reader_refuse(r, open, "flags for the whole pattern must stand at its start");
    r->flags |= flags;
    if ((r->flags & OCT_ASCII) && (r->flags & OCT_UNICODE))
        return oct_reader_refuse(r, open, "flags a and u exclude each other");
    b->flags = r->flags;
    return oct_reader_advance(r);
}

/* "(?i)", "(?i-s:" or "(?-s:", of which "(?" is taken. *scoped: a group begins, with *flags. */
static bool flags_read(struct reader *r, struct branch *b, size_t open, unsigned *flags,
                       bool *scoped)
{
    unsigned on = 0, off = 0;
    bool minus;

    *scoped = true;
    if (!oct_reader_next_is(r, '-') && !read_flags(r, ")-:", &on))
        return false;
    if (oct_reader_next_is(r, ')')) {
        *scoped = false;
        return global_flags(r, b, open, on);
    }
    if (!oct_reader_accept(r, '-', &minus) || (minus && !read_flags(r, ":", &off)))
        return false;
    if (off & OCT_KIND_FLAGS)
        return oct_reader_refuse(r, open, "flags a and u cannot be switched off");
    if (on & off)
        return oct_reader_refuse(r, open, "a flag is switched on and off at once");
    *flags = b->flags;
    if (on & OCT_KIND_FLAGS)
        *flags &= ~(unsigned)OCT_KIND_FLAGS;
    *flags = (*flags | on) & ~off;
    return oct_reader_advance(r);
}

static bool open_capture(struct reader *r, size_t open, const char *name, size_t name_length)
{
    if (name && find_group(r, name, name_length))
        return oct_reader_refuse(r, open, "a second group is named '%.*s'",
                                 oct_reader_cut(name, name_length, 40), name);
    r->groups[r->group_count++] = (struct group){.name = name, .name_length = name_length};
    return true;
}

static bool capture_read(struct reader *r, struct branch *b, size_t open, const char *name,
                         size_t name_length)
{
    size_t number = r->group_count;

    oct_reader_begin_item(r, b, OCT_GROUP, 0);
    if (!open_capture(r, open, name, name_length) || !oct_reader_write(r, "(") ||
        !oct_read_alternatives(r, b->flags, false, &b->last.width) || !close_group(r, open))
        return false;
    r->groups[number].width = b->last.width;
    r->groups[number].closed = true;
    return true;
}

/* A group without a number, written with `opening`. */
static bool plain_group_read(struct reader *r, struct branch *b, size_t open, unsigned flags,
                             const char *opening)
{
    oct_reader_begin_item(r, b, OCT_GROUP, 0);
    return oct_reader_write(r, opening) && oct_read_alternatives(r, flags, false, &b->last.width) &&
           close_group(r, open);
}

static bool comment_read(struct reader *r, size_t open)
{
    bool end = false;

    while (!end) {
        if (!r->next.length)
            return oct_reader_refuse(r, open, "a comment without its ')'");
        end = oct_reader_next_is(r, ')');
        if (!oct_reader_advance(r))
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

    if (!oct_reader_accept(r, '<', &named) || (!named && !oct_reader_accept(r, '=', &reference)))
        return false;
    if (named)
        return read_name(r, '>', &name, &length) && check_name(r, name, length) &&
               capture_read(r, b, open, name, length);
    if (reference)
        return read_name(r, ')', &name, &length) && find_named(r, name, length, &group) &&
               oct_read_reference(r, b, group, open);
    return oct_reader_refuse(r, open, "'(?P' is followed by neither '<' nor '='");
}

/* (?<=...), (?<!...); "(?<" is taken. */
static bool behind_read(struct reader *r, struct branch *b, size_t open)
{
    bool equal, negated = false;

    if (!oct_reader_accept(r, '=', &equal) || (!equal && !oct_reader_accept(r, '!', &negated)))
        return false;
    if (!equal && !negated)
        return oct_reader_refuse(r, open,
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

    if (flag_of(&t) || oct_reader_next_is(r, '-')) {
        if (!flags_read(r, b, open, &flags, &scoped))
            return false;
        if (!scoped)
            return true;
        const char *opening = oct_is_caseless(flags) == oct_is_caseless(b->flags) ? "(?:"
                              : oct_is_caseless(flags)                            ? "(?i:"
                                                                                  : "(?-i:";
        return plain_group_read(r, b, open, flags, opening);
    }
    if (!t.length)
        return oct_reader_refuse(r, open, "'(?' ends the pattern");
    if (!oct_reader_advance(r))
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
        return oct_reader_refuse(r, open, "'(?%.*s' begins no group of Python's", (int)t.length,
                                 r->text + t.at);
    }
}

bool oct_read_group(struct reader *r, struct branch *b, size_t open)
{
    bool extension;

    if (r->depth == OCT_PATTERN_DEPTH_MAX)
        return oct_reader_refuse(r, open, "groups nested deeper than %d", OCT_PATTERN_DEPTH_MAX);
    r->depth++;
    bool read = oct_reader_accept(r, '?', &extension) &&
                (extension ? extension_read(r, b, open) : capture_read(r, b, open, NULL, 0));
    r->depth--;
    return read;
}
