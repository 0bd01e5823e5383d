/* Scaled dot-product attention as one op (op.h): memory grows with the length, not its square.
 *
 * Shapes: query [b, t, kv, g, d], key [b, s, kv, d], value [b, s, kv, v], t = s. A unit is the work
 * of one (b, kv) on a block of queries with all g heads that share the key: its scores are a matrix
 * of (queries * g) rows and as many columns as there are keys that those queries may see. Units run
 * in waves, as many as fit in WAVE_BYTES: products of the whole wave are one list for oct_gemm_run,
 * and between the lists threads share the rows of all units.
 *
 * Forward keeps each row's maximum and sum; backward computes the scores of a wave again. With p =
 * exp(s - max), l = sum p, o = p v / l and c the cotangent of o:
 *     c' = c / l, dl = - c' . o, dv = p^T c', ds = p (c' v^T + dl), dq = ds k, dk = ds^T q.
 * dk and dv of a key are added up over blocks of queries in order of the blocks; within a block
 * over queries and heads by the product.
 *
 * Decision: the bits are those of the three ops by themselves in f32 (softmax.c): products in
 * EXACT_ORDER over k begin at a multiple of 256, and what is left out has a factor of exactly 0
 * (which matters only to values that are not finite, and to the sign of a sum that underflowed). */
#include <string.h>

#include "base/pool.h"
#include "exec/piece.h"
#include "exec/softmax.h"
#include "kernels/gemm.h"

enum {
    WAVE_BYTES = 4 << 20, /* beside which the second-level cache of most CPUs still helps */
    WAVE_UNITS = 256,
    BLOCK_ROWS = 64,       /* queries * g of a unit, where the length allows */
    BLOCK_BYTES = 2 << 20, /* of its scores */
    ROW_PARTS = 4,         /* a unit's rows are shared by so many tasks */
    KEY_PARTS = 8,
    ALONE = 1 << 15 /* scores below which threads are not woken */
};

struct unit {
    int64_t batch, kv;
    int64_t first, count;   /* queries */
    int64_t key, key_count; /* keys that any of them sees */
    float *p;               /* [rows, keys]: scores, then exps; BF16 packed in place */
    float *o;               /* [rows, v]: forward: weighted values. Backward: c', packed in place */
    float *ds;              /* [rows, keys] */
    float *dq;              /* [rows, d] */
    float *dk, *dv;         /* [keys, d], [keys, v] */
};

struct attention {
    struct oct_softmax softmax;
    const struct oct_op_call *call;
    const struct octet_compute *compute;
    struct oct_pool *pool;
    int64_t batch, length, kv, g, d, v;
    enum octet_dtype product_dtype, scores_dtype;
    struct octet_array query, key, value, out;
    int64_t block, blocks; /* queries of a unit; units of a (b, kv) */
    int64_t *query_rows;   /* [block * g] offsets of a block's rows in query */
    float *maxima, *sums;  /* saved: [b, kv, length, g] */
    struct unit *units;    /* of the wave */
    int64_t unit_count, unit_limit;
    struct oct_gemm *products;
    size_t product_count;
    char *memory;
    size_t memory_bytes;
    /* backward */
    bool backward;
    struct octet_array cotangent, d_query;
    struct octet_array d_key, d_value; /* F32, to be added to; data NULL: not wanted */
    float *sink_parts;                 /* [b, kv, length, g] or NULL */
};

static int64_t rows_of(const struct attention *a, const struct unit *u)
{
    return u->count * a->g;
}

static int64_t at_least(int64_t value, int64_t least)
{
    return value > least ? value : least;
}

/* ---- Sizes ---- */

static int64_t block_of(int64_t g, int64_t length)
{
    int64_t rows = BLOCK_BYTES / (4 * at_least(length, 1));

    return at_least((rows < BLOCK_ROWS ? rows : BLOCK_ROWS) / g, 1);
}

static size_t unit_bytes(int64_t rows, int64_t keys, int64_t d, int64_t v, bool backward)
{
    int64_t numbers = rows * (keys + v);

    if (backward)
        numbers += rows * (keys + d) + keys * (d + v);
    return (size_t)numbers * sizeof(float) + 6 * 64;
}

static size_t wave_bytes(int64_t batch, int64_t kv, int64_t g, int64_t length, int64_t d, int64_t v,
                         bool backward)
{
    const int64_t block = block_of(g, length), rows = (block < length ? block : length) * g;
    const size_t one = unit_bytes(rows, length, d, v, backward);
    const int64_t units = batch * kv * ((length + block - 1) / block);
    const size_t all = units < WAVE_UNITS ? (size_t)units * one : SIZE_MAX;

    if (all < WAVE_BYTES)
        return all;
    return one > WAVE_BYTES ? one : WAVE_BYTES;
}

