/* See source.h. */
#include "quant/source.h"

struct oct_source oct_source_of(const struct octet_array *array)
{
    return (struct oct_source){.array = *array, .dtype = array->dtype};
}

struct oct_source oct_source_times(const struct octet_array *array, const int64_t *scale_dim,
                                   const float *scale, enum octet_dtype dtype)
{
    return (struct oct_source){.array = *array,
                               .dtype = dtype,
                               .scale = scale,
                               .layout = oct_layout_make(array->rank, array->dim, scale_dim)};
}

int64_t oct_source_piece(const struct oct_source *source, int64_t n)
{
    return source->scale && n > OCT_SOURCE_PIECE ? OCT_SOURCE_PIECE : n;
}

const void *oct_source_read(const struct oct_kernels *kernels, const struct oct_source *source,
                            int64_t element, int64_t n, float buffer[OCT_SOURCE_PIECE])
{
    const struct oct_layout *layout = &source->layout;
    const enum octet_dtype from = source->array.dtype;
    const char *x = (const char *)source->array.data + element * (int64_t)octet_dtype_bytes(from);
    const size_t bytes = octet_dtype_bytes(from), to_bytes = octet_dtype_bytes(source->dtype);

    if (!source->scale)
        return x;
    for (int64_t at = 0, step; at < n; at += step) {
        const int64_t row = (element + at) / layout->row_length;
        const int64_t column = (element + at) % layout->row_length;
        const float *scale = source->scale + oct_layout_scale(layout, row);
        step = layout->row_length - column < n - at ? layout->row_length - column : n - at;
        kernels->scale(from, (size_t)step, x + (size_t)at * bytes,
                       scale + (layout->is_kept ? column : 0), layout->is_kept, source->dtype,
                       (char *)buffer + (size_t)at * to_bytes);
    }
    return buffer;
}

float oct_source_amax(const struct oct_kernels *kernels, const struct oct_source *source,
                      int64_t element, int64_t n)
{
    float buffer[OCT_SOURCE_PIECE], most = 0;

    for (int64_t at = 0, step; at < n; at += step) {
        step = oct_source_piece(source, n - at);
        float amax = kernels->amax(source->dtype, (size_t)step,
                                   oct_source_read(kernels, source, element + at, step, buffer));
        most = most != most || amax <= most ? most : amax; /* a NaN is taken, and stays */
    }
    return most;
}
