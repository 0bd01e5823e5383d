/* What MaxText computes from a config before it builds a model.
 * Source: MaxText's configs/types.py, set_derived_and_validate_values and get_individual_scales. */
#include <inttypes.h>
#include <math.h>

#include "models/config_private.h"

static int64_t *integer(struct octet_config *config, enum oct_key key)
{
    return &config->values[key].as.integer;
}

/* Powers of two for widths, heads and layers that together multiply the parameters by the scale. */
struct scales {
    int embedding, heads, mlp, layers;
};

static enum octet_status read_scales(const struct octet_config *config, struct scales *out,
                                     struct octet_error *err)
{
    int64_t scale = oct_config_int(config, OCT_KEY_global_parameter_scale);

    if (scale <= 0 || (scale & (scale - 1)))
        return octet_fail(
            err, OCTET_INVALID_ARGUMENT, "global_parameter_scale",
            "%" PRId64 " is not a power of two; set base_emb_dim, base_num_query_heads, "
            "base_num_kv_heads, base_mlp_dim, base_num_decoder_layers or head_dim for "
            "sizes between",
            scale);
    int log2_scale = 63 - __builtin_clzll((unsigned long long)scale);
    int base = log2_scale / 3, rest = log2_scale % 3;
    *out = (struct scales){
        .embedding = base + (rest > 1),
        .heads = base + (rest > 0),
        .mlp = base + (rest > 0),
        .layers = base,
    };
    return OCTET_OK;
}

/* *out = base << exponent, within what a base may be. */
static enum octet_status scale_one(const struct octet_config *config, enum oct_key base_key,
                                   int exponent, int64_t largest, int64_t *out,
                                   struct octet_error *err)
{
    int64_t base = oct_config_int(config, base_key);

    if (__builtin_mul_overflow(base, (int64_t)1 << exponent, out) || *out > largest)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "global_parameter_scale",
                          "%s = %" PRId64 " times %" PRId64 " is above %" PRId64,
                          oct_key_name(base_key), base, (int64_t)1 << exponent, largest);
    return OCTET_OK;
}

static int64_t limit_of(enum oct_key key)
{
    static const int64_t largest[] = {
#define LARGEST(name, smallest, largest) largest,
        OCT_LIMITS(LARGEST)
#undef LARGEST
    };

    return largest[oct_keys[key].limit];
}

static enum octet_status scale_dims(struct octet_config *config, struct octet_error *err)
{
    struct oct_dims *dims = &config->dims;
    struct scales scales = {0};
    enum octet_status status = read_scales(config, &scales, err);
    const struct {
        enum oct_key base, derived;
        int exponent;
        int64_t *out;
    } rows[] = {
        {OCT_KEY_base_emb_dim, OCT_KEY_emb_dim, scales.embedding, &dims->emb_dim},
        {OCT_KEY_base_num_query_heads, OCT_KEY_num_query_heads, scales.heads,
         &dims->num_query_heads},
        {OCT_KEY_base_num_kv_heads, OCT_KEY_num_kv_heads, scales.heads, &dims->num_kv_heads},
        {OCT_KEY_base_mlp_dim, OCT_KEY_mlp_dim, scales.mlp, &dims->mlp_dim},
        {OCT_KEY_base_moe_mlp_dim, OCT_KEY_moe_mlp_dim, scales.mlp, &dims->moe_mlp_dim},
        {OCT_KEY_base_num_decoder_layers, OCT_KEY_num_decoder_layers, scales.layers,
         &dims->num_decoder_layers},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !status; i++) {
        status = scale_one(config, rows[i].base, rows[i].exponent, limit_of(rows[i].base),
                           rows[i].out, err);
        config->values[rows[i].derived] =
            (struct oct_value){.raw = OCT_YAML_INT, .as.integer = *rows[i].out};
    }
    return status;
}

