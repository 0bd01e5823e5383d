/* The suite of lib/backends: a device's ops beside the CPU's, bit for bit, and what becomes of its
 * memory. test_backends [NAME]: the backend, opencl without. */
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

int main(int argc, char **argv)
{
    if (!device_probe(argc > 1 ? argv[1] : "opencl"))
        return EXIT_SUCCESS;
    Suite *suite = suite_create("backends");
    suite_add_tcase(suite, op_tests());
    suite_add_tcase(suite, device_pass_tests());
    suite_add_tcase(suite, memory_tests());
    suite_add_tcase(suite, fault_tests());
    suite_add_tcase(suite, fast_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    device_close();
    bench_close();
    if (counts.live_buffers || counts.live_queues) {
        printf("%lld buffers and %lld queues are left\n", (long long)counts.live_buffers,
               (long long)counts.live_queues);
        failed++;
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
