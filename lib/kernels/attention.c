/* See attention.h.
 *
 * Scores are computed as [keys][lanes] = keys (rows of tiles) * queries (columns). In that form
 * exponentials are a panel of columns for the product with the turned values, and their gradient
 * one for the product with the turned keys. Only the gradients of keys and values, which contract
 * over rows, need them packed again. Keys and values are packed once for all blocks of rows.
 *
 * A row's scores are all kept until its maximum is known, lanes * keys of them: rescaling sums as
 * the maximum grows would need less memory and give other bits than the ops by themselves. Backward
 * knows the maximum, and never has more than a chunk. */
#include "kernels/attention.h"

#include <math.h>
#include <string.h>

#include "base/float_env.h"
#include "kernels/attention_private.h"
#include "kernels/gemm_private.h"
#include "kernels/math.h"

enum { CHUNK = OCT_ATTENTION_CHUNK, ROWS = OCT_ATTENTION_ROWS, LANES = OCT_LANES_MAX, LINE = 64 };

/* Of lanes: what rows there are, and neutral values where there is none. */
struct lanes {
    _Alignas(LINE) int32_t from[ROWS], last[ROWS];
    _Alignas(LINE) float maxima[ROWS], slopes[ROWS], totals[ROWS];
    _Alignas(LINE) uint32_t sizes[ROWS];
    int32_t most_from, least_last; /* of the rows that there are */
};

