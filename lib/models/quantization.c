/* MaxText's quantization keys -> the rules that MaxText hands to Qwix.
 *
 * For: octet_rules_from_config: which rules a config makes, and what MaxText refuses about it.
 * Not for: what a rule may say (lib/rules).
 * Decision: of MaxText's ways to quantize only Qwix's interception is known here; a config that
 * asks for another one (AQT, Transformer Engine) is refused by name, since tracing it as
 * unquantized would be a wrong answer. Source: MaxText of 22 August 2026, layers/quantizations.py
 * (get_quantization_rule, get_qt_provider, maybe_quantize_model) and the validators of
 * configs/types.py, with pull request 5141. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/settings.h"
#include "octet/rules.h"

#define INT(key) oct_config_int(config, OCT_KEY_##key)
#define BOOL(key) oct_config_bool(config, OCT_KEY_##key)
#define TEXT(key) oct_config_text(config, OCT_KEY_##key)
#define REFUSE(key, ...) octet_fail(err, OCTET_INVALID_ARGUMENT, #key, __VA_ARGS__)

static const char decoder_layers[] = "decoder/.*layers.*";
static const char decoder_layers_and_mtp[] = "(decoder/.*layers.*|mtp_block/.*)";

/* The values with a provider in Qwix, and the type that weights, activations and gradients share;
 * fp8_full has rules of its own. */
static const struct value {
    const char *name, *qtype;
} values[] = {
    {"int4", "int4"},
    {"int8", "int8"},
    {"fp4", "float4_e2m1fn"},
    {"fp4_e2m1", "float4_e2m1fn"},
    {"fp8", "float8_e4m3fn"},
    {"fp8_e4m3", "float8_e4m3fn"},
    {"fp8_e5m2", "float8_e5m2"},
    {"fp8_full", NULL},
    {"fp8_gpu", "float8_e4m3fn"},
    {"fp8_nanoo", "float8_e4m3fn"},
};
static const char known_values[] =
    "int4, int8, fp4, fp4_e2m1, fp8, fp8_e4m3, fp8_e5m2, fp8_full, fp8_gpu, fp8_nanoo";

static const struct value *value_find(const char *name)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (!strcmp(values[i].name, name))
            return &values[i];
    return NULL;
}

/* ---- what MaxText refuses ---- */

static bool is_one_of(const char *text, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(text, *names))
            return true;
    return false;
}

static enum octet_status check_quantizer(const octet_config *config, const char *quantization,
                                         struct octet_error *err)
{
    static const char *const delayed[] = {"fp8", "nanoo_fp8", "fp8_gpu", "te_fp8_delayedscaling",
                                          NULL};

    if (is_one_of(quantization, delayed) && INT(gradient_accumulation_steps) > 1)
        return REFUSE(gradient_accumulation_steps,
                      "%" PRId64 " does not go with quantization=%s; 1 is needed",
                      INT(gradient_accumulation_steps), quantization);
    if (BOOL(use_batch_split_schedule) && quantization[0] && strcmp(quantization, "fp8_full"))
        return REFUSE(quantization,
                      "'%s' does not go with use_batch_split_schedule=true; only fp8_full does",
                      quantization);
    if (BOOL(use_manual_quantization) && !BOOL(use_batch_split_schedule))
        return REFUSE(use_manual_quantization, "true needs use_batch_split_schedule=true");
    if (BOOL(pipeline_fsdp_ag_per_repeat) && quantization[0] &&
        (INT(ici_pipeline_parallelism) > 1 || INT(dcn_pipeline_parallelism) > 1))
        return REFUSE(pipeline_fsdp_ag_per_repeat, "true does not go with quantization=%s",
                      quantization);
    return OCTET_OK;
}

