/* Convolution under a rule, forward: conv_general_dilated with channels last.
 *
 * Decision: padding and lhs' dilation are written into a copy of the codes (zero is code 0 in every
 * type); then element (output position, window position and channel) lies at the sum of two
 * offsets, so the convolution is a matrix product over tables of offsets and nothing is unrolled in
 * memory. Scales: per batch item of lhs, per output feature of rhs. Source: Qwix 0.1.8,
 * core/conv_general.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_env.h"
#include "kernels/kernels.h"
#include "quant/operand.h"
#include "quant/panels.h"

enum { SPATIAL_MAX = 3 };

struct conv {
    struct oct_op op;
    struct octet_conv_options how;
    struct oct_side lhs, rhs;
    int32_t spatial;
    int64_t batch, channels, features, group_channels, group_features;
    int64_t padded[SPATIAL_MAX], window[SPATIAL_MAX], output[SPATIAL_MAX];
};

static enum octet_status check_options(const struct conv *c, struct octet_error *err)
{
    char field[64];

    if (c->spatial < 1 || c->spatial > SPATIAL_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "spatial_count",
                          "%d spatial axes; 1 to 3 are supported", c->spatial);
    for (int32_t i = 0; i < c->spatial; i++) {
        const struct {
            const char *name;
            int64_t value, least;
        } numbers[] = {{"stride", c->how.stride[i], 1},
                       {"lhs_dilation", c->how.lhs_dilation[i], 1},
                       {"rhs_dilation", c->how.rhs_dilation[i], 1},
                       {"padding_low", c->how.padding_low[i], 0},
                       {"padding_high", c->how.padding_high[i], 0}};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            if (numbers[k].value >= numbers[k].least && numbers[k].value <= INT32_MAX)
                continue;
            snprintf(field, sizeof field, "%s[%d]", numbers[k].name, i);
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "%" PRId64 "; expected %" PRId64 " to 2147483647", numbers[k].value,
                              numbers[k].least);
        }
    }
    if (c->how.feature_groups < 1)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "feature_groups",
                          "%" PRId64 "; expected at least 1", c->how.feature_groups);
    return OCTET_OK;
}

static enum octet_status read_shapes(struct conv *c, const struct octet_array *x,
                                     const struct octet_array *w, struct octet_error *err)
{
    char a[160], b[160];

    if (x->rank != c->spatial + 2)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "lhs.shape",
                          "%s is not [batch, %d spatial axes, channels]",
                          octet_array_shape_text(x, a, sizeof a), c->spatial);
    if (w->rank != c->spatial + 2)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                          "%s is not [%d spatial axes, channels, features]",
                          octet_array_shape_text(w, b, sizeof b), c->spatial);
    c->batch = x->dim[0];
    c->channels = x->dim[x->rank - 1];
    c->group_channels = w->dim[w->rank - 2];
    c->features = w->dim[w->rank - 1];
    if (c->channels % c->how.feature_groups != 0 ||
        c->channels / c->how.feature_groups != c->group_channels ||
        c->features % c->how.feature_groups != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                          "%s does not go with lhs %s in %" PRId64 " feature groups",
                          octet_array_shape_text(w, b, sizeof b),
                          octet_array_shape_text(x, a, sizeof a), c->how.feature_groups);
    c->group_features = c->features / c->how.feature_groups;
    for (int32_t i = 0; i < c->spatial; i++) {
        int64_t dim = x->dim[i + 1], reach;
        c->window[i] = w->dim[i];
        c->padded[i] = (dim ? (dim - 1) * c->how.lhs_dilation[i] + 1 : 0) + c->how.padding_low[i] +
                       c->how.padding_high[i];
        reach = c->window[i] ? (c->window[i] - 1) * c->how.rhs_dilation[i] + 1 : 0;
        c->output[i] = c->padded[i] < reach ? 0 : (c->padded[i] - reach) / c->how.stride[i] + 1;
    }
    return OCTET_OK;
}

/* x with its padding and dilation. */
static enum octet_status pad(struct conv *c, const struct octet_array *x, struct octet_array *out,
                             struct octet_error *err)
{
    int64_t dim[OCTET_ARRAY_RANK_MAX], low = 0, stride[OCTET_ARRAY_RANK_MAX], s = c->channels;
    size_t bytes = octet_dtype_bytes(x->dtype) * (size_t)c->channels;
    const int64_t *to;
    enum octet_status status;

