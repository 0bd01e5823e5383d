/* What differs between two plans. */
#include <string.h>
#include <xxhash.h>

#include "plan/record.h"

/* An index of a plan's lines by (module, op). Lines that share both (matmuls that nothing looks up)
 * are told apart by how many of the same came before. */
struct line_index {
    const octet_plan *plan;
    uint32_t *slots; /* line + 1 */
    uint32_t mask;
};

static uint64_t line_hash(const struct octet_interception *line)
{
    return XXH3_64bits_withSeed(line->module, strlen(line->module),
                                XXH3_64bits(line->op, strlen(line->op)));
}

static bool same_line(const struct octet_interception *a, const struct octet_interception *b)
{
    return strcmp(a->module, b->module) == 0 && strcmp(a->op, b->op) == 0;
}

static enum octet_status index_lines(struct line_index *index, const octet_plan *plan,
                                     octet_arena *arena, struct octet_error *err)
{
    uint32_t slots = 16;

    while (slots < 2 * plan->interception_count)
        slots *= 2;
    *index = (struct line_index){plan, OCTET_NEW_ARRAY(arena, slots, uint32_t), slots - 1};
    if (!index->slots)
        return octet_arena_exhausted(arena, err);
    for (uint32_t i = 0; i < plan->interception_count; i++) {
        uint32_t at = (uint32_t)line_hash(&plan->interceptions[i]) & index->mask;
        while (index->slots[at])
            at = (at + 1) & index->mask;
        index->slots[at] = i + 1;
    }
    return OCTET_OK;
}

/* The first line like `line` that is not taken yet; takes it. UINT32_MAX: there is none. */
static uint32_t take(const struct line_index *index, const struct octet_interception *line,
                     bool *taken)
{
    for (uint32_t at = (uint32_t)line_hash(line) & index->mask; index->slots[at];
         at = (at + 1) & index->mask) {
        uint32_t found = index->slots[at] - 1;
        if (!taken[found] && same_line(&index->plan->interceptions[found], line)) {
            taken[found] = true;
            return found;
        }
    }
    return UINT32_MAX;
}

static bool same_ints(const int32_t *a, size_t a_count, const int32_t *b, size_t b_count)
{
    return a_count == b_count && (a_count == 0 || memcmp(a, b, a_count * sizeof *a) == 0);
}

static bool same_pairs(const struct octet_rule *a, const struct octet_rule *b)
{
    if (a->additional_qt_config_count != b->additional_qt_config_count)
        return false;
    for (size_t i = 0; i < a->additional_qt_config_count; i++)
        if (strcmp(a->additional_qt_config[i].key, b->additional_qt_config[i].key) != 0 ||
            strcmp(a->additional_qt_config[i].value, b->additional_qt_config[i].value) != 0)
            return false;
    return true;
}

/* Do both do the same to an op that they take? */
static bool same_effect(const struct octet_rule *a, const struct octet_rule *b)
{
#define SAME_TEXT(field) (strcmp(a->field, b->field) == 0)
    return SAME_TEXT(weight_qtype) && SAME_TEXT(act_qtype) && SAME_TEXT(bwd_qtype) &&
           SAME_TEXT(weight_calibration_method) && SAME_TEXT(act_calibration_method) &&
           SAME_TEXT(bwd_calibration_method) && SAME_TEXT(tile_size) &&
           SAME_TEXT(bwd_weight_grad_tile_size) && SAME_TEXT(bwd_stochastic_rounding) &&
           a->act_static_scale == b->act_static_scale &&
           a->disable_channelwise_axes == b->disable_channelwise_axes &&
           same_ints(a->act_batch_axes, a->act_batch_axis_count, b->act_batch_axes,
                     b->act_batch_axis_count) &&
           same_ints(a->channelwise_noise_axes, a->channelwise_noise_axis_count,
                     b->channelwise_noise_axes, b->channelwise_noise_axis_count) &&
           a->sparsity.n == b->sparsity.n && a->sparsity.m == b->sparsity.m &&
           a->sparsity.start_step == b->sparsity.start_step &&
           a->sparsity.update_step == b->sparsity.update_step && same_pairs(a, b);
#undef SAME_TEXT
}

static bool same_rule(const octet_plan *a, int rule_a, const octet_plan *b, int rule_b)
{
    if (rule_a < 0 || rule_b < 0)
        return rule_a < 0 && rule_b < 0;
    return same_effect(octet_rules_get(a->rules, (size_t)rule_a),
                       octet_rules_get(b->rules, (size_t)rule_b));
}

static bool intercepts(const octet_plan *plan)
{
    for (uint32_t i = 0; i < plan->interception_count; i++)
        if (plan->interceptions[i].looked_up)
            return true;
    return false;
}

enum octet_status octet_plan_compare(const octet_plan *here, const octet_plan *against,
                                     octet_arena *arena, const struct octet_difference **out,
                                     size_t *count, struct octet_error *err)
{
    size_t lines = (size_t)here->interception_count + against->interception_count;
    struct octet_difference *found = OCTET_NEW_ARRAY(arena, lines, struct octet_difference);
    bool *taken = OCTET_NEW_ARRAY(arena, against->interception_count, bool);
    struct line_index index;

    if (!found || !taken)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = index_lines(&index, against, arena, err);
    if (status != OCTET_OK)
        return status;
    bool all = !intercepts(here) && !intercepts(against);
    *out = found;
    *count = 0;
    for (uint32_t i = 0; i < here->interception_count; i++) {
        const struct octet_interception *line = &here->interceptions[i];
        if (!line->looked_up && !all)
            continue;
        uint32_t other = take(&index, line, taken);
        struct octet_difference d = {line->module, line->op, OCTET_ONLY_HERE, line->rule, -1};
        if (other != UINT32_MAX) {
            d.kind = OCTET_CHANGED;
            d.against_rule = against->interceptions[other].rule;
            if (same_rule(here, line->rule, against, d.against_rule))
                continue;
        }
        found[(*count)++] = d;
    }
    for (uint32_t i = 0; i < against->interception_count; i++) {
        const struct octet_interception *line = &against->interceptions[i];
        if (!taken[i] && (line->looked_up || all))
            found[(*count)++] = (struct octet_difference){line->module, line->op,
                                                          OCTET_ONLY_AGAINST, -1, line->rule};
    }
    for (size_t i = 0; i < *count; i++) {
        found[i].module = octet_arena_copy(arena, found[i].module, strlen(found[i].module));
        found[i].op = octet_arena_copy(arena, found[i].op, strlen(found[i].op));
        if (!found[i].module || !found[i].op)
            return octet_arena_exhausted(arena, err);
    }
    return OCTET_OK;
}
