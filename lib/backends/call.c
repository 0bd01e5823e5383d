/* See call.h. */
#include "backends/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "rules/fields.h"

static bool is_grouped(const struct oct_call *call)
{
    return call->pass.matmul->kind != OCT_MATMUL_DOT;
}

/* ---- what is taken ---- */

static enum octet_status untaken(const struct octet_capabilities *c, const char *field,
                                 const char *value, struct octet_error *err)
{
    return octet_fail(err, OCTET_UNIMPLEMENTED, field,
                      "'%s' is not supported on %s; the CPU does it", value, c->name);
}

enum octet_status oct_how_check(const struct octet_capabilities *c, const struct oct_qtype *qtype,
                                const char *method, const char *qtype_field,
                                const char *method_field, struct octet_error *err)
{
    double numbers[2];
    enum oct_method kind;

    if (qtype->block || qtype->scale_rule != OCT_SCALE_PLAIN ||
        !(c->code_dtypes >> qtype->dtype & 1))
        return untaken(c, qtype_field, qtype->name, err);
    oct_method_numbers(method, &kind, numbers);
    if (kind == OCT_METHOD_RMS || (kind == OCT_METHOD_FIXED && !c->fixed) ||
        (!oct_method_is_symmetric(method) && !c->zero_points))
        return untaken(c, method_field, method, err);
    return OCTET_OK;
}

static enum octet_status check_setting(const struct octet_capabilities *c,
                                       const struct oct_setting *s, const char *qtype_field,
                                       const char *method_field, struct octet_error *err)
{
    if (!s->qtype)
        return OCTET_OK;
    if (s->is_static && !c->static_scale)
        return untaken(c, "rule.act_static_scale", "true", err);
    return oct_how_check(c, s->qtype, s->method, qtype_field, method_field, err);
}

static enum octet_status check_settings(const struct octet_capabilities *c,
                                        const struct oct_call *call, struct octet_error *err)
{
    const struct oct_config *config = &call->pass.op.config;
    bool lhs_is_weight = call->options.weight_operand == OCTET_WEIGHT_LHS;
    bool rhs_is_weight = call->options.weight_operand == OCTET_WEIGHT_RHS;
    const struct {
        const struct oct_setting *setting;
        const char *qtype_field, *method_field;
        bool counts;
    } all[] = {
        {&config->lhs, lhs_is_weight ? "rule.weight_qtype" : "rule.act_qtype",
         lhs_is_weight ? "rule.weight_calibration_method" : "rule.act_calibration_method", true},
        {&config->rhs, rhs_is_weight ? "rule.weight_qtype" : "rule.act_qtype",
         rhs_is_weight ? "rule.weight_calibration_method" : "rule.act_calibration_method", true},
        {&config->dlhs_grad, "rule.bwd_qtype", "rule.bwd_calibration_method",
         call->pass.matmul->has_backward},
        {&config->drhs_grad, "rule.bwd_qtype", "rule.bwd_calibration_method",
         call->pass.matmul->has_backward},
        {&config->dlhs_residual, "rule.additional_qt_config", "rule.additional_qt_config",
         call->pass.matmul->has_backward},
        {&config->drhs_residual, "rule.additional_qt_config", "rule.additional_qt_config",
         call->pass.matmul->has_backward},
    };
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all && status == OCTET_OK; i++)
        if (all[i].counts)
            status = check_setting(c, all[i].setting, all[i].qtype_field, all[i].method_field, err);
    return status;
}

static enum octet_status check_given(const struct octet_capabilities *c,
                                     const struct oct_side *side, struct octet_error *err)
{
    const struct octet_quantized *q = &side->given->quantized;
    char field[64];

    if (!side->given->is_quantized)
        return OCTET_OK;
    if (!(c->code_dtypes >> q->qvalue.dtype & 1)) {
        snprintf(field, sizeof field, "%s.quantized.qvalue.dtype", side->name);
        return untaken(c, field, octet_dtype_name(q->qvalue.dtype), err);
    }
    if (!(c->number_dtypes >> q->scale.dtype & 1)) {
        snprintf(field, sizeof field, "%s.quantized.scale.dtype", side->name);
        return untaken(c, field, octet_dtype_name(q->scale.dtype), err);
    }
    snprintf(field, sizeof field, "%s.quantized.zero_point", side->name);
    return q->zero_point.data && !c->zero_points ? untaken(c, field, "a zero point", err)
                                                 : OCTET_OK;
}

