/* See array.h. */
#include "octet/array.h"

#include <inttypes.h>
#include <stdio.h>

int64_t octet_array_elements(const struct octet_array *array)
{
    int64_t n = 1;
    bool overflows = false;

    for (int32_t i = 0; i < array->rank; i++) {
        if (array->dim[i] == 0)
            return 0; /* whatever the others are */
        overflows |= __builtin_mul_overflow(n, array->dim[i], &n);
    }
    return overflows ? INT64_MAX : n;
}

bool octet_array_fits(const struct octet_array *array)
{
    int64_t n = 16; /* wider than any element */

    for (int32_t i = 0; i < array->rank; i++)
        if (array->dim[i] && __builtin_mul_overflow(n, array->dim[i], &n))
            return false;
    return true;
}

int64_t octet_array_bytes(const struct octet_array *array)
{
    int64_t n = octet_array_elements(array);

    if (n == INT64_MAX || __builtin_mul_overflow(n, (int64_t)octet_dtype_bytes(array->dtype), &n))
        return INT64_MAX;
    return n;
}

const char *octet_array_shape_text(const struct octet_array *array, char *buffer, size_t size)
{
    size_t used = 0;

    for (int32_t i = 0; i <= array->rank && used < size; i++) {
        int n = i < array->rank ? snprintf(buffer + used, size - used, "%s%" PRId64, i ? ", " : "[",
                                           array->dim[i])
                                : snprintf(buffer + used, size - used, i ? "]" : "[]");
        used += n > 0 ? (size_t)n : 0;
    }
    return buffer;
}

enum octet_status octet_array_create(octet_arena *arena, enum octet_dtype dtype, int32_t rank,
                                     const int64_t *dim, struct octet_array *out,
                                     struct octet_error *err)
{
    if (rank < 0 || rank > OCTET_ARRAY_RANK_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "shape",
                          "has %d dimensions; up to %d are supported", rank, OCTET_ARRAY_RANK_MAX);
    *out = (struct octet_array){.dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "shape",
                              "dimension %d is %" PRId64 ", which is negative", i, dim[i]);
        out->dim[i] = dim[i];
    }
    int64_t bytes = octet_array_bytes(out);
    char shape[160];
    if (bytes == INT64_MAX)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "an array of shape %s has more bytes than can be counted",
                          octet_array_shape_text(out, shape, sizeof shape));
    out->data = octet_arena_alloc(arena, (size_t)bytes);
    if (!out->data)
        return octet_arena_exhausted(arena, err);
    return OCTET_OK;
}
