/* Compiled patterns inside a set of rules.
 *
 * For: compiling into an arena that its owner keeps, and matching from any thread.
 * Not for: outsiders, who have octet_pattern (octet/rules.h).
 *
 * Life: a compiled pattern lives in the arena and is immutable. */
#ifndef OCTET_RULES_PATTERN_PRIVATE_H
#define OCTET_RULES_PATTERN_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "octet/arena.h"
#include "octet/context.h"

/* PCRE2's own types stay in pattern.c. */
struct oct_pattern {
    void *code;          /* pcre2_code */
    void *match_context; /* pcre2_match_context: the limits */
    uint32_t steps_max;
};

/* Errors: INVALID_ARGUMENT, no field; RESOURCE_EXHAUSTED. scratch: for working memory only. */
enum octet_status oct_pattern_compile(octet_arena *arena, octet_arena *scratch,
                                      const struct octet_limits *limits, const char *pattern,
                                      struct oct_pattern *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* Whether the whole text matches. `pattern_text` is for the message. Errors: INVALID_ARGUMENT, no
 * field, when a limit is reached or the text is not UTF-8; RESOURCE_EXHAUSTED. */
enum octet_status oct_pattern_test(const struct oct_pattern *pattern, const char *text,
                                   size_t length, bool *matches,
                                   struct octet_error *err) OCTET_MUST_CHECK;

#endif
