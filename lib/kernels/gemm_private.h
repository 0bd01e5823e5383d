/* What a kernel set gives to gemm.c: packing into panels, tiles of sums, merging into the result.
 *
 * A panel holds one block of k (at most 256) of `width` free indices, as pairs of k:
 *   f32 path   [pair][2][width] f32, the even k first
 *   bf16 path  [pair][width] u32, the odd k in the upper half; for operands that are exact in BF16
 * An odd depth is padded with zeros. */
#ifndef OCTET_KERNELS_GEMM_PRIVATE_H
#define OCTET_KERNELS_GEMM_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/gemm.h"

enum {
    OCT_GEMM_ROWS_MAX = 14,
    OCT_GEMM_DIRECT_ROWS_MAX = 8,
    OCT_GEMM_PANEL_SLACK = 64, /* bytes written past a panel's end */
    OCT_GEMM_LANES_MAX = 16,
    OCT_GEMM_TILE_MAX = 14 * 32 /* numbers of one tile call */
};

/* A block of memory between lists, so that its pages are not asked for again each time: taken by
 * one list, given back at its end; whoever finds none makes one. */
struct oct_gemm_memory *oct_gemm_memory_create(void);
void oct_gemm_memory_destroy(struct oct_gemm_memory *memory); /* NULL is fine */

/* A part of one side: free indices and one block of k, as offsets in elements. */
struct oct_gemm_view {
    enum octet_dtype dtype;
    size_t element_bytes;
    const char *data;
    const int64_t *free, *depth;
    size_t free_count, depth_count;
    bool free_is_run, depth_is_run; /* offsets rise by one */
    /* Packed codes: the panel in which the free indices begin, where in it, and where the block
     * begins. NULL: not packed, what is above says where elements lie. */
    const char *packed;
    size_t packed_panel_bytes, packed_skip, packed_k;
};

/* Packed codes (gemm.h): before each panel. */
enum { OCT_GEMM_PACKED_HEAD = 64 };
size_t oct_gemm_packed_panel_bytes(enum octet_dtype dtype, int64_t k);
struct oct_gemm_packed_head {
    uint8_t has_nan; /* E4M3FN: one of the panel's codes is a NaN, which decoders without a table
                        read as 480 */
};
/* codes: behind the head. */
static inline bool oct_gemm_packed_has_nan(const char *codes)
{
    struct oct_gemm_packed_head head;
    memcpy(&head, codes - OCT_GEMM_PACKED_HEAD, sizeof head);
    return head.has_nan;
}

/* Where a set's pack may write while it works. */
struct oct_gemm_scratch {
    _Alignas(64) uint32_t rows[OCT_GEMM_LANES_MAX][OCT_GEMM_BLOCK + 16];
    _Alignas(64) unsigned char codes[OCT_GEMM_BLOCK * 4];
    _Alignas(64) char turned[OCT_GEMM_BLOCK * OCT_GEMM_PACKED_FREE]; /* as packed codes */
};

/* Sums of one block: tile[r][c] for its rows and all columns of its panels. a: panel of row_width;
 * b: panels of column_width, panel_bytes apart. */
typedef void oct_gemm_tile(size_t pairs, const void *a, const void *b, size_t panel_bytes,
                           float *tile);

/* The same with columns still as packed codes: of the first pair, at the first column; a is a panel
 * of as many rows as there are. panel_bytes:
 * from one packed panel to the next. E4M3FN on the f32 path is taken for 2^-8 of what it is (lift
 * makes up for it), and must not be NaN. */
typedef void oct_gemm_direct(size_t pairs, const void *a, const char *codes, size_t panel_bytes,
                             float *tile);

enum oct_gemm_direct_type { /* which packed types are read so */
                            OCT_GEMM_DIRECT_E4M3FN,
                            OCT_GEMM_DIRECT_E5M2,
                            OCT_GEMM_DIRECT_S8,
                            OCT_GEMM_DIRECT_BF16,
                            OCT_GEMM_DIRECT_TYPES
};

struct oct_gemm_path {
    size_t row_width, column_width; /* the tile */
    size_t pair_bytes;              /* of one free index in a panel */
    /* Free indices first ... first + count - 1 of view; what is missing to width is zero. */
    void (*pack)(const struct oct_gemm_view *view, size_t first, size_t count, size_t width,
                 void *panel, struct oct_gemm_scratch *scratch);
    oct_gemm_tile *narrow[OCT_GEMM_ROWS_MAX + 1]; /* by rows; one panel */
    /* By rows: several panels in one call where one alone does not fill the pipelines. */
    size_t panels[OCT_GEMM_ROWS_MAX + 1];
    oct_gemm_tile *wide[OCT_GEMM_ROWS_MAX + 1];
    size_t direct_rows;                                     /* at most; 0: none */
    size_t direct_columns[OCT_GEMM_DIRECT_ROWS_MAX + 1][2]; /* of a narrow call, of a wide one */
    oct_gemm_direct *direct[OCT_GEMM_DIRECT_TYPES][OCT_GEMM_DIRECT_ROWS_MAX + 1][2];
};

enum { OCT_GEMM_FIRST = 1, OCT_GEMM_LAST = 2, OCT_GEMM_INTEGER = 4 };

struct oct_gemm_kernels {
    struct oct_gemm_path f32, bf16; /* bf16.pack NULL: the set has none */
    /* Adds a tile to out, as gemm.h says: FIRST writes instead, LAST makes the final number of it;
     * INTEGER keeps int32 in out between the two. */
    void (*merge)(size_t rows, size_t columns, const float *tile, size_t tile_stride, float *out,
                  size_t out_stride, int mode);
    /* Products of which packing would be most of the work, in one block of k (depth <= 256).
     * thin_row: one row against columns that lie side by side, F32 or BF16: out[c] is the final sum
     * over k of row[k] * x[depth[k] + c]. thin_dots: sums[j] = the block's sum of row[k] *
     * columns[j][k], for up to 4. */
    void (*thin_row)(enum octet_dtype dtype, size_t depth, const float *row, const char *x,
                     const int64_t *offsets, size_t columns, float *out);
    void (*thin_dots)(size_t depth, const float *row, size_t columns, const float *const *column,
                      float *sums);
    /* n numbers times 2^8; false, and nothing is written, when one is too large for it. NaN and Inf
     * stay what they are. */
    bool (*lift)(size_t n, float *numbers);
};

#endif
