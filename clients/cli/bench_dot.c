/* octet bench gemm and gemv: products of two matrices with each kernel set, beside OpenBLAS.
 *
 * What is timed is octet_dot_general, operands ready in memory, with scales and result: all that a
 * caller waits for. The peer has the same numbers as f32. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

/* One shape, one pair of types, one layout. */
struct dot {
    struct bench *bench;
    octet_arena *arena; /* of what follows */
    struct bench_shape shape;
    enum octet_dtype lhs_dtype, rhs_dtype;
    enum bench_layout layout;
    bool reading;           /* gemv */
    double *seconds_of_one; /* of each set, of one row of this k and n; NAN: not known */
    float *a, *b, *c;       /* the peer's */
    struct octet_operand lhs, rhs;
};

static enum octet_status run_ours(void *user, octet_backend *backend,
                                  const struct octet_compute *compute, struct octet_error *err)
{
    const struct dot *d = user;
    const struct octet_dot_dims dims = {.contracting_count = 1,
                                        .lhs_contracting = {1},
                                        .rhs_contracting = {d->layout == BENCH_NK ? 1 : 0}};
    const struct octet_product_options how = {.weight_operand = OCTET_WEIGHT_RHS};
    struct octet_product product;

    if (backend)
        return octet_backend_dot_general(backend, compute, &d->lhs, &d->rhs, &dims, &how, &product,
                                         err);
    return octet_dot_general(compute, &d->lhs, &d->rhs, &dims, &how, &product, err);
}

static void run_blas(void *user, const struct blas *blas)
{
    const struct dot *d = user;

    blas_multiply(blas, d->shape.m, d->shape.n, d->shape.k, d->a, d->b, d->layout == BENCH_NK,
                  d->c);
}

static enum octet_status prepare(struct dot *d, struct octet_error *err)
{
    const struct bench_shape *s = &d->shape;
    const bool turned = d->layout == BENCH_NK;
    const int64_t left[] = {s->m, s->k}, right[] = {turned ? s->n : s->k, turned ? s->k : s->n};
    const int32_t rows = 0, columns = turned ? 0 : 1;
    size_t a = (size_t)(left[0] * left[1]), b = (size_t)(right[0] * right[1]);

    d->a = octet_arena_alloc_unset(d->arena, a * sizeof(float));
    d->b = octet_arena_alloc_unset(d->arena, b * sizeof(float));
    d->c = octet_arena_alloc_unset(d->arena, (size_t)s->m * (size_t)s->n * sizeof(float));
    if (!d->a || !d->b || !d->c)
        return octet_arena_exhausted(d->arena, err);
    bench_fill(d->a, a, 1);
    bench_fill(d->b, b, 2);
    enum octet_status status =
        bench_operand(d->bench, d->arena, d->a, 2, left, d->lhs_dtype, &rows, 1, &d->lhs, err);
    if (status == OCTET_OK)
        status = bench_operand(d->bench, d->arena, d->b, 2, right, d->rhs_dtype, &columns, 1,
                               &d->rhs, err);
    if (status == OCTET_OK && d->layout == BENCH_PACKED && d->rhs.is_quantized)
        status = bench_pack(d->bench, d->arena, &d->rhs, 0, err);
    return status;
}

static double rhs_bytes(const struct dot *d)
{
    return (double)d->shape.k * d->shape.n * (double)octet_dtype_bytes(d->rhs_dtype);
}

/* What gemv tells beside gemm: bytes of the weight by time, of what the machine can read; time by
 * that of M single rows. */
static void add_reading(struct bench_row *row, const struct dot *d, size_t set,
                        const struct bench_side *ours)
{
    double rate = 1e-9 * rhs_bytes(d) / ours->median;

    if (d->shape.m == 1)
        d->seconds_of_one[set] = ours->median;
    bench_number(row, "gbytes_per_s", "GB/s", rate, 2);
    bench_number(row, "bandwidth_share", "OF READING", rate / d->bench->peaks.read_gbytes_per_s, 2);
    bench_number(row, "per_single_row", "PER ROW",
                 ours->median / (d->shape.m * d->seconds_of_one[set]), 2);
}

