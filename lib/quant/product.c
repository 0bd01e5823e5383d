/* See product.h. */
#include "quant/product.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quant/pack.h"
#include "quant/panels.h"
#include "quant/quantize.h"

const struct octet_array *oct_value_shape(const struct oct_value *value)
{
    return value->is_quantized ? &value->quantized.qvalue : &value->array;
}

static bool is_float(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16;
}

static bool is_integer(const struct oct_value *value)
{
    enum octet_dtype dtype = oct_value_shape(value)->dtype;

    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

enum octet_dtype oct_value_dtype(const struct oct_value *value)
{
    if (value->is_quantized)
        return value->quantized.scale.dtype;
    return is_float(value->array.dtype) ? value->array.dtype : OCTET_DTYPE_UNSPECIFIED;
}

enum octet_dtype oct_promote(enum octet_dtype a, enum octet_dtype b)
{
    return a == OCTET_DTYPE_F32 || b == OCTET_DTYPE_F32 ? OCTET_DTYPE_F32 : OCTET_DTYPE_BF16;
}

int32_t oct_free_axes(int32_t rank, const int32_t *contracting, int32_t contracting_count,
                      const int32_t *batch, int32_t batch_count, int32_t *out)
{
    uint32_t taken = 0;
    int32_t count = 0;

    for (int32_t i = 0; i < contracting_count; i++)
        taken |= 1u << contracting[i];
    for (int32_t i = 0; i < batch_count; i++)
        taken |= 1u << batch[i];
    for (int32_t axis = 0; axis < rank; axis++)
        if (!(taken >> axis & 1))
            out[count++] = axis;
    return count;
}

/* ---- dimension numbers ---- */

static enum octet_status check_axes(const char *name, const int32_t *axes, int32_t count,
                                    const struct octet_array *array, uint32_t *taken,
                                    struct octet_error *err)
{
    char field[96];

    for (int32_t i = 0; i < count; i++) {
        snprintf(field, sizeof field, "dimension_numbers.%s[%d]", name, i);
        if (axes[i] < 0 || axes[i] >= array->rank)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "axis %d is not one of an operand of rank %d", axes[i], array->rank);
        if (*taken >> axes[i] & 1)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "axis %d is named twice",
                              axes[i]);
        *taken |= 1u << axes[i];
    }
    return OCTET_OK;
}

static enum octet_status check_pairs(const char *verb, const int32_t *lhs_axes,
                                     const int32_t *rhs_axes, int32_t count,
                                     const struct octet_array *lhs, const struct octet_array *rhs,
                                     struct octet_error *err)
{
    char a[160], b[160];

    for (int32_t i = 0; i < count; i++)
        if (lhs->dim[lhs_axes[i]] != rhs->dim[rhs_axes[i]])
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                              "%s does not %s with lhs %s: dimension %d is %" PRId64
                              ", lhs' dimension %d is %" PRId64,
                              octet_array_shape_text(rhs, b, sizeof b), verb,
                              octet_array_shape_text(lhs, a, sizeof a), rhs_axes[i],
                              rhs->dim[rhs_axes[i]], lhs_axes[i], lhs->dim[lhs_axes[i]]);
    return OCTET_OK;
}

