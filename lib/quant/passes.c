/* See passes.h. The ops' public forms, too, which are both passes with nothing put away between
 * them. */
#include "quant/passes.h"

#include <string.h>

#include "base/float_env.h"
#include "quant/pass.h"
#include "quant/sparsity.h"

/* What forward leaves, at the start of its block; codes, scales and bounds stand behind it. */
struct saved_side {
    struct octet_quantized quantized;
    struct oct_calibration calibration;
    bool is_quantized, is_calibrated, has_blocks;
};
struct saved {
    struct saved_side lhs, rhs;
};

static bool is_grouped(const struct oct_matmul *matmul)
{
    return matmul->kind != OCT_MATMUL_DOT;
}

static enum octet_status quantize_side(struct oct_pass *pass, bool is_lhs, bool foresees,
                                       struct octet_error *err)
{
    return is_grouped(pass->matmul) ? oct_grouped_quantize(pass, is_lhs, foresees, err)
                                    : oct_dot_quantize(pass, is_lhs, foresees, err);
}

static enum octet_status check_shapes(struct oct_pass *pass, struct octet_error *err)
{
    return is_grouped(pass->matmul) ? oct_grouped_shapes(pass, err) : oct_dot_shapes(pass, err);
}

/* ---- both passes in one call ---- */

static enum octet_status run_whole(struct oct_pass *pass, const struct octet_array *group_sizes,
                                   struct octet_error *err)
{
    bool grouped = is_grouped(pass->matmul);
    enum octet_status status = check_shapes(pass, err);

    if (status == OCTET_OK && grouped)
        status = oct_grouped_sizes(pass, group_sizes, err);
    if (status == OCTET_OK)
        status = quantize_side(pass, true, false, err);
    if (status == OCTET_OK)
        status = quantize_side(pass, false, false, err);
    if (status == OCTET_OK)
        status = grouped ? oct_grouped_forward(pass, err) : oct_dot_forward(pass, err);
    if (status == OCTET_OK && pass->op.options->cotangent)
        status = grouped ? oct_grouped_backward(pass, err) : oct_dot_backward(pass, err);
    return status == OCTET_OK ? oct_op_finish(&pass->op, &pass->lhs, &pass->rhs, err) : status;
}

enum octet_status
oct_quant_matmul(const struct octet_compute *compute, const struct oct_matmul *matmul,
                 const struct octet_operand *lhs, const struct octet_operand *rhs,
                 const struct octet_array *group_sizes, const struct octet_product_options *options,
                 struct oct_record *record, struct octet_product *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct oct_pass pass = {.matmul = matmul};
    struct octet_product_options chosen = *options;
    struct octet_rule plain;
    enum octet_status status = OCTET_OK;

    if (is_grouped(matmul))
        status = oct_grouped_settings(matmul->kind, &plain, &chosen, err);
    if (status == OCTET_OK) {
        status = oct_op_begin(&pass.op, compute, &chosen, record, out, err);
        pass.op.wants_lhs_grad = !lhs->is_quantized;
        pass.op.wants_rhs_grad = !rhs->is_quantized;
        if (status == OCTET_OK && is_grouped(matmul) && options->rule && out->is_quantized)
            out->note = oct_grouped_note(options->rule, matmul->kind, options->qwix_compatible);
        if (status == OCTET_OK)
            status = oct_side_check(&pass.lhs, "lhs", lhs, err);
        if (status == OCTET_OK)
            status = oct_side_check(&pass.rhs, "rhs", rhs, err);
        if (status == OCTET_OK)
            status = run_whole(&pass, group_sizes, err);
        oct_op_end(&pass.op);
    }
    oct_float_env_leave(env);
    return status;
}

enum octet_status
oct_quant_dot_general(const struct octet_compute *compute, const struct octet_operand *lhs,
                      const struct octet_operand *rhs, const struct octet_dot_dims *dims,
                      const struct octet_product_options *options, struct oct_record *record,
                      struct octet_product *out, struct octet_error *err)
{
    struct oct_matmul matmul = {.kind = OCT_MATMUL_DOT, .dims = *dims};

