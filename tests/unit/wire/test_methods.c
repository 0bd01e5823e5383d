#include "test_wire.h"
TCase *methods_cases(void)
{
    return tcase_create("methods");
}
