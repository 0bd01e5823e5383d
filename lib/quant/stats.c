/* What a quantization did to an operand, in figures: octet_operand_stats.
 *
 * Decision: sums are in f64, one for each run of the layout, joined in order of the runs; so they
 * too are the same for every number of threads. */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"

enum { CHUNK = 2048, ITEM = 1 << 16 };

struct share {
    float amax;
    int64_t saturated, underflowed, nonfinite;
    double signal, noise;
};

struct survey {
    const struct oct_kernels *kernels;
    const struct octet_array *array;
    const struct octet_array *codes; /* NULL: not quantized */
    const float *dequantized;        /* [elements] */
    const float *ratios;             /* [elements], x / scale */
    float largest;
    int64_t elements;
    struct share *shares; /* one for each item */
};

static void look_at(const struct survey *s, int64_t element, int64_t n, struct share *share)
{
    float x[CHUNK];

    s->kernels->decode(
        s->array->dtype, (size_t)n,
        (const char *)s->array->data + (size_t)element * octet_dtype_bytes(s->array->dtype), x);
    for (int64_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (!(magnitude <= 0x1.fffffep127f)) {
            share->nonfinite++;
            continue;
        }
        share->amax = magnitude > share->amax ? magnitude : share->amax;
        if (!s->codes)
            continue;
        double y = s->dequantized[element + i], loss = (double)x[i] - y;
        share->saturated += s->largest > 0 && fabsf(s->ratios[element + i]) > s->largest;
        share->underflowed += magnitude > 0 && y == 0;
        if (isfinite(y)) {
            share->signal += (double)x[i] * x[i];
            share->noise += loss * loss;
        }
    }
}

static void look_at_item(void *user, size_t item, size_t thread)
{
    const struct survey *s = user;
    int64_t begin = (int64_t)item * ITEM, end = begin + ITEM;

    (void)thread;
    end = end < s->elements ? end : s->elements;
    for (; begin < end; begin += CHUNK)
        look_at(s, begin, end - begin < CHUNK ? end - begin : CHUNK, &s->shares[item]);
}

static void add_scales(const struct octet_quantized *quantized, const float *scale,
                       struct oct_stats *stats)
{
    int64_t count = octet_array_elements(&quantized->scale);

    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(scale[i])) /* of a group with a NaN or Inf: counted as nonfinite there */
            continue;
        if (!stats->has_scale || scale[i] < stats->figures.scale_min)
            stats->figures.scale_min = scale[i];
        if (!stats->has_scale || scale[i] > stats->figures.scale_max)
            stats->figures.scale_max = scale[i];
        stats->has_scale = true;
    }
}

/* x / scale and the dequantized values, as f32 arrays. */
static enum octet_status prepare(const struct octet_compute *compute,
                                 const struct octet_quantized *quantized, struct survey *s,
                                 struct oct_stats *stats, struct octet_error *err)
{
    struct octet_array ratios, dequantized, wide;
    int64_t count = octet_array_elements(&quantized->scale);
    float *inverse = OCTET_NEW_ARRAY(compute->arena, count, float);
    const float *scale;
    enum octet_status status;

    if (!inverse)
        return octet_arena_exhausted(compute->arena, err);
    status = oct_scale_values(compute, &quantized->scale, &scale, err);
    if (status == OCTET_OK)
        status = oct_array_like(compute, s->array, OCTET_DTYPE_F32, &ratios, err);
    if (status != OCTET_OK)
        return status;
    for (int64_t i = 0; i < count; i++)
        inverse[i] = 1.0f / scale[i];
    add_scales(quantized, scale, stats);
    status = oct_multiply(compute, s->array, quantized->scale.dim, inverse, &ratios, err);
    if (status == OCTET_OK)
        status = oct_dequantize(compute, quantized, &dequantized, err);
    if (status == OCTET_OK)
        status = oct_array_cast(compute, &dequantized, OCTET_DTYPE_F32, &wide, err);
    if (status != OCTET_OK)
        return status;
    s->codes = &quantized->qvalue;
    s->ratios = ratios.data;
    s->dequantized = wide.data;
    return OCTET_OK;
}

static void join(const struct share *share, struct oct_stats *stats)
{
    struct octet_operand_stats *f = &stats->figures;

    f->amax = share->amax > f->amax ? share->amax : f->amax;
    f->saturated += share->saturated;
    f->underflowed += share->underflowed;
    f->nonfinite += share->nonfinite;
    stats->signal += share->signal;
    stats->noise += share->noise;
}

enum octet_status oct_stats_add(const struct octet_compute *compute,
                                const struct octet_array *array,
                                const struct octet_quantized *quantized, float largest,
                                struct oct_stats *stats, struct octet_error *err)
{
    struct survey s = {.kernels = compute->workers->kernels,
                       .array = array,
                       .largest = quantized && quantized->zero_point.data ? 0 : largest,
                       .elements = octet_array_elements(array)};
    size_t items = (size_t)((s.elements + ITEM - 1) / ITEM);
    enum octet_status status = OCTET_OK;

    s.shares = OCTET_NEW_ARRAY(compute->arena, items, struct share);
    if (!s.shares)
        return octet_arena_exhausted(compute->arena, err);
    if (quantized)
        status = prepare(compute, quantized, &s, stats, err);
    if (status == OCTET_OK)
        status =
            oct_pool_run(compute->workers->pool, items, compute->cancel, look_at_item, &s, err);
    for (size_t i = 0; i < items && status == OCTET_OK; i++)
        join(&s.shares[i], stats);
    stats->figures.is_quantized |= quantized != NULL;
    return status;
}

void oct_stats_finish(const struct oct_stats *stats, struct octet_operand_stats *out)
{
    *out = stats->figures;
    out->sqnr_db = NAN;
    if (out->is_quantized && stats->signal > 0)
        out->sqnr_db =
            stats->noise > 0 ? 10 * log10(stats->signal / stats->noise) : (double)INFINITY;
}
