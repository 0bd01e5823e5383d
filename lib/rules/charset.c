/* Classes as lists of ranges; see charset_private.h.
 *
 * Decision: white space is written out, since PCRE2's \s differs (it lacks 1C-1F and has 180E), and
 * so are ASCII's categories, for which PCRE2 10.42 has no switch. \d and \w were compared for all
 * code points: with Unicode's properties they are Python's, but for characters that are new in
 * Unicode 15. Source: Python 3.12, re/_casefix.py; PCRE2 10.42's tables, compared code point by
 * code point. */
#include "rules/charset_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LAST = 0x10ffff, FIRST_SURROGATE = 0xd800, LAST_SURROGATE = 0xdfff };
enum { DIGIT = 1, NO_DIGIT = 2, WORD = 4, NO_WORD = 8 };

struct range {
    uint32_t low, high;
};

/* Each list ascends and ends with high = 0. */
static const struct range unicode_space[] = {{0x9, 0xd},
                                             {0x1c, 0x20},
                                             {0x85, 0x85},
                                             {0xa0, 0xa0},
                                             {0x1680, 0x1680},
                                             {0x2000, 0x200a},
                                             {0x2028, 0x2029},
                                             {0x202f, 0x202f},
                                             {0x205f, 0x205f},
                                             {0x3000, 0x3000},
                                             {0, 0}};
static const struct range ascii_space[] = {{0x9, 0xd}, {0x20, 0x20}, {0, 0}};
static const struct range ascii_digit[] = {{'0', '9'}, {0, 0}};
static const struct range ascii_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {0, 0}};

/* Characters that Python takes for one under flag i, and PCRE2 does not. */
static const uint32_t same_letters[][4] = {
    {'I', 'i', 0x130, 0x131}, {0x390, 0x1fd3}, {0x3b0, 0x1fe3}, {0xfb05, 0xfb06}};

void oct_charset_add(struct oct_charset *set, uint32_t low, uint32_t high)
{
    size_t from = 0, to;

    /* [from, to) are the ranges that touch the new one. */
    while (from < set->count && set->ranges[from].high + 1 < low)
        from++;
    for (to = from; to < set->count && set->ranges[to].low <= high + 1; to++) {
        if (set->ranges[to].low < low)
            low = set->ranges[to].low;
        if (set->ranges[to].high > high)
            high = set->ranges[to].high;
    }
    if (from == to && set->count == sizeof set->ranges / sizeof set->ranges[0])
        return; /* cannot be: callers stop when it is full */
    memmove(&set->ranges[from + 1], &set->ranges[to], (set->count - to) * sizeof set->ranges[0]);
    set->ranges[from].low = low;
    set->ranges[from].high = high;
    set->count = set->count + 1 - (to - from);
}

static void add_list(struct oct_charset *set, const struct range *list, bool complement)
{
    uint32_t from = 0;

    for (; list->high; list++) {
        if (!complement)
            oct_charset_add(set, list->low, list->high);
        else if (list->low > from)
            oct_charset_add(set, from, list->low - 1);
        from = list->high + 1;
    }
    if (complement)
        oct_charset_add(set, from, LAST);
}

bool oct_charset_add_category(struct oct_charset *set, uint32_t letter)
{
    bool upper = letter == 'D' || letter == 'S' || letter == 'W';

    switch (letter) {
    case 's':
    case 'S':
        add_list(set, set->ascii ? ascii_space : unicode_space, upper);
        return true;
    case 'd':
    case 'D':
        if (set->ascii)
            add_list(set, ascii_digit, upper);
        else
            set->categories |= upper ? NO_DIGIT : DIGIT;
        return true;
    case 'w':
    case 'W':
        if (set->ascii)
            add_list(set, ascii_word, upper);
        else
            set->categories |= upper ? NO_WORD : WORD;
        return true;
    }
    return false;
}

static bool holds(const struct oct_charset *set, uint32_t c)
{
    for (size_t i = 0; i < set->count; i++)
        if (c >= set->ranges[i].low && c <= set->ranges[i].high)
            return true;
    return false;
}

