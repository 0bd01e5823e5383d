/* Requests -> liboctet's inputs, and liboctet's errors -> the wire's field names. */
#include <stdio.h>
#include <string.h>

#include "wire/convert.h"

enum octet_status oct_wire_config_input(const struct octet_call *call,
                                        const Octet__V1__ModelConfig *model,
                                        struct octet_config_input *out, struct octet_error *err)
{
    *out = (struct octet_config_input){0};
    if (!model)
        return OCTET_OK;
    struct octet_pair *pairs = OCTET_NEW_ARRAY(call->arena, model->n_overrides, struct octet_pair);
    if (!pairs)
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < model->n_overrides; i++)
        pairs[i] = (struct octet_pair){model->overrides[i]->key, model->overrides[i]->value};
    out->name = model->name;
    out->yaml = model->yaml[0] ? model->yaml : NULL;
    out->yaml_length = strlen(model->yaml);
    out->overrides = pairs;
    out->override_count = model->n_overrides;
    return OCTET_OK;
}

enum octet_status oct_wire_config(const struct octet_call *call,
                                  const Octet__V1__ModelConfig *model, const char *field,
                                  const octet_config **out, struct octet_error *err)
{
    struct octet_config_input input;
    enum octet_status status = oct_wire_config_input(call, model, &input, err);

    if (status != OCTET_OK)
        return status;
    status = octet_config_build(call->context, call->arena, &input, out, err);
    if (status != OCTET_OK)
        octet_error_within(err, field);
    return status;
}

static struct octet_rule to_rule(const Octet__V1__QuantizationRule *from,
                                 const struct octet_pair *additional)
{
    struct octet_rule rule = {
        .module_path = from->module_path,
        .op_names = (const char *const *)from->op_names,
        .op_name_count = from->n_op_names,
        .weight_qtype = from->weight_qtype,
        .act_qtype = from->act_qtype,
        .bwd_qtype = from->bwd_qtype,
        .weight_calibration_method = from->weight_calibration_method,
        .act_calibration_method = from->act_calibration_method,
        .bwd_calibration_method = from->bwd_calibration_method,
        .tile_size = from->tile_size,
        .bwd_weight_grad_tile_size = from->bwd_weight_grad_tile_size,
        .act_static_scale = from->act_static_scale,
        .disable_channelwise_axes = from->disable_channelwise_axes,
        .bwd_stochastic_rounding = from->bwd_stochastic_rounding,
        .act_batch_axes = from->act_batch_axes,
        .act_batch_axis_count = from->n_act_batch_axes,
        .channelwise_noise_axes = from->channelwise_noise_axes,
        .channelwise_noise_axis_count = from->n_channelwise_noise_axes,
        .additional_qt_config = additional,
        .additional_qt_config_count = from->n_additional_qt_config,
    };

    if (from->sparsity)
        rule.sparsity = (struct octet_sparsity){
            .n = from->sparsity->n,
            .m = from->sparsity->m,
            .start_step = from->sparsity->start_step,
            .update_step = from->sparsity->update_step,
        };
    return rule;
}

enum octet_status oct_wire_rules(const struct octet_call *call, size_t count,
                                 Octet__V1__QuantizationRule *const *rules, octet_rules **out,
                                 struct octet_error *err)
{
    *out = NULL;
    if (count == 0)
        return OCTET_OK;
    struct octet_rule *list = OCTET_NEW_ARRAY(call->arena, count, struct octet_rule);
    if (!list)
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < count; i++) {
        const Octet__V1__QuantizationRule *from = rules[i];
        struct octet_pair *additional =
            OCTET_NEW_ARRAY(call->arena, from->n_additional_qt_config, struct octet_pair);
        if (!additional)
            return octet_arena_exhausted(call->arena, err);
        for (size_t k = 0; k < from->n_additional_qt_config; k++)
            additional[k] = (struct octet_pair){from->additional_qt_config[k]->key,
                                                from->additional_qt_config[k]->value};
        list[i] = to_rule(from, additional);
    }
    return octet_rules_create(call->context, list, count, out, err);
}

enum octet_status oct_wire_sizes(int64_t batch_size, int64_t sequence_length,
                                 struct octet_graph_options *out, struct octet_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch_size", batch_size}, {"sequence_length", sequence_length}};

    for (size_t i = 0; i < 2; i++)
        if (sizes[i].value < 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, sizes[i].name,
                              "%lld is negative; 0 stands for the config's",
                              (long long)sizes[i].value);
    *out =
        (struct octet_graph_options){.batch_size = batch_size, .sequence_length = sequence_length};
    return OCTET_OK;
}

const char *oct_wire_setting(octet_arena *arena, const octet_config *config, const char *key,
                             enum octet_config_origin *origin)
{
    size_t low = 0, high = octet_config_setting_count(config);

    while (low < high) { /* settings are in alphabetical order */
        size_t middle = low + (high - low) / 2;
        struct octet_setting setting;
        if (octet_config_setting(config, arena, middle, &setting, NULL) != OCTET_OK)
            return NULL;
        int order = strcmp(key, setting.key);
        if (order == 0) {
            if (origin)
                *origin = setting.origin;
            return setting.text;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

enum octet_status oct_wire_name_key(const struct octet_call *call, const octet_config *config,
                                    const char *field, struct octet_error *err)
{
    char key[sizeof err->field], outer[128];
    enum octet_config_origin origin = OCTET_FROM_DEFAULT;

    if (!err->field[0] || strcmp(err->field, "batch_size") == 0 ||
        strcmp(err->field, "sequence_length") == 0 || strncmp(err->field, "rules[", 6) == 0 ||
        strcmp(err->field, field) == 0)
        return err->status;
    if (!oct_wire_setting(call->arena, config, err->field, &origin))
        return octet_error_within(err, field);
    snprintf(key, sizeof key, "[%.250s]", err->field);
    memcpy(err->field, key, sizeof key);
    snprintf(outer, sizeof outer, "%s.%s", field, origin == OCTET_FROM_YAML ? "yaml" : "overrides");
    return octet_error_within(err, outer);
}