enum octet_status oct_dims_check(const struct octet_array *lhs, const struct octet_array *rhs,
                                 const struct octet_dot_dims *dims, struct octet_error *err)
{
    uint32_t lhs_taken = 0, rhs_taken = 0;
    int32_t c = dims->contracting_count, b = dims->batch_count;
    enum octet_status status = OCTET_OK;

    if (c < 0 || c > OCTET_AXES_MAX || b < 0 || b > OCTET_AXES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "dimension_numbers",
                          "%d contracting and %d batch axes; up to %d are supported", c, b,
                          OCTET_AXES_MAX);
    if (status == OCTET_OK)
        status = check_axes("lhs_contracting", dims->lhs_contracting, c, lhs, &lhs_taken, err);
    if (status == OCTET_OK)
        status = check_axes("lhs_batch", dims->lhs_batch, b, lhs, &lhs_taken, err);
    if (status == OCTET_OK)
        status = check_axes("rhs_contracting", dims->rhs_contracting, c, rhs, &rhs_taken, err);
    if (status == OCTET_OK)
        status = check_axes("rhs_batch", dims->rhs_batch, b, rhs, &rhs_taken, err);
    if (status == OCTET_OK)
        status =
            check_pairs("contract", dims->lhs_contracting, dims->rhs_contracting, c, lhs, rhs, err);
    if (status == OCTET_OK)
        status = check_pairs("batch", dims->lhs_batch, dims->rhs_batch, b, lhs, rhs, err);
    int32_t rank = lhs->rank + rhs->rank - 2 * c - b;
    if (status == OCTET_OK && rank > OCTET_ARRAY_RANK_MAX)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "dimension_numbers",
                            "the result has rank %d; up to %d are supported", rank,
                            OCTET_ARRAY_RANK_MAX);
    return status;
}

void oct_product_turn(struct oct_product *product, int32_t *axes)
{
    struct oct_product p = *product;
    int32_t batch = p.dims.batch_count, others = batch + p.dims.contracting_count;
    int32_t l_free = oct_value_shape(p.lhs)->rank - others;
    int32_t r_free = oct_value_shape(p.rhs)->rank - others;
    int32_t kept[OCTET_ARRAY_RANK_MAX];
    bool is_better = false;

    for (int32_t i = 0; i < l_free; i++)
        is_better |= axes[batch + i] == batch + l_free + r_free - 1;
    if (!is_better || (p.lhs->is_quantized && p.rhs->is_quantized))
        return;
    product->lhs = p.rhs;
    product->rhs = p.lhs;
    for (int32_t i = 0; i < OCTET_AXES_MAX; i++) {
        product->dims.lhs_contracting[i] = p.dims.rhs_contracting[i];
        product->dims.rhs_contracting[i] = p.dims.lhs_contracting[i];
        product->dims.lhs_batch[i] = p.dims.rhs_batch[i];
        product->dims.rhs_batch[i] = p.dims.lhs_batch[i];
    }
    memcpy(kept, axes + batch, (size_t)l_free * sizeof *axes);
    memmove(axes + batch, axes + batch + l_free, (size_t)r_free * sizeof *axes);
    memcpy(axes + batch + r_free, kept, (size_t)l_free * sizeof *axes);
}

/* ---- sides: what an operand contributes to each panel ---- */

struct axes {
    int32_t count;
    int32_t axis[OCTET_AXES_MAX];
};

struct side {
    struct octet_array values;             /* codes, or an array */
    const struct octet_array *scale_shape; /* NULL: no scale */
    const float *scale;
    struct octet_array zero_point; /* data NULL: none */
    struct axes batch, free, contracting;
    struct oct_gemm_side gemm, shift; /* at batch 0, tile 0 */
    bool is_packed;                   /* gemm is; then there is one batch */
    const int64_t *batch_offset, *tile_offset;
    const int64_t *scale_free, *scale_batch, *scale_tile;
    int64_t scale_free_step;
    const int64_t *zero_free, *zero_batch, *zero_tile;
};

struct plan {
    const struct octet_compute *compute;
    octet_arena *scratch;
    struct side lhs, rhs;
    int64_t tile[OCTET_AXES_MAX];  /* elements of a tile of each contracting axis */
    int64_t tiles[OCTET_AXES_MAX]; /* how many there are of it */
    int64_t batches, m, n, k, rounds;
};

/* Offsets over some axes of an array. divisor, extent: NULL: 1, the array's dimension. */
static enum octet_status table(const struct plan *plan, const struct octet_array *array,
                               const struct axes *axes, const int64_t *extent,
                               const int64_t *divisor, const int64_t *stride_of_axis,
                               const int64_t **out, int64_t *step, struct octet_error *err)
{
    int64_t e[OCTET_AXES_MAX], s[OCTET_AXES_MAX];

    for (int32_t i = 0; i < axes->count; i++) {
        e[i] = extent ? extent[i] : array->dim[axes->axis[i]];
        s[i] = stride_of_axis[axes->axis[i]];
    }
    return oct_offsets(plan->scratch, axes->count, e, divisor, s, out, step, err);
}

