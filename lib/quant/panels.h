/* Panels: the matrix products that an op consists of, with their scales and their places in the
 * result.
 *
 * For: dot_general (a panel for each batch index), grouped matmuls (one for each group), tiles of a
 * scale (a round of panels for each tile, added up). Not for: what is multiplied with what, and
 * which scales apply (product.h, grouped.c).
 *
 * result(i, j) = R(R(R(sum) * lhs_scale) * rhs_scale), formula 9; with several rounds these are
 * added in f32, in order, and rounded to R once; then cast to the result's dtype. */
#ifndef OCTET_QUANT_PANELS_H
#define OCTET_QUANT_PANELS_H

#include "kernels/gemm.h"
#include "octet/quant.h"

struct oct_panel {
    struct oct_gemm gemm;   /* out is set by oct_panels_add */
    const float *lhs_scale; /* row i's is lhs_scale[lhs_index[i]]; NULL: none */
    const int64_t *lhs_index;
    const float *rhs_scale; /* column j's is rhs_scale[j * rhs_stride]; NULL: none */
    size_t rhs_stride;      /* 0 or 1 */
    int64_t origin;         /* element of the result at (0, 0) */
    bool has_shift;         /* sum is less the sum of `shift`: a zero point's share */
    struct oct_gemm shift;
};

/* Where (i, j) of a panel goes: origin + rows[i] + columns[j]. */
struct oct_places {
    const int64_t *rows, *columns;
    bool is_contiguous; /* columns[j] = j */
};

struct oct_panels {
    const struct octet_compute *compute; /* results live in its arena */
    octet_arena *scratch;
    struct octet_array *result;
    bool is_fast;              /* FAST: another order of additions will do */
    enum octet_dtype rounding; /* R: F32 or BF16 */
    /* When not unspecified: the sum and lhs' scale are rounded to this, R begins with rhs' scale.
     */
    enum octet_dtype lhs_rounding;
    /* When not unspecified, and there is one round: R's numbers are rounded to this before they are
     * cast to the result's dtype. */
    enum octet_dtype through;
    struct oct_places places;
    float *sums, *shifts; /* [elements of a round] */
    float *total;         /* the same; NULL: one round */
};

/* round 0 .. rounds - 1, in order, the same panels' places in each. */
enum octet_status oct_panels_add(struct oct_panels *panels, struct oct_panel *list, size_t count,
                                 size_t round, size_t rounds,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* Elements from one index of each axis to the next. */
void oct_strides(const struct octet_array *array, int64_t *stride);

/* A table of offsets: entry i, whose mixed-radix digits over `extent` are d, is sum of (d /
 * divisor) * stride. *step: the constant difference of entries, 0 when there is none. */
enum octet_status oct_offsets(octet_arena *arena, int32_t rank, const int64_t *extent,
                              const int64_t *divisor, const int64_t *stride, const int64_t **table,
                              int64_t *step, struct octet_error *err) OCTET_MUST_CHECK;

#endif
