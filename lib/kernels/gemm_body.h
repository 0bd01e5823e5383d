/* Packing, tiles and merging of gemm_private.h over a set's vector words. Included by each set's
 * kernels.c after its simd.h, with
 *   MR, NV   rows and vectors of a tile
 *   ROWS(X)  X(1) ... X(MR)
 *   WIDE(X)  X(rows, panels): where several panels are taken at once
 *   PAIRS    1 where the set has vf32_dot_pair and the words of avx512bf16/pairs.h: the bf16 path
 *   SPLIT    1 where the set has split_e4m3fn, split_e5m2, split_s8: tiles from packed codes, for
 *            up to DIRECT_ROWS rows: DIRECT(X), X(1) ... and, for more columns at once where one
 *            unit of 2 * VL does not fill the pipelines, DIRECT_WIDE(X), X(rows, units)
 *   UNROLL   pragma: without it the sums of a tile do not stay in registers */
#include "base/float_env.h"

enum { NR = NV * VL, PACKED_AHEAD = 512 /* bytes of packed codes asked for early */ };

#if !PAIRS /* named, never called */
static INLINE void adjacent_pairs(enum octet_dtype dtype, const void *codes, vu32 to[2])
{
    to[0] = to[1] = vf32_bits(load(dtype, codes));
}
static INLINE vu32 interleaved_pairs(enum octet_dtype dtype, const void *even, const void *odd)
{
    (void)odd;
    return vf32_bits(load(dtype, even));
}
static INLINE void interleaved_pairs_x2(enum octet_dtype dtype, const char *even, const char *odd,
                                        vu32 to[2])
{
    to[0] = to[1] = interleaved_pairs(dtype, even, odd);
}
#endif

/* ---- Packed codes ---- */

/* Types whose packed codes are taken apart in registers. */
static INLINE bool is_split(enum octet_dtype dtype)
{
    return SPLIT != 0 && (dtype == OCTET_DTYPE_F8_E4M3FN || dtype == OCTET_DTYPE_F8_E5M2 ||
                          dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_BF16);
}

/* Of 2 * VL columns both k of a pair; E4M3FN's are 2^-8 of themselves. */
static INLINE void split(enum octet_dtype dtype, const char *codes, vf32 even[2], vf32 odd[2])
{
    (void)dtype;
#if SPLIT
    switch (dtype) {
    case OCTET_DTYPE_F8_E4M3FN:
        split_e4m3fn(codes, even, odd);
        return;
    case OCTET_DTYPE_F8_E5M2:
        split_e5m2(codes, even, odd);
        return;
    case OCTET_DTYPE_S8:
        split_s8(codes, even, odd);
        return;
    default:
        break;
    }
#endif
    UNROLL for (size_t i = 0; i < 2; i++)
    {
        vu32 pairs = vu32_load(codes + i * VL * 4);
        even[i] = vu32_float(vu32_shl(pairs, 16));
        odd[i] = vu32_float(vu32_and(pairs, vu32_set1(0xffff0000u)));
    }
}

/* ---- Tiles ---- */

/* The order of additions is the contract (gemm.h): one chain for each sum, the odd k of a pair
 * first. More chains would be faster where rows are few, and the bits would depend on them. */
static INLINE void tile_f32(size_t rows, size_t vectors, bool loose, size_t pairs, const float *a,
                            const float *b, size_t panel_bytes, float *tile)
{
    const size_t panel = panel_bytes / sizeof(float);
    vf32 sums[MR * NV];

    UNROLL for (size_t s = 0; s < rows * vectors; s++) sums[s] = vf32_zero();
    for (; pairs; pairs--, a += 2 * MR, b += 2 * NR) {
        UNROLL for (size_t half = 0; half < 2; half++)
        {
            const float *ak = a + (1 - half) * MR, *bk = b + (1 - half) * NR;
            vf32 column[MR * NV];
            UNROLL for (size_t v = 0; v < vectors; v++) column[v] =
                vf32_load(bk + v / NV * panel + v % NV * VL);
            UNROLL for (size_t r = 0; r < rows; r++)
            {
                vf32 row = vf32_set1(ak[r]);
                UNROLL for (size_t v = 0; v < vectors; v++) sums[r * vectors + v] =
                    loose ? vf32_fma_loose(row, column[v], sums[r * vectors + v])
                          : vf32_fma(row, column[v], sums[r * vectors + v]);
            }
        }
    }
    UNROLL for (size_t s = 0; s < rows * vectors; s++) vf32_store(tile + s * VL, sums[s]);
}

