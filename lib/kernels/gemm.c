/* See gemm.h. Cuts products into items of rows x columns, which share no sums; walks each item in
 * blocks of k: its rows are packed into a buffer that stays in L2, then one panel of columns after
 * another is packed into L1 and used for all of them.
 *
 * Decision: packing decodes on the way, so that codes are read once a chunk of rows and decoded
 * numbers never reach memory. Products of a row or two, and of few sums, are too thin for that:
 * they are multiplied from where they lie (the weighted sum of a token's experts is hundreds of
 * such products). */
#include "kernels/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/gemm_private.h"

enum {
    CHUNK_ROWS = 280,     /* 280 x 256 f32: 280 KiB of L2 */
    CHUNK_COLUMNS = 1024, /* so that packing rows costs a small part of using them */
    CHUNK_COLUMNS_MIN = 128,
    ITEMS_A_THREAD = 4, /* for balance, where the product is large enough */
    THIN_ROWS = 2,      /* with more, packed columns are read often enough */
    THIN_SUMS = 8,      /* of a product, added up one by one */
    SMALL = 1 << 19,    /* multiplications in some 15 us, in which no other thread wakes up */
    PANELS_MAX = 4,
    FEW = 8,                            /* products whose cuts lie on the stack */
    DIRECT_ROWS = 8,                    /* with more, a decoded panel is used often enough */
    DIRECT_COLUMNS = 4096,              /* of a chunk, so that packing rows costs nothing */
    DIRECT_DEPTH = 64 * OCT_GEMM_BLOCK, /* of rows packed at once: 512 KiB */
    ALIGNMENT = 64
};

enum thinness { THICK, THIN_ROW, THIN_DOTS, DIRECT };

/* How one product is cut. */
struct cut {
    enum thinness thinness;
    const struct oct_gemm_kernels *kernels;
    const struct oct_gemm_path *path;
    size_t rows, columns;             /* of a chunk */
    size_t row_chunks, column_chunks; /* items: one for each pair */
    bool is_integer;
    oct_gemm_direct *const (*direct)[2]; /* of DIRECT: by rows */
};

struct work {
    const struct oct_gemm *list;
    const struct cut *cuts;
    const size_t *begin; /* first item of each product, and their total */
    size_t count;
    const octet_workers *workers;
    const struct octet_cancel *cancel;
    const struct oct_gemm_end *end; /* or NULL */
    char *buffers; /* by thread: struct bench, packed rows, packed columns, sums without an out */
    size_t buffer_bytes, rows_bytes, columns_bytes;
};