static enum octet_status check_taken(const struct oct_call *call, struct octet_error *err)
{
    const struct octet_capabilities *c = &call->work.backend->facts.capabilities;
    const struct oct_config *config = &call->pass.op.config;
    const char *tiles[] = {config->tile_size, config->dlhs_tile_size, config->drhs_tile_size};
    const char *fields[] = {"rule.tile_size", "rule.bwd_weight_grad_tile_size",
                            "rule.bwd_weight_grad_tile_size"};
    enum octet_status status = check_settings(c, call, err);

    for (int i = 0; i < 3 && status == OCTET_OK; i++)
        if (tiles[i][0] && !c->tiles)
            status = untaken(c, fields[i], tiles[i], err);
    if (status == OCTET_OK && config->sparsity.m && !c->sparsity)
        status = octet_fail(err, OCTET_UNIMPLEMENTED, "rule.sparsity",
                            "%d:%d is not supported on %s; the CPU does it", config->sparsity.n,
                            config->sparsity.m, c->name);
    if (status == OCTET_OK)
        status = check_given(c, &call->pass.lhs, err);
    return status == OCTET_OK ? check_given(c, &call->pass.rhs, err) : status;
}

/* ---- begin, end ---- */

/* Of all that shapes tell. foresee: what each side's quantization will be. */
static enum octet_status begin_pass(struct oct_call *call, const struct octet_array *group_sizes,
                                    struct octet_error *err)
{
    struct oct_pass *pass = &call->pass;
    struct oct_op *op = &pass->op;
    const struct oct_matmul *matmul = pass->matmul;
    enum octet_status status = oct_config_make(call->options.rule, call->options.weight_operand,
                                               matmul->has_backward, &op->config, err);

    if (matmul->step < op->config.sparsity.start_step)
        op->config.sparsity = (struct octet_sparsity){0};
    if (status == OCTET_OK)
        status = oct_side_check(&pass->lhs, "lhs", &call->lhs_given, err);
    if (status == OCTET_OK)
        status = oct_side_check(&pass->rhs, "rhs", &call->rhs_given, err);
    if (status == OCTET_OK)
        status = check_taken(call, err);
    if (status == OCTET_OK)
        status = is_grouped(call) ? oct_grouped_shapes(pass, err) : oct_dot_shapes(pass, err);
    if (status == OCTET_OK && is_grouped(call))
        status = oct_grouped_sizes(pass, group_sizes, err);
    for (int is_lhs = 1; is_lhs >= 0 && status == OCTET_OK; is_lhs--)
        status = is_grouped(call) ? oct_grouped_quantize(pass, is_lhs, true, err)
                                  : oct_dot_quantize(pass, is_lhs, true, err);
    return status;
}

enum octet_status oct_call_begin(struct oct_call *call, const struct oct_backend_product *product,
                                 const struct octet_operand *lhs, const struct octet_operand *rhs,
                                 const struct octet_array *group_sizes,
                                 const struct octet_array *cotangent, struct octet_error *err)
{
    const struct oct_matmul *matmul = product->matmul;
    struct oct_op *op = &call->pass.op;
    enum octet_status status;

    *call = (struct oct_call){.lhs_given = *lhs, .rhs_given = *rhs, .pass.matmul = matmul};
    call->lhs = (struct oct_device_side){.key = product->lhs, .saved_form = OCT_FORM_SAVED_LHS};
    call->rhs = (struct oct_device_side){.key = product->rhs, .saved_form = OCT_FORM_SAVED_RHS};
    call->options = (struct octet_product_options){.rule = matmul->rule,
                                                   .weight_operand = matmul->weight_operand,
                                                   .qwix_compatible = matmul->qwix_compatible,
                                                   .numerics = matmul->numerics,
                                                   .accumulation = product->accumulation,
                                                   .cotangent = cotangent};
    status = oct_work_begin(&call->work, product->residence, product->compute, err);
    if (status != OCTET_OK)
        return status;
    if (is_grouped(call))
        status = oct_grouped_settings(matmul->kind, &call->plain, &call->options, err);
    *op = (struct oct_op){.compute = &call->work.compute,
                          .work = call->work.compute,
                          .options = &call->options,
                          .out = &call->out,
                          .record = &op->unused};
    if (status == OCTET_OK)
        status = begin_pass(call, group_sizes, err);
    if (status != OCTET_OK)
        oct_call_end(call);
    return status;
}