/* What a thread works in. */
struct bench {
    struct oct_gemm_scratch scratch;
    struct lanes lanes;
    _Alignas(LINE) float tile[OCT_GEMM_TILE_MAX];
    _Alignas(LINE) float sums[OCT_SUMS * LANES];
    int64_t free[CHUNK], depth[CHUNK];
    /* Behind it: see take. */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- Sizes ---- */

static size_t ceil_to(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Panels of `free` indices, `width` each at most, and so many k. */
static size_t panels_bytes(size_t free, size_t width, size_t depth)
{
    const size_t blocks = (depth + CHUNK - 1) / CHUNK; /* an odd one is padded */
    return lines((free + width - 1) * (depth + blocks) * sizeof(float) + OCT_GEMM_PANEL_SLACK);
}

/* Keys of a chunk as rows of a product over a block's rows. */
static size_t key_panels_bytes(void)
{
    return panels_bytes(CHUNK, OCT_GEMM_ROWS_MAX, ROWS) + CHUNK * OCT_GEMM_PANEL_SLACK;
}

size_t oct_attention_chunk_bytes(int64_t d, int64_t v, bool backward)
{
    const size_t rows = OCT_GEMM_ROWS_MAX, keys = panels_bytes(CHUNK, rows, (size_t)d);

    if (!backward)
        return keys + panels_bytes((size_t)v, rows, CHUNK);
    return keys + panels_bytes(CHUNK, rows, (size_t)v) + panels_bytes((size_t)d, rows, CHUNK);
}

size_t oct_attention_bench_bytes(int64_t keys, int64_t d, int64_t v, bool backward)
{
    const size_t both = (size_t)(d + v);
    size_t bytes = lines(sizeof(struct bench));

    if (!backward) {
        bytes += panels_bytes(LANES, 1, (size_t)d) + lines((size_t)v * LANES * sizeof(float));
        return bytes + lines(((size_t)keys + CHUNK) * LANES * sizeof(float));
    }
    bytes += 2 * panels_bytes(ROWS, 1, both) + 2 * panels_bytes(both, LANES, ROWS);
    bytes += lines((size_t)d * ROWS * sizeof(float));
    bytes += 2 * lines((CHUNK + 2) * LANES * sizeof(float)) + lines(CHUNK * LANES * 2);
    return bytes + 2 * key_panels_bytes();
}

/* The next piece of a bench or a chunk. */
static void *take(char **memory, size_t bytes)
{
    char *piece = *memory;

    *memory += lines(bytes);
    return piece;
}

/* ---- Packing ---- */

static const struct oct_gemm_path *path_of(const struct oct_gemm_kernels *kernels,
                                           enum octet_dtype lhs, enum octet_dtype rhs)
{
    bool exact = kernels->bf16.pack && lhs != OCTET_DTYPE_F32 && rhs != OCTET_DTYPE_F32;
    return exact ? &kernels->bf16 : &kernels->f32;
}

void oct_attention_set_up(struct oct_attention *a)
{
    const struct oct_gemm_kernels *kernels = a->kernels->gemm;

    a->by_keys = path_of(kernels, a->query, a->key);
    a->by_values = path_of(kernels, a->scores, a->value);
    a->back_values = path_of(kernels, a->out, a->value);
    a->to_query = path_of(kernels, a->product, a->key);
    a->to_key = path_of(kernels, a->product, a->query);
    a->to_value = path_of(kernels, a->scores, a->out);
    if (a->query != a->key) /* ds is in one form for both */
        a->to_query = a->to_key = &kernels->f32;
}

static bool fill(const int64_t *table, int64_t stride, size_t first, size_t count, int64_t *offsets)
{
    bool run = true;

    for (size_t i = 0; i < count; i++) {
        offsets[i] = table ? table[first + i] : (int64_t)(first + i) * stride;
        run &= offsets[i] == offsets[0] + (int64_t)i;
    }
    return run;
}

static size_t panel_bytes(const struct oct_gemm_path *path, size_t width, size_t depth)
{
    return (depth + 1) / 2 * path->pair_bytes * width;
}

/* `count` free indices from `first` on (at most CHUNK) and one block of k, from `k` on, as panels
 * of `width` that lie `step` bytes apart. */
static void pack_block(struct bench *bench, const struct oct_gemm_path *path,
                       const struct oct_gemm_side *side, size_t first, size_t count, size_t k,
                       size_t depth, size_t width, char *to, size_t step)
{
    struct oct_gemm_view view = {.dtype = side->dtype,
                                 .element_bytes = octet_dtype_bytes(side->dtype),
                                 .data = side->data,
                                 .free = bench->free,
                                 .depth = bench->depth,
                                 .free_count = count,
                                 .depth_count = depth};

    view.free_is_run = fill(side->free, side->free_stride, first, count, bench->free);
    view.depth_is_run = fill(side->depth, side->depth_stride, k, depth, bench->depth);
    for (size_t f = 0; f < count; f += width, to += step)
        path->pack(&view, f, smaller(width, count - f), width, to, &bench->scratch);
}

/* All of it, in the order [block of k][panel]. CHUNK is no multiple of every width, so parts of
 * free indices are cut to one. */
static void pack_side(struct bench *bench, const struct oct_gemm_path *path,
                      const struct oct_gemm_side *side, size_t count, size_t depth, size_t width,
                      char *to)
{
    const size_t most = CHUNK / width * width;

    for (size_t k = 0; k < depth; k += CHUNK) {
        const size_t some = smaller(CHUNK, depth - k), step = panel_bytes(path, width, some);
        for (size_t f = 0; f < count; f += most) {
            const size_t part = smaller(most, count - f);
            pack_block(bench, path, side, f, part, k, some, width, to, step);
            to += (part + width - 1) / width * step;
        }
    }
}

/* Where the parts of a chunk lie. */
struct chunk {
    char *keys, *values, *turned; /* values: turned in forward; turned: keys, in backward */
};

static struct chunk chunk_at(const struct oct_attention *a, const char *memory)
{
    const size_t rows = OCT_GEMM_ROWS_MAX, d = (size_t)a->d, v = (size_t)a->v;
    char *at = (char *)(uintptr_t)memory;
    struct chunk c = {.keys = take(&at, panels_bytes(CHUNK, rows, d))};

    c.values = take(&at, a->backward ? panels_bytes(CHUNK, rows, v) : panels_bytes(v, rows, CHUNK));
    c.turned = at;
    return c;
}

void oct_attention_pack(const struct oct_attention *a, const void *key, int64_t key_stride,
                        const void *value, int64_t value_stride, int64_t count, char *chunk,
                        void *bench)
{
    const struct oct_gemm_side by_key = {
        .dtype = a->key, .data = key, .free_stride = key_stride, .depth_stride = 1};
    const struct oct_gemm_side by_value = {
        .dtype = a->value, .data = value, .free_stride = value_stride, .depth_stride = 1};
    const struct oct_gemm_side turned_key = {
        .dtype = a->key, .data = key, .free_stride = 1, .depth_stride = key_stride};
    const struct oct_gemm_side turned_value = {
        .dtype = a->value, .data = value, .free_stride = 1, .depth_stride = value_stride};
    const size_t n = (size_t)count, d = (size_t)a->d, v = (size_t)a->v;
    const struct chunk c = chunk_at(a, chunk);

    pack_side(bench, a->by_keys, &by_key, n, d, a->by_keys->row_width, c.keys);
    if (!a->backward) {
        pack_side(bench, a->by_values, &turned_value, v, n, a->by_values->row_width, c.values);
        return;
    }
    pack_side(bench, a->back_values, &by_value, n, v, a->back_values->row_width, c.values);
    pack_side(bench, a->to_query, &turned_key, d, n, a->to_query->row_width, c.turned);
}

/* ---- Products ---- */

/* One block of k. rows: panels `step` bytes apart, of which the first `skip` pairs are left out, as
 * in columns; out: `columns` numbers of each row, `stride` apart. */
struct product {
    const struct oct_gemm_path *path;
    size_t rows, columns, pairs;
    const char *row_panels, *column_panel;
    size_t step;
    float *out;
    size_t stride;
    int mode;
};

/* Rows of sums lie apart: asked for while a tile multiplies, they are there when it is merged. */
static void prefetch(const float *out, size_t stride, size_t rows, size_t count)
{
    for (size_t r = 0; r < rows; r++, out += stride)
        for (size_t c = 0; c < count; c += LINE / sizeof(float))
            __builtin_prefetch(out + c, 1);
}

/* What is written whole goes where it belongs at once; whoever reads it makes one NaN of all. */
static void multiply(const struct oct_gemm_kernels *kernels, const struct product *p, float *tile)
{
    const size_t most = p->path->row_width, width = p->path->column_width;
    const char *a = p->row_panels;
    float *out = p->out;

    const bool direct = p->mode & OCT_GEMM_FIRST && p->columns == width && p->stride == width;

    for (size_t r = 0; r < p->rows; r += most, a += p->step, out += most * p->stride) {
        const size_t rows = smaller(most, p->rows - r);
        if (direct) {
            p->path->narrow[rows](p->pairs, a, p->column_panel, 0, out);
            continue;
        }
        prefetch(out, p->stride, rows, p->columns);
        p->path->narrow[rows](p->pairs, a, p->column_panel, 0, tile);
        kernels->merge(rows, p->columns, tile, width, out, p->stride, p->mode);
    }
}

static int mode_of(size_t k, size_t depth, size_t all)
{
    return (k == 0 ? OCT_GEMM_FIRST : 0) | (k + depth == all ? OCT_GEMM_LAST : 0);
}

/* x [keys][lanes]: keys [first, keys) of a chunk, packed by rows of `width`, times a panel of
 * columns; `first` is a multiple of the panel's height. */
static void multiply_chunk(const struct oct_attention *a, struct bench *bench,
                           const struct oct_gemm_path *path, const char *chunk, size_t chunk_keys,
                           const char *columns, size_t width, size_t first, size_t keys, float *x)
{
    const size_t lanes = path->column_width, panels = ceil_to(chunk_keys, path->row_width);

    for (size_t k = 0; k < width; k += CHUNK) {
        const size_t depth = smaller(CHUNK, width - k), pairs = (depth + 1) / 2;
        const size_t step = panel_bytes(path, path->row_width, depth);
        const struct product p = {.path = path,
                                  .rows = keys - first,
                                  .columns = lanes,
                                  .pairs = pairs,
                                  .row_panels = chunk + first / path->row_width * step,
                                  .column_panel = columns,
                                  .step = step,
                                  .out = x + first * lanes,
                                  .stride = lanes,
                                  .mode = mode_of(k, depth, width)};
        multiply(a->kernels->gemm, &p, bench->tile);
        chunk += panels / path->row_width * step;
        columns += panel_bytes(path, lanes, depth);
    }
}

/* ---- Lanes ---- */

/* Rows from `first` on, as many as there are lanes; where there is no row, no key is seen. */
static size_t fill_lanes(const struct oct_attention_rows *r, size_t first, size_t count,
                         struct lanes *to)
{
    const size_t rows = (size_t)r->count - first < count ? (size_t)r->count - first : count;

    to->most_from = 0;
    to->least_last = INT32_MAX;
    for (size_t i = 0; i < count; i++) {
        to->from[i] = i < rows ? r->from[first + i] : INT32_MAX;
        to->last[i] = i < rows ? r->last[first + i] : -1;
        to->maxima[i] = i < rows ? -INFINITY : 0;
        to->sizes[i] = 0;
    }
    for (size_t i = 0; i < rows; i++) {
        to->most_from = to->from[i] > to->most_from ? to->from[i] : to->most_from;
        to->least_last = to->last[i] < to->least_last ? to->last[i] : to->least_last;
    }
    if (rows < count)
        to->least_last = -1;
    return rows;
}

static void cap(const struct oct_attention *a, size_t n, float *x)
{
    const struct oct_math *math = a->kernels->math;

    math->scale(n, x, 1 / a->soft_cap, x);
    math->tanh(n, x, x);
    math->scale(n, x, a->soft_cap, x);
}

/* Where ids recur a row may see some keys of its range and not others. */
static void hide_others(const struct oct_attention_rows *r, size_t lane, size_t rows, size_t lanes,
                        int32_t first_key, size_t keys, float *x)
{
    for (size_t k = 0; k < keys; k++)
        for (size_t l = 0; l < rows; l++)
            if (r->ids[(size_t)first_key + k] != r->row_ids[lane + l])
                x[k * lanes + l] = -INFINITY;
}

/* Keys that rows look at, from a multiple of 16 on, where the order of sums begins again. */
struct reach {
    int32_t first, end;
    int32_t chunk, chunk_end;
};

static struct reach reach_of(const struct oct_attention_rows *r, size_t first, size_t count)
{
    struct reach reach = {.first = INT32_MAX};

    for (size_t i = first; i < first + count; i++) {
        reach.first = r->from[i] < reach.first ? r->from[i] : reach.first;
        reach.end = r->last[i] >= reach.end ? r->last[i] + 1 : reach.end;
    }
    reach.first = reach.first / OCT_SUMS * OCT_SUMS;
    reach.chunk = reach.first / CHUNK;
    reach.chunk_end = (reach.end + CHUNK - 1) / CHUNK;
    return reach;
}

/* The part of a chunk in reach: keys [first, end), counted from the chunk's begin. */
struct span {
    struct chunk chunk;
    int32_t key; /* of the chunk's begin */
    size_t first, end, packed;
};

static struct span span_of(const struct oct_attention *a, const struct oct_attention_rows *r,
                           const struct reach *reach, int32_t chunk)
{
    const size_t bytes = oct_attention_chunk_bytes(a->d, a->v, a->backward);
    const int32_t key = chunk * CHUNK;

    return (struct span){.chunk = chunk_at(a, r->chunks + (size_t)chunk * bytes),
                         .key = key,
                         .first = reach->first > key ? (size_t)(reach->first - key) : 0,
                         .end = smaller(CHUNK, (size_t)(reach->end - key)),
                         .packed = smaller(CHUNK, (size_t)(a->length - key))};
}

/* Scores of a chunk, as softmax sees them; -Inf where a row does not look. */
static void score(const struct oct_attention *a, const struct oct_attention_rows *r,
                  struct bench *bench, const struct span *s, size_t lane, size_t rows,
                  const char *query, float *x)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const size_t height = a->by_keys->row_width, lanes = kernels->lanes;
    const struct lanes *l = &bench->lanes;
    const size_t first = s->first / height * height, n = s->end - s->first;
    float *seen = x + s->first * lanes;

    multiply_chunk(a, bench, a->by_keys, s->chunk.keys, s->packed, query, (size_t)a->d, first,
                   s->end, x);
    if (a->product == OCTET_DTYPE_BF16)
        kernels->round(n, seen);
    if (a->soft_cap > 0) {
        cap(a, n * lanes, seen);
        if (a->scores == OCTET_DTYPE_BF16)
            kernels->round(n, seen);
    }
    if (s->key + (int32_t)s->first < l->most_from || s->key + (int32_t)s->end - 1 > l->least_last)
        kernels->hide(n, s->key + (int32_t)s->first, l->from, l->last, seen);
    if (r->ids)
        hide_others(r, lane, rows, lanes, s->key + (int32_t)s->first, n, seen);
}

static void pack_queries(const struct oct_attention *a, const struct oct_attention_rows *r,
                         struct bench *bench, size_t lane, size_t rows, char *to)
{
    const struct oct_gemm_side side = {
        .dtype = a->query, .data = r->query, .free = r->offsets + lane, .depth_stride = 1};

