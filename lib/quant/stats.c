/* What a quantization did to an operand, in figures: octet_operand_stats.
 *
 * Decision: sums are in f64, one for each item of the layout, joined in order of the items; so they
 * too are the same for every number of threads. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "quant/layout.h"
#include "quant/quantize.h"

enum { CHUNK = 2048 };

struct share {
    float amax;
    int64_t saturated, underflowed, nonfinite, destroyed;
    double signal, noise;
};

struct survey {
    const struct oct_kernels *kernels;
    const struct octet_array *array;
    const struct oct_layout *layout;
    const struct octet_array
        *codes; /* NULL: not quantized. Their values, where there are zero points */
    enum octet_dtype scale_dtype;
    const float *scale, *inverse;
    float largest;
    struct share *shares; /* one for each item */
};

static void count_code(const struct survey *s, float x, float code, int64_t scale,
                       struct share *share)
{
    double y = oct_round_to(s->scale_dtype, code * s->scale[scale]), loss = (double)x - y;

    share->saturated += s->largest > 0 && fabsf(x * s->inverse[scale]) > s->largest;
    share->underflowed += x != 0 && code == 0;
    if (isfinite(y)) {
        share->signal += (double)x * x;
        share->noise += loss * loss;
    } else {
        share->destroyed++;
    }
}

static void look_at(void *user, const struct oct_run *run, size_t thread)
{
    const struct survey *s = user;
    struct share *share = &s->shares[run->item];
    size_t bytes = octet_dtype_bytes(s->array->dtype);
    float x[CHUNK], codes[CHUNK];

    (void)thread;
    for (int64_t begin = 0; begin < run->length; begin += CHUNK) {
        int64_t n = run->length - begin < CHUNK ? run->length - begin : CHUNK;
        size_t element = (size_t)(run->element + begin);
        s->kernels->decode(s->array->dtype, (size_t)n,
                           (const char *)s->array->data + element * bytes, x);
        if (s->codes)
            s->kernels->decode(
                s->codes->dtype, (size_t)n,
                (const char *)s->codes->data + element * octet_dtype_bytes(s->codes->dtype), codes);
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(x[i])) {
                share->nonfinite++;
                continue;
            }
            share->amax = fabsf(x[i]) > share->amax ? fabsf(x[i]) : share->amax;
            if (s->codes)
                count_code(s, x[i], codes[i], run->scale + (s->layout->is_kept ? begin + i : 0),
                           share);
        }
    }
}

/* Not counted: what is not finite (its group is counted, as nonfinite and destroyed), and the 1
 * that a group of zeros gets, if there are other scales. */
static void add_scales(int64_t count, const float *scale, struct oct_stats *stats)
{
    float least = INFINITY, most = 0;
    bool has_one = false;

    for (int64_t i = 0; i < count; i++) {
        has_one |= scale[i] == 1;
        if (!isfinite(scale[i]) || scale[i] == 1)
            continue;
        least = scale[i] < least ? scale[i] : least;
        most = scale[i] > most ? scale[i] : most;
    }
    if (least > most) { /* no others */
        if (!has_one)
            return;
        least = most = 1;
    }
    struct octet_operand_stats *f = &stats->figures;
    f->scale_min = stats->has_scale && f->scale_min < least ? f->scale_min : least;
    f->scale_max = stats->has_scale && f->scale_max > most ? f->scale_max : most;
    stats->has_scale = true;
}

static enum octet_status prepare(const struct octet_compute *compute,
                                 const struct octet_quantized *quantized,
                                 struct octet_array *values, struct survey *s,
                                 struct oct_stats *stats, struct octet_error *err)
{
    int64_t count = octet_array_elements(&quantized->scale);
    float *inverse = OCTET_NEW_ARRAY(compute->arena, count, float);
    enum octet_status status = oct_scale_values(compute, &quantized->scale, &s->scale, err);

    if (status == OCTET_OK && !inverse)
        return octet_arena_exhausted(compute->arena, err);
    s->codes = &quantized->qvalue;
    if (status == OCTET_OK && quantized->zero_point.data) {
        status = oct_code_values(compute, quantized, values, err);
        s->codes = values;
        s->largest = 0; /* the range is not symmetric */
    }
    if (status != OCTET_OK)
        return status;
    for (int64_t i = 0; i < count; i++)
        inverse[i] = 1.0f / s->scale[i];
    s->inverse = inverse;
    s->scale_dtype = quantized->scale.dtype;
    add_scales(count, s->scale, stats);
    return OCTET_OK;
}

static void join(const struct share *share, struct oct_stats *stats)
{
    struct octet_operand_stats *f = &stats->figures;

    f->amax = share->amax > f->amax ? share->amax : f->amax;
    f->saturated += share->saturated;
    f->underflowed += share->underflowed;
    f->nonfinite += share->nonfinite;
    f->destroyed += share->destroyed;
    stats->signal += share->signal;
    stats->noise += share->noise;
}

enum octet_status oct_stats_add(const struct octet_compute *compute,
                                const struct octet_array *array,
                                const struct octet_quantized *quantized, float largest,
                                struct oct_stats *stats, struct octet_error *err)
{
    const int64_t one[OCTET_ARRAY_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct oct_layout layout =
        oct_layout_make(array->rank, array->dim, quantized ? quantized->scale.dim : one);
    size_t items = oct_layout_items(&layout);
    struct survey s = {.kernels = compute->workers->kernels,
                       .array = array,
                       .layout = &layout,
                       .largest = largest,
                       .shares = OCTET_NEW_ARRAY(compute->arena, items, struct share)};
    struct octet_array values;
    enum octet_status status = OCTET_OK;

    if (!s.shares)
        return octet_arena_exhausted(compute->arena, err);
    if (quantized)
        status = prepare(compute, quantized, &values, &s, stats, err);
    if (status == OCTET_OK)
        status = oct_layout_each(compute, &layout, look_at, &s, err);
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
