/* Python's regular expressions -> PCRE2's.
 *
 * For: reading a pattern as Python 3.12's re reads a str pattern, refusing what Python refuses, and
 * writing the same language in syntax that PCRE2 cannot understand differently.
 * Not for: matching (pattern.c). */
#ifndef OCTET_RULES_TRANSLATE_PRIVATE_H
#define OCTET_RULES_TRANSLATE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "octet/arena.h"

/* Groups nested deeper are refused: reader and PCRE2's compiler recurse once a level. */
enum { OCT_PATTERN_DEPTH_MAX = 200 };

struct oct_translation {
    const char *text; /* UTF-8, in the arena */
    size_t length;
    bool caseless; /* the whole pattern, by (?i) at its start */
};

/* The result is meant for PCRE2_UTF, UCP, DOTALL, MULTILINE and ALT_CIRCUMFLEX, with LF as the only
 * newline: it says \N for Python's dot, \A and \Z where Python's ^ and $ are not multi-line.
 * Errors: INVALID_ARGUMENT, no field, "... at position 8" (characters from 0, as Python counts);
 * RESOURCE_EXHAUSTED. */
enum octet_status oct_pattern_translate(octet_arena *arena, const char *pattern, size_t length,
                                        struct oct_translation *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;

/* `text` for a message: one line, cut to whole characters that fit into `size` bytes. Returns
 * buffer. */
const char *oct_pattern_show(const char *text, char *buffer, size_t size);

#endif
