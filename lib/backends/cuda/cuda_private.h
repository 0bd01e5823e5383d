/* What the files of the cuda driver share: one open device, and its queues. */
#ifndef OCTET_BACKENDS_CUDA_PRIVATE_H
#define OCTET_BACKENDS_CUDA_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "backends/cuda/facts.h"
#include "backends/driver.h"

/* libcuda's functions, by their header's names. */
struct oct_cuda_api {
#define OCT_CUDA_MEMBER(name, symbol, arguments) unsigned(*name) arguments;
    OCT_CUDA_FUNCTIONS(OCT_CUDA_MEMBER)
#undef OCT_CUDA_MEMBER
};

struct oct_cublaslt_api {
#define OCT_CUBLASLT_MEMBER(name, arguments) unsigned(*name) arguments;
    OCT_CUBLASLT_FUNCTIONS(OCT_CUBLASLT_MEMBER)
#undef OCT_CUBLASLT_MEMBER
};

/* cuBLASLt, opened by the first FAST product. handle NULL: there is none, and why is in reason. */
struct oct_cublaslt {
    struct oct_cublaslt_api api;
    void *handle;
    char reason[256];
};

struct oct_cuda {
    struct oct_cuda_api api;
    int device;
    int capability; /* 10 * major + minor */
    oct_cuda_context primary;
    oct_cuda_module module;
    oct_cuda_function kernels[OCT_KERNEL_COUNT];
    char device_name[256], driver_text[64];
    /* The first result that meant the end, 0 until then: every call after it is refused, for the
     * library answers each with the same. Relaxed: a late reader only gets the answer from there.
     */
    _Atomic unsigned death;
    pthread_mutex_t lock; /* guards the opening of blas; blas is read only after it */
    bool blas_is_tried;
    struct oct_cublaslt blas;
};

enum { OCT_CUDA_STAGES = 2 };

/* One stream. Used by one thread at a time. */
struct oct_cuda_queue {
    struct oct_cuda *cuda;
    oct_cuda_stream stream;
    /* Pinned memory that copies go through; data NULL until the first copy. event: its last copy
     * to the device is over. */
    struct {
        void *data;
        oct_cuda_event event;
        bool is_busy;
    } stages[OCT_CUDA_STAGES];
    size_t next_stage;
    oct_cuda_pointer workspace, sums; /* of FAST products; 0 until needed */
    size_t workspace_bytes, sums_bytes;
};

/* Embedded by the build from the kernels' text; NULL: this build has none. Ends in NUL. */
const char *oct_cuda_ptx(void);

extern const char *const oct_cuda_kernel_names[OCT_KERNEL_COUNT];
/* Compiles it for the device, or takes what an earlier run compiled, and finds the kernels.
 * cache_directory: NULL, "": the NVIDIA driver's own cache. The device is entered. Errors:
 * UNIMPLEMENTED when the driver does not take the text. */
enum octet_status oct_cuda_load(struct oct_cuda *cuda, const char *cache_directory,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* Opens libcuda.so.1 and finds its functions. Errors: UNAVAILABLE. */
enum octet_status oct_cuda_library(struct oct_cuda_api *api,
                                   struct octet_error *err) OCTET_MUST_CHECK;
/* "CUDA_ERROR_NO_DEVICE". */
const char *oct_cuda_result_name(const struct oct_cuda_api *api, unsigned result);
/* What a result means. SUCCESS: OK; no memory: RESOURCE_EXHAUSTED; the device's end (kept in
 * `death`): UNAVAILABLE; else INTERNAL. doing: "writing 4096 bytes". */
enum octet_status oct_cuda_status(struct oct_cuda *cuda, unsigned result, struct octet_error *err,
                                  const char *doing, ...) OCTET_MUST_CHECK OCTET_PRINTF(4, 5);
/* Makes the device this thread's; each enter that gave OK needs a leave. Errors: UNAVAILABLE. */
enum octet_status oct_cuda_enter(struct oct_cuda *cuda, struct octet_error *err) OCTET_MUST_CHECK;
void oct_cuda_leave(struct oct_cuda *cuda);

/* driver.h's calls; the queue's are made by its thread. */
enum octet_status oct_cuda_write(void *queue, oct_device_buffer to, size_t offset, const void *from,
                                 size_t bytes, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_cuda_read(void *queue, oct_device_buffer from, size_t offset, void *to,
                                size_t bytes, struct octet_error *err) OCTET_MUST_CHECK;
void oct_cuda_stages_free(struct oct_cuda_queue *queue);
enum octet_status oct_cuda_fast_product(void *queue, const struct oct_fast_product *product,
                                        struct octet_error *err) OCTET_MUST_CHECK;
void oct_cublaslt_close(struct oct_cuda *cuda);
enum octet_status oct_cuda_peer(void *queue, int64_t m, int64_t n, int64_t k, int32_t repeats,
                                struct octet_backend_peer *out,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* cuBLASLt alone, for peer.c: descriptors and the algorithm once, then as many starts as wanted.
 * Scales: none. The device is entered. release: in any case, of what was zero before prepare. */
struct oct_cublaslt_product {
    void *product, *a, *b, *d, *preference;
    struct oct_cublaslt_choice choice;
};
enum octet_status oct_cublaslt_prepare(struct oct_cuda_queue *queue,
                                       const struct oct_fast_product *product,
                                       struct oct_cublaslt_product *it,
                                       struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_cublaslt_start(struct oct_cuda_queue *queue,
                                     const struct oct_fast_product *product,
                                     const struct oct_cublaslt_product *it,
                                     struct octet_error *err) OCTET_MUST_CHECK;
void oct_cublaslt_release(struct oct_cuda_queue *queue, struct oct_cublaslt_product *it);

#endif
