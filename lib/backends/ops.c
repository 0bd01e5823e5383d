/* The ops of backend.h: for models, forward and backward apart, and the public functions. */
#include <string.h>

#include "backends/call.h"
#include "base/float_env.h"

/* ---- one pass ---- */

static enum octet_status run_forward(struct oct_call *call, struct oct_device_array *out,
                                     struct octet_error *err)
{
    enum octet_status status = oct_call_quantize(call, err);

    if (status != OCTET_OK)
        return status;
    return call->pass.matmul->kind == OCT_MATMUL_DOT ? oct_device_dot_forward(call, out, err)
                                                     : oct_device_grouped_forward(call, out, err);
}

static enum octet_status gradient_of(struct oct_call *call, bool for_lhs, enum octet_dtype dtype,
                                     struct oct_device_array *out, struct octet_error *err)
{
    return call->pass.matmul->kind == OCT_MATMUL_DOT
               ? oct_device_dot_gradient(call, for_lhs, dtype, out, err)
               : oct_device_grouped_gradient(call, for_lhs, dtype, out, err);
}

static enum octet_status download(struct oct_call *call, const struct oct_device_array *from,
                                  const struct octet_array *to, struct octet_error *err)
{
    return oct_work_download(&call->work, from->data, to->data, (size_t)octet_array_bytes(to), err);
}

static enum octet_status forward(struct oct_call *call, const struct oct_backend_product *product,
                                 const struct octet_array *out, struct octet_error *err)
{
    struct oct_device_array result;
    enum octet_status status;

    call->pass.op.to_out = *out;
    status = run_forward(call, &result, err);
    if (status == OCTET_OK && product->saved)
        status = oct_call_save(call, product->saved, err);
    if (status == OCTET_OK)
        status = download(call, &result, out, err);
    call->out.out = *out;
    return status == OCTET_OK ? oct_call_figures(call, err) : status;
}

enum octet_status oct_backend_forward(const struct oct_backend_product *product,
                                      const struct octet_operand *lhs,
                                      const struct octet_operand *rhs,
                                      const struct octet_array *group_sizes,
                                      const struct octet_array *out,
                                      struct oct_pass_figures *figures, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct oct_call call;
    enum octet_status status = oct_call_begin(&call, product, lhs, rhs, group_sizes, NULL, err);

    if (status == OCTET_OK) {
        status = forward(&call, product, out, err);
        if (figures)
            figures->is_fast = call.work.is_fast;
        if (status == OCTET_OK && figures && product->matmul->numerics) {
            figures->lhs = call.out.lhs;
            figures->rhs = call.out.rhs;
            memcpy(figures->digest, call.out.digest, sizeof figures->digest);
        }
        oct_call_end(&call);
    }
    oct_float_env_leave(env);
    return status;
}

/* Gradients whose data is not NULL. Each comes to the host before the next is begun, so that its
 * memory serves again. */
static enum octet_status backward(struct oct_call *call, const struct octet_array *lhs_grad,
                                  const struct octet_array *rhs_grad, struct octet_error *err)
{
    const struct octet_array *gradients[] = {rhs_grad, lhs_grad};
    enum octet_status status = oct_call_cotangent(call, err);

    for (int is_lhs = 1; is_lhs >= 0 && status == OCTET_OK; is_lhs--) {
        const struct octet_array *to = gradients[is_lhs];
        struct oct_device_array gradient;
        if (!to->data)
            continue;
        status = gradient_of(call, is_lhs, to->dtype, &gradient, err);
        if (status == OCTET_OK)
            status = download(call, &gradient, to, err);
    }
    return status == OCTET_OK ? oct_op_backward_figures(&call->pass.op, err) : status;
}

