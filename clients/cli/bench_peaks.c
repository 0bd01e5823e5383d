/* What the machine can do at most, measured at the start of a run; see bench.h.
 *
 * Decision: assembler in place of vector types, so that this file needs no flags of its own and no
 * compiler can take the work away. Chains are as many as cover the latency of every CPU known (6
 * cycles, two a cycle). */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { TURNS = 8, STREAMS_MAX = 4, THREADS_MAX = 256 };
static const size_t read_bytes = 128u << 20;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#if defined(__x86_64__)

#define TOUCHED                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory"
/* The instruction on 14 registers of a kind, over and over. */
#define EACH(op, kind)                                                                             \
    op " %%" kind "14, %%" kind "15, %%" kind "0\n" op " %%" kind "14, %%" kind "15, %%" kind      \
       "1\n" op " %%" kind "14, %%" kind "15, %%" kind "2\n" op " %%" kind "14, %%" kind           \
       "15, %%" kind "3\n" op " %%" kind "14, %%" kind "15, %%" kind "4\n" op " %%" kind           \
       "14, %%" kind "15, %%" kind "5\n" op " %%" kind "14, %%" kind "15, %%" kind "6\n" op        \
       " %%" kind "14, %%" kind "15, %%" kind "7\n" op " %%" kind "14, %%" kind "15, %%" kind      \
       "8\n" op " %%" kind "14, %%" kind "15, %%" kind "9\n" op " %%" kind "14, %%" kind           \
       "15, %%" kind "10\n" op " %%" kind "14, %%" kind "15, %%" kind "11\n" op " %%" kind         \
       "14, %%" kind "15, %%" kind "12\n" op " %%" kind "14, %%" kind "15, %%" kind "13\n"
#define LOOP(op, kind)                                                                             \
    __asm__ volatile("vzeroall\n1:\n" EACH(op, kind) "dec %0\njnz 1b\nvzeroupper\n"                \
                     : "+r"(turns)                                                                 \
                     :                                                                             \
                     : TOUCHED)

static void multiply_avx2(long turns)
{
    LOOP("vfmadd231ps", "ymm");
}
static void multiply_avx512(long turns)
{
    LOOP("vfmadd231ps", "zmm");
}
static void multiply_bf16(long turns)
{
    LOOP("vdpbf16ps", "zmm");
}

/* flops: of one instruction. */
static double peak_gflops(const char *feature, void (*multiply)(long turns), double flops)
{
    const long turns = 400000;
    double best = INFINITY;

    if (!bench_cpu_has(feature))
        return NAN;
    for (int i = 0; i < TURNS; i++) {
        double begin = now();
        multiply(turns);
        best = fmin(best, now() - begin);
    }
    return 1e-9 * 14 * flops * (double)turns / best;
}

/* Loads of 32 bytes, `ahead` bytes prefetched. */
static void read_wide(const char *from, size_t bytes, size_t ahead)
{
    const char *end = from + bytes;

    while (from < end) {
        __asm__ volatile(
            "prefetcht0 (%0,%1)\nprefetcht0 64(%0,%1)\nprefetcht0 128(%0,%1)\n"
            "prefetcht0 192(%0,%1)\n"
            "vmovups (%0), %%ymm0\nvmovups 32(%0), %%ymm1\nvmovups 64(%0), %%ymm2\n"
            "vmovups 96(%0), %%ymm3\nvmovups 128(%0), %%ymm4\nvmovups 160(%0), %%ymm5\n"
            "vmovups 192(%0), %%ymm6\nvmovups 224(%0), %%ymm7\n"
            :
            : "r"(from), "r"(ahead)
            : TOUCHED);
        from += 256;
    }
    __asm__ volatile("vzeroupper" : : : TOUCHED);
}

static bool can_read_wide(void)
{
    return bench_cpu_has("avx2");
}

static void measure_gflops(struct bench_peaks *peaks)
{
    peaks->avx2_gflops = peak_gflops("fma3", multiply_avx2, 16);
    peaks->avx512_gflops = peak_gflops("avx512f", multiply_avx512, 32);
    peaks->bf16_gflops = peak_gflops("avx512bf16", multiply_bf16, 64);
}

#else

static bool can_read_wide(void)
{
    return false;
}
static void read_wide(const char *from, size_t bytes, size_t ahead)
{
    (void)ahead;
    bench_sweep(from, bytes);
}
static void measure_gflops(struct bench_peaks *peaks)
{
    peaks->avx2_gflops = peaks->avx512_gflops = peaks->bf16_gflops = NAN;
}

#endif

void bench_sweep(const char *from, size_t bytes)
{
    uint64_t sum = 0, word;

    for (size_t i = 0; i + 64 <= bytes; i += 64) {
        memcpy(&word, from + i, sizeof word);
        sum += word;
    }
    __asm__ volatile("" : : "r"(sum)); /* it was needed */
}

/* ---- memory ---- */

