#include "device.h"

TCase *device_pass_tests(void)
{
    return tcase_create("passes");
}