/* Index into a grid (scale or zero point) over some axes of the array that it belongs to. */
static enum octet_status grid_table(const struct plan *plan, const struct octet_array *array,
                                    const struct octet_array *grid, const struct axes *axes,
                                    const int64_t **out, int64_t *step, struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX], divisor[OCTET_AXES_MAX];

    oct_strides(grid, stride);
    for (int32_t i = 0; i < axes->count; i++) {
        int32_t a = axes->axis[i];
        divisor[i] = grid->dim[a] ? array->dim[a] / grid->dim[a] : 1;
        divisor[i] += divisor[i] == 0;
    }
    return table(plan, array, axes, NULL, divisor, stride, out, step, err);
}

/* The same over the tiles of the contracting axes. */
static enum octet_status grid_tiles(const struct plan *plan, const struct octet_array *grid,
                                    const struct axes *contracting, const int64_t **out,
                                    struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX], divisor[OCTET_AXES_MAX];

    oct_strides(grid, stride);
    for (int32_t i = 0; i < contracting->count; i++) {
        int64_t size = grid->dim[contracting->axis[i]];
        divisor[i] = size > 1 ? plan->tiles[i] / size : 1;
        divisor[i] += divisor[i] == 0;
        if (size <= 1)
            stride[contracting->axis[i]] = 0;
    }
    return table(plan, grid, contracting, plan->tiles, divisor, stride, out, NULL, err);
}

static enum octet_status side_grids(const struct plan *plan, struct side *side,
                                    struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (side->scale) {
        status = grid_table(plan, &side->values, side->scale_shape, &side->free, &side->scale_free,
                            &side->scale_free_step, err);
        if (status == OCTET_OK)
            status = grid_table(plan, &side->values, side->scale_shape, &side->batch,
                                &side->scale_batch, NULL, err);
        if (status == OCTET_OK)
            status =
                grid_tiles(plan, side->scale_shape, &side->contracting, &side->scale_tile, err);
    }
    if (status == OCTET_OK && side->zero_point.data) {
        status = grid_table(plan, &side->values, &side->zero_point, &side->free, &side->zero_free,
                            NULL, err);
        if (status == OCTET_OK)
            status = grid_table(plan, &side->values, &side->zero_point, &side->batch,
                                &side->zero_batch, NULL, err);
        if (status == OCTET_OK)
            status = grid_tiles(plan, &side->zero_point, &side->contracting, &side->zero_tile, err);
    }
    return status;
}

static enum octet_status side_offsets(const struct plan *plan, struct side *side,
                                      struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX], tile_stride[OCTET_ARRAY_RANK_MAX];
    const struct octet_array *values = &side->values;
    struct oct_gemm_side *gemm = &side->gemm;
    enum octet_status status;

    oct_strides(values, stride);
    memcpy(tile_stride, stride, sizeof tile_stride);
    for (int32_t i = 0; i < side->contracting.count; i++)
        tile_stride[side->contracting.axis[i]] *= plan->tile[i];
    gemm->dtype = values->dtype;
    gemm->data = values->data;
    status =
        table(plan, values, &side->free, NULL, NULL, stride, &gemm->free, &gemm->free_stride, err);
    if (status == OCTET_OK)
        status = table(plan, values, &side->contracting, plan->tile, NULL, stride, &gemm->depth,
                       &gemm->depth_stride, err);
    if (status == OCTET_OK)
        status =
            table(plan, values, &side->batch, NULL, NULL, stride, &side->batch_offset, NULL, err);
    if (status == OCTET_OK)
        status = table(plan, values, &side->contracting, plan->tiles, NULL, tile_stride,
                       &side->tile_offset, NULL, err);
    return status == OCTET_OK ? side_grids(plan, side, err) : status;
}