    return oct_quant_matmul(compute, &matmul, lhs, rhs, NULL, options, record, out, err);
}

enum octet_status octet_dot_general(const struct octet_compute *compute,
                                    const struct octet_operand *lhs,
                                    const struct octet_operand *rhs,
                                    const struct octet_dot_dims *dims,
                                    const struct octet_product_options *options,
                                    struct octet_product *out, struct octet_error *err)
{
    return oct_quant_dot_general(compute, lhs, rhs, dims, options, NULL, out, err);
}

enum octet_status
oct_quant_ragged_dot(const struct octet_compute *compute, const struct octet_operand *lhs,
                     const struct octet_operand *rhs, const struct octet_array *group_sizes,
                     bool transpose_rhs, enum octet_grouped_op op,
                     const struct octet_product_options *options, struct oct_record *record,
                     struct octet_product *out, struct octet_error *err)
{
    struct oct_matmul matmul = {.kind = op == OCTET_GMM ? OCT_MATMUL_GMM : OCT_MATMUL_RAGGED_DOT,
                                .transpose_rhs = transpose_rhs};

    return oct_quant_matmul(compute, &matmul, lhs, rhs, group_sizes, options, record, out, err);
}

enum octet_status octet_ragged_dot(const struct octet_compute *compute,
                                   const struct octet_operand *lhs, const struct octet_operand *rhs,
                                   const struct octet_array *group_sizes, bool transpose_rhs,
                                   enum octet_grouped_op op,
                                   const struct octet_product_options *options,
                                   struct octet_product *out, struct octet_error *err)
{
    return oct_quant_ragged_dot(compute, lhs, rhs, group_sizes, transpose_rhs, op, options, NULL,
                                out, err);
}

/* ---- one pass ---- */

/* A pass and what its op points to. */
struct call {
    struct oct_pass pass;
    struct octet_product_options options;
    struct octet_rule plain;
    struct octet_product out;
    struct octet_operand lhs, rhs;
};

/* cotangent: NULL: forward. */
static enum octet_status begin(struct call *call, const struct octet_compute *compute,
                               const struct oct_matmul *matmul, const struct octet_operand *lhs,
                               const struct octet_operand *rhs, const struct octet_array *cotangent,
                               struct octet_error *err)
{
    struct oct_op *op = &call->pass.op;
    enum octet_status status = OCTET_OK;

    call->lhs = *lhs;
    call->rhs = *rhs;
    call->options = (struct octet_product_options){.rule = matmul->rule,
                                                   .weight_operand = matmul->weight_operand,
                                                   .qwix_compatible = matmul->qwix_compatible,
                                                   .numerics = matmul->numerics,
                                                   .accumulation = matmul->accumulation,
                                                   .cotangent = cotangent};
    call->out = (struct octet_product){0};
    call->pass.matmul = matmul;
    call->pass.first = NULL;
    if (is_grouped(matmul))
        status = oct_grouped_settings(matmul->kind, &call->plain, &call->options, err);
    *op = (struct oct_op){.options = &call->options, .out = &call->out, .record = &op->unused};
    if (compute) {
        op->compute = compute;
        op->work = *compute;
    }
    if (status == OCTET_OK)
        status = oct_config_make(call->options.rule, call->options.weight_operand,
                                 matmul->has_backward, &op->config, err);
    if (matmul->step < op->config.sparsity.start_step)
        op->config.sparsity = (struct octet_sparsity){0};
    if (status == OCTET_OK)
        status = oct_side_check(&call->pass.lhs, "lhs", &call->lhs, err);
    if (status == OCTET_OK)
        status = oct_side_check(&call->pass.rhs, "rhs", &call->rhs, err);
    return status == OCTET_OK ? check_shapes(&call->pass, err) : status;
}

static struct octet_operand plain_operand(const struct octet_array *array)
{
    return (struct octet_operand){.array = *array};
}

