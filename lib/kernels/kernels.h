/* Kernels: loops over numbers, one table of functions for each instruction set.
 *
 * For: lib/quant, which decides what is computed. Pointers, counts and strides; no allocation, no
 * checks of input, nothing that can fail.
 * Decision: every set gives the same bits (tests hold this for every function and every set that
 * the CPU has), so that a result depends on the request alone.
 *
 * All functions expect the environment of base/float_env.h. Arrays need no alignment beyond their
 * element's. `n` is in elements and may be 0. Sources and destinations do not overlap, unless a
 * comment says that they may be the same array. */
#ifndef OCTET_KERNELS_KERNELS_H
#define OCTET_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "octet/dtype.h"
#include "octet/workers.h"

struct oct_gemm_kernels;      /* gemm's own, gemm_private.h */
struct oct_math;              /* math.h */
struct oct_attention_kernels; /* attention's own, attention_private.h */

struct oct_kernels {
    const char *name;

    /* values[i] = the exact value of element i; BF16, F16, all F8, F4, E8M0, S8, S4, U8, BOOL, S32
     * and S64 (rounded to nearest even) to f32; F32 is copied. A NaN becomes a NaN. */
    void (*decode)(enum octet_dtype dtype, size_t n, const void *codes, float *values);

    /* The raw cast: rounds to nearest even with gradual underflow and does not saturate floats
     * (E4M3FN: above 464 NaN; E5M2: from 61440 Inf; E2M1FN saturates, as it has neither; NaN gives
     * its -0 as in XLA). Integers: truncation toward zero, saturated, NaN is 0 (XLA's convert). NaN
     * is 0x7f | sign in E4M3FN, 0x7e | sign in E5M2, 0x7fc0 | sign in BF16, 0x7e00 | sign in F16;
     * what E8M0FNU and S4 do is said in dtypes/codes.h. To BF16, F16, F8, F4, E8M0, S8, S4, S32;
     * F32 is copied. */
    void (*cast)(enum octet_dtype dtype, size_t n, const float *values, void *codes);

    /* Qwix's convert_to: floats are clipped to the largest finite value first (so that Inf
     * saturates and only NaN is NaN); integers are rounded half to even, then saturated, NaN is 0.
     * To F8_E4M3FN, F8_E5M2, F4_E2M1FN, S8, S4. Source: spec of Qwix 0.1.8, numerics.convert_to. */
    void (*saturate)(enum octet_dtype dtype, size_t n, const float *values, void *codes);

    /* max |x[i]|; NaN when any element is NaN; 0 for n = 0. dtype F32 or BF16, here and below. */
    float (*amax)(enum octet_dtype dtype, size_t n, const void *x);
    /* amax[i] = max(amax[i], |x[i]|), NaN sticks. */
    void (*amax_columns)(enum octet_dtype dtype, size_t n, const void *x, float *amax);

    /* codes[i] = saturate(round_dtype(x[i] * inverse[i * stride])), stride 0 or 1; inverse is f32
     * also for BF16, where the f32 product is rounded to BF16 (nearest even) before it is
     * converted: formula 6 of Qwix's arithmetic. A NaN code has the sign of x if that is NaN, else
     * of the inverse, else (Inf * 0) a minus. */
    void (*quantize)(enum octet_dtype dtype, enum octet_dtype qtype, size_t n, const void *x,
                     const float *inverse, size_t stride, void *codes);

    /* y[i] = round_dtype(value(x[i]) * scale[i * stride]) for x of any type that decode takes and y
     * F32 or BF16. x and y may be the same array where their types are. A NaN becomes 0x7fc00000
     * (0x7fc0). Dequantization, and a residual's scale moved onto the gradient. */
    void (*scale)(enum octet_dtype x_dtype, size_t n, const void *x, const float *scale,
                  size_t stride, enum octet_dtype dtype, void *y);

    /* The end of a product: y[i] = R(R(R(sum[i]) * lhs_scale) * rhs_scale[i * stride]), R rounds to
     * dtype (F32 or BF16). A NULL scale is left out. A NaN becomes 0x7fc00000 (0x7fc0). Formula 9.
     * sum and y may be the same array where dtype is F32. */
    void (*finish)(size_t n, const float *sum, const float *lhs_scale, const float *rhs_scale,
                   size_t stride, enum octet_dtype dtype, void *y);

    const struct oct_gemm_kernels *gemm;
    const struct oct_math *math;
    const struct oct_attention_kernels *attention;
};

/* The set of that name, NULL when there is none or this CPU cannot run it (*obstacle says why; it
 * may be NULL). name NULL or "": the best. */
const struct oct_kernels *oct_kernels_find(const char *name, const char **obstacle);

struct oct_pool;
struct octet_workers {
    const struct oct_kernels *kernels;
    const struct oct_kernels *fast; /* for products that may be FAST; NULL: the same */
    struct oct_pool *pool;          /* NULL: one thread */
    int32_t threads;
    struct oct_gemm_memory *gemm_memory; /* gemm.h's, between lists; NULL: nothing is kept */
};

#endif
