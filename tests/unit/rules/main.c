/* The suite of lib/rules, and its fixture. */
#include <stdlib.h>

#include "fixture.h"

void fixture_begin(struct fixture *f)
{
    ck_assert_int_eq(octet_context_create(NULL, &f->context, &f->err), OCTET_OK);
}

void fixture_end(struct fixture *f)
{
    octet_context_destroy(f->context);
}

octet_rules *fixture_rules(struct fixture *f, const struct octet_rule *rules, size_t count)
{
    octet_rules *out;
    enum octet_status status = octet_rules_create(f->context, rules, count, &out, &f->err);

    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    return out;
}

int fixture_match(struct fixture *f, const octet_rules *rules, const char *module, const char *op)
{
    int rule;
    enum octet_status status = octet_rules_match(rules, module, op, &rule, &f->err);

    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    return rule;
}

int main(void)
{
    Suite *suite = suite_create("rules");

    suite_add_tcase(suite, pattern_tests());
    suite_add_tcase(suite, rules_tests());
    suite_add_tcase(suite, yaml_tests());
    suite_add_tcase(suite, lookups_tests());
    suite_add_tcase(suite, torture_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