/* Both sides as forward will have them. */
static enum octet_status foresee(struct call *call, const struct oct_matmul *matmul,
                                 const struct octet_array *lhs, const struct octet_array *rhs,
                                 struct octet_error *err)
{
    struct octet_operand l = plain_operand(lhs), r = plain_operand(rhs);
    enum octet_status status = begin(call, NULL, matmul, &l, &r, NULL, err);

    if (status == OCTET_OK)
        status = quantize_side(&call->pass, true, true, err);
    return status == OCTET_OK ? quantize_side(&call->pass, false, true, err) : status;
}

/* Does backward use this foreseen side's codes? */
static bool keeps_codes(const struct oct_pass *pass, bool is_lhs)
{
    const struct oct_side *side = is_lhs ? &pass->lhs : &pass->rhs;

    if (!side->is_calibrated)
        return false;
    return is_grouped(pass->matmul) ? oct_grouped_is_reusable(pass, is_lhs)
                                    : oct_side_is_reusable(&pass->op, side);
}

static bool keeps_bounds(const struct oct_pass *pass, bool is_lhs)
{
    return !is_grouped(pass->matmul) && oct_side_masks(&pass->op, is_lhs ? &pass->lhs : &pass->rhs);
}

/* ---- the block ---- */

static size_t padded(int64_t bytes)
{
    return ((size_t)bytes + 63) / 64 * 64;
}

static size_t side_bytes(const struct oct_pass *pass, bool is_lhs)
{
    const struct oct_side *side = is_lhs ? &pass->lhs : &pass->rhs;
    const struct octet_quantized *q = &side->value.quantized;
    size_t bounds = padded(side->calibration.count * (int64_t)sizeof(float)), bytes = 0;

    if (keeps_codes(pass, is_lhs)) {
        bytes += padded(octet_array_bytes(&q->qvalue)) + padded(octet_array_bytes(&q->scale));
        bytes += side->calibration.lower ? padded(octet_array_bytes(&q->zero_point)) : 0;
    }
    if (keeps_bounds(pass, is_lhs))
        bytes += side->calibration.lower ? 2 * bounds : bounds;
    return bytes;
}

enum octet_status oct_matmul_check(const struct oct_matmul *matmul, const struct octet_array *lhs,
                                   const struct octet_array *rhs, struct octet_error *err)
{
    struct call call;

    return foresee(&call, matmul, lhs, rhs, err);
}

size_t oct_matmul_saved_bytes(const struct oct_matmul *matmul, const struct octet_array *lhs,
                              const struct octet_array *rhs)
{
    struct call call;
    size_t bytes;

    if (foresee(&call, matmul, lhs, rhs, NULL) != OCTET_OK || !call.pass.op.config.is_quantized)
        return 0;
    bytes = side_bytes(&call.pass, true) + side_bytes(&call.pass, false);
    return padded(sizeof(struct saved)) + bytes;
}

int oct_matmul_reads(const struct oct_matmul *matmul, const struct octet_array *lhs,
                     const struct octet_array *rhs)
{
    struct call call;

    if (foresee(&call, matmul, lhs, rhs, NULL) != OCTET_OK)
        return 3;
    bool reads_lhs = !keeps_codes(&call.pass, true) || keeps_bounds(&call.pass, true);
    bool reads_rhs = !keeps_codes(&call.pass, false) || keeps_bounds(&call.pass, false) ||
                     call.pass.op.config.sparsity.m;
    return (reads_lhs ? 1 : 0) | (reads_rhs ? 2 : 0);
}

/* ---- working memory ---- */

enum { PIECE_BYTES = 64, SMALL_BYTES = 40 * 1024 }; /* a piece's head; open blocks of an arena */

/* What stands around a product's numbers: tables of offsets, scales in f32, panels. */
static size_t product_bytes(int64_t batches, int64_t m, int64_t n, int64_t k)
{
    return SMALL_BYTES + 24 * (size_t)(m + n + k) + (size_t)batches * (640 + 4 * (size_t)n);
}

/* Calibration (whose copies of scales are up to a 16th of the codes), scales and codes of one
 * array. */
