/* dot_general under a rule, forward and both gradients.
 *
 * Source: Qwix 0.1.8, core/dot_general_qt.py; formulas 8 to 11, 14, 17. */
#include <string.h>

#include "quant/panels.h"
#include "quant/pass.h"
#include "quant/sparsity.h"

enum octet_status oct_dot_how(int32_t rank, const int32_t *contracting, int32_t count,
                              const char *tile_size, const char *tile_field, struct oct_how *how,
                              struct octet_error *err)
{
    *how = (struct oct_how){.channelwise = (1u << rank) - 1, .tiled_axis = -1};
    for (int32_t i = 0; i < count; i++)
        how->channelwise &= ~(1u << contracting[i]);
    if (!tile_size[0])
        return OCTET_OK;
    if (count == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, tile_field,
                          "'%s', but no axis is contracted that tiles could lie on", tile_size);
    how->tiled_axis = contracting[count - 1];
    how->tile_size = tile_size;
    return OCTET_OK;
}

/* Block-scaled types without a tile size: Qwix refuses the rule. */
static enum octet_status check_block(const struct oct_setting *setting, const char *tile_size,
                                     const char *tile_field, struct octet_error *err)
{
    if (!setting->qtype || !setting->qtype->block || tile_size[0])
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, tile_field, "%s needs tiles of %d",
                      setting->qtype->name, setting->qtype->block);
}

enum octet_status oct_dot_quantize(struct oct_pass *pass, bool is_lhs, bool foresees,
                                   struct octet_error *err)
{
    const struct octet_dot_dims *dims = &pass->matmul->dims;
    struct oct_op *op = &pass->op;
    struct oct_side *side = is_lhs ? &pass->lhs : &pass->rhs;
    const struct oct_setting *setting = is_lhs ? &op->config.lhs : &op->config.rhs;
    const char *tile = op->config.tile_size;
    struct oct_how how;
    enum octet_status status = OCTET_OK;

    if (side->given->is_quantized || !op->config.is_quantized)
        return OCTET_OK;
    if (!is_lhs && op->config.sparsity.m && !foresees) {
        status =
            oct_sparsify(&op->work, &side->original, &op->config.sparsity, &side->original, err);
        side->value.array = op->record->rhs_sparse = side->original;
    }
    if (!setting->qtype || status != OCTET_OK)
        return status;
    status = check_block(setting, tile, "rule.tile_size", err);
    if (status == OCTET_OK)
        status =
            oct_dot_how(side->original.rank, is_lhs ? dims->lhs_contracting : dims->rhs_contracting,
                        dims->contracting_count, tile, "rule.tile_size", &how, err);
    if (status != OCTET_OK)
        return status;
    return foresees ? oct_side_foresee(op, side, setting, &how, "rule.tile_size", err)
                    : oct_side_quantize(op, side, setting, &how, "rule.tile_size", err);
}

enum octet_status oct_dot_shapes(struct oct_pass *pass, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &pass->matmul->dims;
    enum octet_status status = oct_dims_check(oct_value_shape(&pass->lhs.value),
                                              oct_value_shape(&pass->rhs.value), dims, err);

    for (int32_t i = 0; i < dims->contracting_count && status == OCTET_OK; i++) {
        pass->lhs.contracting |= 1u << dims->lhs_contracting[i];
        pass->rhs.contracting |= 1u << dims->rhs_contracting[i];
    }
    return status;
}

void oct_dot_result_axes(const struct oct_matmul *matmul, int32_t *axes)
{
    for (int32_t i = 0; i < OCTET_AXES_MAX; i++)
        axes[i] = matmul->is_turned ? matmul->result_axes[i] : i;
}

enum octet_status oct_dot_forward(struct oct_pass *pass, struct octet_error *err)
{
    struct oct_op *op = &pass->op;
    int32_t axes[OCTET_AXES_MAX];
    struct oct_product product = {.lhs = &pass->lhs.value,
                                  .rhs = &pass->rhs.value,
                                  .dims = pass->matmul->dims,
                                  .result_axes = axes,
                                  .is_fast = op->options->accumulation == OCTET_FAST,
                                  .to = &op->to_out};