struct reading {
    const char *from;
    size_t bytes, ahead;
    int streams; /* that many places are read in turns, as products read several columns */
};

static void *read_part(void *user)
{
    const struct reading *r = user;
    const size_t part = r->bytes / (size_t)r->streams, step = 4096;

    if (!can_read_wide())
        bench_sweep(r->from, r->bytes);
    else if (r->streams == 1)
        read_wide(r->from, r->bytes, r->ahead);
    else
        for (size_t at = 0; at < part; at += step)
            for (int s = 0; s < r->streams; s++)
                read_wide(r->from + (size_t)s * part + at, step, r->ahead);
    return NULL;
}

/* Seconds of all threads together, each with its part. */
static double read_all(const struct reading *whole, int threads)
{
    struct reading parts[THREADS_MAX];
    pthread_t others[THREADS_MAX];
    size_t bytes = whole->bytes / (size_t)threads / 65536 * 65536;
    double begin = now();
    int started = 0;

    for (int i = threads - 1; i >= 0; i--) {
        parts[i] = *whole;
        parts[i].from += (size_t)i * bytes;
        parts[i].bytes = bytes;
        if (i == 0 || pthread_create(&others[started], NULL, read_part, &parts[i]) != 0)
            read_part(&parts[i]);
        else
            started++;
    }
    while (started > 0)
        pthread_join(others[--started], NULL);
    return now() - begin;
}

/* The best of several ways to read. */
static double peak_read(const char *from, int threads)
{
    double best = INFINITY;

    for (int turn = 0; turn < TURNS; turn++)
        for (int streams = 1; streams <= STREAMS_MAX; streams *= 4)
            for (size_t ahead = 0; ahead <= 4096; ahead += 2048) {
                struct reading way = {from, read_bytes, ahead, streams};
                best = fmin(best, read_all(&way, threads));
            }
    return 1e-9 * (double)read_bytes / best;
}

static double peak_memcpy(char *to, const char *from)
{
    double best = INFINITY;

    for (int i = 0; i < TURNS; i++) {
        double begin = now();
        memcpy(to, from, read_bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        best = fmin(best, now() - begin);
    }
    return 1e-9 * (double)read_bytes / best;
}

enum octet_status bench_measure_peaks(struct bench *bench, struct octet_error *err)
{
    octet_arena *arena = octet_arena_create(SIZE_MAX);
    const size_t slack = 8192; /* what is prefetched past the end */
    char *from = arena ? octet_arena_alloc_unset(arena, read_bytes + slack) : NULL;
    char *to = from ? octet_arena_alloc_unset(arena, read_bytes) : NULL;

    if (!to) {
        octet_arena_destroy(arena);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory to measure its speed");
    }
    memset(from, 1, read_bytes + slack);
    memset(to, 1, read_bytes);
    measure_gflops(&bench->peaks);
    bench->peaks.read_gbytes_per_s =
        peak_read(from, bench->threads > THREADS_MAX ? THREADS_MAX : bench->threads);
    bench->peaks.memcpy_gbytes_per_s = peak_memcpy(to, from);
    octet_arena_destroy(arena);
    return OCTET_OK;
}

double bench_peak_of(const struct bench *bench, const char *set, enum octet_dtype lhs,
                     enum octet_dtype rhs)
{
    const struct bench_peaks *p = &bench->peaks;
    bool exact_in_bf16 = lhs != OCTET_DTYPE_F32 && rhs != OCTET_DTYPE_F32;
    double one = NAN;

    if (strcmp(set, "avx2") == 0)
        one = p->avx2_gflops;
    else if (strcmp(set, "avx512bf16") == 0 && exact_in_bf16)
        one = p->bf16_gflops;
    else if (strncmp(set, "avx512", 6) == 0)
        one = p->avx512_gflops;
    return one * bench->threads;
}

enum octet_status bench_list_peaks(struct bench *bench, struct octet_error *err)
{
    const struct bench_peaks *p = &bench->peaks;
    const struct {
        const char *what, *unit;
        double value;
    } list[] = {{"AVX2 FMA, f32", "GFLOP/s", p->avx2_gflops},
                {"AVX-512 FMA, f32", "GFLOP/s", p->avx512_gflops},
                {"VDPBF16PS, bf16 to f32", "GFLOP/s", p->bf16_gflops},
                {"reading from DRAM", "GB/s", p->read_gbytes_per_s},
                {"memcpy in DRAM, bytes of the array", "GB/s", p->memcpy_gbytes_per_s}};

    (void)err;
    bench->about = "peaks: what one thread reaches at most, here and now (reading: --threads); "
                   "nothing is compared\n";
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct bench_row *row = bench_add(bench);
        bench_text(row, "what", "WHAT", list[i].what);
        bench_number(row, "value", "MOST", list[i].value, 1);
        bench_text(row, "unit", "UNIT", list[i].unit);
    }
    return OCTET_OK;
}
