/* Workers: the threads and the kernels that compute.
 *
 * For: how many threads share an operation, and with which instruction set. Neither changes a bit
 * of any result in EXACT_ORDER. Not for: when something runs.
 *
 * Life: 1. One call at a time uses a set of workers; several sets may exist. 2. The calling thread
 * computes too, so one thread means no others. */
#ifndef OCTET_WORKERS_H
#define OCTET_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

typedef struct octet_workers octet_workers;

/* kernel_set: "scalar", "avx2", ...; NULL or "": the best that this CPU has. threads: at least 1;
 * 0: one for each CPU that this process may use. Errors: INVALID_ARGUMENT with field "kernels"
 * (unknown, or what the CPU lacks) or "threads"; RESOURCE_EXHAUSTED. */
OCTET_API enum octet_status octet_workers_create(const char *kernel_set, int32_t threads,
                                                 octet_workers **out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_workers_destroy(octet_workers *workers);              /* NULL is fine */
OCTET_API const char *octet_workers_kernels(const octet_workers *workers); /* "avx512bf16" */
OCTET_API int32_t octet_workers_threads(const octet_workers *workers);

/* Kernel sets built in, from the slowest to the best; NULL from the count on. */
OCTET_API const char *octet_kernel_set_name(size_t index);
/* NULL when this CPU can run the set; else what is missing ("the CPU lacks avx512bf16"). */
OCTET_API const char *octet_kernel_set_obstacle(size_t index);

/* Features of this CPU that kernels ask for ("avx2", "fma3", ...); NULL from the count on. */
OCTET_API const char *octet_cpu_feature(size_t index);

#endif
