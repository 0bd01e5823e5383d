/* Backend: an accelerator that takes quantized products.
 *
 * For: whoever places work: a daemon's sessions, a benchmark, a C program. The CPU needs none of
 * this: it is octet_workers. Not for: which op goes where (plan.h, by capabilities.h).
 * Decision: drivers are opened at run time, so that one program serves machines with and without
 * them.
 *
 * Life: 1. An open backend may be used by many threads; each call brings its own queue. 2. Sessions
 * placed on it end first. Numbers: EXACT_ORDER gives the bits that the CPU gives. FAST, where facts
 * say so, any order. A device that is lost (UNAVAILABLE) or out of memory (RESOURCE_EXHAUSTED)
 * fails the call and leaves the process, and other backends, as they were. */
#ifndef OCTET_BACKEND_H
#define OCTET_BACKEND_H

#include "octet/capabilities.h"
#include "octet/quant.h"

typedef struct octet_backend octet_backend;

struct octet_backend_options {
    const char *device;          /* NULL, "": the first; else its number, "1" */
    uint64_t memory_limit_bytes; /* of buffers on the device; 0: what the device has */
    const char *cache_directory; /* for compiled kernels; NULL: the driver's own choice */
};

struct octet_backend_facts {
    const char *name, *device, *driver; /* "opencl", the device's own name, driver and version */
    int32_t devices;                    /* how many there are to choose from */
    uint64_t memory_bytes;
    struct octet_capabilities capabilities;
};

/* "opencl", "cuda": built in, whether or not this machine has one; NULL from the count on. */
OCTET_API const char *octet_backend_name(size_t index);

/* Compiles kernels, so it can take seconds. Errors: INVALID_ARGUMENT with field "backend" or
 * "device" and what there is; UNAVAILABLE: no driver or no device, and which library was looked
 * for; UNIMPLEMENTED: the device lacks what the kernels need. */
OCTET_API enum octet_status octet_backend_open(const char *name,
                                               const struct octet_backend_options *options,
                                               octet_backend **out,
                                               struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_backend_close(octet_backend *backend); /* NULL is fine */
OCTET_API const struct octet_backend_facts *octet_backend_facts(const octet_backend *backend);
/* Bytes of buffers on the device now, and the most there were. */
OCTET_API void octet_backend_memory(const octet_backend *backend, uint64_t *held, uint64_t *peak);

/* As octet_quantize, octet_dot_general and octet_ragged_dot (quant.h): operands and results in
 * host memory. Errors: theirs; UNIMPLEMENTED naming the setting that the backend does not take. */
OCTET_API enum octet_status octet_backend_quantize(octet_backend *backend,
                                                   const struct octet_compute *compute,
                                                   const struct octet_array *array,
                                                   const struct octet_quantize_options *options,
                                                   struct octet_quantized *out,
                                                   struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status
octet_backend_dot_general(octet_backend *backend, const struct octet_compute *compute,
                          const struct octet_operand *lhs, const struct octet_operand *rhs,
                          const struct octet_dot_dims *dims,
                          const struct octet_product_options *options, struct octet_product *out,
                          struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status
octet_backend_ragged_dot(octet_backend *backend, const struct octet_compute *compute,
                         const struct octet_operand *lhs, const struct octet_operand *rhs,
                         const struct octet_array *group_sizes, bool transpose_rhs,
                         enum octet_grouped_op op, const struct octet_product_options *options,
                         struct octet_product *out, struct octet_error *err) OCTET_MUST_CHECK;

/* Seconds of one product [m,k] x [n,k] on the device, operands there already, medians over
 * `repeats` turns in which the three follow each other. */
struct octet_backend_peer {
    double own;  /* Octet's FAST product: E4M3 x E4M3 with scales by row and column, BF16 out */
    double fp8;  /* the vendor's library alone: the same without scales */
    double bf16; /* the vendor's library alone: BF16 x BF16 */
};

/* For benchmarks: what the device's vendor reaches, beside what Octet makes of it. Errors:
 * INVALID_ARGUMENT with field "m", "n", "k" or "repeats"; UNIMPLEMENTED where the backend or the
 * shape has no such product. */
OCTET_API enum octet_status octet_backend_peer(octet_backend *backend, int64_t m, int64_t n,
                                               int64_t k, int32_t repeats,
                                               struct octet_backend_peer *out,
                                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
