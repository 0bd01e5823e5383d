/* Which kernel sets there are, which of them this CPU can run, and workers. Compiled for the oldest
 * CPU, as everything outside the sets' folders.
 *
 * Decision: a set is also tried before it is handed out. Octet promises the same bits on every CPU,
 * and VDPBF16PS's order of additions is documented by some vendors only. Where it is another one,
 * the set serves FAST and the next one EXACT_ORDER. */
#include <cpuinfo.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_env.h"
#include "base/pool.h"
#include "dtypes/codes.h"
#include "kernels/gemm_private.h"
#include "kernels/list.h"
#include "octet/workers.h"

enum { THREADS_MAX = 1024 };

struct row {
    const struct oct_kernels *kernels;
    uint32_t needs;
};

static const struct row rows[] = {
#define ROW(name, needs) {&oct_kernels_##name, needs},
    OCT_KERNEL_SETS(ROW)
#undef ROW
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static const char *const feature_names[] = {
#define NAME(name) #name,
    OCT_CPU_FEATURES(NAME)
#undef NAME
};
static const char *const feature_obstacles[] = {
#define OBSTACLE(name) "the CPU lacks " #name,
    OCT_CPU_FEATURES(OBSTACLE)
#undef OBSTACLE
};

static uint32_t cpu_features(void)
{
    uint32_t has = 0;

    (void)cpuinfo_initialize(); /* if it fails there are the features that every such CPU has */
#define HAS(name) has |= OCT_CPU_HAS(name) ? OCT_CPU_BIT(name) : 0;
    OCT_CPU_FEATURES(HAS)
#undef HAS
    return has;
}

/* The obstacle of a set that can do everything but EXACT_ORDER. */
static const char fast_only[] =
    "the CPU's VDPBF16PS adds in another order than EXACT_ORDER's: FAST only";

/* ---- The trial of a set ---- */

enum { TRIAL_PAIRS = 16, TRIAL_ROUNDS = 8 };

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* A number that is exact in BF16; round by round nearer to the ends of the range, so that products
 * overflow, vanish, and are smaller than what they are added to. */
static float trial_number(uint64_t *state, int round)
{
    uint32_t bits = random_bits(state), spread = 4u << (round > 5 ? 5 : round);
    uint32_t exponent = 127 - spread / 2 + (bits >> 8) % spread;

    return oct_f32_from_bits((bits & 0x807f0000u) | exponent << 23);
}

/* Free index `at` of a panel of that width, at k. */
static void put(bool pairs, void *panel, size_t width, size_t k, size_t at, float value)
{
    if (pairs)
        ((uint16_t *)panel)[(k / 2 * width + at) * 2 + k % 2] =
            (uint16_t)(oct_f32_bits(value) >> 16);
    else
        ((float *)panel)[k * width + at] = value;
}

static bool same(float a, float b)
{
    return oct_f32_bits(a) == oct_f32_bits(b) || (a != a && b != b);
}

/* The first row's sums against fused additions in the order of gemm.h. */
static bool try_round(const struct oct_gemm_path *path, bool pairs, int round, uint64_t *state)
{
    enum { DEPTH = 2 * TRIAL_PAIRS, WIDTH = OCT_GEMM_TILE_MAX / OCT_GEMM_ROWS_MAX };
    _Alignas(64) float a[DEPTH * OCT_GEMM_ROWS_MAX] = {0}, b[DEPTH * WIDTH];
    float rows_in[DEPTH], columns_in[DEPTH][WIDTH], tile[OCT_GEMM_TILE_MAX];
    const size_t width = path->column_width;

    for (size_t k = 0; k < DEPTH; k++) {
        rows_in[k] = trial_number(state, round);
        put(pairs, a, path->row_width, k, 0, rows_in[k]);
        for (size_t c = 0; c < width; c++) {
            columns_in[k][c] = trial_number(state, round);
            put(pairs, b, width, k, c, columns_in[k][c]);
        }
    }
    path->narrow[1](TRIAL_PAIRS, a, b, 0, tile);
    for (size_t c = 0; c < width; c++) {
        float sum = 0;
        for (size_t k = 0; k < DEPTH; k += 2) {
            sum = oct_fma(rows_in[k + 1], columns_in[k + 1][c], sum);
            sum = oct_fma(rows_in[k], columns_in[k][c], sum);
        }
        if (!same(sum, tile[c]))
            return false;
    }
    return true;
}

static bool try_path(const struct oct_gemm_path *path, bool pairs)
{
    uint64_t state = 1;
    bool fine = true;
    struct oct_float_env env = oct_float_env_enter();

    for (int round = 0; path->pack && fine && round < TRIAL_ROUNDS; round++)
        fine = try_round(path, pairs, round, &state);
    oct_float_env_leave(env);
    return fine;
}

bool oct_kernels_add_in_order(const struct oct_kernels *kernels)
{
    return try_path(&kernels->gemm->bf16, true);
}

static const char *obstacle_of(const struct row *row)
{
    uint32_t lacks = row->needs & ~cpu_features();

    for (size_t f = 0; f < OCT_CPU_FEATURE_COUNT; f++)
        if (lacks & 1u << f)
            return feature_obstacles[f];
    if (!try_path(&row->kernels->gemm->f32, false))
        return "the CPU's fused additions give other bits than they should";
    if (!oct_kernels_add_in_order(row->kernels))
        return fast_only;
    return NULL;
}

/* ---- Finding ---- */

const struct oct_kernels *oct_kernels_at(size_t index)
{
    return index < ROW_COUNT ? rows[index].kernels : NULL;
}

const char *octet_kernel_set_name(size_t index)
{
    return index < ROW_COUNT ? rows[index].kernels->name : NULL;
}

const char *octet_kernel_set_obstacle(size_t index)
{
    return index < ROW_COUNT ? obstacle_of(&rows[index]) : "there is no such kernel set";
}

const char *octet_cpu_feature(size_t index)
{
    uint32_t has = cpu_features();

    for (size_t f = 0; f < OCT_CPU_FEATURE_COUNT; f++)
        if (has & 1u << f && index-- == 0)
            return feature_names[f];
    return NULL;
}

const struct oct_kernels *oct_kernels_find(const char *name, const char **obstacle)
{
    const bool any = !name || !*name;
    const char *why = "there is no such kernel set";

    for (size_t i = ROW_COUNT; i-- > 0;) {
        if (!any && strcmp(name, rows[i].kernels->name) != 0)
            continue;
        why = obstacle_of(&rows[i]);
        if (!why)
            return rows[i].kernels;
    }
    if (obstacle)
        *obstacle = why;
    return NULL;
}

/* The best set that serves FAST only, of that name or of all. */
static const struct oct_kernels *find_fast(const char *name)
{
    for (size_t i = ROW_COUNT; i-- > 0;)
        if ((!name || !*name || strcmp(name, rows[i].kernels->name) == 0) &&
            obstacle_of(&rows[i]) == fast_only)
            return rows[i].kernels;
    return NULL;
}

/* ---- Workers ---- */

static int32_t cpu_count(void)
{
    cpu_set_t set;
    int32_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return count < THREADS_MAX ? count : THREADS_MAX;
}

enum octet_status octet_workers_create(const char *kernel_set, int32_t threads, octet_workers **out,
                                       struct octet_error *err)
{
    const char *obstacle = NULL;
    const struct oct_kernels *kernels = oct_kernels_find(kernel_set, &obstacle);
    const struct oct_kernels *fast = find_fast(kernel_set);

    *out = NULL;
    if (!kernels && fast) /* EXACT_ORDER takes the next set */
        kernels = oct_kernels_find(NULL, &obstacle);
    if (!kernels)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "kernels", "'%s': %s",
                          kernel_set ? kernel_set : "", obstacle);
    if (threads < 0 || threads > THREADS_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "threads", "%d is outside 0..%d", threads,
                          THREADS_MAX);
    octet_workers *workers = calloc(1, sizeof *workers);
    if (workers) {
        workers->kernels = kernels;
        workers->fast = fast;
        workers->threads = threads ? threads : cpu_count();
        workers->pool = workers->threads > 1 ? oct_pool_create((size_t)workers->threads) : NULL;
    }
    if (workers)
        workers->gemm_memory = oct_gemm_memory_create();
    if (!workers || (workers->threads > 1 && !workers->pool) || !workers->gemm_memory) {
        octet_workers_destroy(workers);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "threads", "no memory for %d threads",
                          threads);
    }
    *out = workers;
    return OCTET_OK;
}

void octet_workers_destroy(octet_workers *workers)
{
    if (!workers)
        return;
    oct_gemm_memory_destroy(workers->gemm_memory);
    oct_pool_destroy(workers->pool);
    free(workers);
}

const char *octet_workers_kernels(const octet_workers *workers)
{
    return workers->kernels->name;
}

int32_t octet_workers_threads(const octet_workers *workers)
{
    return workers->threads;
}