static size_t quantizing_bytes(int64_t elements, int64_t scales)
{
    return (size_t)(elements + elements / 16) + 6 * PIECE_BYTES +
           5 * sizeof(float) * (size_t)scales;
}

struct sizes {
    int64_t batches, m, n, k;
    size_t element; /* bytes */
};

static struct sizes sizes_of(const struct oct_pass *pass)
{
    const struct octet_array *lhs = oct_value_shape(&pass->lhs.value);
    int64_t lhs_elements = octet_array_elements(lhs);
    int64_t rhs_elements = octet_array_elements(oct_value_shape(&pass->rhs.value));
    struct sizes s = {
        .batches = 1, .k = 1, .element = octet_dtype_bytes(pass->lhs.given->array.dtype)};

    if (is_grouped(pass->matmul))
        return (struct sizes){pass->groups, pass->m, pass->n, pass->k, s.element};
    for (int32_t i = 0; i < pass->matmul->dims.batch_count; i++)
        s.batches *= lhs->dim[pass->matmul->dims.lhs_batch[i]];
    for (int32_t i = 0; i < pass->matmul->dims.contracting_count; i++)
        s.k *= lhs->dim[pass->matmul->dims.lhs_contracting[i]];
    s.m = s.batches && s.k ? lhs_elements / s.batches / s.k : 0;
    s.n = s.batches && s.k ? rhs_elements / s.batches / s.k : 0;
    return s;
}

/* What a side stands for; with zero points, codes less these are made first. */
static size_t dequantizing_bytes(const struct oct_side *side, size_t element)
{
    size_t zeros = side->calibration.lower ? sizeof(float) : 0;

    return (element + zeros) * (size_t)octet_array_elements(&side->original) + 2 * PIECE_BYTES;
}

/* Does the product of these two dequantize, or add tiles up? Then it needs copies. */
static size_t slow_bytes(const struct oct_pass *pass, const struct sizes *s)
{
    const struct oct_side *sides[] = {&pass->lhs, &pass->rhs};
    bool both = pass->lhs.is_calibrated && pass->rhs.is_calibrated, tiled = false, small = false;
    bool has_zeros = pass->lhs.calibration.lower || pass->rhs.calibration.lower;
    size_t bytes = 0;

    for (int i = 0; i < 2; i++)
        for (int32_t a = 0; a < sides[i]->original.rank && sides[i]->is_calibrated; a++)
            if (sides[i]->contracting >> a & 1 && sides[i]->calibration.dim[a] > 1) {
                tiled = true;
                small |= sides[i]->original.dim[a] / sides[i]->calibration.dim[a] < OCT_TILE_MIN;
            }
    small |= has_zeros && is_grouped(pass->matmul);
    if ((tiled || has_zeros) && !small && both) /* sums and totals, or what zero points add */
        bytes += 2 * sizeof(float) * (size_t)(s->batches * s->m * s->n);
    for (int i = 0; i < 2; i++)
        if (sides[i]->is_calibrated && (!both || small))
            bytes += dequantizing_bytes(sides[i], s->element);
    return bytes;
}

static size_t forward_bytes(const struct oct_pass *pass, const struct sizes *s)
{
    const struct oct_side *sides[] = {&pass->lhs, &pass->rhs};
    size_t bytes = product_bytes(s->batches, s->m, s->n, s->k) + slow_bytes(pass, s);

    for (int i = 0; i < 2; i++)
        if (sides[i]->is_calibrated)
            bytes += quantizing_bytes(octet_array_elements(&sides[i]->original),
                                      sides[i]->calibration.count);
    if (pass->op.config.sparsity.m)
        bytes += s->element * (size_t)octet_array_elements(&pass->rhs.original) + PIECE_BYTES;
    return bytes;
}

