/* A set of rules: copied, checked, compiled; see octet/rules.h.
 *
 * Decision: what Qwix would refuse only when it meets the first matmul (an asymmetric method for
 * FP8, a block-scaled type without its tile) is refused here, since such a rule can never run. */
#include "rules/rules_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context_private.h"
#include "rules/fields.h"

/* ---- one rule ---- */

static enum octet_status copy_texts(octet_arena *arena, const struct octet_rule *given,
                                    struct octet_rule *out, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

#define TEXT(name, kind)                                                                           \
    if (!status)                                                                                   \
        status = oct_field_read(arena, OCT_FIELD_##kind, #name, given->name, &out->name, err);
    OCT_RULE_TEXTS(TEXT)
#undef TEXT
    return status;
}

/* Each op once, in the order given. */
static enum octet_status copy_ops(octet_arena *arena, const struct octet_rule *given,
                                  struct octet_rule *out, unsigned *ops, struct octet_error *err)
{
    static const char *const names[] = {
#define NAME(name) #name,
        OCT_RULE_OPS(NAME)
#undef NAME
    };
    const char **list = OCTET_NEW_ARRAY(arena, OCT_RULE_OP_COUNT, const char *);

    *ops = 0;
    out->op_names = list;
    if (!list)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < given->op_name_count; i++) {
        const char *name = given->op_names[i] ? given->op_names[i] : "";
        enum oct_rule_op op = oct_rule_op_find(name);
        if (op == OCT_RULE_OP_COUNT)
            return oct_field_unknown("op_names", "op that rules can take", name, names,
                                     OCT_RULE_OP_COUNT, err);
        if (!(*ops & 1u << op))
            list[out->op_name_count++] = oct_rule_op_name(op);
        *ops |= 1u << op;
    }
    return OCTET_OK;
}

/* An empty list is the default, (0,). */
static enum octet_status copy_axes(octet_arena *arena, const char *field, const int32_t *given,
                                   size_t count, int32_t least, int32_t most, const int32_t **out,
                                   size_t *out_count, struct octet_error *err)
{
    size_t limit = (size_t)(most - least) + 1;

    if (count > limit)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "%zu axes; at most %zu exist", count,
                          limit);
    int32_t *copy = OCTET_NEW_ARRAY(arena, count ? count : 1, int32_t);
    if (!copy)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < count; i++) {
        if (given[i] < least || given[i] > most)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "axis %d is outside of %d to %d",
                              given[i], least, most);
        for (size_t k = 0; k < i; k++)
            if (copy[k] == given[i])
                return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "axis %d stands twice",
                                  given[i]);
        copy[i] = given[i];
    }
    *out = copy;
    *out_count = count ? count : 1;
    return OCTET_OK;
}

static enum octet_status copy_sparsity(const struct octet_sparsity *given,
                                       struct octet_sparsity *out, struct octet_error *err)
{
    *out = *given;
    if (!given->m && !given->n && !given->start_step && !given->update_step)
        return OCTET_OK;
    if (given->m < 1)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "sparsity.m",
                          "%d is not positive; n of each m consecutive weights stay", given->m);
    if (given->n < 1 || given->n > given->m)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "sparsity.n",
                          "%d is outside of 1 to m = %d; n of each m consecutive weights stay",
                          given->n, given->m);
    if (given->start_step < 0 || given->update_step < 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT,
                          given->start_step < 0 ? "sparsity.start_step" : "sparsity.update_step",
                          "%d is negative",
                          given->start_step < 0 ? given->start_step : given->update_step);
    if (!out->update_step)
        out->update_step = 1; /* Qwix's default */
    return OCTET_OK;
}

static int compare_pairs(const void *left, const void *right)
{
    return strcmp(((const struct octet_pair *)left)->key, ((const struct octet_pair *)right)->key);
}

/* In order of keys. */
static enum octet_status copy_additional(octet_arena *arena, const struct octet_rule *given,
                                         struct octet_rule *out, struct octet_error *err)
{
    size_t count = given->additional_qt_config_count;