    pack_side(bench, a->by_keys, &side, rows, (size_t)a->d, a->by_keys->column_width, to);
}

/* ---- Forward ---- */

static void round_numbers(const struct oct_attention *a, enum octet_dtype dtype, size_t n, float *x)
{
    uint16_t codes[LANES];

    if (dtype != OCTET_DTYPE_BF16)
        return;
    a->kernels->cast(dtype, n, x, codes);
    a->kernels->decode(dtype, n, codes, x);
}

/* The maxima that largest found: a NaN wins, both zeros are 0, a sink takes part. */
static void end_maxima(const struct oct_attention_rows *r, size_t lane, size_t rows,
                       struct lanes *l)
{
    for (size_t i = 0; i < rows; i++) {
        float most = l->sizes[i] > 0x7f800000u ? NAN : l->maxima[i] + 0.0f;
        if (r->sinks && r->sinks[lane + i] > most)
            most = r->sinks[lane + i];
        r->maxima[lane + i] = l->maxima[i] = most;
    }
}

static void end_sums(const struct oct_attention *a, const struct oct_attention_rows *r, size_t lane,
                     size_t rows, struct lanes *l)
{
    for (size_t i = 0; r->sinks && i < rows; i++) {
        float e = r->sinks[lane + i] - l->maxima[i];
        a->kernels->math->exp(1, &e, &e);
        l->totals[i] += e;
    }
    round_numbers(a, a->scores, rows, l->totals);
    memcpy(r->sums + lane, l->totals, rows * sizeof(float));
}

static enum oct_lane_format format_of(const struct oct_attention *a,
                                      const struct oct_gemm_path *path, enum octet_dtype dtype)
{
    if (dtype != OCTET_DTYPE_BF16)
        return OCT_LANES_F32;
    return path == &a->kernels->gemm->bf16 ? OCT_LANES_PAIRS : OCT_LANES_ROUNDED;
}

/* Exponentials of a chunk, and their products with its values, which are added to o [v][lanes]. */
static void weigh(const struct oct_attention *a, struct bench *bench, const struct span *s,
                  bool is_first, bool is_last, float *x, float *o)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const struct oct_gemm_path *path = a->by_values;
    const size_t lanes = kernels->lanes, skip = s->first / 2, n = s->end - s->first;
    float *seen = x + s->first * lanes;

