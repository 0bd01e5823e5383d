/* See product.h. */
#include "backends/product.h"

#include <inttypes.h>
#include <string.h>

#include "backends/fast.h"
#include "backends/kernels/plan.h"
#include "backends/product_plan.h"
#include "quant/panels.h"

static bool is_float(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16;
}

static bool is_integer(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

enum octet_dtype oct_device_dtype(const struct oct_device_array *array)
{
    if (array->is_quantized)
        return array->scale.dtype;
    return is_float(array->array.dtype) ? array->array.dtype : OCTET_DTYPE_UNSPECIFIED;
}

enum octet_status oct_device_pair(struct oct_work *work, bool always, struct oct_device_array *a,
                                  struct oct_device_array *b, struct octet_error *err)
{
    bool is_slow = always || (!a->is_quantized && oct_device_dtype(a)) ||
                   (!b->is_quantized && oct_device_dtype(b));
    struct oct_device_array *both[] = {a, b};
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 2 && is_slow && status == OCTET_OK; i++) {
        struct oct_device_array x = *both[i];
        status = oct_device_dequantize(work, &x, both[i], err);
    }
    return status;
}

/* ---- dot_general ---- */

struct side {
    struct oct_device_array value;
    int32_t free[OCTET_AXES_MAX], free_count;
    const int32_t *contracting, *batch;
    int64_t stride[OCTET_ARRAY_RANK_MAX], scale_stride[OCTET_ARRAY_RANK_MAX];
};

/* Where a side's offsets go in a plan. */
struct places {
    int free, depth, tile, scale, scale_tile;
};

struct dot {
    const struct oct_device_dot *call;
    const struct octet_dot_dims *dims;
    struct side lhs, rhs;
    int64_t tile[OCTET_AXES_MAX], tiles[OCTET_AXES_MAX], batch[OCTET_AXES_MAX];
    int64_t batches, m, n, depth, rounds;
};

/* Elements of a tile of an axis; 0: it has none. */
static int64_t tile_of(const struct oct_device_array *x, int32_t axis)
{
    return x->is_quantized && x->scale.dim[axis] > 1 ? x->array.dim[axis] / x->scale.dim[axis] : 0;
}

static bool has_small_tiles(const struct oct_device_array *x, const int32_t *axes, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        int64_t tile = tile_of(x, axes[i]);
        if (tile && tile < OCT_TILE_MIN)
            return true;
    }
    return false;
}

static void take_side(struct side *side, const struct octet_dot_dims *dims,
                      const int32_t *contracting, const int32_t *batch)
{
    const struct octet_array *array = &side->value.array;

    side->contracting = contracting;
    side->batch = batch;
    side->free_count = oct_free_axes(array->rank, contracting, dims->contracting_count, batch,
                                     dims->batch_count, side->free);
    oct_strides(array, side->stride);
    if (side->value.is_quantized)
        oct_strides(&side->value.scale, side->scale_stride);
}

static enum octet_status choose_tiles(struct dot *dot, struct octet_error *err)
{
    dot->rounds = dot->depth = 1;
    for (int32_t i = 0; i < dot->dims->contracting_count; i++) {
        int64_t dim = dot->lhs.value.array.dim[dot->dims->lhs_contracting[i]];
        int64_t l = tile_of(&dot->lhs.value, dot->dims->lhs_contracting[i]);
        int64_t r = tile_of(&dot->rhs.value, dot->dims->rhs_contracting[i]);
        if (l && r && l != r)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.quantized.scale.shape",
                              "tiles of %" PRId64 " along contracting axis %d do not go with lhs' "
                              "tiles of %" PRId64,
                              r, dot->dims->rhs_contracting[i], l);
        dot->tile[i] = l ? l : r ? r : dim;
        dot->tiles[i] = dot->tile[i] ? dim / dot->tile[i] : 1;
        dot->rounds *= dot->tiles[i];
        dot->depth *= dot->tile[i];
    }
    return OCTET_OK;
}

static int64_t extent_of(const struct side *side, const int32_t *axes, int32_t count)
{
    int64_t n = 1;

    for (int32_t i = 0; i < count; i++)
        n *= side->value.array.dim[axes[i]];
    return n;
}