void oct_charset_add_cases(struct oct_charset *set, bool ascii)
{
    if (ascii) {
        for (uint32_t c = 'a'; c <= 'z'; c++) {
            bool lower = holds(set, c), upper = holds(set, c - 32);
            if (lower != upper)
                oct_charset_add(set, lower ? c - 32 : c, lower ? c - 32 : c);
        }
        return;
    }
    for (size_t i = 0; i < sizeof same_letters / sizeof same_letters[0]; i++) {
        bool any = false;
        for (size_t k = 0; k < 4 && same_letters[i][k]; k++)
            any |= holds(set, same_letters[i][k]);
        for (size_t k = 0; any && k < 4 && same_letters[i][k]; k++)
            oct_charset_add(set, same_letters[i][k], same_letters[i][k]);
    }
}

bool oct_charset_is_full(const struct oct_charset *set)
{
    return set->count > OCT_CHARSET_RANGES_MAX;
}

/* ---- writing ---- */

struct writer {
    bool (*put)(void *user, const char *text);
    void *user;
    bool ok;
};

static void put(struct writer *w, const char *text)
{
    w->ok = w->ok && w->put(w->user, text);
}

/* In a class or outside, no character but these is written as itself. */
static void put_character(struct writer *w, uint32_t c)
{
    char text[16];
    bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                 c == '_' || c == '/';

    if (plain)
        snprintf(text, sizeof text, "%c", (int)c);
    else
        snprintf(text, sizeof text, "\\x{%" PRIx32 "}", c);
    put(w, text);
}

static void put_range(struct writer *w, uint32_t low, uint32_t high)
{
    if (low > high)
        return;
    put_character(w, low);
    if (high > low + 1)
        put(w, "-");
    if (high > low)
        put_character(w, high);
}

/* UTF-8 has no surrogates, so leaving them out changes no match. */
static void put_ranges(struct writer *w, const struct oct_charset *set)
{
    for (size_t i = 0; i < set->count; i++) {
        uint32_t low = set->ranges[i].low, high = set->ranges[i].high;
        put_range(w, low, high < FIRST_SURROGATE ? high : FIRST_SURROGATE - 1);
        put_range(w, low > LAST_SURROGATE ? low : LAST_SURROGATE + 1, high);
    }
}

static bool only_surrogates(const struct oct_charset *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->ranges[i].low < FIRST_SURROGATE || set->ranges[i].high > LAST_SURROGATE)
            return false;
    return !set->categories;
}

bool oct_charset_write(const struct oct_charset *set, bool (*write)(void *user, const char *text),
                       void *user)
{
    struct writer w = {.put = write, .user = user, .ok = true};

    if (only_surrogates(set)) { /* no character, or any: PCRE2 knows no empty class */
        put(&w, set->negated ? "[\\x{0}-\\x{10ffff}]" : "[^\\x{0}-\\x{10ffff}]");
        return w.ok;
    }
    if (!set->negated && !set->categories && set->count == 1 &&
        set->ranges[0].low == set->ranges[0].high) {
        put_character(&w, set->ranges[0].low);
        return w.ok;
    }
    put(&w, set->negated ? "[^" : "[");
    put_ranges(&w, set);
    put(&w, set->categories & DIGIT ? "\\d" : "");
    put(&w, set->categories & NO_DIGIT ? "\\D" : "");
    put(&w, set->categories & WORD ? "\\w" : "");
    put(&w, set->categories & NO_WORD ? "\\W" : "");
    put(&w, "]");
    return w.ok;
}

int oct_utf8_read(const char *text, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (length <= 1) {
        *c = p[0];
        return length;
    }
    *c = p[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) /* NUL ends it too */
            return 0;
        *c = *c << 6 | (p[i] & 0x3f);
    }
    bool surrogate = *c >= FIRST_SURROGATE && *c <= LAST_SURROGATE;
    return *c < least[length] || *c > LAST || surrogate ? 0 : length;
}
