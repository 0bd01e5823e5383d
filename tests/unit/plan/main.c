/* The suite of lib/plan, and its fixture. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

void fixture_begin(struct fixture *f)
{
    ck_assert_int_eq(octet_context_create(NULL, &f->context, &f->err), OCTET_OK);
    f->arena = octet_arena_create(64 << 20);
    ck_assert_ptr_nonnull(f->arena);
}

void fixture_end(struct fixture *f)
{
    octet_arena_destroy(f->arena);
    octet_context_destroy(f->context);
}

const octet_config *fixture_config(struct fixture *f, const char *model,
                                   const char *const *settings)
{
    struct octet_pair pairs[32];
    struct octet_config_input input = {.name = model, .overrides = pairs};
    const octet_config *config;

    for (; *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        pairs[input.override_count++] = (struct octet_pair){
            octet_arena_copy(f->arena, *settings, (size_t)(equals - *settings)), equals + 1};
    }
    enum octet_status status = octet_config_build(f->context, f->arena, &input, &config, &f->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    return config;
}

octet_plan *fixture_plan(struct fixture *f, const octet_config *config, octet_rules *rules)
{
    struct octet_graph_options options = {.batch_size = 1, .sequence_length = 128};
    octet_plan *plan;
    enum octet_status status =
        octet_plan_create(f->context, config, rules, &options, NULL, &plan, &f->err);

    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    return plan;
}

int main(void)
{
    Suite *suite = suite_create("plan");

    suite_add_tcase(suite, plan_tests());
    suite_add_tcase(suite, check_tests());
    suite_add_tcase(suite, placement_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