    kernels->exp_sum(n, format_of(a, path, a->scores), seen, bench->lanes.maxima, bench->sums);
    const struct product p = {
        .path = path,
        .rows = (size_t)a->v,
        .columns = lanes,
        .pairs = (n + 1) / 2,
        .row_panels = s->chunk.values + skip * path->pair_bytes * path->row_width,
        .column_panel = (const char *)seen,
        .step = panel_bytes(path, path->row_width, s->packed),
        .out = o,
        .stride = lanes,
        .mode = (is_first ? OCT_GEMM_FIRST : 0) | (is_last ? OCT_GEMM_LAST : 0)};
    multiply(a->kernels->gemm, &p, bench->tile);
}

/* One vector of lanes' worth of rows. */
struct group {
    size_t lane, rows;
    struct reach reach;
};

static void forward_group(const struct oct_attention *a, const struct oct_attention_rows *r,
                          struct bench *bench, const struct group *g, const char *query, float *o,
                          float *x)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const size_t lanes = kernels->lanes, chunk = CHUNK * lanes;
    struct lanes *l = &bench->lanes;
    float *at = x;

    for (int32_t c = g->reach.chunk; c < g->reach.chunk_end; c++, at += chunk) {
        const struct span s = span_of(a, r, &g->reach, c);
        score(a, r, bench, &s, g->lane, g->rows, query, at);
        kernels->largest(s.end - s.first, at + s.first * lanes, l->maxima, l->sizes);
    }
    end_maxima(r, g->lane, g->rows, l);
    memset(bench->sums, 0, OCT_SUMS * lanes * sizeof(float));
    at = x;
    for (int32_t c = g->reach.chunk; c < g->reach.chunk_end; c++, at += chunk) {
        const struct span s = span_of(a, r, &g->reach, c);
        weigh(a, bench, &s, c == g->reach.chunk, c + 1 == g->reach.chunk_end, at, o);
    }
    kernels->tree(bench->sums, l->totals);
    end_sums(a, r, g->lane, g->rows, l);
}

