/* Plan: a graph with its rules resolved. The trace that users read is the plan.
 *
 * For: which rule takes which op (first match wins, op counters per module as Qwix counts them),
 * coverage, costs, and the difference of two plans.
 * Not for: running it (exec).
 *
 * Life: a plan is immutable and counted by reference; it holds its own copy of all that it says, so
 * the config, graph and request arena that it came from may go first. */
#ifndef OCTET_PLAN_H
#define OCTET_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/graph.h"
#include "octet/rules.h"

typedef struct octet_plan octet_plan;

/* One line of the trace: all executions of one op of one module. Here and below a sum that does not
 * fit is INT64_MAX. */
struct octet_interception {
    const char *module;   /* "decoder/moe_layers/self_attention/wq_b" */
    const char *op;       /* "dot_general0"; "gmm", and what is not looked up, without a number */
    const char *equation; /* an einsum's, "btkgd,bskd->bkgts"; else "" */
    int rule;             /* -1: none */
    enum octet_lookup kind;
    struct octet_shape lhs, rhs, out; /* of one execution */
    int64_t count; /* executions in one forward pass; 0: a lookup that runs nothing */
    int64_t flops; /* of all executions; a multiply-add is two */
    int64_t
        weight_bytes; /* of all parameters read as an operand, each counted once, in weight_dtype */
    bool logged;      /* Qwix prints the line at its DEBUG level */
    bool looked_up;   /* MaxText or Qwix asks for a rule: logged ones, and gmm under fp8_full */
    const char *backend; /* that runs it: "cpu", or the name of the capabilities */
};

struct octet_coverage {
    const char *block; /* "decoder/moe_layers", "mtp_block/mtp_layer_1"; "" for the total */
    int64_t flops_quantized, flops_total;
    int64_t weight_bytes_quantized, weight_bytes_total; /* total: all parameters of the block */
};

/* Config -> graph -> plan, or the same plan from the context's cache. rules NULL: the config's.
 * *out has one reference. Errors: as octet_graph_build and octet_rules_match. */
OCTET_API enum octet_status octet_plan_create(octet_context *context, const octet_config *config,
                                              octet_rules *rules,
                                              const struct octet_graph_options *options,
                                              const struct octet_cancel *cancel, octet_plan **out,
                                              struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API octet_plan *octet_plan_ref(octet_plan *plan);
OCTET_API void octet_plan_unref(octet_plan *plan); /* NULL is fine */

/* In order of execution; a module's op stands where it ran first. */
OCTET_API size_t octet_plan_interception_count(const octet_plan *plan);
OCTET_API const struct octet_interception *octet_plan_interception(const octet_plan *plan,
                                                                   size_t i);
OCTET_API octet_rules *octet_plan_rules(const octet_plan *plan); /* borrowed */
/* Rule indices that took no op, ascending. */
OCTET_API size_t octet_plan_unused_rules(const octet_plan *plan, const int32_t **out);
/* Index 0: the total; then the blocks in order of execution. */
OCTET_API size_t octet_plan_coverage(const octet_plan *plan, const struct octet_coverage **out);

struct octet_plan_totals {
    int64_t parameters;       /* elements of all parameters */
    int64_t parameter_bytes;  /* in weight_dtype */
    int64_t activation_bytes; /* of all activations that backward reads, no recomputation */
    int64_t flops_forward;    /* all ops, ruled or not */
    int64_t flops_backward;
    int64_t nodes;
    int64_t batch_size, sequence_length; /* as planned */
};
OCTET_API const struct octet_plan_totals *octet_plan_totals(const octet_plan *plan);
/* Parameters of the planned model, alphabetical; octet_parameter_shape gives stored shapes. */
OCTET_API size_t octet_plan_parameter_count(const octet_plan *plan);
OCTET_API const struct octet_tensor *octet_plan_parameter(const octet_plan *plan, size_t i);

enum octet_difference_kind { OCTET_CHANGED = 1, OCTET_ONLY_HERE, OCTET_ONLY_AGAINST };

struct octet_difference {
    const char *module, *op; /* in the arena */
    enum octet_difference_kind kind;
    int rule, against_rule; /* -1: none */
};

/* What differs, in order of execution here, then what only `against` has. Rules are compared by
 * what they say (all fields but module_path and op_names), not by index, so that a reordered list
 * does not show up; a line that is quantized here and not there is CHANGED. Matmuls that nothing
 * looks up count only when neither plan intercepts any. */
OCTET_API enum octet_status octet_plan_compare(const octet_plan *here, const octet_plan *against,
                                               octet_arena *arena,
                                               const struct octet_difference **out, size_t *count,
                                               struct octet_error *err) OCTET_MUST_CHECK;

/* Writes Qwix's own line, "[QWIX] module='...' op=... rule=...", without a newline. Returns its
 * length as snprintf does. */
OCTET_API int octet_interception_line(const struct octet_interception *interception, char *buffer,
                                      size_t size);

#endif
