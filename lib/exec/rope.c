/* Rotation of queries and keys by angles that grow with the position, and sinusoidal encodings.
 *
 * rope: x [b, s, heads, d], positions [b, s]. Pair i of a head, (a, b), becomes (a cos - b sin,
 * a sin + b cos) of the angle position * frequency_i. Which elements are a pair, and where the
 * result lies, differs: the two halves of the head (default); neighbours (llama31); YaRN reads
 * neighbours or halves and writes halves, or neighbours where pairwise. Frequencies are rounded to
 * f32 where MaxText's are, and the angle too, since XLA takes the sine of an f32. Source: MaxText,
 * layers/embeddings.py.
 *
 * Decision: sines come from a table of the call, a row for each position that occurs (for each
 * token where positions are far apart), so that heads share them. VJP is the rotation back. */
#include "exec/rope.h"

#include <math.h>
#include <string.h>

#include "exec/piece.h"
#include "kernels/math.h"

enum { PAIRS = OCT_PIECE / 2 };

/* ---- Frequencies ---- */

static const double pi = 3.14159265358979323846;

/* Llama 3.1 stretches waves longer than the original context by 8, and blends between that and
 * waves of a quarter of it. */
static float stretched(float frequency)
{
    const float factor = 8, low = 1, high = 4, original = 8192;
    const float wavelength = (float)(2 * pi) / frequency;

    if (wavelength < original / high)
        return frequency;
    if (wavelength > original / low)
        return frequency / factor;
    float smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* The dimension that turns so often within the original context. */
static double correction(const union oct_attributes *a, int64_t d, double rotations)
{
    return (double)d * oct_exact_log((double)a->rope.original_positions / (rotations * 2 * pi)) /
           (2 * oct_exact_log((double)a->rope.max_timescale));
}

struct ramp {
    float low, width;
};

static struct ramp yarn_ramp(const union oct_attributes *a, int64_t d)
{
    double low = correction(a, d, (double)a->rope.beta_fast);
    double high = correction(a, d, (double)a->rope.beta_slow);

    if (a->rope.truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < (double)(d - 1) ? high : (double)(d - 1);
    if (low == high)
        high += 0.001;
    return (struct ramp){(float)low, (float)(high - low)};
}

static float yarn_frequency(const union oct_attributes *a, struct ramp ramp, float timescale,
                            int64_t i)
{
    float frequency = 1 / timescale, part = ((float)i - ramp.low) / ramp.width;
    float smooth = 1 - (part < 0 ? 0 : part > 1 ? 1 : part);

    return frequency / a->rope.factor * (1 - smooth) + frequency * smooth;
}

/* What a position is divided by (yarn: multiplied with) for the angle of pair i < half. */
static void find_rates(const union oct_attributes *a, int64_t half, float *rates)
{
    const int64_t d = 2 * half;
    const bool is_yarn = a->rope.kind == OCT_ROPE_yarn;
    const float least = is_yarn ? 1 : a->rope.min_timescale;
    const struct ramp ramp = is_yarn ? yarn_ramp(a, d) : (struct ramp){0, 1};

    for (int64_t i = 0; i < half; i++) {
        double ratio = (double)(a->rope.max_timescale / least);
        float timescale =
            least * (float)oct_exact_pow(ratio, (double)(float)(2.0 * (double)i / (double)d));
        if (a->rope.kind == OCT_ROPE_yarn)
            rates[i] = yarn_frequency(a, ramp, timescale, i);
        else if (a->rope.kind == OCT_ROPE_llama31)
            rates[i] = a->rope.scales ? 1 / stretched(1 / timescale) : timescale;
        else
            rates[i] = timescale * a->rope.linear_scaling;
    }
}

/* ---- The table ---- */

struct rotation {
    const struct oct_kernels *kernels;
    const union oct_attributes *attributes;
    struct octet_array from, to;
    bool from_pairs, to_pairs; /* neighbours, not halves */
    bool back;                 /* the VJP */
    int64_t tokens, heads, half;
    const int32_t *positions; /* [tokens] */
    float *rates;             /* [half] */
    float *cosines, *sines;   /* [rows, half] */
    int32_t *row_of;          /* [tokens] */
    int32_t *position_of;     /* [rows] */
    int64_t rows;
    float gain;  /* on sines and cosines */
    bool rounds; /* sines and cosines to from's type: the default kind */
};

/* A row for each position that occurs, in order; a row for each token where the range of positions
 * is wider than there are tokens. seen: [tokens] zeros. */
static void number_rows(struct rotation *r, int32_t *seen)
{
    int64_t least = r->positions[0], most = least;

    for (int64_t i = 1; i < r->tokens; i++) {
        least = r->positions[i] < least ? r->positions[i] : least;
        most = r->positions[i] > most ? r->positions[i] : most;
    }
    const bool dense = most - least < r->tokens;
    r->rows = 0;
    for (int64_t i = 0; i < r->tokens; i++) {
        int32_t *row = &seen[dense ? r->positions[i] - least : i];
        if (!*row) {
            r->position_of[r->rows++] = r->positions[i];
            *row = (int32_t)r->rows;
        }
        r->row_of[i] = *row - 1;
    }
}

static void fill_rows(void *user, int64_t first, int64_t end)
{
    const struct rotation *r = user;
    const bool divides = r->attributes->rope.kind != OCT_ROPE_yarn;

    for (int64_t row = first; row < end; row++) {
        const float position = (float)r->position_of[row];
        float *cosines = r->cosines + row * r->half, *sines = r->sines + row * r->half;
        for (int64_t i = 0; i < r->half; i++) {
            double sine, cosine;
            float angle = divides ? position / r->rates[i] : position * r->rates[i];
            oct_exact_sin_cos((double)angle, &sine, &cosine);
            cosines[i] = (float)cosine * r->gain;
            sines[i] = (float)sine * (r->back ? -r->gain : r->gain);
        }
        if (r->rounds)
            for (int64_t at = 0; at < r->half; at += OCT_PIECE) {
                uint16_t codes[OCT_PIECE];
                size_t count = (size_t)(r->half - at < OCT_PIECE ? r->half - at : OCT_PIECE);
                r->kernels->cast(OCTET_DTYPE_BF16, count, cosines + at, codes);
                r->kernels->decode(OCTET_DTYPE_BF16, count, codes, cosines + at);
                r->kernels->cast(OCTET_DTYPE_BF16, count, sines + at, codes);
                r->kernels->decode(OCTET_DTYPE_BF16, count, codes, sines + at);
            }
    }
}

/* ---- Rotating ---- */

/* Pairs [at, at + count) of the head that starts at element `head`. */
static void read_pairs(const struct rotation *r, int64_t head, int64_t at, int64_t count, float *a,
                       float *b, const float **first, const float **second)
{
    float buffer[2 * PAIRS];

    if (!r->from_pairs) {
        *first = oct_piece_read(r->kernels, &r->from, head + at, count, a);
        *second = oct_piece_read(r->kernels, &r->from, head + r->half + at, count, b);
        return;
    }
    const float *x = oct_piece_read(r->kernels, &r->from, head + 2 * at, 2 * count, buffer);
    for (int64_t i = 0; i < count; i++) {
        a[i] = x[2 * i];
        b[i] = x[2 * i + 1];
    }
    *first = a;
    *second = b;
}

static void write_pairs(const struct rotation *r, int64_t head, int64_t at, int64_t count,
                        const float *re, const float *im)
{
    float buffer[2 * PAIRS];

    if (!r->to_pairs) {
        oct_piece_write(r->kernels, &r->to, head + at, count, re);
        oct_piece_write(r->kernels, &r->to, head + r->half + at, count, im);
        return;
    }
    float *out = oct_piece_place(&r->to, head + 2 * at, buffer);
    for (int64_t i = 0; i < count; i++) {
        out[2 * i] = re[i];
        out[2 * i + 1] = im[i];
    }
    oct_piece_write(r->kernels, &r->to, head + 2 * at, 2 * count, out);
}

static void rotate_heads(void *user, int64_t first, int64_t end)
{
    const struct rotation *r = user;
    float a[PAIRS], b[PAIRS];

    for (int64_t index = first; index < end; index++) {
        const int64_t row = (int64_t)r->row_of[index / r->heads] * r->half;
        const int64_t head = index * 2 * r->half;
        for (int64_t at = 0; at < r->half; at += PAIRS) {
            const int64_t count = r->half - at < PAIRS ? r->half - at : PAIRS;
            const float *x, *y;
            read_pairs(r, head, at, count, a, b, &x, &y);
            float *re = r->to_pairs ? a : oct_piece_place(&r->to, head + at, a);
            float *im = r->to_pairs ? b : oct_piece_place(&r->to, head + r->half + at, b);
            r->kernels->math->rotate((size_t)count, x, y, r->cosines + row + at,
                                     r->sines + row + at, re, im);
            write_pairs(r, head, at, count, re, im);
        }
    }
}

/* ---- The op ---- */

static float gain_of(const union oct_attributes *a)
{
    if (a->rope.kind != OCT_ROPE_yarn || !a->rope.scales || a->rope.factor <= 1)
        return 1;
    return (float)(0.1 * oct_exact_log((double)a->rope.factor) + 1);
}

static enum octet_status allocate(const struct oct_op_call *call, struct rotation *r,
                                  int32_t **seen, struct octet_error *err)
{
    if ((r->rates = oct_call_scratch(call, r->half, sizeof(float), err)) &&
        (r->cosines = oct_call_scratch(call, r->tokens * r->half, sizeof(float), err)) &&
        (r->sines = oct_call_scratch(call, r->tokens * r->half, sizeof(float), err)) &&
        (r->row_of = oct_call_scratch(call, r->tokens, sizeof(int32_t), err)) &&
        (r->position_of = oct_call_scratch(call, r->tokens, sizeof(int32_t), err)) &&
        (*seen = oct_call_scratch(call, r->tokens, sizeof(int32_t), err)))
        return OCTET_OK;
    return OCTET_RESOURCE_EXHAUSTED;
}

static enum octet_status rotate(const struct oct_op_call *call, const struct octet_array *from,
                                const struct octet_array *to, bool back, struct octet_error *err)
{
    const union oct_attributes *a = &call->node->attributes;
    const bool is_default = a->rope.kind == OCT_ROPE_default;
    const bool pairs =
        a->rope.kind == OCT_ROPE_llama31 || (a->rope.kind == OCT_ROPE_yarn && a->rope.interleave);
    const bool gives_pairs = pairs && (a->rope.kind == OCT_ROPE_llama31 || a->rope.pairwise);
    const int64_t d = from->dim[from->rank - 1], heads = from->dim[from->rank - 2];
    struct rotation r = {.kernels = oct_call_kernels(call),
                         .attributes = a,
                         .from = *from,
                         .to = *to,
                         .from_pairs = back ? gives_pairs : pairs,
                         .to_pairs = back ? pairs : gives_pairs,
                         .back = back,
                         .tokens = octet_array_elements(&call->in[1]),
                         .heads = heads,
                         .half = d / 2,
                         .positions = call->in[1].data,
                         .gain = gain_of(a),
                         .rounds = is_default && from->dtype == OCTET_DTYPE_BF16};
    int32_t *seen;

    if (octet_array_elements(from) == 0)
        return OCTET_OK;
    enum octet_status status = allocate(call, &r, &seen, err);
    if (status != OCTET_OK)
        return status;
    find_rates(a, r.half, r.rates);
    number_rows(&r, seen);
    status = oct_ranges(call, r.rows, 16, 16 * r.rows * r.half, fill_rows, &r, err);
    if (status != OCTET_OK)
        return status;
    return oct_ranges(call, r.tokens * heads, 8192 / d + 1, octet_array_elements(from),
                      rotate_heads, &r, err);
}

enum octet_status oct_rope_forward(struct oct_op_call *call, struct octet_error *err)
{
    return rotate(call, &call->in[0], &call->out[0], false, err);
}

enum octet_status oct_rope_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                               struct octet_array *gradient, struct octet_error *err)
{
    return gradient[0].data ? rotate(call, &cotangent[0], &gradient[0], true, err) : OCTET_OK;
}

size_t oct_rope_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                              const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *x = &graph->tensors[node->inputs[0]].shape;
    const size_t tokens = (size_t)octet_shape_elements(&graph->tensors[node->inputs[1]].shape);
    const size_t half = (size_t)x->dim[x->rank - 1] / 2;

    (void)rule;
    (void)backward;
    return OCT_SCRATCH_LOSS + 4 * half + tokens * (8 * half + 12);
}

