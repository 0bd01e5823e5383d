/* The fields of a rule: what each may say, and its normal form.
 *
 * For: octet_rules_create, which checks all fields of a rule with them, and lib/quant, which does
 * what they say. Not for: checks across fields (rules.c). Decision: a rule is kept in normal form
 * (defaults written out, "ABSMAX, 0.80" as "absmax,0.80", "0.25" as "1/4"), so that rules which
 * mean the same look the same in traces, digests and comparisons. Source: Qwix 0.1.8,
 * qconfig.QuantizationRule, providers/qt.QtRule, core/dot_general_qt. */
#ifndef OCTET_RULES_FIELDS_H
#define OCTET_RULES_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "octet/arena.h"
#include "octet/rules.h"

/* Every field of struct octet_rule, by kind: parser, checks and digest read these lists. */
#define OCT_RULE_TEXTS(X)                                                                          \
    X(module_path, PATH)                                                                           \
    X(weight_qtype, QTYPE)                                                                         \
    X(act_qtype, QTYPE)                                                                            \
    X(bwd_qtype, QTYPE)                                                                            \
    X(weight_calibration_method, METHOD)                                                           \
    X(act_calibration_method, METHOD)                                                              \
    X(bwd_calibration_method, METHOD)                                                              \
    X(tile_size, TILE)                                                                             \
    X(bwd_weight_grad_tile_size, TILE)                                                             \
    X(bwd_stochastic_rounding, ROUNDING)
#define OCT_RULE_BOOLS(X)                                                                          \
    X(act_static_scale)                                                                            \
    X(disable_channelwise_axes)
/* name, name of its count, smallest and largest axis */
#define OCT_RULE_AXES(X)                                                                           \
    X(act_batch_axes, act_batch_axis_count, -6, 5)                                                 \
    X(channelwise_noise_axes, channelwise_noise_axis_count, 0, 5)
#define OCT_RULE_SPARSITY(X)                                                                       \
    X(n)                                                                                           \
    X(m)                                                                                           \
    X(start_step)                                                                                  \
    X(update_step)

/* The functions that Qwix intercepts, and MaxText's grouped matmul. */
#define OCT_RULE_OPS(X)                                                                            \
    X(dot_general)                                                                                 \
    X(einsum)                                                                                      \
    X(gmm)                                                                                         \
    X(ragged_dot)                                                                                  \
    X(conv_general_dilated)

enum oct_rule_op {
#define OCT_RULE_OP_ENUM(name) OCT_RULE_OP_##name,
    OCT_RULE_OPS(OCT_RULE_OP_ENUM)
#undef OCT_RULE_OP_ENUM
        OCT_RULE_OP_COUNT
};

enum oct_field_kind {
    OCT_FIELD_PATH,
    OCT_FIELD_QTYPE,
    OCT_FIELD_METHOD,
    OCT_FIELD_TILE,
    OCT_FIELD_ROUNDING,
    OCT_FIELD_BOOL, /* of additional_qt_config only */
};

/* *out = `given` (which may be NULL) in normal form, in the arena or a constant.
 * Errors: INVALID_ARGUMENT with field `field`; RESOURCE_EXHAUSTED. */
enum octet_status oct_field_read(octet_arena *arena, enum oct_field_kind kind, const char *field,
                                 const char *given, const char **out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* A key of additional_qt_config with its value, both in normal form. Field of errors:
 * "additional_qt_config[key]". */
enum octet_status oct_field_read_additional(octet_arena *arena, const struct octet_pair *given,
                                            struct octet_pair *out,
                                            struct octet_error *err) OCTET_MUST_CHECK;

/* The op, or OCT_RULE_OP_COUNT. */
enum oct_rule_op oct_rule_op_find(const char *name);
const char *oct_rule_op_name(enum oct_rule_op op);

/* INVALID_ARGUMENT: `what` ("an op") is unknown; names the nearest of `names` and all of them. */
enum octet_status oct_field_unknown(const char *field, const char *what, const char *given,
                                    const char *const *names, size_t count,
                                    struct octet_error *err);

/* Of normal forms. Symmetric: the range is [-a, a]. */
bool oct_method_is_symmetric(const char *method);
enum oct_method { OCT_METHOD_ABSMAX, OCT_METHOD_MINMAX, OCT_METHOD_RMS, OCT_METHOD_FIXED };
/* "fixed,-2,2" is FIXED with 2 numbers; returns how many there are. */
int oct_method_numbers(const char *method, enum oct_method *kind, double numbers[2]);
/* Elements of a tile of an axis of `dim`: "128" is 128, "1/4" and "0.25" are round(dim / 4), half
 * to even as Python rounds. May be 0, and need not divide dim. */
int64_t oct_tile_elements(const char *tile, int64_t dim);
/* Has codes for a range that is not symmetric. */
bool oct_qtype_has_zero_point(const char *qtype);
/* The one tile size that a block-scaled type takes; 0: any. */
int oct_qtype_block(const char *qtype);

#endif
