/* Getters: what is asked for as the wrong kind is a mistake of ours, so it is asserted. */
#include "models/settings.h"

#undef NDEBUG /* in release builds too */
#include <assert.h>
#include <string.h>

#include "models/config_private.h"

static const struct oct_value *value_of(const octet_config *config, enum oct_key key)
{
    assert(key < OCT_KEY_COUNT);
    return &config->values[key];
}

static enum oct_kind kind_of(enum oct_key key)
{
    return (enum oct_kind)oct_keys[key].kind;
}

int64_t oct_config_int(const octet_config *config, enum oct_key key)
{
    const struct oct_value *value = value_of(config, key);

    assert(kind_of(key) == OCT_KIND_INT);
    return value->as.integer;
}

double oct_config_float(const octet_config *config, enum oct_key key)
{
    const struct oct_value *value = value_of(config, key);

    if (kind_of(key) == OCT_KIND_INT)
        return (double)value->as.integer;
    assert(kind_of(key) == OCT_KIND_FLOAT);
    return value->as.number;
}

bool oct_config_bool(const octet_config *config, enum oct_key key)
{
    const struct oct_value *value = value_of(config, key);

    assert(kind_of(key) == OCT_KIND_BOOL);
    return value->as.boolean;
}

const char *oct_config_text(const octet_config *config, enum oct_key key)
{
    const struct oct_value *value = value_of(config, key);

    assert(kind_of(key) == OCT_KIND_TEXT || kind_of(key) == OCT_KIND_MAP ||
           kind_of(key) == OCT_KIND_ANY);
    return value->is_null ? "" : value->as.text;
}

bool oct_config_is_null(const octet_config *config, enum oct_key key)
{
    return value_of(config, key)->is_null;
}

size_t oct_config_list(const octet_config *config, enum oct_key key, const char *const **items)
{
    static const char *const none[] = {NULL};
    const struct oct_value *value = value_of(config, key);

    assert(kind_of(key) == OCT_KIND_LIST);
    *items = value->count ? value->as.texts : none;
    return value->count;
}

size_t oct_config_ints(const octet_config *config, enum oct_key key, const int64_t **items)
{
    static const int64_t none[] = {0};
    const struct oct_value *value = value_of(config, key);

    assert(kind_of(key) == OCT_KIND_INTS);
    *items = value->count ? value->as.integers : none;
    return value->count;
}

bool oct_config_text_is(const octet_config *config, enum oct_key key, const char *text)
{
    return !strcmp(oct_config_text(config, key), text);
}

enum octet_config_origin oct_config_origin(const octet_config *config, enum oct_key key)
{
    assert(key < OCT_KEY_COUNT);
    return (enum octet_config_origin)config->origins[key];
}

bool oct_config_is_for_accelerator(const octet_config *config)
{
    return oct_config_origin(config, OCT_KEY_hardware) != OCTET_FROM_DEFAULT &&
           !oct_config_text_is(config, OCT_KEY_hardware, "cpu");
}

const struct oct_dims *oct_config_dims(const octet_config *config)
{
    return &config->dims;
}

const char *octet_config_model_name(const octet_config *config)
{
    return oct_config_text(config, OCT_KEY_model_name);
}

size_t octet_config_setting_count(const octet_config *config)
{
    (void)config;
    return OCT_KEY_COUNT;
}

enum octet_status octet_config_setting(const octet_config *config, octet_arena *arena, size_t index,
                                       struct octet_setting *out, struct octet_error *err)
{
    if (index >= OCT_KEY_COUNT)
        return octet_fail(err, OCTET_OUT_OF_RANGE, "index", "%zu; there are %d keys", index,
                          OCT_KEY_COUNT);
    enum oct_key key = (enum oct_key)index;
    const char *text = oct_value_text(arena, key, &config->values[key]);
    if (!text)
        return octet_arena_exhausted(arena, err);
    *out = (struct octet_setting){
        .key = oct_keys[key].name,
        .text = text,
        .origin = (enum octet_config_origin)config->origins[key],
        .has_effect = oct_keys[key].effect == OCT_EFFECT,
        .overrides_model = config->overrides_model[key],
    };
    return OCTET_OK;
}