    op->record->lhs = pass->lhs.value.quantized;
    op->record->rhs = pass->rhs.value.quantized;
    oct_dot_result_axes(pass->matmul, axes);
    if (!pass->lhs.value.is_quantized && !pass->rhs.value.is_quantized)
        oct_product_turn(&product, axes);
    return oct_product_run(op->compute, &product, &op->out->out, err);
}

/* ---- backward ---- */

/* One gradient: x is the operand it is for, y the other one. g's axes are the result's. */
struct gradient {
    bool for_lhs;
    struct oct_side *x, *y;
    const struct oct_setting *grad, *residual;
    const char *tile_size, *tile_field;
    struct octet_dot_dims dims; /* g is lhs, y is rhs */
    int32_t result_axes[OCTET_ARRAY_RANK_MAX];
    struct octet_array *pre; /* into the record */
    struct octet_quantized *g_quantized, *y_quantized;
};

void oct_gradient_dims(const struct octet_dot_dims *forward, const struct octet_array *x,
                       const struct octet_array *y, bool for_lhs, const int32_t *axes,
                       struct octet_dot_dims *dims, int32_t *result_axes)
{
    const int32_t *x_contracting = for_lhs ? forward->lhs_contracting : forward->rhs_contracting;
    const int32_t *y_contracting = for_lhs ? forward->rhs_contracting : forward->lhs_contracting;
    const int32_t *x_batch = for_lhs ? forward->lhs_batch : forward->rhs_batch;
    const int32_t *y_batch = for_lhs ? forward->rhs_batch : forward->lhs_batch;
    int32_t contracting = forward->contracting_count, batch = forward->batch_count;
    int32_t x_free[OCTET_AXES_MAX], y_free[OCTET_AXES_MAX];
    int32_t x_count = oct_free_axes(x->rank, x_contracting, contracting, x_batch, batch, x_free);
    int32_t y_count = oct_free_axes(y->rank, y_contracting, contracting, y_batch, batch, y_free);
    int32_t at = 0;

    *dims = (struct octet_dot_dims){.contracting_count = y_count, .batch_count = batch};
    for (int32_t i = 0; i < batch; i++) {
        dims->lhs_batch[i] = axes[i];
        dims->rhs_batch[i] = y_batch[i];
        result_axes[at++] = x_batch[i];
    }
    for (int32_t i = 0; i < y_count; i++) {
        dims->lhs_contracting[i] = axes[batch + (for_lhs ? x_count : 0) + i];
        dims->rhs_contracting[i] = y_free[i];
    }
    axes += batch + (for_lhs ? 0 : y_count); /* x's free ones, which come as they stand in g */
    for (int32_t axis = 0; axis < batch + x_count + y_count; axis++)
        for (int32_t i = 0; i < x_count; i++)
            if (axes[i] == axis)
                result_axes[at++] = x_free[i];
    for (int32_t axis = 0; axis < y->rank; axis++)
        for (int32_t i = 0; i < contracting; i++)
            if (y_contracting[i] == axis)
                result_axes[at++] = x_contracting[i];
}

