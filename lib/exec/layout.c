/* Slices, joins, new shapes: ops that move numbers and change none.
 *
 * Each is a copy of runs: `turns` times, run elements from one place to another, both a step apart.
 * A gradient may have another type than its cotangent (a parameter's is F32), so a copy may also
 * cast. */
#include "exec/layout.h"

#include <string.h>

#include "exec/piece.h"

/* Turn t moves `run` elements from from + t * from_step to to + t * to_step. */
struct runs {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y;
    int64_t run, from, from_step, to, to_step;
};

static void copy_runs(void *user, int64_t first, int64_t end)
{
    const struct runs *r = user;

    for (int64_t t = first; t < end; t++)
        oct_piece_copy(r->kernels, r->x, r->from + t * r->from_step, r->y, r->to + t * r->to_step,
                       r->run);
}

static enum octet_status move(const struct oct_op_call *call, struct runs runs, int64_t turns,
                              struct octet_error *err)
{
    enum { GRAIN = 1 << 16 }; /* elements */

    runs.kernels = oct_call_kernels(call);
    return oct_ranges(call, turns, GRAIN / (runs.run + 1), turns * runs.run, copy_runs, &runs, err);
}

/* All elements in order, in runs that threads can share. */
static enum octet_status move_all(const struct oct_op_call *call, const struct octet_array *x,
                                  const struct octet_array *y, struct octet_error *err)
{
    enum { RUN = 1 << 14 };
    int64_t count = octet_array_elements(x), whole = count / RUN;
    struct runs rest = {.x = x, .y = y, .run = count % RUN, .from = whole * RUN, .to = whole * RUN};
    enum octet_status status =
        move(call, (struct runs){.x = x, .y = y, .run = RUN, .from_step = RUN, .to_step = RUN},
             whole, err);

    return status == OCTET_OK ? move(call, rest, 1, err) : status;
}

/* ---- slice ---- */

struct window {
    int64_t outer, whole, part, start; /* elements of a turn: of the axis, of the slice */
};

static struct window window_of(const struct oct_op_call *call)
{
    int axis = call->node->attributes.slice.axis;
    int64_t inner = oct_dims_behind(&call->in[0], axis);

    return (struct window){.outer = oct_dims_before(&call->in[0], axis),
                           .whole = call->in[0].dim[axis] * inner,
                           .part = call->node->attributes.slice.size * inner,
                           .start = call->node->attributes.slice.start * inner};
}

enum octet_status oct_slice_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct window w = window_of(call);
    struct runs runs = {.x = &call->in[0],
                        .y = &call->out[0],
                        .run = w.part,
                        .from = w.start,
                        .from_step = w.whole,
                        .to_step = w.part};

    return move(call, runs, w.outer, err);
}

struct rest {
    const struct octet_array *y;
    struct window w;
};

static void zero_rest(void *user, int64_t first, int64_t end)
{
    const struct rest *r = user;
    const int64_t bytes = (int64_t)octet_dtype_bytes(r->y->dtype);
    const int64_t behind = r->w.start + r->w.part;

    for (int64_t t = first; t < end; t++) {
        char *at = (char *)r->y->data + t * r->w.whole * bytes;
        memset(at, 0, (size_t)(r->w.start * bytes));
        memset(at + behind * bytes, 0, (size_t)((r->w.whole - behind) * bytes));
    }
}

enum octet_status oct_slice_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                struct octet_array *gradient, struct octet_error *err)
{
    struct rest rest = {&gradient[0], window_of(call)};
    struct runs runs = {.x = cotangent,
                        .y = &gradient[0],
                        .run = rest.w.part,
                        .from_step = rest.w.part,
                        .to = rest.w.start,
                        .to_step = rest.w.whole};