/* Loosely; if that was not enough, once more, row by row. */
static INLINE void checked_f32(size_t rows, size_t vectors, size_t pairs, const float *a,
                               const float *b, size_t panel_bytes, float *tile)
{
    loose_begin();
    tile_f32(rows, vectors, true, pairs, a, b, panel_bytes, tile);
    if (loose_failed())
        for (size_t r = 0; r < rows; r++)
            tile_f32(1, vectors, false, pairs, a + r, b, panel_bytes, tile + r * vectors * VL);
}

#if PAIRS
static INLINE void checked_bf16(size_t rows, size_t vectors, size_t pairs, const uint32_t *a,
                                const uint32_t *b, size_t panel_bytes, float *tile)
{
    const size_t panel = panel_bytes / sizeof(uint32_t);
    vf32 sums[MR * NV];

    UNROLL for (size_t s = 0; s < rows * vectors; s++) sums[s] = vf32_zero();
    for (; pairs; pairs--, a += MR, b += NR) {
        vu32 column[MR * NV];
        UNROLL for (size_t v = 0; v < vectors; v++) column[v] =
            vu32_load(b + v / NV * panel + v % NV * VL);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            vu32 row = vu32_set1(a[r]);
            UNROLL for (size_t v = 0; v < vectors; v++) sums[r * vectors + v] =
                vf32_dot_pair(sums[r * vectors + v], row, column[v]);
        }
    }
    UNROLL for (size_t s = 0; s < rows * vectors; s++) vf32_store(tile + s * VL, sums[s]);
}
#endif

#define TILE(path, rows, panels)                                                                   \
    static void path##_##rows##x##panels(size_t pairs, const void *a, const void *b,               \
                                         size_t panel_bytes, float *tile)                          \
    {                                                                                              \
        checked_##path(rows, (panels)*NV, pairs, a, b, panel_bytes, tile);                         \
    }
#define TILE_F32(rows) TILE(f32, rows, 1)
#define TILE_F32_WIDE(rows, panels) TILE(f32, rows, panels)
ROWS(TILE_F32)
WIDE(TILE_F32_WIDE)
#if PAIRS
#define TILE_BF16(rows) TILE(bf16, rows, 1)
#define TILE_BF16_WIDE(rows, panels) TILE(bf16, rows, panels)
ROWS(TILE_BF16)
WIDE(TILE_BF16_WIDE)
#endif

/* ---- Tiles from packed codes ---- */

#if SPLIT
/* `units` of 2 * VL columns, whose sums stay in registers while their codes are read once. */
static INLINE void direct_f32(enum octet_dtype dtype, size_t rows, size_t units, size_t pairs,
                              const float *a, const char *codes, size_t panel_bytes, float *tile)
{
    const size_t bytes = 2 * element_bytes(dtype), in_panel = OCT_GEMM_PACKED_FREE / (2 * VL);
    vf32 sums[8 * 2 * DIRECT_UNITS_MAX];

    UNROLL for (size_t s = 0; s < rows * units * 2; s++) sums[s] = vf32_zero();
    for (; pairs; pairs--, a += 2 * rows, codes += OCT_GEMM_PACKED_FREE * bytes) {
        UNROLL for (size_t u = 0; u < units; u++)
        {
            vf32 even[2], odd[2];
            if (u % in_panel == 0)
                __builtin_prefetch(codes + u / in_panel * panel_bytes + PACKED_AHEAD);
            split(dtype, codes + u / in_panel * panel_bytes + u % in_panel * 2 * VL * bytes, even,
                  odd);
            UNROLL for (size_t r = 0; r < rows; r++)
            {
                vf32 *sum = sums + (r * units + u) * 2, row = vf32_set1(a[rows + r]);
                sum[0] = vf32_fma(row, odd[0], sum[0]);
                sum[1] = vf32_fma(row, odd[1], sum[1]);
                row = vf32_set1(a[r]);
                sum[0] = vf32_fma(row, even[0], sum[0]);
                sum[1] = vf32_fma(row, even[1], sum[1]);
            }
        }
    }
    UNROLL for (size_t s = 0; s < rows * units * 2; s++) vf32_store(tile + s * VL, sums[s]);
}

#if PAIRS
static INLINE void direct_bf16(enum octet_dtype dtype, size_t rows, size_t units, size_t pairs,
                               const uint32_t *a, const char *codes, size_t panel_bytes,
                               float *tile)
{
    const size_t bytes = 2 * element_bytes(dtype), in_panel = OCT_GEMM_PACKED_FREE / (2 * VL);
    vf32 sums[8 * 2 * DIRECT_UNITS_MAX];

    UNROLL for (size_t s = 0; s < rows * units * 2; s++) sums[s] = vf32_zero();
    for (; pairs; pairs--, a += rows, codes += OCT_GEMM_PACKED_FREE * bytes) {
        UNROLL for (size_t u = 0; u < units; u++)
        {
            vu32 column[2];
            if (u % in_panel == 0)
                __builtin_prefetch(codes + u / in_panel * panel_bytes + PACKED_AHEAD);
            adjacent_pairs(
                dtype, codes + u / in_panel * panel_bytes + u % in_panel * 2 * VL * bytes, column);
            UNROLL for (size_t r = 0; r < rows; r++)
            {
                vf32 *sum = sums + (r * units + u) * 2;
                vu32 row = vu32_set1(a[r]);
                sum[0] = vf32_dot_pair(sum[0], row, column[0]);
                sum[1] = vf32_dot_pair(sum[1], row, column[1]);
            }
        }
    }
    UNROLL for (size_t s = 0; s < rows * units * 2; s++) vf32_store(tile + s * VL, sums[s]);
}
#endif