size_t oct_attention_saved_bytes(int64_t batch, int64_t heads, int64_t length)
{
    return 2 * sizeof(float) * (size_t)(batch * heads * length);
}

size_t oct_attention_scratch_bytes(const struct octet_array *query, const struct octet_array *value,
                                   bool backward)
{
    const int64_t batch = query->dim[0], length = query->dim[1], kv = query->dim[2];
    const int64_t g = query->dim[3], d = query->dim[4], v = value->dim[3];
    size_t bytes = OCT_SCRATCH_LOSS + oct_softmax_bytes(batch, kv * g, length) +
                   wave_bytes(batch, kv, g, length, d, v, backward) +
                   WAVE_UNITS * (sizeof(struct unit) + 5 * sizeof(struct oct_gemm)) +
                   (size_t)(block_of(g, length) * g) * sizeof(int64_t);

    if (backward && query->dtype != OCTET_DTYPE_F32)
        bytes += sizeof(float) * (size_t)(batch * length * kv * (d + v));
    if (backward) /* of sinks */
        bytes += sizeof(float) * (size_t)(batch * length * kv * g);
    return bytes;
}

/* ---- Waves ---- */

static float *take(struct attention *a, size_t *used, int64_t numbers)
{
    float *memory = (float *)(a->memory + *used);

    *used += ((size_t)numbers * sizeof(float) + 63) / 64 * 64;
    return memory;
}

static struct unit unit_at(const struct attention *a, int64_t index)
{
    const int64_t pair = index / a->blocks, first = index % a->blocks * a->block;
    const int64_t count = a->length - first < a->block ? a->length - first : a->block;
    const int64_t key = oct_softmax_first_key(&a->softmax, first);

    return (struct unit){.batch = pair / a->kv,
                         .kv = pair % a->kv,
                         .first = first,
                         .count = count,
                         .key = key,
                         .key_count = first + count - key};
}

/* Units from `next` on that fit; returns the one after them. */
static int64_t gather(struct attention *a, int64_t next)
{
    const int64_t all = a->batch * a->kv * a->blocks;
    size_t used = 0;

    a->unit_count = 0;
    a->product_count = 0;
    for (; next < all && a->unit_count < a->unit_limit; next++) {
        struct unit u = unit_at(a, next);
        const int64_t rows = rows_of(a, &u);
        if (used + unit_bytes(rows, u.key_count, a->d, a->v, a->backward) > a->memory_bytes &&
            a->unit_count)
            break;
        u.p = take(a, &used, rows * u.key_count);
        u.o = take(a, &used, rows * a->v);
        if (a->backward) {
            u.ds = take(a, &used, rows * u.key_count);
            u.dq = take(a, &used, rows * a->d);
            u.dk = take(a, &used, u.key_count * a->d);
            u.dv = take(a, &used, u.key_count * a->v);
        }
        a->units[a->unit_count++] = u;
    }
    return next;
}

/* ---- Products ---- */

static const void *element(const struct octet_array *array, int64_t at)
{
    return (const char *)array->data + at * (int64_t)octet_dtype_bytes(array->dtype);
}

/* Rows of the unit's queries; of keys or values. swap: what is contracted is the row. */
static struct oct_gemm_side query_side(const struct attention *a, const struct unit *u, bool swap)
{
    const int64_t row = a->kv * a->g * a->d;
    const void *data =
        element(&a->query, ((u->batch * a->length + u->first) * a->kv + u->kv) * a->g * a->d);
    const int64_t stride = a->g == 1 ? row : 0;

    return (struct oct_gemm_side){.dtype = a->query.dtype,
                                  .data = data,
                                  .free = swap ? NULL : a->query_rows,
                                  .depth = swap ? a->query_rows : NULL,
                                  .free_stride = swap ? 1 : stride,
                                  .depth_stride = swap ? stride : 1};
}

static struct oct_gemm_side key_side(const struct attention *a, const struct unit *u,
                                     const struct octet_array *keys, bool swap)
{
    const int64_t width = keys->dim[3], row = a->kv * width;
    const void *data = element(keys, ((u->batch * a->length + u->key) * a->kv + u->kv) * width);

    return (struct oct_gemm_side){.dtype = keys->dtype,
                                  .data = data,
                                  .free_stride = swap ? 1 : row,
                                  .depth_stride = swap ? row : 1};
}

