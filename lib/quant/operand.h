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
    /* Where results go, of the caller's; data NULL: they are made. */
    struct octet_array to_out, to_lhs_grad, to_rhs_grad;
    bool wants_lhs_grad, wants_rhs_grad;
    struct oct_keep *keep; /* NULL: forward and backward are one call */
    struct oct_stats cotangent_stats;
};

/* Memory for what backward needs of forward. */
struct oct_keep {
    unsigned char *at, *end;
};
/* 64-aligned. Programmer's error when there is no room. */
void *oct_keep_take(struct oct_keep *keep, size_t bytes);

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

/* What there is of a quantization beforehand: side's original (its shape), value, calibration are
 * set, but for data. No-op where side_quantize does nothing. */
enum octet_status oct_side_foresee(const struct oct_op *op, struct oct_side *side,
                                   const struct oct_setting *setting, struct oct_how *how,
                                   const char *tile_field,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* Can backward use the codes of a foreseen or quantized side? (dot_general, einsum) */
bool oct_side_is_reusable(const struct oct_op *op, const struct oct_side *side);
/* Does backward mask the side's gradient, for which it needs the side's numbers? */
bool oct_side_masks(const struct oct_op *op, const struct oct_side *side);

enum octet_status oct_side_check(struct oct_side *side, const char *name,
                                 const struct octet_operand *given,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* how: all but qtype and method, which are the setting's. Codes, scale and zero point go where the
 * side's value.quantized has data; else into working memory. */
enum octet_status oct_side_quantize(struct oct_op *op, struct oct_side *side,
                                    const struct oct_setting *setting, struct oct_how *how,
                                    const char *tile_field,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Quantized by a setting: gradients, residuals. stats may be NULL. *written (may be NULL): the
 * numbers that were quantized, where a record keeps all. */
enum octet_status oct_value_quantize(struct oct_op *op, const struct oct_source *source,
                                     const struct oct_setting *setting, struct oct_how *how,
                                     const char *tile_field, struct oct_stats *stats,
                                     struct octet_array *written, struct oct_value *out,
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

/* A result: where it is to go, or made, zeroed, in the results' arena. */
enum octet_status oct_op_result(const struct oct_op *op, const struct octet_array *to,
                                enum octet_dtype dtype, int32_t rank, const int64_t *dim,
                                struct octet_array *out, struct octet_error *err) OCTET_MUST_CHECK;

/* Figures of operands (forward), of the cotangent (backward). */
enum octet_status oct_op_forward_figures(struct oct_op *op, const struct oct_side *lhs,
                                         const struct oct_side *rhs,
                                         struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_op_backward_figures(struct oct_op *op,
                                          struct octet_error *err) OCTET_MUST_CHECK;

/* The last steps: stats, digest, cast of out. */
enum octet_status oct_op_finish(struct oct_op *op, const struct oct_side *lhs,
                                const struct oct_side *rhs,
                                struct octet_error *err) OCTET_MUST_CHECK;

#endif