    dim[0] = c->batch;
    memcpy(dim + 1, c->padded, sizeof c->padded);
    dim[x->rank - 1] = c->channels;
    status = octet_array_create(c->op.work.arena, x->dtype, x->rank, dim, out, err);
    if (status != OCTET_OK)
        return status;
    for (int32_t i = x->rank - 2; i >= 0; i--) {
        stride[i] = s * (i ? c->how.lhs_dilation[i - 1] : 1);
        low += i ? s * c->how.padding_low[i - 1] : 0;
        s *= dim[i];
    }
    status = oct_offsets(c->op.work.arena, x->rank - 1, x->dim, NULL, stride, &to, NULL, err);
    int64_t pixels = c->channels ? octet_array_elements(x) / c->channels : 0;
    for (int64_t i = 0; i < pixels && status == OCTET_OK; i++)
        memcpy((char *)out->data + (size_t)(low + to[i]) * octet_dtype_bytes(x->dtype),
               (const char *)x->data + (size_t)i * bytes, bytes);
    return status;
}

/* Offsets over (batch, output position) and over (window position, channel). */
static enum octet_status x_tables(struct conv *c, const int64_t **rows, const int64_t **depth,
                                  const int64_t **scales, bool has_batch_scale,
                                  struct octet_error *err)
{
    int64_t extent[SPATIAL_MAX + 1] = {c->batch}, stride[SPATIAL_MAX + 1], s = c->channels;
    int64_t reach[SPATIAL_MAX + 1], taps[SPATIAL_MAX + 1], batch_only[SPATIAL_MAX + 1] = {0};
    octet_arena *arena = c->op.work.arena;
    enum octet_status status;

    for (int32_t i = c->spatial - 1; i >= 0; i--) {
        extent[i + 1] = c->output[i];
        stride[i + 1] = s * c->how.stride[i];
        taps[i] = c->window[i];
        reach[i] = s * c->how.rhs_dilation[i];
        s *= c->padded[i];
    }
    stride[0] = s;
    taps[c->spatial] = c->group_channels;
    reach[c->spatial] = 1;
    batch_only[0] = has_batch_scale;
    status = oct_offsets(arena, c->spatial + 1, extent, NULL, stride, rows, NULL, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, c->spatial + 1, taps, NULL, reach, depth, NULL, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, c->spatial + 1, extent, NULL, batch_only, scales, NULL, err);
    return status;
}

/* Scales as this op has them: one, or one an item (lhs) or feature (rhs). */
static enum octet_status check_scale(const struct oct_side *side, int32_t axis,
                                     struct octet_error *err)
{
    const struct octet_array *scale = &side->value.quantized.scale;
    char shape[160], field[64];

    for (int32_t i = 0; i < scale->rank && side->value.is_quantized; i++)
        if (scale->dim[i] != 1 &&
            (i != axis || scale->dim[i] != side->value.quantized.qvalue.dim[i])) {
            snprintf(field, sizeof field, "%s.quantized.scale.shape", side->name);
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "%s: a convolution takes scales along axis %d only",
                              octet_array_shape_text(scale, shape, sizeof shape), axis);
        }
    if (side->value.is_quantized && side->value.quantized.zero_point.data) {
        snprintf(field, sizeof field, "%s.quantized.zero_point", side->name);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                          "a convolution takes operands without zero points");
    }
    return OCTET_OK;
}

