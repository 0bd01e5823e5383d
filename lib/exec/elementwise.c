/* Sums, products, scaling and casts, element by element.
 *
 * The second operand of add and multiply broadcasts: its trailing dimensions are the first's or 1.
 * It is seen in the result's type (a float32 bias of a bfloat16 layer is rounded first), as MaxText
 * casts parameters. Its gradient is the sum over what it was repeated for, in the order of memory,
 * in f64: these sums run over all tokens, and no order of f32 additions would be as exact. */
#include "exec/elementwise.h"

#include <string.h>

#include "exec/piece.h"
#include "kernels/math.h"

/* The first operand's axes, outermost first, with the steps of both operands; neighbours that both
 * operands walk through in one go are one axis. step 0: the second operand is repeated. */
struct axes {
    int rank; /* at least 1 */
    int64_t dim[OCTET_ARRAY_RANK_MAX], x_step[OCTET_ARRAY_RANK_MAX], y_step[OCTET_ARRAY_RANK_MAX];
};

static void append_axis(struct axes *axes, int64_t dim, int64_t x_step, int64_t y_step)
{
    int last = axes->rank - 1;

    if (dim == 1)
        return;
    if (axes->rank && axes->y_step[last] == y_step * dim) { /* 0 == 0 too */
        axes->dim[last] *= dim;
        axes->x_step[last] = x_step;
        axes->y_step[last] = y_step;
        return;
    }
    axes->dim[axes->rank] = dim;
    axes->x_step[axes->rank] = x_step;
    axes->y_step[axes->rank] = y_step;
    axes->rank++;
}

static struct axes axes_of(const struct octet_array *x, const struct octet_array *y)
{
    struct axes axes = {0};
    int missing = x->rank - y->rank;

    for (int i = 0; i < x->rank; i++) {
        bool repeated = i < missing || y->dim[i - missing] == 1;
        append_axis(&axes, x->dim[i], oct_dims_behind(x, i),
                    repeated ? 0 : oct_dims_behind(y, i - missing));
    }
    if (!axes.rank)
        axes = (struct axes){.rank = 1, .dim = {1}, .x_step = {1}, .y_step = {1}};
    return axes;
}

/* ---- Forward: a row of the last axis at a time ---- */

typedef void binary(size_t n, const float *x, const float *y, float *out);

struct pairwise {
    const struct oct_kernels *kernels;
    binary *combine;
    const struct octet_array *x, *y, *out;
    enum octet_dtype dtype; /* in which y is seen */
    struct axes axes;
};

static int64_t y_offset(const struct axes *axes, int64_t row)
{
    int64_t offset = 0;

    for (int i = axes->rank - 2; i >= 0; i--) {
        offset += row % axes->dim[i] * axes->y_step[i];
        row /= axes->dim[i];
    }
    return offset;
}

static const float *y_piece(const struct pairwise *p, int64_t at, int64_t n, bool repeated,
                            float *buffer)
{
    if (!repeated)
        return oct_piece_read_as(p->kernels, p->y, p->dtype, at, n, buffer);
    float value = *oct_piece_read_as(p->kernels, p->y, p->dtype, at, 1, buffer);
    for (int64_t i = 0; i < n; i++)
        buffer[i] = value;
    return buffer;
}

static void combine_range(void *user, int64_t first, int64_t end)
{
    const struct pairwise *p = user;
    const int last = p->axes.rank - 1;
    const int64_t length = p->axes.dim[last];
    const bool repeated = p->axes.y_step[last] == 0;
    float x[OCT_PIECE], y[OCT_PIECE], out[OCT_PIECE];

    for (int64_t at = first, n; at < end; at += n) {
        int64_t row = at / length, column = at - row * length;
        n = length - column < OCT_PIECE ? length - column : OCT_PIECE;
        n = n < end - at ? n : end - at;
        int64_t from = y_offset(&p->axes, row) + (repeated ? 0 : column);
        float *place = oct_piece_place(p->out, at, out);
        p->combine((size_t)n, oct_piece_read(p->kernels, p->x, at, n, x),
                   y_piece(p, from, n, repeated, y), place);
        oct_piece_write(p->kernels, p->out, at, n, place);
    }
}

