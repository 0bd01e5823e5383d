/* Attention by itself, causal: a forward pass, and a forward and a backward one, in milliseconds.
 *
 *     bench_attention LENGTH WIDTH HEADS KV_HEADS THREADS float32|bfloat16 RUNS [SET]
 *
 * prints "forward BEST MEDIAN both BEST MEDIAN" of wall time. scripts/bench-attention runs this and
 * its peers in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/float_env.h"
#include "exec/op.h"
#include "octet/workers.h"

enum { RUNS_MAX = 1000 };

struct bench {
    struct oct_node node;
    struct octet_compute compute;
    struct oct_execution execution;
    struct oct_attention_call call;
    struct octet_array cotangent, gradient[6];
    size_t scratch_bytes[2];
    void *scratch[2];
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p)
        abort();
    memset(p, 0, bytes);
    return p;
}

/* Numbers between -1 and 1. */
static struct octet_array made(enum octet_dtype dtype, int rank, const int64_t *dims)
{
    static uint32_t dice = 1;
    struct octet_array array = {.dtype = dtype, .rank = rank};

    memcpy(array.dim, dims, (size_t)rank * sizeof *dims);
    array.data = memory((size_t)octet_array_bytes(&array));
    for (int64_t i = 0; i < octet_array_elements(&array); i++) {
        float value = (float)(int32_t)(dice = dice * 1664525u + 1013904223u) * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == OCTET_DTYPE_F32)
            ((float *)array.data)[i] = value;
        else
            ((uint16_t *)array.data)[i] = (uint16_t)(bits >> 16);
    }
    return array;
}

static struct octet_array integers(int64_t length, int32_t value)
{
    struct octet_array array = {.dtype = OCTET_DTYPE_S32, .rank = 2, .dim = {1, length}};

    array.data = memory((size_t)length * sizeof value);
    for (int64_t i = 0; i < length; i++)
        ((int32_t *)array.data)[i] = value;
    return array;
}

static void begin(struct bench *b, int64_t length, int64_t width, int64_t heads, int64_t kv,
                  enum octet_dtype dtype)
{
    struct octet_array *in = b->call.call.in;

    b->node = (struct oct_node){.op = OCT_OP_attention_softmax, .input_count = 3};
    in[0] = made(dtype, 5, (int64_t[]){1, length, kv, heads / kv, width});
    in[1] = made(dtype, 4, (int64_t[]){1, length, kv, width});
    in[2] = made(dtype, 4, (int64_t[]){1, length, kv, width});
    in[3] = integers(length, 1);
    in[4] = integers(length, 0);
    b->call.call.out[0] = made(dtype, 5, in[0].dim);
    b->cotangent = made(dtype, 5, in[0].dim);
    for (int i = 0; i < 3; i++)
        b->gradient[i] = made(dtype, in[i].rank, in[i].dim);
    b->execution.compute = &b->compute;
    b->call.call.node = &b->node;
    b->call.call.execution = &b->execution;
    b->call.product_dtype = b->call.scores_dtype = dtype;
    b->call.call.saved = memory(oct_attention_saved_bytes(1, heads, length));
    for (int backward = 0; backward < 2; backward++) {
        b->scratch_bytes[backward] = oct_attention_scratch_bytes(
            &in[0], &in[2], backward, octet_workers_threads(b->compute.workers));
        b->scratch[backward] = memory(b->scratch_bytes[backward]);
    }
}

static double run(struct bench *b, bool backward)
{
    struct octet_error err = {0};
    const double before = now();
    const size_t bytes = b->scratch_bytes[backward];
    struct oct_float_env env = oct_float_env_enter();

    b->call.call.scratch = octet_arena_create_over(b->scratch[backward], bytes, bytes);
    enum octet_status status = backward
                                   ? oct_attention_vjp(&b->call, &b->cotangent, b->gradient, &err)
                                   : oct_attention_forward(&b->call, &err);
    octet_arena_destroy(b->call.call.scratch);
    oct_float_env_leave(env);
    if (status != OCTET_OK) {
        fprintf(stderr, "bench_attention: %s\n", err.text);
        exit(1);
    }
    return (now() - before) * 1e3;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

int main(int argc, char **argv)
{
    static struct bench b;
    double forward[RUNS_MAX], both[RUNS_MAX];
    struct octet_error err = {0};
    octet_workers *workers;
    long number[7] = {0};

    for (int i = 1; i < argc && i < 8; i++)
        number[i - 1] = strtol(argv[i], NULL, 10);
    const int runs = (int)number[6];
    if (argc < 8 || argc > 9 || runs < 1 || runs > RUNS_MAX || number[3] < 1) {
        fprintf(stderr, "usage: bench_attention LENGTH WIDTH HEADS KV_HEADS THREADS "
                        "float32|bfloat16 RUNS [SET]\n");
        return 2;
    }
    if (octet_workers_create(argc > 8 ? argv[8] : NULL, (int32_t)number[4], &workers, &err) !=
        OCTET_OK) {
        fprintf(stderr, "bench_attention: %s\n", err.text);
        return 1;
    }
    b.compute.workers = workers;
    begin(&b, number[0], number[1], number[2], number[3],
          strcmp(argv[6], "bfloat16") == 0 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32);
    run(&b, false);
    run(&b, true);
    for (int i = 0; i < runs; i++) {
        forward[i] = run(&b, false);
        both[i] = forward[i] + run(&b, true);
    }
    qsort(forward, (size_t)runs, sizeof *forward, by_size);
    qsort(both, (size_t)runs, sizeof *both, by_size);
    printf("forward %.4f %.4f both %.4f %.4f\n", forward[0], forward[runs / 2], both[0],
           both[runs / 2]);
    octet_workers_destroy(workers);
    return 0;
}
