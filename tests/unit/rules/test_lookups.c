/* Lookups as the real Qwix made them: scenarios of rules and modules, with the rule that each call
 * got.
 *
 * What could break: the order of rules, the list of ops, an empty list of ops, the whole path. The
 * small file is in the project; the full one is read where OCTET_GOLDEN or ../shared/golden has it.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define SMALL OCTET_SOURCE_DIR "/tests/golden/data/rules/lookups.json"
#define SHARED OCTET_SOURCE_DIR "/../shared/golden"

enum { RULES_MAX = 8 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static octet_rules *read_rules(struct fixture *f, const json_t *list)
{
    struct octet_rule rules[RULES_MAX] = {0};
    const char *ops[RULES_MAX][8];
    size_t count = json_array_size(list);

    ck_assert_uint_le(count, RULES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(list, i), *names = json_object_get(from, "op_names");
        const char *path = text_of(from, "module_path");
        /* Empty means '.*' to Octet; to Qwix it is a pattern that only the root module matches. */
        rules[i].module_path = path[0] ? path : "(?:)";
        rules[i].op_name_count = json_array_size(names);
        for (size_t k = 0; k < rules[i].op_name_count; k++)
            ops[i][k] = json_string_value(json_array_get(names, k));
        rules[i].op_names = ops[i];
        rules[i].weight_qtype = text_of(from, "weight_qtype");
        rules[i].act_qtype = text_of(from, "act_qtype");
        rules[i].bwd_qtype = text_of(from, "bwd_qtype");
    }
    return fixture_rules(f, rules, count);
}

static size_t check_calls(struct fixture *f, const octet_rules *rules, const json_t *calls,
                          const char *scenario, int64_t *matches)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *wanted = json_object_get(call, "rule");
        const char *module = text_of(call, "module"), *op = text_of(call, "op");
        int rule = fixture_match(f, rules, module, op);
        int expected = json_is_null(wanted) ? -1 : (int)json_integer_value(wanted);
        ck_assert_msg(rule == expected, "%s: %s of '%s' got rule %d, in Qwix %d", scenario, op,
                      module, rule, expected);
        if (rule >= 0)
            matches[rule]++;
    }
    return json_array_size(calls);
}

static size_t check_scenario(struct fixture *f, const json_t *scenario)
{
    const json_t *counts = json_object_get(scenario, "rule_match_counts");
    const json_t *unused = json_object_get(scenario, "unused_rules");
    const char *name = text_of(scenario, "name");
    int64_t matches[RULES_MAX] = {0};
    octet_rules *rules = read_rules(f, json_object_get(scenario, "rules"));
    size_t calls = check_calls(f, rules, json_object_get(scenario, "calls"), name, matches);
    size_t none = 0;

    calls += check_calls(f, rules, json_object_get(scenario, "second_run_calls"), name, matches);
    ck_assert_uint_eq(json_array_size(counts), octet_rules_count(rules));
    for (size_t i = 0; i < octet_rules_count(rules); i++) {
        ck_assert_int_eq(matches[i], json_integer_value(json_array_get(counts, i)));
        if (!matches[i])
            ck_assert_int_eq(json_integer_value(json_array_get(unused, none++)), (json_int_t)i);
    }
    ck_assert_uint_eq(json_array_size(unused), none);
    octet_rules_unref(rules);
    return calls;
}

static void check_file(const char *path)
{
    struct fixture f;
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    const json_t *scenarios = json_object_get(root, "scenarios");
    size_t calls = 0, count = json_array_size(scenarios);

    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    fixture_begin(&f);
    for (size_t i = 0; i < count; i++)
        calls += check_scenario(&f, json_array_get(scenarios, i));
    fixture_end(&f);
    json_decref(root);
    printf("%s: %zu scenarios, %zu lookups\n", path, count, calls);
    ck_assert_uint_ge(count, 14);
    ck_assert_uint_ge(calls, 400);
}

START_TEST(lookups_are_qwixs)
{
    check_file(SMALL);
}
END_TEST

static const char *full_data(void)
{
    static char path[4096];
    const char *folder = getenv("OCTET_GOLDEN");

    snprintf(path, sizeof path, "%s/qwix/rules.json", folder ? folder : SHARED);
    return path;
}

START_TEST(lookups_of_the_full_data_are_qwixs)
{
    check_file(full_data());
}
END_TEST

TCase *lookups_tests(void)
{
    TCase *tests = tcase_create("lookups");

    tcase_add_test(tests, lookups_are_qwixs);
    if (access(full_data(), R_OK) == 0)
        tcase_add_test(tests, lookups_of_the_full_data_are_qwixs);
    else
        printf("not run: lookups_of_the_full_data_are_qwixs (no %s)\n", full_data());
    return tests;
}
