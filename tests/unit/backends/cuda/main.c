/* The cuda driver: copies, launches, errors, FAST products, the text of its kernels.
 * What could break: a stage written over while it travels, a launch that a reader does not wait
 * for, a lost device that ends the process or is asked again, memory that is not given back; a
 * product laid out or scaled the wrong way; arithmetic in the PTX that is not the CPU's. The fake
 * (fake.h) puts work off, poisons memory and counts what is alive, so that it shows here. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    Suite *suite = suite_create("cuda");

    copy_cases(suite);
    driver_cases(suite);
    fast_cases(suite);
    ptx_cases(suite);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    printf("cuda: over %s, %d cases not run\n",
           fake_control() ? "the fake libraries" : "this machine's libraries", not_run_count());
    if (!failed && !devices_opened())
        puts("cuda: nothing ran on a device");
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