void oct_attention_forward_rows(const struct oct_attention *a, const struct oct_attention_rows *r,
                                float *out, void *memory)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const size_t lanes = kernels->lanes, v = (size_t)a->v;
    struct bench *bench = memory;
    char *at = (char *)memory + lines(sizeof *bench);
    char *query = take(&at, panels_bytes(LANES, 1, (size_t)a->d));
    float *o = take(&at, v * LANES * sizeof(float)), *x = (float *)(void *)at;

    for (size_t lane = 0; lane < (size_t)r->count; lane += lanes) {
        struct group g = {.lane = lane, .rows = fill_lanes(r, lane, lanes, &bench->lanes)};
        g.reach = reach_of(r, lane, g.rows);
        pack_queries(a, r, bench, lane, g.rows, query);
        forward_group(a, r, bench, &g, query, o, x);
        kernels->turn(v, g.rows, a->out == OCTET_DTYPE_BF16, o, bench->lanes.totals, out + lane * v,
                      v);
    }
}

/* ---- Backward ---- */

/* Of a block of rows; panels of lanes stand one behind another. */
struct back {
    size_t groups;
    size_t query_step, cotangent_step, d_query_step; /* from group to group; the last in numbers */
    char *query, *cotangent;                         /* columns: rows of the block */
    char *query_turned, *cotangent_turned;           /* columns: widths; k: rows of the block */
    float *d_query;                                  /* [group][d][lanes] */
    float *x, *g;                                    /* [keys][lanes] */
    uint16_t *codes;
    char *p, *ds; /* rows: keys of a chunk; k: rows of the block */
};

