/* Pieces and ranges; see piece.h. */
#include "exec/piece.h"

#include <string.h>

#include "base/pool.h"

/* Below this many elements waking threads costs more than it gains: some 10 us of work. */
enum { ALONE = 1 << 15 };

const float *oct_piece_read_as(const struct oct_kernels *kernels, const struct octet_array *x,
                               enum octet_dtype dtype, int64_t at, int64_t n, float *buffer)
{
    const float *values = oct_piece_read(kernels, x, at, n, buffer);
    uint16_t rounded[OCT_PIECE];

    if (dtype == OCTET_DTYPE_F32 || x->dtype == dtype)
        return values;
    for (int64_t i = 0; i < n; i += OCT_PIECE) {
        size_t count = (size_t)(n - i < OCT_PIECE ? n - i : OCT_PIECE);
        kernels->cast(dtype, count, values + i, rounded);
        kernels->decode(dtype, count, rounded, buffer + i);
    }
    return buffer;
}

void oct_piece_copy(const struct oct_kernels *kernels, const struct octet_array *x, int64_t from,
                    const struct octet_array *y, int64_t to, int64_t n)
{
    const int64_t bytes = (int64_t)octet_dtype_bytes(x->dtype);
    float buffer[OCT_PIECE];

    if (x->dtype == y->dtype) {
        memcpy((char *)y->data + to * bytes, (const char *)x->data + from * bytes,
               (size_t)(n * bytes));
        return;
    }
    for (int64_t i = 0; i < n; i += OCT_PIECE) {
        int64_t count = n - i < OCT_PIECE ? n - i : OCT_PIECE;
        oct_piece_write(kernels, y, to + i, count,
                        oct_piece_read(kernels, x, from + i, count, buffer));
    }
}

int64_t oct_dims_before(const struct octet_array *x, int axis)
{
    int64_t product = 1;

    for (int i = 0; i < axis; i++)
        product *= x->dim[i];
    return product;
}

int64_t oct_dims_behind(const struct octet_array *x, int axis)
{
    int64_t product = 1;

    for (int i = axis + 1; i < x->rank; i++)
        product *= x->dim[i];
    return product;
}

struct ranges {
    int64_t count, grain;
    void (*body)(void *user, int64_t first, int64_t end);
    void *user;
};

static void run_range(void *user, size_t item, size_t thread)
{
    const struct ranges *r = user;
    int64_t first = (int64_t)item * r->grain, end = first + r->grain;

    (void)thread;
    r->body(r->user, first, end < r->count ? end : r->count);
}

enum octet_status oct_ranges(const struct oct_op_call *call, int64_t count, int64_t grain,
                             int64_t cost, void (*body)(void *user, int64_t first, int64_t end),
                             void *user, struct octet_error *err)
{
    const struct octet_compute *compute = call->execution->compute;
    struct ranges r = {count, grain < 1 ? 1 : grain, body, user};
    struct oct_pool *pool = cost < ALONE ? NULL : compute->workers->pool;

    if (count <= 0)
        return OCTET_OK;
    return oct_pool_run(pool, (size_t)((count + r.grain - 1) / r.grain), compute->cancel, run_range,
                        &r, err);
}

void *oct_call_scratch(const struct oct_op_call *call, int64_t count, size_t size,
                       struct octet_error *err)
{
    void *memory = octet_arena_array(call->scratch, (size_t)count, size);
    enum octet_status status = memory ? OCTET_OK : octet_arena_exhausted(call->scratch, err);

    return status == OCTET_OK ? memory : NULL;
}
