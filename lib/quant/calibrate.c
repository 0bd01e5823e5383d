/* Calibration: the range of each group of elements that share a scale. See quantize.h.
 *
 * Every step rounds as the array's dtype does, since Qwix computes in it. Source: Qwix 0.1.8,
 * qarray.calibrate, get_scale_shape; averaging.SimpleMovingAverage. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/float_env.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "quant/layout.h"
#include "quant/quantize.h"
#include "rules/fields.h"

enum {
    CHUNK = 4096,       /* elements decoded at a time */
    COLUMNS = 256,      /* scales that a thread finds at a time */
    ALONE = 1 << 16,    /* elements that one thread looks through */
    COPIES_A_PART = 64, /* of the array: what copies of scales may take */
    SHORT = 31 /* XLA adds up so many squares one by one, in f32; more in ways of its own */
};

float oct_round_to(enum octet_dtype dtype, float value)
{
    uint32_t bits;

    if (dtype != OCTET_DTYPE_BF16)
        return value;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        bits = 0x7fc00000;
    else
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static enum octet_status scale_shape(const struct octet_array *array, const struct oct_how *how,
                                     const char *tile_field, struct oct_calibration *out,
                                     struct octet_error *err)
{
    char shape[160], field[64];

    out->rank = array->rank;
    out->count = 1;
    for (int32_t i = 0; i < array->rank; i++) {
        const char *tile = how->tiles[i]          ? how->tiles[i]
                           : i == how->tiled_axis ? how->tile_size
                                                  : NULL;
        int64_t dim = array->dim[i];
        if (tile) {
            snprintf(field, sizeof field, how->tiles[i] ? "%s[%d]" : "%s", tile_field, i);
            int64_t elements = oct_tile_elements(tile, dim);
            if (elements <= 0 || dim % elements != 0)
                return octet_fail(
                    err, OCTET_INVALID_ARGUMENT, field,
                    "'%s' is %" PRId64 " elements, which does not divide dimension %d "
                    "of %s",
                    tile, elements, i, octet_array_shape_text(array, shape, sizeof shape));
            if (how->qtype->block && elements != how->qtype->block)
                return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                                  "'%s' is %" PRId64 " elements, but %s takes tiles of %d", tile,
                                  elements, how->qtype->name, how->qtype->block);
            out->dim[i] = dim / elements;
        } else {
            out->dim[i] = how->channelwise >> i & 1 ? dim : 1;
        }
        out->count *= out->dim[i];
    }
    return OCTET_OK;
}

/* ---- absmax ---- */

/* A group's maximum is kept as the bits of |x|: as integers they are in the order of the floats,
 * and a NaN is above them all, so one atomic maximum joins the threads' shares and NaN sticks. */
struct maxima {
    const struct oct_kernels *kernels;
    const struct oct_source *source;
    const struct oct_layout *layout;
    _Atomic uint32_t *shared; /* [scales], when runs are reduced */
    float *own;               /* [scales] or, for each thread, as many: when runs are kept */
};

