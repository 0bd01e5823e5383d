/* A stand-in for libcuda.so.1 without a GPU, for tests of the cuda driver.
 *
 * Kernels run from the same text, compiled as C, one work-item after another. As on a device:
 * a stream's work is put off until somebody waits for it, memory comes full of junk, a copy from
 * pinned memory reads it late, and a context that was lost answers everything with its end. The
 * kernels' own reads and writes are on heap memory, so a sanitizer sees those out of bounds. */
#ifndef OCTET_TESTS_FAKE_CUDA_H
#define OCTET_TESTS_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* What a test sets and reads; found as the library's symbol fake_cuda. */
struct fake_cuda {
    int devices, capability; /* of each; 90 */
    unsigned init_result, load_result;
    size_t memory_bytes; /* of device memory; more is refused */
    int64_t fail_alloc;  /* n: the n-th from now gives OUT_OF_MEMORY, once */
    int64_t fail_pinned; /* the same for pinned memory, from then on */
    int64_t lose_launch; /* n: at the n-th launch from now the context is lost */
    int64_t allocs, launches;
    int64_t live_buffers, live_pinned, live_streams, live_events, live_modules, live_links,
        live_contexts;
    int64_t compilations;
    size_t live_bytes;
    int64_t products;      /* of the fake cuBLASLt */
    int32_t knows_vectors; /* cuBLASLt 12.9 and newer: scales as vectors */
};
extern struct fake_cuda fake_cuda;

/* Work on a stream, done when it is waited for; `argument` is freed after it. */
typedef void (*fake_work)(void *argument);
void fake_cuda_enqueue(void *stream, fake_work work, void *argument);

/* kernels.c: NULL: no such kernel. arguments: as cuLaunchKernel's, of values that stay. */
typedef void (*fake_kernel)(void **arguments);
fake_kernel fake_kernel_find(const char *name);
void fake_kernel_run(fake_kernel kernel, void **arguments, const unsigned groups[2],
                     const unsigned items[2]);

#endif
