/* RMS norm and layer norm over the last axis.
 *
 * With n = (x - mean) * r, r = 1 / sqrt(mean of (x - mean)^2 + epsilon), where an RMS norm takes
 * the mean to be 0: RMS norm gives R(R(n) * (R(scale) + offset)), R rounds to the result's type;
 * layer norm gives R(n * (scale + offset) + bias). Sources: MaxText, layers/normalizations.py
 * (RMSNorm); flax.nnx.LayerNorm.
 *
 * Decision: backward computes r again instead of keeping it: one pass over x, which it reads
 * anyway. The scale's gradient is summed over rows in a fixed number of parts, so that threads can
 * share it and the order does not depend on them. */
#include "exec/norm.h"

#include <math.h>
#include <string.h>

#include "exec/piece.h"
#include "kernels/math.h"

enum { PARTS = 16, SCALE = 1, BIAS = 2 };

struct norm {
    const struct oct_kernels *kernels;
    const struct oct_math *math;
    bool centered; /* layer norm */
    float epsilon;
    int64_t rows, width, part_rows;
    struct octet_array x, y;         /* y: the result, or its cotangent */
    struct octet_array dx;           /* data NULL: not wanted */
    const float *scale;              /* [width], offset added; NULL: none */
    const float *bias;               /* [width] or NULL */
    float *scale_parts, *bias_parts; /* [parts, width]; NULL: not wanted */
};

struct row {
    float mean, r;
};

static int64_t piece_of(const struct norm *n, int64_t at)
{
    return n->width - at < OCT_PIECE ? n->width - at : OCT_PIECE;
}

static void subtract(const float *x, float mean, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = x[i] - mean;
}

static struct row measure(const struct norm *n, int64_t row)
{
    struct row result = {0, 0};
    float buffer[OCT_PIECE], sum = 0;
    const int64_t first = row * n->width;

    for (int64_t at = 0; n->centered && at < n->width; at += OCT_PIECE)
        sum += n->math->sum((size_t)piece_of(n, at),
                            oct_piece_read(n->kernels, &n->x, first + at, piece_of(n, at), buffer));
    result.mean = sum / (float)n->width;
    sum = 0;
    for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
        const int64_t count = piece_of(n, at);
        const float *x = oct_piece_read(n->kernels, &n->x, first + at, count, buffer);
        if (n->centered) {
            subtract(x, result.mean, count, buffer);
            x = buffer;
        }
        sum += n->math->sum_product((size_t)count, x, x);
    }
    result.r = 1 / sqrtf(sum / (float)n->width + n->epsilon);
    return result;
}

/* (x - mean) * r of one piece. */
static void normalize(const struct norm *n, struct row stats, const float *x, int64_t count,
                      float *out)
{
    if (n->centered) {
        subtract(x, stats.mean, count, out);
        x = out;
    }
    n->math->scale((size_t)count, x, stats.r, out);
}

static void round_to(const struct norm *n, enum octet_dtype dtype, int64_t count, float *values)
{
    uint16_t codes[OCT_PIECE];

    if (dtype == OCTET_DTYPE_F32)
        return;
    n->kernels->cast(dtype, (size_t)count, values, codes);
    n->kernels->decode(dtype, (size_t)count, codes, values);
}

static void forward_rows(void *user, int64_t first, int64_t end)
{
    const struct norm *n = user;
    float in[OCT_PIECE], out[OCT_PIECE];

    for (int64_t row = first; row < end; row++) {
        const struct row stats = measure(n, row);
        for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
            const int64_t count = piece_of(n, at), place = row * n->width + at;
            float *y = oct_piece_place(&n->y, place, out);
            normalize(n, stats, oct_piece_read(n->kernels, &n->x, place, count, in), count, y);
            if (n->scale) {
                if (!n->centered)
                    round_to(n, n->y.dtype, count, y);
                n->math->multiply((size_t)count, y, n->scale + at, y);
            }
            if (n->bias)
                n->math->add((size_t)count, y, n->bias + at, y);
            oct_piece_write(n->kernels, &n->y, place, count, y);
        }
    }
}