/* ---- which path ---- */

/* Elements of a tile of a contracting axis; 0: the axis is not tiled. */
static int64_t tile_of(const struct oct_value *value, int32_t axis)
{
    if (!value->is_quantized || value->quantized.scale.dim[axis] <= 1)
        return 0;
    return value->quantized.qvalue.dim[axis] / value->quantized.scale.dim[axis];
}

static bool must_dequantize(const struct oct_value *value, const int32_t *contracting,
                            int32_t count)
{
    if (!value->is_quantized)
        return is_float(value->array.dtype);
    for (int32_t i = 0; i < count; i++) {
        int64_t tile = tile_of(value, contracting[i]);
        if (tile && tile < OCT_TILE_MIN)
            return true;
    }
    return false;
}

static enum octet_status dequantized(const struct octet_compute *compute,
                                     const struct oct_value *value, struct oct_value *out,
                                     struct octet_error *err)
{
    *out = *value;
    if (!value->is_quantized)
        return OCTET_OK;
    out->is_quantized = false;
    return oct_dequantize(compute, &value->quantized, &out->array, err);
}

static enum octet_status side_values(const struct plan *plan, const struct oct_value *value,
                                     struct side *side, struct octet_error *err)
{
    struct octet_compute inner = *plan->compute;

    side->values = *oct_value_shape(value);
    side->zero_point = (struct octet_array){0};
    side->scale = NULL;
    if (!value->is_quantized)
        return OCTET_OK;
    side->scale_shape = &value->quantized.scale;
    side->zero_point = value->quantized.zero_point;
    inner.arena = plan->scratch;
    return oct_scale_values(&inner, &value->quantized.scale, &side->scale, err);
}

/* The tiles that both sides' scales have in common. */
static enum octet_status choose_tiles(struct plan *plan, const struct oct_value *lhs,
                                      const struct oct_value *rhs,
                                      const struct octet_dot_dims *dims, struct octet_error *err)
{
    plan->rounds = 1;
    for (int32_t i = 0; i < dims->contracting_count; i++) {
        int64_t dim = plan->lhs.values.dim[dims->lhs_contracting[i]];
        int64_t l = tile_of(lhs, dims->lhs_contracting[i]);
        int64_t r = tile_of(rhs, dims->rhs_contracting[i]);
        if (l && r && l != r)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.quantized.scale.shape",
                              "tiles of %" PRId64 " along contracting axis %d do not go with lhs' "
                              "tiles of %" PRId64,
                              r, dims->rhs_contracting[i], l);
        plan->tile[i] = l ? l : r ? r : dim;
        plan->tiles[i] = plan->tile[i] ? dim / plan->tile[i] : 1;
        plan->rounds *= plan->tiles[i];
    }
    return OCTET_OK;
}

static int64_t extent_of(const struct octet_array *array, const struct axes *axes)
{
    int64_t n = 1;

    for (int32_t i = 0; i < axes->count; i++)
        n *= array->dim[axes->axis[i]];
    return n;
}

static void take_axes(struct side *side, const int32_t *contracting, const int32_t *batch,
                      const struct octet_dot_dims *dims)
{
    side->contracting.count = dims->contracting_count;
    side->batch.count = dims->batch_count;
    memcpy(side->contracting.axis, contracting, sizeof side->contracting.axis);
    memcpy(side->batch.axis, batch, sizeof side->batch.axis);
    side->free.count = oct_free_axes(side->values.rank, contracting, dims->contracting_count, batch,
                                     dims->batch_count, side->free.axis);
}

/* ---- the result ---- */

static enum octet_status make_result(const struct plan *plan, const struct oct_product *product,
                                     enum octet_dtype dtype, int32_t *axes, struct octet_array *out,
                                     struct octet_error *err)
{
    const struct side *lhs = &plan->lhs, *rhs = &plan->rhs;
    int64_t dim[OCTET_ARRAY_RANK_MAX];
    int32_t rank = 0;