static enum octet_status quantize_operands(struct conv *c, struct octet_error *err)
{
    const struct oct_config *config = &c->op.config;
    int32_t feature_axis = c->spatial + 1;
    struct oct_how lhs_how = {.channelwise = 1u << 0, .tiled_axis = -1};
    struct oct_how rhs_how = {.channelwise = 1u << feature_axis, .tiled_axis = -1};
    enum octet_status status = OCTET_OK;

    if (config->is_quantized) {
        if (config->tile_size[0] || (config->lhs.qtype && config->lhs.qtype->block) ||
            (config->rhs.qtype && config->rhs.qtype->block))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.tile_size",
                              "a convolution takes no tiles, nor types that need them");
        status = oct_side_quantize(&c->op, &c->lhs, &config->lhs, &lhs_how, "rule.tile_size", err);
        if (status == OCTET_OK)
            status =
                oct_side_quantize(&c->op, &c->rhs, &config->rhs, &rhs_how, "rule.tile_size", err);
    }
    c->op.record->lhs = c->lhs.value.quantized;
    c->op.record->rhs = c->rhs.value.quantized;
    if (status == OCTET_OK)
        status = check_scale(&c->lhs, 0, err);
    return status == OCTET_OK ? check_scale(&c->rhs, feature_axis, err) : status;
}

/* If one side is not quantized, both are multiplied as they are. */
static enum octet_status settle_values(struct conv *c, struct oct_value *lhs, struct oct_value *rhs,
                                       struct octet_error *err)
{
    struct oct_value *both[] = {lhs, rhs};
    enum octet_status status = OCTET_OK;

    *lhs = c->lhs.value;
    *rhs = c->rhs.value;
    if (lhs->is_quantized == rhs->is_quantized)
        return OCTET_OK;
    for (int i = 0; i < 2 && status == OCTET_OK; i++)
        if (both[i]->is_quantized) {
            both[i]->is_quantized = false;
            status = oct_dequantize(&c->op.work, &both[i]->quantized, &both[i]->array, err);
        }
    return status;
}

static enum octet_status multiply(struct conv *c, const struct oct_value *lhs,
                                  const struct oct_value *rhs, struct octet_error *err)
{
    octet_arena *arena = c->op.work.arena;
    struct octet_array *out = &c->op.out->out, x;
    const struct octet_array *w = oct_value_shape(rhs);
    struct oct_panels panels = {.compute = c->op.compute,
                                .scratch = arena,
                                .result = out,
                                .is_fast = c->op.options->accumulation == OCTET_FAST,
                                .rounding = out->dtype,
                                .places.is_contiguous = true};
    int64_t rows = c->features ? octet_array_elements(out) / c->features : 0, one = 1;
    int64_t depth = c->features ? octet_array_elements(w) / c->features : 0;
    const int64_t *x_rows, *x_depth, *scale_rows, *w_depth;
    const float *ls = NULL, *rs = NULL;
    struct oct_panel *list = OCTET_NEW_ARRAY(arena, c->how.feature_groups, struct oct_panel);
    enum octet_status status = list ? OCTET_OK : octet_arena_exhausted(arena, err);

    if (status == OCTET_OK)
        status = pad(c, oct_value_shape(lhs), &x, err);
    if (status == OCTET_OK)
        status = x_tables(c, &x_rows, &x_depth, &scale_rows,
                          lhs->is_quantized && lhs->quantized.scale.dim[0] != 1, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, 1, &rows, NULL, &c->features, &panels.places.rows, NULL, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, 1, &c->features, NULL, &one, &panels.places.columns, NULL, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, 1, &depth, NULL, &c->features, &w_depth, NULL, err);
    if (status == OCTET_OK && lhs->is_quantized)
        status = oct_scale_values(&c->op.work, &lhs->quantized.scale, &ls, err);
    if (status == OCTET_OK && rhs->is_quantized)
        status = oct_scale_values(&c->op.work, &rhs->quantized.scale, &rs, err);
    if (status != OCTET_OK)
        return status;
    size_t step = rs && rhs->quantized.scale.dim[w->rank - 1] != 1;
    for (int64_t g = 0; g < c->how.feature_groups; g++) {
        int64_t first = g * c->group_features;
        list[g] = (struct oct_panel){
            .gemm = {.m = rows,
                     .n = c->group_features,
                     .k = depth,
                     .lhs = {.dtype = x.dtype,
                             .data = (const char *)x.data +
                                     g * c->group_channels * (int64_t)octet_dtype_bytes(x.dtype),
                             .free = x_rows,
                             .depth = x_depth},
                     .rhs = {.dtype = w->dtype,
                             .data = (const char *)w->data +
                                     first * (int64_t)octet_dtype_bytes(w->dtype),
                             .free = panels.places.columns,
                             .depth = w_depth,
                             .free_stride = 1,
                             .depth_stride = c->features}},
            .lhs_scale = ls,
            .lhs_index = scale_rows,
            .rhs_scale = rs ? rs + (step ? first : 0) : NULL,
            .rhs_stride = step,
            .origin = first};
    }
    return oct_panels_add(&panels, list, (size_t)c->how.feature_groups, 0, 1, err);
}