/* A piece of what backward works with: n, and g = cotangent * scale. */
static void read_back(const struct norm *n, struct row stats, int64_t row, int64_t at,
                      float *normed, float *g)
{
    const int64_t count = piece_of(n, at), place = row * n->width + at;
    const float *c = oct_piece_read(n->kernels, &n->y, place, count, g);

    normalize(n, stats, oct_piece_read(n->kernels, &n->x, place, count, normed), count, normed);
    if (n->scale)
        n->math->multiply((size_t)count, c, n->scale + at, g);
    else if (c != g)
        memcpy(g, c, (size_t)count * sizeof(float));
}

/* dx = r (g - mean(g n) n [- mean(g)]) */
static void backward_input(const struct norm *n, struct row stats, int64_t row)
{
    float normed[OCT_PIECE], g[OCT_PIECE], products = 0, sum = 0;

    for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
        const size_t count = (size_t)piece_of(n, at);
        read_back(n, stats, row, at, normed, g);
        products += n->math->sum_product(count, g, normed);
        if (n->centered)
            sum += n->math->sum(count, g);
    }
    for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
        const int64_t count = piece_of(n, at), place = row * n->width + at;
        if (n->width > OCT_PIECE)
            read_back(n, stats, row, at, normed, g);
        n->math->add_scaled((size_t)count, normed, -products / (float)n->width, g);
        if (n->centered)
            subtract(g, sum / (float)n->width, count, g);
        float *dx = oct_piece_place(&n->dx, place, g);
        n->math->scale((size_t)count, g, stats.r, dx);
        oct_piece_write(n->kernels, &n->dx, place, count, dx);
    }
}

/* The scale's gradient sums cotangent * n, n rounded as forward multiplied it; the bias' sums
 * cotangents. */
static void backward_parameters(const struct norm *n, struct row stats, int64_t row, int64_t part)
{
    float normed[OCT_PIECE], buffer[OCT_PIECE];

    for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
        const int64_t count = piece_of(n, at), place = row * n->width + at;
        const float *c = oct_piece_read(n->kernels, &n->y, place, count, buffer);
        if (n->scale_parts) {
            normalize(n, stats, oct_piece_read(n->kernels, &n->x, place, count, normed), count,
                      normed);
            if (!n->centered)
                round_to(n, n->y.dtype, count, normed);
            n->math->multiply_add((size_t)count, c, normed, n->scale_parts + part * n->width + at);
        }
        if (n->bias_parts) {
            float *sums = n->bias_parts + part * n->width + at;
            n->math->add((size_t)count, sums, c, sums);
        }
    }
}

static void backward_parts(void *user, int64_t first, int64_t end)
{
    const struct norm *n = user;

    for (int64_t part = first; part < end; part++)
        for (int64_t row = part * n->part_rows; row < n->rows && row < (part + 1) * n->part_rows;
             row++) {
            const struct row stats = measure(n, row);
            if (n->dx.data)
                backward_input(n, stats, row);
            if (n->scale_parts || n->bias_parts)
                backward_parameters(n, stats, row, part);
        }
}

/* ---- Setting up ---- */

/* A parameter as the op sees it, with the offset added; NULL with an error when memory is short. */
static float *parameter(const struct oct_op_call *call, const struct octet_array *from,
                        enum octet_dtype dtype, float offset, struct octet_error *err)
{
    const struct oct_kernels *kernels = oct_call_kernels(call);
    const int64_t count = octet_array_elements(from);
    float *values = oct_call_scratch(call, count, sizeof(float), err);

