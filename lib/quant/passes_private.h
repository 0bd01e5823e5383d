/* What dot.c and grouped.c give to passes.c: the parts of one call, each on sides that the part
 * before has left, in this process or in a block between passes. */
#ifndef OCTET_QUANT_PASSES_PRIVATE_H
#define OCTET_QUANT_PASSES_PRIVATE_H

#include "quant/operand.h"
#include "quant/passes.h"

/* A product under way. op, lhs and rhs are begun by the caller. */
struct oct_pass {
    struct oct_op op;
    const struct oct_matmul *matmul;
    struct oct_side lhs, rhs;
    /* Of a grouped one: rows first[e] .. first[e + 1] of lhs go with matrix e of rhs. */
    int64_t m, k, n, groups;
    int64_t *first;         /* [groups + 1] */
    int32_t k_axis, n_axis; /* of rhs */
};

/* Both passes in one call: what record.h's functions have in common. */
enum octet_status oct_quant_matmul(const struct octet_compute *compute,
                                   const struct oct_matmul *matmul, const struct octet_operand *lhs,
                                   const struct octet_operand *rhs,
                                   const struct octet_array *group_sizes,
                                   const struct octet_product_options *options,
                                   struct oct_record *record, struct octet_product *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* Checks shapes; sets what else of the pass they tell. */
enum octet_status oct_dot_shapes(struct oct_pass *pass, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_grouped_shapes(struct oct_pass *pass,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* Checks group sizes and the scales of operands that came quantized. */
enum octet_status oct_grouped_sizes(struct oct_pass *pass, const struct octet_array *sizes,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* One side's quantization, or (foresees) what it will be. */
enum octet_status oct_dot_quantize(struct oct_pass *pass, bool is_lhs, bool foresees,
                                   struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_grouped_quantize(struct oct_pass *pass, bool is_lhs, bool foresees,
                                       struct octet_error *err) OCTET_MUST_CHECK;
/* Does backward use a foreseen side's codes? */
bool oct_grouped_is_reusable(const struct oct_pass *pass, bool is_lhs);

/* op.out->out from quantized sides; gradients from op.out->out's shape and dtype. */
enum octet_status oct_dot_forward(struct oct_pass *pass, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_dot_backward(struct oct_pass *pass, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_grouped_forward(struct oct_pass *pass,
                                      struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_grouped_backward(struct oct_pass *pass,
                                       struct octet_error *err) OCTET_MUST_CHECK;

/* The rule without what a grouped matmul has no place for; options->rule becomes `plain`. */
enum octet_status oct_grouped_settings(enum oct_matmul_kind kind, struct octet_rule *plain,
                                       struct octet_product_options *options,
                                       struct octet_error *err) OCTET_MUST_CHECK;
/* A sentence on the rule's settings that have no effect here; "". */
const char *oct_grouped_note(const struct octet_rule *rule, enum oct_matmul_kind kind,
                             bool qwix_compatible);

#endif
