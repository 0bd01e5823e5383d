/* Chains of base_config among models, on models of the test's own: the embedded table is replaced
 * at link time, since no real model is based on another one.
 *
 * What could break: a base that wins over what is based on it; a circle that never ends. */
#include <stdlib.h>

#include "config_fixture.h"
#include "models/known_models.h"

#define MODEL(name, text)                                                                          \
    {                                                                                              \
        name, text, sizeof text - 1                                                                \
    }

const struct oct_known_model oct_known_models[] = {
    MODEL("a", "base_config: b\nsteps: 1\n"),
    MODEL("b", "base_config: c\nsteps: 2\nvocab_size: 2\n"),
    MODEL("c", "base_config: base.yml\nsteps: 3\nvocab_size: 3\nbase_emb_dim: 3\n"),
    MODEL("deep0", "base_config: deep1\n"),
    MODEL("deep1", "base_config: deep2\n"),
    MODEL("deep2", "base_config: deep3\n"),
    MODEL("deep3", "base_config: deep4\n"),
    MODEL("deep4", "base_config: deep5\n"),
    MODEL("deep5", "base_config: deep6\n"),
    MODEL("deep6", "base_config: deep7\n"),
    MODEL("deep7", "base_config: deep8\n"),
    MODEL("deep8", "base_config: deep9\n"),
    MODEL("deep9", "steps: 9\n"),
    MODEL("loop1", "base_config: loop2\n"),
    MODEL("loop2", "base_config: loop1\n"),
    MODEL("path", "base_config: ../c\n"),
    MODEL("self", "base_config: self\n"),
};
const size_t oct_known_model_count = sizeof oct_known_models / sizeof oct_known_models[0];

static void check_chain(const octet_config *config, enum octet_config_origin origin)
{
    ck_assert_int_eq(oct_config_int(config, OCT_KEY_steps), 1);
    ck_assert_int_eq(oct_config_int(config, OCT_KEY_vocab_size), 2);
    ck_assert_int_eq(oct_config_int(config, OCT_KEY_base_emb_dim), 3);
    ck_assert_int_eq(oct_config_origin(config, OCT_KEY_base_emb_dim), origin);
}

START_TEST(nearer_configs_win)
{
    check_chain(config_of("a", NULL, NULL, NULL), OCTET_FROM_MODEL);
    check_chain(config_of(NULL, "base_config: a\n", NULL, NULL), OCTET_FROM_YAML);
    const octet_config *config = config_of("a", "base_config: c\n", NULL, NULL);
    ck_assert_int_eq(oct_config_int(config, OCT_KEY_steps), 3);
}
END_TEST

static void refused(const char *name, const char *yaml, enum octet_status status, const char *why)
{
    const octet_config *config;

    ck_assert_int_eq(try_config(name, yaml, NULL, NULL, &config), status);
    ck_assert_str_eq(err.field, "yaml[base_config]");
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' does not say '%s'", err.text, why);
}

START_TEST(circles_and_depth_are_errors)
{
    refused("loop1", NULL, OCTET_INVALID_ARGUMENT, "is based on itself");
    refused(NULL, "base_config: loop2\n", OCTET_INVALID_ARGUMENT, "is based on itself");
    refused("self", NULL, OCTET_INVALID_ARGUMENT, "'self' is based on itself");
    refused("deep0", NULL, OCTET_INVALID_ARGUMENT, "more than 8 configs");
    ck_assert_int_eq(oct_config_int(config_of("deep1", NULL, NULL, NULL), OCT_KEY_steps), 9);
    refused("path", NULL, OCTET_NOT_FOUND, "looks like a path");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base_config");
    TCase *tests = tcase_create("base_config");

    tcase_add_checked_fixture(tests, config_setup, config_teardown);
    tcase_add_test(tests, nearer_configs_win);
    tcase_add_test(tests, circles_and_depth_are_errors);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
