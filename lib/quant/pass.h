/* What dot.c and grouped.c give to passes.c: the parts of one call, each on sides that the part
 * before has left, in this process or in a block between passes. lib/backends, which runs the same
 * calls on a device, takes from here what is known without numbers. */
#ifndef OCTET_QUANT_PASS_H
#define OCTET_QUANT_PASS_H

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

/* Channelwise along all axes that are not contracted, tiles along the last one that is. */
enum octet_status oct_dot_how(int32_t rank, const int32_t *contracting, int32_t count,
                              const char *tile_size, const char *tile_field, struct oct_how *how,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* Axis of the result for each of batch axes, lhs' free and rhs' free ones. axes: OCTET_AXES_MAX. */
void oct_dot_result_axes(const struct oct_matmul *matmul, int32_t *axes);
/* The product that gives one operand's gradient (x's; of lhs, or of rhs): g, whose axes are the
 * result's (axes), is contracted with the free axes of y, the other operand. y's contracting axes,
 * in ascending order, are x's. result_axes: of the gradient, for batch axes, those of g that are
 * left, those of y. */
void oct_gradient_dims(const struct octet_dot_dims *forward, const struct octet_array *x,
                       const struct octet_array *y, bool for_lhs, const int32_t *axes,
                       struct octet_dot_dims *dims, int32_t *result_axes);

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
