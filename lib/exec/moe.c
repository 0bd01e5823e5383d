/* Dispatch: tokens to their experts and back.
 *
 * Row t * k + j of the flat list is token t for its j-th expert. Sorted by expert, stably, so that
 * within an expert rows keep their order (MaxText's permute: a stable argsort), each expert's rows
 * lie together. The sort is by counting and cheap beside any row, so forward and backward both do
 * it, instead of keeping its result. Source: MaxText, layers/moe.py (permute, unpermute,
 * transform_bias, reshape_and_update_weights, generate_masks). */
#include "exec/moe.h"

#include <string.h>

#include "exec/piece.h"

static int64_t last_dim(const struct octet_array *x)
{
    return x->dim[x->rank - 1];
}

/* ---- The order ---- */

struct order {
    const struct oct_kernels *kernels;
    const int32_t *expert; /* [rows], by token */
    int64_t rows, experts, k;
    int32_t *place; /* [rows]: where a flat row lies by expert */
    int32_t *end;   /* [experts]: behind each expert's rows */
};

/* One more than the largest index, for ops that are not told how many experts there are. */
static int64_t experts_in(const int32_t *expert, int64_t rows)
{
    int32_t most = 0;

    for (int64_t i = 0; i < rows; i++)
        most = expert[i] > most ? expert[i] : most;
    return (int64_t)most + 1;
}

static enum octet_status sort_rows(const struct oct_op_call *call, struct order *o,
                                   struct octet_error *err)
{
    const struct octet_array *indices = &call->in[1];

    *o = (struct order){.kernels = oct_call_kernels(call),
                        .expert = indices->data,
                        .rows = octet_array_elements(indices),
                        .k = last_dim(indices)};
    o->experts = experts_in(o->expert, o->rows);
    o->place = oct_call_scratch(call, o->rows, sizeof *o->place, err);
    o->end = o->place ? oct_call_scratch(call, o->experts + 1, sizeof *o->end, err) : NULL;
    if (!o->end)
        return OCTET_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < o->rows; i++)
        o->end[o->expert[i] + 1]++;
    for (int64_t e = 0; e < o->experts; e++)
        o->end[e + 1] += o->end[e];
    for (int64_t i = 0; i < o->rows; i++) /* from here on end[e] grows from e's begin to its end */
        o->place[i] = o->end[o->expert[i]]++;
    return OCTET_OK;
}

size_t oct_dispatch_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward)
{
    enum { EXPERTS = 1 << 14 };
    int64_t rows = octet_shape_elements(&graph->tensors[node->inputs[1]].shape);

    (void)rule;
    (void)backward;
    return (size_t)(rows + EXPERTS) * sizeof(int32_t) + OCT_SCRATCH_LOSS;
}

/* ---- Moving rows ---- */

struct moving {
    struct order order;
    const struct octet_array *x, *y;
    int64_t width;
};

/* Row i of the flat list goes to its place by expert; x has a row for each `share` of them. */
struct spread {
    struct moving m;
    int64_t share;
};

static void to_experts(void *user, int64_t first, int64_t end)
{
    const struct spread *s = user;

    for (int64_t i = first; i < end; i++)
        oct_piece_copy(s->m.order.kernels, s->m.x, i / s->share * s->m.width, s->m.y,
                       s->m.order.place[i] * s->m.width, s->m.width);
}

static void to_tokens(void *user, int64_t first, int64_t end)
{
    const struct moving *m = user;

    for (int64_t i = first; i < end; i++)
        oct_piece_copy(m->order.kernels, m->x, m->order.place[i] * m->width, m->y, i * m->width,
                       m->width);
}

static int64_t grain_of(int64_t width)
{
    return (1 << 15) / (width + 1);
}

enum { COLUMNS = 512 };

/* y[t] = the sum of x over t's k rows, in the order of its choices. */
static void sum_token(const struct moving *m, int64_t token, int64_t at, int64_t n)
{
    const struct order *o = &m->order;
    double sums[COLUMNS] = {0};
    float buffer[COLUMNS], values[COLUMNS];

    for (int64_t i = token * o->k; i < (token + 1) * o->k; i++) {
        const float *x = oct_piece_read(o->kernels, m->x, o->place[i] * m->width + at, n, buffer);
        for (int64_t c = 0; c < n; c++)
            sums[c] += (double)x[c];
    }
    for (int64_t c = 0; c < n; c++)
        values[c] = (float)sums[c];
    oct_piece_write(o->kernels, m->y, token * m->width + at, n, values);
}