#define DIRECT_TILE(path, T, rows, units)                                                          \
    static void direct_##path##_##T##_##rows##x##units(                                            \
        size_t pairs, const void *a, const char *codes, size_t panel_bytes, float *tile)           \
    {                                                                                              \
        direct_##path(OCTET_DTYPE_##T, rows, units, pairs, a, codes, panel_bytes, tile);           \
    }
#define DIRECT_TYPES(path, rows, units)                                                            \
    DIRECT_TILE(path, F8_E4M3FN, rows, units)                                                      \
    DIRECT_TILE(path, F8_E5M2, rows, units)                                                        \
    DIRECT_TILE(path, S8, rows, units)                                                             \
    DIRECT_TILE(path, BF16, rows, units)
#define DIRECT_F32(rows) DIRECT_TYPES(f32, rows, 1)
#define DIRECT_F32_WIDE(rows, units) DIRECT_TYPES(f32, rows, units)
DIRECT(DIRECT_F32)
DIRECT_WIDE(DIRECT_F32_WIDE)
#if PAIRS
#define DIRECT_BF16(rows) DIRECT_TYPES(bf16, rows, 1)
#define DIRECT_BF16_WIDE(rows, units) DIRECT_TYPES(bf16, rows, units)
DIRECT(DIRECT_BF16)
DIRECT_WIDE(DIRECT_BF16_WIDE)
#endif
#endif

static bool lift(size_t n, float *numbers)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = oct_f32_bits(numbers[i]) & 0x7fffffffu;
        if (magnitude >= 0x7b800000u && magnitude < 0x7f800000u) /* 2^120 */
            return false;
    }
    for (size_t i = 0; i < n; i++)
        numbers[i] *= 0x1p8f;
    return true;
}

static INLINE vf32 merged(vf32 sum, vf32 before, bool first, bool last, bool integer)
{
    if (integer) {
        vu32 total = vf32_to_s32(sum);
        total = first ? total : vu32_add(vf32_bits(before), total);
        return last ? vf32_from_s32(total) : vu32_float(total);
    }
    sum = first ? sum : vf32_add(before, sum);
    return last ? canonical(sum) : sum;
}

static INLINE void merge_as(size_t rows, size_t columns, const float *tile, size_t tile_stride,
                            float *out, size_t out_stride, bool first, bool last, bool integer)
{
    for (size_t r = 0; r < rows; r++, tile += tile_stride, out += out_stride) {
        size_t c = 0;
        for (; c + VL <= columns; c += VL) {
            vf32 before = first ? vf32_zero() : vf32_load(out + c);
            vf32_store(out + c, merged(vf32_load(tile + c), before, first, last, integer));
        }
        if (c < columns) {
            vf32 before = first ? vf32_zero() : vf32_load_part(out + c, columns - c);
            vf32_store_part(out + c, columns - c,
                            merged(vf32_load(tile + c), before, first, last, integer));
        }
    }
}

static void merge(size_t rows, size_t columns, const float *tile, size_t tile_stride, float *out,
                  size_t out_stride, int mode)
{
    const bool first = mode & OCT_GEMM_FIRST, last = mode & OCT_GEMM_LAST;

    if (mode & OCT_GEMM_INTEGER) {
        merge_as(rows, columns, tile, tile_stride, out, out_stride, first, last, true);
    } else if (first && last) {
        merge_as(rows, columns, tile, tile_stride, out, out_stride, true, true, false);
    } else if (first) {
        merge_as(rows, columns, tile, tile_stride, out, out_stride, true, false, false);
    } else if (last) {
        merge_as(rows, columns, tile, tile_stride, out, out_stride, false, true, false);
    } else {
        merge_as(rows, columns, tile, tile_stride, out, out_stride, false, false, false);
    }
}

/* ---- Thin products ---- */

/* One more pair of k for one vector of columns; the odd one may be missing, which adds 0 * 0. */
static INLINE vf32 thin_step(enum octet_dtype dtype, const float *row, const char *even,
                             const char *odd, vf32 sum)
{
    vf32 high = odd ? vf32_set1(row[1]) : vf32_zero();

    sum = vf32_fma(high, odd ? load(dtype, odd) : vf32_zero(), sum);
    return vf32_fma(vf32_set1(row[0]), load(dtype, even), sum);
}

