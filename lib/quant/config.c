/* See config.h. */
#include "quant/config.h"

#include <stddef.h>
#include <string.h>

#include "rules/fields.h"

static struct oct_setting setting(const char *qtype, const char *method, bool disable)
{
    return (struct oct_setting){.qtype = oct_qtype_find(qtype),
                                .method = method && method[0] ? method : "absmax",
                                .disable_channelwise_axes = disable};
}

/* ---- additional_qt_config: fields of Qwix's config, set directly ---- */

enum place_kind { PLACE_QTYPE, PLACE_METHOD, PLACE_CHANNELWISE, PLACE_TEXT, PLACE_BOOL };

static const struct place {
    const char *key;
    enum place_kind kind;
    size_t offset; /* in struct oct_config */
} places[] = {
#define SETTING(key, name)                                                                         \
    {key "_qtype", PLACE_QTYPE, offsetof(struct oct_config, name)},                                \
        {key "_calibration_method", PLACE_METHOD, offsetof(struct oct_config, name)},              \
    {                                                                                              \
        key "_disable_channelwise_axes", PLACE_CHANNELWISE, offsetof(struct oct_config, name)      \
    }
    SETTING("lhs", lhs),
    SETTING("rhs", rhs),
    SETTING("dlhs_grad", dlhs_grad),
    SETTING("drhs_grad", drhs_grad),
    SETTING("dlhs_residual", dlhs_residual),
    SETTING("drhs_residual", drhs_residual),
#undef SETTING
    {"tile_size", PLACE_TEXT, offsetof(struct oct_config, tile_size)},
    {"dlhs_tile_size", PLACE_TEXT, offsetof(struct oct_config, dlhs_tile_size)},
    {"drhs_tile_size", PLACE_TEXT, offsetof(struct oct_config, drhs_tile_size)},
    {"use_original_residuals", PLACE_BOOL, offsetof(struct oct_config, use_original_residuals)},
    {"disable_gradient_clipping", PLACE_BOOL,
     offsetof(struct oct_config, disable_gradient_clipping)},
};

static void place(struct oct_config *config, const struct octet_pair *pair)
{
    const struct place *p = places;

    while (strcmp(p->key, pair->key) != 0)
        p++; /* keys are checked when a rule is made */
    void *at = (char *)config + p->offset;
    struct oct_setting *s = at;
    bool is_true = strcmp(pair->value, "true") == 0;
    switch (p->kind) {
    case PLACE_QTYPE:
        s->qtype = oct_qtype_find(pair->value);
        break;
    case PLACE_METHOD:
        s->method = pair->value;
        break;
    case PLACE_CHANNELWISE:
        s->disable_channelwise_axes = is_true;
        break;
    case PLACE_TEXT:
        *(const char **)at = pair->value;
        break;
    case PLACE_BOOL:
        *(bool *)at = is_true;
        break;
    }
}

/* ---- what does not go together ---- */

static enum octet_status check_setting(const struct oct_setting *s, const char *field,
                                       bool may_have_zero_point, struct octet_error *err)
{
    if (!s->qtype || oct_method_is_symmetric(s->method))
        return OCTET_OK;
    if (!oct_qtype_is_asymmetric(s->qtype))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                          "'%s' has a range that is not symmetric, for which %s has no codes; int8 "
                          "and int4 have",
                          s->method, s->qtype->name);
    if (!may_have_zero_point)
        return octet_fail(
            err, OCTET_INVALID_ARGUMENT, field,
            "'%s' gives a zero point, with which a quantized backward pass cannot work", s->method);
    return OCTET_OK;
}

/* A residual and the gradient that it is multiplied with: one of them may have a zero point. */
static enum octet_status check_residual(const struct oct_setting *residual,
                                        const struct oct_setting *grad, const char *field,
                                        struct octet_error *err)
{
    bool both = residual->qtype && grad->qtype && !oct_method_is_symmetric(residual->method) &&
                !oct_method_is_symmetric(grad->method);

    if (both)
        return octet_fail(
            err, OCTET_INVALID_ARGUMENT, field,
            "'%s' gives a zero point, and so does the gradient's '%s'; one of them may",
            residual->method, grad->method);
    return check_setting(residual, field, true, err);
}