static void sum_tokens(void *user, int64_t first, int64_t end)
{
    const struct moving *m = user;

    for (int64_t token = first; token < end; token++)
        for (int64_t at = 0; at < m->width; at += COLUMNS)
            sum_token(m, token, at, m->width - at < COLUMNS ? m->width - at : COLUMNS);
}

/* ---- dispatch ---- */

enum octet_status oct_dispatch_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct spread s = {
        .m = {.x = &call->in[0], .y = &call->out[0], .width = last_dim(&call->in[0])},
        .share = last_dim(&call->in[1])};
    enum octet_status status = sort_rows(call, &s.m.order, err);
    const struct order *o = &s.m.order;
    int32_t *sizes = call->out[1].data;

    if (status != OCTET_OK)
        return status;
    memset(sizes, 0, (size_t)octet_array_bytes(&call->out[1]));
    for (int64_t e = 0; e < o->experts; e++)
        sizes[e] = o->end[e] - (e ? o->end[e - 1] : 0);
    return oct_ranges(call, o->rows, grain_of(s.m.width), o->rows * s.m.width, to_experts, &s, err);
}

enum octet_status oct_dispatch_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                   struct octet_array *gradient, struct octet_error *err)
{
    struct moving m = {.x = &cotangent[0], .y = &gradient[0], .width = last_dim(&call->in[0])};

    if (!gradient[0].data)
        return OCTET_OK;
    enum octet_status status = sort_rows(call, &m.order, err);
    int64_t tokens = status == OCTET_OK ? m.order.rows / m.order.k : 0;
    return status == OCTET_OK ? oct_ranges(call, tokens, grain_of(m.width * m.order.k),
                                           m.order.rows * m.width, sum_tokens, &m, err)
                              : status;
}

/* ---- undispatch ---- */

enum octet_status oct_undispatch_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct moving m = {.x = &call->in[0], .y = &call->out[0], .width = last_dim(&call->in[0])};
    enum octet_status status = sort_rows(call, &m.order, err);

    return status == OCTET_OK ? oct_ranges(call, m.order.rows, grain_of(m.width),
                                           m.order.rows * m.width, to_tokens, &m, err)
                              : status;
}

enum octet_status oct_undispatch_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                     struct octet_array *gradient, struct octet_error *err)
{
    struct spread s = {
        .m = {.x = &cotangent[0], .y = &gradient[0], .width = last_dim(&call->in[0])}, .share = 1};

    if (!gradient[0].data)
        return OCTET_OK;
    enum octet_status status = sort_rows(call, &s.m.order, err);
    return status == OCTET_OK ? oct_ranges(call, s.m.order.rows, grain_of(s.m.width),
                                           s.m.order.rows * s.m.width, to_experts, &s, err)
                              : status;
}

/* ---- expert_bias: in[0] [experts, d], by row of the order by expert ---- */

static void bias_rows(void *user, int64_t first, int64_t end)
{
    const struct moving *m = user;

    for (int64_t i = first; i < end; i++)
        oct_piece_copy(m->order.kernels, m->x, m->order.expert[i] * m->width, m->y,
                       m->order.place[i] * m->width, m->width);
}

enum octet_status oct_expert_bias_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct moving m = {.x = &call->in[0], .y = &call->out[0], .width = last_dim(&call->in[0])};
    enum octet_status status = sort_rows(call, &m.order, err);

    return status == OCTET_OK ? oct_ranges(call, m.order.rows, grain_of(m.width),
                                           m.order.rows * m.width, bias_rows, &m, err)
                              : status;
}