static INLINE void thin_row_of(enum octet_dtype dtype, size_t depth, const float *row,
                               const char *x, const int64_t *offsets, size_t columns, float *out)
{
    const int64_t bytes = (int64_t)element_bytes(dtype);

    for (size_t c = 0; c < columns; c += VL) {
        const size_t count = columns - c < VL ? columns - c : VL, some = count * (size_t)bytes;
        const char *at = x + (int64_t)c * bytes;
        char e[VL * 4] = {0}, o[VL * 4] = {0};
        float last[VL];
        vf32 sum = vf32_zero();
        for (size_t k = 0; k < depth; k += 2) {
            const char *even = at + offsets[k] * bytes;
            const char *odd = k + 1 < depth ? at + offsets[k + 1] * bytes : NULL;
            if (count < VL) {
                even = memcpy(e, even, some);
                odd = odd ? memcpy(o, odd, some) : NULL;
            }
            sum = thin_step(dtype, row + k, even, odd, sum);
        }
        if (count == VL) {
            vf32_store(out + c, canonical(sum));
        } else {
            vf32_store(last, canonical(sum));
            memcpy(out + c, last, count * sizeof(float));
        }
    }
}

static void thin_row(enum octet_dtype dtype, size_t depth, const float *row, const char *x,
                     const int64_t *offsets, size_t columns, float *out)
{
    if (dtype == OCTET_DTYPE_BF16)
        thin_row_of(OCTET_DTYPE_BF16, depth, row, x, offsets, columns, out);
    else
        thin_row_of(OCTET_DTYPE_F32, depth, row, x, offsets, columns, out);
}

/* Chains side by side, since each waits for its own last addition. */
static INLINE void thin_chains(size_t depth, const float *row, size_t columns,
                               const float *const *column, float *sums)
{
    float sum[4] = {0};

    for (size_t k = 0; k < depth; k += 2)
        for (size_t j = 0; j < columns; j++) {
            bool has_odd = k + 1 < depth;
            float high = has_odd ? row[k + 1] : 0, other = has_odd ? column[j][k + 1] : 0;
            sum[j] = oct_fma(high, other, sum[j]);
            sum[j] = oct_fma(row[k], column[j][k], sum[j]);
        }
    memcpy(sums, sum, columns * sizeof *sums);
}

static void thin_dots(size_t depth, const float *row, size_t columns, const float *const *column,
                      float *sums)
{
    switch (columns) {
    case 1:
        thin_chains(depth, row, 1, column, sums);
        break;
    case 2:
        thin_chains(depth, row, 2, column, sums);
        break;
    case 3:
        thin_chains(depth, row, 3, column, sums);
        break;
    default:
        thin_chains(depth, row, 4, column, sums);
    }
}

/* ---- Packing ---- */

/* One row of codes into scratch, as f32 or as pairs of BF16. Behind them zeros, up to a whole
 * vector of entries: the code of zero is 0 in every type. */
static INLINE void decode_row(enum octet_dtype dtype, bool pairs, size_t depth, const char *codes,
                              uint32_t *row)
{
    const size_t bytes = element_bytes(dtype), step = pairs ? 4 * VL : VL;

    for (size_t k = 0; k < depth; k += step, row += pairs ? 2 * VL : VL) {
        char rest[4 * VL * 4] = {0};
        const char *from = codes + k * bytes;
        vu32 entries[2];
        if (depth - k < step)
            from = memcpy(rest, from, (depth - k) * bytes);
        if (pairs) {
            adjacent_pairs(dtype, from, entries);
            vu32_store(row, entries[0]);
            vu32_store(row + VL, entries[1]);
        } else {
            vu32_store(row, vf32_bits(load(dtype, from)));
        }
    }
}

/* scratch[r][entry] -> panel[entry][width], VL rows at a time. Stores whole vectors: what goes
 * past width is overwritten by the next entry, or lies in the slack. */
static INLINE void turn_rows(const struct oct_gemm_scratch *scratch, size_t entries, size_t width,
                             uint32_t *panel)
{
    for (size_t e = 0; e < entries; e += VL) {
        vu32 square[VL];
        UNROLL for (size_t r = 0; r < VL; r++) square[r] = vu32_load(scratch->rows[r] + e);
        vu32_transpose(square);
        if (e + VL <= entries) {
            UNROLL for (size_t j = 0; j < VL; j++) vu32_store(panel + (e + j) * width, square[j]);
        } else {
            for (size_t j = 0; j < entries - e; j++)
                vu32_store(panel + (e + j) * width, square[j]);
        }
    }
}

