/* Attention's softmax and division.
 *
 * A query sees the keys of its own segment that are not behind it, and with a window only the last
 * `window` of them; other scores are replaced by -0.7 * FLT_MAX. Exponentials are not divided by
 * their sum here: that happens to the weighted values. A sink is one more score of each row, seen
 * by the maximum and the sum only. Source: MaxText, layers/attention_op.py
 * (generate_attention_mask, apply_mask_to_logits, compute_local_attention).
 *
 * Decision: what is masked is not computed. exp of a replaced score is exactly 0 whenever a row's
 * maximum is a real score, and each query sees at least itself; so a row is its keys from the begin
 * of its segment to itself, begun at a multiple of 16 to keep the order of the sum. Only where an
 * id occurs in several runs each key is looked at. */
#include "exec/softmax.h"

#include <string.h>

#include "base/float_env.h"
#include "exec/piece.h"

static const float masked = -0x1.666664p127f; /* -0.7 * FLT_MAX, in f32 */

enum { RANGES = 64 };

void oct_divide_row(size_t n, const float *x, float divisor, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / divisor;
}

void oct_round_values(const struct oct_kernels *kernels, enum octet_dtype dtype, int64_t n,
                      float *values)
{
    uint16_t codes[OCT_PIECE];

    for (int64_t at = 0; dtype == OCTET_DTYPE_BF16 && at < n; at += OCT_PIECE) {
        size_t count = (size_t)(n - at < OCT_PIECE ? n - at : OCT_PIECE);
        kernels->cast(dtype, count, values + at, codes);
        kernels->decode(dtype, count, codes, values + at);
    }
}

/* ---- Setting up ---- */

/* Ids that grow from run to run, with padding (0) at the end, occur in one run each. */
static bool find_runs(const int32_t *ids, int64_t length, int32_t *runs)
{
    bool recurs = false;

    for (int64_t i = 0; i < length; i++) {
        runs[i] = i && ids[i] == ids[i - 1] ? runs[i - 1] : (int32_t)i;
        if (runs[i] == i && i)
            recurs |= ids[i - 1] == 0 || (ids[i] != 0 && ids[i] <= ids[i - 1]);
    }
    return recurs;
}

enum octet_status oct_softmax_prepare(const struct oct_op_call *call, int first,
                                      enum octet_dtype dtype, struct oct_softmax *out,
                                      struct octet_error *err)
{
    const struct octet_array *ids = &call->in[first], *sinks = &call->in[first + 2];
    const int64_t batch = ids->dim[0], length = ids->dim[1];
    float *values = NULL;

    *out = (struct oct_softmax){.kernels = oct_call_kernels(call),
                                .math = oct_call_kernels(call)->math,
                                .dtype = dtype,
                                .window = call->node->attributes.softmax.window,
                                .soft_cap = call->node->attributes.softmax.soft_cap,
                                .length = length,
                                .segments = ids->data};
    if (!(out->runs = oct_call_scratch(call, batch * length, sizeof *out->runs, err)) ||
        !(out->recurs = oct_call_scratch(call, batch, sizeof *out->recurs, err)))
        return OCTET_RESOURCE_EXHAUSTED;
    for (int64_t b = 0; b < batch; b++)
        out->recurs[b] = find_runs(out->segments + b * length, length, out->runs + b * length);
    if (call->node->input_count <= 3)
        return OCTET_OK;
    const int64_t heads = octet_array_elements(sinks);
    if (!(values = oct_call_scratch(call, heads, sizeof(float), err)))
        return OCTET_RESOURCE_EXHAUSTED;
    out->kernels->decode(sinks->dtype, (size_t)heads, sinks->data, values);
    oct_round_values(out->kernels, dtype, heads, values);
    out->sinks = values;
    return OCTET_OK;
}

size_t oct_softmax_bytes(int64_t batch, int64_t heads, int64_t length)
{
    return (size_t)(batch * (length + 1) + heads) * 4 + 256;
}

/* ---- A row ---- */

static int64_t first_seen(const struct oct_softmax *s, int64_t query)
{
    return s->window > 0 && query >= s->window ? query - s->window + 1 : 0;
}

int64_t oct_softmax_from(const struct oct_softmax *s, int64_t batch, int64_t query)
{
    const int64_t run = s->recurs[batch] ? 0 : s->runs[batch * s->length + query];
    const int64_t seen = first_seen(s, query);

    return run > seen ? run : seen;
}

static void cap_scores(const struct oct_softmax *s, int64_t n, float *x)
{
    s->math->scale((size_t)n, x, 1 / s->soft_cap, x);
    s->math->tanh((size_t)n, x, x);
    s->math->scale((size_t)n, x, s->soft_cap, x);
    oct_round_values(s->kernels, s->dtype, n, x);
}

