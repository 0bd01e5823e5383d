/* Weights laid out once for the products that they are multiplied in; see pack.h and octet_pack.
 *
 * Not for: the layout itself (kernels/gemm.h), nor who reads it (product.c, grouped.c). */
#include "quant/pack.h"

#include "kernels/gemm.h"
#include "quant/quantize.h"

/* The layout is read in lines of 64 bytes. */
enum { ALIGNMENT = 64 };

/* An array as `groups` matrices, of which the rows or the columns are contracted. */
struct matrices {
    int64_t groups, n, k;
    int64_t free_stride, depth_stride;
};

static struct matrices matrices_of(const struct octet_array *codes, int32_t axis, int32_t count)
{
    struct matrices m = {.groups = 1, .n = 1, .k = 1};
    bool has_groups = codes->rank == 3 && axis > 0;

    for (int32_t i = 0; i < codes->rank; i++)
        *(i >= axis && i < axis + count ? &m.k
          : has_groups && i == 0        ? &m.groups
                                        : &m.n) *= codes->dim[i];
    bool is_last = axis + count == codes->rank && axis > 0;
    m.free_stride = is_last ? m.k : 1;
    m.depth_stride = is_last ? 1 : m.n;
    return m;
}

size_t oct_packed_bytes(const struct octet_array *codes, int32_t axis, int32_t count)
{
    bool fits = axis == 0
                    ? count > 0 && count < codes->rank
                    : count == 1 && (codes->rank == 2 || codes->rank == 3) && axis < codes->rank;

    if (!fits || !octet_array_elements(codes))
        return 0;
    struct matrices m = matrices_of(codes, axis, count);
    return (size_t)m.groups * oct_gemm_packed_bytes(codes->dtype, m.n, m.k);
}

static char *aligned(octet_arena *arena, size_t bytes)
{
    char *at = octet_arena_alloc_unset(arena, bytes + ALIGNMENT);

    return at ? at + (ALIGNMENT - (uintptr_t)at % ALIGNMENT) % ALIGNMENT : NULL;
}

enum octet_status oct_pack(const struct octet_compute *compute, struct octet_quantized *quantized,
                           int32_t axis, int32_t count, struct octet_error *err)
{
    const struct octet_array *codes = &quantized->qvalue;
    const struct matrices m = matrices_of(codes, axis, count);
    const size_t bytes = oct_gemm_packed_bytes(codes->dtype, m.n, m.k);
    const size_t matrix = (size_t)(m.n * m.k) * octet_dtype_bytes(codes->dtype);
    char *to = aligned(compute->arena, bytes * (size_t)m.groups);
    enum octet_status status = OCTET_OK;

    if (!to)
        return octet_arena_exhausted(compute->arena, err);
    for (int64_t g = 0; g < m.groups && status == OCTET_OK; g++) {
        const struct oct_gemm_side side = {.dtype = codes->dtype,
                                           .data = (const char *)codes->data + (size_t)g * matrix,
                                           .free_stride = m.free_stride,
                                           .depth_stride = m.depth_stride};
        status = oct_gemm_pack(compute->workers, compute->cancel, &side, m.n, m.k,
                               to + (size_t)g * bytes, err);
    }
    if (status == OCTET_OK)
        quantized->packed = (struct octet_packed){
            .data = to, .codes = codes->data, .axis = axis, .axis_count = count};
    return status;
}

bool oct_is_packed(const struct octet_quantized *quantized, const int32_t *axes, int32_t count)
{
    const struct octet_packed *packed = &quantized->packed;

    if (!packed->data || packed->codes != quantized->qvalue.data || packed->axis_count != count)
        return false;
    for (int32_t i = 0; i < count; i++)
        if (axes[i] != packed->axis + i)
            return false;
    return true;
}

enum octet_status oct_unpack(const struct octet_compute *compute, struct octet_quantized *quantized,
                             struct octet_error *err)
{
    struct octet_array *codes = &quantized->qvalue;
    const struct octet_packed *packed = &quantized->packed;
    enum octet_status status = OCTET_OK;

    if (codes->data || !packed->data)
        return OCTET_OK;
    const struct matrices m = matrices_of(codes, packed->axis, packed->axis_count);
    const size_t bytes = oct_gemm_packed_bytes(codes->dtype, m.n, m.k);
    const size_t matrix = (size_t)(m.n * m.k) * octet_dtype_bytes(codes->dtype);
    status = oct_array_like(compute, codes, codes->dtype, codes, err);
    for (int64_t g = 0; g < m.groups && status == OCTET_OK; g++) {
        const struct oct_gemm_side side = {.dtype = codes->dtype,
                                           .data = (const char *)packed->data + (size_t)g * bytes,
                                           .packed_depth = m.k};
        status = oct_gemm_unpack(compute->workers, compute->cancel, &side, m.n, m.k,
                                 (char *)codes->data + (size_t)g * matrix, m.free_stride,
                                 m.depth_stride, err);
    }
    return status;
}

enum octet_status octet_pack(const struct octet_compute *compute, struct octet_quantized *quantized,
                             int32_t axis, struct octet_error *err)
{
    const struct octet_array *codes = &quantized->qvalue;
    int32_t first = codes->rank - 2; /* of the matrix's two axes */

    if (codes->rank != 2 && codes->rank != 3)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "quantized.qvalue.shape",
                          "rank is %d; a matrix has 2, a group of them 3", codes->rank);
    if (axis != first && axis != first + 1)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "axis", "%d is neither %d nor %d", axis,
                          first, first + 1);
    return oct_pack(compute, quantized, axis, 1, err);
}