/* gradient[e] = the sum of the cotangent over e's rows. */
static void sum_expert(const struct moving *m, int64_t expert, int64_t at, int64_t n)
{
    const struct order *o = &m->order;
    int64_t first = expert && expert <= o->experts ? o->end[expert - 1] : 0;
    int64_t end = expert < o->experts ? o->end[expert] : first;
    double sums[COLUMNS] = {0};
    float buffer[COLUMNS], values[COLUMNS];

    for (int64_t row = first; row < end; row++) {
        const float *x = oct_piece_read(o->kernels, m->x, row * m->width + at, n, buffer);
        for (int64_t c = 0; c < n; c++)
            sums[c] += (double)x[c];
    }
    for (int64_t c = 0; c < n; c++)
        values[c] = (float)sums[c];
    oct_piece_write(o->kernels, m->y, expert * m->width + at, n, values);
}

static void sum_experts(void *user, int64_t first, int64_t end)
{
    const struct moving *m = user;
    int64_t blocks = (m->width + COLUMNS - 1) / COLUMNS;

    for (int64_t i = first; i < end; i++) {
        int64_t at = i % blocks * COLUMNS, left = m->width - at;
        sum_expert(m, i / blocks, at, left < COLUMNS ? left : COLUMNS);
    }
}

enum octet_status oct_expert_bias_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                      struct octet_array *gradient, struct octet_error *err)
{
    struct moving m = {.x = &cotangent[0], .y = &gradient[0], .width = last_dim(&call->in[0])};

    if (!gradient[0].data)
        return OCTET_OK;
    enum octet_status status = sort_rows(call, &m.order, err);
    int64_t blocks = (m.width + COLUMNS - 1) / COLUMNS;
    return status == OCTET_OK ? oct_ranges(call, call->in[0].dim[0] * blocks, 1,
                                           m.order.rows * m.width, sum_experts, &m, err)
                              : status;
}

/* ---- expert_weights: [.., k] weights at their experts' places of [.., n] ---- */

struct places {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *y;
    const int32_t *expert;
    int64_t k, experts;
};

static struct places places_of(const struct oct_op_call *call, const struct octet_array *x,
                               const struct octet_array *y)
{
    return (struct places){oct_call_kernels(call),  x, y, call->in[1].data, last_dim(&call->in[1]),
                           call->node->attributes.k};
}

static void put_weights(void *user, int64_t first, int64_t end)
{
    const struct places *p = user;
    const int64_t bytes = (int64_t)octet_dtype_bytes(p->y->dtype);

    memset((char *)p->y->data + first * p->experts * bytes, 0,
           (size_t)((end - first) * p->experts * bytes));
    for (int64_t i = first * p->k; i < end * p->k; i++)
        oct_piece_copy(p->kernels, p->x, i, p->y, i / p->k * p->experts + p->expert[i], 1);
}

static void take_weights(void *user, int64_t first, int64_t end)
{
    const struct places *p = user;

    for (int64_t i = first * p->k; i < end * p->k; i++)
        oct_piece_copy(p->kernels, p->x, i / p->k * p->experts + p->expert[i], p->y, i, 1);
}

enum octet_status oct_expert_weights_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct places p = places_of(call, &call->in[0], &call->out[0]);
    int64_t rows = oct_rows(&call->in[0]);

    return oct_ranges(call, rows, grain_of(p.experts), rows * p.experts, put_weights, &p, err);
}

enum octet_status oct_expert_weights_vjp(struct oct_op_call *call,
                                         const struct octet_array *cotangent,
                                         struct octet_array *gradient, struct octet_error *err)
{
    struct places p = places_of(call, &cotangent[0], &gradient[0]);
    int64_t rows = oct_rows(&call->in[0]);

    if (!gradient[0].data)
        return OCTET_OK;
    return oct_ranges(call, rows, grain_of(p.experts), rows * p.experts, take_weights, &p, err);
}

/* ---- capacity_masks ---- */

/* Each sequence fills each expert's `capacity` slots in the order of its choices; what comes later
 * is dropped. combine[b,s,e,slot] = the weight, dispatch = is it not 0. */
struct capacity {
    const struct oct_op_call *call;
    const struct oct_kernels *kernels;
    const struct octet_array *cotangent, *gradient; /* of combine, of the weights; backward */
    int64_t length, k, experts, slots;
    int32_t *filled; /* [b, experts] */
};