/* The codes of one free index when they do not lie side by side. */
static const char *gather(const struct oct_gemm_view *view, int64_t free, unsigned char *codes)
{
    const int64_t *depth = view->depth;
    const size_t n = view->depth_count;

    switch (view->element_bytes) {
    case 1:
        for (size_t k = 0; k < n; k++)
            codes[k] = (unsigned char)view->data[free + depth[k]];
        break;
    case 2:
        for (size_t k = 0; k < n; k++)
            memcpy(codes + 2 * k, view->data + 2 * (free + depth[k]), 2);
        break;
    default:
        for (size_t k = 0; k < n; k++)
            memcpy(codes + 4 * k, view->data + 4 * (free + depth[k]), 4);
    }
    return (const char *)codes;
}

static INLINE void prefetch_row(const struct oct_gemm_view *view, size_t index)
{
    const char *codes =
        view->data + (view->free[index] + view->depth[0]) * (int64_t)view->element_bytes;

    for (size_t line = 0; line < view->depth_count * view->element_bytes; line += 64)
        __builtin_prefetch(codes + line);
}

static INLINE void pack_along_depth(enum octet_dtype dtype, bool pairs,
                                    const struct oct_gemm_view *view, size_t first, size_t count,
                                    size_t width, uint32_t *panel, struct oct_gemm_scratch *scratch)
{
    const size_t entries = pairs ? (view->depth_count + 1) / 2 : (view->depth_count + 1) / 2 * 2;
    const size_t turned = (entries + VL - 1) / VL * VL; /* of each row */

    const size_t groups = (width + VL - 1) / VL;

    for (size_t g = 0; g < groups; g++) {
        /* The last group first: what it stores past width belongs to the others. */
        const size_t at = (width % VL ? groups - 1 - g : g) * VL;
        for (size_t r = 0; r < VL; r++) {
            if (at + r >= count) {
                memset(scratch->rows[r], 0, turned * sizeof scratch->rows[r][0]);
                continue;
            }
            const size_t next = first + at + r + VL; /* is read after this group of rows */
            if (view->depth_is_run && next < view->free_count)
                prefetch_row(view, next);
            int64_t free = view->free[first + at + r];
            const char *codes = view->depth_is_run ? view->data + (free + view->depth[0]) *
                                                                      (int64_t)view->element_bytes
                                                   : gather(view, free, scratch->codes);
            decode_row(dtype, pairs, view->depth_count, codes, scratch->rows[r]);
            if (!pairs && view->depth_count % 2)
                scratch->rows[r][view->depth_count] = 0; /* VL may be 1 */
            if (width == 1) {
                memcpy(panel, scratch->rows[r], entries * sizeof *panel);
                return;
            }
        }
        turn_rows(scratch, entries, width, panel + at);
    }
}

/* An entry of a panel: VL free indices at one k, or at two. */
static INLINE vu32 entry_of(enum octet_dtype dtype, bool pairs, const char *even, const char *odd)
{
    return pairs ? interleaved_pairs(dtype, even, odd) : vf32_bits(load(dtype, even));
}

/* The same where only `count` of them exist, or the odd k does not (NULL). */
static INLINE vu32 entry_of_some(enum octet_dtype dtype, bool pairs, const char *even,
                                 const char *odd, size_t count)
{
    char e[VL * 4] = {0}, o[VL * 4] = {0};

    count = (count < VL ? count : VL) * element_bytes(dtype);
    memcpy(e, even, count);
    if (odd)
        memcpy(o, odd, count);
    return entry_of(dtype, pairs, e, o);
}

/* 2 * VL numbers. */
static INLINE void load_x2(enum octet_dtype dtype, const char *codes, vf32 to[2])
{
#if SPLIT
    if (dtype == OCTET_DTYPE_F8_E4M3FN) {
        vf32_from_e4m3fn_x2(codes, to);
        return;
    }
    if (dtype == OCTET_DTYPE_F8_E5M2) {
        vf32_from_e5m2_x2(codes, to);
        return;
    }
#endif
    to[0] = load(dtype, codes);
    to[1] = load(dtype, codes + VL * element_bytes(dtype));
}