static enum octet_status combine(const struct oct_op_call *call, binary *function,
                                 const struct octet_array *x, const struct octet_array *y,
                                 const struct octet_array *out, struct octet_error *err)
{
    struct pairwise p = {oct_call_kernels(call), function,     x, y, out,
                         call->out[0].dtype,     axes_of(x, y)};
    int64_t count = octet_array_elements(x);

    return oct_ranges(call, count, 8 * OCT_PIECE, count, combine_range, &p, err);
}

/* ---- The gradient of what was repeated ---- */

enum { COLUMNS = 256 };

struct reduction {
    const struct oct_kernels *kernels;
    const struct octet_array *cotangent, *factor; /* factor: multiply's first operand, or NULL */
    const struct octet_array *gradient;
    struct axes kept, repeated; /* the outer ones of each; x_step tells where */
    int64_t length, pieces;     /* of the last axis; pieces: of a kept last axis, else 1 */
    bool last_kept;
};

static int64_t x_offset(const struct axes *axes, int64_t index)
{
    int64_t offset = 0;

    for (int i = axes->rank - 1; i >= 0; i--) {
        offset += index % axes->dim[i] * axes->x_step[i];
        index /= axes->dim[i];
    }
    return offset;
}

static int64_t count_of(const struct axes *axes)
{
    int64_t count = 1;

    for (int i = 0; i < axes->rank; i++)
        count *= axes->dim[i];
    return count;
}

/* sums[i * step] += cotangent[at + i] * factor[at + i] */
static void add_piece(const struct reduction *r, int64_t at, int64_t n, size_t step, double *sums)
{
    float c[COLUMNS], f[COLUMNS];
    const float *cotangent = oct_piece_read(r->kernels, r->cotangent, at, n, c);

    if (r->factor) {
        const float *factor = oct_piece_read(r->kernels, r->factor, at, n, f);
        for (size_t i = 0; i < (size_t)n; i++)
            sums[i * step] += (double)cotangent[i] * (double)factor[i];
    } else {
        for (size_t i = 0; i < (size_t)n; i++)
            sums[i * step] += (double)cotangent[i];
    }
}

/* One unit: a piece of the second operand's last axis, or (where that is repeated) one element. */
static void reduce_unit(const struct reduction *r, int64_t unit)
{
    int64_t outer = unit / r->pieces, column = unit % r->pieces * COLUMNS;
    int64_t from = x_offset(&r->kept, outer) + column, turns = count_of(&r->repeated);
    int64_t n = r->last_kept ? r->length - column : 1, to = outer;
    double sums[COLUMNS] = {0};
    float values[COLUMNS];

    n = n < COLUMNS ? n : COLUMNS;
    if (r->last_kept)
        to = outer * r->length + column;
    for (int64_t t = 0; t < turns; t++) {
        int64_t at = from + x_offset(&r->repeated, t);
        if (r->last_kept)
            add_piece(r, at, n, 1, sums);
        for (int64_t i = 0; !r->last_kept && i < r->length; i += COLUMNS)
            add_piece(r, at + i, r->length - i < COLUMNS ? r->length - i : COLUMNS, 0, sums);
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)sums[i];
    oct_piece_write(r->kernels, r->gradient, to, n, values);
}

static void reduce_range(void *user, int64_t first, int64_t end)
{
    for (int64_t unit = first; unit < end; unit++)
        reduce_unit(user, unit);
}

/* gradient = sum of cotangent [* factor] over what the second operand was repeated for. */
static enum octet_status reduce(const struct oct_op_call *call, const struct octet_array *cotangent,
                                const struct octet_array *factor,
                                const struct octet_array *gradient, struct octet_error *err)
{
    struct reduction r = {oct_call_kernels(call), cotangent, factor, gradient, .pieces = 1};
    struct axes axes = axes_of(cotangent, &call->in[1]);
    int last = axes.rank - 1;

    r.length = axes.dim[last];
    r.last_kept = axes.y_step[last] != 0;
    for (int i = 0; i < last; i++) {
        struct axes *to = axes.y_step[i] ? &r.kept : &r.repeated;
        to->dim[to->rank] = axes.dim[i];
        to->x_step[to->rank++] = axes.x_step[i];
    }
    if (r.last_kept)
        r.pieces = (r.length + COLUMNS - 1) / COLUMNS;
    return oct_ranges(call, count_of(&r.kept) * r.pieces, 4, octet_array_elements(cotangent),
                      reduce_range, &r, err);
}

/* ---- add, multiply ---- */

static bool repeats(const struct oct_op_call *call)
{
    return octet_array_elements(&call->in[1]) != octet_array_elements(&call->in[0]);
}

