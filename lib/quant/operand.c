/* See operand.h. */
#include "quant/operand.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "quant/pack.h"

const char *octet_accumulation_name(enum octet_accumulation accumulation)
{
    return accumulation == OCTET_FAST ? "FAST" : "EXACT_ORDER";
}

/* ---- begin, end ---- */

enum octet_status oct_op_begin(struct oct_op *op, const struct octet_compute *compute,
                               const struct octet_product_options *options,
                               struct oct_record *record, struct octet_product *out,
                               struct octet_error *err)
{
    enum octet_dtype dtype = options->out_dtype;

    *op = (struct oct_op){.compute = compute, .work = *compute, .options = options, .out = out};
    /* Kernels that may be FAST are taken where there are any. */
    *out = (struct octet_product){.accumulation = compute->workers->fast ? options->accumulation
                                                                         : OCTET_EXACT_ORDER,
                                  .note = ""};
    op->record = record ? record : &op->unused;
    *op->record = (struct oct_record){0};
    if (dtype && dtype != OCTET_DTYPE_F32 && dtype != OCTET_DTYPE_BF16 && dtype != OCTET_DTYPE_F16)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "out_dtype",
                          "'%s' is no type of a result; expected float32, bfloat16 or float16",
                          octet_dtype_name(dtype));
    enum octet_status status = oct_config_make(options->rule, options->weight_operand,
                                               options->cotangent != NULL, &op->config, err);
    if (status != OCTET_OK)
        return status;
    out->is_quantized = op->config.is_quantized;
    if (options->rule && !op->config.is_quantized)
        out->note = "the rule has no weight_qtype, so nothing is quantized, whatever else it says "
                    "(as in Qwix)";
    if (!record) {
        op->scratch = octet_arena_create_within(compute->arena);
        if (!op->scratch)
            return octet_arena_exhausted(compute->arena, err);
        op->work.arena = op->scratch;
    }
    return OCTET_OK;
}

enum octet_status oct_op_result(const struct oct_op *op, const struct octet_array *to,
                                enum octet_dtype dtype, int32_t rank, const int64_t *dim,
                                struct octet_array *out, struct octet_error *err)
{
    if (!to->data)
        return octet_array_create(op->compute->arena, dtype, rank, dim, out, err);
    *out = *to;
    return OCTET_OK;
}

void oct_op_end(struct oct_op *op)
{
    octet_arena_destroy(op->scratch);
}

/* ---- operands ---- */

enum octet_status oct_side_check(struct oct_side *side, const char *name,
                                 const struct octet_operand *given, struct octet_error *err)
{
    enum octet_dtype dtype = given->array.dtype;
    char field[32];

    *side = (struct oct_side){.name = name, .given = given};
    side->value = (struct oct_value){
        .is_quantized = given->is_quantized, .array = given->array, .quantized = given->quantized};
    if (given->is_quantized) {
        enum octet_status status = oct_quantized_check(&given->quantized, err);
        if (status != OCTET_OK) {
            octet_error_within(err, "quantized");
            octet_error_within(err, name);
        }
        return status;
    }
    side->original = given->array;
    snprintf(field, sizeof field, "%s.shape", name);
    if (oct_shape_check(&given->array, field, err) != OCTET_OK)
        return OCTET_INVALID_ARGUMENT;
    if (dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16)
        return OCTET_OK;
    snprintf(field, sizeof field, "%s.dtype", name);
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, field,
        "'%s' cannot be multiplied as it is; expected float32 or bfloat16, or codes with "
        "their scale as a quantized operand",
        octet_dtype_name(dtype));
}

enum octet_status oct_value_quantize(struct oct_op *op, const struct oct_source *source,
                                     const struct oct_setting *setting, struct oct_how *how,
                                     const char *tile_field, struct oct_stats *stats,
                                     struct octet_array *written, struct oct_value *out,
                                     struct octet_error *err)
{
    struct oct_calibration calibration;
    struct octet_array numbers;
    enum octet_status status;

    how->qtype = setting->qtype;
    how->method = setting->method;
    if (setting->disable_channelwise_axes)
        how->channelwise = 0;
    *out = (struct oct_value){.is_quantized = true};
    status = oct_quantize(&op->work, source, how, tile_field, &calibration, &out->quantized, err);
    bool is_told = stats && op->options->numerics, is_kept = written && op->record != &op->unused;
    if (status == OCTET_OK && (is_told || is_kept))
        status = oct_source_array(&op->work, source, &numbers, err);
    if (status == OCTET_OK && is_told)
        status =
            oct_stats_add(&op->work, &numbers, &out->quantized, how->qtype->largest, stats, err);
    if (status == OCTET_OK && is_kept)
        *written = numbers;
    return status;
}

