/* The suite of lib/quant: the library beside a plain reference (reference.h), the faults that users
 * of other programs reported, properties, errors. */
#include <stdlib.h>

#include "fixture.h"

int main(void)
{
    Suite *suite = suite_create("quant");

    suite_add_tcase(suite, bug_tests());
    suite_add_tcase(suite, quantize_tests());
    suite_add_tcase(suite, dot_tests());
    suite_add_tcase(suite, grouped_tests());
    suite_add_tcase(suite, einsum_tests());
    suite_add_tcase(suite, conv_tests());
    suite_add_tcase(suite, property_tests());
    suite_add_tcase(suite, error_tests());
    suite_add_tcase(suite, pass_tests());
    suite_add_tcase(suite, torture_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    bench_close();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
