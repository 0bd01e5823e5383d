/* Math: the elementwise and row-wise functions of models, one table for each instruction set.
 *
 * For: lib/exec and lib/train. Not for: quantization (kernels.h) and matrix products (gemm.h).
 * Decision: f32 in, f32 out; whoever has bf16 converts a piece of a row at a time with decode and
 * cast. Every set gives the same bits for every function (tests hold this), which fixes how sums
 * are taken: 16 partial sums, element i into sum i % 16, added up as a tree ((0+8)+(4+12))... of
 * halves. No function but sums depends on anything but its own element.
 *
 * All functions expect the environment of base/float_env.h. out may be the same array as an input.
 * Relative error of exp, log, sigmoid, tanh: at most 2 ulp in the normal range; Inf and NaN as in
 * C's functions. n may be 0. */
#ifndef OCTET_KERNELS_MATH_H
#define OCTET_KERNELS_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum oct_gate { OCT_GATE_silu, OCT_GATE_gelu, OCT_GATE_relu, OCT_GATE_sigmoid, OCT_GATE_COUNT };

/* One step of AdamW on n elements. gradient is multiplied by gradient_scale first. MaxText's
 * (optax): mu = b1 mu + (1 - b1) g; nu = b2 nu + (1 - b2) g^2; p -= rate * (mu / c1 / (sqrt(nu / c2
 * + epsilon_root) + epsilon) + decay p), c1 = 1 - b1^t, c2 = 1 - b2^t. */
struct oct_adamw {
    double b1, b2; /* 1 - b1 is rounded once, from double */
    float gradient_scale, epsilon, epsilon_root, decay, rate, c1, c2;
};

struct oct_math {
    /* ---- elementwise ---- */
    void (*add)(size_t n, const float *x, const float *y, float *out);
    void (*subtract)(size_t n, const float *x, const float *y, float *out);
    void (*multiply)(size_t n, const float *x, const float *y, float *out);
    void (*divide)(size_t n, const float *x, const float *y, float *out);
    void (*scale)(size_t n, const float *x, float factor, float *out);      /* x * factor */
    void (*add_scaled)(size_t n, const float *x, float factor, float *out); /* out += x * factor */
    void (*multiply_add)(size_t n, const float *x, const float *y, float *out); /* out += x * y */
    void (*exp)(size_t n, const float *x, float *out);
    void (*log)(size_t n, const float *x, float *out);
    void (*tanh)(size_t n, const float *x, float *out);
    void (*gate)(enum oct_gate gate, size_t n, const float *x, float *out);
    /* out = cotangent * d gate(x) / dx */
    void (*gate_vjp)(enum oct_gate gate, size_t n, const float *x, const float *cotangent,
                     float *out);
    /* out = R(gate(x)) * up, where R rounds to BF16 if so asked; and what flows back of a
     * cotangent: d_up = cotangent * R(gate(x)), d_x = R(cotangent * up) * d gate(x) / dx. */
    void (*gated)(enum oct_gate gate, bool rounds, size_t n, const float *x, const float *up,
                  float *out);
    void (*gated_vjp)(enum oct_gate gate, bool rounds, size_t n, const float *x, const float *up,
                      const float *cotangent, float *d_x, float *d_up);
    /* (re, im) = (a cos - b sin, a sin + b cos), n pairs, all arrays of n. re may be a, im b. */
    void (*rotate)(size_t n, const float *a, const float *b, const float *cosine, const float *sine,
                   float *re, float *im);
    void (*adamw)(const struct oct_adamw *settings, size_t n, const float *gradient, float *mu,
                  float *nu, float *parameter);

    /* ---- of a row ---- */
    float (*sum)(size_t n, const float *x);
    float (*sum_product)(size_t n, const float *x, const float *y);
    float (*maximum)(size_t n, const float *x); /* -Inf for n = 0; NaN if any is */
    /* out = exp(x - shift); returns their sum. The one pass of softmax and logsumexp. */
    float (*exp_sum)(size_t n, const float *x, float shift, float *out);
    size_t (*argmax)(size_t n, const float *x); /* the first of the largest; 0 for n = 0 */
};

/* Scalar functions of double, from additions, multiplications, divisions and square roots alone, so
 * that they give the same bits on every CPU (the C library's choose code by CPU). Error below 1e-15
 * relative (pow: 4e-15; sin and cos: of 1); |x| up to 1e6 for sin and cos. */
double oct_exact_exp(double x);
double oct_exact_log(double x);
double oct_exact_pow(double x, double y); /* x > 0 */
double oct_exact_sin(double x);
double oct_exact_cos(double x);
void oct_exact_sin_cos(double x, double *sine, double *cosine); /* in the time of one */

#endif