/* Of one gradient: that of lhs or rhs. */
static size_t gradient_bytes(const struct oct_pass *pass, const struct sizes *s, bool for_lhs)
{
    const struct oct_config *c = &pass->op.config;
    const struct oct_side *y = for_lhs ? &pass->rhs : &pass->lhs;
    const struct oct_setting *grad = for_lhs ? &c->dlhs_grad : &c->drhs_grad;
    const struct oct_setting *residual = for_lhs ? &c->dlhs_residual : &c->drhs_residual;
    const char *tile = for_lhs ? c->dlhs_tile_size : c->drhs_tile_size;
    int64_t batches = is_grouped(pass->matmul) ? 1 : s->batches;
    int64_t g = batches * s->m * s->n, others = octet_array_elements(&y->original);
    int64_t rows = batches * (for_lhs ? s->m : s->n);
    bool folds =
        keeps_codes(pass, !for_lhs) && (grad->qtype || pass->matmul->kind == OCT_MATMUL_GMM);
    bool fast = folds && grad->qtype && !tile[0];
    size_t bytes = product_bytes(s->batches, s->m, s->n, s->k);

    if (!c->is_quantized)
        return bytes;
    if (folds) /* g with the scale moved onto it */
        bytes += s->element * (size_t)g + PIECE_BYTES;
    if (grad->qtype) {
        int64_t tiles = !tile[0] ? 1 : for_lhs ? s->n : s->m; /* one a number at most */
        bytes += quantizing_bytes(g, rows * tiles);
        bytes += fast ? 0 : s->element * (size_t)g + PIECE_BYTES;
        bytes += tile[0] ? 2 * sizeof(float) *
                               (size_t)octet_array_elements(for_lhs ? &pass->lhs.original
                                                                    : &pass->rhs.original)
                         : 0;
    }
    if (residual->qtype)
        bytes += quantizing_bytes(others, others) + s->element * (size_t)others;
    else if (y->is_calibrated && keeps_codes(pass, !for_lhs) && !fast)
        bytes += dequantizing_bytes(y, s->element);
    return bytes;
}

size_t oct_matmul_scratch_bytes(const struct oct_matmul *matmul, const struct octet_array *lhs,
                                const struct octet_array *rhs, bool backward)
{
    struct call call;

    if (foresee(&call, matmul, lhs, rhs, NULL) != OCTET_OK)
        return SMALL_BYTES;
    struct sizes s = sizes_of(&call.pass);
    if (!backward)
        return SMALL_BYTES + forward_bytes(&call.pass, &s);
    size_t of_lhs = gradient_bytes(&call.pass, &s, true);
    size_t of_rhs = gradient_bytes(&call.pass, &s, false);
    size_t sparse = call.pass.op.config.sparsity.m
                        ? s.element * (size_t)octet_array_elements(&call.pass.rhs.original)
                        : 0;
    return 2 * SMALL_BYTES + sparse + (of_lhs > of_rhs ? of_lhs : of_rhs);
}

/* Places for what is kept of a side's quantization. */
static void set_places(struct oct_pass *pass, bool is_lhs, struct oct_keep *keep)
{
    struct oct_side *side = is_lhs ? &pass->lhs : &pass->rhs;
    struct octet_quantized *q = &side->value.quantized;

    if (!keeps_codes(pass, is_lhs))
        return;
    q->qvalue.data = oct_keep_take(keep, (size_t)octet_array_bytes(&q->qvalue));
    q->scale.data = oct_keep_take(keep, (size_t)octet_array_bytes(&q->scale));
    if (side->calibration.lower)
        q->zero_point.data = oct_keep_take(keep, (size_t)octet_array_bytes(&q->zero_point));
}

static void save_side(const struct oct_pass *pass, bool is_lhs, struct oct_keep *keep,
                      struct saved_side *saved)
{
    const struct oct_side *side = is_lhs ? &pass->lhs : &pass->rhs;
    size_t bounds = (size_t)side->calibration.count * sizeof(float);