    for (int64_t at = 0; values && at < count; at += OCT_PIECE) {
        const int64_t some = count - at < OCT_PIECE ? count - at : OCT_PIECE;
        float buffer[OCT_PIECE];
        const float *piece = oct_piece_read_as(kernels, from, dtype, at, some, buffer);
        for (int64_t i = 0; i < some; i++)
            values[at + i] = piece[i] + offset;
    }
    return values;
}

static enum octet_status prepare(const struct oct_op_call *call, struct norm *n,
                                 struct octet_error *err)
{
    const struct oct_node *node = call->node;
    const struct octet_array *x = &call->in[0];

    *n = (struct norm){.kernels = oct_call_kernels(call),
                       .math = oct_call_kernels(call)->math,
                       .centered = node->op == OCT_OP_layer_norm,
                       .epsilon = node->attributes.norm.epsilon,
                       .rows = oct_rows(x),
                       .width = x->dim[x->rank - 1],
                       .x = *x};
    n->part_rows = (n->rows + PARTS - 1) / PARTS;
    if (node->input_count > SCALE) {
        n->scale = parameter(call, &call->in[SCALE], call->out[0].dtype,
                             node->attributes.norm.offset, err);
        if (!n->scale)
            return OCTET_RESOURCE_EXHAUSTED;
    }
    if (node->input_count > BIAS && call->in[BIAS].data) { /* backward does not read it */
        n->bias = parameter(call, &call->in[BIAS], call->out[0].dtype, 0, err);
        if (!n->bias)
            return OCTET_RESOURCE_EXHAUSTED;
    }
    return OCTET_OK;
}

enum octet_status oct_norm_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct norm n;
    enum octet_status status = prepare(call, &n, err);

    if (status != OCTET_OK)
        return status;
    n.y = call->out[0];
    const int64_t grain = n.width > 0 ? 16384 / n.width : 1;
    return oct_ranges(call, n.rows, grain, n.rows * n.width, forward_rows, &n, err);
}

static enum octet_status make_parts(const struct oct_op_call *call,
                                    const struct octet_array *wanted, const struct norm *n,
                                    float **parts, struct octet_error *err)
{
    if (!wanted->data)
        return OCTET_OK;
    *parts = oct_call_scratch(call, PARTS * n->width, sizeof(float), err);
    return *parts ? OCTET_OK : OCTET_RESOURCE_EXHAUSTED;
}

static void sum_parts(const struct norm *n, float *parts, const struct octet_array *out)
{
    if (!parts)
        return;
    for (int part = 1; part < PARTS; part++)
        n->math->add((size_t)n->width, parts, parts + part * n->width, parts);
    oct_piece_write(n->kernels, out, 0, n->width, parts);
}

enum octet_status oct_norm_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                               struct octet_array *gradient, struct octet_error *err)
{
    const int inputs = call->node->input_count;
    struct norm n;
    enum octet_status status = prepare(call, &n, err);

    n.y = cotangent[0];
    n.dx = gradient[0];
    if (status == OCTET_OK && inputs > SCALE)
        status = make_parts(call, &gradient[SCALE], &n, &n.scale_parts, err);
    if (status == OCTET_OK && inputs > BIAS)
        status = make_parts(call, &gradient[BIAS], &n, &n.bias_parts, err);
    if (status == OCTET_OK)
        status = oct_ranges(call, PARTS, 1, 2 * n.rows * n.width, backward_parts, &n, err);
    if (status != OCTET_OK)
        return status;
    sum_parts(&n, n.scale_parts, &gradient[SCALE]);
    sum_parts(&n, n.bias_parts, &gradient[BIAS]);
    return OCTET_OK;
}

size_t oct_norm_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                              const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *x = &graph->tensors[node->inputs[0]].shape;
    const size_t width = (size_t)x->dim[x->rank - 1], parameters = (size_t)node->input_count - 1;

    (void)rule;
    return OCT_SCRATCH_LOSS + sizeof(float) * width * parameters * (backward ? PARTS + 1 : 1);
}
