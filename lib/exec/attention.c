/* Scaled dot-product attention as one op (op.h): memory grows with the length, not its square.
 *
 * Shapes: query [b, t, kv, g, d], key [b, s, kv, d], value [b, s, kv, v], t = s. A row is a query
 * of one of the g heads that share a key; the rows of a pair (b, kv) are numbered query * g + head.
 * A block is some rows of a pair, and the work of one thread (kernels/attention.h). Pairs go in
 * waves, as many as fit in WAVE_BYTES: threads pack a wave's keys and values, then they share its
 * blocks.
 *
 * Forward keeps each row's maximum and sum; backward computes the scores again. The gradient of a
 * key is added up over blocks in their order: a block that is ahead of the one before it waits,
 * chunk by chunk. Blocks are begun in order, so the one that is waited for has always begun.
 *
 * Decision: the bits are those of the three ops by themselves in f32 (softmax.c): products in
 * EXACT_ORDER over k begin at a multiple of 256, and what is left out has a factor of exactly 0
 * (which matters only to values that are not finite, and to the sign of a sum that underflowed). */
#include "kernels/attention.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/float_env.h"
#include "base/pool.h"
#include "exec/piece.h"
#include "exec/softmax.h"

enum {
    WAVE_BYTES = 8 << 20, /* of packed keys and values, beside which there is room in most L3s */
    BLOCK = 32,           /* rows; in forward, where it is as many scores as are kept of a key */
    BLOCK_BACK = OCT_ATTENTION_ROWS,
    ALONE = 1 << 15 /* scores below which threads are not woken */
};

struct attention {
    struct oct_softmax softmax;
    struct oct_attention kernels;
    const struct oct_op_call *call;
    const struct octet_compute *compute;
    struct oct_pool *pool;
    int64_t batch, length, kv, g, d, v;
    struct octet_array query, key, value, out;
    float *maxima, *sums;        /* saved: [b, kv, length * g] */
    int64_t rows, blocks, block; /* of a pair */
    int64_t chunks;
    char *packed, *benches; /* [wave][chunks], [threads] */
    size_t chunk_bytes, bench_bytes;
    int64_t wave_first, wave_pairs; /* the wave at hand; as many as fit */
    /* backward */
    bool backward;
    struct octet_array cotangent, d_query;
    struct octet_array d_key, d_value; /* F32, to be added to; data NULL: not wanted */
    float *sink_parts;                 /* [b, kv, length * g] or NULL */
    _Atomic int64_t *progress; /* [wave][blocks]: chunks of keys that the block is done with */
};

/* What a thread has of the block at hand, before the kernels' own bench. */
struct block {
    int64_t offsets[OCT_ATTENTION_ROWS];
    int32_t from[OCT_ATTENTION_ROWS], last[OCT_ATTENTION_ROWS], ids[OCT_ATTENTION_ROWS];
    float sinks[OCT_ATTENTION_ROWS], slopes[OCT_ATTENTION_ROWS];
};

/* ---- Sizes ---- */

static int64_t chunks_of(int64_t length)
{
    return (length + OCT_ATTENTION_CHUNK - 1) / OCT_ATTENTION_CHUNK;
}

static int64_t wave_of(int64_t pairs, int64_t length, int64_t d, int64_t v, bool backward)
{
    const size_t pair = (size_t)chunks_of(length) * oct_attention_chunk_bytes(d, v, backward);
    const size_t fit = pair ? WAVE_BYTES / pair : 1;

    return fit < 1 ? 1 : (size_t)pairs < fit ? pairs : (int64_t)fit;
}

static size_t block_lines(void)
{
    return (sizeof(struct block) + 63) / 64 * 64;
}

/* Of a thread: the block, numbers of its rows, the kernels' bench. */
static size_t thread_bytes(int64_t length, int64_t d, int64_t v, bool backward)
{
    const int64_t numbers = OCT_ATTENTION_ROWS * (d + v + 32);

    return block_lines() + (size_t)numbers * sizeof(float) +
           oct_attention_bench_bytes(length, d, v, backward);
}

