/* A digest of a config's values, as a cache key. */
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "models/config_private.h"
#include "models/settings.h"

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1); /* the NUL keeps neighbours apart */
}

static void add_value(XXH3_state_t *state, enum oct_key key, const struct oct_value *value)
{
    XXH3_128bits_update(state, &value->is_null, sizeof value->is_null);
    XXH3_128bits_update(state, &value->count, sizeof value->count);
    if (value->is_null)
        return;
    switch ((enum oct_kind)oct_keys[key].kind) {
    case OCT_KIND_BOOL:
        XXH3_128bits_update(state, &value->as.boolean, sizeof value->as.boolean);
        break;
    case OCT_KIND_INT:
        XXH3_128bits_update(state, &value->as.integer, sizeof value->as.integer);
        break;
    case OCT_KIND_FLOAT:
        XXH3_128bits_update(state, &value->as.number, sizeof value->as.number);
        break;
    case OCT_KIND_TEXT:
    case OCT_KIND_MAP:
    case OCT_KIND_ANY:
        add_text(state, value->as.text);
        break;
    case OCT_KIND_LIST:
        for (uint32_t i = 0; i < value->count; i++)
            add_text(state, value->as.texts[i]);
        break;
    case OCT_KIND_INTS:
        XXH3_128bits_update(state, value->as.integers, value->count * sizeof *value->as.integers);
        break;
    }
}

void oct_config_digest(const octet_config *config, uint64_t seed, uint64_t digest[2])
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state); /* reset reads its seed */
    XXH3_128bits_reset_withSeed(&state, seed);
    /* Derived values follow from the others. */
    for (int key = 0; key < OCT_KEY_COUNT; key++)
        if (oct_keys[key].effect != OCT_NO_EFFECT)
            add_value(&state, (enum oct_key)key, &config->values[key]);
    bool for_accelerator = oct_config_is_for_accelerator(config); /* more than hardware's value */
    XXH3_128bits_update(&state, &for_accelerator, sizeof for_accelerator);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    digest[0] = hash.low64;
    digest[1] = hash.high64;
}
