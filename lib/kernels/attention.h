/* Attention of one block of rows: what one thread does at a time.
 *
 * For: lib/exec/attention.c, which shares blocks among threads and knows where arrays lie. A row is
 * a query of one of the heads that share a key head. Rows stand side by side in lanes and keys one
 * below another, so that maxima and sums of a row run down its lane, and exponentials are already
 * the panel that the next product reads.
 *
 * Bits: products are in EXACT_ORDER (gemm.h), the sum over keys in the order of math.h's exp_sum,
 * so that a row is what the four ops by themselves give. Keys are taken in chunks of 256, where a
 * block of EXACT_ORDER begins. What no row of a block sees is left out: its factor is exactly 0. */
#ifndef OCTET_KERNELS_ATTENTION_H
#define OCTET_KERNELS_ATTENTION_H

#include <stdbool.h>

#include "kernels/gemm.h"

enum {
    OCT_ATTENTION_CHUNK = OCT_GEMM_BLOCK, /* keys */
    OCT_ATTENTION_ROWS = 64               /* of a block, at most */
};

struct oct_gemm_path;

/* Of a whole run. oct_attention_set_up fills what begins with the paths. */
struct oct_attention {
    const struct oct_kernels *kernels;
    int64_t length, d, v;               /* keys; widths of keys and values */
    enum octet_dtype query, key, value; /* F32 or BF16 */
    enum octet_dtype product;           /* to which scores are rounded */
    enum octet_dtype scores;            /* to which exponentials and sums are rounded */
    enum octet_dtype out; /* to which weighted values are rounded before the division */
    float soft_cap;       /* 0: none */
    bool backward;
    const struct oct_gemm_path *by_keys, *by_values;          /* scores; weighted values */
    const struct oct_gemm_path *back_values;                  /* cotangents of exponentials */
    const struct oct_gemm_path *to_query, *to_key, *to_value; /* gradients */
};
void oct_attention_set_up(struct oct_attention *a);

/* Packed keys and values of a chunk; what a thread works in, with so many keys at most. Enough for
 * every kernel set; multiples of 64. */
size_t oct_attention_chunk_bytes(int64_t d, int64_t v, bool backward);
size_t oct_attention_bench_bytes(int64_t keys, int64_t d, int64_t v, bool backward);

/* count <= OCT_ATTENTION_CHUNK keys and values, whose rows lie `stride` elements apart. */
void oct_attention_pack(const struct oct_attention *a, const void *key, int64_t key_stride,
                        const void *value, int64_t value_stride, int64_t count, char *chunk,
                        void *bench);

struct oct_attention_rows {
    int64_t count;                /* 1 ... OCT_ATTENTION_ROWS */
    const int32_t *from, *last;   /* [count] the keys that a row sees, at least one */
    const int32_t *ids, *row_ids; /* of all keys; [count]: only equal ones are seen. NULL: all */
    const float *sinks;           /* [count] one more score of each row; NULL: none */
    const void *query;            /* row i begins at element offsets[i] */
    const int64_t *offsets;       /* [count] */
    const char *chunks;           /* packed, from key 0 on */
    float *maxima, *sums;         /* [count]; forward writes them, backward reads maxima */
};

/* out [count, v]: divided by the sums, not rounded after that. */
void oct_attention_forward_rows(const struct oct_attention *a, const struct oct_attention_rows *r,
                                float *out, void *bench);

/* Adds to the gradients of keys and values, whose rows lie `stride` apart, in order of the blocks:
 * before it does so for a chunk it calls turn(user, chunk), afterwards done(user, chunk). With c
 * the cotangent divided by the row's sum, of type `out`, and slope = - c . out of each row: p =
 * exp(s - max), dv = p^T c, ds = p (c v^T + slope), dq = ds k, dk = ds^T q. */
struct oct_attention_back {
    const void *cotangent;  /* [count, v] */
    const float *slopes;    /* [count] */
    float *d_query;         /* [count, d], written; NULL: not wanted */
    float *d_key, *d_value; /* added to; NULL: not wanted */
    int64_t key_stride, value_stride;
    void (*turn)(void *user, int64_t chunk);
    void (*done)(void *user, int64_t chunk);
    void *user;
};
void oct_attention_backward_rows(const struct oct_attention *a, const struct oct_attention_rows *r,
                                 const struct oct_attention_back *b, void *bench);

#endif