static void add_row(void *user, const struct bench_set *set, const struct bench_side *ours,
                    const char *peer_name, const struct bench_side *peer)
{
    const struct dot *d = user;
    struct bench *bench = d->bench;
    struct bench_row *row = bench_add(bench);
    const struct bench_shape *s = &d->shape;
    double work = 2e-9 * s->m * s->k * s->n;
    double peak = bench_peak_of(bench, set->name, d->lhs_dtype, d->rhs_dtype);
    const char *types =
        octet_arena_format(bench->session->arena, "%s x %s", octet_dtype_name(d->lhs_dtype),
                           octet_dtype_name(d->rhs_dtype));

    bench_number(row, "m", "M", s->m, 0);
    bench_number(row, "k", "K", s->k, 0);
    bench_number(row, "n", "N", s->n, 0);
    bench_text(row, "dtype", bench->pair_count > 1 ? "TYPES" : NULL, types ? types : "");
    bench_text(row, "rhs", bench->layout_count > 1 ? "RHS" : NULL,
               bench_layout_name(d->layout, false));
    bench_text(row, "operands", NULL, bench_operands(bench, rhs_bytes(d)));
    bench_number(row, "threads", NULL, bench->threads, 0);
    bench_text(row, "kernels", "KERNELS", set->name);
    bench_number(row, "gflops", "GFLOP/s", work / ours->median, 2);
    bench_number(row, "peak_share", "OF PEAK", work / ours->median / peak, 2);
    if (d->reading)
        add_reading(row, d, (size_t)(set - bench->sets), ours);
    bench_text(row, "peer", "PEER", peer_name);
    bench_number(row, "peer_gflops", "ITS GFLOP/s", peer ? work / peer->median : NAN, 2);
    bench_ratios(row, ours, peer);
    bench_times(row, ours, peer);
}

static enum octet_status measure(struct dot *d, struct octet_error *err)
{
    const struct bench_shape *s = &d->shape;
    const size_t out = (size_t)s->m * (size_t)s->n * sizeof(float), slack = 4u << 20;
    const struct bench_work work = {.ours = run_ours,
                                    .blas = run_blas,
                                    .add = add_row,
                                    .user = d,
                                    .flops = 2.0 * s->m * s->k * s->n,
                                    .scratch_bytes = 2 * out + slack};

    progress_say(octet_arena_format(d->bench->session->arena, "%dx%dx%d", s->m, s->k, s->n));
    enum octet_status status = prepare(d, err);
    return status == OCTET_OK ? bench_compare(d->bench, d->arena, &work, err) : status;
}

/* All shapes with one pair of types and one layout. */
static enum octet_status measure_shapes(struct bench *bench, const enum octet_dtype *pair,
                                        enum bench_layout layout, bool reading,
                                        struct octet_error *err)
{
    double seconds_of_one[BENCH_SETS_MAX];
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < bench->shape_count && status == OCTET_OK; i++) {
        const struct bench_shape *s = &bench->shapes[i];
        struct dot d = {.bench = bench,
                        .arena = octet_arena_create(octet_arena_budget(bench->session->arena)),
                        .shape = *s,
                        .lhs_dtype = pair[0],
                        .rhs_dtype = pair[1],
                        .layout = layout,
                        .reading = reading,
                        .seconds_of_one = seconds_of_one};
        if (!d.arena)
            return octet_arena_exhausted(bench->session->arena, err);
        if (i == 0 || s->k != s[-1].k || s->n != s[-1].n)
            for (size_t set = 0; set < BENCH_SETS_MAX; set++)
                seconds_of_one[set] = NAN;
        status = measure(&d, err);
        octet_arena_destroy(d.arena);
    }
    return status;
}

static enum octet_status measure_all(struct bench *bench, bool reading, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t p = 0; p < bench->pair_count; p++)
        for (size_t i = 0; i < bench->layout_count && status == OCTET_OK; i++)
            status = measure_shapes(bench, bench->pairs[p], bench->layouts[i], reading, err);
    return status;
}

