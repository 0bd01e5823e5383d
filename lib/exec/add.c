/* Adding up gradients; see add.h. */
#include "exec/add.h"

#include "base/pool.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

enum { PIECE = 4096, INLINE_PIECES = 8, BUFFER = 1024 };

struct sum {
    const struct oct_kernels *kernels;
    const struct octet_array *x, *sum;
    size_t elements;
};

static void add_bf16(const struct oct_kernels *k, size_t n, const uint16_t *x, uint16_t *sum)
{
    float a[BUFFER], b[BUFFER];

    for (size_t at = 0; at < n; at += BUFFER) {
        size_t count = n - at < BUFFER ? n - at : BUFFER;
        k->decode(OCTET_DTYPE_BF16, count, x + at, a);
        k->decode(OCTET_DTYPE_BF16, count, sum + at, b);
        k->math->add(count, a, b, a);
        k->cast(OCTET_DTYPE_BF16, count, a, sum + at);
    }
}

static void add_piece(void *user, size_t item, size_t thread)
{
    const struct sum *s = user;
    size_t at = item * PIECE, n = s->elements - at < PIECE ? s->elements - at : PIECE;

    (void)thread;
    if (s->sum->dtype == OCTET_DTYPE_BF16) {
        add_bf16(s->kernels, n, (const uint16_t *)s->x->data + at, (uint16_t *)s->sum->data + at);
    } else {
        float *sum = (float *)s->sum->data + at;
        s->kernels->math->add(n, sum, (const float *)s->x->data + at, sum);
    }
}

enum octet_status oct_add_in_place(const struct octet_compute *compute, const struct octet_array *x,
                                   const struct octet_array *sum, struct octet_error *err)
{
    struct sum s = {compute->workers->kernels, x, sum, (size_t)octet_array_elements(sum)};
    size_t pieces = (s.elements + PIECE - 1) / PIECE;

    return oct_pool_run(pieces > INLINE_PIECES ? compute->workers->pool : NULL, pieces,
                        compute->cancel, add_piece, &s, err);
}