    *saved = (struct saved_side){.quantized = side->value.quantized,
                                 .calibration = side->calibration,
                                 .is_quantized = side->value.is_quantized,
                                 .is_calibrated = side->is_calibrated,
                                 .has_blocks = side->has_blocks};
    if (!keeps_codes(pass, is_lhs))
        saved->quantized.qvalue.data = saved->quantized.scale.data =
            saved->quantized.zero_point.data = NULL;
    saved->calibration.upper = saved->calibration.lower = NULL;
    if (keeps_bounds(pass, is_lhs)) {
        saved->calibration.upper = oct_keep_take(keep, bounds);
        memcpy(saved->calibration.upper, side->calibration.upper, bounds);
        if (side->calibration.lower) {
            saved->calibration.lower = oct_keep_take(keep, bounds);
            memcpy(saved->calibration.lower, side->calibration.lower, bounds);
        }
    }
}

static void load_side(const struct saved_side *saved, struct oct_side *side)
{
    side->is_calibrated = saved->is_calibrated;
    side->has_blocks = saved->has_blocks;
    side->calibration = saved->calibration;
    side->value.is_quantized = saved->is_quantized;
    side->value.quantized = saved->quantized;
}

/* ---- forward ---- */

static enum octet_status quantize_both(struct oct_pass *pass, void *block, size_t bytes,
                                       struct octet_error *err)
{
    struct oct_keep keep = {block, (unsigned char *)block + bytes};
    struct saved *saved = block ? oct_keep_take(&keep, sizeof *saved) : NULL;
    enum octet_status status = OCTET_OK;

    for (int is_lhs = 1; is_lhs >= 0 && status == OCTET_OK; is_lhs--) {
        if (saved) {
            status = quantize_side(pass, is_lhs, true, err);
            set_places(pass, is_lhs, &keep);
        }
        if (status == OCTET_OK)
            status = quantize_side(pass, is_lhs, false, err);
        if (status == OCTET_OK && saved)
            save_side(pass, is_lhs, &keep, is_lhs ? &saved->lhs : &saved->rhs);
    }
    return status;
}

static enum octet_status forward(struct call *call, const struct octet_array *group_sizes,
                                 const struct octet_array *out, void *block, size_t bytes,
                                 struct octet_error *err)
{
    struct oct_pass *pass = &call->pass;
    enum octet_status status = OCTET_OK;

    pass->op.to_out = *out;
    if (is_grouped(pass->matmul))
        status = oct_grouped_sizes(pass, group_sizes, err);
    if (status == OCTET_OK)
        status = quantize_both(pass, bytes ? block : NULL, bytes, err);
    if (status == OCTET_OK)
        status =
            is_grouped(pass->matmul) ? oct_grouped_forward(pass, err) : oct_dot_forward(pass, err);
    return status == OCTET_OK ? oct_op_forward_figures(&pass->op, &pass->lhs, &pass->rhs, err)
                              : status;
}

enum octet_status oct_matmul_forward(const struct octet_compute *compute,
                                     const struct oct_matmul *matmul,
                                     const struct octet_operand *lhs,
                                     const struct octet_operand *rhs,
                                     const struct octet_array *group_sizes,
                                     const struct octet_array *out, void *saved, size_t saved_bytes,
                                     struct oct_pass_figures *figures, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct call call;
    enum octet_status status = begin(&call, compute, matmul, lhs, rhs, NULL, err);

    if (status == OCTET_OK)
        status = forward(&call, group_sizes, out, saved, saved_bytes, err);
    if (figures)
        figures->is_fast = compute->workers->fast && matmul->accumulation == OCTET_FAST;
    if (status == OCTET_OK && figures && matmul->numerics) {
        figures->lhs = call.out.lhs;
        figures->rhs = call.out.rhs;
        memcpy(figures->digest, call.out.digest, sizeof figures->digest);
    }
    oct_float_env_leave(env);
    return status;
}

/* ---- backward ---- */

/* The result that forward made: shape and dtype. */
static struct octet_array result_shape(const struct octet_array *lhs, const struct octet_array *rhs,
                                       const struct octet_array *cotangent)
{
    struct octet_array out = *cotangent;

    out.dtype = oct_promote(lhs->dtype, rhs->dtype);
    out.data = NULL;
    return out;
}