static const char *rhs_text(const struct bench *bench)
{
    static const char *const texts[] = {"[K,N]", "[N,K]", "[K,N], packed,"};

    return bench->layout_count > 1 ? "[K,N], [N,K], and packed," : texts[bench->layouts[0]];
}

static void describe(struct bench *bench, const char *first, const char *last)
{
    bool one = bench->pair_count == 1;

    bench->about = octet_arena_format(
        bench->session->arena,
        "%s: %s%s%s [M,K] x %s to float32, with a scale for each row and column%s\n"
        "peer: %s; a multiply-add counts as 2\n"
        "OF PEAK: of what the set's instructions give at most; RATIO: the peer's median time over "
        "ours, BEST: of best times%s\n",
        first, one ? octet_dtype_name(bench->pairs[0][0]) : "codes", one ? " x " : "",
        one ? octet_dtype_name(bench->pairs[0][1]) : "", rhs_text(bench),
        bench->cold ? "; caches emptied before each run" : "",
        bench_peer_text(bench, "sgemm (one row: sgemv)"), last);
}

/* Said only where there are such rows. */
static void describe_vendor(struct bench *bench)
{
    bench->about = octet_arena_format(bench->session->arena,
                                      "%sfast-on-device: Octet's FAST product, E4M3 x E4M3 with "
                                      "scales to bfloat16, arrays on the "
                                      "device;\npeers: the vendor's library alone, vendor-fp8 the "
                                      "same without scales, vendor-bf16 "
                                      "of bfloat16\n",
                                      bench->about ? bench->about : "");
}

/* What the device's vendor makes of a shape, beside Octet's FAST product, both with operands that
 * are on the device already. Backends without such a peer have no such rows. */
static enum octet_status measure_vendor(struct bench *bench, const struct bench_shape *s,
                                        bool *told, struct octet_error *err)
{
    const int32_t repeats = 20;
    const struct bench_set on_device = {.name = "fast-on-device"};
    struct octet_backend_peer peer;
    struct dot d = {.bench = bench,
                    .shape = *s,
                    .lhs_dtype = OCTET_DTYPE_F8_E4M3FN,
                    .rhs_dtype = OCTET_DTYPE_F8_E4M3FN,
                    .layout = BENCH_NK};
    enum octet_status status =
        octet_backend_peer(bench->backend, s->m, s->n, s->k, repeats, &peer, err);

    if (status == OCTET_UNIMPLEMENTED)
        return OCTET_OK;
    if (status != OCTET_OK)
        return status;
    const struct bench_side own = {.min = peer.own, .median = peer.own, .runs = repeats};
    const struct bench_side fp8 = {.min = peer.fp8, .median = peer.fp8};
    const struct bench_side bf16 = {.min = peer.bf16, .median = peer.bf16};
    add_row(&d, &on_device, &own, "vendor-fp8", &fp8);
    add_row(&d, &on_device, &own, "vendor-bf16", &bf16);
    *told = true;
    return OCTET_OK;
}

enum octet_status bench_gemm(struct bench *bench, struct octet_error *err)
{
    enum octet_status status = bench_choose(bench, 3, "8,32,128x512,2048x2048", "e4m3", err);

    if (status != OCTET_OK)
        return status;
    describe(bench, "gemm", "");
    status = measure_all(bench, false, err);
    bool told = false;
    for (size_t i = 0; bench->backend && i < bench->shape_count && status == OCTET_OK; i++)
        status = measure_vendor(bench, &bench->shapes[i], &told, err);
    if (told)
        describe_vendor(bench);
    return status;
}

enum octet_status bench_gemv(struct bench *bench, struct octet_error *err)
{
    enum octet_status status = bench_choose(bench, 3, "1,2,4,8x7168x18432", "e4m3", err);

    if (status != OCTET_OK)
        return status;
    describe(
        bench, "gemv",
        "\nGB/s: bytes of rhs by time, OF READING: of what the machine reads at most; PER ROW: "
        "time by M times that of M = 1");
    return measure_all(bench, true, err);
}
