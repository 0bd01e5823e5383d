/* Grouped matmuls under a rule, forward and both gradients: MaxText's gmm and JAX's ragged_dot.
 *
 * They differ in rounding: gmm multiplies sums and scales in f32 and rounds once, to the operands'
 * type; ragged_dot rounds after each step, as dot_general does. And in settings: Qwix's ragged_dot
 * ignores a rule's calibration methods and disable_channelwise_axes, and no tiles are known to
 * either. Here the former are honoured, unless the request asks for Qwix's silence; tiles have no
 * effect, which the note says. Scales: lhs [m,1], rhs [1,1,n]: one for all groups, so that backward
 * can move it onto the gradient. Source: Qwix 0.1.8, core/ragged_dot_qt.py; MaxText,
 * kernels/megablox/ops.py; formulas 12, 13. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "quant/pack.h"
#include "quant/panels.h"
#include "quant/pass.h"

/* ---- checks ---- */

static enum octet_status check_ranks(const struct oct_pass *g, const struct octet_array *lhs,
                                     const struct octet_array *rhs, struct octet_error *err)
{
    char a[160], b[160];

    if (lhs->rank != 2)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "lhs.shape", "%s is not [m, k]",
                          octet_array_shape_text(lhs, a, sizeof a));
    if (rhs->rank != 3)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape", "%s is not %s",
                          octet_array_shape_text(rhs, a, sizeof a),
                          g->matmul->transpose_rhs ? "[groups, n, k]" : "[groups, k, n]");
    if (lhs->dim[1] != rhs->dim[g->k_axis])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                          "%s does not contract with lhs %s: dimension %d is %" PRId64
                          ", lhs' dimension 1 is %" PRId64,
                          octet_array_shape_text(rhs, b, sizeof b),
                          octet_array_shape_text(lhs, a, sizeof a), g->k_axis, rhs->dim[g->k_axis],
                          lhs->dim[1]);
    return OCTET_OK;
}

static enum octet_status read_sizes(struct oct_pass *g, const struct octet_array *sizes,
                                    struct octet_error *err)
{
    const int32_t *size = sizes->data;
    char shape[160], field[48];

    if (sizes->dtype != OCTET_DTYPE_S32)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "group_sizes.dtype", "'%s' is not int32",
                          octet_dtype_name(sizes->dtype));
    if (sizes->rank != 1 || sizes->dim[0] != g->groups)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "group_sizes.shape",
                          "%s is not [%" PRId64 "], one for each matrix of rhs",
                          octet_array_shape_text(sizes, shape, sizeof shape), g->groups);
    g->first = OCTET_NEW_ARRAY(g->op.work.arena, g->groups + 1, int64_t);
    if (!g->first)
        return octet_arena_exhausted(g->op.work.arena, err);
    for (int64_t e = 0; e < g->groups; e++) {
        if (size[e] < 0) {
            snprintf(field, sizeof field, "group_sizes[%" PRId64 "]", e);
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "%d is negative", size[e]);
        }
        g->first[e + 1] = g->first[e] + size[e];
    }
    int64_t e = 0;
    while (e < g->groups && g->first[e + 1] <= g->m)
        e++;
    if (e < g->groups)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "group_sizes",
                          "the sizes add up to %" PRId64 ", more than the %" PRId64
                          " rows of lhs; group_sizes[%" PRId64
                          "] is the first that goes beyond them",
                          g->first[g->groups], g->m, e);
    return OCTET_OK;
}

/* A quantized rhs may have a scale for each group; nothing finer than what rows and columns tell.
 */
static enum octet_status check_scales(const struct oct_pass *g, struct octet_error *err)
{
    const struct octet_array *l = &g->lhs.value.quantized.scale, *r = &g->rhs.value.quantized.scale;
    char shape[160];

    if (g->lhs.value.is_quantized && l->dim[0] != 1 && l->dim[0] != g->m)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "lhs.quantized.scale.shape",
                          "%s has tiles along the rows, which groups may cut",
                          octet_array_shape_text(l, shape, sizeof shape));
    if (g->rhs.value.is_quantized && r->dim[0] != 1 && r->dim[0] != g->groups)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.quantized.scale.shape",
                          "%s has tiles along the groups; 1 or one for each is possible",
                          octet_array_shape_text(r, shape, sizeof shape));
    return OCTET_OK;
}