static enum octet_status capacity_of(const struct oct_op_call *call, struct capacity *c,
                                     struct octet_error *err)
{
    const struct octet_array *indices = &call->in[1];
    int64_t length = indices->dim[indices->rank - 2];

    *c = (struct capacity){.call = call,
                           .kernels = oct_call_kernels(call),
                           .length = length,
                           .k = last_dim(indices),
                           .experts = last_dim(&call->in[0]),
                           .slots = call->node->attributes.capacity};
    c->filled =
        oct_call_scratch(call, oct_rows(indices) / length * c->experts, sizeof *c->filled, err);
    return c->filled ? OCTET_OK : OCTET_RESOURCE_EXHAUSTED;
}

size_t oct_capacity_masks_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                        const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *weights = &graph->tensors[node->inputs[0]].shape;

    (void)rule;
    (void)backward;
    return (size_t)(octet_shape_elements(weights) / weights->dim[weights->rank - 2]) *
               sizeof(int32_t) +
           OCT_SCRATCH_LOSS;
}

static void mask_choice(const struct capacity *c, int64_t weight_at, int32_t slot)
{
    float buffer[1], weight = *oct_piece_read(c->kernels, &c->call->in[0], weight_at, 1, buffer);
    int64_t at = weight_at * c->slots + slot;

    oct_piece_copy(c->kernels, &c->call->in[0], weight_at, &c->call->out[1], at, 1);
    ((uint8_t *)c->call->out[0].data)[at] = weight != 0;
}

static void unmask_choice(const struct capacity *c, int64_t weight_at, int32_t slot)
{
    oct_piece_copy(c->kernels, c->cotangent, weight_at * c->slots + slot, c->gradient, weight_at,
                   1);
}

static void clear(const struct octet_array *x, int64_t first, int64_t end)
{
    const int64_t bytes = (int64_t)octet_dtype_bytes(x->dtype);

    memset((char *)x->data + first * bytes, 0, (size_t)((end - first) * bytes));
}

/* One sequence, whose slots are filled from its first token on. */
static void fill_slots(const struct capacity *c, int64_t b)
{
    const int64_t row = b * c->length, size = c->experts * (c->gradient ? 1 : c->slots);
    int32_t *filled = c->filled + b * c->experts;
    const int32_t *expert = (const int32_t *)c->call->in[1].data + row * c->k;

    if (c->gradient) {
        clear(c->gradient, row * size, (row + c->length) * size);
    } else {
        clear(&c->call->out[0], row * size, (row + c->length) * size);
        clear(&c->call->out[1], row * size, (row + c->length) * size);
    }
    for (int64_t i = 0; i < c->length * c->k; i++) {
        int32_t slot = filled[expert[i]]++;
        if (slot >= c->slots)
            continue;
        int64_t at = (row + i / c->k) * c->experts + expert[i];
        if (c->gradient)
            unmask_choice(c, at, slot);
        else
            mask_choice(c, at, slot);
    }
}

static void fill_range(void *user, int64_t first, int64_t end)
{
    for (int64_t b = first; b < end; b++)
        fill_slots(user, b);
}

enum octet_status oct_capacity_masks_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct capacity c;
    enum octet_status status = capacity_of(call, &c, err);
    int64_t batch = oct_rows(&call->in[1]) / c.length;

    return status == OCTET_OK ? oct_ranges(call, batch, 1, octet_array_elements(&call->out[1]),
                                           fill_range, &c, err)
                              : status;
}

enum octet_status oct_capacity_masks_vjp(struct oct_op_call *call,
                                         const struct octet_array *cotangent,
                                         struct octet_array *gradient, struct octet_error *err)
{
    struct capacity c;

    if (!gradient[0].data)
        return OCTET_OK;
    if (!cotangent[1].data) {
        clear(&gradient[0], 0, octet_array_elements(&gradient[0]));
        return OCTET_OK;
    }
    enum octet_status status = capacity_of(call, &c, err);
    c.cotangent = &cotangent[1];
    c.gradient = &gradient[0];
    return status == OCTET_OK ? oct_ranges(call, oct_rows(&call->in[1]) / c.length, 1,
                                           octet_array_elements(&call->in[0]), fill_range, &c, err)
                              : status;
}