    if (count > 64) /* more than there are keys */
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "additional_qt_config",
                          "%zu keys; Qwix has fewer", count);
    struct octet_pair *pairs = OCTET_NEW_ARRAY(arena, count, struct octet_pair);
    if (!pairs)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < count; i++) {
        enum octet_status status =
            oct_field_read_additional(arena, &given->additional_qt_config[i], &pairs[i], err);
        if (status)
            return status;
    }
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 1; i < count; i++)
        if (!strcmp(pairs[i - 1].key, pairs[i].key))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "additional_qt_config",
                              "key '%s' stands twice", pairs[i].key);
    out->additional_qt_config = pairs;
    out->additional_qt_config_count = count;
    return OCTET_OK;
}

/* ---- across fields ---- */

struct side {
    const char *qtype, *method, *qtype_field, *method_field;
};

static enum octet_status check_side(const struct side *side, struct octet_error *err)
{
    if (!side->qtype[0] || oct_method_is_symmetric(side->method) ||
        oct_qtype_has_zero_point(side->qtype))
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, side->method_field,
                      "'%s' asks for a range that is not symmetric, which %s '%s' cannot have "
                      "(int8 and int4 can); use absmax",
                      side->method, side->qtype_field, side->qtype);
}

/* Qwix multiplies codes with at most one zero point, and has no backward for any. */
static enum octet_status check_zero_points(const struct octet_rule *rule, struct octet_error *err)
{
    bool weight =
        rule->weight_qtype[0] && !oct_method_is_symmetric(rule->weight_calibration_method);
    bool act = rule->act_qtype[0] && !oct_method_is_symmetric(rule->act_calibration_method);

    if (weight && act)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "act_calibration_method",
                          "'%s' and weight_calibration_method '%s' both ask for a range that is "
                          "not symmetric; only one operand can have one",
                          rule->act_calibration_method, rule->weight_calibration_method);
    if ((weight || act) && rule->bwd_qtype[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT,
                          weight ? "weight_calibration_method" : "act_calibration_method",
                          "'%s' asks for a range that is not symmetric, which has no quantized "
                          "backward; leave bwd_qtype '%s' out, or use absmax",
                          weight ? rule->weight_calibration_method : rule->act_calibration_method,
                          rule->bwd_qtype);
    return OCTET_OK;
}

/* Block-scaled types come with one size of tile, and only the forward pass tiles both operands. */
static enum octet_status check_blocks(const struct octet_rule *rule, struct octet_error *err)
{
    const char *forward[] = {rule->weight_qtype, rule->act_qtype};

    if (oct_qtype_block(rule->bwd_qtype))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "bwd_qtype",
                          "'%s' needs tiles, which gradients do not have; use float8_e5m2",
                          rule->bwd_qtype);
    for (int i = 0; i < 2; i++) {
        int block = oct_qtype_block(forward[i]);
        if (block && strcmp(rule->tile_size, block == 32 ? "32" : "16"))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "tile_size",
                              "%s%s%s: the tiles of %s '%s' have %d elements",
                              rule->tile_size[0] ? "'" : "is not set", rule->tile_size,
                              rule->tile_size[0] ? "'" : "", i ? "act_qtype" : "weight_qtype",
                              forward[i], block);
    }
    return OCTET_OK;
}

static enum octet_status check_together(const struct octet_rule *rule, unsigned ops,
                                        struct octet_error *err)
{
    const struct side sides[] = {
        {rule->weight_qtype, rule->weight_calibration_method, "weight_qtype",
         "weight_calibration_method"},
        {rule->act_qtype, rule->act_calibration_method, "act_qtype", "act_calibration_method"},
        {rule->bwd_qtype, rule->bwd_calibration_method, "bwd_qtype", "bwd_calibration_method"},
    };
    enum octet_status status = OCTET_OK;

    if (rule->act_static_scale && !rule->act_qtype[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "act_static_scale",
                          "true needs act_qtype, which is not set");
    if (rule->weight_qtype[0] && rule->tile_size[0] &&
        (ops & 1u << OCT_RULE_OP_conv_general_dilated))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "tile_size",
                          "'%s', but conv_general_dilated in op_names cannot be tiled",
                          rule->tile_size);
    for (size_t i = 0; i < 3 && !status; i++)
        status = check_side(&sides[i], err);
    if (!status)
        status = check_zero_points(rule, err);
    if (!status)
        status = check_blocks(rule, err);
    return status;
}

/* ---- the set ---- */