/* What a thread works in. */
struct bench {
    struct oct_gemm_scratch scratch;
    _Alignas(ALIGNMENT) float tile[OCT_GEMM_TILE_MAX];
    int64_t row_depth[OCT_GEMM_BLOCK], column_depth[OCT_GEMM_BLOCK];
    int64_t row_offsets[CHUNK_ROWS + OCT_GEMM_ROWS_MAX];
    int64_t column_offsets[CHUNK_COLUMNS];
    float row[OCT_GEMM_BLOCK], columns[4][OCT_GEMM_BLOCK]; /* of thin products */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool is_integer(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

/* ---- Cutting ---- */

/* Chunks of at most `most`, nearly equal, each a multiple of width but the last. */
static size_t chunk_of(size_t n, size_t most, size_t width)
{
    size_t chunks = (n + most - 1) / most;
    return chunks ? round_up((n + chunks - 1) / chunks, width) : width;
}

static oct_gemm_direct *const (*direct_of(const struct oct_gemm_path *path,
                                          const struct oct_gemm *g))[2]
{
    static const enum octet_dtype dtypes[] = {[OCT_GEMM_DIRECT_E4M3FN] = OCTET_DTYPE_F8_E4M3FN,
                                              [OCT_GEMM_DIRECT_E5M2] = OCTET_DTYPE_F8_E5M2,
                                              [OCT_GEMM_DIRECT_S8] = OCTET_DTYPE_S8,
                                              [OCT_GEMM_DIRECT_BF16] = OCTET_DTYPE_BF16};

    for (size_t t = 0; t < OCT_GEMM_DIRECT_TYPES; t++)
        if (path->direct_rows && g->rhs.packed_depth && g->rhs.dtype == dtypes[t] &&
            g->m <= DIRECT_ROWS)
            return path->direct[t];
    return NULL;
}

static enum thinness thinness_of(const struct oct_gemm *g)
{
    bool is_number = g->rhs.dtype == OCTET_DTYPE_F32 || g->rhs.dtype == OCTET_DTYPE_BF16;

    if ((is_integer(g->lhs.dtype) && is_integer(g->rhs.dtype)) || g->rhs.packed_depth)
        return THICK;
    if (g->m <= THIN_ROWS && is_number && g->rhs.free_stride == 1 && g->k <= OCT_GEMM_BLOCK)
        return THIN_ROW;
    if (g->m * g->n <= THIN_SUMS && g->lhs.depth_stride == 1 && g->rhs.depth_stride == 1)
        return THIN_DOTS;
    return THICK;
}

static struct cut cut_product(const struct oct_gemm *g, const octet_workers *workers,
                              size_t threads)
{
    const struct oct_kernels *set = g->is_fast && workers->fast ? workers->fast : workers->kernels;
    const struct oct_gemm_kernels *kernels = set->gemm;
    bool exact =
        kernels->bf16.pack && g->lhs.dtype != OCTET_DTYPE_F32 && g->rhs.dtype != OCTET_DTYPE_F32;
    struct cut cut = {.thinness = thinness_of(g),
                      .kernels = kernels,
                      .path = exact ? &kernels->bf16 : &kernels->f32,
                      .is_integer = is_integer(g->lhs.dtype) && is_integer(g->rhs.dtype)};
    const size_t m = (size_t)g->m, n = (size_t)g->n;
    size_t most = CHUNK_COLUMNS, width = cut.path->column_width;

    cut.direct = direct_of(cut.path, g);
    if (cut.direct) {
        cut.thinness = DIRECT;
        most = DIRECT_COLUMNS;
        width = OCT_GEMM_PACKED_FREE;
    }
    cut.rows = chunk_of(m, CHUNK_ROWS, cut.path->row_width);
    cut.row_chunks = (m + cut.rows - 1) / cut.rows;
    while (threads > 1 && most > CHUNK_COLUMNS_MIN &&
           cut.row_chunks * ((n + most - 1) / most) < ITEMS_A_THREAD * threads)
        most /= 2;
    cut.columns = chunk_of(n, most, width);
    cut.column_chunks = (n + cut.columns - 1) / cut.columns;
    return cut;
}

/* ---- One item ---- */

static bool fill_offsets(const int64_t *table, int64_t stride, size_t first, size_t count,
                         int64_t *offsets)
{
    bool run = true;

    for (size_t i = 0; i < count; i++) {
        offsets[i] = stride ? (int64_t)(first + i) * stride : table[first + i];
        run &= offsets[i] == offsets[0] + (int64_t)i;
    }
    return run;
}

static struct oct_gemm_view view_of(const struct oct_gemm_side *side, size_t first, size_t count,
                                    int64_t *offsets, const int64_t *depth)
{
    struct oct_gemm_view view = {.dtype = side->dtype,
                                 .element_bytes = octet_dtype_bytes(side->dtype),
                                 .data = side->data,
                                 .free = offsets,
                                 .depth = depth,
                                 .free_count = count};
    if (side->packed_depth) {
        const size_t at = (size_t)side->packed_free + first;
        view.packed_panel_bytes = oct_gemm_packed_panel_bytes(side->dtype, side->packed_depth);
        view.packed =
            view.data + at / OCT_GEMM_PACKED_FREE * view.packed_panel_bytes + OCT_GEMM_PACKED_HEAD;
        view.packed_skip = at % OCT_GEMM_PACKED_FREE;
    } else {
        view.free_is_run = fill_offsets(side->free, side->free_stride, first, count, offsets);
    }
    return view;
}

static void set_block(struct oct_gemm_view *view, const struct oct_gemm_side *side, size_t k,
                      size_t count, int64_t *depth)
{
    view->depth_count = count;
    if (view->packed)
        view->packed_k = (size_t)side->packed_from + k;
    else
        view->depth_is_run = fill_offsets(side->depth, side->depth_stride, k, count, depth);
}

/* A part of one product in work, and where its numbers lie. */
struct item {
    const struct oct_gemm *g;
    const struct cut *cut;
    struct oct_gemm_view rows, columns;
    float *out;
    size_t out_stride;
    char *rows_packed, *columns_packed;
    struct bench *bench;
};

/* Rows of a panel: as even as can be, since a tile of two rows costs nearly as much as one of six.
 */
static size_t row_step(const struct item *item)
{
    const size_t rows = item->rows.free_count, width = item->cut->path->row_width;
    const size_t panels = (rows + width - 1) / width;
    return (rows + panels - 1) / panels;
}

/* Rows of sums lie apart, and no hardware foresees the next: asked for while a tile multiplies,
 * they are there when it is merged. */
static void prefetch(const float *out, size_t stride, size_t rows, size_t count)
{
    enum { LINE = 64 / sizeof(float) };

    for (size_t r = 0; r < rows; r++, out += stride)
        for (size_t c = 0; c < count; c += LINE)
            __builtin_prefetch(out + c, 1);
}

/* `count` columns, of `panels` panels, against all packed rows. */
static void multiply(const struct item *item, size_t pairs, size_t panels, size_t first,
                     size_t count, int mode)
{
    const struct oct_gemm_path *path = item->cut->path;
    const size_t row_panel = pairs * path->pair_bytes * path->row_width;
    const size_t column_panel = pairs * path->pair_bytes * path->column_width;
    const size_t stride = item->out_stride;
    const size_t row_count = item->rows.free_count, most = row_step(item);
    const char *a = item->rows_packed;

    for (size_t r = 0; r < row_count; r += most, a += row_panel) {
        size_t rows = smaller(most, row_count - r);
        oct_gemm_tile *tile = panels > 1 ? path->wide[rows] : path->narrow[rows];
        prefetch(item->out + r * stride + first, stride, rows, count);
        tile(pairs, a, item->columns_packed, column_panel, item->bench->tile);
        item->cut->kernels->merge(rows, count, item->bench->tile, panels * path->column_width,
                                  item->out + r * stride + first, stride, mode);
    }
}

/* The block of k that both views are set to. */
static void run_block(const struct item *item, int mode)
{
    const struct oct_gemm_path *path = item->cut->path;
    const size_t pairs = (item->rows.depth_count + 1) / 2, columns = item->columns.free_count;
    const size_t width = path->column_width, rows = item->rows.free_count;
    size_t most = rows <= path->row_width && path->panels[rows] ? path->panels[rows] : 1;
    char *to = item->rows_packed;

    for (size_t r = 0; r < rows; r += row_step(item)) {
        path->pack(&item->rows, r, smaller(row_step(item), rows - r), path->row_width, to,
                   &item->bench->scratch);
        to += pairs * path->pair_bytes * path->row_width;
    }
    for (size_t c = 0, step; c < columns; c += step) {
        size_t panels = columns - c > (most - 1) * width ? most : 1;
        to = item->columns_packed;
        step = smaller(panels * width, columns - c);
        for (size_t p = 0; p < step; p += width) {
            path->pack(&item->columns, c + p, smaller(width, step - p), width, to,
                       &item->bench->scratch);
            to += pairs * path->pair_bytes * width;
        }
        multiply(item, pairs, panels, c, step, mode);
    }
}

/* ---- Few rows of packed codes ---- */

/* Rows of a tile: as even as can be. */
static size_t direct_step(const struct item *item)
{
    const size_t rows = item->rows.free_count, most = item->cut->path->direct_rows;
    const size_t tiles = (rows + most - 1) / most;

    return (rows + tiles - 1) / tiles;
}

static bool is_lifted(const struct item *item)
{
    return item->columns.dtype == OCTET_DTYPE_F8_E4M3FN && item->cut->path->pair_bytes == 8;
}

/* Rows from k on, a panel for each tile, block after block. False: their numbers are too large for
 * the tiles. */
static bool pack_direct(struct item *item, size_t k, size_t depth)
{
    const struct oct_gemm_path *path = item->cut->path;
    const size_t rows = item->rows.free_count, step = direct_step(item);
    char *to = item->rows_packed;

    for (size_t end = k + depth; k < end; k += OCT_GEMM_BLOCK) {
        const size_t count = smaller(OCT_GEMM_BLOCK, end - k), pairs = (count + 1) / 2;
        set_block(&item->rows, &item->g->lhs, k, count, item->bench->row_depth);
        for (size_t r = 0; r < rows; r += step) {
            const size_t width = smaller(step, rows - r), bytes = pairs * path->pair_bytes * width;
            path->pack(&item->rows, r, width, width, to, &item->bench->scratch);
            if (is_lifted(item) &&
                !item->cut->kernels->lift(bytes / sizeof(float), (float *)(void *)to))
                return false;
            to += bytes;
        }
    }
    return true;
}

/* Columns c ... c + count - 1 from k on, in one tile or one for each step of rows. */
static void run_direct_columns(const struct item *item, size_t c, size_t count, bool wide, size_t k,
                               size_t depth)
{
    const struct oct_gemm_path *path = item->cut->path;
    const size_t rows = item->rows.free_count, step = direct_step(item);
    const size_t at = item->columns.packed_skip + c, total = (size_t)item->g->k;
    const size_t pair = 2 * item->columns.element_bytes, from = (size_t)item->g->rhs.packed_from;
    const char *codes = item->columns.packed +
                        at / OCT_GEMM_PACKED_FREE * item->columns.packed_panel_bytes +
                        at % OCT_GEMM_PACKED_FREE * pair;
    const char *a = item->rows_packed;

    for (size_t end = k + depth; k < end; k += OCT_GEMM_BLOCK) {
        const size_t block = smaller(OCT_GEMM_BLOCK, end - k), pairs = (block + 1) / 2;
        const int mode = (k == 0 ? OCT_GEMM_FIRST : 0) | (k + block == total ? OCT_GEMM_LAST : 0) |
                         (item->cut->is_integer ? OCT_GEMM_INTEGER : 0);
        for (size_t r = 0; r < rows; r += step) {
            const size_t height = smaller(step, rows - r);
            item->cut->direct[height][wide](pairs, a,
                                            codes + (from + k) / 2 * OCT_GEMM_PACKED_FREE * pair,
                                            item->columns.packed_panel_bytes, item->bench->tile);
            item->cut->kernels->merge(height, count, item->bench->tile,
                                      path->direct_columns[height][wide],
                                      item->out + r * item->out_stride + c, item->out_stride, mode);
            a += pairs * path->pair_bytes * height;
        }
    }
}

enum direct_result { DIRECT_DONE, DIRECT_CANCELLED, DIRECT_REFUSED };

/* Codes are read once, in the order in which they lie. */
static enum direct_result run_direct(const struct work *work, struct item *item)
{
    const struct oct_gemm_path *path = item->cut->path;
    const size_t columns = item->columns.free_count, total = (size_t)item->g->k;
    const size_t tallest = direct_step(item), wide = path->direct_columns[tallest][1];
    const size_t exist = round_up(columns, OCT_GEMM_PACKED_FREE);

    for (size_t p = 0; is_lifted(item) && p < exist; p += OCT_GEMM_PACKED_FREE)
        if (oct_gemm_packed_has_nan(item->columns.packed +
                                    p / OCT_GEMM_PACKED_FREE * item->columns.packed_panel_bytes))
            return DIRECT_REFUSED;
    for (size_t k = 0; k < total; k += DIRECT_DEPTH) {
        const size_t depth = smaller(DIRECT_DEPTH, total - k);
        if (!pack_direct(item, k, depth))
            return DIRECT_REFUSED;
        for (size_t c = 0, step; c < columns; c += step) {
            bool is_wide = wide && exist - c >= wide;
            step = path->direct_columns[tallest][is_wide];
            if (octet_cancel_check(work->cancel, NULL) != OCTET_OK)
                return DIRECT_CANCELLED;
            run_direct_columns(item, c, smaller(step, columns - c), is_wide, k, depth);
        }
    }
    return DIRECT_DONE;
}

static int64_t offset_of(const int64_t *table, int64_t stride, size_t i)
{
    return stride ? (int64_t)i * stride : table[i];
}

/* Row `row` of a product against columns [column, column + columns), k <= 256. */
static void run_thin_row(const struct work *work, const struct item *item, size_t row,
                         size_t column, size_t columns, float *out)
{
    const struct oct_gemm *g = item->g;
    struct bench *bench = item->bench;
    const size_t bytes = octet_dtype_bytes(g->lhs.dtype), depth = (size_t)g->k;
    const char *x = (const char *)g->lhs.data +
                    offset_of(g->lhs.free, g->lhs.free_stride, row) * (int64_t)bytes;
    unsigned char *codes = bench->scratch.codes;

    fill_offsets(g->rhs.depth, g->rhs.depth_stride, 0, depth, bench->column_depth);
    for (size_t k = 0; k < depth; k++)
        memcpy(codes + k * bytes,
               x + offset_of(g->lhs.depth, g->lhs.depth_stride, k) * (int64_t)bytes, bytes);
    work->workers->kernels->decode(g->lhs.dtype, depth, codes, bench->row);
    item->cut->kernels->thin_row(g->rhs.dtype, depth, bench->row,
                                 (const char *)g->rhs.data +
                                     column * octet_dtype_bytes(g->rhs.dtype),
                                 bench->column_depth, columns, out);
}

static const float *decoded(const struct work *work, const struct oct_gemm_side *side, size_t free,
                            size_t k, size_t depth, float *buffer)
{
    const char *x =
        (const char *)side->data + (offset_of(side->free, side->free_stride, free) + (int64_t)k) *
                                       (int64_t)octet_dtype_bytes(side->dtype);

    work->workers->kernels->decode(side->dtype, depth, x, buffer);
    return buffer;
}

/* Sums of row `row` and up to 4 columns. */
static void run_thin_dots(const struct work *work, const struct item *item, size_t row,
                          size_t column, size_t columns, float *out)
{
    const struct oct_gemm *g = item->g;
    struct bench *bench = item->bench;

    for (size_t k = 0; k < (size_t)g->k; k += OCT_GEMM_BLOCK) {
        const size_t depth = smaller(OCT_GEMM_BLOCK, (size_t)g->k - k);
        const float *a = decoded(work, &g->lhs, row, k, depth, bench->row), *b[4];
        float sums[OCT_GEMM_LANES_MAX] = {0}; /* merge reads whole vectors */
        for (size_t j = 0; j < columns; j++)
            b[j] = decoded(work, &g->rhs, column + j, k, depth, bench->columns[j]);
        item->cut->kernels->thin_dots(depth, a, columns, b, sums);
        item->cut->kernels->merge(1, columns, sums, columns, out, columns,
                                  (k == 0 ? OCT_GEMM_FIRST : 0) |
                                      (k + depth == (size_t)g->k ? OCT_GEMM_LAST : 0));
    }
}

static void run_thin(const struct work *work, const struct item *item, size_t row, size_t rows,
                     size_t column, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        float *out = item->out + r * item->out_stride;
        if (item->g->k == 0) {
            memset(out, 0, columns * sizeof *out);
        } else if (item->cut->thinness == THIN_ROW) {
            run_thin_row(work, item, row + r, column, columns, out);
        } else {
            for (size_t c = 0; c < columns; c += 4)
                run_thin_dots(work, item, row + r, column + c, smaller(4, columns - c), out + c);
        }
    }
}

/* All blocks of k; false: cancelled. */
static bool run_blocks(const struct work *work, struct item *item)
{
    const struct oct_gemm *g = item->g;
    struct bench *bench = item->bench;

    for (size_t r = 0; g->k == 0 && r < item->rows.free_count; r++)
        memset(item->out + r * item->out_stride, 0, item->columns.free_count * sizeof(float));
    for (size_t k = 0; k < (size_t)g->k; k += OCT_GEMM_BLOCK) {
        size_t depth = smaller(OCT_GEMM_BLOCK, (size_t)g->k - k);
        int mode = (k == 0 ? OCT_GEMM_FIRST : 0) | (k + depth == (size_t)g->k ? OCT_GEMM_LAST : 0) |
                   (item->cut->is_integer ? OCT_GEMM_INTEGER : 0);
        /* An item can be long; what stops it is reported by the pool. */
        if (octet_cancel_check(work->cancel, NULL) != OCTET_OK)
            return false;
        set_block(&item->rows, &g->lhs, k, depth, bench->row_depth);
        set_block(&item->columns, &g->rhs, k, depth, bench->column_depth);
        run_block(item, mode);
    }
    return true;
}

static void run_item(void *user, size_t index, size_t thread)
{
    const struct work *work = user;
    char *buffer = work->buffers + thread * work->buffer_bytes;
    size_t low = 0, high = work->count;

    while (high - low > 1) { /* the last product that begins at or before the item */
        size_t middle = (low + high) / 2;
        *(work->begin[middle] <= index ? &low : &high) = middle;
    }
    const struct oct_gemm *g = &work->list[low];
    const struct cut *cut = &work->cuts[low];
    const size_t row = (index - work->begin[low]) / cut->column_chunks * cut->rows;
    const size_t column = (index - work->begin[low]) % cut->column_chunks * cut->columns;
    struct bench *bench = (struct bench *)buffer;
    struct item item = {.g = g,
                        .cut = cut,
                        .bench = bench,
                        .rows_packed = buffer + sizeof *bench,
                        .columns_packed = buffer + sizeof *bench + work->rows_bytes};

    if (g->out) {
        item.out = g->out + row * (size_t)g->out_stride + column;
        item.out_stride = (size_t)g->out_stride;
    } else {
        item.out = (float *)(void *)(item.columns_packed + work->columns_bytes);
        item.out_stride = cut->columns;
    }
    const size_t rows = smaller(cut->rows, (size_t)g->m - row);
    const size_t columns = smaller(cut->columns, (size_t)g->n - column);
    if (cut->thinness == THIN_ROW || cut->thinness == THIN_DOTS) {
        run_thin(work, &item, row, rows, column, columns);
    } else {
        item.rows = view_of(&g->lhs, row, rows, bench->row_offsets, bench->row_depth);
        item.columns =
            view_of(&g->rhs, column, columns, bench->column_offsets, bench->column_depth);
        bool is_direct = cut->thinness == DIRECT && g->k;
        enum direct_result result = is_direct ? run_direct(work, &item) : DIRECT_REFUSED;
        if (result == DIRECT_REFUSED ? !run_blocks(work, &item) : result == DIRECT_CANCELLED)
            return;
    }
    if (work->end)
        work->end->end(work->end->user, low, (int64_t)row, (int64_t)rows, (int64_t)column,
                       (int64_t)columns, item.out, (int64_t)item.out_stride);
}

/* ---- The list ---- */

/* Cuts all products and finds the largest chunks. */
static void plan(struct work *work, struct cut *cuts, size_t *begin, size_t threads)
{
    size_t rows_bytes = 0, columns_bytes = 0, sums_bytes = 0;

    begin[0] = 0;
    for (size_t i = 0; i < work->count; i++) {
        const struct oct_gemm *g = &work->list[i];
        size_t depth = (smaller(OCT_GEMM_BLOCK, (size_t)g->k) + 1) / 2;
        cuts[i] = cut_product(g, work->workers, threads);
        begin[i + 1] = begin[i] + cuts[i].row_chunks * cuts[i].column_chunks;
        size_t bytes = cuts[i].rows * cuts[i].path->pair_bytes * depth;
        if (cuts[i].thinness == DIRECT)
            bytes = larger(bytes, (size_t)g->m * cuts[i].path->pair_bytes *
                                      ((smaller(DIRECT_DEPTH, (size_t)g->k) + 1) / 2));
        rows_bytes = larger(rows_bytes, bytes);
        columns_bytes = larger(columns_bytes, PANELS_MAX * cuts[i].path->column_width *
                                                  cuts[i].path->pair_bytes * depth);
        bytes = g->out ? 0 : cuts[i].rows * cuts[i].columns * sizeof(float);
        sums_bytes = larger(sums_bytes, bytes);
    }
    work->rows_bytes = round_up(rows_bytes + OCT_GEMM_PANEL_SLACK, ALIGNMENT);
    work->columns_bytes = round_up(columns_bytes + OCT_GEMM_PANEL_SLACK, ALIGNMENT);
    work->buffer_bytes = sizeof(struct bench) + work->rows_bytes + work->columns_bytes +
                         round_up(sums_bytes, ALIGNMENT);
    work->cuts = cuts;
    work->begin = begin;
}

/* ---- Memory between lists ---- */

/* Its first bytes say how long it is. */
struct oct_gemm_memory {
    void *_Atomic block; /* NULL while a list has it; an exchange passes the block's bytes too */
};
enum { BLOCK_HEAD = ALIGNMENT, BLOCK_KEPT_MAX = 2 << 20 /* bytes a thread */ };

struct oct_gemm_memory *oct_gemm_memory_create(void)
{
    return calloc(1, sizeof(struct oct_gemm_memory));
}

void oct_gemm_memory_destroy(struct oct_gemm_memory *memory)
{
    if (memory)
        free(atomic_load(&memory->block));
    free(memory);
}

static char *take_block(struct oct_gemm_memory *memory, size_t bytes)
{
    char *block = memory ? atomic_exchange(&memory->block, NULL) : NULL;
    size_t has = 0;

    if (block)
        memcpy(&has, block, sizeof has);
    if (has < bytes) {
        free(block);
        block = aligned_alloc(ALIGNMENT, BLOCK_HEAD + bytes);
        if (!block)
            return NULL;
        memcpy(block, &bytes, sizeof bytes);
    }
    return block + BLOCK_HEAD;
}

static void give_block(struct oct_gemm_memory *memory, char *block, size_t threads)
{
    size_t bytes;

    if (!block)
        return;
    block -= BLOCK_HEAD;
    memcpy(&bytes, block, sizeof bytes);
    free(memory && bytes <= BLOCK_KEPT_MAX * threads ? atomic_exchange(&memory->block, block)
                                                     : block);
}

/* ---- Running ---- */

static bool is_small(const struct oct_gemm *list, size_t count)
{
    double multiplications = 0;

    for (size_t i = 0; i < count; i++)
        multiplications += (double)list[i].m * (double)list[i].n * (double)list[i].k;
    return multiplications < SMALL;
}

enum octet_status oct_gemm_run(const octet_workers *workers, const struct octet_cancel *cancel,
                               const struct oct_gemm *list, size_t count, struct octet_error *err)
{
    return oct_gemm_run_to(workers, cancel, list, count, NULL, err);
}

enum octet_status oct_gemm_run_to(const octet_workers *workers, const struct octet_cancel *cancel,
                                  const struct oct_gemm *list, size_t count,
                                  const struct oct_gemm_end *end, struct octet_error *err)
{
    struct work work = {
        .list = list, .count = count, .workers = workers, .cancel = cancel, .end = end};
    struct oct_pool *pool = is_small(list, count) ? NULL : workers->pool;
    size_t threads = oct_pool_threads(pool);
    struct cut few_cuts[FEW], *cuts = few_cuts;
    size_t few_begin[FEW + 1], *begin = few_begin;
    enum octet_status status;

    if (count == 0)
        return octet_cancel_check(cancel, err);
    if (count > FEW) {
        cuts = calloc(count, sizeof *cuts);
        begin = calloc(count + 1, sizeof *begin);
    }
    if (cuts && begin) {
        plan(&work, cuts, begin, threads);
        threads = smaller(threads, begin[count]);
        work.buffers =
            threads ? take_block(workers->gemm_memory, threads * work.buffer_bytes) : NULL;
    }
    if (!cuts || !begin || (threads && !work.buffers))
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                            "no memory for the working buffers of %zu products", count);
    else
        status = oct_pool_run(pool, begin[count], cancel, run_item, &work, err);
    give_block(workers->gemm_memory, work.buffers, oct_pool_threads(workers->pool));
    if (count > FEW) {
        free(begin);
        free(cuts);
    }
    return status;
}
