/* The suite of lib/exec: each op beside an independent computation, its gradient beside
 * differences, and the same bits from every kernel set and number of threads; whole programs. */
#include <stdlib.h>

#include "op_case.h"
#include "suite.h"

int main(void)
{
    Suite *suite = suite_create("exec");

#define ADD(name) suite_add_tcase(suite, name##_tests());
    EXEC_TESTS(ADD)
#undef ADD
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    op_case_close();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
