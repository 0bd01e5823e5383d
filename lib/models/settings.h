/* Reading a config inside the library: every key of MaxText by a number, and what MaxText derives.
 *
 * For: graph builders, rules, check, later train.
 * Not for: outsiders, who get keys as text through octet/config.h.
 * Decision: values are checked and converted once, in octet_config_build; a getter cannot fail, and
 * asking for a key as a kind that it is not is a programmer's error (asserted).
 *
 * Life: what getters return lives as long as the config. */
#ifndef OCTET_MODELS_SETTINGS_H
#define OCTET_MODELS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/keys.h"
#include "octet/config.h"

enum oct_key {
#define OCT_KEY_ENUM(name, kind, null, value, limit, choices, effect, place) OCT_KEY_##name,
    OCT_KEYS(OCT_KEY_ENUM)
#undef OCT_KEY_ENUM
        OCT_KEY_COUNT
};

/* None counts as 0, 0.0, false, "" and the empty list; oct_config_is_null tells it apart. */
int64_t oct_config_int(const octet_config *config, enum oct_key key);
double oct_config_float(const octet_config *config, enum oct_key key); /* of an INT key too */
bool oct_config_bool(const octet_config *config, enum oct_key key);
const char *oct_config_text(const octet_config *config, enum oct_key key); /* never NULL */
bool oct_config_is_null(const octet_config *config, enum oct_key key);

/* *items = the list's items as texts ("silu", "linear"; "4"), never NULL. Returns how many. */
size_t oct_config_list(const octet_config *config, enum oct_key key, const char *const **items);
/* The same for a list of integers. */
size_t oct_config_ints(const octet_config *config, enum oct_key key, const int64_t **items);

/* Is the text exactly `text`? */
bool oct_config_text_is(const octet_config *config, enum oct_key key, const char *text);

/* Where the value came from; given: not from the defaults. */
enum octet_config_origin oct_config_origin(const octet_config *config, enum oct_key key);

/* Does the config itself say that it is for a TPU or GPU? MaxText's default, "tpu", says nothing.
 */
bool oct_config_is_for_accelerator(const octet_config *config);

const char *oct_key_name(enum oct_key key); /* "base_emb_dim" */

/* 128 bits that differ when anything differs that a graph or rules are built from: the value of any
 * key with an effect, and oct_config_is_for_accelerator; for caches. */
void oct_config_digest(const octet_config *config, uint64_t seed, uint64_t digest[2]);

/* What MaxText derives before it builds a model (types.py, set_derived_and_validate_values).
 * base_* are multiplied by a power of two from global_parameter_scale. All are positive, except
 * that moe_mlp_dim may be negative (unset) while num_experts is 1. */
struct oct_dims {
    int64_t emb_dim, mlp_dim, moe_mlp_dim;
    int64_t num_query_heads, num_kv_heads, num_decoder_layers;
    int64_t head_dim, vocab_size;
    int64_t global_batch_size; /* of one device: per_device_batch_size rounded down, at least 1 */
    int64_t max_target_length;
};

const struct oct_dims *oct_config_dims(const octet_config *config);

#endif
