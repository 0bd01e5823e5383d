/* What the tests of lib/rules share. */
#ifndef OCTET_TESTS_RULES_FIXTURE_H
#define OCTET_TESTS_RULES_FIXTURE_H

#include <check.h>

#include "octet/octet.h"

struct fixture {
    octet_context *context;
    struct octet_error err;
};

void fixture_begin(struct fixture *f);
void fixture_end(struct fixture *f);

/* A set of one rule (or more) that must be accepted. */
octet_rules *fixture_rules(struct fixture *f, const struct octet_rule *rules, size_t count);

/* The index of the rule that takes an op of a module. */
int fixture_match(struct fixture *f, const octet_rules *rules, const char *module, const char *op);

/* The n-th malloc or calloc from now and all later ones fail; 0: none. */
void fixture_fail_malloc(unsigned long n);

TCase *pattern_tests(void);
TCase *rules_tests(void);
TCase *yaml_tests(void);
TCase *lookups_tests(void);
TCase *torture_tests(void);

#endif
