/* dot_general on a device: lib/quant/dot.c with its arrays there. */
#include <string.h>

#include "backends/call.h"
#include "quant/panels.h"

enum octet_status oct_device_dot_forward(struct oct_call *call, struct oct_device_array *out,
                                         struct octet_error *err)
{
    int32_t axes[OCTET_AXES_MAX];
    struct oct_device_dot dot = {.lhs = &call->lhs.value,
                                 .rhs = &call->rhs.value,
                                 .dims = call->pass.matmul->dims,
                                 .result_axes = axes,
                                 .out_dtype = call->pass.op.to_out.dtype,
                                 .accumulation = call->options.accumulation};

    oct_dot_result_axes(call->pass.matmul, axes);
    return oct_device_dot(&call->work, &dot, out, err);
}

/* One gradient: x is the operand it is for, y the other one. */
struct gradient {
    bool for_lhs;
    const struct oct_setting *grad, *residual;
    const char *tile_size;
    struct octet_dot_dims dims; /* g is lhs, y is rhs */
    int32_t result_axes[OCTET_ARRAY_RANK_MAX];
};

static const char tile_field[] = "rule.bwd_weight_grad_tile_size";

/* The operand for a backward product: its codes if they can be used again, else its numbers. */
static enum octet_status residual_of(struct oct_call *call, bool is_lhs,
                                     struct oct_device_array *out, struct octet_error *err)
{
    const struct oct_side *side = is_lhs ? &call->pass.lhs : &call->pass.rhs;

    if (!side->value.is_quantized || !oct_side_is_reusable(&call->pass.op, side))
        return oct_call_numbers(call, is_lhs, out, err);
    *out = is_lhs ? call->lhs.value : call->rhs.value;
    return OCTET_OK;
}

/* g times the scale of y, which lies along g's contracting and batch axes. y becomes bare codes. */
static enum octet_status move_scale(struct oct_call *call, const struct gradient *gradient,
                                    struct oct_device_array *g, struct oct_device_array *y,
                                    struct octet_error *err)
{
    const struct octet_dot_dims *dims = &gradient->dims;
    int64_t dim[OCTET_ARRAY_RANK_MAX], stride[OCTET_ARRAY_RANK_MAX] = {0};
    int64_t of_axis[OCTET_ARRAY_RANK_MAX];
    struct oct_device_array moved;

    oct_strides(&y->scale, of_axis);
    for (int32_t i = 0; i < g->array.rank; i++)
        dim[i] = 1;
    for (int32_t i = 0; i < dims->contracting_count; i++) {
        dim[dims->lhs_contracting[i]] = y->scale.dim[dims->rhs_contracting[i]];
        stride[dims->lhs_contracting[i]] = of_axis[dims->rhs_contracting[i]];
    }
    for (int32_t i = 0; i < dims->batch_count; i++) {
        dim[dims->lhs_batch[i]] = y->scale.dim[dims->rhs_batch[i]];
        stride[dims->lhs_batch[i]] = of_axis[dims->rhs_batch[i]];
    }
    enum octet_status status =
        oct_device_multiply(&call->work, &g->array, g->data, dim, stride, y->scales,
                            oct_promote(g->array.dtype, y->scale.dtype), &moved, err);
    *g = moved;
    y->is_quantized = false;
    y->scales = NULL;
    return status;
}

static enum octet_status quantize_factor(struct oct_call *call, const struct gradient *gradient,
                                         struct oct_device_array *g, struct oct_device_array *y,
                                         struct oct_device_array *out, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &gradient->dims;
    struct oct_how how;
    enum octet_status status = OCTET_OK;

    if (y->is_quantized)
        status = move_scale(call, gradient, g, y, err);
    if (status == OCTET_OK)
        status = oct_dot_how(g->array.rank, dims->lhs_contracting, dims->contracting_count,
                             gradient->tile_size, tile_field, &how, err);
    return status == OCTET_OK
               ? oct_call_quantize_value(call, g, gradient->grad, &how, tile_field, true, out, err)
               : status;
}

static enum octet_status quantize_residual(struct oct_call *call, const struct gradient *gradient,
                                           struct oct_device_array *y, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &gradient->dims;
    struct oct_device_array x = *y;
    struct oct_how how;
    enum octet_status status =
        oct_dot_how(x.array.rank, dims->rhs_contracting, dims->contracting_count,
                    gradient->tile_size, tile_field, &how, err);

    return status == OCTET_OK ? oct_call_quantize_value(call, &x, gradient->residual, &how,
                                                        tile_field, false, y, err)
                              : status;
}

static enum octet_status mask(struct oct_call *call, bool is_lhs,
                              const struct oct_device_array *gradient, struct octet_error *err)
{
    const struct oct_side *side = is_lhs ? &call->pass.lhs : &call->pass.rhs;
    struct oct_device_array x;

    if (!oct_side_masks(&call->pass.op, side))
        return OCTET_OK;
    enum octet_status status = oct_call_numbers(call, is_lhs, &x, err);
    return status == OCTET_OK
               ? oct_device_mask(&call->work, &x, is_lhs ? &call->lhs.value : &call->rhs.value,
                                 gradient, err)
               : status;
}

enum octet_status oct_device_dot_gradient(struct oct_call *call, bool for_lhs,
                                          enum octet_dtype dtype, struct oct_device_array *out,
                                          struct octet_error *err)
{
    const struct oct_config *c = &call->pass.op.config;
    const struct oct_side *x = for_lhs ? &call->pass.lhs : &call->pass.rhs;
    const struct oct_side *other = for_lhs ? &call->pass.rhs : &call->pass.lhs;
    struct gradient gradient = {.for_lhs = for_lhs,
                                .grad = for_lhs ? &c->dlhs_grad : &c->drhs_grad,
                                .residual = for_lhs ? &c->dlhs_residual : &c->drhs_residual,
                                .tile_size = for_lhs ? c->dlhs_tile_size : c->drhs_tile_size};
    struct oct_device_array g = call->cotangent, y, factor;
    int32_t axes[OCTET_AXES_MAX];

    oct_dot_result_axes(call->pass.matmul, axes);
    oct_gradient_dims(&call->pass.matmul->dims, oct_value_shape(&x->value),
                      oct_value_shape(&other->value), for_lhs, axes, &gradient.dims,
                      gradient.result_axes);
    enum octet_status status = residual_of(call, !for_lhs, &y, err);
    factor = g;
    if (status == OCTET_OK && gradient.grad->qtype)
        status = quantize_factor(call, &gradient, &g, &y, &factor, err);
    if (status == OCTET_OK && !y.is_quantized && oct_device_dtype(&y) && gradient.residual->qtype)
        status = quantize_residual(call, &gradient, &y, err);
    if (status != OCTET_OK)
        return status;
    struct oct_device_dot dot = {.lhs = &factor,
                                 .rhs = &y,
                                 .dims = gradient.dims,
                                 .result_axes = gradient.result_axes,
                                 .result_dtype =
                                     c->is_quantized ? OCTET_DTYPE_UNSPECIFIED : x->original.dtype,
                                 .out_dtype = dtype,
                                 .accumulation = call->options.accumulation};
    status = oct_device_dot(&call->work, &dot, out, err);
    return status == OCTET_OK ? mask(call, for_lhs, out, err) : status;
}
