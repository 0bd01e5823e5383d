/* Activations (enum oct_activation) and soft_cap: x to cap * tanh(x / cap).
 *
 * All but softmax are elementwise. Softmax over the last axis keeps nothing: backward computes it
 * again. gpt-oss's two: swiglu_oai is c sigmoid(1.702 c) with c = min(x, limit), clip_plus_one is x
 * clipped to +-limit, plus 1; DeepSeek's limit clips above before a gate. Where x is at a limit
 * half of the cotangent passes, as through JAX's minimum. Source: MaxText, layers/moe.py
 * (apply_ffn_activation), layers/linears.py. */
#include "exec/activation.h"

#include <math.h>
#include <string.h>

#include "base/float_env.h"
#include "exec/piece.h"
#include "exec/softmax.h"
#include "kernels/math.h"

struct activation {
    const struct oct_kernels *kernels;
    const struct oct_math *math;
    enum oct_activation function;
    enum oct_gate gate;
    float limit, cap;
    struct octet_array x, y, dx; /* forward: x to y; backward: x and the cotangent y to dx */
    struct octet_array up, d_up; /* of a gate: what the activation is multiplied with */
    int64_t count;               /* elements, or rows */
    int64_t width;               /* of a softmax's row */
    float *rows;                 /* softmax: [ranges, 2, width] */
};

static enum oct_gate gate_of(enum oct_activation function)
{
    switch (function) {
    case OCT_ACTIVATION_silu:
        return OCT_GATE_silu;
    case OCT_ACTIVATION_gelu:
        return OCT_GATE_gelu;
    case OCT_ACTIVATION_relu:
        return OCT_GATE_relu;
    default:
        return OCT_GATE_sigmoid;
    }
}

static bool is_gate(enum oct_activation function)
{
    return function == OCT_ACTIVATION_silu || function == OCT_ACTIVATION_gelu ||
           function == OCT_ACTIVATION_relu || function == OCT_ACTIVATION_sigmoid;
}

/* ---- gpt-oss ---- */

static float clipped(float x, float least, float most)
{
    return x > most ? most : x < least ? least : x;
}

/* What of a cotangent passes a limit. */
static float passing(float x, float least, float most)
{
    return x < most && x > least ? 1 : x == most || x == least ? 0.5f : 0;
}

static void swiglu(const struct activation *a, size_t n, const float *x, float *out)
{
    float c[OCT_PIECE], s[OCT_PIECE];

    for (size_t i = 0; i < n; i++)
        c[i] = x[i] > a->limit ? a->limit : x[i];
    a->math->scale(n, c, 1.702f, s);
    a->math->gate(OCT_GATE_sigmoid, n, s, s);
    a->math->multiply(n, c, s, out);
}

/* d/dc c sigmoid(1.702 c) is silu's slope at 1.702 c. */
static void swiglu_vjp(const struct activation *a, size_t n, const float *x, const float *y,
                       float *out)
{
    float c[OCT_PIECE], g[OCT_PIECE];

    for (size_t i = 0; i < n; i++) {
        c[i] = 1.702f * (x[i] > a->limit ? a->limit : x[i]);
        g[i] = y[i] * (x[i] < a->limit ? 1 : x[i] == a->limit ? 0.5f : 0);
    }
    a->math->gate_vjp(OCT_GATE_silu, n, c, g, out);
}

/* ---- Pieces ---- */

/* x where a gate has no limit. */
static const float *below_limit(const struct activation *a, size_t n, const float *x, float *buffer)
{
    if (a->limit <= 0)
        return x;
    for (size_t i = 0; i < n; i++)
        buffer[i] = x[i] > a->limit ? a->limit : x[i];
    return buffer;
}

