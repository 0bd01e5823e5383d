/* Kernels of every set this CPU has: conversions in GB/s beside memcpy, products in GFLOP/s beside
 * OpenBLAS's sgemm (sgemv for one row) in the same run, in turn, best of several. One thread.
 * Figures of one machine mean little; the ratios are what to watch.
 *
 *     bench_kernels [--set NAME] [--long] [--products | --conversions]
 *
 * The peers are OpenBLAS with its AVX2 and with its AVX-512 kernels, each a copy of its own. They
 * have f32 operands ready in memory, in huge pages as ours; ours are E4M3FN codes, packed or where
 * they lie. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/float_env.h"
#include "kernels/gemm.h"
#include "kernels/list.h"
#include "octet/workers.h"

enum { SETS_MAX = 8, ROUNDS = 5, ROUNDS_LONG = 15 };

typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

typedef void sgemv_function(int order, int trans, int m, int n, float alpha, const float *a,
                            int lda, const float *x, int incx, float beta, float *y, int incy);

enum { PEERS = 2 };
static const char *const cores[PEERS] = {"Haswell", "Cooperlake"};
static struct {
    sgemm_function *sgemm;
    sgemv_function *sgemv;
} peers[PEERS];
static octet_workers *workers[SETS_MAX];
static size_t set_count;
static int rounds = ROUNDS;

/* Of this thread alone, so that a machine shared with others tells the same. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A copy for each core, since OpenBLAS chooses its kernels once. */
static void open_peers(void)
{
    for (int i = 0; i < PEERS; i++) {
        setenv("OPENBLAS_CORETYPE", cores[i], 1);
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        void *library = dlmopen(LM_ID_NEWLM, "libopenblas.so.0", RTLD_NOW);
        if (!library) {
            printf("no peer: %s\n", dlerror());
            return;
        }
        char *(*core)(void) = (char *(*)(void))dlsym(library, "openblas_get_corename");
        peers[i].sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
        peers[i].sgemv = (sgemv_function *)dlsym(library, "cblas_sgemv");
        printf("peer %d: OpenBLAS, kernels for %s, 1 thread\n", i + 1,
               core ? core() : "an unknown core");
    }
}

/* Zeros, in huge pages where the kernel has some. */
static void *allocate(size_t bytes)
{
    const size_t huge = 2 << 20, all = (bytes + huge) / huge * huge;
    void *p = aligned_alloc(huge, all);

    if (!p)
        abort();
    (void)madvise(p, all, MADV_HUGEPAGE);
    memset(p, 0, all);
    return p;
}

static void find_workers(const char *only)
{
    for (size_t i = 0; octet_kernel_set_name(i); i++) {
        const char *name = octet_kernel_set_name(i), *obstacle = octet_kernel_set_obstacle(i);
        if (only && strcmp(only, name) != 0)
            continue;
        if (obstacle)
            printf("not run: %s (%s)\n", name, obstacle);
        else if (set_count < SETS_MAX &&
                 octet_workers_create(name, 1, &workers[set_count], NULL) == OCTET_OK)
            set_count++;
    }
}

/* ---- Conversions ---- */

struct conversion {
    const char *name;
    void (*run)(const struct oct_kernels *k, size_t n, const void *x, void *y);
    size_t in_bytes, out_bytes; /* of an element */
};

static void run_decode(const struct oct_kernels *k, size_t n, const void *x, void *y)
{
    k->decode(OCTET_DTYPE_F8_E4M3FN, n, x, y);
}
static void run_quantize(const struct oct_kernels *k, size_t n, const void *x, void *y)
{
    const float inverse = 3;
    k->quantize(OCTET_DTYPE_F32, OCTET_DTYPE_F8_E4M3FN, n, x, &inverse, 0, y);
}
static void run_quantize_bf16(const struct oct_kernels *k, size_t n, const void *x, void *y)
{
    const float inverse = 3;
    k->quantize(OCTET_DTYPE_BF16, OCTET_DTYPE_F8_E4M3FN, n, x, &inverse, 0, y);
}
static void run_amax(const struct oct_kernels *k, size_t n, const void *x, void *y)
{
    *(float *)y = k->amax(OCTET_DTYPE_F32, n, x);
}
static void run_finish(const struct oct_kernels *k, size_t n, const void *x, void *y)
{
    const float scale = 3;
    k->finish(n, x, &scale, &scale, 0, OCTET_DTYPE_F32, y);
}

