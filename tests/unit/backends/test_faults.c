#include "device.h"

TCase *fault_tests(void)
{
    return tcase_create("faults");
}