static void forward_piece(const struct activation *a, size_t n, const float *x, float *out)
{
    if (is_gate(a->function)) {
        a->math->gate(a->gate, n, below_limit(a, n, x, out), out);
    } else if (a->function == OCT_ACTIVATION_swiglu_oai) {
        swiglu(a, n, x, out);
    } else if (a->function == OCT_ACTIVATION_clip_plus_one) {
        for (size_t i = 0; i < n; i++)
            out[i] = clipped(x[i], -a->limit, a->limit) + 1;
    } else if (a->function == OCT_ACTIVATION_clip) {
        for (size_t i = 0; i < n; i++)
            out[i] = clipped(x[i], -a->limit, a->limit);
    } else {
        memmove(out, x, n * sizeof(float));
    }
}

static void backward_piece(const struct activation *a, size_t n, const float *x, const float *y,
                           float *out)
{
    if (is_gate(a->function)) {
        a->math->gate_vjp(a->gate, n, below_limit(a, n, x, out), y, out);
        for (size_t i = 0; i < n && a->limit > 0; i++)
            out[i] *= passing(x[i], -INFINITY, a->limit);
    } else if (a->function == OCT_ACTIVATION_swiglu_oai) {
        swiglu_vjp(a, n, x, y, out);
    } else if (a->function == OCT_ACTIVATION_clip_plus_one || a->function == OCT_ACTIVATION_clip) {
        for (size_t i = 0; i < n; i++)
            out[i] = y[i] * passing(x[i], -a->limit, a->limit);
    } else {
        memmove(out, y, n * sizeof(float));
    }
}

static void cap_piece(const struct activation *a, size_t n, const float *x, float *out)
{
    a->math->scale(n, x, 1 / a->cap, out);
    a->math->tanh(n, out, out);
    a->math->scale(n, out, a->cap, out);
}

/* x is the result: its slope is 1 - (x / cap)^2. */
static void cap_piece_vjp(const struct activation *a, size_t n, const float *x, const float *y,
                          float *out)
{
    for (size_t i = 0; i < n; i++) {
        float t = x[i] / a->cap;
        out[i] = oct_mul(y[i], 1 - t * t);
    }
}

static void forward_range(void *user, int64_t first, int64_t end)
{
    const struct activation *a = user;
    float in[OCT_PIECE], out[OCT_PIECE];

    for (int64_t at = first; at < end; at += OCT_PIECE) {
        const int64_t n = end - at < OCT_PIECE ? end - at : OCT_PIECE;
        const float *x = oct_piece_read(a->kernels, &a->x, at, n, in);
        float *y = oct_piece_place(&a->y, at, out);
        (a->cap > 0 ? cap_piece : forward_piece)(a, (size_t)n, x, y);
        oct_piece_write(a->kernels, &a->y, at, n, y);
    }
}

static void backward_range(void *user, int64_t first, int64_t end)
{
    const struct activation *a = user;
    float in[OCT_PIECE], cotangent[OCT_PIECE], out[OCT_PIECE];

    for (int64_t at = first; at < end; at += OCT_PIECE) {
        const int64_t n = end - at < OCT_PIECE ? end - at : OCT_PIECE;
        const float *x = oct_piece_read(a->kernels, &a->x, at, n, in);
        const float *y = oct_piece_read(a->kernels, &a->y, at, n, cotangent);
        float *dx = oct_piece_place(&a->dx, at, out);
        (a->cap > 0 ? cap_piece_vjp : backward_piece)(a, (size_t)n, x, y, dx);
        oct_piece_write(a->kernels, &a->dx, at, n, dx);
    }
}

/* ---- Softmax ---- */

enum { SOFTMAX_RANGES = 64 };

static const float *softmax_row(const struct activation *a, int64_t row, float *out)
{
    const size_t n = (size_t)a->width;
    const float *x = oct_piece_read(a->kernels, &a->x, row * a->width, a->width, out);
    float sum = a->math->exp_sum(n, x, a->math->maximum(n, x), out);

    for (size_t i = 0; i < n; i++)
        out[i] /= sum;
    return out;
}