    for (int32_t i = 0; i < lhs->batch.count; i++, rank++)
        dim[product->result_axes ? product->result_axes[rank] : rank] =
            lhs->values.dim[lhs->batch.axis[i]];
    for (int32_t i = 0; i < lhs->free.count; i++, rank++)
        dim[product->result_axes ? product->result_axes[rank] : rank] =
            lhs->values.dim[lhs->free.axis[i]];
    for (int32_t i = 0; i < rhs->free.count; i++, rank++)
        dim[product->result_axes ? product->result_axes[rank] : rank] =
            rhs->values.dim[rhs->free.axis[i]];
    for (int32_t i = 0; i < rank; i++)
        axes[i] = product->result_axes ? product->result_axes[i] : i;
    if (!product->to || !product->to->data)
        return octet_array_create(plan->compute->arena, dtype, rank, dim, out, err);
    *out = *product->to;
    if (!plan->k && octet_array_bytes(out)) /* sums of nothing */
        memset(out->data, 0, (size_t)octet_array_bytes(out));
    return OCTET_OK;
}

static enum octet_status result_places(const struct plan *plan, const struct octet_array *result,
                                       const int32_t *result_axes, struct oct_places *places,
                                       const int64_t **batches, struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX], step;
    struct axes batch = {plan->lhs.batch.count, {0}}, rows = {plan->lhs.free.count, {0}};
    struct axes columns = {plan->rhs.free.count, {0}};
    enum octet_status status;

    oct_strides(result, stride);
    memcpy(batch.axis, result_axes, (size_t)batch.count * sizeof *result_axes);
    memcpy(rows.axis, result_axes + batch.count, (size_t)rows.count * sizeof *result_axes);
    memcpy(columns.axis, result_axes + batch.count + rows.count,
           (size_t)columns.count * sizeof *result_axes);
    status = table(plan, result, &batch, NULL, NULL, stride, batches, NULL, err);
    if (status == OCTET_OK)
        status = table(plan, result, &rows, NULL, NULL, stride, &places->rows, NULL, err);
    if (status == OCTET_OK)
        status = table(plan, result, &columns, NULL, NULL, stride, &places->columns, &step, err);
    places->is_contiguous = status == OCTET_OK && step == 1;
    return status;
}

/* ---- panels ---- */

static struct oct_gemm_side moved(const struct oct_gemm_side *side, int64_t elements)
{
    struct oct_gemm_side at = *side;

    at.data = (const char *)side->data + elements * (int64_t)octet_dtype_bytes(side->dtype);
    return at;
}

/* rhs' scales as a vector over the columns; `room` takes them where they do not lie so. */
static void column_scales(const struct side *rhs, int64_t n, int64_t at, float *room,
                          struct oct_panel *panel)
{
    panel->rhs_scale = rhs->scale + at;
    panel->rhs_stride = 1;
    if (n == 1 || (rhs->scale_free_step == 0 && rhs->scale_free[n - 1] == 0))
        panel->rhs_stride = 0;
    else if (rhs->scale_free_step != 1) {
        for (int64_t j = 0; j < n; j++)
            room[j] = rhs->scale[at + rhs->scale_free[j]];
        panel->rhs_scale = room;
    }
}

/* A zero point as an operand: constant over the contracting axes. */
static struct oct_gemm_side shift_side(const struct side *side, const int64_t *zeros, int64_t batch,
                                       int64_t round)
{
    return (struct oct_gemm_side){.dtype = side->zero_point.dtype,
                                  .data = (const char *)side->zero_point.data +
                                          side->zero_batch[batch] +
                                          side->zero_tile[round], /* codes of one byte */
                                  .free = side->zero_free,
                                  .depth = zeros};
}