static enum octet_status mean_axes(const struct oct_config *config, int32_t rank, uint32_t *axes,
                                   struct octet_error *err)
{
    for (size_t i = 0; i < config->act_batch_axis_count; i++) {
        int32_t axis = config->act_batch_axes[i];
        axis += axis < 0 ? rank : 0;
        if (axis < 0 || axis >= rank)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.act_batch_axes",
                              "axis %d is not one of an operand of rank %d",
                              config->act_batch_axes[i], rank);
        *axes |= 1u << axis;
    }
    return OCTET_OK;
}

/* The rest of `how`: what the setting says. */
static enum octet_status complete(const struct oct_op *op, const struct oct_side *side,
                                  const struct oct_setting *setting, struct oct_how *how,
                                  struct octet_error *err)
{
    how->qtype = setting->qtype;
    how->method = setting->method;
    if (setting->disable_channelwise_axes)
        how->channelwise = 0;
    return setting->is_static ? mean_axes(&op->config, side->original.rank, &how->mean_axes, err)
                              : OCTET_OK;
}

enum octet_status oct_side_foresee(const struct oct_op *op, struct oct_side *side,
                                   const struct oct_setting *setting, struct oct_how *how,
                                   const char *tile_field, struct octet_error *err)
{
    struct octet_quantized *q = &side->value.quantized;
    struct oct_calibration *c = &side->calibration;

    if (side->given->is_quantized || !setting->qtype)
        return OCTET_OK;
    enum octet_status status = complete(op, side, setting, how, err);
    if (status == OCTET_OK)
        status = oct_calibration_shape(&side->original, how, tile_field, c, err);
    if (status != OCTET_OK)
        return status;
    side->is_calibrated = true;
    side->has_blocks = setting->qtype->block != 0;
    side->value = (struct oct_value){.is_quantized = true};
    q->qvalue = side->original;
    q->qvalue.dtype = setting->qtype->dtype;
    q->scale = (struct octet_array){.dtype = side->original.dtype, .rank = c->rank};
    memcpy(q->scale.dim, c->dim, sizeof c->dim);
    q->zero_point = q->scale;
    q->zero_point.dtype = setting->qtype->dtype;
    q->qvalue.data = q->scale.data = q->zero_point.data = NULL;
    return OCTET_OK;
}

enum octet_status oct_side_quantize(struct oct_op *op, struct oct_side *side,
                                    const struct oct_setting *setting, struct oct_how *how,
                                    const char *tile_field, struct octet_error *err)
{
    struct octet_quantized places = side->value.quantized;
    struct oct_source source = oct_source_of(&side->original);

    if (side->given->is_quantized || !setting->qtype)
        return OCTET_OK;
    enum octet_status status = complete(op, side, setting, how, err);
    if (status != OCTET_OK)
        return status;
    side->is_calibrated = true;
    side->has_blocks = setting->qtype->block != 0;
    side->value = (struct oct_value){.is_quantized = true, .quantized = places};
    return oct_quantize(&op->work, &source, how, tile_field, &side->calibration,
                        &side->value.quantized, err);
}

void *oct_keep_take(struct oct_keep *keep, size_t bytes)
{
    void *at = keep->at;

    bytes = (bytes + 63) / 64 * 64;
    assert(bytes <= (size_t)(keep->end - keep->at));
    keep->at += bytes;
    return at;
}

/* ---- residuals ---- */

/* Does the scale differ along an axis that forward contracts, or by tiles? */
static bool is_tiled(const struct oct_side *side)
{
    const struct octet_quantized *q = &side->value.quantized;

    for (int32_t i = 0; i < q->qvalue.rank; i++)
        if (q->scale.dim[i] != 1 &&
            (side->contracting >> i & 1 || q->scale.dim[i] != q->qvalue.dim[i]))
            return true;
    return false;
}

/* Backward does not contract the axis that forward did, so a scale that differs along it cannot be
 * moved onto g. A block-scaled type has such a scale, or an axis that is one block. */
bool oct_side_is_reusable(const struct oct_op *op, const struct oct_side *side)
{
    return op->config.is_quantized && !op->config.use_original_residuals && !side->has_blocks &&
           !is_tiled(side);
}

