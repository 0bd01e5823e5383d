/* What dot_general and grouped matmuls do alike with operands, gradients and figures. */
#ifndef OCTET_QUANT_OPERAND_H
#define OCTET_QUANT_OPERAND_H

#include "quant/config.h"
#include "quant/product.h"
#include "quant/quantize.h"
#include "quant/record.h"

/* An op under way: where its results, its working memory and its figures go. */
struct oct_op {
    const struct octet_compute *compute; /* results */
    struct octet_compute work;           /* what ends with the op */
    octet_arena *scratch;                /* work's; NULL: a record keeps all */
    const struct octet_product_options *options;
    struct oct_config config;
    struct oct_record *record; /* never NULL */
    struct oct_record unused;
    struct octet_product *out;
    struct oct_stats lhs_stats, rhs_stats, cotangent_stats;
};

/* Checks out_dtype, makes the config, begins *out. oct_op_end frees working memory, whatever came
 * before. */
enum octet_status oct_op_begin(struct oct_op *op, const struct octet_compute *compute,
                               const struct octet_product_options *options,
                               struct oct_record *record, struct octet_product *out,
                               struct octet_error *err) OCTET_MUST_CHECK;
void oct_op_end(struct oct_op *op);

/* One operand, checked, and quantized if its setting says so. */
struct oct_side {
    const char *name; /* "lhs", for errors */
    const struct octet_operand *given;
    struct octet_array
        original; /* what came, or what a quantized operand stands for (made when needed) */
    struct oct_value value;         /* as it is multiplied */
    uint32_t contracting;           /* bit a: forward contracts axis a */
    bool is_calibrated, has_blocks; /* quantized here; to a block-scaled type */
    struct oct_calibration calibration;
};

enum octet_status oct_side_check(struct oct_side *side, const char *name,
                                 const struct octet_operand *given,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* how: all but qtype and method, which are the setting's. */
enum octet_status oct_side_quantize(struct oct_op *op, struct oct_side *side,
                                    const struct oct_setting *setting, struct oct_how *how,
                                    const char *tile_field,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* An array quantized by a setting: gradients, residuals. stats may be NULL. */
enum octet_status oct_value_quantize(struct oct_op *op, const struct octet_array *array,
                                     const struct oct_setting *setting, struct oct_how *how,
                                     const char *tile_field, struct oct_stats *stats,
                                     struct oct_value *out,
                                     struct octet_error *err) OCTET_MUST_CHECK;

/* The operand for a backward product: its codes if they can be used again, else the original. */
enum octet_status oct_side_residual(struct oct_op *op, struct oct_side *side, struct oct_value *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* *g = the cotangent, checked against out's shape, in out's dtype. */
enum octet_status oct_cotangent(struct oct_op *op, const struct octet_array *out,
                                struct octet_array *g, struct octet_error *err) OCTET_MUST_CHECK;

/* Masks of formulas 11 and 14 on a gradient. */
enum octet_status oct_side_mask(struct oct_op *op, const struct oct_side *side,
                                struct octet_array *gradient,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* The last steps: stats, digest, cast of out. */
enum octet_status oct_op_finish(struct oct_op *op, const struct oct_side *lhs,
                                const struct oct_side *rhs,
                                struct octet_error *err) OCTET_MUST_CHECK;

#endif
