/* Packed codes (gemm.h): writing and reading the layout. Once a weight, so plain loops over bytes
 * do; what multiplies from it are the sets' tiles. */
#include <string.h>
#include <sys/mman.h>

#include "base/pool.h"
#include "kernels/gemm_private.h"

enum { WIDTH = OCT_GEMM_PACKED_FREE, HEAD = OCT_GEMM_PACKED_HEAD, E4M3FN_NAN = 0x7f };

static bool is_packable(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_BF16 || dtype == OCTET_DTYPE_F8_E4M3FN ||
           dtype == OCTET_DTYPE_F8_E5M2 || dtype == OCTET_DTYPE_F4_E2M1FN ||
           dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

size_t oct_gemm_packed_panel_bytes(enum octet_dtype dtype, int64_t k)
{
    return HEAD + ((size_t)k + 1) / 2 * 2 * WIDTH * octet_dtype_bytes(dtype);
}

size_t oct_gemm_packed_bytes(enum octet_dtype dtype, int64_t n, int64_t k)
{
    if (!is_packable(dtype))
        return 0;
    return ((size_t)n + WIDTH - 1) / WIDTH * oct_gemm_packed_panel_bytes(dtype, k);
}

/* One packing or unpacking, an item a panel. */
struct move {
    struct oct_gemm_side side;
    int64_t n, k;
    char *packed, *data; /* the one that is written */
    int64_t free_stride, depth_stride;
};

static int64_t offset_of(const int64_t *table, int64_t stride, int64_t i)
{
    return stride ? i * stride : table[i];
}

static void pack_bytes(const struct move *m, const int64_t *free, size_t columns, unsigned char *to)
{
    const unsigned char *data = m->side.data;

    for (int64_t k = 0; k < m->k; k++, to += k % 2 ? 1 : 2 * WIDTH - 1) {
        const unsigned char *x = data + offset_of(m->side.depth, m->side.depth_stride, k);
        for (size_t j = 0; j < columns; j++)
            to[2 * j] = x[free[j]];
    }
}

static void pack_words(const struct move *m, const int64_t *free, size_t columns, uint16_t *to)
{
    const uint16_t *data = m->side.data;

    for (int64_t k = 0; k < m->k; k++, to += k % 2 ? 1 : 2 * WIDTH - 1) {
        const uint16_t *x = data + offset_of(m->side.depth, m->side.depth_stride, k);
        for (size_t j = 0; j < columns; j++)
            to[2 * j] = x[free[j]];
    }
}

static bool has_nan(const unsigned char *codes, size_t count)
{
    unsigned char any = 0;

    for (size_t i = 0; i < count; i++)
        any |= (codes[i] & 0x7f) == E4M3FN_NAN;
    return any;
}

static void pack_panel(void *user, size_t panel, size_t thread)
{
    const struct move *m = user;
    const size_t bytes = oct_gemm_packed_panel_bytes(m->side.dtype, m->k);
    const size_t left = (size_t)m->n - panel * WIDTH, columns = left < WIDTH ? left : WIDTH;
    char *to = m->packed + panel * bytes;
    struct oct_gemm_packed_head head = {0};
    int64_t free[WIDTH];

    (void)thread;
    for (size_t j = 0; j < columns; j++)
        free[j] = offset_of(m->side.free, m->side.free_stride, (int64_t)(panel * WIDTH + j));
    if (columns < WIDTH || m->k % 2)
        memset(to, 0, bytes);
    if (octet_dtype_bytes(m->side.dtype) == 1)
        pack_bytes(m, free, columns, (unsigned char *)to + HEAD);
    else
        pack_words(m, free, columns, (uint16_t *)(void *)(to + HEAD));
    if (m->side.dtype == OCTET_DTYPE_F8_E4M3FN)
        head.has_nan = has_nan((const unsigned char *)to + HEAD, bytes - HEAD);
    memset(to, 0, HEAD);
    memcpy(to, &head, sizeof head);
}

/* Few rows are as fast as memory is read, and that is a third faster from large pages. Where the
 * kernel grants none, nothing is lost. */
static void ask_for_huge_pages(char *packed, size_t bytes)
{
    const uintptr_t huge = 2 << 20;
    uintptr_t begin = ((uintptr_t)packed + huge - 1) & ~(huge - 1);
    uintptr_t end = ((uintptr_t)packed + bytes) & ~(huge - 1);

    if (begin < end)
        (void)madvise(packed + (begin - (uintptr_t)packed), end - begin, MADV_HUGEPAGE);
}

enum octet_status oct_gemm_pack(const octet_workers *workers, const struct octet_cancel *cancel,
                                const struct oct_gemm_side *side, int64_t n, int64_t k,
                                void *packed, struct octet_error *err)
{
    struct move m = {.side = *side, .n = n, .k = k, .packed = packed};

    ask_for_huge_pages(packed, oct_gemm_packed_bytes(side->dtype, n, k));
    return oct_pool_run(workers->pool, ((size_t)n + WIDTH - 1) / WIDTH, cancel, pack_panel, &m,
                        err);
}

static void unpack_panel(void *user, size_t panel, size_t thread)
{
    const struct move *m = user;
    const size_t bytes = octet_dtype_bytes(m->side.dtype);
    const size_t left = (size_t)m->n - panel * WIDTH, columns = left < WIDTH ? left : WIDTH;
    const char *from = (const char *)m->side.data +
                       ((size_t)m->side.packed_free / WIDTH + panel) *
                           oct_gemm_packed_panel_bytes(m->side.dtype, m->side.packed_depth) +
                       HEAD + (size_t)m->side.packed_from * WIDTH * bytes;

    (void)thread;
    for (size_t k = 0; k < (size_t)m->k; k++)
        for (size_t j = 0; j < columns; j++) {
            int64_t to =
                (int64_t)(panel * WIDTH + j) * m->free_stride + (int64_t)k * m->depth_stride;
            memcpy(m->data + to * (int64_t)bytes, from + ((k / 2 * WIDTH + j) * 2 + k % 2) * bytes,
                   bytes);
        }
}

enum octet_status oct_gemm_unpack(const octet_workers *workers, const struct octet_cancel *cancel,
                                  const struct oct_gemm_side *side, int64_t n, int64_t k,
                                  void *data, int64_t free_stride, int64_t depth_stride,
                                  struct octet_error *err)
{
    struct move m = {.side = *side,
                     .n = n,
                     .k = k,
                     .data = data,
                     .free_stride = free_stride,
                     .depth_stride = depth_stride};

    return oct_pool_run(workers->pool, ((size_t)n + WIDTH - 1) / WIDTH, cancel, unpack_panel, &m,
                        err);
}
