/* Rules, shapes and lines as text; see view.h. */
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *view_rule(octet_arena *arena, const Octet__V1__Trace *trace, int rule)
{
    if (rule < 0)
        return "None";
    if (!trace || (size_t)rule >= trace->n_rules)
        return octet_arena_format(arena, "%d", rule);
    const Octet__V1__QuantizationRule *r = trace->rules[rule];
    const char *weight = r->weight_qtype[0] ? r->weight_qtype : "none";
    const char *act = r->act_qtype[0] ? r->act_qtype : "none";
    if (strcmp(weight, act) == 0)
        return octet_arena_format(arena, "%d %s", rule, weight);
    return octet_arena_format(arena, "%d %s/%s", rule, weight, act);
}

const char *view_shape(octet_arena *arena, const int64_t *sizes, size_t rank)
{
    char text[256];
    size_t used = 0;

    for (size_t i = 0; i < rank && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? ", " : "",
                                 sizes[i]);
    return octet_arena_format(arena, "[%s]", rank ? text : "");
}

const char *view_decibel(octet_arena *arena, double decibel)
{
    if (isnan(decibel))
        return "-";
    return isinf(decibel) ? "no loss" : octet_arena_format(arena, "%.2f dB", decibel);
}

const char *view_name(octet_arena *arena, const char *name)
{
    char *copy = octet_arena_copy(arena, name, strlen(name));

    for (char *c = copy; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return copy;
}

size_t view_line(const Octet__V1__Interception *from, char *buffer, size_t size)
{
    const struct octet_interception line = {
        .module = from->module, .op = from->op, .rule = from->rule};
    int length = octet_interception_line(&line, buffer, size);

    if (length < 0 || size == 0)
        return 0;
    return (size_t)length < size ? (size_t)length : size - 1;
}

bool view_is_line(const Octet__V1__Interception *from)
{
    return from->looked_up;
}

/* A text that grows in the arena; stays NULL once there was no memory. */
static void append(octet_arena *arena, const char **text, const char *name, const char *value)
{
    if (*text && value && value[0])
        *text = octet_arena_format(arena, "%s%s%s=%s", *text, (*text)[0] ? " " : "", name, value);
}

static const char *join_texts(octet_arena *arena, char *const *texts, size_t count)
{
    const char *joined = "";

    for (size_t i = 0; joined && i < count; i++)
        joined = octet_arena_format(arena, "%s%s%s", joined, i ? "," : "", texts[i]);
    return joined;
}

static const char *join_numbers(octet_arena *arena, const int32_t *numbers, size_t count)
{
    const char *joined = "";

    for (size_t i = 0; joined && i < count; i++)
        joined = octet_arena_format(arena, "%s%s%" PRId32, joined, i ? "," : "", numbers[i]);
    return joined;
}

const char *view_rule_settings(octet_arena *arena, const Octet__V1__QuantizationRule *rule)
{
    const char *path = rule->module_path[0] ? rule->module_path : ".*";
    const char *text = octet_arena_format(arena, "module_path='%s'", path);
    const struct {
        const char *name, *value;
    } fields[] = {
        {"op_names", join_texts(arena, rule->op_names, rule->n_op_names)},
        {"weight_qtype", rule->weight_qtype},
        {"act_qtype", rule->act_qtype},
        {"bwd_qtype", rule->bwd_qtype},
        {"weight_calibration_method", rule->weight_calibration_method},
        {"act_calibration_method", rule->act_calibration_method},
        {"bwd_calibration_method", rule->bwd_calibration_method},
        {"tile_size", rule->tile_size},
        {"bwd_weight_grad_tile_size", rule->bwd_weight_grad_tile_size},
        {"act_static_scale", rule->act_static_scale ? "true" : ""},
        {"act_batch_axes", join_numbers(arena, rule->act_batch_axes, rule->n_act_batch_axes)},
        {"disable_channelwise_axes", rule->disable_channelwise_axes ? "true" : ""},
        {"bwd_stochastic_rounding", rule->bwd_stochastic_rounding},
        {"channelwise_noise_axes",
         join_numbers(arena, rule->channelwise_noise_axes, rule->n_channelwise_noise_axes)},
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].value)
            return NULL;
        append(arena, &text, fields[i].name, fields[i].value);
    }
    if (rule->sparsity)
        append(arena, &text, "sparsity",
               octet_arena_format(arena, "%" PRId32 ":%" PRId32 "@%" PRId32 "/%" PRId32,
                                  rule->sparsity->n, rule->sparsity->m, rule->sparsity->start_step,
                                  rule->sparsity->update_step));
    for (size_t i = 0; i < rule->n_additional_qt_config; i++)
        append(arena, &text, rule->additional_qt_config[i]->key,
               rule->additional_qt_config[i]->value);
    return text;
}

void view_warn_unused(const Octet__V1__Trace *trace)
{
    for (size_t i = 0; i < trace->n_unused_rules; i++) {
        size_t rule = (size_t)trace->unused_rules[i];
        const char *path = rule < trace->n_rules ? trace->rules[rule]->module_path : "";
        fprintf(stderr, "octet: warning: rule %zu (module_path '%s') matches no op\n", rule,
                path[0] ? path : ".*");
    }
}
