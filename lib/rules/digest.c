/* 128 bits of all that a set of rules says. */
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "rules/fields.h"
#include "rules/rules_private.h"

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1); /* the NUL keeps neighbours apart */
}

static void add_count(XXH3_state_t *state, uint64_t count)
{
    XXH3_128bits_update(state, &count, sizeof count);
}

static void add_rule(XXH3_state_t *state, const struct octet_rule *rule)
{
#define TEXT(name, kind) add_text(state, rule->name);
    OCT_RULE_TEXTS(TEXT)
#undef TEXT
#define BOOL(name) add_count(state, rule->name);
    OCT_RULE_BOOLS(BOOL)
#undef BOOL
#define AXES(name, count, least, most)                                                             \
    add_count(state, rule->count);                                                                 \
    XXH3_128bits_update(state, rule->name, rule->count * sizeof rule->name[0]);
    OCT_RULE_AXES(AXES)
#undef AXES
#define NUMBER(name) XXH3_128bits_update(state, &rule->sparsity.name, sizeof rule->sparsity.name);
    OCT_RULE_SPARSITY(NUMBER)
#undef NUMBER
    add_count(state, rule->op_name_count);
    for (size_t i = 0; i < rule->op_name_count; i++)
        add_text(state, rule->op_names[i]);
    add_count(state, rule->additional_qt_config_count);
    for (size_t i = 0; i < rule->additional_qt_config_count; i++) {
        add_text(state, rule->additional_qt_config[i].key);
        add_text(state, rule->additional_qt_config[i].value);
    }
}

void oct_rules_compute_digest(octet_rules *rules, uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state); /* reset reads its seed */
    XXH3_128bits_reset_withSeed(&state, seed);
    add_count(&state, rules->count);
    for (size_t i = 0; i < rules->count; i++)
        add_rule(&state, &rules->rules[i]);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    rules->digest[0] = hash.low64;
    rules->digest[1] = hash.high64;
}

void octet_rules_digest(const octet_rules *rules, uint64_t digest[2])
{
    digest[0] = rules->digest[0];
    digest[1] = rules->digest[1];
}
