/* Suite `wire`: messages in, messages out. */
#include "test_wire.h"

#include <stdlib.h>

int main(void)
{
    Suite *suite = suite_create("wire");

    suite_add_tcase(suite, decode_cases());
    suite_add_tcase(suite, json_cases());
    suite_add_tcase(suite, methods_cases());
    suite_add_tcase(suite, products_cases());
    suite_add_tcase(suite, session_cases());
    suite_add_tcase(suite, tensor_cases());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
