/* What the tests of lib/backends share: the backend under test, opened through a driver that counts
 * its calls and can fail at one of them. */
#ifndef OCTET_TESTS_BACKENDS_DEVICE_H
#define OCTET_TESTS_BACKENDS_DEVICE_H

#include "backends/backend.h"
#include "backends/memory.h"
#include "fixture.h"

/* Is there a backend of that name on this machine? If not, a line on stdout says so. Not within a
 * test. */
bool device_probe(const char *name);
void device_begin(void); /* checked fixture: bench_begin, and the device */
void device_close(void);
/* The one that all cases share, and another of that driver with options of its own. */
extern octet_backend *device;
octet_backend *device_open_another(const struct octet_backend_options *options);

/* The driver's calls since counting_reset; buffers that are there. */
struct counts {
    int64_t calls, writes, written_bytes, reads, launches, allocs, live_buffers, live_queues;
};
extern struct counts counts;
void counting_reset(void);
/* The n-th call from now fails with that status, and `calls_after` later ones too. 0: none. */
void counting_fail(int64_t n, int64_t calls_after, enum octet_status status);
const struct oct_driver *counting_driver(const struct oct_driver *inner);

/* Bits, but that all NaN are one. */
void check_same_bits(const struct octet_array *expected, const struct octet_array *got,
                     const char *what);
void check_same_stats(const struct octet_operand_stats *expected,
                      const struct octet_operand_stats *got, const char *what);

TCase *op_tests(void);
TCase *device_pass_tests(void);
TCase *memory_tests(void);
TCase *fault_tests(void);
TCase *fast_tests(void);

#endif
