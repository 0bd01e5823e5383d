/* See arrays.h. */
#include "backends/arrays.h"

#include <string.h>

#include "backends/kernels/plan.h"
#include "base/float_env.h"
#include "rules/fields.h"

#define SAME(device, dtype) _Static_assert((int)DEVICE_##device == (int)OCTET_DTYPE_##dtype, #dtype)
SAME(NONE, UNSPECIFIED);
SAME(F32, F32);
SAME(BF16, BF16);
SAME(E4M3FN, F8_E4M3FN);
SAME(E5M2, F8_E5M2);
SAME(E2M1FN, F4_E2M1FN);
SAME(S8, S8);
SAME(S4, S4);
#undef SAME

enum {
    ITEMS = 256,
    GROUPS_MAX = 1024,
    LATER_GROUPS_MAX = 65535,
    PIECE = 8192,
    ROWS = 64,
    SHORT = 16
};

/* ---- arguments ---- */

static struct oct_device_argument buffer(const struct oct_block *block)
{
    return (struct oct_device_argument){.kind = OCT_ARGUMENT_BUFFER,
                                        .buffer = block ? block->buffer : 0};
}

static struct oct_device_argument integer(int64_t value)
{
    return (struct oct_device_argument){.kind = OCT_ARGUMENT_INTEGER, .integer = value};
}

static struct oct_device_argument number(float value)
{
    return (struct oct_device_argument){.kind = OCT_ARGUMENT_NUMBER, .number = value};
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

static struct oct_device_grid line(int64_t n)
{
    int64_t groups = least(parts(n, ITEMS), GROUPS_MAX);

    return (struct oct_device_grid){{(size_t)groups, 1}, {ITEMS, 1}};
}

/* ---- layouts ---- */

struct layout {
    int64_t rows, length, step;
    struct oct_block *plan;
};

/* Axes cut into kept and reduced factors, the slowest first, and neighbours merged. */
static int32_t factors_of(const struct octet_array *shape, const int64_t *scale_dim,
                          const int64_t *scale_stride, int64_t *extent, int64_t *stride)
{
    int32_t count = 0;

    for (int32_t i = 0; i < shape->rank; i++) {
        int64_t e[] = {scale_dim[i], scale_dim[i] ? shape->dim[i] / scale_dim[i] : 1};
        int64_t s[] = {scale_stride[i], 0};
        for (int j = 0; j < 2; j++) {
            if (e[j] == 1)
                continue;
            if (count && stride[count - 1] == s[j] * e[j]) { /* of reduced ones 0 both */
                extent[count - 1] *= e[j];
                stride[count - 1] = s[j];
            } else {
                extent[count] = e[j];
                stride[count++] = s[j];
            }
        }
    }
    if (!count) {
        extent[count] = 1;
        stride[count++] = 0;
    }
    return count;
}

static enum octet_status make_layout(struct oct_work *work, const struct octet_array *shape,
                                     const int64_t *scale_dim, const int64_t *scale_stride,
                                     struct layout *out, struct octet_error *err)
{
    int64_t own[OCTET_ARRAY_RANK_MAX], stride[2 * OCTET_ARRAY_RANK_MAX];
    int64_t extent[2 * OCTET_ARRAY_RANK_MAX], plan[LAYOUT_FACTOR + 4 * OCTET_ARRAY_RANK_MAX];
    int64_t step = 1;

    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        own[i] = step;
        step *= scale_dim[i];
    }
    int32_t count =
        factors_of(shape, scale_dim, scale_stride ? scale_stride : own, extent, stride) - 1;
    out->length = extent[count];
    out->step = stride[count];
    out->rows = out->length ? octet_array_elements(shape) / out->length : 0;
    plan[LAYOUT_ROWS] = out->rows;
    plan[LAYOUT_LENGTH] = out->length;
    plan[LAYOUT_STEP] = out->step;
    plan[LAYOUT_FACTORS] = count;
    for (int32_t i = 0; i < count; i++) {
        plan[LAYOUT_FACTOR + 2 * i] = extent[i];
        plan[LAYOUT_FACTOR + 2 * i + 1] = stride[i];
    }
    return oct_work_plan(work, plan, (size_t)(LAYOUT_FACTOR + 2 * count), &out->plan, err);
}

/* Items along a row, and rows beside each other. Two forms, not more: some devices compile a kernel
 * for each form of a work-group. */
