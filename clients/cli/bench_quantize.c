/* octet bench quantize: arrays to codes and scales with each kernel set, beside a copy.
 *
 * A copy reads as much and writes four (f32) or two (bf16) times as much: what memory allows. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "progress.h"

struct conversion {
    struct bench *bench;
    octet_arena *arena;
    struct bench_shape shape; /* m rows of k */
    enum octet_dtype from, to;
    struct octet_operand source;
    void *copy;
};

static enum octet_status run_ours(void *user, octet_backend *backend,
                                  const struct octet_compute *compute, struct octet_error *err)
{
    const struct conversion *c = user;
    const int32_t axis = 0;
    const struct octet_quantize_options how = {
        .qtype = octet_dtype_name(c->to), .channelwise_axes = &axis, .channelwise_axis_count = 1};
    struct octet_quantized out;

    if (backend)
        return octet_backend_quantize(backend, compute, &c->source.array, &how, &out, err);
    return octet_quantize(compute, &c->source.array, &how, &out, err);
}

static void run_copy(void *user)
{
    const struct conversion *c = user;

    memcpy(c->copy, c->source.array.data, (size_t)octet_array_bytes(&c->source.array));
}

static enum octet_status prepare(struct conversion *c, struct octet_error *err)
{
    const int64_t dim[] = {c->shape.m, c->shape.k};
    size_t count = (size_t)(dim[0] * dim[1]);
    float *values = octet_arena_alloc_unset(c->arena, count * sizeof *values);

    c->copy = octet_arena_alloc_unset(c->arena, count * sizeof *values);
    if (!values || !c->copy)
        return octet_arena_exhausted(c->arena, err);
    bench_fill(values, count, 3);
    memset(c->copy, 0, count * sizeof *values);
    return bench_operand(c->bench, c->arena, values, 2, dim, c->from, NULL, 0, &c->source, err);
}

static void add_row(void *user, const struct bench_set *set, const struct bench_side *ours,
                    const char *peer_name, const struct bench_side *peer)
{
    const struct conversion *c = user;
    struct bench_row *row = bench_add(c->bench);
    double bytes = (double)octet_array_bytes(&c->source.array);

    bench_number(row, "m", "M", c->shape.m, 0);
    bench_number(row, "k", "K", c->shape.k, 0);
    bench_text(row, "dtype", "FROM", octet_dtype_name(c->from));
    bench_text(row, "qtype", "TO", octet_dtype_name(c->to));
    bench_text(row, "operands", "FROM WHERE", bench_operands(c->bench, bytes));
    bench_number(row, "threads", NULL, c->bench->threads, 0);
    bench_text(row, "kernels", "KERNELS", set->name);
    bench_number(row, "gbytes_per_s", "GB/s", 1e-9 * bytes / ours->median, 3);
    bench_text(row, "peer", "PEER", peer_name);
    bench_number(row, "peer_gbytes_per_s", "ITS GB/s", 1e-9 * bytes / peer->median, 3);
    bench_ratios(row, ours, peer);
    bench_times(row, ours, peer);
}

static enum octet_status measure(struct conversion *c, struct octet_error *err)
{
    const size_t count = (size_t)c->shape.m * (size_t)c->shape.k, slack = 4u << 20;
    const struct bench_work work = {.ours = run_ours,
                                    .other = run_copy,
                                    .other_name = "memcpy",
                                    .add = add_row,
                                    .user = c,
                                    .flops = (double)count,
                                    .scratch_bytes = 2 * count + slack};

    progress_say(octet_arena_format(c->bench->session->arena, "%dx%d", c->shape.m, c->shape.k));
    enum octet_status status = prepare(c, err);
    return status == OCTET_OK ? bench_compare(c->bench, c->arena, &work, err) : status;
}

static enum octet_status check_types(const struct bench *bench, struct octet_error *err)
{
    for (size_t i = 0; i < bench->pair_count; i++) {
        enum octet_dtype from = bench->pairs[i][0], to = bench->pairs[i][1];
        if ((from != OCTET_DTYPE_F32 && from != OCTET_DTYPE_BF16) || to == OCTET_DTYPE_F32 ||
            to == OCTET_DTYPE_BF16)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --dtype: quantize goes from f32 or bf16 to e4m3, e5m2 or "
                              "int8 ('f32xe4m3'), not from %s to %s",
                              octet_dtype_name(from), octet_dtype_name(to));
    }
    return OCTET_OK;
}

enum octet_status bench_quantize(struct bench *bench, struct octet_error *err)
{
    enum octet_status status = bench_choose(bench, 2, "256x1024", "f32xe4m3,bf16xe4m3", err);

    if (status == OCTET_OK && !bench->session->arguments->shapes.count) /* and one for DRAM */
        bench->shapes[bench->shape_count++] = (struct bench_shape){4096, 8192, 1};
    if (status == OCTET_OK)
        status = check_types(bench, err);
    bench->about = octet_arena_format(
        bench->session->arena,
        "quantize: [M,K], row-major, to codes with a scale for each row (absmax)\n"
        "peer: %s; GB/s: bytes of the array, which are read\n"
        "RATIO: the peer's median time over ours, BEST: of best times\n",
        bench->backend ? bench_peer_text(bench, "") : "memcpy of the same array, one thread");
    for (size_t p = 0; p < bench->pair_count; p++)
        for (size_t i = 0; i < bench->shape_count && status == OCTET_OK; i++) {
            struct conversion c = {
                .bench = bench,
                .arena = octet_arena_create(octet_arena_budget(bench->session->arena)),
                .shape = bench->shapes[i],
                .from = bench->pairs[p][0],
                .to = bench->pairs[p][1]};
            if (!c.arena)
                return octet_arena_exhausted(bench->session->arena, err);
            status = measure(&c, err);
            octet_arena_destroy(c.arena);
        }
    return status;
}
