/* What the tests of kernels share: the sets of this CPU, random numbers, arrays between canaries.
 */
#ifndef OCTET_TESTS_KERNELS_FIXTURE_H
#define OCTET_TESTS_KERNELS_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_env.h"
#include "kernels/gemm.h"
#include "kernels/list.h"
#include "unit/kernels/reference.h"

void add_elementwise_tests(Suite *suite);
void add_gemm_tests(Suite *suite);
void add_find_tests(Suite *suite);
void add_math_tests(Suite *suite);
void add_tiny_tests(Suite *suite);

/* The index-th set if this CPU can run it; NULL if not. Stop when octet_kernel_set_name is NULL. */
static inline const struct oct_kernels *set_at(size_t index)
{
    return octet_kernel_set_obstacle(index) ? NULL : oct_kernels_at(index);
}

static inline uint32_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

/* n bytes at an address that is `off` past an aligned one, all else filled with a pattern. */
struct fenced {
    unsigned char *block, *data;
    size_t n, off;
};
enum { FENCE = 192, CANARY = 0xa5 };

static inline struct fenced fenced_create(size_t n, size_t off)
{
    struct fenced f = {.n = n, .off = off};
    f.block = aligned_alloc(64, (n + off + 2 * FENCE + 63) / 64 * 64);
    ck_assert_ptr_nonnull(f.block);
    memset(f.block, CANARY, n + off + 2 * FENCE);
    f.data = f.block + FENCE + off;
    return f;
}

/* True if nothing outside was written; frees it. */
static inline bool fenced_destroy(struct fenced *f)
{
    bool whole = true;
    for (size_t i = 0; i < FENCE + f->off; i++)
        whole &= f->block[i] == CANARY;
    for (size_t i = 0; i < FENCE; i++)
        whole &= f->data[f->n + i] == CANARY;
    free(f->block);
    return whole;
}

/* An array of exactly n bytes, so that ASan and valgrind see a read past it. */
static inline void *tight_copy(const void *from, size_t n)
{
    void *copy = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, from, n);
    return copy;
}

#endif