static float exp_of(const struct oct_softmax *s, float x)
{
    float e;

    s->math->exp(1, &x, &e);
    return e;
}

float oct_softmax_sink_slope(const struct oct_softmax *s, int64_t head, float maximum)
{
    return exp_of(s, s->sinks[head] - maximum);
}

struct oct_softmax_row oct_softmax_forward_row(const struct oct_softmax *s, int64_t batch,
                                               int64_t head, int64_t query, int64_t first,
                                               int64_t end, float *x)
{
    const int32_t *ids = s->segments + batch * s->length;
    const int64_t start = oct_softmax_from(s, batch, query);
    const int64_t low = start / 16 * 16 > first ? start / 16 * 16 : first, n = query + 1 - low;
    float *row = x + (low - first);
    struct oct_softmax_row out;

    if (s->soft_cap > 0)
        cap_scores(s, n, row);
    for (int64_t i = 0; i < start - low; i++)
        row[i] = masked;
    for (int64_t key = start; s->recurs[batch] && key <= query; key++)
        if (ids[key] != ids[query])
            row[key - low] = masked;
    out.maximum = s->math->maximum((size_t)n, row);
    if (s->sinks && s->sinks[head] > out.maximum)
        out.maximum = s->sinks[head];
    out.sum = s->math->exp_sum((size_t)n, row, out.maximum, row);
    if (s->sinks)
        out.sum += oct_softmax_sink_slope(s, head, out.maximum);
    oct_round_values(s->kernels, s->dtype, 1, &out.sum);
    memset(x, 0, (size_t)(low - first) * sizeof(float));
    memset(row + n, 0, (size_t)(end - query - 1) * sizeof(float));
    return out;
}

/* With a cap, scores come back from their exponentials: capped = maximum + log exp. */
static void uncap(const struct oct_softmax *s, int64_t n, const float *exps, float maximum,
                  float *g)
{
    float logs[OCT_PIECE];

    for (int64_t at = 0; at < n; at += OCT_PIECE) {
        const int64_t count = n - at < OCT_PIECE ? n - at : OCT_PIECE;
        s->math->log((size_t)count, exps + at, logs);
        for (int64_t i = 0; i < count; i++) {
            float t = (maximum + logs[i]) / s->soft_cap;
            g[at + i] = exps[at + i] > 0 ? oct_mul(g[at + i], 1 - t * t) : 0;
        }
    }
}

void oct_softmax_backward_row(const struct oct_softmax *s, int64_t n, const float *exps,
                              float maximum, float c, float *g)
{
    s->math->multiply((size_t)n, g, exps, g);
    s->math->add_scaled((size_t)n, exps, c, g);
    if (s->soft_cap > 0)
        uncap(s, n, exps, maximum, g);
}

/* ---- attention_softmax by itself: scores [b, kv, g, t, s] -> exps, sums [b, t, kv, g, 1] ---- */

struct softmax_op {
    struct oct_softmax s;
    struct octet_array scores, exps, sums; /* or their cotangents */
    struct octet_array gradient;
    const struct octet_array *saved_exps;
    float *maxima; /* [rows], saved where backward needs them; else NULL */
    int64_t rows, heads, length;
    float *buffers;    /* [RANGES, 2, length] */
    float *sink_parts; /* [rows] or NULL */
};

static char *row_of(const struct octet_array *array, int64_t row, int64_t length)
{
    return (char *)array->data + row * length * (int64_t)octet_dtype_bytes(array->dtype);
}

/* Place of the sum of row ((b * heads + head) * length + query). */
static int64_t sum_place(const struct softmax_op *o, int64_t row)
{
    const int64_t query = row % o->length, head = row / o->length % o->heads;
    return (row / o->length / o->heads * o->length + query) * o->heads + head;
}

static bool keeps_maxima(const struct oct_node *node)
{
    return node->input_count > 3 || node->attributes.softmax.soft_cap > 0;
}

static void forward_rows(void *user, int64_t range, int64_t end)
{
    const struct softmax_op *o = user;
    const int64_t rows = (o->rows + RANGES - 1) / RANGES, n = o->length;
    float *x = o->buffers + range * 2 * n;

    (void)end;
    for (int64_t row = range * rows; row < o->rows && row < (range + 1) * rows; row++) {
        o->s.kernels->decode(o->scores.dtype, (size_t)n, row_of(&o->scores, row, n), x);
        struct oct_softmax_row result = oct_softmax_forward_row(
            &o->s, row / n / o->heads, row / n % o->heads, row % n, 0, n, x);
        o->s.kernels->cast(o->exps.dtype, (size_t)n, x, row_of(&o->exps, row, n));
        oct_piece_write(o->s.kernels, &o->sums, sum_place(o, row), 1, &result.sum);
        if (o->maxima)
            o->maxima[row] = result.maximum;
    }
}

