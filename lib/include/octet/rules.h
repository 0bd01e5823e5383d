/* Quantization rules: Qwix's QtRule, and which rule takes which op.
 *
 * For: rules as data, their checks, and the lookup (first match wins; the whole module path must
 * match, as with Python's re.fullmatch; an empty list of ops means all ops). Not for: what a rule's
 * settings do to numbers (quant), nor op counters (plan). Source of names and defaults: Qwix 0.1.8,
 * qconfig.QuantizationRule and QtRule; MaxText's quantizations.get_quantization_rule.
 *
 * Life: an octet_rules is immutable, counted by reference, and may be shared by threads. */
#ifndef OCTET_RULES_H
#define OCTET_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"
#include "octet/config.h"
#include "octet/context.h"

struct octet_sparsity {
    int32_t n, m; /* n of each m consecutive elements stay; m = 0: no sparsity */
    int32_t start_step, update_step;
};

/* Texts are never NULL in a rule that the library hands out; "" = not set. In rules handed to the
 * library NULL counts as "".
 * The library hands rules out in normal form: defaults written out (module_path ".*", calibration
 * methods "absmax", both lists of axes [0], update_step 1 of a sparsity), each op once, keys in
 * order, texts that mean the same spelt the same ("ABSMAX, 0.8" as "absmax,0.8", "0.25" as "1/4").
 * A tile size of "1" is one element, "1/1" and "1.0" are the whole axis, as Qwix tells int and
 * float apart. */
struct octet_rule {
    const char *module_path; /* regular expression, Python syntax; "" = ".*" */
    const char *const
        *op_names; /* dot_general, einsum, gmm, ragged_dot, conv_general_dilated, ... */
    size_t op_name_count;
    const char *weight_qtype, *act_qtype, *bwd_qtype; /* "float8_e4m3fn", ...; "" = not quantized */
    const char *weight_calibration_method, *act_calibration_method, *bwd_calibration_method;
    const char *tile_size;                 /* "128" or "1/4" or "0.25" */
    const char *bwd_weight_grad_tile_size; /* as tile_size */
    bool act_static_scale;
    bool disable_channelwise_axes;
    const char *bwd_stochastic_rounding; /* "uniform", "low_bit_uniform" */
    const int32_t *act_batch_axes;       /* [act_batch_axis_count]; count 0 = [0] */
    size_t act_batch_axis_count;
    const int32_t *channelwise_noise_axes; /* count 0 = [0] */
    size_t channelwise_noise_axis_count;
    struct octet_sparsity sparsity;
    const struct octet_pair *additional_qt_config; /* Qwix's own keys */
    size_t additional_qt_config_count;
};

typedef struct octet_rules octet_rules;

/* Copies, checks and compiles. Errors: INVALID_ARGUMENT with field "rules[2].module_path" and so
 * on; *out has one reference. count may be 0: nothing is quantized. */
OCTET_API enum octet_status octet_rules_create(const octet_context *context,
                                               const struct octet_rule *rules, size_t count,
                                               octet_rules **out,
                                               struct octet_error *err) OCTET_MUST_CHECK;
/* A rules file: "rules: [{module_path: ..., ...}]" (API.md). Field of errors: "rules[2].act_qtype".
 */
OCTET_API enum octet_status octet_rules_parse(const octet_context *context, const char *yaml,
                                              size_t length, octet_rules **out,
                                              struct octet_error *err) OCTET_MUST_CHECK;
/* MaxText's keys -> rules (quantization, quantize_mtp, calibration methods, shard count, sparsity).
 */
OCTET_API enum octet_status octet_rules_from_config(const octet_context *context,
                                                    const octet_config *config, octet_rules **out,
                                                    struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API octet_rules *octet_rules_ref(octet_rules *rules);
OCTET_API void octet_rules_unref(octet_rules *rules); /* NULL is fine */

OCTET_API size_t octet_rules_count(const octet_rules *rules);
OCTET_API const struct octet_rule *octet_rules_get(const octet_rules *rules, size_t index);

/* *rule = index of the first rule that takes op `op_name` of the module at `module_path`, or -1.
 * Errors: INVALID_ARGUMENT "rules[i].module_path" when the match limit is reached. */
OCTET_API enum octet_status octet_rules_match(const octet_rules *rules, const char *module_path,
                                              const char *op_name, int *rule,
                                              struct octet_error *err) OCTET_MUST_CHECK;

/* 128 bits that differ when any field of any rule differs; for caches of the context that the rules
 * were made with (another context gives the same rules another digest). */
OCTET_API void octet_rules_digest(const octet_rules *rules, uint64_t digest[2]);

/* Does the whole of `text` match `pattern` (Python syntax)? For octet check --require, --forbid.
 * A pattern is immutable and may be shared by threads. Errors have no field: INVALID_ARGUMENT for a
 * pattern that Python refuses ("... at position 8 of '...'"), one that is too long or too deep,
 * and, of a match, when it takes more than pattern_match_steps or the text is not UTF-8. */
typedef struct octet_pattern octet_pattern;
OCTET_API enum octet_status octet_pattern_create(const octet_context *context, const char *pattern,
                                                 octet_pattern **out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status octet_pattern_match(const octet_pattern *pattern, const char *text,
                                                bool *matches,
                                                struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_pattern_destroy(octet_pattern *pattern);

#endif
