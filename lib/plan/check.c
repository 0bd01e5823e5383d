/* The checks of a plan: rules, required and forbidden modules, settings; see octet/check.h. */
#include "octet/check.h"

#include <stdio.h>
#include <string.h>

#include "plan/check_maxtext.h"
#include "plan/check_risks.h"
#include "plan/weights.h"

static void check_unused_rules(struct oct_findings *f)
{
    const int32_t *unused;
    size_t count = octet_plan_unused_rules(f->plan, &unused);

    for (size_t i = 0; i < count; i++) {
        const struct octet_rule *rule =
            octet_rules_get(octet_plan_rules(f->plan), (size_t)unused[i]);
        char subject[32];
        snprintf(subject, sizeof subject, "rules[%d]", unused[i]);
        oct_find(
            f, OCTET_ERROR, "unused-rule", subject,
            "compare module_path and op_names with the modules that `octet trace --table` lists; "
            "an earlier rule may take them all",
            "rule %d ('%s') takes no op", unused[i], rule->module_path);
    }
}

static bool quantized(const struct oct_findings *f, const struct octet_interception *line)
{
    return oct_rule_quantizes(octet_plan_rules(f->plan), line->rule);
}

/* A product of two activations (attention's) or with a norm's weight is no matmul that a user means
 * when naming a module whose weights are to be quantized. */
static bool is_weight_matmul(const struct octet_interception *line)
{
    return line->weight_bytes > 0 && strcmp(line->equation, "...k,k->...k") != 0;
}

static void check_required(struct oct_findings *f, const octet_pattern *pattern, const char *text)
{
    size_t matched = 0, lines = octet_plan_interception_count(f->plan);

    for (size_t i = 0; i < lines && f->status == OCTET_OK; i++) {
        const struct octet_interception *line = octet_plan_interception(f->plan, i);
        bool matches = false;
        if (!is_weight_matmul(line))
            continue;
        f->status = octet_pattern_match(pattern, line->module, &matches, f->err);
        matched += matches;
        if (matches && !quantized(f, line))
            oct_find(f, OCTET_ERROR, "required-unquantized", line->module,
                     "add a rule whose module_path matches it, or correct --require",
                     "op %s of '%s' must be quantized (required by '%s') and is not (rule %s)",
                     line->op, line->module, text,
                     line->rule < 0 ? "None" : "without weight_qtype");
    }
    if (!matched)
        oct_find(f, OCTET_ERROR, "required-missing", text,
                 "`octet inspect` and `octet trace --table` list the modules of this model",
                 "no module with a weight matmul matches the required pattern '%s'", text);
}

static void check_forbidden(struct oct_findings *f, const octet_pattern *pattern, const char *text)
{
    size_t lines = octet_plan_interception_count(f->plan);

    for (size_t i = 0; i < lines && f->status == OCTET_OK; i++) {
        const struct octet_interception *line = octet_plan_interception(f->plan, i);
        bool matches = false;
        if (!quantized(f, line))
            continue;
        f->status = octet_pattern_match(pattern, line->module, &matches, f->err);
        if (matches)
            oct_find(f, OCTET_ERROR, "forbidden-quantized", line->module,
                     "put a rule with this module_path and no weight_qtype before the others",
                     "op %s of '%s' must not be quantized (forbidden by '%s') and rule %d takes it",
                     line->op, line->module, text, line->rule);
    }
}

/* which: "require" or "forbid", for the field's name. */
static void
check_patterns(struct oct_findings *f, const char *which, const char *const *patterns, size_t count,
               void (*check)(struct oct_findings *, const octet_pattern *, const char *))
{
    for (size_t i = 0; i < count && f->status == OCTET_OK; i++) {
        octet_pattern *pattern;
        f->status = octet_pattern_create(f->context, patterns[i], &pattern, f->err);
        if (f->status != OCTET_OK) {
            char field[32];
            snprintf(field, sizeof field, "%s[%zu]", which, i);
            if (f->err)
                snprintf(f->err->field, sizeof f->err->field, "%s", field);
            return;
        }
        if (f->plan)
            check(f, pattern, patterns[i]);
        octet_pattern_destroy(pattern);
    }
}

static void check_settings(struct oct_findings *f)
{
    size_t count = octet_config_setting_count(f->config);
    bool override_given = oct_find_bool(f, override_model_config);

    for (size_t i = 0; i < count && f->status == OCTET_OK; i++) {
        struct octet_setting s;
        f->status = octet_config_setting(f->config, f->arena, i, &s, f->err);
        if (f->status != OCTET_OK)
            return;
        if (s.origin >= OCTET_FROM_YAML && !s.has_effect)
            oct_find(f, OCTET_NOTE, "no-effect", s.key, "",
                     "setting %s is known and has no effect on the trace", s.key);
        if (s.overrides_model && !override_given)
            oct_find(f, OCTET_ERROR, "override-model-config", s.key,
                     "add override_model_config=true, here and to MaxText's command line",
                     "MaxText refuses %s=%s, because the model sets it too; the trace applies it",
                     s.key, s.text);
    }
}

static void check_plan_error(struct oct_findings *f, const struct octet_error *error)
{
    if (error && error->status != OCTET_OK)
        oct_find(f, OCTET_ERROR, error->status == OCTET_UNIMPLEMENTED ? "unknown-layer" : "no-plan",
                 error->field,
                 error->status == OCTET_UNIMPLEMENTED || !error->field[0] ? ""
                                                                          : "choose another value",
                 "no trace can be made: %s", error->text);
}

enum octet_status octet_check(octet_context *context, octet_arena *arena,
                              const octet_config *config, const octet_plan *plan,
                              const struct octet_error *plan_error,
                              const struct octet_check_options *options,
                              const struct octet_finding **out, size_t *count,
                              struct octet_error *err)
{
    struct oct_findings f = {.context = context,
                             .arena = arena,
                             .config = config,
                             .plan = plan,
                             .status = OCTET_OK,
                             .err = err};

    check_plan_error(&f, plan_error);
    if (plan)
        check_unused_rules(&f);
    if (options) {
        check_patterns(&f, "require", options->require, options->require_count, check_required);
        check_patterns(&f, "forbid", options->forbid, options->forbid_count, check_forbidden);
    }
    if (f.status == OCTET_OK)
        oct_check_maxtext(&f);
    if (f.status == OCTET_OK)
        oct_check_risks(&f);
    if (f.status == OCTET_OK)
        check_settings(&f);
    *out = f.items;
    *count = f.count;
    return f.status;
}
