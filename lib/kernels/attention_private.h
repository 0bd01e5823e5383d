/* What a kernel set gives to attention.c: loops over [keys][lanes], as many lanes as a tile of
 * gemm_private.h has columns. */
#ifndef OCTET_KERNELS_ATTENTION_PRIVATE_H
#define OCTET_KERNELS_ATTENTION_PRIVATE_H

#include "kernels/attention.h"

enum { OCT_LANES_MAX = 32, OCT_SUMS = 16 };

/* How exponentials are left: as they are; rounded to BF16; as pairs of BF16, a panel of the bf16
 * path. The last two lie at the place of the first. */
enum oct_lane_format { OCT_LANES_F32, OCT_LANES_ROUNDED, OCT_LANES_PAIRS };

struct oct_attention_kernels {
    size_t lanes;
    /* x = -Inf where not from <= key <= last, for keys from first_key on. */
    void (*hide)(size_t keys, int32_t first_key, const int32_t *from, const int32_t *last,
                 float *x);
    /* largest = max(largest, x), sizes = max(sizes, bits of |x|), where a NaN shows. */
    void (*largest)(size_t keys, const float *x, float *largest, uint32_t *sizes);
    /* x = exp(x - shift), left in that format; adds to sums [16][lanes], key i (counted from a
     * multiple of 16) to i % 16. An odd number of keys: one more, of zeros. */
    void (*exp_sum)(size_t keys, enum oct_lane_format format, float *x, const float *shift,
                    float *sums);
    void (*tree)(const float *sums, float *total); /* the 16 sums of each lane */
    /* x = p = exp(x - shift), rounded to BF16 if so asked; g = g p + p slope. */
    void (*slope)(size_t keys, bool rounds, float *x, float *g, const float *shift,
                  const float *slopes);
    /* Rounded to BF16 in place. */
    void (*round)(size_t keys, float *x);
    /* codes [keys][lanes] BF16; pairs: a panel of the bf16 path, at x's place; an odd number of
     * keys: one more, of zeros. */
    void (*pairs)(size_t keys, bool pairs, float *x, uint16_t *codes);
    /* y[lane * y_stride + i] = x[i][lane] for `rows` i and `count` lanes; if divisors are given x,
     * rounded to BF16 if so asked, is divided by its lane's. */
    void (*turn)(size_t rows, size_t count, bool rounds, const float *x, const float *divisors,
                 float *y, size_t y_stride);
};

#endif
