/* From a calibration to codes, and back. See quantize.h for the steps, formulas 3 to 7 of Qwix's
 * arithmetic for the rounding. */
#include "quant/quantize.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dtypes/codes.h"
#include "kernels/kernels.h"
#include "quant/layout.h"
#include "quant/pack.h"
#include "rules/fields.h"

enum { CHUNK = OCT_SOURCE_PIECE };

static const float tiny_root = 0x1p-63f; /* square root of the smallest normal f32 and BF16 */

enum octet_status oct_array_like(const struct octet_compute *compute,
                                 const struct octet_array *like, enum octet_dtype dtype,
                                 struct octet_array *out, struct octet_error *err)
{
    struct octet_array made = *like;
    int64_t bytes;

    made.dtype = dtype;
    bytes = octet_array_bytes(&made);
    made.data = bytes == INT64_MAX ? NULL : octet_arena_alloc_unset(compute->arena, (size_t)bytes);
    if (!made.data)
        return octet_arena_exhausted(compute->arena, err);
    *out = made;
    return OCTET_OK;
}

static bool same_dims(int32_t rank, const int64_t *a, const int64_t *b)
{
    return rank == 0 || memcmp(a, b, (size_t)rank * sizeof *a) == 0;
}

/* ---- scales ---- */

/* The exponent that Qwix finds: ceil(log2(s)) with jnp.log2 = log(s) / log(2), each step rounded to
 * dtype, so that for some s, powers of two among them, it is one more or less than the exact one.
 * Measured on Qwix 0.1.8, JAX 0.10.2 (XLA, CPU): equal for all positive normal BF16, and for
 * 400,000 f32. */
static float log2_as_qwix(enum octet_dtype dtype, float s)
{
    float logarithm = oct_round_to(dtype, (float)log((double)s));

    if (dtype == OCTET_DTYPE_BF16)
        return oct_round_to(dtype, logarithm / 0.69140625f); /* log(2) in BF16 */
    return logarithm * 1.44269502f;
}

static float round_scale(enum oct_scale_rule rule, enum octet_dtype dtype,
                         const struct oct_kernels *kernels, float scale)
{
    uint8_t code;

    switch (rule) {
    case OCT_SCALE_POWER_OF_TWO:
        return isfinite(scale) ? ldexpf(1, (int)ceilf(log2_as_qwix(dtype, scale))) : scale;
    case OCT_SCALE_E4M3:
        kernels->saturate(OCTET_DTYPE_F8_E4M3FN, 1, &scale, &code);
        kernels->decode(OCTET_DTYPE_F8_E4M3FN, 1, &code, &scale);
        return scale;
    case OCT_SCALE_PLAIN:
        break;
    }
    return scale;
}

/* XLA divides by a constant that is broadcast by multiplying with its rounded reciprocal; a fixed
 * range's scale is a constant that it folds with a true division. */
static float divide_by(enum octet_dtype dtype, float value, float divisor, bool is_fixed)
{
    if (dtype == OCTET_DTYPE_BF16 || is_fixed)
        return oct_round_to(dtype, value / divisor);
    return value * (1.0f / divisor);
}

/* CPUs differ in the sign of the NaN that Inf * 0 makes. */
static float one_nan(float scale)
{
    return scale == scale ? scale : oct_f32_from_bits(OCT_F32_NAN);
}

static float symmetric_scale(enum octet_dtype dtype, const struct oct_qtype *qtype,
                             const struct oct_kernels *kernels, float upper, bool is_fixed)
{
    float s = divide_by(dtype, upper, qtype->bound, is_fixed);

    return one_nan(round_scale(qtype->scale_rule, dtype, kernels, s < tiny_root ? 1 : s));
}