static enum octet_status check_attention(const octet_config *config, struct octet_error *err)
{
    if (BOOL(quantize_kvcache) && !TEXT(kv_quant_axis)[0])
        return REFUSE(kv_quant_axis, "an axis is needed with quantize_kvcache=true");
    if (strcmp(TEXT(attention_type), "mla") == 0)
        return OCTET_OK;
    if (BOOL(experimental_sa_quant_q_fp8))
        return REFUSE(experimental_sa_quant_q_fp8, "true needs attention_type=mla, which is '%s'",
                      TEXT(attention_type));
    if (BOOL(experimental_sa_quant_k_fp8))
        return REFUSE(experimental_sa_quant_k_fp8, "true needs attention_type=mla, which is '%s'",
                      TEXT(attention_type));
    return OCTET_OK;
}

/* use_qwix_quantization is true by default here and false in MaxText; without a quantization it
 * counts only when it was given. */
static enum octet_status check_sliced(const octet_config *config, const char *quantization,
                                      struct octet_error *err)
{
    bool qwix = BOOL(use_qwix_quantization);
    bool given = oct_config_origin(config, OCT_KEY_use_qwix_quantization) != OCTET_FROM_DEFAULT;

    if (!BOOL(use_sliced_mla_proj))
        return OCTET_OK;
    if (quantization[0] && !qwix)
        return REFUSE(use_sliced_mla_proj,
                      "true does not go with quantization=%s and use_qwix_quantization=false; set "
                      "use_qwix_quantization=true",
                      quantization);
    if (qwix && (quantization[0] || given) && BOOL(use_batch_split_schedule))
        return REFUSE(use_sliced_mla_proj, "true does not go with use_qwix_quantization=true and "
                                           "use_batch_split_schedule=true together");
    return OCTET_OK;
}

static enum octet_status check_mtp(const octet_config *config, const char *quantization,
                                   struct octet_error *err)
{
    if (!BOOL(quantize_mtp))
        return OCTET_OK;
    if (INT(mtp_num_layers) > 0 && !strcmp(quantization, "fp8_full"))
        return OCTET_OK;
    if (INT(mtp_num_layers) <= 0)
        return REFUSE(quantize_mtp,
                      "true needs mtp_num_layers above 0 and quantization=fp8_full; mtp_num_layers "
                      "is %" PRId64,
                      INT(mtp_num_layers));
    return REFUSE(
        quantize_mtp,
        "true needs mtp_num_layers above 0 and quantization=fp8_full; quantization is '%s'",
        quantization);
}

/* Is it Qwix that quantizes, and by a value that it has rules for? */
static enum octet_status check_value(const octet_config *config, const char *quantization,
                                     struct octet_error *err)
{
    if (!value_find(quantization))
        return REFUSE(quantization,
                      "'%s' is not carried out by Qwix; Octet knows %s, and '' for none",
                      quantization, known_values);
    if (!BOOL(use_qwix_quantization))
        return REFUSE(use_qwix_quantization,
                      "false, with quantization=%s, asks for a quantization that is not Qwix's, "
                      "which Octet does not know; set use_qwix_quantization=true",
                      quantization);
    return OCTET_OK;
}

static enum octet_status check(const octet_config *config, const char *quantization,
                               struct octet_error *err)
{
    enum octet_status status = check_quantizer(config, quantization, err);

    if (!status)
        status = check_attention(config, err);
    if (!status)
        status = check_sliced(config, quantization, err);
    if (!status)
        status = check_mtp(config, quantization, err);
    if (!status && quantization[0])
        status = check_value(config, quantization, err);
    return status;
}

/* ---- rules ---- */

/* The same type for weights, activations and gradients, of dot_general only: experts and
 * calibration methods do not come into it. The gradient of a weight is quantized in as many tiles
 * as there are local shards. */
static enum octet_status make_plain(const octet_config *config, const char *qtype, char *tile,
                                    size_t tile_size, struct octet_rule *rule,
                                    struct octet_error *err)
{
    static const char *const ops[] = {"dot_general"};
    int64_t shards = INT(quantization_local_shard_count);

