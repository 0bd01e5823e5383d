/* The turns of a comparison; see bench.h. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

enum { TURNS_MIN = 3, TURNS_MAX = 200, REPEATS_MAX = 1000 };
static const double seconds_of_all = 1.0, seconds_of_turn = 2e-4;

static double now(const struct bench *bench)
{
    struct timespec time;

    clock_gettime(
        bench->threads == 1 && !bench->backend ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static enum octet_status turn(struct bench *bench, struct bench_side *side, double *seconds,
                              struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (bench->cold)
        bench_sweep(bench->sweep, bench->sweep_bytes);
    double begin = now(bench);
    for (int i = 0; i < side->repeats && status == OCTET_OK; i++)
        status = side->run(side->user, err);
    *seconds = (now(bench) - begin) / side->repeats;
    if (status == OCTET_OK && atomic_load(&bench->session->cancel->cancelled))
        return octet_fail(err, OCTET_CANCELLED, NULL, "interrupted");
    return status;
}

/* The turn that does not count, and how often a short run is repeated, so that the clock's own cost
 * does not show; what is read a second time is no longer cold. */
static enum octet_status warm_up(struct bench *bench, struct bench_side *side,
                                 struct octet_error *err)
{
    double seconds;

    side->repeats = 1;
    side->runs = 0;
    enum octet_status status = turn(bench, side, &seconds, err);
    if (status == OCTET_OK && seconds < seconds_of_turn && !bench->cold)
        side->repeats = (int)fmin(REPEATS_MAX, ceil(seconds_of_turn / fmax(seconds, 1e-7)));
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sum_up(struct bench_side *side)
{
    int n = side->runs;

    qsort(side->seconds, (size_t)n, sizeof *side->seconds, by_size);
    side->min = side->seconds[0];
    side->median = (side->seconds[(n - 1) / 2] + side->seconds[n / 2]) / 2;
}

enum octet_status bench_turns(struct bench *bench, struct bench_side *sides, size_t count,
                              struct octet_error *err)
{
    int wanted = (int)bench->session->arguments->runs;
    int most = wanted ? wanted : TURNS_MAX, least = wanted ? wanted : TURNS_MIN;
    octet_arena *scratch = octet_arena_create(SIZE_MAX);
    double *seconds = scratch ? OCTET_NEW_ARRAY(scratch, count * (size_t)most, double) : NULL;
    enum octet_status status = OCTET_OK;

    if (!seconds)
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for %d runs", most);
    for (size_t i = 0; i < count && status == OCTET_OK; i++) {
        sides[i].seconds = seconds + i * (size_t)most;
        status = warm_up(bench, &sides[i], err);
    }
    uint64_t begin = octet_now_ns();
    for (int t = 0; status == OCTET_OK && t < most; t++) {
        if (t >= least && (double)(octet_now_ns() - begin) * 1e-9 > seconds_of_all)
            break;
        for (size_t i = 0; i < count && status == OCTET_OK; i++) {
            status = turn(bench, &sides[i], &sides[i].seconds[t], err);
            sides[i].runs = t + 1;
        }
    }
    for (size_t i = 0; i < count && status == OCTET_OK; i++)
        sum_up(&sides[i]);
    octet_arena_destroy(scratch);
    return status;
}

const char *bench_operands(const struct bench *bench, double bytes)
{
    double cache = bench_cache_bytes(3) ? (double)bench_cache_bytes(3) : 32e6;

    return bench->cold || bytes > 2 * cache ? "dram" : "warm";
}

void bench_ratios(struct bench_row *row, const struct bench_side *ours,
                  const struct bench_side *peer)
{
    bench_number(row, "ratio", "RATIO", peer ? peer->median / ours->median : NAN, 2);
    bench_number(row, "ratio_best", "BEST", peer ? peer->min / ours->min : NAN, 2);
}

void bench_times(struct bench_row *row, const struct bench_side *ours,
                 const struct bench_side *peer)
{
    bench_number(row, "ms", NULL, 1e3 * ours->median, 6);
    bench_number(row, "ms_min", NULL, 1e3 * ours->min, 6);
    bench_number(row, "peer_ms", NULL, peer ? 1e3 * peer->median : NAN, 6);
    bench_number(row, "peer_ms_min", NULL, peer ? 1e3 * peer->min : NAN, 6);
    bench_number(row, "runs", NULL, ours->runs, 0);
}
