/* Parts of octet bench.
 *
 * For: rows of measurements, whoever made them; the turns that sides of a comparison take; what
 * was asked for. Decision: a row is a list of named values, so that table and JSON are printed by
 * one code. */
#ifndef OCTET_CLI_BENCH_H
#define OCTET_CLI_BENCH_H

#include "blas.h"
#include "octet/backend.h"
#include "session.h"

enum {
    BENCH_VALUES_MAX = 28,
    BENCH_ROWS_MAX = 1024,
    BENCH_SETS_MAX = 8,
    BENCH_PEERS_MAX = 4,
    BENCH_SHAPES_MAX = 64,
    BENCH_PAIRS_MAX = 16,
    BENCH_SIDES_MAX = 2 * BENCH_SETS_MAX + BENCH_PEERS_MAX,
};

struct bench_value {
    const char *name;  /* in JSON */
    const char *title; /* in the table; NULL: not there */
    const char *text;  /* NULL: a number */
    double number;     /* NAN: none */
    int digits;        /* behind the point */
};

/* What the ops of one kind took together. */
struct bench_time {
    const char *op;
    double forward_ms, backward_ms;
};

struct bench_row {
    size_t count;
    struct bench_value values[BENCH_VALUES_MAX];
    size_t time_count;
    struct bench_time *times; /* NULL: not measured */
};

/* The most that one thread of this machine does (reading: as many as the run has), measured at the
 * start of the run. NAN: not measured, or the CPU lacks it. */
struct bench_peaks {
    double avx2_gflops, avx512_gflops; /* fused multiply-adds in f32, which count as 2 */
    double bf16_gflops;                /* VDPBF16PS */
    double read_gbytes_per_s;          /* from DRAM */
    double memcpy_gbytes_per_s;        /* from DRAM to DRAM; bytes of the array, counted once */
};

/* A kernel set of this CPU. */
struct bench_set {
    const char *name;
    octet_workers *workers, *one; /* one thread; NULL: workers has one */
};

struct bench_shape {
    int32_t m, k, n;
};

struct bench {
    struct session *session;
    const char *about; /* what is compared with what; above the table */
    struct bench_peaks peaks;
    int32_t threads;
    bool cold;                   /* caches are emptied before each turn */
    octet_backend *backend;      /* NULL: none; else it runs beside the best set of the CPU */
    char backend_peer[32];       /* "cpu-avx512bf16" */
    const char *device, *driver; /* the backend's, in its own words; NULL: none */
    size_t set_count, peer_count;
    struct bench_set sets[BENCH_SETS_MAX];
    struct blas peers[BENCH_PEERS_MAX];
    /* What to measure. */
    size_t shape_count, pair_count;
    struct bench_shape shapes[BENCH_SHAPES_MAX];
    enum octet_dtype pairs[BENCH_PAIRS_MAX][2]; /* lhs, rhs */
    size_t layout_count;
    enum bench_layout { BENCH_KN, BENCH_NK, BENCH_PACKED } layouts[3]; /* of rhs */
    char *sweep; /* [sweep_bytes], read to empty caches */
    size_t sweep_bytes;
    size_t count;
    struct bench_row rows[BENCH_ROWS_MAX];
};

/* title NULL: in JSON only. */
void bench_text(struct bench_row *row, const char *name, const char *title, const char *text);
void bench_number(struct bench_row *row, const char *name, const char *title, double number,
                  int digits);
/* A new, empty row; programmer's error when there are too many. */
struct bench_row *bench_add(struct bench *bench);

/* ---- bench_choice.c: what was asked for ---- */

/* Shapes "MxKxN" (2 parts: "MxK"), each part a list ("8,16x1024x512"), of --shape, or else the
 * default's; pairs "LHSxRHS" of --dtype; layouts of --layout. Errors: INVALID_ARGUMENT that name
 * option and value.
 */
enum octet_status bench_choose(struct bench *bench, int part_count, const char *shapes,
                               const char *dtypes, struct octet_error *err) OCTET_MUST_CHECK;