static struct oct_device_grid rows_grid(const struct layout *layout)
{
    int64_t along = layout->length > SHORT ? 64 : 4, beside = ITEMS / along;
    int64_t groups = least(parts(layout->length, 4 * along), GROUPS_MAX);
    int64_t later = least(parts(layout->rows, beside), LATER_GROUPS_MAX);

    return (struct oct_device_grid){{(size_t)groups, (size_t)later},
                                    {(size_t)along, (size_t)beside}};
}

/* ---- to the device ---- */

static struct octet_array bare(const struct octet_array *array)
{
    struct octet_array shape = *array;

    shape.data = NULL;
    return shape;
}

enum octet_status oct_device_numbers(struct oct_work *work, uint64_t key,
                                     const struct octet_array *array, struct oct_device_array *out,
                                     struct octet_error *err)
{
    if (oct_work_find(work, key, OCT_FORM_NUMBERS, out))
        return OCTET_OK;
    *out = (struct oct_device_array){.array = bare(array)};
    enum octet_status status =
        oct_work_upload(work, array->data, (size_t)octet_array_bytes(array), &out->data, err);
    return status == OCTET_OK ? oct_work_keep(work, key, OCT_FORM_NUMBERS, out, false, err)
                              : status;
}

enum octet_status oct_device_given(struct oct_work *work, uint64_t key,
                                   const struct octet_quantized *quantized,
                                   struct oct_device_array *out, struct octet_error *err)
{
    const float *scales;

    if (oct_work_find(work, key, OCT_FORM_GIVEN, out))
        return OCTET_OK;
    *out = (struct oct_device_array){
        .is_quantized = true, .array = bare(&quantized->qvalue), .scale = bare(&quantized->scale)};
    enum octet_status status = oct_scale_values(&work->compute, &quantized->scale, &scales, err);
    if (status == OCTET_OK)
        status = oct_work_upload(work, quantized->qvalue.data,
                                 (size_t)octet_array_bytes(&quantized->qvalue), &out->data, err);
    if (status == OCTET_OK)
        status =
            oct_work_upload(work, scales, (size_t)octet_array_elements(&out->scale) * sizeof(float),
                            &out->scales, err);
    return status == OCTET_OK ? oct_work_keep(work, key, OCT_FORM_GIVEN, out, false, err) : status;
}

/* ---- quantization ---- */

struct quantizing {
    const struct oct_device_array *x;
    const struct oct_qtype *qtype;
    enum oct_method method;
    int numbers;
    double number[2];
    struct layout layout;
    int64_t count; /* of scales */
    struct oct_block *inverse;
};

static enum octet_status find_amax(struct oct_work *work, const struct quantizing *q,
                                   struct oct_block **amax, struct octet_error *err)
{
    const struct layout *l = &q->layout;
    bool is_kept = l->step != 0;
    int64_t piece = is_kept ? ROWS : PIECE;
    enum octet_status status = oct_work_block(work, (size_t)q->count * sizeof(float), amax, err);

    if (status == OCTET_OK)
        status = oct_work_fill(work, *amax, (size_t)q->count * sizeof(float), err);
    if (status != OCTET_OK || !l->rows)
        return status;
    int64_t along = is_kept ? l->rows : l->length;
    while (parts(along, piece) > LATER_GROUPS_MAX)
        piece *= 2;
    int64_t groups = is_kept ? parts(l->length, ITEMS) : least(l->rows, 1 << 20);
    struct oct_device_grid grid = {{(size_t)groups, (size_t)parts(along, piece)}, {ITEMS, 1}};
    struct oct_device_argument arguments[] = {buffer(l->plan), buffer(q->x->data),
                                              integer(q->x->array.dtype), integer(piece),
                                              buffer(*amax)};
    return oct_work_launch(work, is_kept ? OCT_KERNEL_amax_columns : OCT_KERNEL_amax_rows, &grid,
                           arguments, 5, err);
}

static enum octet_status measured_scales(struct oct_work *work, struct quantizing *q,
                                         struct oct_device_array *out, struct octet_error *err)
{
    float factor = q->numbers ? oct_round_to(q->x->array.dtype, (float)q->number[0]) : 1;
    struct oct_block *amax;
    struct oct_device_grid grid = line(q->count);
    enum octet_status status = find_amax(work, q, &amax, err);

