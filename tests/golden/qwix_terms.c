/* Products by index. All four kinds of product are a space of loop variables; each variable moves
 * the three indices by its own strides, so that one odometer serves them all. */
#include "golden/qwix_terms.h"

#include <math.h>
#include <string.h>

#define LOOPS_MAX 24

struct loop {
    int64_t extent, l, r, o; /* strides in elements */
};
struct space {
    int count;
    struct loop loop[LOOPS_MAX];
};

static void strides_of(const struct octet_array *array, int64_t *stride)
{
    int64_t step = 1;

    for (int i = array->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= array->dim[i];
    }
}

static void add_loop(struct space *space, int64_t extent, int64_t l, int64_t r)
{
    space->loop[space->count++] = (struct loop){extent, l, r, 0};
}

/* Strides in out for the first `kept` loops, which are out's axes in order. */
static void number_out(struct space *space, int kept)
{
    int64_t step = 1;

    for (int i = kept - 1; i >= 0; i--) {
        space->loop[i].o = step;
        step *= space->loop[i].extent;
    }
}

static struct qwix_terms terms_new(octet_arena *arena, size_t count)
{
    return (struct qwix_terms){count, OCTET_NEW_ARRAY(arena, count + 1, uint32_t),
                               OCTET_NEW_ARRAY(arena, count + 1, uint32_t),
                               OCTET_NEW_ARRAY(arena, count + 1, uint32_t)};
}

static struct qwix_terms enumerate(octet_arena *arena, const struct space *space)
{
    int64_t total = 1, at[LOOPS_MAX] = {0}, l = 0, r = 0, o = 0;

    for (int i = 0; i < space->count; i++)
        total *= space->loop[i].extent;
    struct qwix_terms terms = terms_new(arena, (size_t)total);
    for (int64_t t = 0; t < total; t++) {
        terms.l[t] = (uint32_t)l, terms.r[t] = (uint32_t)r, terms.o[t] = (uint32_t)o;
        for (int i = space->count - 1; i >= 0; i--) {
            const struct loop *loop = &space->loop[i];
            l += loop->l, r += loop->r, o += loop->o;
            if (++at[i] < loop->extent)
                break;
            l -= loop->l * loop->extent, r -= loop->r * loop->extent, o -= loop->o * loop->extent;
            at[i] = 0;
        }
    }
    return terms;
}

static bool has(const int32_t *axes, int32_t count, int32_t axis)
{
    for (int32_t i = 0; i < count; i++)
        if (axes[i] == axis)
            return true;
    return false;
}

struct qwix_terms qwix_terms_of_dot(octet_arena *arena, const struct octet_array *lhs,
                                    const struct octet_array *rhs,
                                    const struct octet_dot_dims *dims)
{
    int64_t ls[OCTET_ARRAY_RANK_MAX], rs[OCTET_ARRAY_RANK_MAX];
    struct space space = {0};
    int32_t batches = dims->batch_count, contracting = dims->contracting_count;

    strides_of(lhs, ls);
    strides_of(rhs, rs);
    for (int32_t i = 0; i < batches; i++)
        add_loop(&space, lhs->dim[dims->lhs_batch[i]], ls[dims->lhs_batch[i]],
                 rs[dims->rhs_batch[i]]);
    for (int32_t a = 0; a < lhs->rank; a++)
        if (!has(dims->lhs_batch, batches, a) && !has(dims->lhs_contracting, contracting, a))
            add_loop(&space, lhs->dim[a], ls[a], 0);
    for (int32_t a = 0; a < rhs->rank; a++)
        if (!has(dims->rhs_batch, batches, a) && !has(dims->rhs_contracting, contracting, a))
            add_loop(&space, rhs->dim[a], 0, rs[a]);
    number_out(&space, space.count);
    for (int32_t i = 0; i < contracting; i++)
        add_loop(&space, lhs->dim[dims->lhs_contracting[i]], ls[dims->lhs_contracting[i]],
                 rs[dims->rhs_contracting[i]]);
    return enumerate(arena, &space);
}

struct qwix_terms qwix_terms_of_einsum(octet_arena *arena, const struct octet_array *lhs,
                                       const struct octet_array *rhs, const char *equation)
{
    int64_t ls[OCTET_ARRAY_RANK_MAX], rs[OCTET_ARRAY_RANK_MAX];
    const char *comma = strchr(equation, ','), *arrow = strstr(equation, "->");
    const char *pass[2] = {arrow + 2, equation};
    struct space space = {0};
    char seen[64] = "";

    strides_of(lhs, ls);
    strides_of(rhs, rs);
    for (int p = 0; p < 2; p++) {
        for (const char *c = pass[p]; *c && *c != '-'; c++) {
            if (*c == ',' || strchr(seen, *c))
                continue;
            const char *in_l = memchr(equation, *c, (size_t)(comma - equation));
            const char *in_r = memchr(comma + 1, *c, (size_t)(arrow - comma - 1));
            add_loop(&space, in_l ? lhs->dim[in_l - equation] : rhs->dim[in_r - comma - 1],
                     in_l ? ls[in_l - equation] : 0, in_r ? rs[in_r - comma - 1] : 0);
            seen[strlen(seen)] = *c;
        }
        if (!p)
            number_out(&space, space.count);
    }
    return enumerate(arena, &space);
}