enum octet_status oct_grouped_shapes(struct oct_pass *g, struct octet_error *err)
{
    const struct octet_array *l = oct_value_shape(&g->lhs.value);
    const struct octet_array *r = oct_value_shape(&g->rhs.value);

    g->k_axis = g->matmul->transpose_rhs ? 2 : 1;
    g->n_axis = g->matmul->transpose_rhs ? 1 : 2;
    enum octet_status status = check_ranks(g, l, r, err);
    if (status != OCTET_OK)
        return status;
    g->m = l->dim[0];
    g->k = l->dim[1];
    g->n = r->dim[g->n_axis];
    g->groups = r->dim[0];
    g->lhs.contracting = 1u << 1;
    g->rhs.contracting = 1u << g->k_axis;
    return OCTET_OK;
}

enum octet_status oct_grouped_sizes(struct oct_pass *g, const struct octet_array *sizes,
                                    struct octet_error *err)
{
    enum octet_status status = read_sizes(g, sizes, err);

    return status == OCTET_OK ? check_scales(g, err) : status;
}

/* ---- settings ---- */

/* A sentence for the trace. Literals, so that nobody owns them. */
static const char *note_on(const struct octet_rule *rule, enum octet_grouped_op op, bool drops)
{
    bool tiles = rule->tile_size[0] || rule->bwd_weight_grad_tile_size[0];
    bool methods = strcmp(rule->weight_calibration_method, "absmax") != 0 ||
                   strcmp(rule->act_calibration_method, "absmax") != 0 ||
                   strcmp(rule->bwd_calibration_method, "absmax") != 0 ||
                   rule->disable_channelwise_axes;
    bool others = rule->sparsity.m || rule->act_static_scale || rule->additional_qt_config_count;

    if (drops && (methods || tiles || others))
        return "as in Qwix, the rule's calibration methods, channelwise axes, tile sizes, sparsity "
               "and "
               "additional_qt_config have no effect on a ragged_dot";
    if (op == OCTET_RAGGED_DOT && (methods || tiles))
        return others ? "the rule's calibration methods, channelwise axes and tile sizes are "
                        "honoured, "
                        "which Qwix ignores for a ragged_dot; its sparsity, act_static_scale and "
                        "additional_qt_config have no effect"
                      : "the rule's calibration methods, channelwise axes and tile sizes are "
                        "honoured, "
                        "which Qwix ignores for a ragged_dot";
    if (op == OCTET_GMM && tiles)
        return others ? "as in MaxText, the rule's tile sizes, sparsity, act_static_scale and "
                        "additional_qt_config have no effect on a gmm"
                      : "as in MaxText, the rule's tile sizes have no effect on a gmm";
    return others ? "the rule's sparsity, act_static_scale and additional_qt_config have no effect "
                    "on a "
                    "grouped matmul"
                  : "";
}

enum octet_status oct_grouped_settings(enum oct_matmul_kind kind, struct octet_rule *plain,
                                       struct octet_product_options *options,
                                       struct octet_error *err)
{
    const struct octet_rule *rule = options->rule;
    bool drops = kind == OCT_MATMUL_RAGGED_DOT && options->qwix_compatible;