/* One type, "e4m3" or "float8_e4m3fn". Errors: INVALID_ARGUMENT. */
enum octet_status bench_dtype(const char *text, size_t length, enum octet_dtype *out,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* The device of --backend, "cuda" or "opencl:1", in place of kernel sets. Errors: those of
 * octet_backend_open. */
enum octet_status bench_open_backend(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
/* Workers of all kernel sets, or of --kernels; with a backend those of the best, which help it.
 * Errors: INVALID_ARGUMENT. */
enum octet_status bench_open_sets(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
/* OpenBLAS with the kernels for Haswell and for the best AVX-512 core of this CPU, or those of
 * --core. Nothing where it is not installed, which standard error tells. Errors: INVALID_ARGUMENT
 * of --core. */
enum octet_status bench_open_peers(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
void bench_close(struct bench *bench);
/* Whom the run is compared with, for a legend; what: that OpenBLAS does. */
const char *bench_peer_text(const struct bench *bench, const char *what);

/* ---- bench_turns.c: measuring ---- */

typedef enum octet_status bench_function(void *user, struct octet_error *err);

/* One side of a comparison: run is what is timed. */
struct bench_side {
    bench_function *run;
    void *user;
    double min, median; /* seconds of one run */
    int runs, repeats;  /* timed turns; runs within each */
    double *seconds;
};

/* All sides in turns, again and again, after one turn of each that does not count: about a second,
 * three times at least, or as often as --runs says. Time is that of this thread, which others on
 * the machine disturb least; with several threads it is the clock's. Errors: what run says, and
 * CANCELLED. */
enum octet_status bench_turns(struct bench *bench, struct bench_side *sides, size_t count,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* What is compared: run by each kernel set, by each copy of OpenBLAS or by another peer. */
struct bench_work {
    enum octet_status (*ours)(void *user, octet_backend *backend, /* NULL: on the CPU */
                              const struct octet_compute *compute, struct octet_error *err);
    void (*blas)(void *user, const struct blas *blas); /* NULL: it has no part in it */
    void (*other)(void *user);                         /* NULL: none */
    const char *other_name;
    /* A row for its figures. peer NULL: there is none. */
    void (*add)(void *user, const struct bench_set *set, const struct bench_side *ours,
                const char *peer_name, const struct bench_side *peer);
    void *user;
    double flops;         /* the scalar set takes part in small work only */
    size_t scratch_bytes; /* of memory that is there before ours runs */
};

/* All kernel sets and all peers in turns; then work->add for each set, the best first, beside each
 * peer. With several threads the peer is the same set with one, with a backend it is the CPU.
 * arena: for what is needed here. */
enum octet_status bench_compare(struct bench *bench, octet_arena *arena,
                                const struct bench_work *work,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* "warm", or "dram" when caches are emptied before each turn or cannot hold what is read. */
const char *bench_operands(const struct bench *bench, double bytes);
/* ratio, ratio_best: the peer's time over ours, of medians and of best times. */
void bench_ratios(struct bench_row *row, const struct bench_side *ours,
                  const struct bench_side *peer);
/* ms, ms_min, runs, and the peer's; peer NULL: none. In JSON only. */
void bench_times(struct bench_row *row, const struct bench_side *ours,
                 const struct bench_side *peer);

/* ---- bench_peaks.c ---- */

enum octet_status bench_measure_peaks(struct bench *bench,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* GFLOP/s that the set cannot exceed with the run's threads; NAN: not known. */
double bench_peak_of(const struct bench *bench, const char *set, enum octet_dtype lhs,
                     enum octet_dtype rhs);
/* Reads it all, so that it is what caches hold. */
void bench_sweep(const char *from, size_t bytes);

/* ---- bench_machine.c: the members of "machine" in JSON, one line for a table ---- */

void bench_print_machine(const struct bench *bench);
void bench_print_peaks(const struct bench *bench);
/* Bytes of the CPU's caches, level 1 to 3; 0: not known. */
long bench_cache_bytes(int level);
bool bench_cpu_has(const char *feature);

/* ---- kinds; each fills bench->rows ---- */

enum octet_status bench_list_peaks(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_gemm(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_gemv(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_gmm(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_vjp(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_quantize(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_step(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_rpc(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;

/* ---- bench_operand.c: operands ---- */

/* f32 numbers of a bell-like distribution, the same in every run. */
void bench_fill(float *to, size_t count, uint64_t seed);
/* "[k,n]", "[n,k]", "packed"; with groups "[g,k,n]". */
const char *bench_layout_name(enum bench_layout layout, bool groups);
/* values [count of dim] as an operand of that type: codes with a scale for each index of the axes
 * of `channels` (F8_*, S8), or values of BF16 or F32 as they are. All in the arena. */
enum octet_status bench_operand(struct bench *bench, octet_arena *arena, float *values,
                                int32_t rank, const int64_t *dim, enum octet_dtype dtype,
                                const int32_t *channels, size_t channel_count,
                                struct octet_operand *out,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* Packs the codes of rhs, whose contracted axis is given, once for all runs. */
enum octet_status bench_pack(struct bench *bench, octet_arena *arena, struct octet_operand *rhs,
                             int32_t axis, struct octet_error *err) OCTET_MUST_CHECK;

#endif