/* ---- sinusoid: sines of position / 10000^(i / (n - 1)), n = width / 2, then cosines ---- */

struct encoding {
    const struct oct_kernels *kernels;
    struct octet_array out;
    const int32_t *positions;
    const float *rates; /* [half] */
    int64_t half;
};

static void encode_tokens(void *user, int64_t first, int64_t end)
{
    const struct encoding *e = user;
    float sines[PAIRS], cosines[PAIRS];

    for (int64_t token = first; token < end; token++)
        for (int64_t at = 0; at < e->half; at += PAIRS) {
            const int64_t count = e->half - at < PAIRS ? e->half - at : PAIRS;
            const int64_t place = token * 2 * e->half + at;
            for (int64_t i = 0; i < count; i++) {
                double sine, cosine;
                float angle = (float)e->positions[token] * e->rates[at + i];
                oct_exact_sin_cos((double)angle, &sine, &cosine);
                sines[i] = (float)sine;
                cosines[i] = (float)cosine;
            }
            e->kernels->cast(e->out.dtype, (size_t)count, sines,
                             (char *)e->out.data +
                                 place * (int64_t)octet_dtype_bytes(e->out.dtype));
            e->kernels->cast(e->out.dtype, (size_t)count, cosines,
                             (char *)e->out.data +
                                 (place + e->half) * (int64_t)octet_dtype_bytes(e->out.dtype));
        }
}

enum octet_status oct_sinusoid_forward(struct oct_op_call *call, struct octet_error *err)
{
    const struct octet_array *out = &call->out[0];
    const int64_t half = out->dim[out->rank - 1] / 2;
    float *rates = oct_call_scratch(call, half, sizeof(float), err);
    struct encoding e = {oct_call_kernels(call), *out, call->in[0].data, rates, half};

    if (!rates)
        return OCTET_RESOURCE_EXHAUSTED;
    float step = (float)oct_exact_log(10000) / (float)(half - 1 > 1 ? half - 1 : 1);
    for (int64_t i = 0; i < half; i++)
        rates[i] = (float)oct_exact_exp((double)((float)i * -step));
    return oct_ranges(call, octet_array_elements(&call->in[0]), 4, 16 * octet_array_elements(out),
                      encode_tokens, &e, err);
}

size_t oct_sinusoid_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward)
{
    (void)graph;
    (void)rule;
    (void)backward;
    return OCT_SCRATCH_LOSS + 2 * (size_t)node->attributes.k;
}
