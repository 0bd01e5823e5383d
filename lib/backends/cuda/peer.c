/* Octet's FAST product beside cuBLASLt alone, timed on the device.
 *
 * A turn starts several products between two events, so that the time is the device's and not the
 * host's way to it. Raw products have their descriptors and algorithm from before; Octet's own
 * makes them each time, as in earnest. Operands are numbers of random mantissas and signs: a GPU is
 * faster on zeros. */
#include "backends/cuda/cuda_private.h"

#include <stdlib.h>
#include <string.h>

enum { OWN, FP8, BF16, SIDES, BURST = 8, REPEATS_MAX = 10000 };

struct bench {
    struct oct_cuda_queue *queue;
    struct oct_fast_product products[SIDES];
    struct oct_cublaslt_product raw[SIDES]; /* of FP8 and BF16 */
    oct_device_buffer buffers[7];
    size_t buffer_count;
    oct_cuda_event from, to;
    double *seconds[SIDES];
};

/* A buffer of the bench's own, filled with 16-bit words: `base`, with random bits where mask is. */
static enum octet_status fill(struct bench *bench, size_t bytes, unsigned base, unsigned mask,
                              oct_device_buffer *out, struct octet_error *err)
{
    static const size_t PIECE = 1 << 20;
    uint16_t *words = malloc(PIECE);
    uint32_t state = 1;
    enum octet_status status = OCTET_OK;

    if (!words)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a benchmark");
    for (size_t i = 0; i < PIECE / sizeof *words; i++) {
        state = state * 1664525u + 1013904223u;
        words[i] = (uint16_t)(base | (state >> 16 & mask));
    }
    status = oct_driver_cuda.alloc(bench->queue->cuda, bytes, out, err);
    if (status == OCTET_OK)
        bench->buffers[bench->buffer_count++] = *out;
    for (size_t done = 0; done < bytes && status == OCTET_OK; done += PIECE)
        status = oct_cuda_write(bench->queue, *out, done, words,
                                bytes - done < PIECE ? bytes - done : PIECE, err);
    free(words);
    return status;
}

static enum octet_status set_up(struct bench *bench, int64_t m, int64_t n, int64_t k,
                                struct octet_error *err)
{
    enum { E4M3_ONE = 0x3838, E4M3_MASK = 0x8787, BF16_ONE = 0x3f80, BF16_MASK = 0x807f };
    size_t lhs = (size_t)(m * k), rhs = (size_t)(n * k), out = (size_t)(m * n);
    struct oct_fast_product p = {.batch = 1, .m = m, .n = n, .k = k, .out_dtype = OCTET_DTYPE_BF16};
    enum octet_status status = fill(bench, 2 * out, 0, 0, &p.out, err);

    p.lhs_dtype = p.rhs_dtype = OCTET_DTYPE_BF16;
    if (status == OCTET_OK)
        status = fill(bench, 2 * lhs, BF16_ONE, BF16_MASK, &p.lhs, err);
    if (status == OCTET_OK)
        status = fill(bench, 2 * rhs, BF16_ONE, BF16_MASK, &p.rhs, err);
    bench->products[BF16] = p;
    p.lhs_dtype = p.rhs_dtype = OCTET_DTYPE_F8_E4M3FN;
    if (status == OCTET_OK)
        status = fill(bench, lhs, E4M3_ONE, E4M3_MASK, &p.lhs, err);
    if (status == OCTET_OK)
        status = fill(bench, rhs, E4M3_ONE, E4M3_MASK, &p.rhs, err);
    bench->products[FP8] = p;
    p.lhs_scales = m;
    p.rhs_scales = n;
    if (status == OCTET_OK) /* 0x3f803f80: a little above 1 */
        status = fill(bench, (size_t)m * sizeof(float), BF16_ONE, 0, &p.lhs_scale, err);
    if (status == OCTET_OK)
        status = fill(bench, (size_t)n * sizeof(float), BF16_ONE, 0, &p.rhs_scale, err);
    bench->products[OWN] = p;
    return status;
}

static enum octet_status prepare(struct bench *bench, struct octet_error *err)
{
    struct oct_cuda *cuda = bench->queue->cuda;
    enum octet_status status = oct_cuda_enter(cuda, err);