/* zero_points: their values, as codes of the qtype are written. */
static void asymmetric_scales(enum octet_dtype dtype, const struct oct_qtype *qtype,
                              const struct oct_calibration *calibration, float *scale,
                              float *zero_points)
{
    float code_min = (float)qtype->code_min, span = (float)(qtype->code_max - qtype->code_min);

    for (int64_t i = 0; i < calibration->count; i++) {
        float lower = calibration->lower[i];
        float s = divide_by(dtype, oct_round_to(dtype, calibration->upper[i] - lower), span,
                            calibration->is_fixed);
        scale[i] = one_nan(s < tiny_root ? 1 : s);
        zero_points[i] = oct_round_to(dtype, code_min - oct_round_to(dtype, lower / scale[i]));
    }
}

/* ---- codes ---- */

struct conversion {
    const struct oct_kernels *kernels;
    const struct oct_source *source;
    const struct oct_layout *layout;
    const struct oct_qtype *qtype;
    const float *scale, *inverse;
    const float *zero_points; /* values; NULL: symmetric */
    bool divides;             /* nothing is broadcast: a true division */
    uint8_t *codes;
};

/* Integers of fewer bits than their storage. */
static void narrow(const struct oct_qtype *qtype, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++) {
        int8_t code = (int8_t)codes[i];
        if (qtype->dtype == OCTET_DTYPE_S4) /* the low half counts */
            code = (int8_t)(((codes[i] & 15) ^ 8) - 8);
        code = code < qtype->code_min ? (int8_t)qtype->code_min : code;
        code = code > qtype->code_max ? (int8_t)qtype->code_max : code;
        codes[i] = (uint8_t)code;
    }
}

static bool is_narrow(const struct oct_qtype *qtype)
{
    return (qtype->dtype == OCTET_DTYPE_S8 && qtype->code_max < 127) ||
           (qtype->dtype == OCTET_DTYPE_S4 && qtype->code_max < 7);
}

static void convert_fast(const struct conversion *c, const struct oct_run *run)
{
    float buffer[OCT_SOURCE_PIECE];

    for (int64_t at = 0, n; at < run->length; at += n) {
        n = oct_source_piece(c->source, run->length - at);
        const void *x = oct_source_read(c->kernels, c->source, run->element + at, n, buffer);
        c->kernels->quantize(c->source->dtype, c->qtype->dtype, (size_t)n, x,
                             c->inverse + run->scale + (c->layout->is_kept ? at : 0),
                             c->layout->is_kept, c->codes + run->element + at);
    }
}

/* x / scale, rounded as x is. A NaN has the sign that quantize in kernels.h says. */
static float quotient(const struct conversion *c, float x, int64_t scale)
{
    float y = c->divides ? x / c->scale[scale] : x * c->inverse[scale];

    if (y == y)
        return oct_round_to(c->source->dtype, y);
    if (x != x)
        return x;
    return c->scale[scale] != c->scale[scale] ? c->scale[scale] : oct_f32_from_bits(0xffc00000u);
}

/* What the kernels have no loop for: zero points, and true divisions. */
static void convert_slow(const struct conversion *c, const struct oct_run *run)
{
    enum octet_dtype dtype = c->source->dtype;
    float v[CHUNK], buffer[OCT_SOURCE_PIECE];

    for (int64_t begin = 0; begin < run->length; begin += CHUNK) {
        int64_t n = run->length - begin < CHUNK ? run->length - begin : CHUNK;
        int64_t element = run->element + begin;
        c->kernels->decode(dtype, (size_t)n,
                           oct_source_read(c->kernels, c->source, element, n, buffer), v);
        for (int64_t i = 0; i < n; i++) {
            int64_t s = run->scale + (c->layout->is_kept ? begin + i : 0);
            v[i] = quotient(c, v[i], s);
            if (c->zero_points)
                v[i] = oct_round_to(dtype, v[i] + c->zero_points[s]);
        }
        c->kernels->saturate(c->qtype->dtype, (size_t)n, v, c->codes + element);
    }
}

static void visit_conversion(void *user, const struct oct_run *run, size_t thread)
{
    const struct conversion *c = user;

    (void)thread;
    if (c->zero_points || c->divides)
        convert_slow(c, run);
    else
        convert_fast(c, run);
    if (is_narrow(c->qtype))
        narrow(c->qtype, run->length, c->codes + run->element);
}