/* Both may store past width, as turn_rows. */
static INLINE void pack_along_free(enum octet_dtype dtype, bool pairs,
                                   const struct oct_gemm_view *view, size_t first, size_t width,
                                   uint32_t *panel)
{
    enum { AHEAD = 48 }; /* in k: rows lie far apart, where no prefetcher of a CPU follows */
    const int64_t bytes = (int64_t)element_bytes(dtype), *depth = view->depth;
    const char *x = view->data + view->free[first] * bytes;
    const size_t n = view->depth_count, exist = view->free_count - first, step = pairs ? 2 : 1;
    const size_t vectors = (width + VL - 1) / VL;
    size_t k = 0;

    for (; exist >= vectors * VL && k + step <= n; k += step, panel += width) {
        const char *even = x + depth[k] * bytes, *odd = x + depth[k + step - 1] * bytes;
        const size_t ahead = k + AHEAD + step <= n ? k + AHEAD : k;
        __builtin_prefetch(x + depth[ahead] * bytes);
        __builtin_prefetch(x + depth[ahead + step - 1] * bytes);
        if (pairs && width == NR) {
            vu32 entries[2];
            interleaved_pairs_x2(dtype, even, odd, entries);
            vu32_store(panel, entries[0]);
            vu32_store(panel + VL, entries[1]);
            continue;
        }
        if (width == NR) {
            UNROLL for (size_t v = 0; v < NV; v += 2)
            {
                vf32 two[2];
                load_x2(dtype, even + v * VL * (size_t)bytes, two);
                vf32_store(panel + v * VL, two[0]);
                vf32_store(panel + (v + 1) * VL, two[1]);
            }
            continue;
        }
        UNROLL for (size_t v = 0; v < vectors; v++)
        {
            const size_t skip = v * VL * (size_t)bytes;
            vu32_store(panel + v * VL, entry_of(dtype, pairs, even + skip, odd + skip));
        }
    }
    for (; k < n; k += step, panel += width) {
        const char *even = x + depth[k] * bytes;
        const char *odd = pairs && k + 1 < n ? x + depth[k + 1] * bytes : NULL;
        for (size_t v = 0; v < vectors; v++) {
            const size_t skip = v * VL * (size_t)bytes, left = exist > v * VL ? exist - v * VL : 0;
            vu32_store(panel + v * VL, entry_of_some(dtype, pairs, left ? even + skip : x,
                                                     left && odd ? odd + skip : NULL, left));
        }
    }
    if (!pairs && n % 2)
        memset(panel, 0, width * sizeof *panel);
}

static INLINE void load_split(enum octet_dtype dtype, const char *codes, vf32 *even, vf32 *odd)
{
    const size_t bytes = element_bytes(dtype);
    char e[VL * 4] = {0}, o[VL * 4] = {0};

    for (size_t i = 0; i < VL * bytes; i++) {
        e[i] = codes[i / bytes * 2 * bytes + i % bytes];
        o[i] = codes[(i / bytes * 2 + 1) * bytes + i % bytes];
    }
    *even = load(dtype, e);
    *odd = load(dtype, o);
}

/* One vector pair of a panel: both k of 2 * VL columns, of which `vectors` vectors are wanted.
 * Stores whole vectors, as turn_rows. */
static INLINE void store_pair(enum octet_dtype dtype, bool pairs, bool slow, const char *codes,
                              size_t vectors, size_t width, uint32_t *panel)
{
    vf32 even[2], odd[2];
    vu32 entries[2];

    if (pairs) {
        adjacent_pairs(dtype, codes, entries);
        UNROLL for (size_t i = 0; i < vectors; i++) vu32_store(panel + i * VL, entries[i]);
        return;
    }
    if (slow) {
        load_split(dtype, codes, &even[0], &odd[0]);
        load_split(dtype, codes + VL * 2 * element_bytes(dtype), &even[1], &odd[1]);
    } else {
        split(dtype, codes, even, odd);
    }
    UNROLL for (size_t half = 0; half < 2; half++)
    {
        UNROLL for (size_t i = 0; i < vectors; i++)
        {
            vf32 x = half ? odd[i] : even[i];
            if (!slow && dtype == OCTET_DTYPE_F8_E4M3FN)
                x = vf32_mul(x, vf32_set1(0x1p8f));
            vf32_store(panel + half * width + i * VL, x);
        }
    }
}

/* From packed codes, whose panels are whole numbers of ours. */
static INLINE void pack_packed(enum octet_dtype dtype, bool pairs, const struct oct_gemm_view *view,
                               size_t first, uint32_t *panel)
{
    const size_t at = view->packed_skip + first, bytes = 2 * element_bytes(dtype);
    const size_t entries = pairs ? NR : 2 * NR;
    const char *from = view->packed + at / OCT_GEMM_PACKED_FREE * view->packed_panel_bytes;
    const char *codes =
        from + (view->packed_k / 2 * OCT_GEMM_PACKED_FREE + at % OCT_GEMM_PACKED_FREE) * bytes;
    const bool has_nan = dtype == OCTET_DTYPE_F8_E4M3FN && oct_gemm_packed_has_nan(from);

    for (size_t k = 0; k < view->depth_count; k += 2) {
        __builtin_prefetch(codes + PACKED_AHEAD);
        UNROLL for (size_t v = 0; v < NV; v += 2)
        {
            const char *pair = codes + v * VL * bytes;
            if (!pairs && (!is_split(dtype) || has_nan))
                store_pair(dtype, pairs, true, pair, 2, NR, panel + v * VL);
            else
                store_pair(dtype, pairs, false, pair, 2, NR, panel + v * VL);
        }
        codes += OCT_GEMM_PACKED_FREE * bytes;
        panel += entries;
    }
}