static struct back lay_out(const struct oct_attention *a, size_t rows, void *memory)
{
    const size_t lanes = a->kernels->attention->lanes, d = (size_t)a->d, v = (size_t)a->v;
    const size_t wide = (CHUNK + 2) * LANES * sizeof(float);
    char *at = (char *)memory + lines(sizeof(struct bench));
    struct back b = {.groups = (rows + lanes - 1) / lanes, .d_query_step = d * lanes};

    b.query = take(&at, panels_bytes(ROWS, 1, d));
    b.cotangent = take(&at, panels_bytes(ROWS, 1, v));
    b.query_turned = take(&at, panels_bytes(d, LANES, ROWS));
    b.cotangent_turned = take(&at, panels_bytes(v, LANES, ROWS));
    b.d_query = take(&at, d * ROWS * sizeof(float));
    b.x = take(&at, wide);
    b.g = take(&at, wide);
    b.codes = take(&at, CHUNK * LANES * sizeof *b.codes);
    b.p = take(&at, key_panels_bytes());
    b.ds = take(&at, key_panels_bytes());
    for (size_t k = 0; k < d; k += CHUNK)
        b.query_step += panel_bytes(a->by_keys, lanes, smaller(CHUNK, d - k));
    for (size_t k = 0; k < v; k += CHUNK)
        b.cotangent_step += panel_bytes(a->back_values, lanes, smaller(CHUNK, v - k));
    return b;
}

static void pack_block_of_rows(const struct oct_attention *a, const struct oct_attention_rows *r,
                               const struct oct_attention_back *c, struct bench *bench,
                               const struct back *b)
{
    const size_t lanes = a->kernels->attention->lanes, rows = (size_t)r->count;
    const size_t bytes = octet_dtype_bytes(a->out), v = (size_t)a->v;
    struct oct_gemm_side query = {.dtype = a->query, .data = r->query, .free_stride = 1};
    struct oct_gemm_side cotangent = {
        .dtype = a->out, .data = c->cotangent, .free_stride = 1, .depth_stride = a->v};

    query.depth = r->offsets;
    pack_side(bench, a->to_key, &query, (size_t)a->d, rows, a->to_key->column_width,
              b->query_turned);
    pack_side(bench, a->to_value, &cotangent, v, rows, a->to_value->column_width,
              b->cotangent_turned);
    cotangent.free_stride = a->v;
    cotangent.depth_stride = 1;
    for (size_t i = 0; i < b->groups; i++) {
        const size_t lane = i * lanes, some = smaller(lanes, rows - lane);
        pack_queries(a, r, bench, lane, some, b->query + i * b->query_step);
        cotangent.data = (const char *)c->cotangent + lane * v * bytes;
        pack_side(bench, a->back_values, &cotangent, some, v, a->back_values->column_width,
                  b->cotangent + i * b->cotangent_step);
    }
}

/* With a cap, scores come back from their exponentials: capped = maximum + log exp. */
static void uncap(const struct oct_attention *a, size_t keys, const struct lanes *l, const float *x,
                  float *g)
{
    const size_t lanes = a->kernels->attention->lanes;
    float logs[LANES];

    for (size_t k = 0; k < keys; k++, x += lanes, g += lanes) {
        a->kernels->math->log(lanes, x, logs);
        for (size_t i = 0; i < lanes; i++) {
            float t = (l->maxima[i] + logs[i]) / a->soft_cap;
            g[i] = x[i] > 0 ? oct_mul(g[i], 1 - t * t) : 0;
        }
    }
}

/* From panel to panel of keys: packing writes past the end of a group's part. */
static size_t key_step(const struct oct_gemm_path *path, size_t groups)
{
    return groups * panel_bytes(path, path->row_width, path->column_width) + OCT_GEMM_PANEL_SLACK;
}

/* [keys][lanes] as rows of a product over the block's rows, of which this group's stand at their
 * place. */
static void pack_keys(const struct oct_attention *a, struct bench *bench,
                      const struct oct_gemm_path *path, const struct span *s, size_t group,
                      size_t groups, enum octet_dtype dtype, const void *x, char *to)
{
    const size_t lanes = a->kernels->attention->lanes, width = path->row_width;
    const size_t part = panel_bytes(path, width, lanes), step = key_step(path, groups);
    const size_t most = CHUNK / width * width, n = s->end - s->first;
    const struct oct_gemm_side side = {
        .dtype = dtype, .data = x, .free_stride = (int64_t)lanes, .depth_stride = 1};

    for (size_t f = 0; f < n; f += most)
        pack_block(bench, path, &side, f, smaller(most, n - f), 0, lanes, width,
                   to + group * part + f / width * step, step);
}