/* Range `first` of a fixed number; dx without data: forward. */
static void softmax_range(void *user, int64_t first, int64_t end)
{
    const struct activation *a = user;
    const int64_t rows = (a->count + SOFTMAX_RANGES - 1) / SOFTMAX_RANGES;
    const size_t n = (size_t)a->width;

    (void)end;
    float *p = a->rows + first * 2 * a->width, *g = p + a->width;
    for (int64_t row = first * rows; row < a->count && row < (first + 1) * rows; row++) {
        const struct octet_array *to = a->dx.data ? &a->dx : &a->y;
        softmax_row(a, row, p);
        if (a->dx.data) { /* p (y - sum(p y)) */
            const float *y = oct_piece_read(a->kernels, &a->y, row * a->width, a->width, g);
            float sum = a->math->sum_product(n, p, y);
            for (size_t i = 0; i < n; i++)
                p[i] = oct_mul(p[i], y[i] - sum);
        }
        a->kernels->cast(to->dtype, n, p,
                         (char *)to->data + row * a->width * (int64_t)octet_dtype_bytes(to->dtype));
    }
}

static enum octet_status run_softmax(const struct oct_op_call *call, struct activation *a,
                                     struct octet_error *err)
{
    const int64_t elements = a->count;

    a->width = a->x.dim[a->x.rank - 1];
    if (elements == 0)
        return OCTET_OK;
    a->count = elements / a->width;
    a->rows = oct_call_scratch(call, SOFTMAX_RANGES * 2 * a->width, sizeof(float), err);
    if (!a->rows)
        return OCTET_RESOURCE_EXHAUSTED;
    return oct_ranges(call, SOFTMAX_RANGES, 1, 8 * elements, softmax_range, a, err);
}

size_t oct_activation_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                    const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *x = &graph->tensors[node->inputs[0]].shape;

    (void)rule;
    (void)backward;
    if (node->attributes.activation.function != OCT_ACTIVATION_softmax)
        return OCT_SCRATCH_LOSS;
    return OCT_SCRATCH_LOSS + SOFTMAX_RANGES * 2 * sizeof(float) * (size_t)x->dim[x->rank - 1];
}

/* ---- The ops ---- */

static struct activation prepare(const struct oct_op_call *call, const struct octet_array *x,
                                 const struct octet_array *y)
{
    const union oct_attributes *attributes = &call->node->attributes;
    struct activation a = {.kernels = oct_call_kernels(call),
                           .math = oct_call_kernels(call)->math,
                           .x = *x,
                           .y = *y,
                           .count = octet_array_elements(x)};

    if (call->node->op == OCT_OP_soft_cap) {
        a.cap = attributes->cap;
        return a;
    }
    a.function = attributes->activation.function;
    a.gate = gate_of(a.function);
    a.limit = attributes->activation.limit;
    return a;
}

static enum octet_status run(const struct oct_op_call *call, struct activation *a,
                             struct octet_error *err)
{
    if (a->cap == 0 && a->function == OCT_ACTIVATION_softmax)
        return run_softmax(call, a, err);
    return oct_ranges(call, a->count, 4 * OCT_PIECE, 4 * a->count,
                      a->dx.data ? backward_range : forward_range, a, err);
}

enum octet_status oct_activation_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct activation a = prepare(call, &call->in[0], &call->out[0]);
    return run(call, &a, err);
}

enum octet_status oct_activation_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                     struct octet_array *gradient, struct octet_error *err)
{
    struct activation a = prepare(call, &call->in[0], &cotangent[0]);

    a.dx = gradient[0];
    return a.dx.data ? run(call, &a, err) : OCTET_OK;
}

/* ---- activation(gate) * up: the bits of the two ops by themselves ---- */

/* The activation of a piece as its op would have written it. */
static const float *activated(const struct activation *a, int64_t n, const float *x, float *buffer)
{
    forward_piece(a, (size_t)n, x, buffer);
    oct_round_values(a->kernels, a->y.dtype, n, buffer);
    return buffer;
}

/* Is there a function that does both at once? */
static bool in_one(const struct activation *a)
{
    return is_gate(a->function) && a->limit <= 0;
}