size_t oct_attention_saved_bytes(int64_t batch, int64_t heads, int64_t length)
{
    return 2 * sizeof(float) * (size_t)(batch * heads * length);
}

size_t oct_attention_scratch_bytes(const struct octet_array *query, const struct octet_array *value,
                                   bool backward, int threads)
{
    const int64_t batch = query->dim[0], length = query->dim[1], kv = query->dim[2];
    const int64_t g = query->dim[3], d = query->dim[4], v = value->dim[3];
    const int64_t wave = wave_of(batch * kv, length, d, v, backward);
    size_t bytes = OCT_SCRATCH_LOSS + oct_softmax_bytes(batch, kv * g, length);

    bytes += (size_t)(wave * chunks_of(length)) * oct_attention_chunk_bytes(d, v, backward);
    bytes += (size_t)(threads > 1 ? threads : 1) * thread_bytes(length, d, v, backward);
    if (!backward) /* maxima and sums, where nothing is saved */
        return bytes + 2 * sizeof(float) * (size_t)(batch * length * kv * g);
    if (query->dtype != OCTET_DTYPE_F32 || value->dtype != OCTET_DTYPE_F32)
        bytes += sizeof(float) * (size_t)(batch * length * kv * (d + v));
    bytes += sizeof(float) * (size_t)(batch * length * kv * g); /* of sinks */
    return bytes + sizeof(int64_t) * (size_t)(wave * (length * g / BLOCK_BACK + 1));
}

/* ---- Setting up ---- */

static enum octet_status take_memory(struct attention *a, struct octet_error *err)
{
    const size_t threads = oct_pool_threads(a->pool);
    const size_t packed = (size_t)(a->wave_pairs * a->chunks) * a->chunk_bytes;

    a->packed = octet_arena_alloc_unset(a->call->scratch, packed + threads * a->bench_bytes + 64);
    if (!a->packed)
        return octet_arena_exhausted(a->call->scratch, err);
    a->packed += (64 - (uintptr_t)a->packed % 64) % 64;
    a->benches = a->packed + packed;
    if (!a->backward)
        return OCTET_OK;
    a->progress = octet_arena_alloc_unset(a->call->scratch, (size_t)(a->wave_pairs * a->blocks) *
                                                                sizeof *a->progress);
    return a->progress ? OCTET_OK : octet_arena_exhausted(a->call->scratch, err);
}

/* Where the rows' numbers go: saved for backward, else in scratch. */
static enum octet_status place_saved(struct attention *a, struct octet_error *err)
{
    const int64_t rows = a->batch * a->kv * a->rows;
    float *saved = a->call->saved;

    if (!saved)
        saved = oct_call_scratch(a->call, 2 * rows, sizeof(float), err);
    a->maxima = saved;
    a->sums = saved + rows;
    return saved ? OCTET_OK : OCTET_RESOURCE_EXHAUSTED;
}

static void describe(struct attention *a, const struct oct_attention_call *attention, bool backward)
{
    const struct oct_op_call *call = &attention->call;
    const struct octet_array *q = &call->in[0], *value = &call->in[2];

    a->call = call;
    a->compute = call->execution->compute;
    a->batch = q->dim[0];
    a->length = q->dim[1];
    a->kv = q->dim[2];
    a->g = q->dim[3];
    a->d = q->dim[4];
    a->v = value->dim[3];
    a->query = *q;
    a->key = call->in[1];
    a->value = *value;
    a->out = call->out[0];
    a->backward = backward;
    a->rows = a->length * a->g;
    a->block = backward ? BLOCK_BACK : BLOCK;
    a->blocks = (a->rows + a->block - 1) / a->block;
    a->chunks = chunks_of(a->length);
    a->chunk_bytes = oct_attention_chunk_bytes(a->d, a->v, backward);
    a->bench_bytes = thread_bytes(a->length, a->d, a->v, backward);
    a->wave_pairs = wave_of(a->batch * a->kv, a->length, a->d, a->v, backward);
    a->pool = a->batch * a->kv * a->rows * a->length < ALONE ? NULL : a->compute->workers->pool;
    a->kernels = (struct oct_attention){.kernels = oct_call_kernels(call),
                                        .length = a->length,
                                        .d = a->d,
                                        .v = a->v,
                                        .query = q->dtype,
                                        .key = a->key.dtype,
                                        .value = value->dtype,
                                        .product = attention->product_dtype,
                                        .scores = attention->scores_dtype,
                                        .out = a->out.dtype,
                                        .soft_cap = call->node->attributes.softmax.soft_cap,
                                        .backward = backward};
    oct_attention_set_up(&a->kernels);
}

