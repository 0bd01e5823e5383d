/* What the tests of lib/quant share: workers, an arena, random numbers, arrays, rules.
 *
 * One bench for the whole suite; its arena is emptied before each test and by bench_clear. */
#ifndef OCTET_TESTS_QUANT_FIXTURE_H
#define OCTET_TESTS_QUANT_FIXTURE_H

#include <check.h>

#include "octet/octet.h"

enum { BENCH_WORKERS_MAX = 12 };

extern struct bench {
    octet_context *context;
    octet_arena *arena;
    octet_workers *workers[BENCH_WORKERS_MAX]; /* each kernel set with 1, 2 and 7 threads */
    size_t workers_count;
    struct octet_compute compute; /* the arena, and workers[0] until bench_use */
    octet_rules *rules[64];       /* of bench_rule, until bench_clear */
    size_t rules_count;
    struct octet_error err;
    char label[200]; /* the case at hand, for messages */
} bench;

void bench_begin(void); /* checked fixtures, before and after each test */
void bench_end(void);
void bench_clear(void); /* forgets arrays and rules */
void bench_use(size_t workers);
/* Every kernel set in turn; now and then with several threads, whose hand-over takes its time. */
void bench_use_any(uint64_t seed);
void bench_close(void); /* at the end of the program */

/* What the bench's call answered must be OK. */
void bench_ok(enum octet_status status);
/* INVALID_ARGUMENT with exactly that field, and `part` in its sentence. */
void bench_refused(enum octet_status status, const char *field, const char *part);

/* A rule in normal form, as the library hands it out; it must be accepted. */
const struct octet_rule *bench_rule(const struct octet_rule *given);

/* splitmix64 */
struct dice {
    uint64_t state;
};
uint64_t roll(struct dice *dice);
int64_t roll_between(struct dice *dice, int64_t least, int64_t most);
bool roll_chance(struct dice *dice, int percent);
float roll_normal(struct dice *dice); /* near enough: mean 0, deviation 1, no more than 6 */

/* Zeroed, in the bench's arena. */
struct octet_array array_zero(enum octet_dtype dtype, int32_t rank, const int64_t *dim);
/* values: rounded to dtype (F32, BF16, S32) if need be. */
struct octet_array array_of(enum octet_dtype dtype, int32_t rank, const int64_t *dim,
                            const float *values);
struct octet_array array_random(struct dice *dice, enum octet_dtype dtype, int32_t rank,
                                const int64_t *dim);
struct octet_array sizes_of(int64_t groups, const int32_t *sizes);
float array_at(const struct octet_array *array, int64_t index);            /* F32, BF16 */
bool array_same(const struct octet_array *a, const struct octet_array *b); /* shape and bytes */
struct octet_operand plain(struct octet_array array);
struct octet_operand quantized(struct octet_quantized q);

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define FLOATS(...) ((const float[]){__VA_ARGS__})

/* lhs [.., k] with rhs [k, ..]. */
extern const struct octet_dot_dims matmul_dims;

TCase *bug_tests(void);
TCase *quantize_tests(void);
TCase *dot_tests(void);
TCase *grouped_tests(void);
TCase *einsum_tests(void);
TCase *conv_tests(void);
TCase *property_tests(void);
TCase *error_tests(void);
TCase *pass_tests(void);
TCase *torture_tests(void);

/* Random cases of a kind: one in eight under sanitizers, which look at memory and threads, not at
 * numbers, and in an emulator, which is slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(OCTET_EMULATED)
#define SEEDS(count) ((count) / 8)
#else
#define SEEDS(count) (count)
#endif

#endif
