/* The suite of lib/exec: one line a file of tests; test_NAME.c has NAME_tests(). */
#ifndef OCTET_TESTS_EXEC_SUITE_H
#define OCTET_TESTS_EXEC_SUITE_H

#include <check.h>

#define EXEC_TESTS(X)                                                                              \
    X(acceptance)                                                                                  \
    X(activation)                                                                                  \
    X(attention)                                                                                   \
    X(batch)                                                                                       \
    X(dense)                                                                                       \
    X(elementwise)                                                                                 \
    X(embed)                                                                                       \
    X(layout)                                                                                      \
    X(loss)                                                                                        \
    X(moe)                                                                                         \
    X(norm)                                                                                        \
    X(program)                                                                                     \
    X(rope)                                                                                        \
    X(router)                                                                                      \
    X(table)

#define DECLARE(name) TCase *name##_tests(void);
EXEC_TESTS(DECLARE)
#undef DECLARE

#endif
