/* Check: what an expert would say about a config and its plan before a run.
 *
 * For: rules that match nothing, modules that must (not) be quantized, what MaxText would refuse or
 * crash on, and settings known to be risky; each with the way out.
 * Not for: errors of the input itself, which octet_config_build and octet_plan_create return.
 *
 * Life: findings live in the arena that they were made in. */
#ifndef OCTET_CHECK_H
#define OCTET_CHECK_H

#include "octet/plan.h"

enum octet_severity { OCTET_NOTE = 1, OCTET_WARNING, OCTET_ERROR };

struct octet_finding {
    enum octet_severity severity;
    const char *id;      /* "unused-rule": stable, for filters */
    const char *subject; /* a module path, "rules[1]", a config key; may be "" */
    const char *message; /* one sentence: what is so */
    const char *remedy;  /* one sentence: the way out; may be "" */
};

struct octet_check_options {
    const char *const
        *require; /* each: some module must match, and all matmuls that match be quantized */
    size_t require_count;
    const char *const *forbid; /* each: no op of a matching module may be quantized */
    size_t forbid_count;
};

/* plan may be NULL when it could not be made for a reason that is itself a finding (plan_error then
 * says why). Errors: INVALID_ARGUMENT with field "require[0]" for a bad pattern. */
OCTET_API enum octet_status octet_check(octet_context *context, octet_arena *arena,
                                        const octet_config *config, const octet_plan *plan,
                                        const struct octet_error *plan_error,
                                        const struct octet_check_options *options,
                                        const struct octet_finding **out, size_t *count,
                                        struct octet_error *err) OCTET_MUST_CHECK;

#endif