/* An array at out->data, or where that is NULL in the arena. */
static enum octet_status place(const struct octet_compute *compute, enum octet_dtype dtype,
                               int32_t rank, const int64_t *dim, struct octet_array *out,
                               struct octet_error *err)
{
    struct octet_array shape = {.rank = rank};
    void *given = out->data;

    if (rank)
        memcpy(shape.dim, dim, (size_t)rank * sizeof *dim);
    if (!given)
        return oct_array_like(compute, &shape, dtype, out, err);
    *out = shape;
    out->dtype = dtype;
    out->data = given;
    return OCTET_OK;
}

static enum octet_status make_scales(const struct octet_compute *compute, enum octet_dtype dtype,
                                     const struct oct_qtype *qtype,
                                     const struct oct_calibration *calibration, float **values,
                                     float **zero_points, struct octet_quantized *out,
                                     struct octet_error *err)
{
    const struct oct_kernels *kernels = compute->workers->kernels;
    size_t count = (size_t)calibration->count;
    enum octet_status status;

    *values = OCTET_NEW_ARRAY(compute->arena, count, float);
    *zero_points = calibration->lower ? OCTET_NEW_ARRAY(compute->arena, count, float) : NULL;
    if (!*values || (calibration->lower && !*zero_points))
        return octet_arena_exhausted(compute->arena, err);
    status = place(compute, dtype, calibration->rank, calibration->dim, &out->scale, err);
    if (status != OCTET_OK)
        return status;
    if (!calibration->lower) {
        out->zero_point = (struct octet_array){0};
        for (size_t i = 0; i < count; i++)
            (*values)[i] = symmetric_scale(dtype, qtype, kernels, calibration->upper[i],
                                           calibration->is_fixed);
    } else {
        status = place(compute, qtype->dtype, calibration->rank, calibration->dim, &out->zero_point,
                       err);
        if (status != OCTET_OK)
            return status;
        asymmetric_scales(dtype, qtype, calibration, *values, *zero_points);
        kernels->saturate(qtype->dtype, count, *zero_points, out->zero_point.data);
        kernels->decode(qtype->dtype, count, out->zero_point.data, *zero_points);
    }
    kernels->cast(dtype, count, *values, out->scale.data);
    return OCTET_OK;
}

/* Under a calibration that is made. */
static enum octet_status convert(const struct octet_compute *compute,
                                 const struct oct_source *source, const struct oct_qtype *qtype,
                                 const struct oct_calibration *calibration,
                                 struct octet_quantized *out, struct octet_error *err)
{
    const struct octet_array *array = &source->array;
    struct oct_layout layout = oct_layout_make(array->rank, array->dim, calibration->dim);
    float *values, *zero_points;
    enum octet_status status;

    status = place(compute, qtype->dtype, array->rank, array->dim, &out->qvalue, err);
    if (status == OCTET_OK)
        status = make_scales(compute, source->dtype, qtype, calibration, &values, &zero_points, out,
                             err);
    if (status != OCTET_OK)
        return status;
    float *inverse = OCTET_NEW_ARRAY(compute->arena, calibration->count, float);
    if (!inverse)
        return octet_arena_exhausted(compute->arena, err);
    for (int64_t i = 0; i < calibration->count; i++)
        inverse[i] = 1.0f / values[i];
    struct conversion c = {.kernels = compute->workers->kernels,
                           .source = source,
                           .layout = &layout,
                           .qtype = qtype,
                           .scale = values,
                           .inverse = inverse,
                           .zero_points = zero_points,
                           .divides = same_dims(array->rank, array->dim, calibration->dim),
                           .codes = out->qvalue.data};
    return oct_layout_each(compute, &layout, visit_conversion, &c, err);
}

/* ---- rows, each calibrated and converted while it is in cache ---- */

struct rows {
    struct conversion conversion;
    float *upper, *scale, *inverse; /* [rows] */
    const float *factor;            /* of the calibration; NULL: none */
};