static enum octet_status run(struct conv *c, const struct octet_operand *lhs,
                             const struct octet_operand *rhs, struct octet_error *err)
{
    struct oct_value l, r;
    int64_t dim[OCTET_ARRAY_RANK_MAX];
    enum octet_status status = check_options(c, err);

    if (status == OCTET_OK)
        status = oct_side_check(&c->lhs, "lhs", lhs, err);
    if (status == OCTET_OK)
        status = oct_side_check(&c->rhs, "rhs", rhs, err);
    if (status == OCTET_OK)
        status =
            read_shapes(c, oct_value_shape(&c->lhs.value), oct_value_shape(&c->rhs.value), err);
    if (status == OCTET_OK)
        status = quantize_operands(c, err);
    if (status == OCTET_OK)
        status = settle_values(c, &l, &r, err);
    if (status != OCTET_OK)
        return status;
    dim[0] = c->batch;
    memcpy(dim + 1, c->output, sizeof c->output);
    dim[c->spatial + 1] = c->features;
    status = octet_array_create(c->op.compute->arena,
                                oct_promote(oct_value_dtype(&l), oct_value_dtype(&r)),
                                c->spatial + 2, dim, &c->op.out->out, err);
    if (status == OCTET_OK && octet_array_elements(&c->op.out->out))
        status = multiply(c, &l, &r, err);
    return status == OCTET_OK ? oct_op_finish(&c->op, &c->lhs, &c->rhs, err) : status;
}

enum octet_status oct_quant_conv(const struct octet_compute *compute,
                                 const struct octet_operand *lhs, const struct octet_operand *rhs,
                                 const struct octet_conv_options *conv,
                                 const struct octet_product_options *options,
                                 struct oct_record *record, struct octet_product *out,
                                 struct octet_error *err)
{
    struct octet_product_options chosen = *options;
    struct conv c = {.how = *conv, .spatial = conv->spatial_count};

    if (options->cotangent)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "cotangent",
                          "the gradients of a convolution are not implemented");
    chosen.weight_operand = OCTET_WEIGHT_RHS;
    struct oct_float_env env = oct_float_env_enter();
    enum octet_status status = oct_op_begin(&c.op, compute, &chosen, record, out, err);
    if (status == OCTET_OK)
        status = run(&c, lhs, rhs, err);
    oct_op_end(&c.op);
    oct_float_env_leave(env);
    return status;
}

enum octet_status octet_conv(const struct octet_compute *compute, const struct octet_operand *lhs,
                             const struct octet_operand *rhs, const struct octet_conv_options *conv,
                             const struct octet_product_options *options, struct octet_product *out,
                             struct octet_error *err)
{
    return oct_quant_conv(compute, lhs, rhs, conv, options, NULL, out, err);
}