static enum octet_status check(const struct oct_config *c, bool has_backward,
                               struct octet_error *err)
{
    bool quantizes_backward =
        has_backward && (c->dlhs_grad.qtype || c->drhs_grad.qtype) && !c->use_original_residuals;
    enum octet_status status =
        check_setting(&c->lhs, "rule.act_calibration_method", !quantizes_backward, err);

    if (status == OCTET_OK)
        status = check_setting(&c->rhs, "rule.weight_calibration_method", !quantizes_backward, err);
    if (status == OCTET_OK && has_backward)
        status = check_setting(&c->dlhs_grad, "rule.bwd_calibration_method", true, err);
    if (status == OCTET_OK && has_backward)
        status = check_setting(&c->drhs_grad, "rule.bwd_calibration_method", true, err);
    if (status == OCTET_OK && has_backward)
        status = check_residual(&c->dlhs_residual, &c->dlhs_grad,
                                "rule.additional_qt_config[dlhs_residual_calibration_method]", err);
    if (status == OCTET_OK && has_backward)
        status = check_residual(&c->drhs_residual, &c->drhs_grad,
                                "rule.additional_qt_config[drhs_residual_calibration_method]", err);
    return status;
}

/* ---- */

static bool is_set(const char *text)
{
    return text && text[0];
}

static void fill(const struct octet_rule *rule, enum octet_weight_operand weight,
                 struct oct_config *c)
{
    bool disable = rule->disable_channelwise_axes, backward = is_set(rule->bwd_qtype);
    struct oct_setting weights =
        setting(rule->weight_qtype, rule->weight_calibration_method, disable);
    struct oct_setting activations =
        setting(rule->act_qtype, rule->act_calibration_method, disable);

    activations.is_static = activations.qtype && rule->act_static_scale;
    c->is_quantized = true;
    c->lhs = weight == OCTET_WEIGHT_LHS ? weights : activations;
    c->rhs = weight == OCTET_WEIGHT_RHS ? weights : activations;
    c->tile_size = rule->tile_size ? rule->tile_size : "";
    c->dlhs_grad = c->drhs_grad = setting(rule->bwd_qtype, rule->bwd_calibration_method, disable);
    c->dlhs_residual = c->drhs_residual = setting("", "", false);
    c->dlhs_tile_size = c->drhs_tile_size = "";
    if (backward && is_set(rule->bwd_weight_grad_tile_size)) {
        if (weight == OCTET_WEIGHT_LHS)
            c->dlhs_tile_size = rule->bwd_weight_grad_tile_size;
        if (weight == OCTET_WEIGHT_RHS)
            c->drhs_tile_size = rule->bwd_weight_grad_tile_size;
    }
    c->use_original_residuals = !backward;
    c->sparsity = rule->sparsity;
    c->act_batch_axes = rule->act_batch_axes;
    c->act_batch_axis_count = rule->act_batch_axis_count;
    for (size_t i = 0; i < rule->additional_qt_config_count; i++)
        place(c, &rule->additional_qt_config[i]);
}

/* The noise is added only to what becomes an integer: formula 15. */
static enum octet_status check_noise(const struct octet_rule *rule, const struct oct_config *c,
                                     bool has_backward, struct octet_error *err)
{
    const struct oct_qtype *types[] = {c->dlhs_grad.qtype, c->drhs_grad.qtype};

    if (!has_backward || !is_set(rule->bwd_stochastic_rounding))
        return OCTET_OK;
    for (int i = 0; i < 2; i++)
        if (types[i] && types[i]->code_max)
            return octet_fail(
                err, OCTET_INVALID_ARGUMENT, "rule.bwd_stochastic_rounding",
                "'%s' draws random numbers for %s gradients, and an op of its own has no "
                "state to draw from; it has no effect on floating-point types",
                rule->bwd_stochastic_rounding, types[i]->name);
    return OCTET_OK;
}

enum octet_status oct_config_make(const struct octet_rule *rule,
                                  enum octet_weight_operand weight_operand, bool has_backward,
                                  struct oct_config *out, struct octet_error *err)
{
    *out = (struct oct_config){.tile_size = "", .dlhs_tile_size = "", .drhs_tile_size = ""};
    if (!rule || !is_set(rule->weight_qtype)) /* whatever act_qtype says: formula 10 */
        return OCTET_OK;
    fill(rule, weight_operand, out);
    enum octet_status status = check(out, has_backward, err);
    return status == OCTET_OK ? check_noise(rule, out, has_backward, err) : status;
}
