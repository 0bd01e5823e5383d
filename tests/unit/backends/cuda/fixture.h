/* The cuda driver in tests: over the fake libraries where the loader finds them (fake.h), over the
 * machine's own otherwise, where what needs the fake or a device is counted as not run. */
#ifndef OCTET_TESTS_CUDA_FIXTURE_H
#define OCTET_TESTS_CUDA_FIXTURE_H

#include <check.h>

#include "backends/cuda/cuda_private.h"
#include "fake.h"

/* NULL: the libraries are real, or there are none, or this build has no kernels to run. Set to how
 * it was born by reset. */
struct fake_cuda *fake_control(void);
void fake_reset(void);
/* "not run: NAME (why)"; their number is printed at the end. */
void not_run(const char *name, const char *why);
int not_run_count(void);
int devices_opened(void);

struct device {
    const struct oct_driver *driver;
    void *context, *queue;
    struct octet_backend_facts facts;
};
/* false: there is none, and the case was counted. */
bool device_open(struct device *device, const char *name);
void device_close(struct device *device);
oct_device_buffer device_buffer(struct device *device, const void *from, size_t bytes);
/* Asserts OK, with the error's text. */
#define ok(call, err)                                                                              \
    ck_assert_msg((call) == OCTET_OK, "%s: %s", octet_status_name((err).status), (err).text)

void copy_cases(Suite *suite);
void driver_cases(Suite *suite);
void fast_cases(Suite *suite);
void ptx_cases(Suite *suite);

#endif