static void backward_rows(void *user, int64_t range, int64_t end)
{
    const struct softmax_op *o = user;
    const struct oct_kernels *kernels = o->s.kernels;
    const int64_t rows = (o->rows + RANGES - 1) / RANGES, n = o->length;
    float *exps = o->buffers + range * 2 * n, *g = exps + n;

    (void)end;
    for (int64_t row = range * rows; row < o->rows && row < (range + 1) * rows; row++) {
        float c = 0, maximum = o->maxima ? o->maxima[row] : 0;
        if (o->sums.data)
            kernels->decode(o->sums.dtype, 1, row_of(&o->sums, sum_place(o, row), 1), &c);
        if (o->sink_parts)
            o->sink_parts[row] =
                oct_mul(c, oct_softmax_sink_slope(&o->s, row / n % o->heads, maximum));
        if (!o->gradient.data)
            continue;
        kernels->decode(o->saved_exps->dtype, (size_t)n, row_of(o->saved_exps, row, n), exps);
        if (o->exps.data)
            kernels->decode(o->exps.dtype, (size_t)n, row_of(&o->exps, row, n), g);
        else
            memset(g, 0, (size_t)n * sizeof(float));
        oct_softmax_backward_row(&o->s, n, exps, maximum, c, g);
        kernels->cast(o->gradient.dtype, (size_t)n, g, row_of(&o->gradient, row, n));
    }
}

static enum octet_status prepare(const struct oct_op_call *call, struct softmax_op *o,
                                 struct octet_error *err)
{
    const struct octet_array *scores = &call->in[0];
    enum octet_status status = oct_softmax_prepare(call, 1, scores->dtype, &o->s, err);

    o->length = scores->dim[4];
    o->heads = scores->dim[1] * scores->dim[2];
    o->rows = scores->dim[0] * o->heads * o->length;
    o->scores = *scores;
    o->maxima = keeps_maxima(call->node) ? call->saved : NULL;
    if (status == OCTET_OK &&
        !(o->buffers = oct_call_scratch(call, RANGES * 2 * o->length, sizeof(float), err)))
        return OCTET_RESOURCE_EXHAUSTED;
    return status;
}

enum octet_status oct_attention_softmax_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct softmax_op o = {.exps = call->out[0], .sums = call->out[1]};
    enum octet_status status = prepare(call, &o, err);

    if (status != OCTET_OK || o.rows == 0)
        return status;
    return oct_ranges(call, RANGES, 1, 8 * o.rows * o.length, forward_rows, &o, err);
}

/* A sink's gradient is its sum over rows, in order. */
static void sum_sinks(const struct softmax_op *o, const struct octet_array *out)
{
    for (int64_t head = 0; head < o->heads; head++) {
        double sum = 0;
        for (int64_t row = 0; row < o->rows; row++)
            if (row / o->length % o->heads == head)
                sum += (double)o->sink_parts[row];
        float value = (float)sum;
        o->s.kernels->cast(out->dtype, 1, &value, row_of(out, head, 1));
    }
}

enum octet_status oct_attention_softmax_vjp(struct oct_op_call *call,
                                            const struct octet_array *cotangent,
                                            struct octet_array *gradient, struct octet_error *err)
{
    struct softmax_op o = {.exps = cotangent[0],
                           .sums = cotangent[1],
                           .gradient = gradient[0],
                           .saved_exps = &call->out[0]};
    const bool has_sinks = call->node->input_count > 3 && gradient[3].data;
    enum octet_status status = prepare(call, &o, err);

    if (status == OCTET_OK && has_sinks &&
        !(o.sink_parts = oct_call_scratch(call, o.rows, sizeof(float), err)))
        return OCTET_RESOURCE_EXHAUSTED;
    if (status == OCTET_OK)
        status = oct_ranges(call, RANGES, 1, 8 * o.rows * o.length, backward_rows, &o, err);
    if (status == OCTET_OK && has_sinks)
        sum_sinks(&o, &gradient[3]);
    return status;
}

static int64_t rows_of(const octet_graph *graph, const struct oct_node *node)
{
    const struct octet_shape *scores = &graph->tensors[node->inputs[0]].shape;
    return scores->dim[0] * scores->dim[1] * scores->dim[2] * scores->dim[3];
}

