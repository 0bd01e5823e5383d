/* Sets of characters, as Python's classes and escapes mean them.
 *
 * For: building a set range by range and writing it as a PCRE2 class.
 * Not for: testing membership; PCRE2 does that. */
#ifndef OCTET_RULES_CHARSET_PRIVATE_H
#define OCTET_RULES_CHARSET_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OCT_CHARSET_RANGES_MAX = 250 };

/* Sorted, disjoint, never touching. Room for the largest number, and for what one more step adds.
 */
struct oct_charset {
    bool negated;
    bool ascii; /* \d \s \w are ASCII's, as under Python's flag a */
    unsigned
        categories; /* Unicode's \d \D \w \W, left to PCRE2: its letters and numbers are Python's */
    size_t count;
    struct {
        uint32_t low, high;
    } ranges[OCT_CHARSET_RANGES_MAX + 20];
};

void oct_charset_add(struct oct_charset *set, uint32_t low, uint32_t high);

/* Adds the category that `letter` stands for: d D s S w W. False: none does. */
bool oct_charset_add_category(struct oct_charset *set, uint32_t letter);

/* Adds what Python's flag i takes for the same character and PCRE2's caseless mode does not:
 * ascii: the other case of ASCII letters (for use without caseless mode); else the few sets of
 * letters in which the two differ. */
void oct_charset_add_cases(struct oct_charset *set, bool ascii);

/* More than OCT_CHARSET_RANGES_MAX ranges: refuse it before adding more. */
bool oct_charset_is_full(const struct oct_charset *set);

/* Writes one PCRE2 item that matches one character. False when `put` said false. */
bool oct_charset_write(const struct oct_charset *set, bool (*put)(void *user, const char *text),
                       void *user);

/* The character at `text`, which ends in NUL. Returns its bytes, 0 for what is not UTF-8. */
int oct_utf8_read(const char *text, uint32_t *c);

#endif