/* Codes packed for just this contraction are read. Tiles of one axis begin at an even k. */
static bool takes_packed(const struct plan *plan, const struct oct_value *value,
                         const struct octet_dot_dims *dims)
{
    const struct octet_quantized *q = &value->quantized;
    int32_t count = dims->contracting_count;

    return value->is_quantized && dims->batch_count == 0 &&
           oct_is_packed(q, dims->rhs_contracting, count) &&
           (q->packed.axis == 0 || q->qvalue.rank == 2) &&
           (plan->rounds == 1 || (count == 1 && plan->k % 2 == 0));
}

/* rhs as it is read, once the plan's tiles are known. */
static enum octet_status take_packed(struct plan *plan, const struct oct_value *value,
                                     const struct octet_dot_dims *dims, struct octet_error *err)
{
    struct side *side = &plan->rhs;
    struct octet_compute inner = *plan->compute;
    struct octet_quantized q = value->quantized;
    enum octet_status status;

    side->is_packed = takes_packed(plan, value, dims);
    if (side->is_packed) {
        side->gemm = (struct oct_gemm_side){
            .dtype = q.qvalue.dtype, .data = q.packed.data, .packed_depth = plan->k * plan->rounds};
    } else if (value->is_quantized && !side->gemm.data) { /* packed alone, for other products */
        inner.arena = plan->scratch;
        status = oct_unpack(&inner, &q, err);
        side->gemm.data = q.qvalue.data;
        return status;
    }
    return OCTET_OK;
}

/* rhs of a batch and a tile. */
static struct oct_gemm_side rhs_at(const struct plan *plan, int64_t batch, int64_t round)
{
    const struct side *rhs = &plan->rhs;
    struct oct_gemm_side at = rhs->gemm;

    if (!rhs->is_packed)
        return moved(&rhs->gemm, rhs->batch_offset[batch] + rhs->tile_offset[round]);
    at.packed_from = round * plan->k;
    return at;
}

static void fill_panels(const struct plan *plan, int64_t round, const int64_t *origins,
                        const int64_t *zeros, float *room, struct oct_panel *list)
{
    const struct side *lhs = &plan->lhs, *rhs = &plan->rhs;

    for (int64_t b = 0; b < plan->batches; b++) {
        struct oct_panel *panel = &list[b];
        *panel = (struct oct_panel){.origin = origins[b]};
        panel->gemm.m = plan->m;
        panel->gemm.n = plan->n;
        panel->gemm.k = plan->k;
        panel->gemm.lhs = moved(&lhs->gemm, lhs->batch_offset[b] + lhs->tile_offset[round]);
        panel->gemm.rhs = rhs_at(plan, b, round);
        if (lhs->scale) {
            panel->lhs_scale = lhs->scale + lhs->scale_batch[b] + lhs->scale_tile[round];
            panel->lhs_index = lhs->scale_free;
        }
        if (rhs->scale && plan->n)
            column_scales(rhs, plan->n, rhs->scale_batch[b] + rhs->scale_tile[round],
                          room + b * plan->n, panel);
        panel->has_shift = lhs->zero_point.data || rhs->zero_point.data;
        panel->shift = panel->gemm;
        if (lhs->zero_point.data)
            panel->shift.lhs = shift_side(lhs, zeros, b, round);
        if (rhs->zero_point.data)
            panel->shift.rhs = shift_side(rhs, zeros, b, round);
    }
}

static enum octet_status run_rounds(const struct plan *plan, struct oct_panels *panels,
                                    const int64_t *origins, struct octet_error *err)
{
    struct oct_panel *list = OCTET_NEW_ARRAY(plan->scratch, plan->batches, struct oct_panel);
    int64_t *zeros = OCTET_NEW_ARRAY(plan->scratch, plan->k, int64_t);
    float *room = OCTET_NEW_ARRAY(plan->scratch, plan->batches * plan->n, float);
    enum octet_status status = OCTET_OK;

    if (!list || !zeros || !room)
        return octet_arena_exhausted(plan->scratch, err);
    for (int64_t round = 0; round < plan->rounds && status == OCTET_OK; round++) {
        fill_panels(plan, round, origins, zeros, room, list);
        status = oct_panels_add(panels, list, (size_t)plan->batches, (size_t)round,
                                (size_t)plan->rounds, err);
    }
    return status;
}

