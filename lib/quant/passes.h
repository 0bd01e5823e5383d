/* Passes: a product under a rule as two calls, forward now and backward later.
 *
 * For: running models, where memory is planned: results go into arrays of the caller's, and what
 * backward needs of forward into a block whose size is known beforehand. The public
 * octet_dot_general, octet_einsum and octet_ragged_dot are both passes in one call. Decision:
 * forward leaves codes and scales where backward can use them again, so that an operand's numbers
 * need not live until then; oct_matmul_reads tells which must.
 *
 * Memory: compute->arena takes working memory only, which ends with it; oct_matmul_prepare's result
 * too lives there. A block stays where it is between the passes. */
#ifndef OCTET_QUANT_PASSES_H
#define OCTET_QUANT_PASSES_H

#include "octet/quant.h"

enum oct_matmul_kind { OCT_MATMUL_DOT, OCT_MATMUL_GMM, OCT_MATMUL_RAGGED_DOT };

/* What is known of a product before there are numbers. */
struct oct_matmul {
    enum oct_matmul_kind kind;
    struct octet_dot_dims dims; /* of a dot */
    /* Of a dot: the result's axis for each of: batch, lhs' free, rhs' free axes. */
    bool is_turned; /* false: they are in that order */
    int32_t result_axes[OCTET_AXES_MAX];
    bool transpose_rhs; /* of a grouped one: rhs is [g,n,k] */
    /* rule: NULL: none. has_backward: there will be, for what does not go together with it. */
    const struct octet_rule *rule;
    enum octet_weight_operand weight_operand;
    bool qwix_compatible, has_backward, numerics;
    enum octet_accumulation accumulation;
    /* The step that a sparsity's start_step is compared with. Source: Qwix 0.1.8,
     * contrib/sparsity/sparsity_module.py; its update_step keeps a mask for some steps, and a
     * product keeps nothing, so the mask is made anew at each. */
    int64_t step;
};

/* dot_general for an einsum; *is_exchanged: the equation's second operand is its lhs.
 * weight_operand (of the equation) is turned too. Errors: INVALID_ARGUMENT with field "equation",
 * "lhs.shape". */
enum octet_status oct_matmul_from_einsum(const char *equation, const struct octet_array *lhs,
                                         const struct octet_array *rhs, struct oct_matmul *matmul,
                                         bool *is_exchanged,
                                         struct octet_error *err) OCTET_MUST_CHECK;

/* What forward would refuse, of rule, shapes and dtypes (data is not read). Errors: as
 * oct_matmul_forward's, such as "rule.tile_size". */
enum octet_status oct_matmul_check(const struct oct_matmul *matmul, const struct octet_array *lhs,
                                   const struct octet_array *rhs,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* Bytes that forward leaves for backward, exact; a function of rule, shapes and dtypes (data is not
 * read). 0: a rule that forward will refuse. */
size_t oct_matmul_saved_bytes(const struct oct_matmul *matmul, const struct octet_array *lhs,
                              const struct octet_array *rhs);
/* Whose numbers backward reads: 1 lhs, 2 rhs. */
int oct_matmul_reads(const struct oct_matmul *matmul, const struct octet_array *lhs,
                     const struct octet_array *rhs);
/* Upper bounds of working memory in compute->arena. */
size_t oct_matmul_scratch_bytes(const struct oct_matmul *matmul, const struct octet_array *lhs,
                                const struct octet_array *rhs, bool backward);

/* figures may be NULL; but for is_fast they are filled with matmul->numerics. */
struct oct_pass_figures {
    bool is_fast; /* FAST was asked for, and another order than EXACT_ORDER ran */
    struct octet_operand_stats lhs, rhs, cotangent;
    char digest[33];
};

/* out: its shape and dtype (F32 or BF16: a cast of the op's own result) and data. saved: of
 * oct_matmul_saved_bytes, 64-aligned; NULL: no backward. rhs may come prepared (is_quantized).
 * Errors: as octet_dot_general's. */
enum octet_status
oct_matmul_forward(const struct octet_compute *compute, const struct oct_matmul *matmul,
                   const struct octet_operand *lhs, const struct octet_operand *rhs,
                   const struct octet_array *group_sizes, const struct octet_array *out,
                   void *saved, size_t saved_bytes, struct oct_pass_figures *figures,
                   struct octet_error *err) OCTET_MUST_CHECK;

/* lhs, rhs: as forward had them, data NULL where oct_matmul_reads says so. Gradients: of the
 * operands' shapes, F32 or BF16 (a cast of the gradient in the operand's dtype), written whole;
 * data NULL: not wanted. */
enum octet_status
oct_matmul_backward(const struct octet_compute *compute, const struct oct_matmul *matmul,
                    const struct octet_array *lhs, const struct octet_array *rhs,
                    const struct octet_array *group_sizes, const void *saved,
                    const struct octet_array *cotangent, const struct octet_array *lhs_grad,
                    const struct octet_array *rhs_grad, struct oct_pass_figures *figures,
                    struct octet_error *err) OCTET_MUST_CHECK;

/* One operand as forward would quantize it, in `keep`: forward from it gives the same bits. Of the
 * other only the shape counts.
 * out->qvalue.data NULL: the rule does not quantize it. */
enum octet_status oct_matmul_prepare(const struct octet_compute *compute,
                                     const struct oct_matmul *matmul, const struct octet_array *lhs,
                                     const struct octet_array *rhs, bool is_lhs, octet_arena *keep,
                                     struct octet_quantized *out,
                                     struct octet_error *err) OCTET_MUST_CHECK;

#endif
