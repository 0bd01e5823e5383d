/* A product under a rule on a device: what is common to dot_general and grouped matmuls, and to
 * calls from models and from the public functions. Shapes, settings and figures are those of
 * lib/quant's own calls (quant/pass.h), foreseen without numbers. */
#ifndef OCTET_BACKENDS_CALL_H
#define OCTET_BACKENDS_CALL_H

#include "backends/product.h"
#include "quant/pass.h"

/* One operand on the device. */
struct oct_device_side {
    uint64_t key, saved_form;
    struct oct_device_array value;   /* as it is multiplied */
    struct oct_device_array numbers; /* before quantization; block NULL: not there yet */
};

struct oct_call {
    struct oct_pass pass;
    struct octet_product_options options;
    struct octet_rule plain;
    struct octet_product out;
    struct octet_operand lhs_given, rhs_given;
    struct oct_work work;
    struct oct_device_side lhs, rhs;
    struct oct_device_array cotangent;
};

/* Does the device take codes of that type, made so? UNIMPLEMENTED with the field. */
enum octet_status oct_how_check(const struct octet_capabilities *capabilities,
                                const struct oct_qtype *qtype, const char *method,
                                const char *qtype_field, const char *method_field,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* Checks all that shapes and settings tell, among it what the backend does not take (UNIMPLEMENTED
 * with the setting's field). What pass->op points to are the call's. */
enum octet_status oct_call_begin(struct oct_call *call, const struct oct_backend_product *product,
                                 const struct octet_operand *lhs, const struct octet_operand *rhs,
                                 const struct octet_array *group_sizes,
                                 const struct octet_array *cotangent,
                                 struct octet_error *err) OCTET_MUST_CHECK;
void oct_call_end(struct oct_call *call);

/* Both sides' values. */
enum octet_status oct_call_quantize(struct oct_call *call,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Leaves what backward needs under `saved`; finds it again. */
enum octet_status oct_call_save(struct oct_call *call, uint64_t saved,
                                struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_call_load(struct oct_call *call, uint64_t saved,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* A side's numbers, found or brought there. */
enum octet_status oct_call_numbers(struct oct_call *call, bool is_lhs, struct oct_device_array *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* The cotangent in the result's dtype. */
enum octet_status oct_call_cotangent(struct oct_call *call,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* A gradient or residual under a setting; how: all but qtype and method. is_cotangent: counted in
 * its figures. */
enum octet_status oct_call_quantize_value(struct oct_call *call, const struct oct_device_array *x,
                                          const struct oct_setting *setting, struct oct_how *how,
                                          const char *tile_field, bool is_cotangent,
                                          struct oct_device_array *out,
                                          struct octet_error *err) OCTET_MUST_CHECK;

/* The op's result, in to_out's dtype if there is one. */
enum octet_status oct_device_dot_forward(struct oct_call *call, struct oct_device_array *out,
                                         struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_device_grouped_forward(struct oct_call *call, struct oct_device_array *out,
                                             struct octet_error *err) OCTET_MUST_CHECK;
/* The gradient of lhs, or of rhs, in `dtype` if that is not unspecified. */
enum octet_status oct_device_dot_gradient(struct oct_call *call, bool for_lhs,
                                          enum octet_dtype dtype, struct oct_device_array *out,
                                          struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_device_grouped_gradient(struct oct_call *call, bool for_lhs,
                                              enum octet_dtype dtype, struct oct_device_array *out,
                                              struct octet_error *err) OCTET_MUST_CHECK;

/* Figures of the operands, from their codes as the device made them. */
enum octet_status oct_call_figures(struct oct_call *call, struct octet_error *err) OCTET_MUST_CHECK;

#endif
