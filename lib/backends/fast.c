/* See fast.h.
 *
 * A library wants k innermost in both operands. Where an operand lies the other way, as weights
 * [k,n] do, a kernel turns its codes: a pass over one byte an element, of which a product of m rows
 * makes 2 m operations. */
#include "backends/fast.h"

#include "backends/product_plan.h"

/* An operand as the library takes it. */
struct operand {
    const struct oct_device_array *value;
    const int32_t *contracting, *batch;
    int32_t contracting_count, batch_count;
    int64_t batches, rows, k;
    bool is_turned; /* k before the free axes */
};

/* Are these axes first, first + 1, ... ? */
static bool in_a_row(const int32_t *axes, int32_t count, int32_t first)
{
    for (int32_t i = 0; i < count; i++)
        if (axes[i] != first + i)
            return false;
    return true;
}

/* Sizes and layout; false: another one. */
static bool lay_out(struct operand *x)
{
    const struct octet_array *array = &x->value->array;
    int32_t last = array->rank - x->contracting_count, first = x->batch_count;

    if (!in_a_row(x->batch, x->batch_count, 0))
        return false;
    if (in_a_row(x->contracting, x->contracting_count, last))
        x->is_turned = false;
    else if (in_a_row(x->contracting, x->contracting_count, first))
        x->is_turned = true;
    else
        return false;
    int32_t k_from = x->is_turned ? first : last;
    x->batches = x->rows = x->k = 1;
    for (int32_t i = 0; i < array->rank; i++) {
        bool is_k = i >= k_from && i < k_from + x->contracting_count;
        *(i < x->batch_count ? &x->batches : is_k ? &x->k : &x->rows) *= array->dim[i];
    }
    return true;
}

/* How many scales: 0, 1, or one for each row; -1: another way of having them. */
static int64_t scales_of(const struct operand *x)
{
    const struct oct_device_array *value = x->value;
    int64_t count = 1, every = x->batches * x->rows;

    if (!value->is_quantized)
        return 0;
    for (int32_t i = 0; i < value->scale.rank; i++)
        count *= value->scale.dim[i];
    for (int32_t i = 0; i < x->contracting_count; i++)
        if (value->scale.dim[x->contracting[i]] != 1)
            return -1;
    return count == 1 || count == every ? count : -1;
}

static bool is_taken(enum octet_dtype dtype, bool is_quantized)
{
    return is_quantized ? dtype == OCTET_DTYPE_F8_E4M3FN || dtype == OCTET_DTYPE_F8_E5M2
                        : dtype == OCTET_DTYPE_BF16;
}

/* The operand's codes with k innermost. */
static enum octet_status turn(struct oct_work *work, const struct operand *x,
                              oct_device_buffer *out, struct octet_error *err)
{
    enum { SIDE = 32, ITEMS = 256 };
    size_t bytes = octet_dtype_bytes(x->value->array.dtype);
    int64_t tiles = ((x->k + SIDE - 1) / SIDE) * ((x->rows + SIDE - 1) / SIDE) * x->batches;
    struct oct_device_grid grid = {{(size_t)tiles, 1}, {ITEMS, 1}};
    struct oct_block *turned;

    *out = x->value->data->buffer;
    if (!x->is_turned)
        return OCTET_OK;
    enum octet_status status =
        oct_work_block(work, (size_t)(x->batches * x->rows * x->k) * bytes, &turned, err);
    if (status != OCTET_OK)
        return status;
    struct oct_device_argument arguments[] = {
        {OCT_ARGUMENT_BUFFER, .buffer = *out},
        {OCT_ARGUMENT_INTEGER, .integer = x->k},
        {OCT_ARGUMENT_INTEGER, .integer = x->rows},
        {OCT_ARGUMENT_INTEGER, .integer = (int64_t)bytes},
        {OCT_ARGUMENT_BUFFER, .buffer = turned->buffer},
    };
    *out = turned->buffer;
    return oct_work_launch(work, OCT_KERNEL_turn, &grid, arguments, 5, err);
}

/* What is known without the library: types, layouts, scales, the result's order of axes. */
static bool describe(const struct oct_device_dot *dot, enum octet_dtype rounding,
                     const struct oct_device_array *out, struct operand *lhs, struct operand *rhs,
                     struct oct_fast_product *product)
{
    *lhs = (struct operand){.value = dot->lhs,
                            .contracting = dot->dims.lhs_contracting,
                            .batch = dot->dims.lhs_batch,
                            .contracting_count = dot->dims.contracting_count,
                            .batch_count = dot->dims.batch_count};
    *rhs = (struct operand){.value = dot->rhs,
                            .contracting = dot->dims.rhs_contracting,
                            .batch = dot->dims.rhs_batch,
                            .contracting_count = dot->dims.contracting_count,
                            .batch_count = dot->dims.batch_count};
    if (!is_taken(dot->lhs->array.dtype, dot->lhs->is_quantized) ||
        !is_taken(dot->rhs->array.dtype, dot->rhs->is_quantized) || !lay_out(lhs) ||
        !lay_out(rhs) || !in_a_row(dot->result_axes, out->array.rank, 0) ||
        out->array.dtype != rounding || (dot->result_dtype && dot->result_dtype != rounding))
        return false;
    *product = (struct oct_fast_product){.lhs_dtype = dot->lhs->array.dtype,
                                         .rhs_dtype = dot->rhs->array.dtype,
                                         .out_dtype = rounding,
                                         .batch = lhs->batches,
                                         .m = lhs->rows,
                                         .n = rhs->rows,
                                         .k = lhs->k,
                                         .out = out->data->buffer,
                                         .lhs_scales = scales_of(lhs),
                                         .rhs_scales = scales_of(rhs)};
    if (dot->lhs->is_quantized)
        product->lhs_scale = dot->lhs->scales->buffer;
    if (dot->rhs->is_quantized)
        product->rhs_scale = dot->rhs->scales->buffer;
    return product->lhs_scales >= 0 && product->rhs_scales >= 0;
}

enum octet_status oct_fast_dot(struct oct_work *work, const struct oct_device_dot *dot,
                               enum octet_dtype rounding, const struct oct_device_array *out,
                               bool *done, struct octet_error *err)
{
    const struct oct_driver *driver = work->backend->driver;
    struct oct_fast_product product;
    struct operand lhs, rhs;

    *done = false;
    if (!driver->fast_product || !describe(dot, rounding, out, &lhs, &rhs, &product))
        return OCTET_OK;
    enum octet_status status = turn(work, &lhs, &product.lhs, err);
    if (status == OCTET_OK)
        status = turn(work, &rhs, &product.rhs, err);
    if (status != OCTET_OK)
        return status;
    work->is_busy = true;
    status = driver->fast_product(work->residence->queue, &product, err);
    *done = status == OCTET_OK;
    work->is_fast |= *done;
    return status == OCTET_UNIMPLEMENTED ? OCTET_OK : status;
}