void oct_call_end(struct oct_call *call)
{
    oct_work_end(&call->work);
}

/* ---- sides ---- */

/* What a side's codes depend on beside its numbers. The highest bit keeps it apart from OCT_FORM_.
 */
static uint64_t form_of(const struct oct_side *side, const struct oct_setting *setting)
{
    char text[512];
    int at = snprintf(text, sizeof text, "%s %s %d", setting->qtype->name, setting->method,
                      (int)side->original.dtype);

    for (int32_t i = 0; i < side->original.rank; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRId64 "/%" PRId64,
                       side->original.dim[i], side->calibration.dim[i]);
    return XXH3_64bits(text, (size_t)at) | (uint64_t)1 << 63;
}

enum octet_status oct_call_numbers(struct oct_call *call, bool is_lhs, struct oct_device_array *out,
                                   struct octet_error *err)
{
    struct oct_side *given = is_lhs ? &call->pass.lhs : &call->pass.rhs;
    struct oct_device_side *side = is_lhs ? &call->lhs : &call->rhs;
    enum octet_status status = OCTET_OK;

    if (!side->numbers.data && given->given->is_quantized) /* what it stands for */
        status = oct_device_dequantize(&call->work, &side->value, &side->numbers, err);
    else if (!side->numbers.data)
        status = oct_device_numbers(&call->work, side->key, &given->original, &side->numbers, err);
    *out = side->numbers;
    return status;
}

static enum octet_status quantize_side(struct oct_call *call, bool is_lhs, struct octet_error *err)
{
    struct oct_side *given = is_lhs ? &call->pass.lhs : &call->pass.rhs;
    struct oct_device_side *side = is_lhs ? &call->lhs : &call->rhs;
    const struct oct_setting *setting =
        is_lhs ? &call->pass.op.config.lhs : &call->pass.op.config.rhs;
    struct oct_device_array x;

    if (given->given->is_quantized)
        return oct_device_given(&call->work, side->key, &given->given->quantized, &side->value,
                                err);
    if (!given->is_calibrated)
        return oct_call_numbers(call, is_lhs, &side->value, err);
    uint64_t form = form_of(given, setting);
    if (oct_work_find(&call->work, side->key, form, &side->value))
        return OCTET_OK;
    enum octet_status status = oct_call_numbers(call, is_lhs, &x, err);
    if (status == OCTET_OK)
        status = oct_device_quantize(&call->work, &x, setting->qtype, setting->method,
                                     &given->calibration, &side->value, err);
    return status == OCTET_OK
               ? oct_work_keep(&call->work, side->key, form, &side->value, false, err)
               : status;
}

enum octet_status oct_call_quantize(struct oct_call *call, struct octet_error *err)
{
    enum octet_status status = quantize_side(call, true, err);

    return status == OCTET_OK ? quantize_side(call, false, err) : status;
}

/* ---- between the passes ---- */

static bool keeps_codes(const struct oct_call *call, bool is_lhs)
{
    const struct oct_side *side = is_lhs ? &call->pass.lhs : &call->pass.rhs;

    if (!side->is_calibrated)
        return false;
    return is_grouped(call) ? oct_grouped_is_reusable(&call->pass, is_lhs)
                            : oct_side_is_reusable(&call->pass.op, side);
}

static bool keeps_bounds(const struct oct_call *call, bool is_lhs)
{
    return !is_grouped(call) &&
           oct_side_masks(&call->pass.op, is_lhs ? &call->pass.lhs : &call->pass.rhs);
}

