/* liboctet's rules -> messages, and the making of messages in an arena. */
#include <string.h>

#include "wire/convert.h"

void *oct_wire_new(octet_arena *arena, const ProtobufCMessageDescriptor *descriptor)
{
    void *message = octet_arena_alloc(arena, descriptor->sizeof_message);

    if (message)
        protobuf_c_message_init(descriptor, message);
    return message;
}

bool oct_wire_new_list(octet_arena *arena, const ProtobufCMessageDescriptor *descriptor,
                       size_t count, ProtobufCMessage ***list)
{
    char *messages = octet_arena_array(arena, count, descriptor->sizeof_message);
    ProtobufCMessage **pointers = OCTET_NEW_ARRAY(arena, count, ProtobufCMessage *);

    if (!messages || !pointers)
        return false;
    for (size_t i = 0; i < count; i++) {
        pointers[i] = (ProtobufCMessage *)(void *)(messages + i * descriptor->sizeof_message);
        protobuf_c_message_init(descriptor, pointers[i]);
    }
    *list = pointers;
    return true;
}

char *oct_wire_text(octet_arena *arena, const char *text)
{
    if (!text || !text[0])
        return (char *)protobuf_c_empty_string;
    return octet_arena_copy(arena, text, strlen(text));
}

/* Copies the texts of a rule; the first that finds no memory ends it. */
static bool put_texts(octet_arena *arena, const struct octet_rule *from,
                      Octet__V1__QuantizationRule *to)
{
    const struct {
        const char *from;
        char **to;
    } texts[] = {
        {from->module_path, &to->module_path},
        {from->weight_qtype, &to->weight_qtype},
        {from->act_qtype, &to->act_qtype},
        {from->bwd_qtype, &to->bwd_qtype},
        {from->weight_calibration_method, &to->weight_calibration_method},
        {from->act_calibration_method, &to->act_calibration_method},
        {from->bwd_calibration_method, &to->bwd_calibration_method},
        {from->tile_size, &to->tile_size},
        {from->bwd_weight_grad_tile_size, &to->bwd_weight_grad_tile_size},
        {from->bwd_stochastic_rounding, &to->bwd_stochastic_rounding},
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i].to = oct_wire_text(arena, texts[i].from);
        if (!*texts[i].to)
            return false;
    }
    to->op_names = OCTET_NEW_ARRAY(arena, from->op_name_count, char *);
    if (!to->op_names)
        return false;
    to->n_op_names = from->op_name_count;
    for (size_t i = 0; i < from->op_name_count; i++) {
        to->op_names[i] = oct_wire_text(arena, from->op_names[i]);
        if (!to->op_names[i])
            return false;
    }
    return true;
}

static bool put_axes(octet_arena *arena, const int32_t *axes, size_t count, size_t *to_count,
                     int32_t **to)
{
    *to = OCTET_NEW_ARRAY(arena, count, int32_t);
    if (!*to)
        return false;
    if (count)
        memcpy(*to, axes, count * sizeof *axes);
    *to_count = count;
    return true;
}

static bool put_additional(octet_arena *arena, const struct octet_rule *from,
                           Octet__V1__QuantizationRule *to)
{
    size_t count = from->additional_qt_config_count;
    ProtobufCMessage **list;

    if (!oct_wire_new_list(arena,
                           &octet__v1__quantization_rule__additional_qt_config_entry__descriptor,
                           count, &list))
        return false;
    to->additional_qt_config = (Octet__V1__QuantizationRule__AdditionalQtConfigEntry **)list;
    to->n_additional_qt_config = count;
    for (size_t i = 0; i < count; i++) {
        Octet__V1__QuantizationRule__AdditionalQtConfigEntry *entry = to->additional_qt_config[i];
        entry->key = oct_wire_text(arena, from->additional_qt_config[i].key);
        entry->value = oct_wire_text(arena, from->additional_qt_config[i].value);
        if (!entry->key || !entry->value)
            return false;
    }
    return true;
}

static bool put_rule(octet_arena *arena, const struct octet_rule *from,
                     Octet__V1__QuantizationRule *to)
{
    to->act_static_scale = from->act_static_scale;
    to->disable_channelwise_axes = from->disable_channelwise_axes;
    if (from->sparsity.m) {
        to->sparsity = oct_wire_new(arena, &octet__v1__sparsity__descriptor);
        if (!to->sparsity)
            return false;
        to->sparsity->n = from->sparsity.n;
        to->sparsity->m = from->sparsity.m;
        to->sparsity->start_step = from->sparsity.start_step;
        to->sparsity->update_step = from->sparsity.update_step;
    }
    return put_texts(arena, from, to) && put_additional(arena, from, to) &&
           put_axes(arena, from->act_batch_axes, from->act_batch_axis_count, &to->n_act_batch_axes,
                    &to->act_batch_axes) &&
           put_axes(arena, from->channelwise_noise_axes, from->channelwise_noise_axis_count,
                    &to->n_channelwise_noise_axes, &to->channelwise_noise_axes);
}

enum octet_status oct_wire_put_rules(octet_arena *arena, const octet_rules *rules, size_t *count,
                                     Octet__V1__QuantizationRule ***out, struct octet_error *err)
{
    size_t n = octet_rules_count(rules);
    ProtobufCMessage **list;

    if (!oct_wire_new_list(arena, &octet__v1__quantization_rule__descriptor, n, &list))
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < n; i++)
        if (!put_rule(arena, octet_rules_get(rules, i), (Octet__V1__QuantizationRule *)list[i]))
            return octet_arena_exhausted(arena, err);
    *out = (Octet__V1__QuantizationRule **)list;
    *count = n;
    return OCTET_OK;
}
