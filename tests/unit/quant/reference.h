/* Qwix's arithmetic a second time, plain and slow: the formulas as loops over indices.
 *
 * For: the tests' expectations, to the bit. Shares no code with lib/quant; what it knows it has
 * from Qwix 0.1.8's formulas (rounding after each step in the operand's type, division by a
 * broadcast scale as a product with its f32 reciprocal) and from the order of additions that
 * docs/internals/kernels.md states.
 *
 * Numbers are kept as f32 whatever their type is; codes as the numbers that they stand for. Memory
 * lives until ref_clear. */
#ifndef OCTET_TESTS_QUANT_REFERENCE_H
#define OCTET_TESTS_QUANT_REFERENCE_H

#include "octet/quant.h"

struct ref {
    enum octet_dtype dtype;
    int32_t rank;
    int64_t dim[8], count;
    float *v; /* NULL: there is none */
};

/* An operand: a plain array, codes with a scale, or codes alone. */
struct ref_value {
    struct ref x;         /* of codes: the numbers that they stand for */
    struct ref scale;     /* v NULL: none */
    struct ref zero;      /* v NULL: none; numbers */
    struct ref low, high; /* the calibration's bounds, of scale's shape; low.v NULL: symmetric */
    bool clips;           /* gradients are masked by the bounds */
    bool has_blocks;      /* mx and nv types */
    uint8_t *codes;       /* as the library writes them */
};

/* What is below f32's normal range counts as zero, before and after each step; ties to even. */
#if defined(__aarch64__)
enum { REF_ENV = 1 << 24 };
static inline unsigned ref_env(void)
{
    return (unsigned)__builtin_aarch64_get_fpcr();
}
static inline void ref_env_set(unsigned env)
{
    __builtin_aarch64_set_fpcr(env);
}
#else
enum { REF_ENV = 0x9fc0 };
static inline unsigned ref_env(void)
{
    return __builtin_ia32_stmxcsr();
}
static inline void ref_env_set(unsigned env)
{
    __builtin_ia32_ldmxcsr(env);
}
#endif

void ref_clear(void);
struct ref ref_make(enum octet_dtype dtype, int32_t rank, const int64_t *dim);
struct ref ref_of(const struct octet_array *array); /* F32, BF16 or codes */
struct ref_value ref_value_of(const struct octet_operand *operand);
float ref_round(enum octet_dtype dtype, float x); /* F32: nothing; BF16: nearest even */
/* Steps through all indices in row-major order; false behind the last, and index is zero again. */
bool ref_next(int32_t rank, const int64_t *dim, int64_t *index);
float *ref_at(const struct ref *x, const int64_t *index);
/* Where along a grid (scale) an element of x lies. */
float ref_grid(const struct ref *grid, const struct ref *x, const int64_t *index);
/* One code of a type, by its definition; and the code of the nearest number after clipping. */
float ref_decode(enum octet_dtype dtype, uint8_t code);
uint8_t ref_encode(const char *qtype, float x);

/* How an array is quantized. */
struct ref_how {
    const char *qtype, *method;      /* method NULL or "": absmax */
    uint32_t channelwise, mean_axes; /* bit a: axis a */
    int64_t tile[8];                 /* elements; 0: not tiled */
};
struct ref_value ref_quantize(const struct ref *x, const struct ref_how *how);
struct ref ref_dequantize(const struct ref_value *value);
/* "128", "1/4", "0.25" of an axis; NULL, "": 0. */
int64_t ref_tile(const char *text, int64_t dim);

/* Sum of a[i] * b[i] in the stated order. */
float ref_dot(const float *a, const float *b, int64_t n);
struct ref ref_permute(const struct ref *x, const int32_t *from); /* out axis i = x's from[i] */
struct ref ref_cast(const struct ref *x, enum octet_dtype dtype);
/* N:M sparsity along memory; mask applied to `to`. */
struct ref ref_sparsify(const struct ref *x, int32_t n, int32_t m, const struct ref *to);

/* Ops. rule: as given to octet_rules_create, or NULL. cotangent: v NULL: forward only. */
struct ref_op {
    const struct octet_rule *rule;
    enum octet_weight_operand weight;
    struct ref cotangent;
};
struct ref_result {
    struct ref out, lhs_grad, rhs_grad;
    struct ref_value lhs, rhs; /* as multiplied */
};
struct ref_result ref_dot_general(const struct ref_value *lhs, const struct ref_value *rhs,
                                  const struct octet_dot_dims *dims, const struct ref_op *op);
struct ref_result ref_grouped(const struct ref_value *lhs, const struct ref_value *rhs,
                              const int32_t *sizes, bool transpose_rhs, enum octet_grouped_op kind,
                              const struct ref_op *op);
struct ref_result ref_einsum(const char *equation, const struct ref_value *lhs,
                             const struct ref_value *rhs, const struct ref_op *op);
struct ref ref_conv(const struct ref_value *lhs, const struct ref_value *rhs,
                    const struct octet_conv_options *conv, const struct ref_op *op);

/* Fails the test (with bench.label and `what`) unless found has expected's shape, type and bits; of
 * NaN any. Codes: every byte. */
void ref_same(const struct octet_array *found, const struct ref *expected, const char *what);
void ref_same_codes(const struct octet_quantized *found, const struct ref_value *expected,
                    const char *what);

#endif