    options->weight_operand = OCTET_WEIGHT_RHS;
    if (!rule)
        return OCTET_OK;
    if (drops && rule->weight_qtype[0] && !rule->act_qtype[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.act_qtype",
                          "Qwix's ragged_dot needs a type for the activations; without "
                          "qwix_compatible they stay as they are");
    *plain = *rule;
    if (drops || kind == OCT_MATMUL_GMM)
        plain->tile_size = plain->bwd_weight_grad_tile_size = "";
    plain->sparsity = (struct octet_sparsity){0};
    plain->act_static_scale = false;
    plain->additional_qt_config_count = 0;
    if (drops) {
        plain->weight_calibration_method = plain->act_calibration_method =
            plain->bwd_calibration_method = "absmax";
        plain->disable_channelwise_axes = false;
    }
    options->rule = plain;
    return OCTET_OK;
}

/* ---- products ---- */

/* What a product of groups is made of. Scales: NULL: none. */
struct part {
    const struct octet_array *lhs, *rhs;
    int64_t tiles;          /* rounds over the contracting axis */
    const float *lhs_scale; /* [m or 1][tiles or 1] */
    int64_t lhs_row_step, lhs_tile_step;
    const float *rhs_scale; /* [groups or 1][tiles or 1][columns or 1] */
    int64_t rhs_group_step, rhs_tile_step;
    size_t rhs_step;
    const void *packed; /* rhs' codes as octet_pack lays them out; NULL: read rhs */
};

static void *element_at(const struct octet_array *array, int64_t at)
{
    return (char *)array->data + at * (int64_t)octet_dtype_bytes(array->dtype);
}

static const void *element(const struct octet_array *array, int64_t at)
{
    return element_at(array, at);
}

/* gmm sums, scales and rounds once. */
static enum octet_dtype rounding_of(const struct oct_pass *g, enum octet_dtype result)
{
    return g->matmul->kind == OCT_MATMUL_GMM ? OCTET_DTYPE_F32 : result;
}

/* Zeros what no product writes: rows behind the groups, all of it when sums are empty. */
static void clear_rest(const struct oct_pass *g, const struct octet_array *out)
{
    int64_t columns = out->dim[1], row = g->n && g->k ? g->first[g->groups] : 0;

    if (columns && g->m > row)
        memset(element_at(out, row * columns), 0,
               (size_t)((g->m - row) * columns) * octet_dtype_bytes(out->dtype));
}

static enum octet_status counting(octet_arena *arena, int64_t count, int64_t step,
                                  const int64_t **out, struct octet_error *err)
{
    return oct_offsets(arena, 1, &count, NULL, &step, out, NULL, err);
}

/* Tables that all panels of a product by rows share. */
struct row_tables {
    const int64_t *scale_rows, *lhs_rows, *lhs_depth, *rhs_depth, *rhs_columns;
    int64_t k, n, tile, depth_step, column_step;
};

static enum octet_status make_row_tables(struct oct_pass *g, const struct part *part,
                                         struct row_tables *t, struct oct_places *places,
                                         struct octet_error *err)
{
    octet_arena *arena = g->op.work.arena;
    enum octet_status status = counting(arena, g->m, t->n, &places->rows, err);

    if (status == OCTET_OK)
        status = counting(arena, t->n, 1, &places->columns, err);
    if (status == OCTET_OK)
        status = counting(arena, g->m, part->lhs_row_step, &t->scale_rows, err);
    if (status == OCTET_OK)
        status = counting(arena, g->m, t->k, &t->lhs_rows, err);
    if (status == OCTET_OK)
        status = counting(arena, t->tile, 1, &t->lhs_depth, err);
    if (status == OCTET_OK)
        status = counting(arena, t->tile, t->depth_step, &t->rhs_depth, err);
    if (status == OCTET_OK)
        status = counting(arena, t->n, t->column_step, &t->rhs_columns, err);
    places->is_contiguous = true;
    return status;
}

/* The matrix of group e, from `depth` on. */
static struct oct_gemm_side row_rhs(const struct part *part, const struct row_tables *t, int64_t e,
                                    int64_t depth)
{
    enum octet_dtype dtype = part->rhs->dtype;

    if (part->packed)
        return (struct oct_gemm_side){.dtype = dtype,
                                      .data = (const char *)part->packed +
                                              (size_t)e * oct_gemm_packed_bytes(dtype, t->n, t->k),
                                      .packed_depth = t->k,
                                      .packed_from = depth};
    return (struct oct_gemm_side){.dtype = dtype,
                                  .data =
                                      element(part->rhs, e * t->k * t->n + depth * t->depth_step),
                                  .free = t->rhs_columns,
                                  .depth = t->rhs_depth,
                                  .free_stride = t->column_step,
                                  .depth_stride = t->depth_step};
}

static struct oct_panel row_panel(const struct oct_pass *g, const struct part *part,
                                  const struct row_tables *t, int64_t e, int64_t round)
{
    int64_t row = g->first[e], depth = round * t->tile;
    struct oct_panel panel = {
        .gemm = {.m = g->first[e + 1] - row,
                 .n = t->n,
                 .k = t->tile,
                 .lhs = {part->lhs->dtype, element(part->lhs, row * t->k + depth), t->lhs_rows,
                         t->lhs_depth, t->k, 1},
                 .rhs = row_rhs(part, t, e, depth)},
        .lhs_index = t->scale_rows,
        .rhs_stride = part->rhs_step,
        .origin = row * t->n};

    if (part->lhs_scale)
        panel.lhs_scale = part->lhs_scale + row * part->lhs_row_step + round * part->lhs_tile_step;
    if (part->rhs_scale)
        panel.rhs_scale = part->rhs_scale + e * part->rhs_group_step + round * part->rhs_tile_step;
    return panel;
}

/* Rows of lhs with the matrix of their group: the forward product, and dlhs, where rhs' other axis
 * is contracted. out: [m, columns]. */
static enum octet_status by_rows(struct oct_pass *g, const struct part *part, int32_t depth_axis,
                                 int32_t column_axis, enum octet_dtype result,
                                 struct octet_array *out, struct octet_error *err)
{
    octet_arena *arena = g->op.work.arena;
    struct row_tables t = {.k = part->rhs->dim[depth_axis],
                           .n = part->rhs->dim[column_axis],
                           .depth_step = depth_axis == 1 ? part->rhs->dim[2] : 1,
                           .column_step = column_axis == 1 ? part->rhs->dim[2] : 1};
    struct oct_panels panels = {.compute = g->op.compute,
                                .scratch = arena,
                                .result = out,
                                .is_fast = g->op.options->accumulation == OCTET_FAST,
                                .rounding = rounding_of(g, result),
                                .through = result};
    struct oct_panel *list = OCTET_NEW_ARRAY(arena, g->groups, struct oct_panel);
    enum octet_status status;

