/* Weights laid out once for the products that they are multiplied in; see octet_pack in quant.h.
 *
 * Not for: the layout itself (kernels/gemm.h), nor who reads it (product.c, grouped.c). */
#include "kernels/gemm.h"
#include "octet/quant.h"

/* The layout is read in lines of 64 bytes. */
enum { ALIGNMENT = 64 };

static void *aligned(octet_arena *arena, size_t bytes)
{
    char *at = octet_arena_alloc_unset(arena, bytes + ALIGNMENT);

    return at ? at + (ALIGNMENT - (uintptr_t)at % ALIGNMENT) % ALIGNMENT : NULL;
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
    int64_t k = codes->dim[axis], n = codes->dim[first + (axis == first)];
    int64_t groups = first ? codes->dim[0] : 1, row = codes->dim[codes->rank - 1];
    size_t element = octet_dtype_bytes(codes->dtype);
    size_t bytes = oct_gemm_packed_bytes(codes->dtype, n, k);
    char *to = aligned(compute->arena, bytes * (size_t)groups);
    enum octet_status status = OCTET_OK;

    if (!to)
        return octet_arena_exhausted(compute->arena, err);
    for (int64_t g = 0; g < groups && status == OCTET_OK; g++) {
        const struct oct_gemm_side side = {.dtype = codes->dtype,
                                           .data = (const char *)codes->data +
                                                   (size_t)(g * k * n) * element,
                                           .free_stride = axis == first ? 1 : row,
                                           .depth_stride = axis == first ? row : 1};
        status = oct_gemm_pack(compute->workers, compute->cancel, &side, n, k,
                               to + (size_t)g * bytes, err);
    }
    if (status == OCTET_OK)
        quantized->packed = (struct octet_packed){.data = to, .codes = codes->data, .axis = axis};
    return status;
}
