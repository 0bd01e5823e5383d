/* See fixture.h. */
#include "fixture.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

struct bench bench;

const struct octet_dot_dims matmul_dims = {
    .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {0}};

static void open_workers(const char *set, int32_t threads)
{
    octet_workers **workers = &bench.workers[bench.workers_count];

    bench_ok(octet_workers_create(set, threads, workers, &bench.err));
    bench.workers_count++;
}

static void bench_open(void)
{
    /* Thousands of small calls: their working memory stays in the process. */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 29);
    bench_ok(octet_context_create(NULL, &bench.context, &bench.err));
    bench.arena = octet_arena_create((size_t)1 << 30);
    ck_assert_ptr_nonnull(bench.arena);
    for (size_t i = 0; octet_kernel_set_name(i); i++) {
        const char *set = octet_kernel_set_name(i), *obstacle = octet_kernel_set_obstacle(i);
        if (obstacle) {
            printf("not run: %s (%s)\n", set, obstacle);
            continue;
        }
        open_workers(set, 1);
        open_workers(set, 2);
        open_workers(set, 7);
    }
}

void bench_begin(void)
{
    if (!bench.context)
        bench_open();
    bench_clear();
    bench.compute = (struct octet_compute){.arena = bench.arena};
    bench.label[0] = '\0';
    bench_use(0);
}

void bench_end(void)
{
    bench_clear();
}

void bench_clear(void)
{
    octet_arena_reset(bench.arena);
    while (bench.rules_count)
        octet_rules_unref(bench.rules[--bench.rules_count]);
    ref_clear();
}

void bench_use(size_t workers)
{
    bench.compute.workers = bench.workers[workers % bench.workers_count];
}

void bench_use_any(uint64_t seed)
{
    size_t sets = bench.workers_count / 3, turn = seed / sets % 12;

    bench_use(seed % sets * 3 + (turn < 2 ? turn + 1 : 0));
}

void bench_close(void)
{
    while (bench.workers_count)
        octet_workers_destroy(bench.workers[--bench.workers_count]);
    octet_arena_destroy(bench.arena);
    octet_context_destroy(bench.context);
}

void bench_ok(enum octet_status status)
{
    ck_assert_msg(status == OCTET_OK, "%s: %s: %s: %s", bench.label, octet_status_name(status),
                  bench.err.field, bench.err.text);
}

void bench_refused(enum octet_status status, const char *field, const char *part)
{
    ck_assert_msg(status == OCTET_INVALID_ARGUMENT, "%s: %s, expected a refusal of '%s'",
                  bench.label, octet_status_name(status), field);
    ck_assert_int_eq(bench.err.status, status);
    ck_assert_msg(strcmp(bench.err.field, field) == 0, "%s: field '%s', expected '%s' (%s)",
                  bench.label, bench.err.field, field, bench.err.text);
    ck_assert_msg(strstr(bench.err.text, part), "%s: no '%s' in '%s'", bench.label, part,
                  bench.err.text);
}

const struct octet_rule *bench_rule(const struct octet_rule *given)
{
    octet_rules **rules = &bench.rules[bench.rules_count];

    ck_assert_uint_lt(bench.rules_count, sizeof bench.rules / sizeof *bench.rules);
    bench_ok(octet_rules_create(bench.context, given, 1, rules, &bench.err));
    bench.rules_count++;
    return octet_rules_get(*rules, 0);
}

/* ---- random numbers ---- */

uint64_t roll(struct dice *dice)
{
    uint64_t z = dice->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t roll_between(struct dice *dice, int64_t least, int64_t most)
{
    return least + (int64_t)(roll(dice) % (uint64_t)(most - least + 1));
}

bool roll_chance(struct dice *dice, int percent)
{
    return roll_between(dice, 0, 99) < percent;
}

float roll_normal(struct dice *dice)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += (double)(roll(dice) >> 11) * 0x1p-53;
    return (float)(sum - 6);
}

/* ---- arrays ---- */

struct octet_array array_zero(enum octet_dtype dtype, int32_t rank, const int64_t *dim)
{
    struct octet_array array;

    bench_ok(octet_array_create(bench.arena, dtype, rank, dim, &array, &bench.err));
    return array;
}

struct octet_array array_of(enum octet_dtype dtype, int32_t rank, const int64_t *dim,
                            const float *values)
{
    struct octet_array array = array_zero(dtype, rank, dim);
    int64_t count = octet_array_elements(&array);

    for (int64_t i = 0; i < count; i++) {
        float value = values[i];
        uint32_t bits;
        if (dtype == OCTET_DTYPE_BF16)
            value = ref_round(dtype, value);
        memcpy(&bits, &value, sizeof bits);
        if (dtype == OCTET_DTYPE_BF16)
            ((uint16_t *)array.data)[i] = (uint16_t)(bits >> 16);
        else if (dtype == OCTET_DTYPE_S32)
            ((int32_t *)array.data)[i] = (int32_t)value;
        else
            ((uint32_t *)array.data)[i] = bits;
    }
    return array;
}

struct octet_array array_random(struct dice *dice, enum octet_dtype dtype, int32_t rank,
                                const int64_t *dim)
{
    struct octet_array array = array_zero(OCTET_DTYPE_F32, rank, dim);
    float *values = array.data;
    int64_t count = octet_array_elements(&array);

    for (int64_t i = 0; i < count; i++)
        values[i] = roll_normal(dice);
    return dtype == OCTET_DTYPE_F32 ? array : array_of(dtype, rank, dim, values);
}

struct octet_array sizes_of(int64_t groups, const int32_t *sizes)
{
    struct octet_array array = array_zero(OCTET_DTYPE_S32, 1, &groups);

    if (groups)
        memcpy(array.data, sizes, (size_t)groups * sizeof *sizes);
    return array;
}

float array_at(const struct octet_array *array, int64_t index)
{
    uint32_t bits = array->dtype == OCTET_DTYPE_BF16
                        ? (uint32_t)((const uint16_t *)array->data)[index] << 16
                        : ((const uint32_t *)array->data)[index];
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

bool array_same(const struct octet_array *a, const struct octet_array *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return octet_array_bytes(a) == 0 || memcmp(a->data, b->data, (size_t)octet_array_bytes(a)) == 0;
}

struct octet_operand plain(struct octet_array array)
{
    return (struct octet_operand){.array = array};
}

struct octet_operand quantized(struct octet_quantized q)
{
    return (struct octet_operand){.is_quantized = true, .quantized = q};
}