    if (!list)
        return octet_arena_exhausted(arena, err);
    t.tile = t.k / part->tiles;
    status = make_row_tables(g, part, &t, &panels.places, err);
    for (int64_t round = 0; round < part->tiles && status == OCTET_OK; round++) {
        size_t count = 0;
        for (int64_t e = 0; e < g->groups; e++)
            if (g->first[e + 1] > g->first[e])
                list[count++] = row_panel(g, part, &t, e, round);
        status = oct_panels_add(&panels, list, count, (size_t)round, (size_t)part->tiles, err);
    }
    return status;
}

/* For each group the product over its rows: drhs. a [m, rows], b [m, columns]; out [groups, rows,
 * columns]. */
static enum octet_status by_groups(struct oct_pass *g, const struct octet_array *a,
                                   const float *a_scale, int64_t a_step,
                                   const struct octet_array *b, const float *b_scale, size_t b_step,
                                   enum octet_dtype result, struct octet_array *out,
                                   struct octet_error *err)
{
    octet_arena *arena = g->op.work.arena;
    int64_t rows = a->dim[1], columns = b->dim[1];
    struct oct_panels panels = {.compute = g->op.compute,
                                .scratch = arena,
                                .result = out,
                                .is_fast = g->op.options->accumulation == OCTET_FAST,
                                .rounding = rounding_of(g, result),
                                .through = result};
    struct oct_panel *list = OCTET_NEW_ARRAY(arena, g->groups, struct oct_panel);
    const int64_t *scale_rows, *a_rows, *a_depth, *b_depth;
    enum octet_status status;
    size_t count = 0;