/* Numbers of [keys][lanes] that a product over rows takes as keys' rows (to), and, with pairs, one
 * over keys as columns (x itself). */
static void pack_lanes(const struct oct_attention *a, struct bench *bench, const struct back *b,
                       const struct oct_gemm_path *path, const struct span *s, size_t group,
                       enum oct_lane_format format, bool pairs, float *x, char *to)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const size_t n = s->end - s->first;

    if (format == OCT_LANES_PAIRS)
        kernels->pairs(n, pairs, x, b->codes);
    else if (format == OCT_LANES_ROUNDED)
        kernels->round(n, x);
    if (format != OCT_LANES_PAIRS)
        memset(x + n * kernels->lanes, 0, kernels->lanes * sizeof *x); /* of an odd n */
    if (to)
        pack_keys(a, bench, path, s, group, b->groups,
                  format == OCT_LANES_PAIRS ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32,
                  format == OCT_LANES_PAIRS ? (const void *)b->codes : x, to);
}

/* Rows of p and ds of keys that the block looks at and the group does not. */
static void clear_others(const struct span *block, const struct span *group, size_t lanes, float *x)
{
    const size_t behind = block->end > group->end ? block->end - group->end : 0;

    memset(x + block->first * lanes, 0, (group->first - block->first) * lanes * sizeof *x);
    memset(x + group->end * lanes, 0, behind * lanes * sizeof *x);
}

/* The part of a block's chunk that a group looks at; first == end: none. */
static struct span span_of_group(const struct oct_attention *a, const struct oct_attention_rows *r,
                                 const struct reach *reach, const struct span *block)
{
    const int32_t chunk = block->key / CHUNK;
    struct span s = *block;

    if (chunk >= reach->chunk && chunk < reach->chunk_end)
        return span_of(a, r, reach, chunk);
    s.end = s.first;
    return s;
}

/* What the chunk adds to dq. */
static void add_query(const struct oct_attention *a, struct bench *bench, const struct span *block,
                      const struct span *s, const float *ds, int mode, float *d_query)
{
    const struct oct_gemm_path *path = a->to_query;
    const size_t lanes = path->column_width, pair = path->pair_bytes;
    const struct product product = {
        .path = path,
        .rows = (size_t)a->d,
        .columns = lanes,
        .pairs = (s->end - s->first + 1) / 2,
        .row_panels = s->chunk.turned + s->first / 2 * pair * path->row_width,
        .column_panel = (const char *)ds + (s->first - block->first) / 2 * pair * lanes,
        .step = panel_bytes(path, path->row_width, s->packed),
        .out = d_query,
        .stride = lanes,
        .mode = mode};

    multiply(a->kernels->gemm, &product, bench->tile);
}

/* p and ds [keys][lanes] of what the group looks at. */
static void differentiate(const struct oct_attention *a, const struct oct_attention_rows *r,
                          const struct oct_attention_back *c, struct bench *bench,
                          const struct back *b, const struct span *s, size_t group)
{
    const struct oct_attention_kernels *kernels = a->kernels->attention;
    const size_t lanes = kernels->lanes, lane = group * lanes, n = s->end - s->first;
    const size_t rows = fill_lanes(r, lane, lanes, &bench->lanes);
    const size_t height = a->back_values->row_width, at = s->first * lanes;
    struct lanes *l = &bench->lanes;

    for (size_t i = 0; i < lanes; i++) {
        l->maxima[i] = i < rows ? r->maxima[lane + i] : 0;
        l->slopes[i] = i < rows ? c->slopes[lane + i] : 0;
    }
    score(a, r, bench, s, lane, rows, b->query + group * b->query_step, b->x);
    multiply_chunk(a, bench, a->back_values, s->chunk.values, s->packed,
                   b->cotangent + group * b->cotangent_step, (size_t)a->v,
                   s->first / height * height, s->end, b->g);
    kernels->slope(n, a->scores == OCTET_DTYPE_BF16, b->x + at, b->g + at, l->maxima, l->slopes);
    if (a->soft_cap > 0)
        uncap(a, n, l, b->x + at, b->g + at);
}

/* One group of a block's rows and one chunk: p and ds, packed for the products that take them, and
 * dq. */
