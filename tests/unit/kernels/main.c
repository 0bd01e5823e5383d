/* Suite of lib/kernels. A set that the CPU cannot run is named, so that nobody takes it for tested.
 */
#include "unit/kernels/fixture.h"

int main(void)
{
    Suite *suite = suite_create("kernels");

    for (size_t i = 0; octet_kernel_set_name(i); i++) {
        const char *obstacle = octet_kernel_set_obstacle(i);
        if (obstacle)
            printf("not run: %s (%s)\n", octet_kernel_set_name(i), obstacle);
        else
            printf("run: %s\n", octet_kernel_set_name(i));
    }
    add_find_tests(suite);
    add_elementwise_tests(suite);
    add_gemm_tests(suite);
    add_math_tests(suite);
    add_tiny_tests(suite);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
