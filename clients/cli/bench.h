/* Parts of octet bench.
 *
 * For: rows of measurements, whoever made them. Decision: a row is a list of named values, so that
 * table and JSON are printed by one code. */
#ifndef OCTET_CLI_BENCH_H
#define OCTET_CLI_BENCH_H

#include "session.h"

enum { BENCH_VALUES_MAX = 20, BENCH_ROWS_MAX = 128 };

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

struct bench {
    struct session *session;
    size_t count;
    struct bench_row rows[BENCH_ROWS_MAX];
};

void bench_text(struct bench_row *row, const char *name, const char *title, const char *text);
void bench_number(struct bench_row *row, const char *name, const char *title, double number,
                  int digits);
/* A new, empty row; programmer's error when there are too many. */
struct bench_row *bench_add(struct bench *bench);

/* Each fills bench->rows. */
enum octet_status bench_gemm(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_quantize(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_step(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status bench_rpc(struct bench *bench, struct octet_error *err) OCTET_MUST_CHECK;

/* f32 numbers of a normal-like distribution, the same in every run. */
void bench_fill(float *to, size_t count, uint64_t seed);

#endif
