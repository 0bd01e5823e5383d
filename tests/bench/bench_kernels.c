/* Kernels of every set this CPU has: conversions in GB/s beside memcpy, products in GFLOP/s beside
 * OpenBLAS's sgemm in the same run, in turn, best of several. One thread. Figures of one machine
 * mean little; the ratios are what to watch.
 *
 *     bench_kernels [--set NAME] [--long]
 *
 * The peer has f32 operands ready in memory; ours are E4M3FN codes, read where they lie. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/float_env.h"
#include "kernels/gemm.h"
#include "kernels/list.h"
#include "octet/workers.h"

enum { SETS_MAX = 8, ROUNDS = 5, ROUNDS_LONG = 15 };

typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

static sgemm_function *sgemm;
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

static void open_peer(void)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);

    if (!library) {
        printf("no peer: %s\n", dlerror());
        return;
    }
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    char *(*core)(void) = (char *(*)(void))dlsym(library, "openblas_get_corename");
    sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
    if (set_threads)
        set_threads(1);
    printf("peer: OpenBLAS, kernels for %s, 1 thread\n", core ? core() : "an unknown core");
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

struct product {
    int64_t m, n, k;
    bool rhs_along_k; /* rhs is n x k; else k x n */
};

static double time_peer(const struct product *p, const float *a, const float *b, float *c)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    double begin = now();

    sgemm(ROW_MAJOR, NO_TRANS, p->rhs_along_k ? TRANS : NO_TRANS, (int)p->m, (int)p->n, (int)p->k,
          1, a, (int)p->k, b, (int)(p->rhs_along_k ? p->k : p->n), 0, c, (int)p->n);
    return now() - begin;
}

static double time_ours(const octet_workers *w, const struct product *p, const void *a,
                        const void *b, float *c)
{
    struct oct_gemm g = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .lhs = {.dtype = OCTET_DTYPE_F8_E4M3FN, .data = a, .free_stride = p->k, .depth_stride = 1},
        .rhs = {.dtype = OCTET_DTYPE_F8_E4M3FN,
                .data = b,
                .free_stride = p->rhs_along_k ? p->k : 1,
                .depth_stride = p->rhs_along_k ? 1 : p->n},
        .out = c,
        .out_stride = p->n};
    double begin = now();

    if (oct_gemm_run(w, NULL, &g, 1, NULL) != OCTET_OK)
        abort();
    return now() - begin;
}

/* The peer's time, once, is what turns are counted by: a large product is not repeated much. */
static void bench_product(const struct product *p, const void *codes, const float *numbers,
                          float *out)
{
    double best[SETS_MAX + 1], flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    int turns = flops > 4e9 ? 2 : flops > 1e9 ? 3 : 2 * rounds;

    for (size_t s = 0; s <= set_count; s++)
        best[s] = 1e9;
    for (int r = 0; r < turns; r++)
        for (size_t s = 0; s <= set_count; s++) {
            bool slow = s < set_count && workers[s]->kernels == oct_kernels_at(0);
            if ((slow && (r > 0 || flops > 1e8)) || (s == set_count && !sgemm))
                continue;
            double t = s < set_count ? time_ours(workers[s], p, codes, codes, out)
                                     : time_peer(p, numbers, numbers, out);
            best[s] = t < best[s] ? t : best[s];
        }
    printf("%4d x %5d x %5d %-6s", (int)p->m, (int)p->n, (int)p->k,
           p->rhs_along_k ? "[n,k]" : "[k,n]");
    for (size_t s = 0; s < set_count; s++)
        if (best[s] < 1e9)
            printf("  %s %.1f (%.2f)", octet_workers_kernels(workers[s]), flops / best[s] / 1e9,
                   best[set_count] < 1e9 ? best[set_count] / best[s] : 0);
    if (best[set_count] < 1e9)
        printf("  sgemm %.1f", flops / best[set_count] / 1e9);
    printf("\n");
    fflush(stdout);
}

static void bench_products(bool all)
{
    static const int64_t ms[] = {1, 4, 8, 32, 128, 512};
    static const int64_t sizes[][2] = {{2048, 2048}, {2048, 7168}, {7168, 2048}};
    const size_t most = 7168u * 2048;
    char *codes = malloc(most);
    float *numbers = malloc(most * sizeof(float)), *out = malloc(512u * 7168 * sizeof(float));

    if (!codes || !numbers || !out)
        abort();
    for (size_t i = 0; i < most; i++) {
        codes[i] = (char)(i * 2654435761u >> 13 & 0xbf);
        numbers[i] = (float)(int)(i * 2654435761u % 2001 - 1000) / 7.0f;
    }
    printf("products m x n x k, layout of rhs: GFLOP/s (times sgemm)\n");
    for (size_t s = 0; s < 3; s++)
        for (size_t m = 0; m < sizeof ms / sizeof ms[0]; m++)
            for (int along = 0; along < 2; along++) {
                struct product p = {ms[m], sizes[s][0], sizes[s][1], along};
                if (all || s == 0 || ms[m] < 512)
                    bench_product(&p, codes, numbers, out);
            }
    free(codes);
    free(numbers);
    free(out);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    bool all = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            all = true;
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
            only = argv[++i];
        else {
            fprintf(stderr, "usage: bench_kernels [--set NAME] [--long]\n");
            return 2;
        }
    }
    rounds = all ? ROUNDS_LONG : ROUNDS;
    open_peer();
    find_workers(only);
    struct oct_float_env env = oct_float_env_enter();
    bench_conversions();
    bench_products(all);
    oct_float_env_leave(env);
    for (size_t s = 0; s < set_count; s++)
        octet_workers_destroy(workers[s]);
    return 0;
}