static enum octet_status backward(struct call *call, const struct octet_array *group_sizes,
                                  const struct saved *saved, struct octet_error *err)
{
    struct oct_pass *pass = &call->pass;
    struct oct_op *op = &pass->op;
    enum octet_status status = OCTET_OK;

    if (is_grouped(pass->matmul))
        status = oct_grouped_sizes(pass, group_sizes, err);
    if (saved) {
        load_side(&saved->lhs, &pass->lhs);
        load_side(&saved->rhs, &pass->rhs);
    }
    if (status == OCTET_OK && op->config.sparsity.m && pass->rhs.original.data) {
        status = oct_sparsify(&op->work, &pass->rhs.original, &op->config.sparsity,
                              &pass->rhs.original, err);
        pass->rhs.value.array = pass->rhs.original;
    }
    if (status == OCTET_OK)
        status = is_grouped(pass->matmul) ? oct_grouped_backward(pass, err)
                                          : oct_dot_backward(pass, err);
    return status == OCTET_OK ? oct_op_backward_figures(op, err) : status;
}

enum octet_status oct_matmul_backward(const struct octet_compute *compute,
                                      const struct oct_matmul *matmul,
                                      const struct octet_array *lhs, const struct octet_array *rhs,
                                      const struct octet_array *group_sizes, const void *saved,
                                      const struct octet_array *cotangent,
                                      const struct octet_array *lhs_grad,
                                      const struct octet_array *rhs_grad,
                                      struct oct_pass_figures *figures, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct octet_operand l = plain_operand(lhs), r = plain_operand(rhs);
    struct call call;
    enum octet_status status = begin(&call, compute, matmul, &l, &r, cotangent, err);

    if (status == OCTET_OK) {
        struct oct_op *op = &call.pass.op;
        call.out.out = result_shape(lhs, rhs, cotangent);
        op->to_lhs_grad = *lhs_grad;
        op->to_rhs_grad = *rhs_grad;
        op->wants_lhs_grad = lhs_grad->data != NULL;
        op->wants_rhs_grad = rhs_grad->data != NULL;
        status = backward(&call, group_sizes, op->config.is_quantized ? saved : NULL, err);
    }
    if (figures)
        figures->is_fast = compute->workers->fast && matmul->accumulation == OCTET_FAST;
    if (status == OCTET_OK && figures && matmul->numerics)
        figures->cotangent = call.out.cotangent;
    oct_float_env_leave(env);
    return status;
}

/* ---- prepared ---- */

enum octet_status oct_matmul_prepare(const struct octet_compute *compute,
                                     const struct oct_matmul *matmul, const struct octet_array *lhs,
                                     const struct octet_array *rhs, bool is_lhs, octet_arena *keep,
                                     struct octet_quantized *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct octet_operand l = plain_operand(lhs), r = plain_operand(rhs);
    struct call call;
    struct octet_compute kept = *compute;
    enum octet_status status = begin(&call, compute, matmul, &l, &r, NULL, err);

    *out = (struct octet_quantized){0};
    kept.arena = keep;
    if (status == OCTET_OK)
        status = quantize_side(&call.pass, is_lhs, true, err);
    struct oct_side *side = is_lhs ? &call.pass.lhs : &call.pass.rhs;
    struct octet_quantized *q = &side->value.quantized;
    if (status == OCTET_OK && side->is_calibrated) {
        bool has_zeros = side->calibration.lower != NULL;
        status = oct_array_like(&kept, &q->qvalue, q->qvalue.dtype, &q->qvalue, err);
        if (status == OCTET_OK)
            status = oct_array_like(&kept, &q->scale, q->scale.dtype, &q->scale, err);
        if (status == OCTET_OK && has_zeros)
            status =
                oct_array_like(&kept, &q->zero_point, q->zero_point.dtype, &q->zero_point, err);
        if (status == OCTET_OK)
            status = quantize_side(&call.pass, is_lhs, false, err);
        if (status == OCTET_OK)
            *out = *q;
    }
    oct_float_env_leave(env);
    return status;
}