size_t oct_attention_softmax_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                                         const struct octet_rule *rule)
{
    (void)rule;
    return keeps_maxima(node) ? (size_t)rows_of(graph, node) * sizeof(float) : 0;
}

/* The exponentials; who may look where; sinks. */
int oct_attention_softmax_reads(const octet_graph *graph, const struct oct_node *node,
                                const struct octet_rule *rule)
{
    const int segment_ids = IN1, sinks = IN1 << 2;

    (void)graph;
    (void)rule;
    return OUT | segment_ids | (node->input_count > 3 ? sinks : 0);
}

size_t oct_attention_softmax_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                           const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *scores = &graph->tensors[node->inputs[0]].shape;
    const size_t sinks =
        backward && node->input_count > 3 ? (size_t)rows_of(graph, node) * sizeof(float) : 0;

    (void)rule;
    return OCT_SCRATCH_LOSS +
           oct_softmax_bytes(scores->dim[0], scores->dim[1] * scores->dim[2], scores->dim[4]) +
           RANGES * 2 * sizeof(float) * (size_t)scores->dim[4] + sinks;
}

/* ---- attention_normalize: values [.., d] / sums [.., 1] ---- */

struct normalize {
    const struct oct_kernels *kernels;
    struct octet_array values, sums, out; /* out: the result, or its cotangent */
    struct octet_array d_values, d_sums;
    int64_t width;
};

static float value_at(const struct normalize *n, const struct octet_array *array, int64_t i)
{
    float value;

    n->kernels->decode(array->dtype, 1, row_of(array, i, 1), &value);
    return value;
}

static void normalize_rows(void *user, int64_t first, int64_t end)
{
    const struct normalize *n = user;
    float in[OCT_PIECE], out[OCT_PIECE];

    for (int64_t row = first; row < end; row++) {
        const float sum = value_at(n, &n->sums, row);
        for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
            const int64_t count = n->width - at < OCT_PIECE ? n->width - at : OCT_PIECE;
            const int64_t place = row * n->width + at;
            float *y = oct_piece_place(&n->out, place, out);
            oct_divide_row((size_t)count, oct_piece_read(n->kernels, &n->values, place, count, in),
                           sum, y);
            oct_piece_write(n->kernels, &n->out, place, count, y);
        }
    }
}

/* d values = c / sum; d sum = - sum(d values * values) / sum */
static void normalize_rows_back(void *user, int64_t first, int64_t end)
{
    const struct normalize *n = user;
    float in[OCT_PIECE], c[OCT_PIECE], out[OCT_PIECE];

    for (int64_t row = first; row < end; row++) {
        const float sum = value_at(n, &n->sums, row);
        float products = 0;
        for (int64_t at = 0; at < n->width; at += OCT_PIECE) {
            const int64_t count = n->width - at < OCT_PIECE ? n->width - at : OCT_PIECE;
            const int64_t place = row * n->width + at;
            oct_divide_row((size_t)count, oct_piece_read(n->kernels, &n->out, place, count, c), sum,
                           out);
            products += n->kernels->math->sum_product(
                (size_t)count, out, oct_piece_read(n->kernels, &n->values, place, count, in));
            if (n->d_values.data)
                n->kernels->cast(n->d_values.dtype, (size_t)count, out,
                                 row_of(&n->d_values, place, 1));
        }
        products = -products / sum;
        if (n->d_sums.data)
            n->kernels->cast(n->d_sums.dtype, 1, &products, row_of(&n->d_sums, row, 1));
    }
}

static enum octet_status run_normalize(const struct oct_op_call *call, struct normalize *n,
                                       void (*rows)(void *, int64_t, int64_t),
                                       struct octet_error *err)
{
    const struct octet_array *values = &call->in[0];

    n->kernels = oct_call_kernels(call);
    n->values = *values;
    n->sums = call->in[1];
    n->width = values->dim[values->rank - 1];
    return oct_ranges(call, octet_array_elements(&n->sums), 8192 / (n->width + 1) + 1,
                      2 * octet_array_elements(values), rows, n, err);
}

enum octet_status oct_attention_normalize_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct normalize n = {.out = call->out[0]};
    return run_normalize(call, &n, normalize_rows, err);
}

enum octet_status oct_attention_normalize_vjp(struct oct_op_call *call,
                                              const struct octet_array *cotangent,
                                              struct octet_array *gradient, struct octet_error *err)
{
    struct normalize n = {.out = cotangent[0], .d_values = gradient[0], .d_sums = gradient[1]};
    return run_normalize(call, &n, normalize_rows_back, err);
}
