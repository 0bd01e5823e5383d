/* Which rule takes an op: the first whose ops hold it and whose path matches all of the module's.
 * Source: Qwix 0.1.8, qconfig.QuantizationProvider. */
#include <stdio.h>
#include <string.h>

#include "rules/fields.h"
#include "rules/rules_private.h"

static bool takes_op(const struct oct_rule_matcher *matcher, enum oct_rule_op op)
{
    return !matcher->ops || (op < OCT_RULE_OP_COUNT && (matcher->ops >> op & 1));
}

enum octet_status octet_rules_match(const octet_rules *rules, const char *module_path,
                                    const char *op_name, int *rule, struct octet_error *err)
{
    enum oct_rule_op op = oct_rule_op_find(op_name);
    size_t length = strlen(module_path);
    bool matches = false;

    *rule = -1;
    for (size_t i = 0; i < rules->count; i++) {
        if (!takes_op(&rules->matchers[i], op))
            continue;
        enum octet_status status =
            oct_pattern_test(&rules->matchers[i].pattern, module_path, length, &matches, err);
        if (status) {
            char field[48];
            snprintf(field, sizeof field, "rules[%zu].module_path", i);
            octet_error_within(err, field);
            return status;
        }
        if (matches) {
            *rule = (int)i;
            break;
        }
    }
    return OCTET_OK;
}
