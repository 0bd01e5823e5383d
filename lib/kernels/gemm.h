/* Matrix products in EXACT_ORDER, from operands as they lie in memory.
 *
 * For: every dot and grouped matmul; scales are the caller's. Not for: deciding what is a row.
 *
 * The order (EXACT_ORDER): k runs in blocks of 256 from 0. Inside a block one f32 chain from zero
 * takes k in pairs, of each pair the odd k first, each step one fused multiply-add; a block of odd
 * depth is padded with a zero on both sides. Block sums are added in increasing order: the first is
 * the result so far. A NaN result is 0x7fc00000. Where both operands are integers (S8, S4) block
 * sums, which are exact, are added in int32 (wrapping, as XLA's) and the total is rounded to f32
 * once. Depth 0 gives zeros. */
#ifndef OCTET_KERNELS_GEMM_H
#define OCTET_KERNELS_GEMM_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "octet/cancel.h"

enum { OCT_GEMM_BLOCK = 256, OCT_GEMM_PACKED_FREE = 32 };

/* One side of a product. Element (free index i, contracting index k) is at
 * data[free[i] + depth[k]], offsets in elements. free_stride, depth_stride: when not 0, free[i] = i
 * * free_stride (the table may then be NULL), so that runs can be read without the table; likewise
 * depth.
 *
 * Packed (packed_depth not 0; rhs only): data is what oct_gemm_pack wrote for packed_depth k in
 * all, and (i, k) is what was free index packed_free + i, contracting index packed_from + k there;
 * multiples of OCT_GEMM_PACKED_FREE and of 2. Tables and strides are not read. */
struct oct_gemm_side {
    enum octet_dtype dtype; /* F32, BF16, F8_E4M3FN, F8_E5M2, F4_E2M1FN, S8, S4 */
    const void *data;
    const int64_t *free, *depth;
    int64_t free_stride, depth_stride;
    int64_t packed_depth, packed_free, packed_from;
};

/* out[i * out_stride + j] = sum over k of lhs(i, k) * rhs(j, k), f32, m x n. Written whole. out
 * NULL: the sums are only for whoever ends them. */
struct oct_gemm {
    int64_t m, n, k;
    struct oct_gemm_side lhs, rhs;
    float *out;
    int64_t out_stride;
    bool is_fast; /* FAST: another order will do. Workers with a set of their own for it take that;
                     else nothing is quicker than EXACT_ORDER (docs/internals/kernels.md) */
};

/* What comes after the sums, done for each part of a product by the thread that has just added it
 * up: rows [row, row + rows) and columns [column, column + columns) of product `index` of the list;
 * sum (row + i, column + j) is sums[i * stride + j], in out where there is one. */
struct oct_gemm_end {
    void (*end)(void *user, size_t index, int64_t row, int64_t rows, int64_t column,
                int64_t columns, float *sums, int64_t stride);
    void *user;
};

/* All products of the list, which share the workers: batches, groups, tiles. Their outs do not
 * overlap. Working memory, up to 2 MiB a thread, stays with the workers from list to list; a
 * small list runs on the caller's thread alone. oct_gemm_run: nothing comes after the sums. Errors:
 * RESOURCE_EXHAUSTED; what cancel says, then outs hold anything. */
enum octet_status oct_gemm_run(const octet_workers *workers, const struct octet_cancel *cancel,
                               const struct oct_gemm *list, size_t count,
                               struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_gemm_run_to(const octet_workers *workers, const struct octet_cancel *cancel,
                                  const struct oct_gemm *list, size_t count,
                                  const struct oct_gemm_end *end,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* ---- Packed codes: weights that are multiplied often ----
 *
 * One layout for all kernel sets, in which few rows run about as fast as memory can be read, and
 * many rows need no turning of codes. Panels of 32 free indices, one after another; each is 64
 * bytes (what is to be known of the panel), then for each pair of k [32][2] elements, the even k
 * first; what is missing to 32 and to an even depth is zero. Results have the same bits as from the
 * codes as they were. Best at an address that is a multiple of 64. */

/* Bytes for n x k; 0: the type is not packed (F32). */
size_t oct_gemm_packed_bytes(enum octet_dtype dtype, int64_t n, int64_t k);
/* side: n free and k contracting indices, not packed. packed: oct_gemm_packed_bytes, written whole;
 * huge pages are asked for, which come if its pages have not been touched.
 * Errors: what cancel says, then packed holds anything. */
enum octet_status oct_gemm_pack(const octet_workers *workers, const struct octet_cancel *cancel,
                                const struct oct_gemm_side *side, int64_t n, int64_t k,
                                void *packed, struct octet_error *err) OCTET_MUST_CHECK;
/* The way back: element (i, k) of a packed side to data[i * free_stride + k * depth_stride]. */
enum octet_status oct_gemm_unpack(const octet_workers *workers, const struct octet_cancel *cancel,
                                  const struct oct_gemm_side *side, int64_t n, int64_t k,
                                  void *data, int64_t free_stride, int64_t depth_stride,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