    if (!list)
        return octet_arena_exhausted(arena, err);
    status = counting(arena, rows, columns, &panels.places.rows, err);
    if (status == OCTET_OK)
        status = counting(arena, columns, 1, &panels.places.columns, err);
    if (status == OCTET_OK)
        status = counting(arena, rows, a_step, &scale_rows, err);
    if (status == OCTET_OK)
        status = counting(arena, rows, 1, &a_rows, err);
    if (status == OCTET_OK)
        status = counting(arena, g->m, rows, &a_depth, err);
    if (status == OCTET_OK)
        status = counting(arena, g->m, columns, &b_depth, err);
    if (status != OCTET_OK)
        return status;
    panels.places.is_contiguous = true;
    for (int64_t e = 0; e < g->groups; e++) {
        int64_t row = g->first[e];
        if (g->first[e + 1] == row) { /* an empty group's gradient */
            memset(element_at(out, e * rows * columns), 0,
                   (size_t)(rows * columns) * octet_dtype_bytes(out->dtype));
            continue;
        }
        list[count++] = (struct oct_panel){
            .gemm = {.m = rows,
                     .n = columns,
                     .k = g->first[e + 1] - row,
                     .lhs = {a->dtype, element(a, row * rows), a_rows, a_depth, 1, rows},
                     .rhs = {b->dtype, element(b, row * columns), panels.places.columns, b_depth, 1,
                             columns}},
            .lhs_scale = a_scale,
            .lhs_index = scale_rows,
            .rhs_scale = b_scale,
            .rhs_stride = b_step,
            .origin = e * rows * columns};
    }
    return oct_panels_add(&panels, list, count, 0, 1, err);
}

/* ---- forward ---- */

/* A product's operands where one of them, or both, are dequantized first: formulas 9 and 12. */
static enum octet_status slow_if_needed(struct oct_pass *g, struct oct_value *a,
                                        struct oct_value *b, bool is_finer, struct octet_error *err)
{
    bool is_slow = is_finer || (!a->is_quantized && oct_value_dtype(a)) ||
                   (!b->is_quantized && oct_value_dtype(b)) ||
                   (a->is_quantized && a->quantized.zero_point.data) ||
                   (b->is_quantized && b->quantized.zero_point.data);
    struct oct_value *both[] = {a, b};
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 2 && is_slow && status == OCTET_OK; i++)
        if (both[i]->is_quantized) {
            both[i]->is_quantized = false;
            status = oct_dequantize(&g->op.work, &both[i]->quantized, &both[i]->array, err);
        }
    return status;
}

/* Tiles of a scale along the contracting axis. */
static int64_t tiles_of(const struct oct_value *value, int32_t axis)
{
    return value->is_quantized ? value->quantized.scale.dim[axis] : 1;
}

/* Dequantize first: small tiles, tiles that the sides do not share, tiles of the columns. */
static bool is_finer(const struct oct_pass *g, const struct oct_value *lhs,
                     const struct oct_value *rhs)
{
    int64_t l = tiles_of(lhs, 1), r = tiles_of(rhs, g->k_axis), most = l > r ? l : r;
    const struct octet_array *scale = &rhs->quantized.scale;

    if (most > 1 && (g->k / most < OCT_TILE_MIN || (l > 1 && r > 1 && l != r)))
        return true;
    return rhs->is_quantized && scale->dim[g->n_axis] != 1 && scale->dim[g->n_axis] != g->n;
}

/* rhs' scales as [groups][tiles][columns], however its axes lie. */
static enum octet_status rhs_scales(struct oct_pass *g, const struct octet_array *scale,
                                    struct part *part, struct octet_error *err)
{
    int64_t extent[] = {scale->dim[0], scale->dim[g->k_axis], scale->dim[g->n_axis]};
    int64_t stride[] = {scale->dim[1] * scale->dim[2], g->k_axis == 1 ? scale->dim[2] : 1,
                        g->n_axis == 1 ? scale->dim[2] : 1};
    int64_t count = octet_array_elements(scale);
    const int64_t *from;
    const float *values;
    float *turned = OCTET_NEW_ARRAY(g->op.work.arena, count, float);
    enum octet_status status = oct_scale_values(&g->op.work, scale, &values, err);

    if (status == OCTET_OK && !turned)
        status = octet_arena_exhausted(g->op.work.arena, err);
    if (status == OCTET_OK)
        status = oct_offsets(g->op.work.arena, 3, extent, NULL, stride, &from, NULL, err);
    for (int64_t i = 0; i < count && status == OCTET_OK; i++)
        turned[i] = values[from[i]];
    part->rhs_scale = turned;
    part->rhs_step = extent[2] != 1;
    part->rhs_tile_step = extent[1] != 1 ? extent[2] : 0;
    part->rhs_group_step = extent[0] != 1 ? extent[1] * extent[2] : 0;
    return status;
}

enum octet_status oct_grouped_forward(struct oct_pass *g, struct octet_error *err)
{
    struct oct_value lhs = g->lhs.value, rhs = g->rhs.value;
    enum octet_dtype result = oct_promote(oct_value_dtype(&lhs), oct_value_dtype(&rhs));
    int64_t dim[] = {g->m, g->n};
    struct part part = {.tiles = 1};