static void back_group(const struct oct_attention *a, const struct oct_attention_rows *r,
                       const struct oct_attention_back *c, struct bench *bench,
                       const struct back *b, const struct span *block, size_t group)
{
    const size_t lanes = a->kernels->attention->lanes, lane = group * lanes;
    const struct reach reach = reach_of(r, lane, smaller(lanes, (size_t)r->count - lane));
    const struct span s = span_of_group(a, r, &reach, block);
    float *p = b->x + block->first * lanes, *ds = b->g + block->first * lanes;
    const int32_t chunk = s.key / CHUNK;

    if (s.end > s.first)
        differentiate(a, r, c, bench, b, &s, group);
    clear_others(block, &s, lanes, b->x);
    clear_others(block, &s, lanes, b->g);
    pack_lanes(a, bench, b, a->to_value, block, group, format_of(a, a->to_value, a->scores), false,
               p, c->d_value ? b->p : NULL);
    pack_lanes(a, bench, b, a->to_key, block, group, format_of(a, a->to_key, a->product), true, ds,
               c->d_key ? b->ds : NULL);
    if (c->d_query && s.end > s.first)
        add_query(a, bench, block, &s, ds,
                  (chunk == reach.chunk ? OCT_GEMM_FIRST : 0) |
                      (chunk + 1 == reach.chunk_end ? OCT_GEMM_LAST : 0),
                  b->d_query + group * b->d_query_step);
}

/* Rows that may see one of some keys, from an even one on: for all others p and ds are 0. */
static struct reach rows_that_see(const struct oct_attention_rows *r, int32_t first, int32_t last)
{
    struct reach rows = {.end = (int32_t)r->count};

    while (rows.first < rows.end && r->last[rows.first] < first)
        rows.first++;
    while (rows.end > rows.first && r->from[rows.end - 1] > last)
        rows.end--;
    rows.first = rows.first / 2 * 2;
    return rows;
}

/* gradient [keys][width] += keys^T * turned, over the block's rows. */
static void add_keys(const struct oct_attention *a, const struct oct_attention_rows *r,
                     struct bench *bench, const struct oct_gemm_path *path, const struct span *s,
                     const char *keys, const char *turned, size_t width, float *gradient,
                     int64_t stride)
{
    const size_t lanes = path->column_width, height = path->row_width, n = s->end - s->first;
    const size_t groups = ((size_t)r->count + lanes - 1) / lanes, step = key_step(path, groups);
    const size_t turned_step = panel_bytes(path, lanes, (size_t)r->count);

    for (size_t f = 0; gradient && f < n; f += height, keys += step) {
        const size_t some = smaller(height, n - f), key = (size_t)s->key + s->first + f;
        const struct reach rows = rows_that_see(r, (int32_t)key, (int32_t)(key + some - 1));
        const size_t skip = (size_t)rows.first / 2 * path->pair_bytes;
        struct product p = {.path = path,
                            .rows = some,
                            .pairs = (size_t)(rows.end - rows.first + 1) / 2,
                            .row_panels = keys + skip * height,
                            .column_panel = turned + skip * lanes,
                            .stride = (size_t)stride,
                            .mode = OCT_GEMM_LAST};
        for (size_t w = 0; p.pairs && w < width; w += lanes, p.column_panel += turned_step) {
            p.columns = smaller(lanes, width - w);
            p.out = gradient + key * (size_t)stride + w;
            multiply(a->kernels->gemm, &p, bench->tile);
        }
    }
}

void oct_attention_backward_rows(const struct oct_attention *a, const struct oct_attention_rows *r,
                                 const struct oct_attention_back *c, void *memory)
{
    const size_t rows = (size_t)r->count, lanes = a->kernels->attention->lanes;
    const size_t d = (size_t)a->d, v = (size_t)a->v;
    const struct reach reach = reach_of(r, 0, rows);
    const struct back b = lay_out(a, rows, memory);
    struct bench *bench = memory;

    pack_block_of_rows(a, r, c, bench, &b);
    for (int32_t i = reach.chunk; i < reach.chunk_end; i++) {
        const struct span s = span_of(a, r, &reach, i);
        for (size_t group = 0; group < b.groups; group++)
            back_group(a, r, c, bench, &b, &s, group);
        c->turn(c->user, i);
        add_keys(a, r, bench, a->to_key, &s, b.ds, b.query_turned, d, c->d_key, c->key_stride);
        add_keys(a, r, bench, a->to_value, &s, b.p, b.cotangent_turned, v, c->d_value,
                 c->value_stride);
        c->done(c->user, i);
    }
    for (size_t i = 0; c->d_query && i < b.groups; i++)
        a->kernels->attention->turn(d, smaller(lanes, rows - i * lanes), false,
                                    b.d_query + i * b.d_query_step, NULL,
                                    c->d_query + i * lanes * d, d);
}
