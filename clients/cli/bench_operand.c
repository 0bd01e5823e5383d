/* Operands of octet bench; see bench.h. */
#include <string.h>

#include "bench.h"

enum { PATTERN = 262139 }; /* a prime: rows of no length repeat */

void bench_fill(float *to, size_t count, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < count && i < PATTERN; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) { /* four uniform numbers make a bell */
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        to[i] = sum;
    }
    for (size_t i = PATTERN; i < count; i += PATTERN)
        memcpy(to + i, to, (count - i < PATTERN ? count - i : PATTERN) * sizeof *to);
}

const char *bench_layout_name(enum bench_layout layout, bool groups)
{
    static const char *const names[][2] = {
        {"[k,n]", "[g,k,n]"}, {"[n,k]", "[g,n,k]"}, {"packed", "packed"}};

    return names[layout][groups];
}

static enum octet_status as_it_is(octet_arena *arena, const float *values, int32_t rank,
                                  const int64_t *dim, enum octet_dtype dtype,
                                  struct octet_array *out, struct octet_error *err)
{
    enum octet_status status = octet_array_create(arena, dtype, rank, dim, out, err);
    size_t count = status == OCTET_OK ? (size_t)octet_array_elements(out) : 0;

    if (dtype == OCTET_DTYPE_F32 && count)
        memcpy(out->data, values, count * sizeof *values);
    for (size_t i = 0; i < count && dtype == OCTET_DTYPE_BF16; i++) /* the upper half: cut off */
        memcpy((char *)out->data + 2 * i, (const char *)&values[i] + 2, 2);
    return status;
}

enum octet_status bench_operand(struct bench *bench, octet_arena *arena, float *values,
                                int32_t rank, const int64_t *dim, enum octet_dtype dtype,
                                const int32_t *channels, size_t channel_count,
                                struct octet_operand *out, struct octet_error *err)
{
    struct octet_compute compute = {arena, bench->sets[bench->set_count - 1].workers,
                                    bench->session->cancel};
    const struct octet_quantize_options how = {.qtype = octet_dtype_name(dtype),
                                               .channelwise_axes = channels,
                                               .channelwise_axis_count = channel_count};
    struct octet_array array = {.dtype = OCTET_DTYPE_F32, .rank = rank, .data = values};

    *out = (struct octet_operand){.is_quantized = false};
    if (dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16)
        return as_it_is(arena, values, rank, dim, dtype, &out->array, err);
    memcpy(array.dim, dim, (size_t)rank * sizeof *dim);
    out->is_quantized = true;
    return octet_quantize(&compute, &array, &how, &out->quantized, err);
}

enum octet_status bench_pack(struct bench *bench, octet_arena *arena, struct octet_operand *rhs,
                             int32_t axis, struct octet_error *err)
{
    struct octet_compute compute = {arena, bench->sets[bench->set_count - 1].workers,
                                    bench->session->cancel};

    return octet_pack(&compute, &rhs->quantized, axis, err);
}
