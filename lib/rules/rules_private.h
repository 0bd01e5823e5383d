/* What a set of rules is made of; for the files of lib/rules. */
#ifndef OCTET_RULES_RULES_PRIVATE_H
#define OCTET_RULES_RULES_PRIVATE_H

#include <stdatomic.h>

#include "octet/rules.h"
#include "rules/pattern_private.h"

struct oct_rule_matcher {
    struct oct_pattern pattern;
    unsigned ops; /* bit i: takes enum oct_rule_op i; 0: takes every op */
};

/* All of it lives in `arena`, itself too; only the reference count changes after it was built. */
struct octet_rules {
    atomic_uint references;
    octet_arena *arena;
    size_t count;
    struct octet_rule *rules; /* [count], in normal form */
    struct oct_rule_matcher *matchers;
    uint64_t digest[2];
};

/* octet_rules_create in an arena that the rules take, whether it succeeds or not; `scratch` is the
 * caller's. Split off so that tests can make any allocation fail. */
enum octet_status oct_rules_create_in(const octet_context *context, octet_arena *take,
                                      octet_arena *scratch, const struct octet_rule *rules,
                                      size_t count, octet_rules **out,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* octet_rules_parse with the same two arenas, and a third for what is read from the text. */
enum octet_status oct_rules_parse_in(const octet_context *context, octet_arena *take,
                                     octet_arena *scratch, octet_arena *tree, const char *yaml,
                                     size_t length, octet_rules **out,
                                     struct octet_error *err) OCTET_MUST_CHECK;

/* seed: the context's, so that keys cannot be made to collide from outside. */
void oct_rules_compute_digest(octet_rules *rules, uint64_t seed);

#endif