/* How many indices of an axis share one of its scale. */
static int64_t shared(const struct oct_device_array *x, int32_t axis)
{
    int64_t size = x->scale.dim[axis] ? x->array.dim[axis] / x->scale.dim[axis] : 1;

    return size ? size : 1;
}

static void write_scales(const struct dot *dot, const struct side *side,
                         const struct places *places, struct oct_product_plan *plan)
{
    int64_t extent[OCTET_AXES_MAX], stride[OCTET_AXES_MAX], divisor[OCTET_AXES_MAX];
    int32_t count = dot->dims->contracting_count;

    for (int32_t i = 0; i < side->free_count; i++) {
        extent[i] = side->value.array.dim[side->free[i]];
        divisor[i] = shared(&side->value, side->free[i]);
        stride[i] = side->scale_stride[side->free[i]];
    }
    oct_plan_offsets(plan, places->scale, side->free_count, extent, divisor, stride);
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = side->contracting[i];
        int64_t size = side->value.scale.dim[axis];
        divisor[i] = size > 1 && dot->tiles[i] / size ? dot->tiles[i] / size : 1;
        stride[i] = size > 1 ? side->scale_stride[axis] : 0;
    }
    oct_plan_offsets(plan, places->scale_tile, count, dot->tiles, divisor, stride);
}

static void write_side(const struct dot *dot, const struct side *side, const struct places *places,
                       struct oct_product_plan *plan)
{
    int64_t extent[OCTET_AXES_MAX], stride[OCTET_AXES_MAX];
    int32_t count = dot->dims->contracting_count;

    for (int32_t i = 0; i < side->free_count; i++) {
        extent[i] = side->value.array.dim[side->free[i]];
        stride[i] = side->stride[side->free[i]];
    }
    oct_plan_offsets(plan, places->free, side->free_count, extent, NULL, stride);
    for (int32_t i = 0; i < count; i++)
        stride[i] = side->stride[side->contracting[i]];
    oct_plan_offsets(plan, places->depth, count, dot->tile, NULL, stride);
    for (int32_t i = 0; i < count; i++)
        stride[i] *= dot->tile[i];
    oct_plan_offsets(plan, places->tile, count, dot->tiles, NULL, stride);
    if (side->value.is_quantized)
        write_scales(dot, side, places, plan);
}

static void write_result(const struct dot *dot, const struct octet_array *out,
                         struct oct_product_plan *plan)
{
    int64_t of_axis[OCTET_ARRAY_RANK_MAX], extent[OCTET_AXES_MAX], stride[OCTET_AXES_MAX];
    const int32_t *axes = dot->call->result_axes + dot->dims->batch_count;
    const struct side *sides[] = {&dot->lhs, &dot->rhs};
    const int places[] = {PRODUCT_OUT_ROW, PRODUCT_OUT_COLUMN};

    oct_strides(out, of_axis);
    for (int s = 0; s < 2; s++) {
        for (int32_t i = 0; i < sides[s]->free_count; i++) {
            extent[i] = out->dim[axes[i]];
            stride[i] = of_axis[axes[i]];
        }
        oct_plan_offsets(plan, places[s], sides[s]->free_count, extent, NULL, stride);
        axes += sides[s]->free_count;
    }
}

static void write_panels(const struct dot *dot, const struct octet_array *out,
                         struct oct_product_plan *plan)
{
    int64_t of_axis[OCTET_ARRAY_RANK_MAX], digit[OCTET_AXES_MAX] = {0};
    const struct side *l = &dot->lhs, *r = &dot->rhs;

    oct_strides(out, of_axis);
    for (int64_t b = 0; b < dot->batches; b++) {
        struct oct_plan_panel panel = {.rows = dot->m, .depth = dot->depth};
        for (int32_t i = 0; i < dot->dims->batch_count; i++) {
            panel.lhs += digit[i] * l->stride[l->batch[i]];
            panel.rhs += digit[i] * r->stride[r->batch[i]];
            panel.out += digit[i] * of_axis[dot->call->result_axes[i]];
            if (l->value.is_quantized)
                panel.lhs_scale +=
                    digit[i] / shared(&l->value, l->batch[i]) * l->scale_stride[l->batch[i]];
            if (r->value.is_quantized)
                panel.rhs_scale +=
                    digit[i] / shared(&r->value, r->batch[i]) * r->scale_stride[r->batch[i]];
        }
        oct_plan_panel(plan, &panel);
        for (int32_t i = dot->dims->batch_count - 1; i >= 0 && ++digit[i] == dot->batch[i]; i--)
            digit[i] = 0;
    }
}