/* A Qwen3 MoE model whose every layer has experts takes their width for its dense one. */
static void unify_qwen3_moe(struct octet_config *config)
{
    if (oct_config_int(config, OCT_KEY_num_experts) <= 1 ||
        oct_config_int(config, OCT_KEY_base_moe_mlp_dim) <= 0 ||
        oct_config_int(config, OCT_KEY_interleave_moe_layer_step) != 1 ||
        oct_config_int(config, OCT_KEY_first_num_dense_layers) ||
        oct_config_int(config, OCT_KEY_inhomogeneous_layer_cycle_interval) != 1 ||
        !oct_config_text_is(config, OCT_KEY_decoder_block, "qwen3_moe"))
        return;
    *integer(config, OCT_KEY_base_mlp_dim) = *integer(config, OCT_KEY_base_moe_mlp_dim);
    config->dims.mlp_dim = config->dims.moe_mlp_dim;
    *integer(config, OCT_KEY_mlp_dim) = config->dims.mlp_dim;
}

static void clear_zero_cap(struct octet_config *config, enum oct_key key)
{
    if (config->values[key].as.number == 0.0)
        config->values[key] = (struct oct_value){.raw = OCT_YAML_NULL, .is_null = true};
}

/* Values that stand for another one. */
static void resolve_references(struct octet_config *config)
{
    struct oct_value *mu_dtype = &config->values[OCT_KEY_mu_dtype];
    int64_t *schedule = integer(config, OCT_KEY_learning_rate_schedule_steps);
    int64_t *steps = integer(config, OCT_KEY_steps);
    int64_t *shards = integer(config, OCT_KEY_quantization_local_shard_count);
    double *eval = &config->values[OCT_KEY_eval_per_device_batch_size].as.number;

    if (*schedule == -1)
        *schedule = *steps;
    if (*steps == -1)
        *steps = *schedule;
    if (!*mu_dtype->as.text)
        mu_dtype->as.text = config->values[OCT_KEY_weight_dtype].as.text;
    if (*eval == 0.0)
        *eval = config->values[OCT_KEY_per_device_batch_size].as.number;
    if (*shards == -1)
        *shards = 1; /* one device */
    clear_zero_cap(config, OCT_KEY_attn_logits_soft_cap);
    clear_zero_cap(config, OCT_KEY_final_logits_soft_cap);
}

static void set_derived(struct octet_config *config, enum oct_key key, double value)
{
    config->values[key] = (struct oct_value){.raw = OCT_YAML_INT, .as.integer = (int64_t)value};
}

/* Batches of one device; MaxText's formula, with the values that its own runs would print. */
static void derive_batches(struct octet_config *config)
{
    static const struct {
        enum oct_key size, load, train, micro;
        bool accumulates;
    } rows[] = {
        {OCT_KEY_per_device_batch_size, OCT_KEY_global_batch_size_to_load,
         OCT_KEY_global_batch_size_to_train_on, OCT_KEY_micro_batch_size_to_train_on, true},
        {OCT_KEY_eval_per_device_batch_size, OCT_KEY_global_batch_size_to_load_eval,
         OCT_KEY_global_batch_size_to_eval_on, OCT_KEY_micro_batch_size_to_eval_on, false},
    };
    double expansion = oct_config_float(config, OCT_KEY_expansion_factor_real_data);
    double steps = (double)oct_config_int(config, OCT_KEY_gradient_accumulation_steps);

    if (!(expansion > 0.0))
        expansion = 1.0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double size = oct_config_float(config, rows[i].size),
               turns = rows[i].accumulates ? steps : 1.0;
        double load = size < 1.0 ? expansion : trunc(size * expansion);
        double micro = trunc(size);
        if (!(fabs(load * turns) < 0x1p63) || !(fabs(micro * turns) < 0x1p63))
            continue; /* stays none */
        set_derived(config, rows[i].load, trunc(load * turns));
        set_derived(config, rows[i].micro, micro);
        set_derived(config, rows[i].train, micro * turns);
    }
}

enum octet_status oct_config_derive(struct octet_config *config, struct octet_error *err)
{
    double batch = oct_config_float(config, OCT_KEY_per_device_batch_size);

    resolve_references(config);
    enum octet_status status = scale_dims(config, err);
    if (status)
        return status;
    unify_qwen3_moe(config);
    derive_batches(config);
    config->dims.head_dim = oct_config_int(config, OCT_KEY_head_dim);
    config->dims.vocab_size = oct_config_int(config, OCT_KEY_vocab_size);
    config->dims.max_target_length = oct_config_int(config, OCT_KEY_max_target_length);
    config->dims.global_batch_size = batch < 1.0 ? 1 : (int64_t)batch;
    return OCTET_OK;
}