static enum octet_status prepare(const struct oct_attention_call *attention, struct attention *a,
                                 bool backward, struct octet_error *err)
{
    describe(a, attention, backward);
    enum octet_status status =
        oct_softmax_prepare(&attention->call, 3, attention->scores_dtype, &a->softmax, err);
    if (status == OCTET_OK)
        status = place_saved(a, err);
    return status == OCTET_OK ? take_memory(a, err) : status;
}

/* ---- Blocks ---- */

static char *element(const struct octet_array *array, int64_t at)
{
    return (char *)array->data + at * (int64_t)octet_dtype_bytes(array->dtype);
}

static void pack_item(void *user, size_t item, size_t thread)
{
    const struct attention *a = user;
    const int64_t pair = a->wave_first + (int64_t)item / a->chunks;
    const int64_t first = (int64_t)item % a->chunks * OCT_ATTENTION_CHUNK;
    const int64_t left = a->length - first;
    const int64_t row = (pair / a->kv * a->length + first) * a->kv + pair % a->kv;

    oct_attention_pack(
        &a->kernels, element(&a->key, row * a->d), a->kv * a->d, element(&a->value, row * a->v),
        a->kv * a->v, left < OCT_ATTENTION_CHUNK ? left : OCT_ATTENTION_CHUNK,
        a->packed + item * a->chunk_bytes, a->benches + thread * a->bench_bytes + block_lines());
}

/* A block of the wave: of one pair after another, so that few of them wait for another. */
struct place {
    int64_t pair, index, first, count; /* first, count: rows of the pair */
    int64_t in_wave;
};

static struct place place_of(const struct attention *a, size_t item)
{
    const int64_t pairs = a->batch * a->kv - a->wave_first < a->wave_pairs
                              ? a->batch * a->kv - a->wave_first
                              : a->wave_pairs;
    struct place p = {.in_wave = (int64_t)item % pairs, .index = (int64_t)item / pairs};

    if (!a->backward) /* the longest first, so that threads end together */
        p.index = a->blocks - 1 - p.index;
    p.pair = a->wave_first + p.in_wave;
    p.first = p.index * a->block;
    p.count = a->rows - p.first < a->block ? a->rows - p.first : a->block;
    return p;
}

/* Of row i of the block: its place [b, t, kv, g] in query and out; and in what is saved. */
static int64_t row_place(const struct attention *a, const struct place *p, int64_t i)
{
    const int64_t row = p->first + i;
    const int64_t query = p->pair / a->kv * a->length + row / a->g;
    return (query * a->kv + p->pair % a->kv) * a->g + row % a->g;
}

static int64_t saved_place(const struct attention *a, const struct place *p)
{
    return p->pair * a->rows + p->first;
}

static struct oct_attention_rows rows_of(const struct attention *a, const struct place *p,
                                         struct block *block)
{
    const int64_t batch = p->pair / a->kv, saved = saved_place(a, p);
    const int32_t *ids = a->softmax.segments + batch * a->length;
    const bool recurs = a->softmax.recurs[batch];

    for (int64_t i = 0; i < p->count; i++) {
        const int64_t query = (p->first + i) / a->g;
        block->offsets[i] = row_place(a, p, i) * a->d;
        block->from[i] = (int32_t)oct_softmax_from(&a->softmax, batch, query);
        block->last[i] = (int32_t)query;
        block->ids[i] = ids[query];
        if (a->softmax.sinks)
            block->sinks[i] = a->softmax.sinks[p->pair % a->kv * a->g + (p->first + i) % a->g];
    }
    return (struct oct_attention_rows){.count = p->count,
                                       .from = block->from,
                                       .last = block->last,
                                       .ids = recurs ? ids : NULL,
                                       .row_ids = block->ids,
                                       .sinks = a->softmax.sinks ? block->sinks : NULL,
                                       .query = a->query.data,
                                       .offsets = block->offsets,
                                       .chunks = a->packed +
                                                 (size_t)(p->in_wave * a->chunks) * a->chunk_bytes,
                                       .maxima = a->maxima + saved,
                                       .sums = a->sums + saved};
}

