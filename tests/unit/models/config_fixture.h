/* What the suites of configs share: a context, an arena, and configs from words such as
 * "scan_layers=false". */
#ifndef TESTS_MODELS_CONFIG_FIXTURE_H
#define TESTS_MODELS_CONFIG_FIXTURE_H

#include <check.h>
#include <string.h>

#include "models/settings.h"
#include "octet/octet.h"

enum { PAIRS_MAX = 64, ARENA_BYTES = 64 * 1024 * 1024 };

static octet_context *context;
static octet_arena *arena;
static struct octet_error err;

static inline void config_setup(void)
{
    arena = octet_arena_create(ARENA_BYTES);
    ck_assert_ptr_nonnull(arena);
    ck_assert_int_eq(octet_context_create(NULL, &context, &err), OCTET_OK);
    memset(&err, 0, sizeof err);
}

static inline void config_teardown(void)
{
    octet_context_destroy(context);
    octet_arena_destroy(arena);
}

/* "key=value" words, split at the first '='; the pairs point into copies in the arena. */
static inline size_t split_words(const char *const *words, size_t count, struct octet_pair *pairs)
{
    ck_assert_uint_le(count, PAIRS_MAX);
    for (size_t i = 0; i < count; i++) {
        char *copy = octet_arena_copy(arena, words[i], strlen(words[i]));
        char *equals = strchr(copy, '=');
        if (equals)
            *equals = '\0';
        pairs[i] = (struct octet_pair){copy, equals ? equals + 1 : NULL};
    }
    return count;
}

/* Builds from up to a few parts; NULL-terminated words. */
static inline enum octet_status try_config(const char *name, const char *yaml,
                                           const char *const *environment,
                                           const char *const *overrides, const octet_config **out)
{
    struct octet_pair variables[PAIRS_MAX], pairs[PAIRS_MAX];
    struct octet_config_input input = {
        .name = name, .yaml = yaml, .yaml_length = yaml ? strlen(yaml) : 0};
    size_t n;

    for (n = 0; environment && environment[n]; n++)
        ;
    input.environment_count = split_words(environment, n, variables);
    input.environment = variables;
    for (n = 0; overrides && overrides[n]; n++)
        ;
    input.override_count = split_words(overrides, n, pairs);
    input.overrides = pairs;
    *out = NULL;
    memset(&err, 0, sizeof err);
    return octet_config_build(context, arena, &input, out, &err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline const octet_config *config_of(const char *name, const char *yaml,
                                            const char *const *environment,
                                            const char *const *overrides)
{
    const octet_config *config;

    ck_assert_msg(!try_config(name, yaml, environment, overrides, &config), "%s: %s", err.field,
                  err.text);
    return config;
}

static inline struct octet_setting setting_of(const octet_config *config, const char *key)
{
    struct octet_setting setting;

    for (size_t i = 0; i < octet_config_setting_count(config); i++) {
        ck_assert_int_eq(octet_config_setting(config, arena, i, &setting, &err), OCTET_OK);
        if (!strcmp(setting.key, key))
            return setting;
    }
    ck_abort_msg("no key '%s'", key);
}

#endif