/* A matrix of the unit [.., width], whose rows of BF16 lie at the places of f32 rows. */
static struct oct_gemm_side own_side(const float *data, enum octet_dtype dtype, int64_t width,
                                     bool swap)
{
    const int64_t row = dtype == OCTET_DTYPE_F32 ? width : 2 * width;

    return (struct oct_gemm_side){.dtype = dtype,
                                  .data = data,
                                  .free_stride = swap ? 1 : row,
                                  .depth_stride = swap ? row : 1};
}

static void add_product(struct attention *a, int64_t m, int64_t n, int64_t k,
                        struct oct_gemm_side lhs, struct oct_gemm_side rhs, float *out)
{
    a->products[a->product_count++] = (struct oct_gemm){
        .m = m, .n = n, .k = k, .lhs = lhs, .rhs = rhs, .out = out, .out_stride = n};
}

static enum octet_status run_products(struct attention *a, struct octet_error *err)
{
    const size_t count = a->product_count;

    a->product_count = 0;
    return oct_gemm_run(a->compute->workers, a->compute->cancel, a->products, count, err);
}

static void add_scores(struct attention *a, const struct unit *u)
{
    add_product(a, rows_of(a, u), u->key_count, a->d, query_side(a, u, false),
                key_side(a, u, &a->key, false), u->p);
}

/* ---- Rows ---- */

struct task {
    struct attention *a;
    void (*rows)(struct attention *a, const struct unit *u, int64_t first, int64_t end);
};

static void run_task(void *user, size_t item, size_t thread)
{
    const struct task *t = user;
    const struct unit *u = &t->a->units[item / ROW_PARTS];
    const int64_t rows = rows_of(t->a, u), part = (rows + ROW_PARTS - 1) / ROW_PARTS;
    const int64_t first = (int64_t)(item % ROW_PARTS) * part, end = first + part;

    (void)thread;
    if (first < rows)
        t->rows(t->a, u, first, end < rows ? end : rows);
}

static enum octet_status each_row(struct attention *a,
                                  void (*rows)(struct attention *a, const struct unit *u,
                                               int64_t first, int64_t end),
                                  struct octet_error *err)
{
    struct task t = {a, rows};

    return oct_pool_run(a->pool, (size_t)a->unit_count * ROW_PARTS, a->compute->cancel, run_task,
                        &t, err);
}

/* Of row i of the unit: in the saved numbers, and its place [b, t, kv, g] in query and out. */
static int64_t saved_place(const struct attention *a, const struct unit *u, int64_t i)
{
    return ((u->batch * a->kv + u->kv) * a->length + u->first) * a->g + i;
}

static int64_t out_place(const struct attention *a, const struct unit *u, int64_t i)
{
    const int64_t query = u->batch * a->length + u->first + i / a->g;
    return (query * a->kv + u->kv) * a->g + i % a->g;
}

/* n values become BF16 at the place of the first, where dtype is that. */
static void pack(const struct attention *a, enum octet_dtype dtype, int64_t n, float *values)
{
    uint16_t codes[OCT_PIECE];

    for (int64_t at = 0; dtype == OCTET_DTYPE_BF16 && at < n; at += OCT_PIECE) {
        const size_t count = (size_t)(n - at < OCT_PIECE ? n - at : OCT_PIECE);
        a->softmax.kernels->cast(dtype, count, values + at, codes);
        memcpy((uint16_t *)values + at, codes, count * sizeof *codes);
    }
}

static struct oct_softmax_row softmax_row(const struct attention *a, const struct unit *u,
                                          int64_t i)
{
    float *row = u->p + i * u->key_count;

    oct_round_values(a->softmax.kernels, a->product_dtype, u->key_count, row);
    return oct_softmax_forward_row(&a->softmax, u->batch, u->kv * a->g + i % a->g,
                                   u->first + i / a->g, u->key, u->key + u->key_count, row);
}

static void softmax_rows(struct attention *a, const struct unit *u, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        const struct oct_softmax_row row = softmax_row(a, u, i);
        a->maxima[saved_place(a, u, i)] = row.maximum;
        a->sums[saved_place(a, u, i)] = row.sum;
        pack(a, a->scores_dtype, u->key_count, u->p + i * u->key_count);
    }
}

