#include "device.h"

TCase *memory_tests(void)
{
    return tcase_create("memory");
}