struct copying {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y;
};

static void copy_range(void *user, int64_t first, int64_t end)
{
    const struct copying *c = user;

    oct_piece_copy(c->kernels, c->x, first, c->y, first, end - first);
}

static enum octet_status copy(const struct oct_op_call *call, const struct octet_array *x,
                              const struct octet_array *y, struct octet_error *err)
{
    struct copying c = {oct_call_kernels(call), x, y};
    int64_t count = octet_array_elements(x);

    return oct_ranges(call, count, 32 * OCT_PIECE, count, copy_range, &c, err);
}

enum octet_status oct_add_forward(struct oct_op_call *call, struct octet_error *err)
{
    return combine(call, oct_call_kernels(call)->math->add, &call->in[0], &call->in[1],
                   &call->out[0], err);
}

enum octet_status oct_add_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                              struct octet_array *gradient, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (gradient[0].data)
        status = copy(call, cotangent, &gradient[0], err);
    if (status == OCTET_OK && gradient[1].data)
        status = repeats(call) ? reduce(call, cotangent, NULL, &gradient[1], err)
                               : copy(call, cotangent, &gradient[1], err);
    return status;
}

enum octet_status oct_multiply_forward(struct oct_op_call *call, struct octet_error *err)
{
    return combine(call, oct_call_kernels(call)->math->multiply, &call->in[0], &call->in[1],
                   &call->out[0], err);
}

enum octet_status oct_multiply_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                   struct octet_array *gradient, struct octet_error *err)
{
    binary *multiply = oct_call_kernels(call)->math->multiply;
    enum octet_status status = OCTET_OK;

    if (gradient[0].data)
        status = combine(call, multiply, cotangent, &call->in[1], &gradient[0], err);
    if (status == OCTET_OK && gradient[1].data)
        status = repeats(call)
                     ? reduce(call, cotangent, &call->in[0], &gradient[1], err)
                     : combine(call, multiply, cotangent, &call->in[0], &gradient[1], err);
    return status;
}

/* ---- scale ---- */

struct scaling {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y;
    float factor;
};

static void scale_range(void *user, int64_t first, int64_t end)
{
    const struct scaling *s = user;
    float x[OCT_PIECE], y[OCT_PIECE];

    for (int64_t at = first, n; at < end; at += n) {
        n = end - at < OCT_PIECE ? end - at : OCT_PIECE;
        float *place = oct_piece_place(s->y, at, y);
        s->kernels->math->scale((size_t)n, oct_piece_read(s->kernels, s->x, at, n, x), s->factor,
                                place);
        oct_piece_write(s->kernels, s->y, at, n, place);
    }
}

/* The factor is a number of the array's type: a Python scalar is, in JAX. */
static enum octet_status scale(const struct oct_op_call *call, const struct octet_array *x,
                               const struct octet_array *y, struct octet_error *err)
{
    const struct oct_kernels *kernels = oct_call_kernels(call);
    const float given = call->node->attributes.factor;
    const struct octet_array factor = {.dtype = OCTET_DTYPE_F32, .data = (void *)&given};
    float buffer[1];
    struct scaling s = {kernels, x, y,
                        *oct_piece_read_as(kernels, &factor, call->out[0].dtype, 0, 1, buffer)};
    int64_t count = octet_array_elements(x);

    return oct_ranges(call, count, 8 * OCT_PIECE, count, scale_range, &s, err);
}

enum octet_status oct_scale_forward(struct oct_op_call *call, struct octet_error *err)
{
    return scale(call, &call->in[0], &call->out[0], err);
}

enum octet_status oct_scale_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                struct octet_array *gradient, struct octet_error *err)
{
    return gradient[0].data ? scale(call, cotangent, &gradient[0], err) : OCTET_OK;
}

/* ---- cast, stop_gradient ---- */

enum octet_status oct_cast_forward(struct oct_op_call *call, struct octet_error *err)
{
    return copy(call, &call->in[0], &call->out[0], err);
}

enum octet_status oct_cast_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                               struct octet_array *gradient, struct octet_error *err)
{
    return gradient[0].data ? copy(call, cotangent, &gradient[0], err) : OCTET_OK;
}

enum octet_status oct_stop_gradient_forward(struct oct_op_call *call, struct octet_error *err)
{
    return copy(call, &call->in[0], &call->out[0], err);
}