    if (status != OCTET_OK)
        return status;
    status = oct_cuda_status(cuda, cuda->api.cuEventCreate(&bench->from, OCT_CUDA_EVENT_DEFAULT),
                             err, "making an event");
    if (status == OCTET_OK)
        status = oct_cuda_status(cuda, cuda->api.cuEventCreate(&bench->to, OCT_CUDA_EVENT_DEFAULT),
                                 err, "making an event");
    for (int side = FP8; side < SIDES && status == OCTET_OK; side++)
        status = oct_cublaslt_prepare(bench->queue, &bench->products[side], &bench->raw[side], err);
    oct_cuda_leave(cuda);
    return status;
}

static enum octet_status burst(struct bench *bench, int side, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < BURST && status == OCTET_OK; i++)
        status = side == OWN ? oct_cuda_fast_product(bench->queue, &bench->products[OWN], err)
                             : oct_cublaslt_start(bench->queue, &bench->products[side],
                                                  &bench->raw[side], err);
    return status;
}

/* Seconds of one product of a side. */
static enum octet_status time_one(struct bench *bench, int side, double *seconds,
                                  struct octet_error *err)
{
    struct oct_cuda *cuda = bench->queue->cuda;
    float milliseconds = 0;
    enum octet_status status = oct_cuda_enter(cuda, err);

    if (status != OCTET_OK)
        return status;
    status = oct_cuda_status(cuda, cuda->api.cuEventRecord(bench->from, bench->queue->stream), err,
                             "an event");
    if (status == OCTET_OK)
        status = burst(bench, side, err);
    if (status == OCTET_OK)
        status = oct_cuda_status(cuda, cuda->api.cuEventRecord(bench->to, bench->queue->stream),
                                 err, "an event");
    if (status == OCTET_OK)
        status = oct_cuda_status(cuda, cuda->api.cuEventSynchronize(bench->to), err, "a benchmark");
    if (status == OCTET_OK)
        status = oct_cuda_status(
            cuda, cuda->api.cuEventElapsedTime(&milliseconds, bench->from, bench->to), err,
            "reading a time");
    oct_cuda_leave(cuda);
    *seconds = (double)milliseconds / (1000.0 * BURST);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The first turn warms up. */
static enum octet_status take_turns(struct bench *bench, size_t repeats, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    double ignored;

    for (int side = 0; side < SIDES && status == OCTET_OK; side++)
        status = time_one(bench, side, &ignored, err);
    for (size_t i = 0; i < repeats; i++)
        for (int side = 0; side < SIDES && status == OCTET_OK; side++)
            status = time_one(bench, side, &bench->seconds[side][i], err);
    return status;
}

static void tear_down(struct bench *bench)
{
    struct oct_cuda *cuda = bench->queue->cuda;

    for (size_t i = 0; i < bench->buffer_count; i++)
        oct_driver_cuda.release(cuda, bench->buffers[i]);
    if (cuda->api.cuCtxPushCurrent(cuda->primary) != OCT_CUDA_SUCCESS)
        return;
    for (int side = FP8; side < SIDES; side++)
        oct_cublaslt_release(bench->queue, &bench->raw[side]);
    if (bench->from)
        (void)cuda->api.cuEventDestroy(bench->from);
    if (bench->to)
        (void)cuda->api.cuEventDestroy(bench->to);
    oct_cuda_leave(cuda);
}

enum octet_status oct_cuda_peer(void *queue, int64_t m, int64_t n, int64_t k, int32_t repeats,
                                struct octet_backend_peer *out, struct octet_error *err)
{
    struct bench bench = {.queue = queue};
    size_t count = (size_t)repeats;

    if (repeats < 1 || repeats > REPEATS_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "repeats", "%d is not in 1 to %d", repeats,
                          REPEATS_MAX);
    double *seconds = calloc(count * SIDES, sizeof *seconds);
    if (!seconds)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a benchmark");
    for (size_t side = 0; side < SIDES; side++)
        bench.seconds[side] = seconds + side * count;
    enum octet_status status = set_up(&bench, m, n, k, err);
    if (status == OCTET_OK)
        status = prepare(&bench, err);
    if (status == OCTET_OK)
        status = take_turns(&bench, count, err);
    tear_down(&bench);
    if (status == OCTET_OK)
        *out = (struct octet_backend_peer){.own = median(bench.seconds[OWN], count),
                                           .fp8 = median(bench.seconds[FP8], count),
                                           .bf16 = median(bench.seconds[BF16], count)};
    free(seconds);
    return status;
}