    g->op.record->lhs = g->lhs.value.quantized;
    g->op.record->rhs = g->rhs.value.quantized;
    enum octet_status status = slow_if_needed(g, &lhs, &rhs, is_finer(g, &lhs, &rhs), err);

    part.lhs = oct_value_shape(&lhs);
    part.rhs = oct_value_shape(&rhs);
    if (status == OCTET_OK && lhs.is_quantized) {
        const struct octet_array *scale = &lhs.quantized.scale;
        status = oct_scale_values(&g->op.work, scale, &part.lhs_scale, err);
        part.tiles = scale->dim[1];
        part.lhs_tile_step = scale->dim[1] != 1;
        part.lhs_row_step = scale->dim[0] != 1 ? scale->dim[1] : 0;
    }
    if (status == OCTET_OK && rhs.is_quantized) {
        status = rhs_scales(g, &rhs.quantized.scale, &part, err);
        if (rhs.quantized.scale.dim[g->k_axis] > part.tiles)
            part.tiles = rhs.quantized.scale.dim[g->k_axis];
        if (oct_is_packed(&rhs.quantized, &g->k_axis, 1) &&
            (part.tiles == 1 || g->k / part.tiles % 2 == 0))
            part.packed = rhs.quantized.packed.data;
        else if (status == OCTET_OK)
            status = oct_unpack(&g->op.work, &rhs.quantized, err);
    }
    if (status == OCTET_OK)
        status = oct_op_result(&g->op, &g->op.to_out, result, 2, dim, &g->op.out->out, err);
    if (status != OCTET_OK)
        return status;
    clear_rest(g, &g->op.out->out);
    if (!g->m || !g->n || !g->k)
        return status;
    return by_rows(g, &part, g->k_axis, g->n_axis, result, &g->op.out->out, err);
}

enum octet_status oct_grouped_quantize(struct oct_pass *g, bool is_lhs, bool foresees,
                                       struct octet_error *err)
{
    const struct oct_config *c = &g->op.config;
    bool tiles = c->is_quantized && c->tile_size[0];
    struct oct_side *side = is_lhs ? &g->lhs : &g->rhs;
    const struct oct_setting *setting = is_lhs ? &c->lhs : &c->rhs;
    int32_t k_axis = is_lhs ? 1 : g->k_axis;
    struct oct_how how = {.channelwise = 1u << (is_lhs ? 0 : g->n_axis),
                          .tiled_axis = tiles ? k_axis : -1,
                          .tile_size = c->tile_size};

    if (!c->is_quantized)
        return OCTET_OK;
    if (!tiles && ((c->lhs.qtype && c->lhs.qtype->block) || (c->rhs.qtype && c->rhs.qtype->block)))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.tile_size",
                          "block-scaled types need tiles, which this rule does not give%s",
                          g->matmul->kind == OCT_MATMUL_GMM ? " to a gmm" : "");
    return foresees ? oct_side_foresee(&g->op, side, setting, &how, "rule.tile_size", err)
                    : oct_side_quantize(&g->op, side, setting, &how, "rule.tile_size", err);
}

/* ---- backward ---- */

/* gmm folds scales also when g stays as it is; ragged_dot then dequantizes. */
static bool folds_scale(const struct oct_pass *g, bool is_lhs)
{
    const struct oct_setting *setting = is_lhs ? &g->op.config.drhs_grad : &g->op.config.dlhs_grad;

    return setting->qtype || g->matmul->kind == OCT_MATMUL_GMM;
}

bool oct_grouped_is_reusable(const struct oct_pass *g, bool is_lhs)
{
    const struct oct_side *side = is_lhs ? &g->lhs : &g->rhs;

    return !folds_scale(g, is_lhs) || side->value.quantized.scale.dim[is_lhs ? 1 : g->k_axis] == 1;
}

/* The residual of a side: its bare codes after the scale went onto *gradient (a source as yet
 * without one), where that is possible. */
static enum octet_status fold_scale(struct oct_pass *g, struct oct_side *side, bool folds,
                                    struct oct_source *gradient, struct oct_value *residual,
                                    struct octet_error *err)
{
    struct octet_quantized *q = &side->value.quantized;
    bool is_lhs = side == &g->lhs;
    int64_t dim[2] = {1, 1};
    const float *values;
    enum octet_status status = OCTET_OK;

