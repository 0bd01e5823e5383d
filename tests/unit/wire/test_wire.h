/* The cases of the suite `wire`, one a file. */
#ifndef TEST_WIRE_H
#define TEST_WIRE_H

#include <check.h>

TCase *decode_cases(void);
TCase *json_cases(void);
TCase *methods_cases(void);
TCase *products_cases(void);
TCase *session_cases(void);
TCase *tensor_cases(void);

#endif