enum octet_status oct_side_residual(struct oct_op *op, struct oct_side *side, struct oct_value *out,
                                    struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    char field[64];

    *out = side->value;
    if (!side->value.is_quantized)
        return OCTET_OK;
    if (oct_side_is_reusable(op, side)) {
        if (!side->value.quantized.zero_point.data ||
            (!op->config.dlhs_grad.qtype && !op->config.drhs_grad.qtype))
            return OCTET_OK;
        snprintf(field, sizeof field, "%s.quantized.zero_point", side->name);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                          "a zero point cannot be used in a quantized backward pass");
    }
    if (!side->original.data) /* it came quantized: what it stands for is all there is */
        status = oct_dequantize(&op->work, &side->value.quantized, &side->original, err);
    *out = (struct oct_value){.array = side->original};
    return status;
}

enum octet_status oct_cotangent(struct oct_op *op, const struct octet_array *out,
                                struct octet_array *g, struct octet_error *err)
{
    const struct octet_array *given = op->options->cotangent;
    char a[160], b[160];

    if (given->dtype != OCTET_DTYPE_F32 && given->dtype != OCTET_DTYPE_BF16)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "cotangent.dtype",
                          "'%s' is no type of a gradient; expected float32 or bfloat16",
                          octet_dtype_name(given->dtype));
    if (given->rank != out->rank ||
        (out->rank && memcmp(given->dim, out->dim, (size_t)out->rank * sizeof *out->dim) != 0))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "cotangent.shape",
                          "%s is not the result's %s", octet_array_shape_text(given, a, sizeof a),
                          octet_array_shape_text(out, b, sizeof b));
    return oct_array_cast(&op->work, given, out->dtype, g, err);
}

bool oct_side_masks(const struct oct_op *op, const struct oct_side *side)
{
    return side->is_calibrated && side->calibration.clips && !op->config.disable_gradient_clipping;
}

enum octet_status oct_side_mask(struct oct_op *op, const struct oct_side *side,
                                struct octet_array *gradient, struct octet_error *err)
{
    if (!oct_side_masks(op, side))
        return OCTET_OK;
    return oct_mask_gradient(&op->work, &side->original, &side->calibration, gradient, err);
}

/* ---- figures ---- */

static enum octet_status side_stats(struct oct_op *op, const struct oct_side *side,
                                    struct octet_operand_stats *out, struct octet_error *err)
{
    struct oct_stats stats = {0};
    enum octet_status status;

    if (side->given->is_quantized) { /* nothing to compare with: its values and scales are told */
        struct octet_quantized plain = side->value.quantized;
        struct octet_array values;
        status = oct_unpack(&op->work, &plain, err);
        if (status == OCTET_OK)
            status = oct_dequantize(&op->work, &plain, &values, err);
        if (status == OCTET_OK)
            status = oct_stats_add(&op->work, &values, &plain, 0, &stats, err);
    } else {
        /* What came, and not what a sparsity mask left of it: that is a loss too. */
        status = oct_stats_add(&op->work, &side->given->array,
                               side->value.is_quantized ? &side->value.quantized : NULL,
                               side->is_calibrated ? side->calibration.largest : 0, &stats, err);
    }
    oct_stats_finish(&stats, out);
    return status;
}

static void write_digest(const struct octet_array *out, char digest[33])
{
    XXH128_hash_t hash = XXH3_128bits(out->data, (size_t)octet_array_bytes(out));

    snprintf(digest, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
}

enum octet_status oct_op_forward_figures(struct oct_op *op, const struct oct_side *lhs,
                                         const struct oct_side *rhs, struct octet_error *err)
{
    struct octet_product *out = op->out;

    if (!op->options->numerics)
        return OCTET_OK;
    enum octet_status status = side_stats(op, lhs, &out->lhs, err);
    if (status == OCTET_OK)
        status = side_stats(op, rhs, &out->rhs, err);
    write_digest(&out->out, out->digest);
    return status;
}

enum octet_status oct_op_backward_figures(struct oct_op *op, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (!op->options->cotangent || !op->options->numerics)
        return OCTET_OK;
    if (!op->cotangent_stats.figures.is_quantized)
        status =
            oct_stats_add(&op->work, op->options->cotangent, NULL, 0, &op->cotangent_stats, err);
    oct_stats_finish(&op->cotangent_stats, &op->out->cotangent);
    return status;
}

enum octet_status oct_op_finish(struct oct_op *op, const struct oct_side *lhs,
                                const struct oct_side *rhs, struct octet_error *err)
{
    struct octet_product *out = op->out;
    enum octet_status status = OCTET_OK;

    if (op->options->out_dtype)
        status = oct_array_cast(op->compute, &out->out, op->options->out_dtype, &out->out, err);
    if (status == OCTET_OK)
        status = oct_op_forward_figures(op, lhs, rhs, err);
    return status == OCTET_OK ? oct_op_backward_figures(op, err) : status;
}