    *residual = side->value;
    if (!side->value.is_quantized)
        return OCTET_OK;
    bool fits = !q->zero_point.data && q->scale.dim[is_lhs ? 1 : g->k_axis] == 1 &&
                (is_lhs || q->scale.dim[g->n_axis] == 1 || q->scale.dim[g->n_axis] == g->n) &&
                (is_lhs || q->scale.dim[0] == 1);
    if (folds && q->scale.dim[is_lhs ? 1 : g->k_axis] != 1 && !side->given->is_quantized) {
        *residual = (struct oct_value){.array = side->original}; /* as dot_general's with tiles */
        return OCTET_OK;
    }
    if (!folds || !fits) { /* what it stands for, in its scale's dtype */
        residual->is_quantized = false;
        return oct_dequantize(&g->op.work, q, &residual->array, err);
    }
    dim[is_lhs ? 0 : 1] = q->scale.dim[is_lhs ? 0 : g->n_axis];
    struct octet_array scale;
    status = oct_array_cast(&g->op.work, &q->scale, gradient->dtype, &scale, err);
    if (status == OCTET_OK)
        status = oct_scale_values(&g->op.work, &scale, &values, err);
    if (status != OCTET_OK)
        return status;
    *gradient = oct_source_times(&gradient->array, dim, values, gradient->dtype);
    *residual = (struct oct_value){.array = q->qvalue};
    return OCTET_OK;
}

/* The gradient as one product takes it: scaled, quantized along `axis`. */
static enum octet_status prepare(struct oct_pass *g, struct oct_side *y,
                                 const struct oct_setting *setting, int32_t axis,
                                 const struct octet_array *cotangent, struct octet_array *pre,
                                 struct octet_quantized *recorded, struct oct_value *gradient,
                                 struct oct_value *residual, struct octet_error *err)
{
    bool folds = folds_scale(g, y == &g->lhs);
    struct oct_source source = oct_source_of(cotangent);
    const char *tile = axis == 1 ? g->op.config.drhs_tile_size : g->op.config.dlhs_tile_size;
    struct oct_how how = {
        .channelwise = 1u << axis, .tiled_axis = tile[0] ? 1 - axis : -1, .tile_size = tile};
    enum octet_status status = fold_scale(g, y, folds, &source, residual, err);

    *gradient = (struct oct_value){.array = *cotangent};
    if (status == OCTET_OK && !setting->qtype)
        status = oct_source_array(&g->op.work, &source, &gradient->array, err);
    if (status != OCTET_OK || !setting->qtype)
        return status;
    if (setting->qtype->block)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.bwd_qtype",
                          "%s needs tiles, which grouped matmuls do not have",
                          setting->qtype->name);
    status = oct_value_quantize(&g->op, &source, setting, &how, "rule.bwd_weight_grad_tile_size",
                                &g->op.cotangent_stats, pre, gradient, err);
    *recorded = gradient->quantized;
    if (status == OCTET_OK && tile[0]) { /* groups may cut the tiles */
        gradient->is_quantized = false;
        status = oct_dequantize(&g->op.work, &gradient->quantized, &gradient->array, err);
    }
    return status;
}

static enum octet_dtype gradient_dtype(const struct oct_pass *g, const struct oct_side *x,
                                       const struct oct_value *a, const struct oct_value *b)
{
    if (g->matmul->kind == OCT_MATMUL_GMM || !g->op.config.is_quantized)
        return x->original.dtype;
    return oct_promote(oct_value_dtype(a), oct_value_dtype(b));
}

static enum octet_status backward_lhs(struct oct_pass *g, const struct octet_array *cotangent,
                                      struct octet_error *err)
{
    struct oct_value gradient, rhs;
    struct part part = {.tiles = 1};
    int64_t dim[] = {g->m, g->k};
    enum octet_status status =
        prepare(g, &g->rhs, &g->op.config.dlhs_grad, 0, cotangent, &g->op.record->g_dlhs_pre,
                &g->op.record->g_dlhs, &gradient, &rhs, err);