    if (!gradient[0].data)
        return OCTET_OK;
    enum octet_status status = oct_ranges(call, rest.w.outer, (1 << 16) / (rest.w.whole + 1),
                                          rest.w.outer * rest.w.whole, zero_rest, &rest, err);
    return status == OCTET_OK ? move(call, runs, rest.w.outer, err) : status;
}

/* ---- concat, along the last axis ---- */

static int64_t last_dim(const struct octet_array *x)
{
    return x->dim[x->rank - 1];
}

enum octet_status oct_concat_forward(struct oct_op_call *call, struct octet_error *err)
{
    const struct octet_array *out = &call->out[0];
    enum octet_status status = OCTET_OK;
    int64_t to = 0;

    for (int i = 0; i < 2 && status == OCTET_OK; i++) {
        int64_t run = last_dim(&call->in[i]);
        struct runs runs = {.x = &call->in[i],
                            .y = out,
                            .run = run,
                            .from_step = run,
                            .to = to,
                            .to_step = last_dim(out)};
        status = move(call, runs, oct_rows(out), err);
        to += run;
    }
    return status;
}

enum octet_status oct_concat_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                 struct octet_array *gradient, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    int64_t from = 0;

    for (int i = 0; i < 2 && status == OCTET_OK; i++) {
        int64_t run = last_dim(&call->in[i]);
        struct runs runs = {.x = cotangent,
                            .y = &gradient[i],
                            .run = run,
                            .from = from,
                            .from_step = last_dim(cotangent),
                            .to_step = run};
        if (gradient[i].data)
            status = move(call, runs, oct_rows(cotangent), err);
        from += run;
    }
    return status;
}

/* ---- reshape ---- */

enum octet_status oct_reshape_forward(struct oct_op_call *call, struct octet_error *err)
{
    return move_all(call, &call->in[0], &call->out[0], err);
}

enum octet_status oct_reshape_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                  struct octet_array *gradient, struct octet_error *err)
{
    return gradient[0].data ? move_all(call, cotangent, &gradient[0], err) : OCTET_OK;
}

/* ---- transpose: the last two axes swapped ---- */

enum { TILE = 32 };

struct transposition {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y;
    int64_t rows, columns; /* of one matrix of x */
    int64_t tile_rows;     /* of one matrix */
};

/* A tile's rows are read along x, its columns written along y. */
static void transpose_tile(const struct transposition *t, int64_t matrix, int64_t row,
                           int64_t column)
{
    const int64_t base = matrix * t->rows * t->columns;
    int64_t rows = t->rows - row < TILE ? t->rows - row : TILE;
    int64_t columns = t->columns - column < TILE ? t->columns - column : TILE;
    float tile[TILE][TILE], line[TILE];

    for (int64_t i = 0; i < rows; i++) {
        const float *values =
            oct_piece_read(t->kernels, t->x, base + (row + i) * t->columns + column, columns, line);
        for (int64_t j = 0; j < columns; j++)
            tile[j][i] = values[j];
    }
    for (int64_t j = 0; j < columns; j++) {
        int64_t to = base + (column + j) * t->rows + row;
        float *place = oct_piece_place(t->y, to, tile[j]);
        memmove(place, tile[j], (size_t)rows * sizeof *place);
        oct_piece_write(t->kernels, t->y, to, rows, place);
    }
}

static void transpose_range(void *user, int64_t first, int64_t end)
{
    const struct transposition *t = user;

    for (int64_t i = first; i < end; i++)
        for (int64_t column = 0; column < t->columns; column += TILE)
            transpose_tile(t, i / t->tile_rows, i % t->tile_rows * TILE, column);
}

static enum octet_status transpose(const struct oct_op_call *call, const struct octet_array *x,
                                   const struct octet_array *y, struct octet_error *err)
{
    struct transposition t = {oct_call_kernels(call), x, y, x->dim[x->rank - 2], last_dim(x), 0};

    t.tile_rows = (t.rows + TILE - 1) / TILE;
    return oct_ranges(call, oct_dims_before(x, x->rank - 2) * t.tile_rows, 4,
                      octet_array_elements(x), transpose_range, &t, err);
}