static const struct conversion conversions[] = {
    {"decode e4m3fn -> f32", run_decode, 1, 4},
    {"amax f32", run_amax, 4, 0},
    {"quantize f32 -> e4m3fn", run_quantize, 4, 1},
    {"quantize bf16 -> e4m3fn", run_quantize_bf16, 2, 1},
    {"finish f32 -> f32", run_finish, 4, 4}};
enum { CONVERSIONS = sizeof conversions / sizeof conversions[0] };

/* Bytes read and written by second; memcpy of the same bytes beside it. */
static void bench_conversion(const struct conversion *c, size_t n, char *x, char *y,
                             const char *where)
{
    const size_t bytes = n * (c->in_bytes + c->out_bytes);
    const int repeats = (int)(1 + (8u << 20) / bytes);
    double best[SETS_MAX], copy = 1e9;

    for (size_t s = 0; s < set_count; s++)
        best[s] = 1e9;
    for (int r = 0; r < rounds; r++) {
        for (size_t s = 0; s < set_count; s++) {
            double begin = now();
            for (int i = 0; i < repeats; i++)
                c->run(workers[s]->kernels, n, x, y);
            double t = (now() - begin) / repeats;
            best[s] = t < best[s] ? t : best[s];
        }
        double begin = now();
        for (int i = 0; i < repeats; i++)
            memcpy(y, x, bytes / 2);
        double t = (now() - begin) / repeats;
        copy = t < copy ? t : copy;
    }
    printf("%-24s %-4s", c->name, where);
    for (size_t s = 0; s < set_count; s++)
        printf("  %s %.1f (%.2f)", octet_workers_kernels(workers[s]), (double)bytes / best[s] / 1e9,
               best[s] / copy);
    printf("\n");
    fflush(stdout);
}

static void bench_conversions(void)
{
    const size_t large = 16u << 20;
    char *x = aligned_alloc(64, large * 4), *y = aligned_alloc(64, large * 4);

    if (!x || !y)
        abort();
    for (size_t i = 0; i < large; i++)
        ((float *)x)[i] = (float)(int)(i * 2654435761u % 2001 - 1000) / 7.0f;
    memset(y, 0, large * 4);
    printf("conversions: GB/s read and written (time by memcpy of as many bytes)\n");
    for (int c = 0; c < CONVERSIONS; c++) {
        bench_conversion(&conversions[c], 4096, x, y, "L1");
        bench_conversion(&conversions[c], large, x, y, "DRAM");
    }
    free(x);
    free(y);
}

/* ---- Products ---- */

enum layout { ALONG_N, ALONG_K, PACKED, LAYOUTS };
static const char *const layout_names[LAYOUTS] = {"[k,n]", "[n,k]", "packed"};

struct product {
    int64_t m, n, k;
    enum layout layout; /* of rhs; packed's peer has k x n */
};

static double time_peer(int peer, const struct product *p, const float *a, const float *b, float *c)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    bool along_k = p->layout == ALONG_K;
    double begin = now();

    if (m == 1)
        peers[peer].sgemv(ROW_MAJOR, along_k ? NO_TRANS : TRANS, along_k ? n : k, along_k ? k : n,
                          1, b, along_k ? k : n, a, 1, 0, c, 1);
    else
        peers[peer].sgemm(ROW_MAJOR, NO_TRANS, along_k ? TRANS : NO_TRANS, m, n, k, 1, a, k, b,
                          along_k ? k : n, 0, c, n);
    return now() - begin;
}