#if SPLIT
/* Codes of one byte in runs along k, up to 2 * VL free indices: to scratch, as packed codes are,
 * rows of 2 * VL. Behind the last pair lies what does not matter. True: E4M3FN's NaN is among them.
 */
static INLINE bool turn_codes(const struct oct_gemm_view *view, size_t first, size_t count,
                              struct oct_gemm_scratch *scratch)
{
    enum { STEP = 16, ROWS = 2 * VL };
    static const char zeros[OCT_GEMM_BLOCK];
    const size_t n = view->depth_count;
    char rest[ROWS][STEP] = {{0}};
    const char *row[ROWS], *from[ROWS];
    uint64_t nans = 0;
    size_t k = 0;

    for (size_t r = 0; r < ROWS; r++) {
        row[r] = r < count ? view->data + view->free[first + r] + view->depth[0] : zeros;
        from[r] = rest[r];
        if (n % STEP && r < count)
            memcpy(rest[r], row[r] + n / STEP * STEP, n % STEP);
        if (first + r + count < view->free_count)
            prefetch_row(view, first + r + count);
    }
    for (char *to = scratch->turned; k < n; k += STEP) {
        vu32 pairs[STEP / 2];
        if (n - k < STEP)
            turn_pairs(from, 0, pairs);
        else
            turn_pairs(row, k, pairs);
        UNROLL for (size_t i = 0; i < STEP / 2; i++, to += 4 * VL)
        {
            vu32_store(to, pairs[i]);
            nans |= e4m3fn_nans(pairs[i]);
        }
    }
    return nans != 0;
}

static INLINE void pack_turned(enum octet_dtype dtype, bool pairs, const struct oct_gemm_view *view,
                               size_t first, size_t count, size_t width, uint32_t *panel,
                               struct oct_gemm_scratch *scratch)
{
    const bool slow =
        turn_codes(view, first, count, scratch) && !pairs && dtype == OCTET_DTYPE_F8_E4M3FN;
    const char *codes = scratch->turned;

    for (size_t k = 0; k < view->depth_count; k += 2, codes += 4 * VL) {
        if (width <= VL && !slow)
            store_pair(dtype, pairs, false, codes, 1, width, panel);
        else if (width <= VL)
            store_pair(dtype, pairs, true, codes, 1, width, panel);
        else if (!slow)
            store_pair(dtype, pairs, false, codes, 2, width, panel);
        else
            store_pair(dtype, pairs, true, codes, 2, width, panel);
        panel += pairs ? width : 2 * width;
    }
}
#endif

static INLINE void pack_as(enum octet_dtype dtype, bool pairs, const struct oct_gemm_view *view,
                           size_t first, size_t count, size_t width, uint32_t *panel,
                           struct oct_gemm_scratch *scratch)
{
    if (view->packed && dtype != OCTET_DTYPE_F32)
        pack_packed(dtype, pairs, view, first, panel);
#if SPLIT
    else if (is_split(dtype) && element_bytes(dtype) == 1 && view->depth_is_run && width > 1 &&
             !(pairs && width <= VL)) /* few rows: as decoded pairs they turn faster */
        pack_turned(dtype, pairs, view, first, count, width, panel, scratch);
#endif
    else if (view->free_is_run && !view->depth_is_run && width == NR)
        pack_along_free(dtype, pairs, view, first, NR, panel);
    else if (view->free_is_run && !view->depth_is_run && width == MR)
        pack_along_free(dtype, pairs, view, first, MR, panel);
    else
        pack_along_depth(dtype, pairs, view, first, count, width, panel, scratch);
}

#define PACKED(X) /* besides F32 */                                                                \
    X(BF16)                                                                                        \
    X(F8_E4M3FN)                                                                                   \
    X(F8_E5M2)                                                                                     \
    X(F4_E2M1FN)                                                                                   \
    X(S8)                                                                                          \
    X(S4)