static void visit_reduced(void *user, const struct oct_run *run, size_t thread)
{
    const struct maxima *m = user;
    float amax = oct_source_amax(m->kernels, m->source, run->element, run->length);
    uint32_t bits;

    (void)thread;
    memcpy(&bits, &amax, sizeof bits);
    bits &= 0x7fffffff;
    uint32_t seen = atomic_load_explicit(&m->shared[run->scale], memory_order_relaxed);
    while (bits > seen &&
           !atomic_compare_exchange_weak_explicit(&m->shared[run->scale], &seen, bits,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* amax[i] becomes the larger of itself and element + i. */
static void take_columns(const struct maxima *m, int64_t element, int64_t n, float *amax)
{
    float buffer[OCT_SOURCE_PIECE];

    for (int64_t at = 0, step; at < n; at += step) {
        step = oct_source_piece(m->source, n - at);
        m->kernels->amax_columns(m->source->dtype, (size_t)step,
                                 oct_source_read(m->kernels, m->source, element + at, step, buffer),
                                 amax + at);
    }
}

static void visit_kept(void *user, const struct oct_run *run, size_t thread)
{
    const struct maxima *m = user;

    take_columns(m, run->element, run->length,
                 m->own + (int64_t)thread * m->layout->scales + run->scale);
}

/* Columns [first, first + COLUMNS) of all rows, when rows share their scales. */
static void visit_columns(void *user, size_t item, size_t thread)
{
    const struct maxima *m = user;
    int64_t width = m->layout->row_length, first = (int64_t)item * COLUMNS;
    int64_t n = width - first < COLUMNS ? width - first : COLUMNS;

    (void)thread;
    for (int64_t row = 0; row < m->layout->rows; row++)
        take_columns(m, row * width + first, n, m->own + first);
}

static enum octet_status amax_kept(const struct octet_compute *compute, struct maxima *m,
                                   float *amax, struct octet_error *err)
{
    int64_t scales = m->layout->scales, threads = (int64_t)oct_pool_threads(compute->workers->pool);
    int64_t elements = m->layout->elements, few = 2 * COLUMNS;
    bool alone = threads == 1 || elements < ALONE;
    enum octet_status status;

    m->own = amax;
    if (!alone && scales == m->layout->row_length && scales >= few)
        return oct_pool_run(compute->workers->pool, (size_t)((scales + COLUMNS - 1) / COLUMNS),
                            compute->cancel, visit_columns, m, err);
    /* Else each thread needs a copy of the scales, which should be small beside the array. */
    if (alone || (scales >= few && scales * threads > elements / COPIES_A_PART))
        return oct_layout_in_order(compute, m->layout, visit_kept, m, err);
    m->own = OCTET_NEW_ARRAY(compute->arena, scales * threads, float);
    if (!m->own)
        return octet_arena_exhausted(compute->arena, err);
    status = oct_layout_each(compute, m->layout, visit_kept, m, err);
    for (int64_t t = 0; t < threads && status == OCTET_OK; t++)
        m->kernels->amax_columns(OCTET_DTYPE_F32, (size_t)scales, m->own + t * scales, amax);
    return status;
}

static enum octet_status absmax(const struct octet_compute *compute,
                                const struct oct_source *source, const struct oct_layout *layout,
                                float *amax, struct octet_error *err)
{
    struct maxima m = {.kernels = compute->workers->kernels,
                       .source = source,
                       .layout = layout,
                       .shared = (_Atomic uint32_t *)(void *)amax};

    if (layout->is_kept)
        return amax_kept(compute, &m, amax, err);
    return oct_layout_each(compute, layout, visit_reduced, &m, err);
}

/* ---- minmax, rms: one thread, in order ---- */

struct ranges {
    const struct oct_kernels *kernels;
    const struct oct_source *source;
    const struct oct_layout *layout;
    float *lower, *upper;
    float *squares;    /* [scales], of rms */
    double *long_sums; /* [scales], instead, of groups of more than SHORT */
};

static void visit_range(void *user, const struct oct_run *run, size_t thread)
{
    struct ranges *r = user;
    int64_t step = r->layout->is_kept;
    float x[CHUNK], buffer[OCT_SOURCE_PIECE];

    (void)thread;
    for (int64_t begin = 0; begin < run->length; begin += CHUNK) {
        int64_t n = run->length - begin < CHUNK ? run->length - begin : CHUNK;
        r->kernels->decode(r->source->dtype, (size_t)n,
                           oct_source_read(r->kernels, r->source, run->element + begin, n, buffer),
                           x);
        for (int64_t i = 0; i < n; i++) {
            int64_t s = run->scale + (begin + i) * step;
            if (r->long_sums) {
                r->long_sums[s] += oct_round_to(r->source->dtype, oct_mul(x[i], x[i]));
            } else if (r->squares) {
                r->squares[s] += oct_round_to(r->source->dtype, oct_mul(x[i], x[i]));
            } else if (x[i] != x[i]) {
                r->lower[s] = r->upper[s] = x[i];
            } else {
                if (x[i] < r->lower[s]) /* false once lower is NaN */
                    r->lower[s] = x[i];
                if (x[i] > r->upper[s])
                    r->upper[s] = x[i];
            }
        }
    }
}

static enum octet_status minmax(const struct octet_compute *compute,
                                const struct oct_source *source, const struct oct_layout *layout,
                                struct oct_calibration *out, struct octet_error *err)
{
    struct ranges r = {.kernels = compute->workers->kernels,
                       .source = source,
                       .layout = layout,
                       .lower = out->lower,
                       .upper = out->upper};

    return oct_layout_in_order(compute, layout, visit_range, &r, err);
}

static enum octet_status rms(const struct octet_compute *compute, const struct oct_source *source,
                             const struct oct_layout *layout, float *out, struct octet_error *err)
{
    struct ranges r = {
        .kernels = compute->workers->kernels, .source = source, .layout = layout, .squares = out};
    int64_t group = layout->elements ? layout->elements / layout->scales : 0;
    /* XLA turns the division by the count, a constant, into a product. */
    float share = group ? 1.0f / (float)group : 0;

    if (group > SHORT) {
        r.long_sums = OCTET_NEW_ARRAY(compute->arena, layout->scales, double);
        if (!r.long_sums)
            return octet_arena_exhausted(compute->arena, err);
    }
    enum octet_status status = oct_layout_in_order(compute, layout, visit_range, &r, err);
    for (int64_t i = 0; r.long_sums && i < layout->scales; i++)
        out[i] = (float)r.long_sums[i];
    for (int64_t i = 0; i < layout->scales; i++) {
        float mean = oct_round_to(source->dtype, oct_mul(out[i], share));
        out[i] = oct_round_to(source->dtype, sqrtf(mean));
    }
    return status;
}

/* ---- act_static_scale ---- */

/* The mean over some axes of the scale's shape, which become 1. In f32, as the moving average is
 * kept. */
static enum octet_status average(const struct octet_compute *compute, enum octet_dtype dtype,
                                 uint32_t axes, struct oct_calibration *c, float **values,
                                 struct octet_error *err)
{
    int64_t dim[OCTET_ARRAY_RANK_MAX] = {0}, count = 1;

    for (int32_t i = 0; i < c->rank; i++) {
        dim[i] = axes >> i & 1 ? 1 : c->dim[i];
        count *= dim[i];
    }
    if (count == c->count)
        return OCTET_OK;
    struct oct_layout layout = oct_layout_make(c->rank, c->dim, dim);
    float share = 1.0f / (float)(count ? c->count / count : 1);
    float *mean = OCTET_NEW_ARRAY(compute->arena, count, float);
    if (!mean)
        return octet_arena_exhausted(compute->arena, err);
    for (int64_t row = 0; row < layout.rows; row++) {
        int64_t s = oct_layout_scale(&layout, row);
        for (int64_t i = 0; i < layout.row_length; i++)
            mean[s + (layout.is_kept ? i : 0)] += (*values)[row * layout.row_length + i];
    }
    for (int64_t i = 0; i < count; i++)
        mean[i] = oct_round_to(dtype, oct_mul(mean[i], share)); /* a product in XLA */
    *values = mean;
    return OCTET_OK;
}

static enum octet_status average_all(const struct octet_compute *compute, enum octet_dtype dtype,
                                     uint32_t axes, struct oct_calibration *c,
                                     struct octet_error *err)
{
    enum octet_status status = average(compute, dtype, axes, c, &c->upper, err);

    if (status == OCTET_OK && c->lower)
        status = average(compute, dtype, axes, c, &c->lower, err);
    c->count = 1;
    for (int32_t i = 0; i < c->rank; i++) {
        c->dim[i] = axes >> i & 1 ? 1 : c->dim[i];
        c->count *= c->dim[i];
    }
    return status;
}

/* ---- all of them ---- */

static enum octet_status fixed(const struct octet_compute *compute, enum octet_dtype dtype,
                               const double *numbers, int count, struct oct_calibration *out,
                               struct octet_error *err)
{
    double low = count == 1 ? -numbers[0] : numbers[0], high = numbers[count - 1];

    for (int32_t i = 0; i < out->rank; i++)
        out->dim[i] = 1;
    out->count = 1;
    out->is_fixed = out->clips = true;
    out->upper = OCTET_NEW(compute->arena, float);
    if (!out->upper)
        return octet_arena_exhausted(compute->arena, err);
    *out->upper = oct_round_to(dtype, (float)high);
    if (low + high == 0)
        return OCTET_OK;
    out->lower = OCTET_NEW(compute->arena, float);
    if (!out->lower)
        return octet_arena_exhausted(compute->arena, err);
    *out->lower = oct_round_to(dtype, (float)low);
    return OCTET_OK;
}

static void multiply(enum octet_dtype dtype, int64_t n, float *values, double factor)
{
    float f = oct_round_to(dtype, (float)factor);

    for (int64_t i = 0; values && i < n; i++)
        values[i] = oct_round_to(dtype, oct_mul(values[i], f));
}

static enum octet_status measure(const struct octet_compute *compute,
                                 const struct oct_source *source, enum oct_method method,
                                 struct oct_calibration *out, struct octet_error *err)
{
    struct oct_layout layout = oct_layout_make(source->array.rank, source->array.dim, out->dim);

    out->upper = OCTET_NEW_ARRAY(compute->arena, out->count, float);
    if (method == OCT_METHOD_MINMAX)
        out->lower = OCTET_NEW_ARRAY(compute->arena, out->count, float);
    if (!out->upper || (method == OCT_METHOD_MINMAX && !out->lower))
        return octet_arena_exhausted(compute->arena, err);
    switch (method) {
    case OCT_METHOD_MINMAX:
        return minmax(compute, source, &layout, out, err);
    case OCT_METHOD_RMS:
        return rms(compute, source, &layout, out->upper, err);
    default:
        return absmax(compute, source, &layout, out->upper, err);
    }
}

static bool clips(enum oct_method method, int count, const double *numbers)
{
    return method == OCT_METHOD_FIXED || method == OCT_METHOD_RMS || (count && numbers[0] < 1);
}

enum octet_status oct_calibration_shape(const struct octet_array *array, const struct oct_how *how,
                                        const char *tile_field, struct oct_calibration *out,
                                        struct octet_error *err)
{
    static float somewhere;
    enum oct_method method;
    double numbers[2] = {1, 1};
    int count = oct_method_numbers(how->method, &method, numbers);

    *out = (struct oct_calibration){.largest = how->qtype->largest};
    enum octet_status status = scale_shape(array, how, tile_field, out, err);
    if (status != OCTET_OK)
        return status;
    out->is_fixed = method == OCT_METHOD_FIXED;
    out->clips = clips(method, count, numbers);
    if (method == OCT_METHOD_MINMAX ||
        (out->is_fixed && count == 2 && numbers[0] + numbers[1] != 0))
        out->lower = &somewhere;
    out->count = 1;
    for (int32_t i = 0; i < out->rank; i++) {
        if (out->is_fixed || how->mean_axes >> i & 1)
            out->dim[i] = 1;
        out->count *= out->dim[i];
    }
    return OCTET_OK;
}

enum octet_status oct_calibrate(const struct octet_compute *compute,
                                const struct oct_source *source, const struct oct_how *how,
                                const char *tile_field, struct oct_calibration *out,
                                struct octet_error *err)
{
    enum oct_method method;
    double numbers[2] = {1, 1};
    int count = oct_method_numbers(how->method, &method, numbers);
    enum octet_status status;

    *out = (struct oct_calibration){.largest = how->qtype->largest};
    status = scale_shape(&source->array, how, tile_field, out, err);
    if (status != OCTET_OK)
        return status;
    if (method == OCT_METHOD_FIXED)
        return fixed(compute, source->dtype, numbers, count, out, err);
    status = measure(compute, source, method, out, err);
    if (status != OCTET_OK)
        return status;
    if (count) {
        multiply(source->dtype, out->count, out->upper, numbers[0]);
        multiply(source->dtype, out->count, out->lower, numbers[0]);
    }
    out->clips = clips(method, count, numbers);
    return how->mean_axes ? average_all(compute, source->dtype, how->mean_axes, out, err)
                          : OCTET_OK;
}