static void divide_rows(struct attention *a, const struct unit *u, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        float *o = u->o + i * a->v;
        oct_round_values(a->softmax.kernels, a->out.dtype, a->v, o);
        oct_divide_row((size_t)a->v, o, a->sums[saved_place(a, u, i)], o);
        oct_piece_write(a->softmax.kernels, &a->out, out_place(a, u, i) * a->v, a->v, o);
    }
}

/* ---- Forward ---- */

static enum octet_status forward_wave(struct attention *a, struct octet_error *err)
{
    enum octet_status status;

    for (int64_t i = 0; i < a->unit_count; i++)
        add_scores(a, &a->units[i]);
    status = run_products(a, err);
    if (status == OCTET_OK)
        status = each_row(a, softmax_rows, err);
    for (int64_t i = 0; i < a->unit_count && status == OCTET_OK; i++) {
        const struct unit *u = &a->units[i];
        add_product(a, rows_of(a, u), a->v, u->key_count,
                    own_side(u->p, a->scores_dtype, u->key_count, false),
                    key_side(a, u, &a->value, true), u->o);
    }
    if (status == OCTET_OK)
        status = run_products(a, err);
    return status == OCTET_OK ? each_row(a, divide_rows, err) : status;
}

static enum octet_status prepare(struct oct_attention_call *attention, struct attention *a,
                                 bool backward, struct octet_error *err)
{
    const struct oct_op_call *call = &attention->call;
    const struct octet_array *q = &call->in[0], *value = &call->in[2];
    enum octet_status status =
        oct_softmax_prepare(call, 3, attention->scores_dtype, &a->softmax, err);

    a->call = call;
    a->compute = call->execution->compute;
    a->batch = q->dim[0];
    a->length = q->dim[1];
    a->kv = q->dim[2];
    a->g = q->dim[3];
    a->d = q->dim[4];
    a->v = value->dim[3];
    a->product_dtype = attention->product_dtype;
    a->scores_dtype = attention->scores_dtype;
    a->query = *q;
    a->key = call->in[1];
    a->value = *value;
    a->out = call->out[0];
    a->backward = backward;
    a->pool =
        a->batch * a->kv * a->g * a->length * a->length < ALONE ? NULL : a->compute->workers->pool;
    a->block = block_of(a->g, a->length);
    a->blocks = (a->length + a->block - 1) / a->block;
    a->unit_limit = a->batch * a->kv * a->blocks;
    a->unit_limit = a->unit_limit < WAVE_UNITS ? a->unit_limit : WAVE_UNITS;
    a->memory_bytes = wave_bytes(a->batch, a->kv, a->g, a->length, a->d, a->v, backward);
    if (status != OCTET_OK)
        return status;
    if (!(a->query_rows = oct_call_scratch(call, a->block * a->g, sizeof(int64_t), err)) ||
        !(a->units = oct_call_scratch(call, a->unit_limit, sizeof *a->units, err)) ||
        !(a->products = oct_call_scratch(call, 5 * a->unit_limit, sizeof *a->products, err)))
        return OCTET_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < a->block * a->g; i++)
        a->query_rows[i] = (i / a->g * a->kv * a->g + i % a->g) * a->d;
    a->memory = octet_arena_alloc_unset(call->scratch, a->memory_bytes + 64);
    if (!a->memory)
        return octet_arena_exhausted(call->scratch, err);
    a->memory += (64 - (uintptr_t)a->memory % 64) % 64;
    return OCTET_OK;
}

/* Where the row's numbers go: saved for backward, else in scratch. */
static enum octet_status place_saved(struct attention *a, struct octet_error *err)
{
    const int64_t rows = a->batch * a->kv * a->g * a->length;
    float *saved = a->call->saved;

    if (!saved)
        saved = oct_call_scratch(a->call, 2 * rows, sizeof(float), err);
    a->maxima = saved;
    a->sums = saved + rows;
    return saved ? OCTET_OK : OCTET_RESOURCE_EXHAUSTED;
}

enum octet_status oct_attention_forward(struct oct_attention_call *attention,
                                        struct octet_error *err)
{
    struct attention a = {0};
    enum octet_status status = prepare(attention, &a, false, err);

    if (status == OCTET_OK)
        status = place_saved(&a, err);
    for (int64_t next = 0; status == OCTET_OK && next < a.batch * a.kv * a.blocks;) {
        next = gather(&a, next);
        status = forward_wave(&a, err);
    }
    return status;
}

/* ---- Backward ---- */