#define PACK(T)                                                                                    \
    case OCTET_DTYPE_##T:                                                                          \
        pack_as(OCTET_DTYPE_##T, PACK_PAIRS, view, first, count, width, panel, scratch);           \
        break;

static void pack_f32(const struct oct_gemm_view *view, size_t first, size_t count, size_t width,
                     void *panel, struct oct_gemm_scratch *scratch)
{
#define PACK_PAIRS false
    switch (view->dtype) {
        PACKED(PACK)
    default:
        pack_as(OCTET_DTYPE_F32, false, view, first, count, width, panel, scratch);
    }
#undef PACK_PAIRS
}

#if PAIRS
static void pack_bf16(const struct oct_gemm_view *view, size_t first, size_t count, size_t width,
                      void *panel, struct oct_gemm_scratch *scratch)
{
#define PACK_PAIRS true
    switch (view->dtype) {
        PACKED(PACK)
    default:
        break; /* F32 takes the other path */
    }
#undef PACK_PAIRS
}
#endif

/* ---- The table ---- */

#define NARROW_F32(rows) [rows] = f32_##rows##x1,
#define NARROW_BF16(rows) [rows] = bf16_##rows##x1,
#define WIDE_F32(rows, panels) [rows] = f32_##rows##x##panels,
#define WIDE_BF16(rows, panels) [rows] = bf16_##rows##x##panels,
#define WIDE_PANELS(rows, panels) [rows] = (panels),

#if SPLIT
#define DIRECT_ROW(path, T, rows) [rows][0] = direct_##path##_##T##_##rows##x1,
#define DIRECT_ROW_WIDE(path, T, rows, units) [rows][1] = direct_##path##_##T##_##rows##x##units,
#define DIRECT_COLUMNS(rows) [rows][0] = 2 * VL,
#define DIRECT_COLUMNS_WIDE(rows, units) [rows][1] = (units)*2 * VL,
#define ROW_f32_E4M3FN(rows) DIRECT_ROW(f32, F8_E4M3FN, rows)
#define ROW_f32_E5M2(rows) DIRECT_ROW(f32, F8_E5M2, rows)
#define ROW_f32_S8(rows) DIRECT_ROW(f32, S8, rows)
#define ROW_f32_BF16(rows) DIRECT_ROW(f32, BF16, rows)
#define WIDE_f32_E4M3FN(rows, units) DIRECT_ROW_WIDE(f32, F8_E4M3FN, rows, units)
#define WIDE_f32_E5M2(rows, units) DIRECT_ROW_WIDE(f32, F8_E5M2, rows, units)
#define WIDE_f32_S8(rows, units) DIRECT_ROW_WIDE(f32, S8, rows, units)
#define WIDE_f32_BF16(rows, units) DIRECT_ROW_WIDE(f32, BF16, rows, units)
#define ROW_bf16_E4M3FN(rows) DIRECT_ROW(bf16, F8_E4M3FN, rows)
#define ROW_bf16_E5M2(rows) DIRECT_ROW(bf16, F8_E5M2, rows)
#define ROW_bf16_S8(rows) DIRECT_ROW(bf16, S8, rows)
#define ROW_bf16_BF16(rows) DIRECT_ROW(bf16, BF16, rows)
#define WIDE_bf16_E4M3FN(rows, units) DIRECT_ROW_WIDE(bf16, F8_E4M3FN, rows, units)
#define WIDE_bf16_E5M2(rows, units) DIRECT_ROW_WIDE(bf16, F8_E5M2, rows, units)
#define WIDE_bf16_S8(rows, units) DIRECT_ROW_WIDE(bf16, S8, rows, units)
#define WIDE_bf16_BF16(rows, units) DIRECT_ROW_WIDE(bf16, BF16, rows, units)
#define DIRECT_OF(path, T)                                                                         \
    [OCT_GEMM_DIRECT_##T] = {DIRECT(ROW_##path##_##T) DIRECT_WIDE(WIDE_##path##_##T)}
#define DIRECT_TABLE(path)                                                                         \
    .direct_rows = DIRECT_ROWS,                                                                    \
    .direct_columns = {DIRECT(DIRECT_COLUMNS) DIRECT_WIDE(DIRECT_COLUMNS_WIDE)},                   \
    .direct = {DIRECT_OF(path, E4M3FN), DIRECT_OF(path, E5M2), DIRECT_OF(path, S8),                \
               DIRECT_OF(path, BF16)}
#else
#define DIRECT_TABLE(path) .direct_rows = 0
#endif

static const struct oct_gemm_kernels gemm_kernels = {
    .f32 = {.row_width = MR,
            .column_width = NR,
            .pair_bytes = 8,
            .pack = pack_f32,
            .narrow = {ROWS(NARROW_F32)},
            .panels = {WIDE(WIDE_PANELS)},
            .wide = {WIDE(WIDE_F32)},
            DIRECT_TABLE(f32)},
#if PAIRS
    .bf16 = {.row_width = MR,
             .column_width = NR,
             .pair_bytes = 4,
             .pack = pack_bf16,
             .narrow = {ROWS(NARROW_BF16)},
             .panels = {WIDE(WIDE_PANELS)},
             .wide = {WIDE(WIDE_BF16)},
             DIRECT_TABLE(bf16)},
#endif
    .merge = merge,
    .thin_row = thin_row,
    .thin_dots = thin_dots,
    .lift = lift,
};