enum octet_status oct_call_save(struct oct_call *call, uint64_t saved, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (int is_lhs = 0; is_lhs < 2 && status == OCTET_OK; is_lhs++) {
        const struct oct_device_side *side = is_lhs ? &call->lhs : &call->rhs;
        struct oct_device_array array = side->value;
        bool codes = keeps_codes(call, is_lhs), bounds = keeps_bounds(call, is_lhs);
        if (!codes && !bounds)
            continue;
        if (!codes)
            array.data = array.scales = NULL;
        if (!bounds)
            array.upper = array.lower = NULL;
        status = oct_work_keep(&call->work, saved, side->saved_form, &array, true, err);
    }
    return status;
}

enum octet_status oct_call_load(struct oct_call *call, uint64_t saved, struct octet_error *err)
{
    for (int is_lhs = 0; is_lhs < 2; is_lhs++) {
        struct oct_device_side *side = is_lhs ? &call->lhs : &call->rhs;
        if (!keeps_codes(call, is_lhs) && !keeps_bounds(call, is_lhs))
            continue;
        if (!oct_work_find(&call->work, saved, side->saved_form, &side->value))
            return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                              "forward left nothing of %s on %s for this backward",
                              is_lhs ? "lhs" : "rhs", call->work.backend->facts.name);
    }
    return OCTET_OK;
}

/* ---- gradients ---- */

enum octet_status oct_call_cotangent(struct oct_call *call, struct octet_error *err)
{
    const struct octet_array *given = call->options.cotangent, *out = &call->out.out;
    struct oct_device_array x;
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
    enum octet_status status = oct_device_numbers(&call->work, 0, given, &x, err);
    return status == OCTET_OK ? oct_device_cast(&call->work, &x, out->dtype, &call->cotangent, err)
                              : status;
}

/* From what the device made: its input and its codes. */
static enum octet_status add_stats(struct oct_call *call, const struct oct_device_array *x,
                                   const struct oct_qtype *qtype,
                                   const struct oct_device_array *codes, struct octet_error *err)
{
    struct oct_op *op = &call->pass.op;
    struct octet_array numbers = x->array;
    struct octet_quantized q;
    enum octet_status status = oct_array_like(&op->work, &x->array, x->array.dtype, &numbers, err);

    if (status == OCTET_OK)
        status = oct_work_download(&call->work, x->data, numbers.data,
                                   (size_t)octet_array_bytes(&numbers), err);
    if (status == OCTET_OK)
        status = oct_device_fetch(&call->work, &op->work, codes, &q, err);
    return status == OCTET_OK
               ? oct_stats_add(&op->work, &numbers, &q, qtype->largest, &op->cotangent_stats, err)
               : status;
}

enum octet_status oct_call_quantize_value(struct oct_call *call, const struct oct_device_array *x,
                                          const struct oct_setting *setting, struct oct_how *how,
                                          const char *tile_field, bool is_cotangent,
                                          struct oct_device_array *out, struct octet_error *err)
{
    struct oct_calibration calibration;

    how->qtype = setting->qtype;
    how->method = setting->method;
    if (setting->disable_channelwise_axes)
        how->channelwise = 0;
    enum octet_status status = oct_calibration_shape(&x->array, how, tile_field, &calibration, err);
    if (status == OCTET_OK)
        status = oct_device_quantize(&call->work, x, setting->qtype, setting->method, &calibration,
                                     out, err);
    if (status == OCTET_OK && is_cotangent && call->options.numerics)
        status = add_stats(call, x, setting->qtype, out, err);
    return status;
}

/* ---- figures ---- */

enum octet_status oct_call_figures(struct oct_call *call, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (!call->options.numerics)
        return OCTET_OK;
    for (int is_lhs = 0; is_lhs < 2 && status == OCTET_OK; is_lhs++) {
        struct oct_side *side = is_lhs ? &call->pass.lhs : &call->pass.rhs;
        if (side->is_calibrated)
            status = oct_device_fetch(&call->work, &call->work.compute,
                                      is_lhs ? &call->lhs.value : &call->rhs.value,
                                      &side->value.quantized, err);
    }
    return status == OCTET_OK
               ? oct_op_forward_figures(&call->pass.op, &call->pass.lhs, &call->pass.rhs, err)
               : status;
}