enum octet_status oct_backend_backward(const struct oct_backend_product *product,
                                       const struct octet_array *lhs, const struct octet_array *rhs,
                                       const struct octet_array *group_sizes,
                                       const struct octet_array *cotangent,
                                       const struct octet_array *lhs_grad,
                                       const struct octet_array *rhs_grad,
                                       struct oct_pass_figures *figures, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct octet_operand l = {.array = *lhs}, r = {.array = *rhs};
    struct oct_call call;
    enum octet_status status = oct_call_begin(&call, product, &l, &r, group_sizes, cotangent, err);

    if (status == OCTET_OK) {
        call.out.out = *cotangent; /* the result that forward made: shape and dtype */
        call.out.out.dtype = oct_promote(lhs->dtype, rhs->dtype);
        status = oct_call_load(&call, product->saved, err);
        if (status == OCTET_OK)
            status = backward(&call, lhs_grad, rhs_grad, err);
        if (figures)
            figures->is_fast = call.work.is_fast;
        if (status == OCTET_OK && figures && product->matmul->numerics)
            figures->cotangent = call.out.cotangent;
        oct_call_end(&call);
    }
    oct_float_env_leave(env);
    return status;
}

/* ---- the public functions ---- */

static enum octet_status make_like(const struct octet_compute *compute,
                                   const struct octet_array *shape, struct octet_array *out,
                                   struct octet_error *err)
{
    return octet_array_create(compute->arena, shape->dtype, shape->rank, shape->dim, out, err);
}

/* A gradient, made and brought to the caller's arena. */
static enum octet_status bring_gradient(struct oct_call *call, const struct octet_compute *compute,
                                        bool for_lhs, struct octet_array *out,
                                        struct octet_error *err)
{
    struct oct_device_array gradient;
    enum octet_status status = gradient_of(call, for_lhs, OCTET_DTYPE_UNSPECIFIED, &gradient, err);

    if (status == OCTET_OK)
        status = make_like(compute, &gradient.array, out, err);
    return status == OCTET_OK ? download(call, &gradient, out, err) : status;
}

static enum octet_status both_passes(struct oct_call *call, const struct octet_compute *compute,
                                     struct octet_error *err)
{
    struct octet_product *out = &call->out;
    struct oct_device_array result;
    enum octet_status status = run_forward(call, &result, err);

    if (status == OCTET_OK)
        status = make_like(compute, &result.array, &out->out, err);
    if (status == OCTET_OK)
        status = download(call, &result, &out->out, err);
    if (status == OCTET_OK && call->options.cotangent)
        status = oct_call_cotangent(call, err);
    if (status == OCTET_OK && call->options.cotangent && !call->lhs_given.is_quantized)
        status = bring_gradient(call, compute, true, &out->lhs_grad, err);
    if (status == OCTET_OK && call->options.cotangent && !call->rhs_given.is_quantized)
        status = bring_gradient(call, compute, false, &out->rhs_grad, err);
    if (status == OCTET_OK && call->options.out_dtype)
        status = oct_array_cast(compute, &out->out, call->options.out_dtype, &out->out, err);
    if (status == OCTET_OK)
        status = oct_call_figures(call, err);
    return status == OCTET_OK ? oct_op_backward_figures(&call->pass.op, err) : status;
}

/* What the CPU's function checks and says before there are numbers. */
static enum octet_status begin_product(const struct octet_compute *compute,
                                       const struct oct_matmul *matmul,
                                       const struct octet_product_options *options,
                                       struct octet_product *out, struct octet_error *err)
{
    struct octet_product_options chosen = *options;
    struct octet_rule plain;
    struct oct_op op;
    enum octet_status status = OCTET_OK;

    if (matmul->kind != OCT_MATMUL_DOT)
        status = oct_grouped_settings(matmul->kind, &plain, &chosen, err);
    if (status != OCTET_OK)
        return status;
    status = oct_op_begin(&op, compute, &chosen, NULL, out, err);
    oct_op_end(&op);
    if (status == OCTET_OK && matmul->kind != OCT_MATMUL_DOT && options->rule && out->is_quantized)
        out->note = oct_grouped_note(options->rule, matmul->kind, options->qwix_compatible);
    return status;
}

static enum octet_status product(octet_backend *backend, const struct octet_compute *compute,
                                 struct oct_matmul *matmul, const struct octet_operand *lhs,
                                 const struct octet_operand *rhs,
                                 const struct octet_array *group_sizes,
                                 const struct octet_product_options *options,
                                 struct octet_product *out, struct octet_error *err)
{
    struct oct_backend_product product = {
        .compute = compute, .matmul = matmul, .accumulation = options->accumulation};
    struct oct_call call;
    enum octet_status status;

