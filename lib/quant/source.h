/* Source: the numbers that are quantized: an array's, or an array times a scale.
 *
 * For: calibration and conversion, which read pieces. Decision: a gradient times its residual's
 * scale is made a piece at a time, each time it is read, since the numbers come faster from L1 and
 * a multiplication than from a copy in memory. */
#ifndef OCTET_QUANT_SOURCE_H
#define OCTET_QUANT_SOURCE_H

#include "kernels/kernels.h"
#include "quant/layout.h"

enum { OCT_SOURCE_PIECE = 2048 };

struct oct_source {
    struct octet_array array;
    enum octet_dtype dtype;   /* of the numbers: F32 or BF16 */
    const float *scale;       /* NULL: none, and dtype is the array's */
    struct oct_layout layout; /* of the scale on the array */
};

struct oct_source oct_source_of(const struct octet_array *array);
/* round_dtype(array * scale), the scale of the array's rank and broadcast by tiles; borrowed. */
struct oct_source oct_source_times(const struct octet_array *array, const int64_t *scale_dim,
                                   const float *scale, enum octet_dtype dtype);

/* Numbers [element, element + n), n up to OCT_SOURCE_PIECE where there is a scale: where they lie,
 * or in buffer. */
const void *oct_source_read(const struct oct_kernels *kernels, const struct oct_source *source,
                            int64_t element, int64_t n, float buffer[OCT_SOURCE_PIECE]);
/* How many of n the next read may be. */
int64_t oct_source_piece(const struct oct_source *source, int64_t n);
/* max |x| over numbers [element, element + n); NaN when any is. */
float oct_source_amax(const struct oct_kernels *kernels, const struct oct_source *source,
                      int64_t element, int64_t n);

#endif