/* What is rounded when, and the result's shape. */
static void choose_result(const struct dot *dot, struct oct_product_plan *plan,
                          struct octet_array *out)
{
    const struct oct_device_array *l = &dot->lhs.value, *r = &dot->rhs.value;
    enum octet_dtype rounding = oct_promote(oct_device_dtype(l), oct_device_dtype(r));
    enum octet_dtype result = dot->call->result_dtype ? dot->call->result_dtype : rounding;
    int32_t at = 0;

    /* A product of integers has no floating-point type until the first scale gives it one. */
    if (is_integer(l->array.dtype) && is_integer(r->array.dtype) && l->is_quantized &&
        r->is_quantized && oct_device_dtype(l) != rounding)
        oct_plan_set(plan, PRODUCT_LHS_ROUNDING, oct_device_dtype(l));
    oct_plan_set(plan, PRODUCT_ROUNDING, rounding);
    oct_plan_set(plan, PRODUCT_THROUGH, dot->call->result_dtype);
    oct_plan_set(plan, PRODUCT_ROUNDS, dot->rounds);
    *out = (struct octet_array){.dtype = dot->call->out_dtype ? dot->call->out_dtype : result};
    out->rank = dot->dims->batch_count + dot->lhs.free_count + dot->rhs.free_count;
    for (int32_t i = 0; i < dot->dims->batch_count; i++)
        out->dim[dot->call->result_axes[at++]] = dot->batch[i];
    for (int32_t i = 0; i < dot->lhs.free_count; i++)
        out->dim[dot->call->result_axes[at++]] = l->array.dim[dot->lhs.free[i]];
    for (int32_t i = 0; i < dot->rhs.free_count; i++)
        out->dim[dot->call->result_axes[at++]] = r->array.dim[dot->rhs.free[i]];
}

/* With the operands as they are multiplied, which are not always the call's. */
static enum octet_status run_fast(struct oct_work *work, const struct dot *dot,
                                  const struct oct_device_array *out, bool *done,
                                  struct octet_error *err)
{
    struct oct_device_dot call = *dot->call;

    call.lhs = &dot->lhs.value;
    call.rhs = &dot->rhs.value;
    return oct_fast_dot(work, &call,
                        oct_promote(oct_device_dtype(call.lhs), oct_device_dtype(call.rhs)), out,
                        done, err);
}

static enum octet_status run_dot(struct oct_work *work, struct dot *dot,
                                 struct oct_device_array *out, struct octet_error *err)
{
    static const struct places lhs = {PRODUCT_LHS_ROW, PRODUCT_LHS_DEPTH, PRODUCT_LHS_TILE,
                                      PRODUCT_LHS_SCALE, PRODUCT_LHS_SCALE_TILE};
    static const struct places rhs = {PRODUCT_RHS_COLUMN, PRODUCT_RHS_DEPTH, PRODUCT_RHS_TILE,
                                      PRODUCT_RHS_SCALE, PRODUCT_RHS_SCALE_TILE};
    struct oct_product_plan plan;
    bool done = false;

    oct_plan_begin(&plan);
    choose_result(dot, &plan, &out->array);
    enum octet_status status =
        oct_work_block(work, (size_t)octet_array_bytes(&out->array), &out->data, err);
    if (status == OCTET_OK && dot->call->accumulation == OCTET_FAST && dot->rounds == 1)
        status = run_fast(work, dot, out, &done, err);
    if (status == OCTET_OK && octet_array_elements(&out->array) && !done) {
        write_side(dot, &dot->lhs, &lhs, &plan);
        write_side(dot, &dot->rhs, &rhs, &plan);
        write_result(dot, &out->array, &plan);
        write_panels(dot, &out->array, &plan);
        status = oct_plan_run(work, &plan, &dot->lhs.value, &dot->rhs.value, dot->n, out, err);
    }
    oct_plan_end(&plan);
    return status;
}

