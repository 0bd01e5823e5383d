/* A context and a plan of a model, for the suites of lib/plan. */
#ifndef OCTET_TESTS_PLAN_FIXTURE_H
#define OCTET_TESTS_PLAN_FIXTURE_H

#include <check.h>

#include "octet/octet.h"

struct fixture {
    octet_context *context;
    octet_arena *arena;
    struct octet_error err;
};

void fixture_begin(struct fixture *f);
void fixture_end(struct fixture *f);
/* settings: "key=value" texts, ended by NULL. */
const octet_config *fixture_config(struct fixture *f, const char *model,
                                   const char *const *settings);
/* rules NULL: the config's. Fails the test when the plan cannot be made. */
octet_plan *fixture_plan(struct fixture *f, const octet_config *config, octet_rules *rules);
#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

TCase *plan_tests(void);
TCase *check_tests(void);
TCase *placement_tests(void);

#endif