static void visit_row(void *user, const struct oct_run *run, size_t thread)
{
    const struct rows *rows = user;
    const struct conversion *c = &rows->conversion;
    enum octet_dtype dtype = c->source->dtype;
    float upper = oct_source_amax(c->kernels, c->source, run->element, run->length);

    if (rows->factor)
        upper = oct_round_to(dtype, upper * *rows->factor);
    float scale = symmetric_scale(dtype, c->qtype, c->kernels, upper, false);
    rows->upper[run->scale] = upper;
    rows->scale[run->scale] = scale;
    rows->inverse[run->scale] = 1.0f / scale;
    visit_conversion(user, run, thread); /* which is at the start of rows */
}

static enum octet_status quantize_rows(const struct octet_compute *compute,
                                       const struct oct_source *source,
                                       const struct oct_layout *layout,
                                       const struct oct_qtype *qtype, const float *factor,
                                       struct oct_calibration *calibration,
                                       struct octet_quantized *out, struct octet_error *err)
{
    const struct octet_array *array = &source->array;
    const int64_t count = calibration->count;
    struct rows rows = {.upper = OCTET_NEW_ARRAY(compute->arena, count, float),
                        .scale = OCTET_NEW_ARRAY(compute->arena, count, float),
                        .inverse = OCTET_NEW_ARRAY(compute->arena, count, float),
                        .factor = factor};
    enum octet_status status;

    if (!rows.upper || !rows.scale || !rows.inverse)
        return octet_arena_exhausted(compute->arena, err);
    calibration->upper = rows.upper;
    out->zero_point = (struct octet_array){0};
    status = place(compute, qtype->dtype, array->rank, array->dim, &out->qvalue, err);
    if (status == OCTET_OK)
        status =
            place(compute, source->dtype, calibration->rank, calibration->dim, &out->scale, err);
    if (status != OCTET_OK)
        return status;
    rows.conversion = (struct conversion){.kernels = compute->workers->kernels,
                                          .source = source,
                                          .layout = layout,
                                          .qtype = qtype,
                                          .scale = rows.scale,
                                          .inverse = rows.inverse,
                                          .codes = out->qvalue.data};
    status = oct_layout_each(compute, layout, visit_row, &rows, err);
    compute->workers->kernels->cast(source->dtype, (size_t)count, rows.scale, out->scale.data);
    return status;
}

enum octet_status oct_quantize(const struct octet_compute *compute, const struct oct_source *source,
                               const struct oct_how *how, const char *tile_field,
                               struct oct_calibration *calibration, struct octet_quantized *out,
                               struct octet_error *err)
{
    const struct octet_array *array = &source->array;
    enum oct_method method;
    double numbers[2];
    int count = oct_method_numbers(how->method, &method, numbers);
    float factor = count ? oct_round_to(source->dtype, (float)numbers[0]) : 1;
    enum octet_status status = oct_calibration_shape(array, how, tile_field, calibration, err);

    if (status != OCTET_OK)
        return status;
    struct oct_layout layout = oct_layout_make(array->rank, array->dim, calibration->dim);
    if (method == OCT_METHOD_ABSMAX && !how->mean_axes && oct_layout_is_by_rows(&layout) &&
        !same_dims(array->rank, array->dim, calibration->dim))
        return quantize_rows(compute, source, &layout, how->qtype, count ? &factor : NULL,
                             calibration, out, err);
    status = oct_calibrate(compute, source, how, tile_field, calibration, err);
    return status == OCTET_OK ? convert(compute, source, how->qtype, calibration, out, err)
                              : status;
}

/* ---- back ---- */

enum octet_status oct_scale_values(const struct octet_compute *compute,
                                   const struct octet_array *scale, const float **out,
                                   struct octet_error *err)
{
    struct octet_array values;
    enum octet_status status = oct_array_cast(compute, scale, OCTET_DTYPE_F32, &values, err);

    if (status == OCTET_OK)
        *out = values.data;
    return status;
}