enum octet_status oct_device_dot(struct oct_work *work, const struct oct_device_dot *call,
                                 struct oct_device_array *out, struct octet_error *err)
{
    const struct octet_dot_dims *dims = &call->dims;
    struct dot dot = {.call = call, .dims = dims, .batches = 1};
    bool is_small = has_small_tiles(call->lhs, dims->lhs_contracting, dims->contracting_count) ||
                    has_small_tiles(call->rhs, dims->rhs_contracting, dims->contracting_count);

    *out = (struct oct_device_array){0};
    dot.lhs.value = *call->lhs;
    dot.rhs.value = *call->rhs;
    enum octet_status status = oct_device_pair(work, is_small, &dot.lhs.value, &dot.rhs.value, err);
    if (status == OCTET_OK)
        status = choose_tiles(&dot, err);
    if (status != OCTET_OK)
        return status;
    take_side(&dot.lhs, dims, dims->lhs_contracting, dims->lhs_batch);
    take_side(&dot.rhs, dims, dims->rhs_contracting, dims->rhs_batch);
    dot.m = extent_of(&dot.lhs, dot.lhs.free, dot.lhs.free_count);
    dot.n = extent_of(&dot.rhs, dot.rhs.free, dot.rhs.free_count);
    for (int32_t i = 0; i < dims->batch_count; i++) {
        dot.batch[i] = dot.lhs.value.array.dim[dims->lhs_batch[i]];
        dot.batches *= dot.batch[i];
    }
    return run_dot(work, &dot, out, err);
}

/* ---- grouped ---- */

static enum octet_status begin_groups(struct oct_work *work, const struct oct_device_groups *g,
                                      struct oct_product_plan *plan, struct oct_device_array *out,
                                      struct octet_error *err)
{
    size_t bytes = (size_t)octet_array_bytes(&out->array);
    enum octet_status status = oct_work_block(work, bytes, &out->data, err);

    oct_plan_set(plan, PRODUCT_ROUNDS, 1);
    oct_plan_set(plan, PRODUCT_ROUNDING, g->rounds_once ? OCTET_DTYPE_F32 : g->result);
    oct_plan_set(plan, PRODUCT_THROUGH, g->result);
    return status;
}

static enum octet_dtype out_dtype(const struct oct_device_groups *g)
{
    return g->out_dtype ? g->out_dtype : g->result;
}

/* Scales of lhs [m or 1, tiles or 1] and of rhs, by its axes. */
static void row_scales(const struct oct_device_array *lhs, const struct oct_device_array *rhs,
                       int32_t depth_axis, struct oct_product_plan *plan, int64_t *tiles)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX];
    int32_t column_axis = 3 - depth_axis;

    *tiles = 1;
    if (lhs->is_quantized) {
        const int64_t *dim = lhs->scale.dim;
        *tiles = dim[1];
        oct_plan_stride(plan, PRODUCT_LHS_SCALE, dim[0] != 1 ? dim[1] : 0);
        oct_plan_stride(plan, PRODUCT_LHS_SCALE_TILE, dim[1] != 1);
    }
    if (rhs->is_quantized) {
        const int64_t *dim = rhs->scale.dim;
        oct_strides(&rhs->scale, stride);
        *tiles = dim[depth_axis] > *tiles ? dim[depth_axis] : *tiles;
        oct_plan_stride(plan, PRODUCT_RHS_SCALE, dim[column_axis] != 1 ? stride[column_axis] : 0);
        oct_plan_stride(plan, PRODUCT_RHS_SCALE_TILE,
                        dim[depth_axis] != 1 ? stride[depth_axis] : 0);
    }
}

static void row_panels(const struct oct_device_groups *g, const struct oct_device_array *lhs,
                       const struct oct_device_array *rhs, int64_t k, int64_t n, int64_t tiles,
                       struct oct_product_plan *plan)
{
    int64_t row_scale = lhs->is_quantized && lhs->scale.dim[0] != 1 ? lhs->scale.dim[1] : 0;
    int64_t group_scale =
        rhs->is_quantized && rhs->scale.dim[0] != 1 ? rhs->scale.dim[1] * rhs->scale.dim[2] : 0;

    for (int64_t e = 0; e < g->groups; e++)
        oct_plan_panel(plan, &(struct oct_plan_panel){.rows = g->first[e + 1] - g->first[e],
                                                      .depth = k / tiles,
                                                      .lhs = g->first[e] * k,
                                                      .rhs = e * k * n,
                                                      .lhs_scale = g->first[e] * row_scale,
                                                      .rhs_scale = e * group_scale,
                                                      .out = g->first[e] * n});
}

