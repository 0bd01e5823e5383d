/* Config: what a rule makes of one product: Qwix's DotGeneralQtConfig.
 *
 * For: dot_general, einsum, conv and grouped matmuls. Not for: rule lookup (lib/rules).
 * Source: Qwix 0.1.8, providers/qt.py, _create_dot_general_qt_config; core/dot_general_qt.py. */
#ifndef OCTET_QUANT_CONFIG_H
#define OCTET_QUANT_CONFIG_H

#include "octet/quant.h"
#include "quant/qtype.h"

/* One quantization. */
struct oct_setting {
    const struct oct_qtype *qtype; /* NULL: not quantized */
    const char *method;            /* in normal form */
    bool disable_channelwise_axes;
    bool is_static; /* act_static_scale: the calibration is averaged over the rule's act_batch_axes
                     */
};

struct oct_config {
    bool is_quantized; /* false: the op runs as if there were no rule */
    struct oct_setting lhs, rhs;
    const char *tile_size; /* "" = none, as the others */
    struct oct_setting dlhs_grad, drhs_grad;
    const char *dlhs_tile_size, *drhs_tile_size;
    struct oct_setting dlhs_residual, drhs_residual;
    bool use_original_residuals, disable_gradient_clipping;
    struct octet_sparsity sparsity; /* m = 0: none */
    const int32_t *act_batch_axes;
    size_t act_batch_axis_count;
};

/* rule: in normal form, or NULL. Errors: INVALID_ARGUMENT with field "rule.act_qtype" and so on for
 * what does not go together (a zero point in a product whose backward is quantized, stochastic
 * rounding of integers). */
enum octet_status oct_config_make(const struct octet_rule *rule,
                                  enum octet_weight_operand weight_operand, bool has_backward,
                                  struct oct_config *out, struct octet_error *err) OCTET_MUST_CHECK;

#endif