    if (status != OCTET_OK)
        return status;
    struct oct_device_argument arguments[] = {
        integer(q->count), integer(q->x->array.dtype), buffer(amax),
        number(factor),    number(q->qtype->bound),    number(1.0f / q->qtype->bound),
        integer(0),        buffer(out->scales),        buffer(q->inverse),
        buffer(out->upper)};
    return oct_work_launch(work, OCT_KERNEL_scales, &grid, arguments, 10, err);
}

/* A range that the rule fixes: [-a, a]. Its scale is a true quotient (lib/quant/quantize.c). */
static enum octet_status fixed_scales(struct oct_work *work, struct quantizing *q,
                                      struct oct_device_array *out, struct octet_error *err)
{
    enum octet_dtype dtype = q->x->array.dtype;
    float upper = oct_round_to(dtype, (float)q->number[q->numbers - 1]);
    float scale = oct_round_to(dtype, upper / q->qtype->bound);
    const struct oct_driver *driver = work->backend->driver;
    void *queue = work->residence->queue;

    scale = scale < 0x1p-63f ? 1 : scale;
    float inverse = 1.0f / scale;
    enum octet_status status =
        driver->write(queue, out->upper->buffer, 0, &upper, sizeof upper, err);
    work->is_busy = true;
    if (status == OCTET_OK)
        status = driver->write(queue, out->scales->buffer, 0, &scale, sizeof scale, err);
    if (status == OCTET_OK)
        status = driver->write(queue, q->inverse->buffer, 0, &inverse, sizeof inverse, err);
    return status;
}

static enum octet_status make_codes(struct oct_work *work, const struct quantizing *q,
                                    struct oct_device_array *out, struct octet_error *err)
{
    const struct octet_array *x = &q->x->array;
    bool divides =
        x->rank == 0 || memcmp(x->dim, out->scale.dim, (size_t)x->rank * sizeof *x->dim) == 0;
    struct oct_device_grid grid = rows_grid(&q->layout);
    struct oct_device_argument arguments[] = {buffer(q->layout.plan),
                                              buffer(q->x->data),
                                              integer(x->dtype),
                                              buffer(out->scales),
                                              buffer(q->inverse),
                                              integer(divides),
                                              integer(q->qtype->dtype),
                                              number((float)q->qtype->code_min),
                                              number((float)q->qtype->code_max),
                                              buffer(out->data)};

    if (!octet_array_elements(x))
        return OCTET_OK;
    return oct_work_launch(work, OCT_KERNEL_quantize, &grid, arguments, 10, err);
}

static enum octet_status quantize(struct oct_work *work, struct quantizing *q,
                                  struct oct_device_array *out, struct octet_error *err)
{
    size_t bytes = (size_t)q->count * sizeof(float);
    enum octet_status status =
        make_layout(work, &q->x->array, out->scale.dim, NULL, &q->layout, err);

    if (status == OCTET_OK)
        status = oct_work_block(work, (size_t)octet_array_bytes(&out->array), &out->data, err);
    if (status == OCTET_OK)
        status = oct_work_block(work, bytes, &out->scales, err);
    if (status == OCTET_OK)
        status = oct_work_block(work, bytes, &out->upper, err);
    if (status == OCTET_OK)
        status = oct_work_block(work, bytes, &q->inverse, err);
    if (status == OCTET_OK && q->count)
        status = q->method == OCT_METHOD_FIXED ? fixed_scales(work, q, out, err)
                                               : measured_scales(work, q, out, err);
    return status == OCTET_OK ? make_codes(work, q, out, err) : status;
}

enum octet_status oct_device_quantize(struct oct_work *work, const struct oct_device_array *x,
                                      const struct oct_qtype *qtype, const char *method,
                                      const struct oct_calibration *calibration,
                                      struct oct_device_array *out, struct octet_error *err)
{
    struct quantizing q = {.x = x, .qtype = qtype, .count = calibration->count};

    q.numbers = oct_method_numbers(method, &q.method, q.number);
    *out = (struct oct_device_array){.is_quantized = true, .array = x->array, .scale = x->array};
    out->array.dtype = qtype->dtype;
    if (x->array.rank)
        memcpy(out->scale.dim, calibration->dim, (size_t)x->array.rank * sizeof(int64_t));
    return quantize(work, &q, out, err);
}

/* ---- scales, casts, masks ---- */

