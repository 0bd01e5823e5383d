/* See placement.h.
 *
 * Decision: an op goes to the accelerator only when all that its rule asks for is listed among the
 * capabilities; a setting that is not known here keeps it on the CPU. */
#include "plan/placement.h"

#include <string.h>

static bool has_op(const struct octet_capabilities *c, const struct oct_node *node)
{
    switch (node->op) {
    case OCT_OP_dot_general:
        return c->dot_general;
    case OCT_OP_einsum:
        return c->einsum;
    case OCT_OP_grouped_matmul:
        return c->grouped;
    default: /* such as a norm's multiplication by its weight */
        return false;
    }
}

static bool has_dtype(uint32_t set, enum octet_dtype dtype)
{
    return dtype != OCTET_DTYPE_UNSPECIFIED && (set >> dtype & 1);
}

/* "": not quantized. */
static bool has_qtype(const struct octet_capabilities *c, const char *qtype)
{
    return !qtype[0] || has_dtype(c->code_dtypes, octet_dtype_find(qtype));
}

static bool has_calibration(const struct octet_capabilities *c, const char *method)
{
    if (strncmp(method, "fixed", 5) == 0)
        return c->fixed;
    if (strncmp(method, "minmax", 6) == 0)
        return c->zero_points;
    return !method[0] || strncmp(method, "absmax", 6) == 0;
}

static bool has_settings(const struct octet_capabilities *c, const struct octet_rule *rule)
{
    bool is_tiled = rule->tile_size[0] || rule->bwd_weight_grad_tile_size[0];

    return (c->mixed || rule->act_qtype[0]) && (c->tiles || !is_tiled) &&
           (c->static_scale || !rule->act_static_scale) && (c->sparsity || !rule->sparsity.m) &&
           (c->stochastic_rounding || !rule->bwd_stochastic_rounding[0]) &&
           !rule->additional_qt_config_count;
}

const char *oct_plan_backend(const struct octet_capabilities *capabilities,
                             const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule)
{
    const struct octet_capabilities *c = capabilities;

    if (!c || !rule || !rule->weight_qtype[0] || !has_op(c, node) || !has_settings(c, rule) ||
        !has_dtype(c->number_dtypes, (enum octet_dtype)graph->tensors[node->outputs[0]].dtype) ||
        !has_qtype(c, rule->weight_qtype) || !has_qtype(c, rule->act_qtype) ||
        !has_qtype(c, rule->bwd_qtype) || !has_calibration(c, rule->weight_calibration_method) ||
        !has_calibration(c, rule->act_calibration_method) ||
        !has_calibration(c, rule->bwd_calibration_method))
        return "cpu";
    return c->name;
}