static struct oct_gemm_side side_of(const struct product *p, const void *codes, const void *packed)
{
    if (p->layout == PACKED)
        return (struct oct_gemm_side){
            .dtype = OCTET_DTYPE_F8_E4M3FN, .data = packed, .packed_depth = p->k};
    return (struct oct_gemm_side){.dtype = OCTET_DTYPE_F8_E4M3FN,
                                  .data = codes,
                                  .free_stride = p->layout == ALONG_K ? p->k : 1,
                                  .depth_stride = p->layout == ALONG_K ? 1 : p->n};
}

static double time_list(const octet_workers *w, const struct oct_gemm *list, size_t count)
{
    double begin = now();

    if (oct_gemm_run(w, NULL, list, count, NULL) != OCTET_OK)
        abort();
    return now() - begin;
}

/* Operands of all products. */
struct operands {
    char *codes, *packed;
    float *numbers, *out;
};

/* best[0 ...]: the sets, then the peers. */
static void print_line(double flops, const double *best)
{
    for (size_t s = 0; s < set_count; s++) {
        if (best[s] == 1e9)
            continue;
        printf("  %s %.1f (", octet_workers_kernels(workers[s]), flops / best[s] / 1e9);
        for (int i = 0; i < PEERS; i++)
            printf(i ? " %.2f" : "%.2f",
                   peers[i].sgemm ? best[set_count + (size_t)i] / best[s] : 0);
        printf(")");
    }
    for (int i = 0; i < PEERS; i++)
        if (peers[i].sgemm)
            printf("  %s %.1f", cores[i], flops / best[set_count + (size_t)i] / 1e9);
    printf("\n");
    fflush(stdout);
}

static void bench_product(const struct product *p, const struct operands *o)
{
    double best[SETS_MAX + PEERS], flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    int turns = flops > 4e9 ? 2 : flops > 1e9 ? 3 : 2 * rounds;
    struct oct_gemm g = {.m = p->m,
                         .n = p->n,
                         .k = p->k,
                         .lhs = {.dtype = OCTET_DTYPE_F8_E4M3FN,
                                 .data = o->codes,
                                 .free_stride = p->k,
                                 .depth_stride = 1},
                         .rhs = side_of(p, o->codes, o->packed),
                         .out = o->out,
                         .out_stride = p->n};

    if (p->layout == PACKED) {
        const struct product plain = {p->m, p->n, p->k, ALONG_N};
        struct oct_gemm_side side = side_of(&plain, o->codes, NULL);
        if (oct_gemm_pack(workers[0], NULL, &side, p->n, p->k, o->packed, NULL) != OCTET_OK)
            abort();
    }
    for (size_t s = 0; s < SETS_MAX + PEERS; s++)
        best[s] = 1e9;
    for (int r = 0; r < turns; r++)
        for (size_t s = 0; s < set_count + PEERS; s++) {
            bool slow = s < set_count && workers[s]->kernels == oct_kernels_at(0);
            int peer = (int)s - (int)set_count;
            if ((slow && (r > 0 || flops > 1e8)) || (peer >= 0 && !peers[peer].sgemm))
                continue;
            double t = peer < 0 ? time_list(workers[s], &g, 1)
                                : time_peer(peer, p, o->numbers, o->numbers, o->out);
            best[s] = t < best[s] ? t : best[s];
        }
    printf("%4d x %5d x %5d %-6s", (int)p->m, (int)p->n, (int)p->k, layout_names[p->layout]);
    print_line(flops, best);
}

