/* Driver: memory and launches of one kind of accelerator, as opencl and cuda give them.
 *
 * For: lib/backends, whose ops are written once over this table. Not for: arithmetic: that is in
 * the kernels (kernels.h), whose text is the same for all drivers.
 *
 * Life: a context is one open device, used by many threads; a queue belongs to one thread at a
 * time and runs in order. All calls give UNAVAILABLE when the device is lost; alloc gives
 * RESOURCE_EXHAUSTED with the bytes that were asked for. */
#ifndef OCTET_BACKENDS_DRIVER_H
#define OCTET_BACKENDS_DRIVER_H

#include "backends/kernels.h"
#include "octet/backend.h"

/* A cl_mem, a CUdeviceptr. 0: none. */
typedef uint64_t oct_device_buffer;

/* An argument of a kernel, in the order of its text. A buffer may be none. */
struct oct_device_argument {
    enum { OCT_ARGUMENT_BUFFER, OCT_ARGUMENT_INTEGER, OCT_ARGUMENT_NUMBER } kind;
    oct_device_buffer buffer;
    int64_t integer; /* the kernels' `long` */
    float number;
};

/* Work-groups and work-items of a launch, in each of two dimensions. */
struct oct_device_grid {
    size_t groups[2], items[2];
};

/* A product for the device's own matrix units (FAST): out = alpha-free sum of codes, row-major
 * [batch][m,n]; lhs [batch][m,k], rhs [batch][n,k] (k innermost in both). Scales: one for each row
 * of lhs, each row of rhs, or one of all (count 1). */
struct oct_fast_product {
    enum octet_dtype lhs_dtype, rhs_dtype, out_dtype;
    int64_t batch, m, n, k;
    oct_device_buffer lhs, rhs, out, lhs_scale, rhs_scale;
    int64_t lhs_scales, rhs_scales;
};

struct oct_driver {
    const char *name;
    enum octet_status (*open)(const struct octet_backend_options *options, void **context,
                              struct octet_backend_facts *facts, struct octet_error *err);
    void (*close)(void *context);
    enum octet_status (*queue_create)(void *context, void **queue, struct octet_error *err);
    void (*queue_destroy)(void *queue);
    enum octet_status (*alloc)(void *context, size_t bytes, oct_device_buffer *out,
                               struct octet_error *err);
    void (*release)(void *context, oct_device_buffer buffer);
    /* write: `from` may change when it returns. read: waits. */
    enum octet_status (*write)(void *queue, oct_device_buffer to, size_t offset, const void *from,
                               size_t bytes, struct octet_error *err);
    enum octet_status (*read)(void *queue, oct_device_buffer from, size_t offset, void *to,
                              size_t bytes, struct octet_error *err);
    enum octet_status (*fill)(void *queue, oct_device_buffer to, size_t offset, size_t bytes,
                              unsigned char value, struct octet_error *err);
    enum octet_status (*launch)(void *queue, enum oct_device_kernel kernel,
                                const struct oct_device_grid *grid,
                                const struct oct_device_argument *arguments, size_t count,
                                struct octet_error *err);
    enum octet_status (*wait)(void *queue, struct octet_error *err);
    /* NULL: the device has none. UNIMPLEMENTED: not for these types and scales: the caller takes
     * the kernels. */
    enum octet_status (*fast_product)(void *queue, const struct oct_fast_product *product,
                                      struct octet_error *err);
    /* As octet_backend_peer (backend.h). NULL: the device has no library of its vendor's. */
    enum octet_status (*peer)(void *queue, int64_t m, int64_t n, int64_t k, int32_t repeats,
                              struct octet_backend_peer *out, struct octet_error *err);
};

extern const struct oct_driver oct_driver_opencl, oct_driver_cuda;

#endif