static enum octet_status run(struct plan *plan, const struct oct_product *product,
                             const struct oct_value *lhs, const struct oct_value *rhs,
                             struct octet_array *out, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &product->dims;
    struct oct_panels panels = {.compute = plan->compute,
                                .scratch = plan->scratch,
                                .result = out,
                                .is_fast = product->is_fast};
    int32_t axes[OCTET_ARRAY_RANK_MAX];
    const int64_t *origins;
    enum octet_status status = side_values(plan, lhs, &plan->lhs, err);

    if (status == OCTET_OK)
        status = side_values(plan, rhs, &plan->rhs, err);
    if (status == OCTET_OK)
        status = choose_tiles(plan, lhs, rhs, dims, err);
    if (status != OCTET_OK)
        return status;
    take_axes(&plan->lhs, dims->lhs_contracting, dims->lhs_batch, dims);
    take_axes(&plan->rhs, dims->rhs_contracting, dims->rhs_batch, dims);
    plan->batches = extent_of(&plan->lhs.values, &plan->lhs.batch);
    plan->m = extent_of(&plan->lhs.values, &plan->lhs.free);
    plan->n = extent_of(&plan->rhs.values, &plan->rhs.free);
    plan->k = 1;
    for (int32_t i = 0; i < dims->contracting_count; i++)
        plan->k *= plan->tile[i];
    panels.rounding = oct_promote(oct_value_dtype(lhs), oct_value_dtype(rhs));
    /* A product of integers has no floating-point type until the first scale gives it one. */
    if (is_integer(lhs) && is_integer(rhs) && lhs->is_quantized && rhs->is_quantized &&
        oct_value_dtype(lhs) != panels.rounding)
        panels.lhs_rounding = oct_value_dtype(lhs);
    panels.through = product->result_dtype;
    status =
        make_result(plan, product, product->result_dtype ? product->result_dtype : panels.rounding,
                    axes, out, err);
    if (status == OCTET_OK && octet_array_elements(out) == 0)
        return OCTET_OK;
    if (status == OCTET_OK)
        status = side_offsets(plan, &plan->lhs, err);
    if (status == OCTET_OK)
        status = side_offsets(plan, &plan->rhs, err);
    if (status == OCTET_OK)
        status = take_packed(plan, rhs, dims, err);
    if (status == OCTET_OK)
        status = result_places(plan, out, axes, &panels.places, &origins, err);
    return status == OCTET_OK ? run_rounds(plan, &panels, origins, err) : status;
}

enum octet_status oct_product_run(const struct octet_compute *compute,
                                  const struct oct_product *product, struct octet_array *out,
                                  struct octet_error *err)
{
    const struct octet_dot_dims *dims = &product->dims;
    struct plan plan = {.compute = compute};
    struct oct_value lhs = *product->lhs, rhs = *product->rhs;
    struct octet_array result;
    enum octet_status status = OCTET_OK;

    plan.scratch = octet_arena_create_within(compute->arena);
    if (!plan.scratch)
        return octet_arena_exhausted(compute->arena, err);
    struct octet_compute inner = *compute;
    inner.arena = plan.scratch;
    if (must_dequantize(&lhs, dims->lhs_contracting, dims->contracting_count) ||
        must_dequantize(&rhs, dims->rhs_contracting, dims->contracting_count)) {
        status = dequantized(&inner, product->lhs, &lhs, err);
        if (status == OCTET_OK)
            status = dequantized(&inner, product->rhs, &rhs, err);
    } else if (lhs.is_quantized && rhs.is_quantized && lhs.quantized.zero_point.data &&
               rhs.quantized.zero_point.data) {
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.quantized.zero_point",
                            "both operands have zero points; one of them may");
    }
    if (status == OCTET_OK)
        status = run(&plan, product, &lhs, &rhs, &result, err);
    octet_arena_destroy(plan.scratch);
    if (status == OCTET_OK)
        *out = result;
    return status;
}