/* The scale of y as g's axes have it: their order differs where batch axes stand elsewhere. */
static enum octet_status turn_scale(struct oct_op *op, const struct octet_array *scale,
                                    const struct octet_dot_dims *dims, int32_t rank, int64_t *dim,
                                    float **out, struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX] = {0}, of_axis[OCTET_ARRAY_RANK_MAX], count = 1;
    const int64_t *from;
    const float *values;
    enum octet_status status;

    oct_strides(scale, of_axis);
    for (int32_t i = 0; i < rank; i++)
        dim[i] = 1;
    for (int32_t i = 0; i < dims->contracting_count; i++) {
        dim[dims->lhs_contracting[i]] = scale->dim[dims->rhs_contracting[i]];
        stride[dims->lhs_contracting[i]] = of_axis[dims->rhs_contracting[i]];
    }
    for (int32_t i = 0; i < dims->batch_count; i++) {
        dim[dims->lhs_batch[i]] = scale->dim[dims->rhs_batch[i]];
        stride[dims->lhs_batch[i]] = of_axis[dims->rhs_batch[i]];
    }
    for (int32_t i = 0; i < rank; i++)
        count *= dim[i];
    status = oct_offsets(op->work.arena, rank, dim, NULL, stride, &from, NULL, err);
    if (status == OCTET_OK)
        status = oct_scale_values(&op->work, scale, &values, err);
    if (status != OCTET_OK)
        return status;
    *out = OCTET_NEW_ARRAY(op->work.arena, count, float);
    if (!*out)
        return octet_arena_exhausted(op->work.arena, err);
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = values[from[i]];
    return OCTET_OK;
}

/* g times the scale of y, which lies along g's contracting and batch axes. y becomes bare codes. */
static enum octet_status move_scale(struct oct_op *op, const struct gradient *gradient,
                                    const struct octet_array *g, struct oct_value *y,
                                    struct oct_source *out, struct octet_error *err)
{
    const struct octet_array *scale = &y->quantized.scale;
    int64_t dim[OCTET_ARRAY_RANK_MAX];
    float *values;
    enum octet_status status = turn_scale(op, scale, &gradient->dims, g->rank, dim, &values, err);

    if (status != OCTET_OK)
        return status;
    *out = oct_source_times(g, dim, values, oct_promote(g->dtype, scale->dtype));
    *y = (struct oct_value){.array = y->quantized.qvalue};
    return OCTET_OK;
}

static enum octet_status quantize_gradient(struct oct_op *op, const struct gradient *gradient,
                                           const struct octet_array *g, struct oct_value *y,
                                           struct oct_value *out, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &gradient->dims;
    struct oct_source source = oct_source_of(g);
    struct oct_how how;
    enum octet_status status = OCTET_OK;

    if (y->is_quantized)
        status = move_scale(op, gradient, g, y, &source, err);
    if (status == OCTET_OK)
        status = check_block(gradient->grad, gradient->tile_size, gradient->tile_field, err);
    if (status == OCTET_OK)
        status = oct_dot_how(g->rank, dims->lhs_contracting, dims->contracting_count,
                             gradient->tile_size, gradient->tile_field, &how, err);
    if (status != OCTET_OK)
        return status;
    status = oct_value_quantize(op, &source, gradient->grad, &how, gradient->tile_field,
                                &op->cotangent_stats, gradient->pre, out, err);
    *gradient->g_quantized = out->quantized;
    return status;
}

static enum octet_status quantize_residual(struct oct_op *op, const struct gradient *gradient,
                                           struct oct_value *y, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &gradient->dims;
    struct oct_source source = oct_source_of(&y->array);
    struct oct_how how;
    enum octet_status status =
        check_block(gradient->residual, gradient->tile_size, gradient->tile_field, err);

    if (status == OCTET_OK)
        status = oct_dot_how(y->array.rank, dims->rhs_contracting, dims->contracting_count,
                             gradient->tile_size, gradient->tile_field, &how, err);
    if (status == OCTET_OK)
        status = oct_value_quantize(op, &source, gradient->residual, &how, gradient->tile_field,
                                    NULL, NULL, y, err);
    *gradient->y_quantized = y->quantized;
    return status;
}

static enum octet_status multiply(struct oct_op *op, struct gradient *gradient,
                                  const struct octet_array *cotangent, const struct octet_array *to,
                                  struct octet_array *out, struct octet_error *err)
{
    struct oct_value y, factor = {.array = *cotangent};
    enum octet_status status;