enum octet_status oct_device_multiply(struct oct_work *work, const struct octet_array *shape,
                                      const struct oct_block *x, const int64_t *scale_dim,
                                      const int64_t *scale_stride, const struct oct_block *scales,
                                      enum octet_dtype dtype, struct oct_device_array *out,
                                      struct octet_error *err)
{
    struct oct_device_array made = {.array = *shape};
    struct layout layout;

    made.array.dtype = dtype;
    enum octet_status status =
        oct_work_block(work, (size_t)octet_array_bytes(&made.array), &made.data, err);
    if (status == OCTET_OK && octet_array_elements(shape)) {
        status = make_layout(work, shape, scale_dim, scale_stride, &layout, err);
        if (status != OCTET_OK)
            return status;
        struct oct_device_grid grid = rows_grid(&layout);
        struct oct_device_argument arguments[] = {buffer(layout.plan),   buffer(x),
                                                  integer(shape->dtype), buffer(scales),
                                                  integer(dtype),        buffer(made.data)};
        status = oct_work_launch(work, OCT_KERNEL_scale, &grid, arguments, 6, err);
    }
    *out = made;
    return status;
}

enum octet_status oct_device_dequantize(struct oct_work *work, const struct oct_device_array *x,
                                        struct oct_device_array *out, struct octet_error *err)
{
    if (!x->is_quantized) {
        *out = *x;
        return OCTET_OK;
    }
    return oct_device_multiply(work, &x->array, x->data, x->scale.dim, NULL, x->scales,
                               x->scale.dtype, out, err);
}

enum octet_status oct_device_cast(struct oct_work *work, const struct oct_device_array *x,
                                  enum octet_dtype dtype, struct oct_device_array *out,
                                  struct octet_error *err)
{
    struct oct_device_array made = {.array = x->array};
    int64_t count = octet_array_elements(&x->array);
    struct oct_device_grid grid = line(count);

    if (x->array.dtype == dtype) {
        *out = *x;
        return OCTET_OK;
    }
    made.array.dtype = dtype;
    enum octet_status status =
        oct_work_block(work, (size_t)octet_array_bytes(&made.array), &made.data, err);
    if (status == OCTET_OK && count) {
        struct oct_device_argument arguments[] = {integer(count), buffer(x->data),
                                                  integer(x->array.dtype), integer(dtype),
                                                  buffer(made.data)};
        status = oct_work_launch(work, OCT_KERNEL_cast, &grid, arguments, 5, err);
    }
    *out = made;
    return status;
}

enum octet_status oct_device_mask(struct oct_work *work, const struct oct_device_array *array,
                                  const struct oct_device_array *bounds,
                                  const struct oct_device_array *x, struct octet_error *err)
{
    struct layout layout;

    if (!octet_array_elements(&x->array))
        return OCTET_OK;
    enum octet_status status =
        make_layout(work, &array->array, bounds->scale.dim, NULL, &layout, err);
    if (status != OCTET_OK)
        return status;
    struct oct_device_grid grid = rows_grid(&layout);
    struct oct_device_argument arguments[] = {
        buffer(layout.plan),         buffer(array->data),
        integer(array->array.dtype), integer(bounds->lower != NULL),
        buffer(bounds->lower),       buffer(bounds->upper),
        integer(x->array.dtype),     buffer(x->data)};
    return oct_work_launch(work, OCT_KERNEL_mask, &grid, arguments, 8, err);
}

/* ---- from the device ---- */

enum octet_status oct_device_fetch(struct oct_work *work, const struct octet_compute *compute,
                                   const struct oct_device_array *x, struct octet_quantized *out,
                                   struct octet_error *err)
{
    struct octet_array scales = x->scale;
    enum octet_status status =
        oct_array_like(compute, &x->array, x->array.dtype, &out->qvalue, err);

    out->zero_point = (struct octet_array){0};
    if (status == OCTET_OK)
        status = oct_array_like(compute, &x->scale, OCTET_DTYPE_F32, &scales, err);
    if (status == OCTET_OK)
        status = oct_work_download(work, x->data, out->qvalue.data,
                                   (size_t)octet_array_bytes(&x->array), err);
    if (status == OCTET_OK)
        status = oct_work_download(work, x->scales, scales.data, (size_t)octet_array_bytes(&scales),
                                   err);
    return status == OCTET_OK ? oct_array_cast(compute, &scales, x->scale.dtype, &out->scale, err)
                              : status;
}