/* c' into o, packed; dl of each row into the place of dq's first number until that is written. */
static void cotangent_rows(struct attention *a, const struct unit *u, int64_t first, int64_t end)
{
    const struct oct_kernels *kernels = a->softmax.kernels;

    for (int64_t i = first; i < end; i++) {
        const int64_t place = out_place(a, u, i);
        float *c = u->o + i * a->v, products = 0, buffer[OCT_PIECE];
        kernels->decode(a->cotangent.dtype, (size_t)a->v, element(&a->cotangent, place * a->v), c);
        oct_divide_row((size_t)a->v, c, a->sums[saved_place(a, u, i)], c);
        oct_round_values(kernels, a->out.dtype, a->v, c);
        for (int64_t at = 0; at < a->v; at += OCT_PIECE) {
            const int64_t n = a->v - at < OCT_PIECE ? a->v - at : OCT_PIECE;
            products += a->softmax.math->sum_product(
                (size_t)n, c + at, oct_piece_read(kernels, &a->out, place * a->v + at, n, buffer));
        }
        u->dq[i * a->d] = -products;
        pack(a, a->out.dtype, a->v, c);
    }
}

static void scores_rows_back(struct attention *a, const struct unit *u, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        float *p = u->p + i * u->key_count, *ds = u->ds + i * u->key_count;
        const float dl = u->dq[i * a->d], maximum = softmax_row(a, u, i).maximum;
        oct_round_values(a->softmax.kernels, a->scores_dtype, u->key_count, p);
        oct_softmax_backward_row(&a->softmax, u->key_count, p, maximum, dl, ds);
        if (a->sink_parts)
            a->sink_parts[saved_place(a, u, i)] =
                dl * oct_softmax_sink_slope(&a->softmax, u->kv * a->g + i % a->g, maximum);
        pack(a, a->scores_dtype, u->key_count, p);
        pack(a, a->product_dtype, u->key_count, ds);
    }
}

static void write_query_rows(struct attention *a, const struct unit *u, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        oct_piece_write(a->softmax.kernels, &a->d_query, out_place(a, u, i) * a->d, a->d,
                        u->dq + i * a->d);
}

/* Part of the keys of one (b, kv): the units of the wave that belong to it, in order. */
struct sum_keys {
    struct attention *a;
    int64_t first[WAVE_UNITS + 1]; /* unit that begins each (b, kv) */
};

static void add_keys(const struct attention *a, const struct unit *u, const struct octet_array *to,
                     const float *from, int64_t first, int64_t end)
{
    const int64_t width = to->dim[3];

    first = first > u->key ? first : u->key;
    end = end < u->key + u->key_count ? end : u->key + u->key_count;
    for (int64_t key = first; key < end && to->data; key++) {
        float *sum = (float *)to->data + ((u->batch * a->length + key) * a->kv + u->kv) * width;
        a->softmax.math->add((size_t)width, sum, from + (key - u->key) * width, sum);
    }
}

static void sum_keys(void *user, size_t item, size_t thread)
{
    const struct sum_keys *s = user;
    const int64_t part = (s->a->length + KEY_PARTS - 1) / KEY_PARTS;
    const int64_t first = (int64_t)(item % KEY_PARTS) * part, end = first + part;

    (void)thread;
    for (int64_t i = s->first[item / KEY_PARTS]; i < s->first[item / KEY_PARTS + 1]; i++) {
        const struct unit *u = &s->a->units[i];
        add_keys(s->a, u, &s->a->d_key, u->dk, first, end);
        add_keys(s->a, u, &s->a->d_value, u->dv, first, end);
    }
}

static enum octet_status sum_wave(struct attention *a, struct octet_error *err)
{
    struct sum_keys s = {.a = a};
    size_t groups = 0;

    for (int64_t i = 0; i < a->unit_count; i++)
        if (i == 0 || a->units[i].batch != a->units[i - 1].batch ||
            a->units[i].kv != a->units[i - 1].kv)
            s.first[groups++] = i;
    s.first[groups] = a->unit_count;
    return oct_pool_run(a->pool, groups * KEY_PARTS, a->compute->cancel, sum_keys, &s, err);
}

static void add_gradients(struct attention *a, const struct unit *u)
{
    const int64_t rows = rows_of(a, u), keys = u->key_count;

    if (a->d_query.data)
        add_product(a, rows, a->d, keys, own_side(u->ds, a->product_dtype, keys, false),
                    key_side(a, u, &a->key, true), u->dq);
    if (a->d_key.data)
        add_product(a, keys, a->d, rows, own_side(u->ds, a->product_dtype, keys, true),
                    query_side(a, u, true), u->dk);
    if (a->d_value.data)
        add_product(a, keys, a->v, rows, own_side(u->p, a->scores_dtype, keys, true),
                    own_side(u->o, a->out.dtype, a->v, true), u->dv);
}