enum octet_status oct_transpose_forward(struct oct_op_call *call, struct octet_error *err)
{
    return transpose(call, &call->in[0], &call->out[0], err);
}

enum octet_status oct_transpose_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                    struct octet_array *gradient, struct octet_error *err)
{
    return gradient[0].data ? transpose(call, cotangent, &gradient[0], err) : OCTET_OK;
}

/* ---- broadcast: an axis of size 1 repeated ---- */

struct repetition {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y; /* y is the repeated one */
    int64_t inner, times;
};

static void repeat_range(void *user, int64_t first, int64_t end)
{
    const struct repetition *r = user;

    for (int64_t i = first; i < end; i++)
        oct_piece_copy(r->kernels, r->x, i / r->times * r->inner, r->y, i * r->inner, r->inner);
}

static struct repetition repetition_of(const struct oct_op_call *call, const struct octet_array *x,
                                       const struct octet_array *y)
{
    int axis = call->node->attributes.broadcast.axis;

    return (struct repetition){oct_call_kernels(call), x, y, oct_dims_behind(y, axis),
                               y->dim[axis]};
}

enum octet_status oct_broadcast_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct repetition r = repetition_of(call, &call->in[0], &call->out[0]);
    int64_t count = octet_array_elements(&call->out[0]);

    return oct_ranges(call, count / r.inner, (1 << 16) / (r.inner + 1), count, repeat_range, &r,
                      err);
}

enum { SUMS = 512 };

static void sum_repeated(const struct repetition *r, int64_t outer, int64_t at, int64_t n)
{
    double sums[SUMS] = {0};
    float buffer[SUMS], values[SUMS];

    for (int64_t t = 0; t < r->times; t++) {
        const float *y =
            oct_piece_read(r->kernels, r->y, (outer * r->times + t) * r->inner + at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            sums[i] += (double)y[i];
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)sums[i];
    oct_piece_write(r->kernels, r->x, outer * r->inner + at, n, values);
}

static void sum_range(void *user, int64_t first, int64_t end)
{
    const struct repetition *r = user;

    for (int64_t outer = first; outer < end; outer++)
        for (int64_t at = 0; at < r->inner; at += SUMS)
            sum_repeated(r, outer, at, r->inner - at < SUMS ? r->inner - at : SUMS);
}

enum octet_status oct_broadcast_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                    struct octet_array *gradient, struct octet_error *err)
{
    struct repetition r = repetition_of(call, &gradient[0], cotangent);
    int64_t count = octet_array_elements(cotangent);

    if (!gradient[0].data)
        return OCTET_OK;
    return oct_ranges(call, count / (r.inner * r.times), (1 << 16) / (r.inner * r.times + 1), count,
                      sum_range, &r, err);
}

/* ---- one_hot ---- */

static void one_hot_range(void *user, int64_t first, int64_t end)
{
    const struct runs *r = user; /* run: classes */
    const int64_t bytes = (int64_t)octet_dtype_bytes(r->y->dtype);
    const float one = 1;

    memset((char *)r->y->data + first * r->run * bytes, 0,
           (size_t)((end - first) * r->run * bytes));
    for (int64_t i = first; i < end; i++) {
        int32_t id = ((const int32_t *)r->x->data)[i];
        if (id >= 0 && id < r->run)
            r->kernels->cast(r->y->dtype, 1, &one, (char *)r->y->data + (i * r->run + id) * bytes);
    }
}

enum octet_status oct_one_hot_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct runs r = {.kernels = oct_call_kernels(call),
                     .x = &call->in[0],
                     .y = &call->out[0],
                     .run = call->node->attributes.k};
    int64_t count = octet_array_elements(&call->in[0]);

    return oct_ranges(call, count, (1 << 16) / (r.run + 1), count * r.run, one_hot_range, &r, err);
}
