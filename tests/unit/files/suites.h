/* The parts of the suite; each adds its cases. */
#ifndef OCTET_TEST_FILES_SUITES_H
#define OCTET_TEST_FILES_SUITES_H

#include <check.h>

TCase *safetensors_case(void);
TCase *safetensors_write_case(void);

#endif
