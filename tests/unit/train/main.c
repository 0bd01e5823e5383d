/* The suite of lib/train, and its fixture. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

void fixture_begin(struct fixture *f)
{
    *f = (struct fixture){0};
    ck_assert_int_eq(octet_context_create(NULL, &f->context, &f->err), OCTET_OK);
    f->arena = octet_arena_create((size_t)1 << 30);
    ck_assert_ptr_nonnull(f->arena);
    ck_assert_int_eq(octet_workers_create(NULL, 2, &f->workers, &f->err), OCTET_OK);
    f->compute = (struct octet_compute){f->arena, f->workers, NULL};
}

void fixture_end(struct fixture *f)
{
    octet_workers_destroy(f->workers);
    octet_arena_destroy(f->arena);
    octet_context_destroy(f->context);
}

struct octet_config_input fixture_input(struct fixture *f, const char *model,
                                        const char *const *settings)
{
    enum { SETTINGS_MAX = 40 };
    struct octet_pair *pairs = OCTET_NEW_ARRAY(f->arena, SETTINGS_MAX, struct octet_pair);
    struct octet_config_input input = {.name = model, .overrides = pairs};

    for (; *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        ck_assert_uint_lt(input.override_count, SETTINGS_MAX);
        pairs[input.override_count++] = (struct octet_pair){
            octet_arena_copy(f->arena, *settings, (size_t)(equals - *settings)), equals + 1};
    }
    return input;
}

const octet_config *fixture_config(struct fixture *f, const char *model,
                                   const char *const *settings)
{
    struct octet_config_input input = fixture_input(f, model, settings);
    const octet_config *config;

    ck_assert_ok(f, octet_config_build(f->context, f->arena, &input, &config, &f->err));
    return config;
}

octet_plan *fixture_plan(struct fixture *f, const char *model, const char *const *settings)
{
    const octet_config *config = fixture_config(f, model, settings);
    octet_plan *plan;

    ck_assert_ok(f, octet_plan_create(f->context, config, NULL, NULL, NULL, &plan, &f->err));
    return plan;
}

struct octet_batch fixture_batch(struct fixture *f, int64_t rows, int64_t length, int64_t vocab,
                                 uint32_t seed)
{
    struct octet_batch batch = {.tokens = {.data = NULL}};
    int64_t dim[] = {rows, length};

    ck_assert_ok(f, octet_array_create(f->arena, OCTET_DTYPE_S32, 2, dim, &batch.tokens, &f->err));
    for (int64_t e = 0; e < rows * length; e++) {
        seed = seed * 1664525 + 1013904223;
        ((int32_t *)batch.tokens.data)[e] = (int32_t)((seed >> 8) % (uint32_t)vocab);
    }
    return batch;
}

int main(void)
{
    Suite *suite = suite_create("train");

    suite_add_tcase(suite, parameters_tests());
    suite_add_tcase(suite, initialise_tests());
    suite_add_tcase(suite, optimizer_tests());
    suite_add_tcase(suite, session_tests());
    suite_add_tcase(suite, checkpoint_tests());
    suite_add_tcase(suite, placed_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