struct multiplication {
    const struct oct_kernels *kernels;
    const struct octet_array *x;
    struct octet_array *y;
    const struct oct_layout *layout;
    const float *scale;
    size_t x_bytes, y_bytes;
};

static void visit_multiplication(void *user, const struct oct_run *run, size_t thread)
{
    const struct multiplication *m = user;

    (void)thread;
    m->kernels->scale(m->x->dtype, (size_t)run->length,
                      (const char *)m->x->data + (size_t)run->element * m->x_bytes,
                      m->scale + run->scale, m->layout->is_kept, m->y->dtype,
                      (char *)m->y->data + (size_t)run->element * m->y_bytes);
}

static enum octet_status multiply(const struct octet_compute *compute, const struct octet_array *x,
                                  const struct oct_layout *layout, const float *scale,
                                  struct octet_array *y, struct octet_error *err)
{
    struct multiplication m = {.kernels = compute->workers->kernels,
                               .x = x,
                               .y = y,
                               .layout = layout,
                               .scale = scale,
                               .x_bytes = octet_dtype_bytes(x->dtype),
                               .y_bytes = octet_dtype_bytes(y->dtype)};

    return oct_layout_each(compute, layout, visit_multiplication, &m, err);
}

enum octet_status oct_multiply(const struct octet_compute *compute, const struct octet_array *x,
                               const int64_t *scale_dim, const float *scale, struct octet_array *y,
                               struct octet_error *err)
{
    struct oct_layout layout = oct_layout_make(x->rank, x->dim, scale_dim);

    return multiply(compute, x, &layout, scale, y, err);
}

enum octet_status oct_source_array(const struct octet_compute *compute,
                                   const struct oct_source *source, struct octet_array *out,
                                   struct octet_error *err)
{
    const struct octet_array *array = &source->array;
    enum octet_status status;

    if (!source->scale) {
        *out = *array;
        return OCTET_OK;
    }
    status = oct_array_like(compute, array, source->dtype, out, err);
    return status == OCTET_OK ? multiply(compute, array, &source->layout, source->scale, out, err)
                              : status;
}

struct shift {
    const struct oct_kernels *kernels;
    const struct octet_quantized *from;
    const struct oct_layout *layout;
    const float *zero_points;
    float *y;
};

/* Both are integers of 8 bits, so the difference is exact in F32 and in BF16. */
static void visit_shift(void *user, const struct oct_run *run, size_t thread)
{
    const struct shift *s = user;
    float *y = s->y + run->element;

    (void)thread;
    s->kernels->decode(s->from->qvalue.dtype, (size_t)run->length,
                       (const char *)s->from->qvalue.data + run->element, y);
    for (int64_t i = 0; i < run->length; i++)
        y[i] -= s->zero_points[run->scale + (s->layout->is_kept ? i : 0)];
}

enum octet_status oct_code_values(const struct octet_compute *compute,
                                  const struct octet_quantized *from, struct octet_array *out,
                                  struct octet_error *err)
{
    struct oct_layout layout =
        oct_layout_make(from->qvalue.rank, from->qvalue.dim, from->zero_point.dim);
    struct shift s = {.kernels = compute->workers->kernels, .from = from, .layout = &layout};
    enum octet_status status = oct_scale_values(compute, &from->zero_point, &s.zero_points, err);

    if (status == OCTET_OK)
        status = oct_array_like(compute, &from->qvalue, OCTET_DTYPE_F32, out, err);
    if (status != OCTET_OK)
        return status;
    s.y = out->data;
    return oct_layout_each(compute, &layout, visit_shift, &s, err);
}

enum octet_status oct_dequantize(const struct octet_compute *compute,
                                 const struct octet_quantized *quantized, struct octet_array *out,
                                 struct octet_error *err)
{
    struct octet_quantized plain = *quantized;
    struct octet_array x, made;
    enum octet_dtype dtype = quantized->scale.dtype;
    const float *scale;
    enum octet_status status = oct_scale_values(compute, &quantized->scale, &scale, err);