struct qwix_terms qwix_terms_of_groups(octet_arena *arena, const struct octet_array *lhs,
                                       const struct octet_array *rhs, const int32_t *group_sizes,
                                       bool transpose_rhs)
{
    int64_t k = lhs->dim[1], n = transpose_rhs ? rhs->dim[1] : rhs->dim[2], row = 0;
    struct qwix_terms terms = terms_new(arena, (size_t)(lhs->dim[0] * k * n));
    size_t t = 0;

    for (int64_t g = 0; g < rhs->dim[0]; g++)
        for (int32_t i = 0; i < group_sizes[g]; i++, row++)
            for (int64_t kk = 0; kk < k; kk++)
                for (int64_t j = 0; j < n; j++, t++) {
                    terms.l[t] = (uint32_t)(row * k + kk);
                    terms.r[t] = (uint32_t)(g * k * n + (transpose_rhs ? j * k + kk : kk * n + j));
                    terms.o[t] = (uint32_t)(row * n + j);
                }
    terms.count = t;
    return terms;
}

/* Of one spatial axis: where in the image window element w of output position y falls; -1: padding.
 */
static int64_t image_place(const struct octet_conv_options *conv, int axis, int64_t y, int64_t w,
                           int64_t extent)
{
    int64_t at = y * conv->stride[axis] + w * conv->rhs_dilation[axis] - conv->padding_low[axis];

    if (at < 0 || at % conv->lhs_dilation[axis])
        return -1;
    at /= conv->lhs_dilation[axis];
    return at < extent ? at : -1;
}

struct qwix_terms qwix_terms_of_conv(octet_arena *arena, const struct octet_array *lhs,
                                     const struct octet_array *rhs,
                                     const struct octet_conv_options *conv, int64_t *out_dim)
{
    int s = conv->spatial_count;
    int64_t channels = rhs->dim[s], features = rhs->dim[s + 1];
    int64_t image[3] = {1, 1, 1}, window[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    struct octet_conv_options full = *conv;

    for (int i = 0; i < s; i++) {
        image[i] = lhs->dim[i + 1];
        window[i] = rhs->dim[i];
        int64_t dilated = image[i] ? (image[i] - 1) * conv->lhs_dilation[i] + 1 : 0;
        int64_t reach = (window[i] - 1) * conv->rhs_dilation[i] + 1;
        out[i] = (dilated + conv->padding_low[i] + conv->padding_high[i] - reach) / conv->stride[i];
        out[i] = out[i] < 0 ? 0 : out[i] + 1;
        out_dim[i + 1] = out[i];
    }
    for (int i = s; i < 3; i++)
        full.stride[i] = full.rhs_dilation[i] = full.lhs_dilation[i] = 1, full.padding_low[i] = 0;
    out_dim[0] = lhs->dim[0];
    out_dim[s + 1] = features;
    int64_t positions = out[0] * out[1] * out[2], taps = window[0] * window[1] * window[2];
    struct qwix_terms terms =
        terms_new(arena, (size_t)(lhs->dim[0] * positions * taps * channels * features));
    size_t t = 0;
    for (int64_t b = 0; b < lhs->dim[0]; b++)
        for (int64_t p = 0; p < positions; p++)
            for (int64_t w = 0; w < taps; w++) {
                int64_t y[3] = {p / (out[1] * out[2]), p / out[2] % out[1], p % out[2]};
                int64_t v[3] = {w / (window[1] * window[2]), w / window[2] % window[1],
                                w % window[2]};
                int64_t x = 0;
                bool inside = true;
                for (int i = 0; i < 3; i++) {
                    int64_t at = image_place(&full, i, y[i], v[i], image[i]);
                    inside = inside && at >= 0;
                    x = x * image[i] + at;
                }
                for (int64_t o = 0; inside && o < features; o++)
                    for (int64_t c = 0; c < channels; c++, t++) {
                        int64_t group = o / (features / conv->feature_groups);
                        terms.l[t] = (uint32_t)(((b * image[0] * image[1] * image[2] + x) *
                                                 channels * conv->feature_groups) +
                                                group * channels + c);
                        terms.r[t] = (uint32_t)((w * channels + c) * features + o);
                        terms.o[t] = (uint32_t)((b * positions + p) * features + o);
                    }
            }
    terms.count = t;
    return terms;
}

void qwix_terms_sum(const struct qwix_terms *terms, const uint32_t *target, const uint32_t *ia,
                    const double *a, const uint32_t *ib, const double *b, size_t n, double *value,
                    double *size)
{
    memset(value, 0, n * sizeof *value);
    memset(size, 0, n * sizeof *size);
    for (size_t i = 0; i < terms->count; i++) {
        double product = a[ia[i]] * b[ib[i]];
        value[target[i]] += product;
        size[target[i]] += fabs(product);
    }
}
