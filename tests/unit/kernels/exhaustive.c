/* All 2^32 f32 values through both FP8 encoders, cast, saturate and quantize (times 1), on every
 * set of this CPU.
 *
 * Not part of the suite: it takes about a minute of two cores. `cmake --build build/dev --target
 * exhaustive`. What each value must give is found from the other end: each code owns the f32
 * numbers between the middles to its neighbours, and the middles are computed in double.
 *
 *     exhaustive [SET]   exit 1 on any difference */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/float_env.h"
#include "kernels/list.h"
#include "unit/kernels/reference.h"

enum { CHUNK_BITS = 16, CHUNK = 1 << CHUNK_BITS, CHUNKS = 1 << (32 - CHUNK_BITS), CASES = 6 };

enum way { CAST, SATURATE, QUANTIZE };
static const char *const way_names[] = {"cast", "saturate", "quantize"};

struct encoder {
    enum octet_dtype dtype;
    enum way way;
    uint32_t begin[129]; /* first magnitude (f32 bits) of each positive code; nan last */
    uint32_t codes;
};

struct run {
    const struct oct_kernels *kernels;
    const struct encoder *encoders;
    _Atomic uint32_t next;
    _Atomic uint64_t differences;
};

/* The first magnitude above (or at, where the tie goes up) the middle of two neighbours. */
static uint32_t first_above_middle(double low, double high, bool tie_goes_up)
{
    float middle = to_float((low + high) / 2); /* exact: both have few bits */
    return bits_of(middle) + !tie_goes_up;
}

static struct encoder make_encoder(enum octet_dtype dtype, enum way way)
{
    struct encoder e = {.dtype = dtype, .way = way};
    struct ref_type t = ref_type(dtype);
    double value = 0;

    for (uint32_t code = 1; value < t.largest; code++) {
        double next = ref_decode(dtype, code);
        e.begin[code] = first_above_middle(value, next, code % 2 == 0);
        e.codes = code + 1;
        value = next;
    }
    if (way == CAST) { /* the number that would follow the largest; then overflow */
        double beyond = t.largest + (t.largest - ref_decode(dtype, e.codes - 2));
        e.begin[e.codes] = first_above_middle(value, beyond, e.codes % 2 == 0);
        e.codes++;
    }
    return e;
}

static uint32_t code_of(const struct encoder *e, uint32_t magnitude)
{
    uint32_t low = 0, high = e->codes;

    if (magnitude > 0x7f800000)
        return ref_type(e->dtype).nan;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(e->begin[middle] <= magnitude ? &low : &high) = middle;
    }
    return low;
}

/* Codes of a chunk by ranges: within one chunk the codes only rise. */
static void expect(const struct encoder *e, uint32_t first, uint8_t *codes)
{
    uint8_t sign = (uint8_t)(first >> 31 << 7);

    for (uint32_t i = 0; i < CHUNK;) {
        uint32_t magnitude = (first + i) & 0x7fffffff, code = code_of(e, magnitude), end;
        if (magnitude > 0x7f800000)
            end = CHUNK;
        else {
            end = code + 1 < e->codes ? e->begin[code + 1] : 0x7f800001;
            end = end - magnitude < CHUNK - i ? i + (end - magnitude) : CHUNK;
        }
        memset(codes + i, (int)(code | sign), end - i);
        i = end;
    }
}

static void encode(const struct oct_kernels *kernels, const struct encoder *e, const float *values,
                   uint8_t *codes)
{
    const float one = 1;

    if (e->way == CAST)
        kernels->cast(e->dtype, CHUNK, values, codes);
    else if (e->way == SATURATE)
        kernels->saturate(e->dtype, CHUNK, values, codes);
    else
        kernels->quantize(OCTET_DTYPE_F32, e->dtype, CHUNK, values, &one, 0, codes);
}

static void run_chunk(struct run *run, uint32_t chunk, float *values, uint8_t *got, uint8_t *want)
{
    uint32_t first = chunk << CHUNK_BITS;

    for (uint32_t i = 0; i < CHUNK; i++)
        memcpy(&values[i], &(uint32_t){first + i}, sizeof(float));
    for (int c = 0; c < CASES; c++) {
        const struct encoder *e = &run->encoders[c];
        encode(run->kernels, e, values, got);
        expect(e, first, want);
        if (memcmp(got, want, CHUNK) == 0)
            continue;
        for (uint32_t i = 0; i < CHUNK; i++)
            if (got[i] != want[i] && atomic_fetch_add(&run->differences, 1) < 10)
                printf("\n%s %s of %a (%08x) is %02x, expected %02x", way_names[e->way],
                       octet_dtype_name(e->dtype), values[i], first + i, got[i], want[i]);
    }
}

static void *work(void *argument)
{
    struct run *run = argument;
    float *values = malloc(CHUNK * sizeof(float));
    uint8_t *codes = malloc(2 * CHUNK);
    uint32_t chunk;

    if (!values || !codes)
        abort();
    oct_float_env_enter();
    while ((chunk = atomic_fetch_add(&run->next, 1)) < CHUNKS) {
        run_chunk(run, chunk, values, codes, codes + CHUNK);
        if (chunk % (CHUNKS / 16) == 0) {
            printf(".");
            fflush(stdout);
        }
    }
    free(values);
    free(codes);
    return NULL;
}

static uint64_t run_set(const struct oct_kernels *kernels, const struct encoder *encoders)
{
    enum { THREADS = 2 };
    struct run run = {.kernels = kernels, .encoders = encoders};
    struct timespec begin, end;
    pthread_t threads[THREADS];

    printf("%-10s ", kernels->name);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, work, &run) != 0)
            abort();
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t differences = atomic_load(&run.differences);
    printf(" %llu differences in %d x 2^32 codes, %.1f s\n", (unsigned long long)differences, CASES,
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    return differences;
}

int main(int argc, char **argv)
{
    struct encoder encoders[CASES];
    uint64_t differences = 0;
    int ran = 0;

    for (int c = 0; c < CASES; c++)
        encoders[c] =
            make_encoder(c < 3 ? OCTET_DTYPE_F8_E4M3FN : OCTET_DTYPE_F8_E5M2, (enum way)(c % 3));
    for (size_t i = 0; octet_kernel_set_name(i); i++) {
        if (argc > 1 && strcmp(argv[1], octet_kernel_set_name(i)) != 0)
            continue;
        if (octet_kernel_set_obstacle(i)) {
            printf("not run: %s (%s)\n", octet_kernel_set_name(i), octet_kernel_set_obstacle(i));
            continue;
        }
        differences += run_set(oct_kernels_at(i), encoders);
        ran++;
    }
    return differences == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