static void gate_range(void *user, int64_t first, int64_t end)
{
    const struct activation *a = user;
    float in[OCT_PIECE], up[OCT_PIECE], out[OCT_PIECE];

    for (int64_t at = first; at < end; at += OCT_PIECE) {
        const int64_t n = end - at < OCT_PIECE ? end - at : OCT_PIECE;
        const float *x = oct_piece_read(a->kernels, &a->x, at, n, in);
        const float *u = oct_piece_read(a->kernels, &a->up, at, n, up);
        float *y = oct_piece_place(&a->y, at, out);
        if (in_one(a))
            a->math->gated(a->gate, a->y.dtype == OCTET_DTYPE_BF16, (size_t)n, x, u, y);
        else
            a->math->multiply((size_t)n, activated(a, n, x, out), u, y);
        oct_piece_write(a->kernels, &a->y, at, n, y);
    }
}

/* The two gradients of a piece one after the other, for any activation. */
static void differentiate(const struct activation *a, int64_t n, const float *x, const float *up,
                          const float *c, float *d_x, float *d_up)
{
    float buffer[OCT_PIECE];

    a->math->multiply((size_t)n, c, activated(a, n, x, buffer), d_up);
    a->math->multiply((size_t)n, c, up, buffer);
    oct_round_values(a->kernels, a->y.dtype, n, buffer);
    backward_piece(a, (size_t)n, x, buffer, d_x);
}

static void gate_range_back(void *user, int64_t first, int64_t end)
{
    const struct activation *a = user;
    float in[OCT_PIECE], up[OCT_PIECE], cotangent[OCT_PIECE], of_gate[OCT_PIECE], of_up[OCT_PIECE];

    for (int64_t at = first; at < end; at += OCT_PIECE) {
        const int64_t n = end - at < OCT_PIECE ? end - at : OCT_PIECE;
        const float *x = oct_piece_read(a->kernels, &a->x, at, n, in);
        const float *u = oct_piece_read(a->kernels, &a->up, at, n, up);
        const float *c = oct_piece_read(a->kernels, &a->y, at, n, cotangent);
        float *d_x = a->dx.data ? oct_piece_place(&a->dx, at, of_gate) : of_gate;
        float *d_up = a->d_up.data ? oct_piece_place(&a->d_up, at, of_up) : of_up;
        if (in_one(a))
            a->math->gated_vjp(a->gate, a->y.dtype == OCTET_DTYPE_BF16, (size_t)n, x, u, c, d_x,
                               d_up);
        else
            differentiate(a, n, x, u, c, d_x, d_up);
        if (a->dx.data)
            oct_piece_write(a->kernels, &a->dx, at, n, d_x);
        if (a->d_up.data)
            oct_piece_write(a->kernels, &a->d_up, at, n, d_up);
    }
}

enum octet_status oct_gate_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct activation a = prepare(call, &call->in[0], &call->out[0]);

    a.up = call->in[1];
    return oct_ranges(call, a.count, 4 * OCT_PIECE, 4 * a.count, gate_range, &a, err);
}

enum octet_status oct_gate_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                               struct octet_array *gradient, struct octet_error *err)
{
    struct activation a = prepare(call, &call->in[0], &cotangent[0]);

    a.up = call->in[1];
    a.dx = gradient[0];
    a.d_up = gradient[1];
    return oct_ranges(call, a.count, 4 * OCT_PIECE, 8 * a.count, gate_range_back, &a, err);
}

enum octet_status oct_soft_cap_forward(struct oct_op_call *call, struct octet_error *err)
{
    return oct_activation_forward(call, err);
}

enum octet_status oct_soft_cap_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                   struct octet_array *gradient, struct octet_error *err)
{
    struct activation a = prepare(call, &call->out[0], &cotangent[0]);

    a.dx = gradient[0];
    return a.dx.data ? run(call, &a, err) : OCTET_OK;
}
