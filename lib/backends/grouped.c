/* Grouped matmuls on a device: lib/quant/grouped.c with its arrays there. */
#include "backends/call.h"

static struct oct_device_groups groups_of(const struct oct_call *call, enum octet_dtype result,
                                          enum octet_dtype out_dtype)
{
    return (struct oct_device_groups){.first = call->pass.first,
                                      .groups = call->pass.groups,
                                      .m = call->pass.m,
                                      .rounds_once = call->pass.matmul->kind == OCT_MATMUL_GMM,
                                      .result = result,
                                      .out_dtype = out_dtype};
}

/* ---- forward ---- */

static int64_t tiles_of(const struct oct_device_array *x, int32_t axis)
{
    return x->is_quantized ? x->scale.dim[axis] : 1;
}

/* Dequantize first: small tiles, tiles that the sides do not share, tiles of the columns. */
static bool is_finer(const struct oct_pass *g, const struct oct_device_array *lhs,
                     const struct oct_device_array *rhs)
{
    int64_t l = tiles_of(lhs, 1), r = tiles_of(rhs, g->k_axis), most = l > r ? l : r;
    int64_t columns = tiles_of(rhs, g->n_axis);

    if (most > 1 && (g->k / most < OCT_TILE_MIN || (l > 1 && r > 1 && l != r)))
        return true;
    return columns != 1 && columns != g->n;
}

enum octet_status oct_device_grouped_forward(struct oct_call *call, struct oct_device_array *out,
                                             struct octet_error *err)
{
    struct oct_device_array lhs = call->lhs.value, rhs = call->rhs.value;
    enum octet_dtype result = oct_promote(oct_device_dtype(&lhs), oct_device_dtype(&rhs));
    struct oct_device_groups groups = groups_of(call, result, call->pass.op.to_out.dtype);
    enum octet_status status =
        oct_device_pair(&call->work, is_finer(&call->pass, &lhs, &rhs), &lhs, &rhs, err);

    return status == OCTET_OK
               ? oct_device_rows(&call->work, &groups, &lhs, &rhs, call->pass.k_axis, out, err)
               : status;
}

/* ---- backward ---- */

/* The residual of a side: its bare codes after the scale went onto *gradient, where that is
 * possible. */
static enum octet_status fold_scale(struct oct_call *call, bool is_lhs, bool folds,
                                    struct oct_device_array *gradient,
                                    struct oct_device_array *residual, struct octet_error *err)
{
    const struct oct_pass *g = &call->pass;
    const struct oct_side *side = is_lhs ? &g->lhs : &g->rhs;
    const struct octet_array *scale = &side->value.quantized.scale;
    struct oct_device_array value = is_lhs ? call->lhs.value : call->rhs.value, moved;
    int64_t dim[2] = {1, 1};

    if (!side->value.is_quantized)
        return oct_call_numbers(call, is_lhs, residual, err);
    bool is_one = scale->dim[is_lhs ? 1 : g->k_axis] == 1;
    bool fits =
        is_one && (is_lhs || ((scale->dim[g->n_axis] == 1 || scale->dim[g->n_axis] == g->n) &&
                              scale->dim[0] == 1));
    if (folds && !is_one && !side->given->is_quantized)
        return oct_call_numbers(call, is_lhs, residual, err);
    if (!folds || !fits) /* what it stands for, in its scale's dtype */
        return oct_device_dequantize(&call->work, &value, residual, err);
    dim[is_lhs ? 0 : 1] = scale->dim[is_lhs ? 0 : g->n_axis];
    enum octet_status status =
        oct_device_multiply(&call->work, &gradient->array, gradient->data, dim, NULL, value.scales,
                            gradient->array.dtype, &moved, err);
    *gradient = moved;
    *residual = (struct oct_device_array){.array = value.array, .data = value.data};
    return status;
}

/* The gradient as one product takes it: scaled, quantized along `axis`. */
static enum octet_status prepare(struct oct_call *call, bool for_lhs,
                                 struct oct_device_array *gradient,
                                 struct oct_device_array *residual, struct octet_error *err)
{
    const struct oct_config *c = &call->pass.op.config;
    const struct oct_setting *setting = for_lhs ? &c->dlhs_grad : &c->drhs_grad;
    const char *tile = for_lhs ? c->dlhs_tile_size : c->drhs_tile_size;
    int32_t axis = for_lhs ? 0 : 1;
    bool folds = setting->qtype || call->pass.matmul->kind == OCT_MATMUL_GMM;
    struct oct_how how = {
        .channelwise = 1u << axis, .tiled_axis = tile[0] ? 1 - axis : -1, .tile_size = tile};
    struct oct_device_array g = call->cotangent;
    enum octet_status status = fold_scale(call, !for_lhs, folds, &g, residual, err);

    *gradient = g;
    if (status != OCTET_OK || !setting->qtype)
        return status;
    status = oct_call_quantize_value(call, &g, setting, &how, "rule.bwd_weight_grad_tile_size",
                                     true, gradient, err);
    if (status == OCTET_OK && tile[0]) { /* groups may cut the tiles */
        g = *gradient;
        status = oct_device_dequantize(&call->work, &g, gradient, err);
    }
    return status;
}

enum octet_status oct_device_grouped_gradient(struct oct_call *call, bool for_lhs,
                                              enum octet_dtype dtype, struct oct_device_array *out,
                                              struct octet_error *err)
{
    const struct oct_pass *g = &call->pass;
    const struct oct_side *x = for_lhs ? &g->lhs : &g->rhs;
    struct oct_device_array gradient, other;
    enum octet_status status = prepare(call, for_lhs, &gradient, &other, err);

    if (status == OCTET_OK)
        status = oct_device_pair(&call->work, false, &gradient, &other, err);
    if (status != OCTET_OK)
        return status;
    bool is_plain = g->matmul->kind == OCT_MATMUL_GMM || !g->op.config.is_quantized;
    enum octet_dtype result =
        is_plain ? x->original.dtype
                 : oct_promote(oct_device_dtype(&gradient), oct_device_dtype(&other));
    struct oct_device_groups groups = groups_of(call, result, dtype);
    if (for_lhs)
        return oct_device_rows(&call->work, &groups, &gradient, &other, g->n_axis, out, err);
    return g->matmul->transpose_rhs
               ? oct_device_columns(&call->work, &groups, &gradient, &other, out, err)
               : oct_device_columns(&call->work, &groups, &other, &gradient, out, err);
}
