/* Settings that Qwix refuses, or does not (errors.json). */
#ifndef OCTET_TESTS_QWIX_ERRORS_H
#define OCTET_TESTS_QWIX_ERRORS_H

#include "octet/quant.h"

/* Each case of the file through the library; adds to the counts. */
void qwix_errors_check(const char *path, const octet_context *context, octet_workers *workers,
                       int64_t *passed, int64_t *failed, int64_t *not_run);

#endif