    if (status == OCTET_OK)
        status = oct_unpack(compute, &plain, err);
    x = plain.qvalue;
    if (status == OCTET_OK && quantized->zero_point.data)
        status = oct_code_values(compute, &plain, &x, err);
    if (status == OCTET_OK)
        status = oct_array_like(compute, &x, dtype, &made, err);
    if (status == OCTET_OK)
        status = oct_multiply(compute, &x, quantized->scale.dim, scale, &made, err);
    if (status == OCTET_OK)
        *out = made;
    return status;
}

/* ---- casts ---- */

struct casting {
    const struct oct_kernels *kernels;
    const struct octet_array *from, *to;
};

static void visit_cast(void *user, const struct oct_run *run, size_t thread)
{
    const struct casting *c = user;
    float values[CHUNK];

    (void)thread;
    for (int64_t begin = 0; begin < run->length; begin += CHUNK) {
        size_t n = (size_t)(run->length - begin < CHUNK ? run->length - begin : CHUNK);
        size_t element = (size_t)(run->element + begin);
        c->kernels->decode(
            c->from->dtype, n,
            (const char *)c->from->data + element * octet_dtype_bytes(c->from->dtype), values);
        c->kernels->cast(c->to->dtype, n, values,
                         (char *)c->to->data + element * octet_dtype_bytes(c->to->dtype));
    }
}

enum octet_status oct_array_cast(const struct octet_compute *compute,
                                 const struct octet_array *array, enum octet_dtype dtype,
                                 struct octet_array *out, struct octet_error *err)
{
    int64_t one[OCTET_ARRAY_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct oct_layout layout = oct_layout_make(array->rank, array->dim, one);
    struct octet_array made;
    struct casting c = {.kernels = compute->workers->kernels, .from = array, .to = &made};

    if (array->dtype == dtype) {
        *out = *array;
        return OCTET_OK;
    }
    enum octet_status status = oct_array_like(compute, array, dtype, &made, err);
    if (status == OCTET_OK)
        status = oct_layout_each(compute, &layout, visit_cast, &c, err);
    if (status == OCTET_OK)
        *out = made;
    return status;
}

/* ---- gradient mask ---- */

struct masking {
    const struct oct_kernels *kernels;
    const struct octet_array *array;
    struct octet_array *x;
    const struct oct_layout *layout;
    const struct oct_calibration *calibration;
};

static void visit_mask(void *user, const struct oct_run *run, size_t thread)
{
    const struct masking *m = user;
    size_t bytes = octet_dtype_bytes(m->array->dtype), x_bytes = octet_dtype_bytes(m->x->dtype);
    float v[CHUNK];

    (void)thread;
    for (int64_t begin = 0; begin < run->length; begin += CHUNK) {
        int64_t n = run->length - begin < CHUNK ? run->length - begin : CHUNK;
        size_t element = (size_t)(run->element + begin);
        m->kernels->decode(m->array->dtype, (size_t)n,
                           (const char *)m->array->data + element * bytes, v);
        for (int64_t i = 0; i < n; i++) {
            int64_t s = run->scale + (m->layout->is_kept ? begin + i : 0);
            float upper = m->calibration->upper[s];
            float lower = m->calibration->lower ? m->calibration->lower[s] : -upper;
            if (!(v[i] >= lower && v[i] <= upper))
                memset((char *)m->x->data + (element + (size_t)i) * x_bytes, 0, x_bytes);
        }
    }
}

enum octet_status oct_mask_gradient(const struct octet_compute *compute,
                                    const struct octet_array *array,
                                    const struct oct_calibration *calibration,
                                    struct octet_array *x, struct octet_error *err)
{
    struct oct_layout layout = oct_layout_make(array->rank, array->dim, calibration->dim);
    struct masking m = {.kernels = compute->workers->kernels,
                        .array = array,
                        .x = x,
                        .layout = &layout,
                        .calibration = calibration};

    return oct_layout_each(compute, &layout, visit_mask, &m, err);
}