static enum octet_status backward_wave(struct attention *a, struct octet_error *err)
{
    enum octet_status status = each_row(a, cotangent_rows, err);

    for (int64_t i = 0; i < a->unit_count; i++) {
        const struct unit *u = &a->units[i];
        add_scores(a, u);
        add_product(a, rows_of(a, u), u->key_count, a->v, own_side(u->o, a->out.dtype, a->v, false),
                    key_side(a, u, &a->value, false), u->ds);
    }
    if (status == OCTET_OK)
        status = run_products(a, err);
    if (status == OCTET_OK)
        status = each_row(a, scores_rows_back, err);
    for (int64_t i = 0; i < a->unit_count && status == OCTET_OK; i++)
        add_gradients(a, &a->units[i]);
    if (status == OCTET_OK)
        status = run_products(a, err);
    if (status == OCTET_OK && a->d_query.data)
        status = each_row(a, write_query_rows, err);
    return status == OCTET_OK ? sum_wave(a, err) : status;
}

/* Where dk or dv is added up: in the gradient itself if it is F32. */
static enum octet_status place_sums(const struct attention *a, const struct octet_array *gradient,
                                    struct octet_array *sums, struct octet_error *err)
{
    const size_t bytes = sizeof(float) * (size_t)octet_array_elements(gradient);

    *sums = *gradient;
    if (!gradient->data)
        return OCTET_OK;
    sums->dtype = OCTET_DTYPE_F32;
    if (gradient->dtype != OCTET_DTYPE_F32)
        sums->data = octet_arena_alloc_unset(a->call->scratch, bytes);
    if (!sums->data)
        return octet_arena_exhausted(a->call->scratch, err);
    memset(sums->data, 0, bytes);
    return OCTET_OK;
}

static void round_sums(const struct attention *a, const struct octet_array *sums,
                       const struct octet_array *gradient)
{
    if (gradient->data && gradient->dtype != OCTET_DTYPE_F32)
        a->softmax.kernels->cast(gradient->dtype, (size_t)octet_array_elements(gradient),
                                 sums->data, gradient->data);
}

/* In order of batches, then queries. */
static void sum_sinks(const struct attention *a, const struct octet_array *out)
{
    for (int64_t head = 0; head < a->kv * a->g; head++) {
        double sum = 0;
        for (int64_t b = 0; b < a->batch; b++)
            for (int64_t i = 0; i < a->length; i++)
                sum += (double)a->sink_parts[((b * a->kv + head / a->g) * a->length + i) * a->g +
                                             head % a->g];
        float value = (float)sum;
        oct_piece_write(a->softmax.kernels, out, head, 1, &value);
    }
}

static enum octet_status run_backward(struct attention *a, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (int64_t next = 0; status == OCTET_OK && next < a->batch * a->kv * a->blocks;) {
        next = gather(a, next);
        status = backward_wave(a, err);
    }
    return status;
}

enum octet_status oct_attention_vjp(struct oct_attention_call *attention,
                                    const struct octet_array *cotangent,
                                    struct octet_array *gradient, struct octet_error *err)
{
    const bool has_sinks = attention->call.node->input_count > 3 && gradient[5].data;
    struct attention a = {0};
    enum octet_status status = prepare(attention, &a, true, err);

    if (status == OCTET_OK)
        status = place_saved(&a, err);
    a.cotangent = cotangent[0];
    a.d_query = gradient[0];
    if (status == OCTET_OK)
        status = place_sums(&a, &gradient[1], &a.d_key, err);
    if (status == OCTET_OK)
        status = place_sums(&a, &gradient[2], &a.d_value, err);
    if (status == OCTET_OK && has_sinks &&
        !(a.sink_parts = oct_call_scratch(&attention->call, a.batch * a.kv * a.g * a.length,
                                          sizeof(float), err)))
        status = OCTET_RESOURCE_EXHAUSTED;
    if (status == OCTET_OK)
        status = run_backward(&a, err);
    if (status != OCTET_OK)
        return status;
    round_sums(&a, &a.d_key, &gradient[1]);
    round_sums(&a, &a.d_value, &gradient[2]);
    if (has_sinks)
        sum_sinks(&a, &gradient[5]);
    return OCTET_OK;
}