    matmul->rule = options->rule;
    matmul->weight_operand = options->weight_operand;
    matmul->qwix_compatible = options->qwix_compatible;
    matmul->has_backward = options->cotangent != NULL;
    matmul->numerics = options->numerics;
    status = begin_product(compute, matmul, options, out, err);
    if (status == OCTET_OK)
        status = oct_residence_create(backend, NULL, &product.residence, err);
    if (status != OCTET_OK)
        return status;
    status = oct_call_begin(&call, &product, lhs, rhs, group_sizes, options->cotangent, err);
    if (status == OCTET_OK) {
        call.options.out_dtype = options->out_dtype;
        call.out.is_quantized = out->is_quantized;
        call.out.note = out->note;
        status = both_passes(&call, compute, err);
        call.out.accumulation = call.work.is_fast ? OCTET_FAST : OCTET_EXACT_ORDER;
        *out = call.out;
        oct_call_end(&call);
    }
    oct_residence_destroy(product.residence);
    return status;
}

enum octet_status octet_backend_dot_general(
    octet_backend *backend, const struct octet_compute *compute, const struct octet_operand *lhs,
    const struct octet_operand *rhs, const struct octet_dot_dims *dims,
    const struct octet_product_options *options, struct octet_product *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct oct_matmul matmul = {.kind = OCT_MATMUL_DOT, .dims = *dims};
    enum octet_status status =
        product(backend, compute, &matmul, lhs, rhs, NULL, options, out, err);

    oct_float_env_leave(env);
    return status;
}

enum octet_status
octet_backend_ragged_dot(octet_backend *backend, const struct octet_compute *compute,
                         const struct octet_operand *lhs, const struct octet_operand *rhs,
                         const struct octet_array *group_sizes, bool transpose_rhs,
                         enum octet_grouped_op op, const struct octet_product_options *options,
                         struct octet_product *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    struct oct_matmul matmul = {.kind = op == OCTET_GMM ? OCT_MATMUL_GMM : OCT_MATMUL_RAGGED_DOT,
                                .transpose_rhs = transpose_rhs};
    enum octet_status status =
        product(backend, compute, &matmul, lhs, rhs, group_sizes, options, out, err);

    oct_float_env_leave(env);
    return status;
}

/* ---- quantize ---- */

static enum octet_status quantize(struct oct_work *work, const struct octet_compute *compute,
                                  const struct octet_array *array, const struct oct_how *how,
                                  enum octet_dtype scale_dtype, struct octet_quantized *out,
                                  struct octet_error *err)
{
    struct oct_calibration calibration;
    struct oct_device_array x, codes;
    enum octet_status status = oct_calibration_shape(array, how, "tiled_axes", &calibration, err);

    if (status == OCTET_OK)
        status = oct_device_numbers(work, 0, array, &x, err);
    if (status == OCTET_OK)
        status = oct_device_quantize(work, &x, how->qtype, how->method, &calibration, &codes, err);
    if (status != OCTET_OK)
        return status;
    codes.scale.dtype = scale_dtype ? scale_dtype : array->dtype;
    return oct_device_fetch(work, compute, &codes, out, err);
}

enum octet_status octet_backend_quantize(octet_backend *backend,
                                         const struct octet_compute *compute,
                                         const struct octet_array *array,
                                         const struct octet_quantize_options *options,
                                         struct octet_quantized *out, struct octet_error *err)
{
    struct oct_float_env env = oct_float_env_enter();
    oct_residence *residence = NULL;
    struct oct_work work;
    struct oct_how how;
    enum octet_status status = oct_quantize_how(compute, array, options, &how, err);

    if (status == OCTET_OK)
        status = oct_how_check(&backend->facts.capabilities, how.qtype, how.method, "qtype",
                               "calibration_method", err);
    if (status == OCTET_OK)
        status = oct_residence_create(backend, NULL, &residence, err);
    if (status == OCTET_OK) {
        status = oct_work_begin(&work, residence, compute, err);
        if (status == OCTET_OK) {
            status = quantize(&work, compute, array, &how, options->scale_dtype, out, err);
            oct_work_end(&work);
        }
        oct_residence_destroy(residence);
    }
    oct_float_env_leave(env);
    return status;
}