/* Tokens go to 8 of 64 experts of 1024 x 512 each, evenly; the peers are called once for each. */
static void bench_groups(int64_t tokens, enum layout layout, const struct operands *o)
{
    enum { GROUPS = 64, N = 512, K = 1024 };
    const struct product p = {tokens * 8 / GROUPS, N, K, layout};
    const size_t packed_bytes = oct_gemm_packed_bytes(OCTET_DTYPE_F8_E4M3FN, N, K);
    struct oct_gemm list[GROUPS];
    double best[SETS_MAX + PEERS], flops = 2.0 * (double)tokens * 8 * N * K;

    for (size_t g = 0; g < GROUPS; g++) {
        const struct product plain = {p.m, N, K, ALONG_N};
        struct oct_gemm_side side = side_of(&plain, o->codes + g * N * K, NULL);
        char *packed = o->packed + g * packed_bytes;
        if (oct_gemm_pack(workers[0], NULL, &side, N, K, packed, NULL) != OCTET_OK)
            abort();
        list[g] = (struct oct_gemm){.m = p.m,
                                    .n = N,
                                    .k = K,
                                    .lhs = {.dtype = OCTET_DTYPE_F8_E4M3FN,
                                            .data = o->codes + (int64_t)g * p.m * K,
                                            .free_stride = K,
                                            .depth_stride = 1},
                                    .rhs = side_of(&p, o->codes + g * N * K, packed),
                                    .out = o->out + (int64_t)g * p.m * N,
                                    .out_stride = N};
    }
    for (size_t s = 0; s < SETS_MAX + PEERS; s++)
        best[s] = 1e9;
    for (int r = 0; r < 2 * rounds; r++)
        for (size_t s = 0; s < set_count + PEERS; s++) {
            int peer = (int)s - (int)set_count;
            double t = 0;
            if (peer < 0 && workers[s]->kernels == oct_kernels_at(0))
                continue;
            if (peer < 0)
                t = time_list(workers[s], list, GROUPS);
            for (int64_t g = 0; peer >= 0 && peers[peer].sgemm && g < GROUPS; g++)
                t += time_peer(peer, &p, o->numbers + g * p.m * K, o->numbers + g * N * K,
                               o->out + g * p.m * N);
            best[s] = t < best[s] ? t : best[s];
        }
    printf("64 groups of %d x 512 x 1024 %-6s", (int)p.m, layout_names[layout]);
    print_line(flops, best);
}

static void bench_products(bool all)
{
    static const int64_t ms[] = {1, 2, 4, 8, 32, 128, 512};
    static const int64_t sizes[][2] = {{2048, 2048}, {2048, 7168}, {7168, 2048}, {7168, 18432}};
    const size_t most = (size_t)7168 * 18432;
    struct operands o = {.codes = allocate(most),
                         .packed = allocate(most + (1 << 20)),
                         .numbers = allocate(most * sizeof(float)),
                         .out = allocate((size_t)512 * 7168 * sizeof(float))};

    for (size_t i = 0; i < most; i++) {
        o.codes[i] = (char)(i * 2654435761u >> 13 & 0xbf);
        o.numbers[i] = (float)(int)(i * 2654435761u % 2001 - 1000) / 7.0f;
    }
    printf("products m x n x k, layout of rhs: GFLOP/s (times peer 1, peer 2)\n");
    for (size_t s = 0; s < 4; s++)
        for (size_t m = 0; m < sizeof ms / sizeof ms[0]; m++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                struct product p = {ms[m], sizes[s][0], sizes[s][1], (enum layout)layout};
                bool is_dram = s == 3;
                if (is_dram ? ms[m] <= 4 && layout == PACKED : all || (s == 0 && ms[m] != 2))
                    bench_product(&p, &o);
            }
    for (int tokens = 32; tokens <= 256; tokens *= 8)
        for (int layout = 0; layout < LAYOUTS; layout += PACKED)
            bench_groups(tokens, (enum layout)layout, &o);
    free(o.codes);
    free(o.packed);
    free(o.numbers);
    free(o.out);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    bool all = false, converts = true, multiplies = true;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            all = true;
        else if (strcmp(argv[i], "--products") == 0)
            converts = false;
        else if (strcmp(argv[i], "--conversions") == 0)
            multiplies = false;
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
            only = argv[++i];
        else {
            fprintf(stderr,
                    "usage: bench_kernels [--set NAME] [--long] [--products | --conversions]\n");
            return 2;
        }
    }
    rounds = all ? ROUNDS_LONG : ROUNDS;
    open_peers();
    find_workers(only);
    struct oct_float_env env = oct_float_env_enter();
    if (converts)
        bench_conversions();
    if (multiplies)
        bench_products(all);
    oct_float_env_leave(env);
    for (size_t s = 0; s < set_count; s++)
        octet_workers_destroy(workers[s]);
    return 0;
}