/* All pairs, wave by wave. */
static enum octet_status run_waves(struct attention *a,
                                   void (*block)(void *user, size_t item, size_t thread),
                                   struct octet_error *err)
{
    const int64_t pairs = a->batch * a->kv;
    enum octet_status status = OCTET_OK;

    for (int64_t first = 0; first < pairs && a->rows > 0 && status == OCTET_OK;
         first += a->wave_pairs) {
        const int64_t some = pairs - first < a->wave_pairs ? pairs - first : a->wave_pairs;
        a->wave_first = first;
        for (int64_t i = 0; a->backward && i < some * a->blocks; i++)
            atomic_init(&a->progress[i], 0);
        status = oct_pool_run(a->pool, (size_t)(some * a->chunks), a->compute->cancel, pack_item, a,
                              err);
        if (status == OCTET_OK)
            status = oct_pool_run(a->pool, (size_t)(some * a->blocks), a->compute->cancel, block, a,
                                  err);
    }
    return status;
}

/* ---- Forward ---- */

static void forward_block(void *user, size_t item, size_t thread)
{
    const struct attention *a = user;
    char *bench = a->benches + thread * a->bench_bytes;
    float *out = (float *)(void *)(bench + block_lines());
    const struct place p = place_of(a, item);
    const struct oct_attention_rows rows = rows_of(a, &p, (struct block *)(void *)bench);

    oct_attention_forward_rows(&a->kernels, &rows, out,
                               out + OCT_ATTENTION_ROWS * (a->d + a->v + 32));
    for (int64_t i = 0; i < p.count; i++)
        oct_piece_write(a->kernels.kernels, &a->out, row_place(a, &p, i) * a->v, a->v,
                        out + i * a->v);
}

enum octet_status oct_attention_forward(struct oct_attention_call *attention,
                                        struct octet_error *err)
{
    struct attention a = {0};
    enum octet_status status = prepare(attention, &a, false, err);

    return status == OCTET_OK ? run_waves(&a, forward_block, err) : status;
}

/* ---- Backward ---- */

/* The cotangent of a row divided by its sum, c, rounded to the type of out; returns - c . out. */
static float divide_cotangent(const struct attention *a, int64_t place, float sum, float *c,
                              void *rounded)
{
    const struct oct_kernels *kernels = a->kernels.kernels;
    float products = 0, buffer[OCT_PIECE];

    kernels->decode(a->cotangent.dtype, (size_t)a->v, element(&a->cotangent, place * a->v), c);
    oct_divide_row((size_t)a->v, c, sum, c);
    oct_round_values(kernels, a->out.dtype, a->v, c);
    for (int64_t at = 0; at < a->v; at += OCT_PIECE) {
        const int64_t n = a->v - at < OCT_PIECE ? a->v - at : OCT_PIECE;
        products += kernels->math->sum_product(
            (size_t)n, c + at, oct_piece_read(kernels, &a->out, place * a->v + at, n, buffer));
    }
    if (rounded != (void *)c)
        kernels->cast(a->out.dtype, (size_t)a->v, c, rounded);
    return -products;
}