static enum octet_status build_rule(octet_arena *arena, octet_arena *scratch,
                                    const struct octet_limits *limits,
                                    const struct octet_rule *given, struct octet_rule *out,
                                    struct oct_rule_matcher *matcher, struct octet_error *err)
{
    enum octet_status status = copy_texts(arena, given, out, err);

    if (!status)
        status = copy_ops(arena, given, out, &matcher->ops, err);
#define BOOL(name) out->name = given->name;
    OCT_RULE_BOOLS(BOOL)
#undef BOOL
#define AXES(name, count, least, most)                                                             \
    if (!status)                                                                                   \
        status = copy_axes(arena, #name, given->name, given->count, least, most, &out->name,       \
                           &out->count, err);
    OCT_RULE_AXES(AXES)
#undef AXES
    if (!status)
        status = copy_sparsity(&given->sparsity, &out->sparsity, err);
    if (!status)
        status = copy_additional(arena, given, out, err);
    if (!status)
        status = check_together(out, matcher->ops, err);
    if (status)
        return status;
    octet_arena_reset(scratch);
    status = oct_pattern_compile(arena, scratch, limits, out->module_path, &matcher->pattern, err);
    if (status)
        octet_error_within(err, "module_path");
    return status;
}

static enum octet_status build(const octet_context *context, octet_rules *rules,
                               octet_arena *scratch, const struct octet_rule *given,
                               struct octet_error *err)
{
    const struct octet_limits *limits = octet_context_limits(context);

    for (size_t i = 0; i < rules->count; i++) {
        enum octet_status status = build_rule(rules->arena, scratch, limits, &given[i],
                                              &rules->rules[i], &rules->matchers[i], err);
        if (status) {
            char field[32];
            snprintf(field, sizeof field, "rules[%zu]", i);
            octet_error_within(err, field);
            return status;
        }
    }
    oct_rules_compute_digest(rules, context->hash_seed);
    return OCTET_OK;
}

enum octet_status oct_rules_create_in(const octet_context *context, octet_arena *take,
                                      octet_arena *scratch, const struct octet_rule *given,
                                      size_t count, octet_rules **out, struct octet_error *err)
{
    uint32_t most = octet_context_limits(context)->rules;
    enum octet_status status;
    octet_rules *rules;

    if (count > most) {
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "rules",
                            "%zu rules; at most %u are allowed", count, most);
        goto failed;
    }
    rules = OCTET_NEW(take, octet_rules);
    if (rules) {
        rules->rules = OCTET_NEW_ARRAY(take, count, struct octet_rule);
        rules->matchers = OCTET_NEW_ARRAY(take, count, struct oct_rule_matcher);
    }
    if (!rules || !rules->rules || !rules->matchers) {
        status = octet_arena_exhausted(take, err);
        goto failed;
    }
    atomic_init(&rules->references, 1);
    rules->arena = take;
    rules->count = count;
    status = build(context, rules, scratch, given, err);
    if (status)
        goto failed;
    *out = rules;
    return OCTET_OK;

failed:
    octet_arena_destroy(take);
    return status;
}

enum octet_status octet_rules_create(const octet_context *context, const struct octet_rule *given,
                                     size_t count, octet_rules **out, struct octet_error *err)
{
    uint64_t budget = octet_context_limits(context)->plan_memory_bytes;
    octet_arena *arena = octet_arena_create(budget), *scratch = octet_arena_create(budget);
    enum octet_status status;

    if (arena && scratch) {
        status = oct_rules_create_in(context, arena, scratch, given, count, out, err);
    } else {
        octet_arena_destroy(arena);
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: rules");
    }
    octet_arena_destroy(scratch);
    return status;
}

octet_rules *octet_rules_ref(octet_rules *rules)
{
    /* Relaxed: whoever adds a reference holds one. */
    atomic_fetch_add_explicit(&rules->references, 1, memory_order_relaxed);
    return rules;
}

void octet_rules_unref(octet_rules *rules)
{
    /* Acquire and release: all uses by others come before the end. */
    if (rules && atomic_fetch_sub_explicit(&rules->references, 1, memory_order_acq_rel) == 1)
        octet_arena_destroy(rules->arena);
}

size_t octet_rules_count(const octet_rules *rules)
{
    return rules->count;
}

const struct octet_rule *octet_rules_get(const octet_rules *rules, size_t index)
{
    return &rules->rules[index];
}