    /* -1 is MaxText's count of local devices; the config has resolved it. */
    if (shards < 1 || shards > INT32_MAX)
        return REFUSE(quantization_local_shard_count,
                      "%" PRId64 "; 1 or more shards are needed (-1: one for each local device)",
                      shards);
    snprintf(tile, tile_size, "1/%" PRId64, shards);
    *rule = (struct octet_rule){
        .module_path = decoder_layers,
        .op_names = ops,
        .op_name_count = 1,
        .weight_qtype = qtype,
        .act_qtype = qtype,
        .bwd_qtype = qtype,
        .bwd_weight_grad_tile_size = tile,
    };
    return OCTET_OK;
}

/* None and 0 count alike: no sparsity. */
static enum octet_status make_sparsity(const octet_config *config, struct octet_sparsity *out,
                                       struct octet_error *err)
{
    static const struct {
        enum oct_key key;
        const char *name;
    } keys[] = {
        {OCT_KEY_weight_sparsity_n, "weight_sparsity_n"},
        {OCT_KEY_weight_sparsity_m, "weight_sparsity_m"},
        {OCT_KEY_weight_sparsity_start_step, "weight_sparsity_start_step"},
        {OCT_KEY_weight_sparsity_update_step, "weight_sparsity_update_step"},
    };
    int32_t *fields[] = {&out->n, &out->m, &out->start_step, &out->update_step};

    if (!INT(weight_sparsity_n) || !INT(weight_sparsity_m))
        return OCTET_OK;
    for (size_t i = 0; i < 4; i++) {
        int64_t value = oct_config_int(config, keys[i].key);
        if (value < 0 || value > INT32_MAX)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, keys[i].name,
                              "%" PRId64 " is outside of 0 to %d", value, INT32_MAX);
        *fields[i] = (int32_t)value;
    }
    return OCTET_OK;
}

static enum octet_status make_full(const octet_config *config, struct octet_rule *rule,
                                   struct octet_error *err)
{
    static const char *const ops[] = {"dot_general", "gmm", "ragged_dot"};

    *rule = (struct octet_rule){
        .module_path = BOOL(quantize_mtp) ? decoder_layers_and_mtp : decoder_layers,
        .op_names = ops,
        .op_name_count = 3,
        .weight_qtype = "float8_e4m3fn",
        .act_qtype = "float8_e4m3fn",
        .bwd_qtype = "float8_e5m2",
        .weight_calibration_method = TEXT(weight_quantization_calibration_method),
        .act_calibration_method = TEXT(act_quantization_calibration_method),
        .bwd_calibration_method = TEXT(bwd_quantization_calibration_method),
    };
    return make_sparsity(config, &rule->sparsity, err);
}

/* The rule's field at fault -> the config key that it came from. */
static void rename_field(struct octet_error *err)
{
    static const struct {
        const char *field, *key;
    } names[] = {
        {"rules[0].weight_calibration_method", "weight_quantization_calibration_method"},
        {"rules[0].act_calibration_method", "act_quantization_calibration_method"},
        {"rules[0].bwd_calibration_method", "bwd_quantization_calibration_method"},
        {"rules[0].sparsity.n", "weight_sparsity_n"},
        {"rules[0].sparsity.m", "weight_sparsity_m"},
    };

    for (size_t i = 0; err && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(err->field, names[i].field))
            snprintf(err->field, sizeof err->field, "%s", names[i].key);
}

enum octet_status octet_rules_from_config(const octet_context *context, const octet_config *config,
                                          octet_rules **out, struct octet_error *err)
{
    const char *quantization = TEXT(quantization);
    struct octet_rule rule;
    char tile[32];
    enum octet_status status = check(config, quantization, err);

    if (status)
        return status;
    /* The batch-split schedule calls quantized ops by itself; nothing is intercepted. */
    if (!quantization[0] || BOOL(use_batch_split_schedule))
        return octet_rules_create(context, NULL, 0, out, err);
    const char *qtype = value_find(quantization)->qtype;
    status = qtype ? make_plain(config, qtype, tile, sizeof tile, &rule, err)
                   : make_full(config, &rule, err);
    if (status)
        return status;
    status = octet_rules_create(context, &rule, 1, out, err);
    if (status)
        rename_field(err);
    return status;
}