/* cotangents: [rows, v] of the type of out. */
static void divide_cotangents(const struct attention *a, const struct place *p, struct block *block,
                              char *cotangents)
{
    const int64_t head = p->pair % a->kv * a->g, saved = saved_place(a, p);
    const size_t bytes = octet_dtype_bytes(a->out.dtype);
    float *last = (float *)(void *)cotangents + (OCT_ATTENTION_ROWS - 1) * a->v;

    for (int64_t i = 0; i < p->count; i++) {
        void *to = cotangents + (size_t)(i * a->v) * bytes;
        float *c = a->out.dtype == OCTET_DTYPE_F32 ? to : last;
        block->slopes[i] = divide_cotangent(a, row_place(a, p, i), a->sums[saved + i], c, to);
        if (a->sink_parts)
            a->sink_parts[saved + i] = oct_mul(
                block->slopes[i], oct_softmax_sink_slope(&a->softmax, head + (p->first + i) % a->g,
                                                         a->maxima[saved + i]));
    }
}

/* Whose turn it is to add to the gradients of a chunk of keys. */
struct order {
    _Atomic int64_t *before, *mine; /* before NULL: the first */
};

static void await_turn(void *user, int64_t chunk)
{
    const struct order *o = user;

    /* acquire: what the block before has added is read */
    while (o->before && atomic_load_explicit(o->before, memory_order_acquire) <= chunk)
        sched_yield();
}

static void tell_done(void *user, int64_t chunk)
{
    const struct order *o = user;

    atomic_store_explicit(o->mine, chunk + 1, memory_order_release);
}

static void backward_block(void *user, size_t item, size_t thread)
{
    const struct attention *a = user;
    char *bench = a->benches + thread * a->bench_bytes;
    const struct place p = place_of(a, item);
    struct block *block = (struct block *)(void *)bench;
    float *d_query = (float *)(void *)(bench + block_lines());
    char *cotangents = (char *)(d_query + OCT_ATTENTION_ROWS * (a->d + 16));
    const int64_t head = p.pair / a->kv * a->length * a->kv + p.pair % a->kv;
    const struct oct_attention_rows rows = rows_of(a, &p, block);
    struct order order = {.mine = &a->progress[p.in_wave * a->blocks + p.index]};

    divide_cotangents(a, &p, block, cotangents);
    order.before = p.index ? order.mine - 1 : NULL;
    const struct oct_attention_back back = {
        .cotangent = cotangents,
        .slopes = block->slopes,
        .d_query = a->d_query.data ? d_query : NULL,
        .d_key = a->d_key.data ? (float *)a->d_key.data + head * a->d : NULL,
        .d_value = a->d_value.data ? (float *)a->d_value.data + head * a->v : NULL,
        .key_stride = a->kv * a->d,
        .value_stride = a->kv * a->v,
        .turn = await_turn,
        .done = tell_done,
        .user = &order};
    oct_attention_backward_rows(&a->kernels, &rows, &back,
                                d_query + OCT_ATTENTION_ROWS * (a->d + a->v + 32));
    tell_done(&order, INT64_MAX - 1);
    for (int64_t i = 0; a->d_query.data && i < p.count; i++)
        oct_piece_write(a->kernels.kernels, &a->d_query, row_place(a, &p, i) * a->d, a->d,
                        d_query + i * a->d);
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

enum octet_status oct_attention_vjp(struct oct_attention_call *attention,
                                    const struct octet_array *cotangent,
                                    struct octet_array *gradient, struct octet_error *err)
{
    const bool has_sinks = attention->call.node->input_count > 3 && gradient[5].data;
    struct attention a = {0};
    enum octet_status status = prepare(attention, &a, true, err);

    a.cotangent = cotangent[0];
    a.d_query = gradient[0];
    if (status == OCTET_OK)
        status = place_sums(&a, &gradient[1], &a.d_key, err);
    if (status == OCTET_OK)
        status = place_sums(&a, &gradient[2], &a.d_value, err);
    if (status == OCTET_OK && has_sinks &&
        !(a.sink_parts =
              oct_call_scratch(&attention->call, a.batch * a.kv * a.rows, sizeof(float), err)))
        status = OCTET_RESOURCE_EXHAUSTED;
    if (status == OCTET_OK)
        status = run_waves(&a, backward_block, err);
    if (status != OCTET_OK)
        return status;
    round_sums(&a, &a.d_key, &gradient[1]);
    round_sums(&a, &a.d_value, &gradient[2]);
    if (has_sinks)
        sum_sinks(&a, &gradient[5]);
    return OCTET_OK;
}
