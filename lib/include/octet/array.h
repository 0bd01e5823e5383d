/* Array: numbers in memory, dense and row-major.
 *
 * For: what goes into and comes out of computations. Not for: a graph's tensors (graph.h), which
 * have shapes but no numbers.
 *
 * Life: an array is a view; whoever made its data says how long that lives. */
#ifndef OCTET_ARRAY_H
#define OCTET_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "octet/arena.h"
#include "octet/dtype.h"

#define OCTET_ARRAY_RANK_MAX 8

struct octet_array {
    enum octet_dtype dtype;
    int32_t rank;                      /* 0: one number */
    int64_t dim[OCTET_ARRAY_RANK_MAX]; /* not negative; 0 is legal and means no elements */
    void *data; /* little-endian; 4-bit types one value a byte. Aligned to the element's size */
};

/* Product of the dimensions; INT64_MAX when it does not fit. */
OCTET_API int64_t octet_array_elements(const struct octet_array *array);
/* Do the dimensions other than 0 have a product that fits? Strides and counts then fit too, also of
 * an array without elements. */
OCTET_API bool octet_array_fits(const struct octet_array *array);
/* Elements times octet_dtype_bytes; INT64_MAX when it does not fit. */
OCTET_API int64_t octet_array_bytes(const struct octet_array *array);
/* "[4, 8]" into the buffer, which is returned. */
OCTET_API const char *octet_array_shape_text(const struct octet_array *array, char *buffer,
                                             size_t size);
/* Zeroed data in the arena; errors: INVALID_ARGUMENT for a rank or dimension that cannot be,
 * RESOURCE_EXHAUSTED. */
OCTET_API enum octet_status octet_array_create(octet_arena *arena, enum octet_dtype dtype,
                                               int32_t rank, const int64_t *dim,
                                               struct octet_array *out,
                                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
