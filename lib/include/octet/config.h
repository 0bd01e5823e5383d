/* Model configs: MaxText's keys, read as MaxText reads them.
 *
 * For: turning a model name, YAML text, environment and KEY=VALUE settings into checked values.
 * Not for: files; a config is text, and a name is always one of the embedded models, never a path.
 * Order, later wins: defaults, base_config chain of the named model, the named model, base_config
 * chain of the YAML text, the YAML text, environment (M_KEY), overrides.
 *
 * Life: an octet_config lives in the arena that it was built in and does not change after that. */
#ifndef OCTET_CONFIG_H
#define OCTET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "octet/arena.h"
#include "octet/context.h"

typedef struct octet_config octet_config;

struct octet_pair {
    const char *key, *value;
};

struct octet_config_input {
    const char *name; /* a known model; NULL or "" = MaxText's defaults, or the YAML's model_name */
    const char *yaml; /* NULL = none */
    size_t yaml_length;
    const struct octet_pair *environment; /* "M_SCAN_LAYERS" = "false"; other names are ignored */
    size_t environment_count;
    const struct octet_pair *overrides; /* "scan_layers" = "false" */
    size_t override_count;
};

/* Errors: INVALID_ARGUMENT with field "overrides[KEY]", "yaml", "yaml[KEY]", "environment[M_KEY]"
 * (an unknown key names the nearest one, a bad value its type and range), or the key itself
 * ("num_vocab_tiling") when values do not go together; NOT_FOUND with field "name",
 * "yaml[base_config]" or whatever named the model (names the nearest one). */
OCTET_API enum octet_status octet_config_build(const octet_context *context, octet_arena *arena,
                                               const struct octet_config_input *input,
                                               const octet_config **out,
                                               struct octet_error *err) OCTET_MUST_CHECK;

/* The model's name as MaxText's model_name has it ("default" when none was named). */
OCTET_API const char *octet_config_model_name(const octet_config *config);

/* Where a value came from; the order is the order of precedence. */
enum octet_config_origin {
    OCTET_FROM_DEFAULT,
    OCTET_FROM_MODEL,
    OCTET_FROM_YAML,
    OCTET_FROM_ENVIRONMENT,
    OCTET_FROM_OVERRIDE,
};

/* One key as it stands. text: the value as YAML would print it ("true", "7168", "[silu, linear]",
 * "null"), in the config's arena. has_effect: whether the key bears on anything that Octet does. */
struct octet_setting {
    const char *key, *text;
    enum octet_config_origin origin;
    bool has_effect;
    bool overrides_model; /* set by environment or override although the model sets it too: MaxText
                             would ask for override_model_config=true. Set by YAML: MaxText would
                             let the model's value win. Not for an equal value, except the
                             environment's */
};

/* All known keys, in alphabetical order. Returns the count; key i is at index i. */
OCTET_API size_t octet_config_setting_count(const octet_config *config);
OCTET_API enum octet_status octet_config_setting(const octet_config *config, octet_arena *arena,
                                                 size_t index, struct octet_setting *out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;

/* Known models, in alphabetical order; NULL from the count on. */
OCTET_API const char *octet_model_name(size_t index);
OCTET_API size_t octet_model_count(void);

#endif