enum octet_status oct_device_rows(struct oct_work *work, const struct oct_device_groups *g,
                                  const struct oct_device_array *lhs,
                                  const struct oct_device_array *rhs, int32_t depth_axis,
                                  struct oct_device_array *out, struct octet_error *err)
{
    int32_t column_axis = 3 - depth_axis;
    int64_t k = rhs->array.dim[depth_axis], n = rhs->array.dim[column_axis], tiles;
    int64_t depth_stride = depth_axis == 1 ? rhs->array.dim[2] : 1;
    struct oct_product_plan plan;

    oct_plan_begin(&plan);
    *out = (struct oct_device_array){.array = {out_dtype(g), 2, {g->m, n}, NULL}};
    enum octet_status status = begin_groups(work, g, &plan, out, err);
    if (status == OCTET_OK && (!k || g->first[g->groups] < g->m)) /* what no panel writes */
        status = oct_work_fill(work, out->data, (size_t)octet_array_bytes(&out->array), err);
    if (status == OCTET_OK && k && n) {
        row_scales(lhs, rhs, depth_axis, &plan, &tiles);
        oct_plan_set(&plan, PRODUCT_ROUNDS, tiles);
        oct_plan_stride(&plan, PRODUCT_LHS_ROW, k);
        oct_plan_stride(&plan, PRODUCT_LHS_DEPTH, 1);
        oct_plan_stride(&plan, PRODUCT_LHS_TILE, k / tiles);
        oct_plan_stride(&plan, PRODUCT_RHS_COLUMN, column_axis == 1 ? rhs->array.dim[2] : 1);
        oct_plan_stride(&plan, PRODUCT_RHS_DEPTH, depth_stride);
        oct_plan_stride(&plan, PRODUCT_RHS_TILE, k / tiles * depth_stride);
        oct_plan_stride(&plan, PRODUCT_OUT_ROW, n);
        oct_plan_stride(&plan, PRODUCT_OUT_COLUMN, 1);
        row_panels(g, lhs, rhs, k, n, tiles, &plan);
        status = oct_plan_run(work, &plan, lhs, rhs, n, out, err);
    }
    oct_plan_end(&plan);
    return status;
}

enum octet_status oct_device_columns(struct oct_work *work, const struct oct_device_groups *g,
                                     const struct oct_device_array *a,
                                     const struct oct_device_array *b, struct oct_device_array *out,
                                     struct octet_error *err)
{
    int64_t rows = a->array.dim[1], columns = b->array.dim[1];
    struct oct_product_plan plan;

    oct_plan_begin(&plan);
    *out = (struct oct_device_array){.array = {out_dtype(g), 3, {g->groups, rows, columns}, NULL}};
    enum octet_status status = begin_groups(work, g, &plan, out, err);
    oct_plan_stride(&plan, PRODUCT_LHS_ROW, 1);
    oct_plan_stride(&plan, PRODUCT_LHS_DEPTH, rows);
    oct_plan_stride(&plan, PRODUCT_RHS_COLUMN, 1);
    oct_plan_stride(&plan, PRODUCT_RHS_DEPTH, columns);
    oct_plan_stride(&plan, PRODUCT_OUT_ROW, columns);
    oct_plan_stride(&plan, PRODUCT_OUT_COLUMN, 1);
    oct_plan_stride(&plan, PRODUCT_LHS_SCALE, a->is_quantized && a->scale.dim[1] != 1 ? 1 : 0);
    oct_plan_stride(&plan, PRODUCT_RHS_SCALE, b->is_quantized && b->scale.dim[1] != 1 ? 1 : 0);
    for (int64_t e = 0; e < g->groups; e++)
        oct_plan_panel(&plan, &(struct oct_plan_panel){.rows = rows,
                                                       .depth = g->first[e + 1] - g->first[e],
                                                       .lhs = g->first[e] * rows,
                                                       .rhs = g->first[e] * columns,
                                                       .out = e * rows * columns});
    if (status == OCTET_OK)
        status = oct_plan_run(work, &plan, a, b, columns, out, err);
    oct_plan_end(&plan);
    return status;
}