    status = oct_side_residual(op, gradient->y, &y, err);
    if (status == OCTET_OK && gradient->grad->qtype)
        status = quantize_gradient(op, gradient, cotangent, &y, &factor, err);
    if (status == OCTET_OK && !y.is_quantized && oct_value_dtype(&y) && gradient->residual->qtype)
        status = quantize_residual(op, gradient, &y, err);
    if (status != OCTET_OK)
        return status;
    struct oct_product product = {.lhs = &factor,
                                  .rhs = &y,
                                  .dims = gradient->dims,
                                  .result_axes = gradient->result_axes,
                                  .result_dtype = op->config.is_quantized
                                                      ? OCTET_DTYPE_UNSPECIFIED
                                                      : gradient->x->original.dtype,
                                  .is_fast = op->options->accumulation == OCTET_FAST,
                                  .to = to};
    oct_product_turn(&product, gradient->result_axes);
    status = oct_product_run(op->compute, &product, out, err);
    return status == OCTET_OK ? oct_side_mask(op, gradient->x, out, err) : status;
}

/* The same with working memory of its own: the two gradients need it one after the other. */
static enum octet_status backward_one(struct oct_pass *pass, struct gradient *gradient,
                                      const struct octet_array *cotangent,
                                      const struct octet_array *to, struct octet_array *out,
                                      struct octet_error *err)
{
    struct oct_op *op = &pass->op;
    octet_arena *outer = op->work.arena, *inner = NULL;
    int32_t axes[OCTET_AXES_MAX];

    oct_dot_result_axes(pass->matmul, axes);
    oct_gradient_dims(&pass->matmul->dims, oct_value_shape(&gradient->x->value),
                      oct_value_shape(&gradient->y->value), gradient->for_lhs, axes,
                      &gradient->dims, gradient->result_axes);
    if (op->record == &op->unused) {
        inner = octet_arena_create_within(outer);
        if (!inner)
            return octet_arena_exhausted(outer, err);
        op->work.arena = inner;
    }
    enum octet_status status = multiply(op, gradient, cotangent, to, out, err);
    op->work.arena = outer;
    octet_arena_destroy(inner);
    return status;
}

enum octet_status oct_dot_backward(struct oct_pass *pass, struct octet_error *err)
{
    struct oct_op *op = &pass->op;
    const struct oct_config *c = &op->config;
    struct oct_record *r = op->record;
    struct gradient for_lhs = {.for_lhs = true,
                               .x = &pass->lhs,
                               .y = &pass->rhs,
                               .grad = &c->dlhs_grad,
                               .residual = &c->dlhs_residual,
                               .tile_size = c->dlhs_tile_size,
                               .tile_field = "rule.bwd_weight_grad_tile_size",
                               .pre = &r->g_dlhs_pre,
                               .g_quantized = &r->g_dlhs,
                               .y_quantized = &r->y_dlhs};
    struct gradient for_rhs = {.x = &pass->rhs,
                               .y = &pass->lhs,
                               .grad = &c->drhs_grad,
                               .residual = &c->drhs_residual,
                               .tile_size = c->drhs_tile_size,
                               .tile_field = "rule.bwd_weight_grad_tile_size",
                               .pre = &r->g_drhs_pre,
                               .g_quantized = &r->g_drhs,
                               .y_quantized = &r->y_drhs};
    struct octet_array g;
    enum octet_status status = oct_cotangent(op, &op->out->out, &g, err);

    if (status == OCTET_OK && op->wants_lhs_grad)
        status = backward_one(pass, &for_lhs, &g, &op->to_lhs_grad, &op->out->lhs_grad, err);
    if (status == OCTET_OK && op->wants_rhs_grad)
        status = backward_one(pass, &for_rhs, &g, &op->to_rhs_grad, &op->out->rhs_grad, err);
    if (status == OCTET_OK && op->wants_rhs_grad && c->is_quantized && c->sparsity.m)
        status = oct_mask_sparse(&op->work, &pass->rhs.given->array, &c->sparsity,
                                 &op->out->rhs_grad, err);
    return status;
}