    if (status == OCTET_OK)
        status = slow_if_needed(g, &gradient, &rhs, false, err);
    enum octet_dtype dtype = gradient_dtype(g, &g->lhs, &gradient, &rhs);
    if (status == OCTET_OK && gradient.is_quantized)
        status = oct_scale_values(&g->op.work, &gradient.quantized.scale, &part.lhs_scale, err);
    if (status == OCTET_OK)
        status =
            oct_op_result(&g->op, &g->op.to_lhs_grad, dtype, 2, dim, &g->op.out->lhs_grad, err);
    if (status != OCTET_OK)
        return status;
    clear_rest(g, &g->op.out->lhs_grad);
    part.lhs = oct_value_shape(&gradient);
    part.rhs = oct_value_shape(&rhs);
    part.lhs_row_step = part.lhs_scale && gradient.quantized.scale.dim[0] != 1;
    if (!g->m || !g->n || !g->k)
        return OCTET_OK;
    return by_rows(g, &part, g->n_axis, g->k_axis, dtype, &g->op.out->lhs_grad, err);
}

static enum octet_status backward_rhs(struct oct_pass *g, const struct octet_array *cotangent,
                                      struct octet_error *err)
{
    struct oct_value gradient, lhs;
    const float *scale = NULL;
    int64_t dim[] = {g->groups, g->matmul->transpose_rhs ? g->n : g->k,
                     g->matmul->transpose_rhs ? g->k : g->n};
    struct octet_array *out = &g->op.out->rhs_grad;
    enum octet_status status =
        prepare(g, &g->lhs, &g->op.config.drhs_grad, 1, cotangent, &g->op.record->g_drhs_pre,
                &g->op.record->g_drhs, &gradient, &lhs, err);

    if (status == OCTET_OK)
        status = slow_if_needed(g, &lhs, &gradient, false, err);
    enum octet_dtype dtype = gradient_dtype(g, &g->rhs, &lhs, &gradient);
    if (status == OCTET_OK && gradient.is_quantized)
        status = oct_scale_values(&g->op.work, &gradient.quantized.scale, &scale, err);
    if (status == OCTET_OK)
        status = oct_op_result(&g->op, &g->op.to_rhs_grad, dtype, 3, dim, out, err);
    if (status != OCTET_OK)
        return status;
    if (!g->m || !g->n || !g->k) {
        if (octet_array_bytes(out))
            memset(out->data, 0, (size_t)octet_array_bytes(out));
        return OCTET_OK;
    }
    const struct octet_array *a = oct_value_shape(&lhs), *b = oct_value_shape(&gradient);
    int64_t step = scale && gradient.quantized.scale.dim[1] != 1;
    return g->matmul->transpose_rhs
               ? by_groups(g, b, scale, step, a, NULL, 0, dtype, out, err)
               : by_groups(g, a, NULL, 0, b, scale, (size_t)step, dtype, out, err);
}

/* With working memory of its own, unless a record keeps all: the two gradients need it one after
 * the other. */
static enum octet_status within(struct oct_pass *g,
                                enum octet_status (*gradient)(struct oct_pass *g,
                                                              const struct octet_array *cotangent,
                                                              struct octet_error *err),
                                const struct octet_array *cotangent, struct octet_error *err)
{
    octet_arena *outer = g->op.work.arena, *inner;

    if (g->op.record != &g->op.unused)
        return gradient(g, cotangent, err);
    inner = octet_arena_create_within(outer);
    if (!inner)
        return octet_arena_exhausted(outer, err);
    g->op.work.arena = inner;
    enum octet_status status = gradient(g, cotangent, err);
    g->op.work.arena = outer;
    octet_arena_destroy(inner);
    return status;
}

enum octet_status oct_grouped_backward(struct oct_pass *g, struct octet_error *err)
{
    struct octet_array cotangent;
    enum octet_status status = oct_cotangent(&g->op, &g->op.out->out, &cotangent, err);

    if (status == OCTET_OK && g->op.wants_lhs_grad)
        status = within(g, backward_lhs, &cotangent, err);
    if (status == OCTET_OK && g->op.wants_rhs_grad)
        status = within(g, backward_rhs, &cotangent, err);
    return status;
}

/* ---- */

const char *oct_grouped_note(const struct octet_rule *rule, enum oct_matmul_kind kind,
                             bool qwix_compatible)
{
    return note_on(rule, kind == OCT_MATMUL_GMM ? OCTET_GMM : OCTET_RAGGED_DOT,
                   kind == OCT_MATMUL_RAGGED_DOT && qwix_compatible);
}
