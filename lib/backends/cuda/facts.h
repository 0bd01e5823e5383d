/* Facts of two libraries of NVIDIA's: the functions, numbers and sizes of libcuda (the driver's
 * API) and cuBLASLt that the cuda driver uses.
 *
 * Decision: written down here, so that a build needs no CUDA toolkit and one program serves
 * machines with and without a GPU; where the real headers are, a test compares each line with them
 * (tests/unit/backends/cuda/facts_check.c).
 * Source: NVIDIA CUDA Driver API and cuBLAS references, versions 11.8 to 13.0. */
#ifndef OCTET_BACKENDS_CUDA_FACTS_H
#define OCTET_BACKENDS_CUDA_FACTS_H

#include <stddef.h>
#include <stdint.h>

/* Opaque in both libraries; the tags are theirs, so that the types are compatible. */
typedef struct CUctx_st *oct_cuda_context;
typedef struct CUstream_st *oct_cuda_stream;
typedef struct CUevent_st *oct_cuda_event;
typedef struct CUmod_st *oct_cuda_module;
typedef struct CUfunc_st *oct_cuda_function;
typedef struct CUlinkState_st *oct_cuda_link;
typedef unsigned long long oct_cuda_pointer; /* CUdeviceptr */

/* CUresult. DEATH: the context is of no use any more (the reference calls these sticky), or the
 * device has gone. name, number, DEATH or not */
#define OCT_CUDA_RESULTS(X)                                                                        \
    X(SUCCESS, 0, 0)                                                                               \
    X(INVALID_VALUE, 1, 0)                                                                         \
    X(OUT_OF_MEMORY, 2, 0)                                                                         \
    X(NOT_INITIALIZED, 3, 0)                                                                       \
    X(DEINITIALIZED, 4, 1)                                                                         \
    X(STUB_LIBRARY, 34, 0)                                                                         \
    X(DEVICE_UNAVAILABLE, 46, 1)                                                                   \
    X(NO_DEVICE, 100, 0)                                                                           \
    X(INVALID_DEVICE, 101, 0)                                                                      \
    X(INVALID_IMAGE, 200, 0)                                                                       \
    X(NO_BINARY_FOR_GPU, 209, 0)                                                                   \
    X(ECC_UNCORRECTABLE, 214, 1)                                                                   \
    X(INVALID_PTX, 218, 0)                                                                         \
    X(NVLINK_UNCORRECTABLE, 220, 1)                                                                \
    X(JIT_COMPILER_NOT_FOUND, 221, 0)                                                              \
    X(UNSUPPORTED_PTX_VERSION, 222, 0)                                                             \
    X(JIT_COMPILATION_DISABLED, 223, 0)                                                            \
    X(CONTAINED, 226, 1)                                                                           \
    X(NOT_FOUND, 500, 0)                                                                           \
    X(ILLEGAL_ADDRESS, 700, 1)                                                                     \
    X(LAUNCH_OUT_OF_RESOURCES, 701, 0)                                                             \
    X(LAUNCH_TIMEOUT, 702, 1)                                                                      \
    X(CONTEXT_IS_DESTROYED, 709, 1)                                                                \
    X(ASSERT, 710, 1)                                                                              \
    X(HARDWARE_STACK_ERROR, 714, 1)                                                                \
    X(ILLEGAL_INSTRUCTION, 715, 1)                                                                 \
    X(MISALIGNED_ADDRESS, 716, 1)                                                                  \
    X(INVALID_ADDRESS_SPACE, 717, 1)                                                               \
    X(INVALID_PC, 718, 1)                                                                          \
    X(LAUNCH_FAILED, 719, 1)                                                                       \
    X(SYSTEM_NOT_READY, 802, 1)                                                                    \
    X(SYSTEM_DRIVER_MISMATCH, 803, 0)                                                              \
    X(MPS_CLIENT_TERMINATED, 810, 1)                                                               \
    X(UNKNOWN, 999, 1)

enum oct_cuda_result {
#define OCT_CUDA_RESULT(name, number, death) OCT_CUDA_##name = number,
    OCT_CUDA_RESULTS(OCT_CUDA_RESULT)
#undef OCT_CUDA_RESULT
};

enum {
    /* CUdevice_attribute */
    OCT_CUDA_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    OCT_CUDA_ATTRIBUTE_CAPABILITY_MINOR = 76,
    /* CUstream_flags, CUevent_flags */
    OCT_CUDA_STREAM_NON_BLOCKING = 1,
    OCT_CUDA_EVENT_DEFAULT = 0,
    OCT_CUDA_EVENT_DISABLE_TIMING = 2,
    /* CUjitInputType, CUjit_option */
    OCT_CUDA_JIT_INPUT_PTX = 1,
    OCT_CUDA_JIT_ERROR_LOG_BUFFER = 5,
    OCT_CUDA_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    /* Grids: CUDA C Programming Guide, table of technical specifications. */
    OCT_CUDA_GROUPS_MAX_X = 0x7fffffff,
    OCT_CUDA_GROUPS_MAX_Y = 65535,
};

/* Name in the header, symbol in the library (the header's macros rename some), arguments; all
 * return CUresult, an unsigned enum. */
#define OCT_CUDA_FUNCTIONS(X)                                                                      \
    X(cuInit, "cuInit", (unsigned flags))                                                          \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                    \
    X(cuGetErrorName, "cuGetErrorName", (unsigned result, const char **name))                      \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
    X(cuDeviceGet, "cuDeviceGet", (int *device, int ordinal))                                      \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, int device))                      \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                       \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, unsigned attribute, int device))  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                        \
      (oct_cuda_context * context, int device))                                                    \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                     \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (oct_cuda_context context))                         \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (oct_cuda_context * context))                         \
    X(cuStreamCreate, "cuStreamCreate", (oct_cuda_stream * stream, unsigned flags))                \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (oct_cuda_stream stream))                             \
    X(cuStreamSynchronize, "cuStreamSynchronize", (oct_cuda_stream stream))                        \
    X(cuEventCreate, "cuEventCreate", (oct_cuda_event * event, unsigned flags))                    \
    X(cuEventDestroy, "cuEventDestroy_v2", (oct_cuda_event event))                                 \
    X(cuEventRecord, "cuEventRecord", (oct_cuda_event event, oct_cuda_stream stream))              \
    X(cuEventSynchronize, "cuEventSynchronize", (oct_cuda_event event))                            \
    X(cuEventElapsedTime, "cuEventElapsedTime",                                                    \
      (float *milliseconds, oct_cuda_event from, oct_cuda_event to))                               \
    X(cuMemAlloc, "cuMemAlloc_v2", (oct_cuda_pointer * pointer, size_t bytes))                     \
    X(cuMemFree, "cuMemFree_v2", (oct_cuda_pointer pointer))                                       \
    X(cuMemAllocHost, "cuMemAllocHost_v2", (void **pointer, size_t bytes))                         \
    X(cuMemFreeHost, "cuMemFreeHost", (void *pointer))                                             \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                   \
      (oct_cuda_pointer to, const void *from, size_t bytes, oct_cuda_stream stream))               \
    X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                   \
      (void *to, oct_cuda_pointer from, size_t bytes, oct_cuda_stream stream))                     \
    X(cuMemsetD8Async, "cuMemsetD8Async",                                                          \
      (oct_cuda_pointer to, unsigned char value, size_t bytes, oct_cuda_stream stream))            \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                                    \
      (oct_cuda_module * module, const void *image, unsigned options, unsigned *names,             \
       void **values))                                                                             \
    X(cuLinkCreate, "cuLinkCreate_v2",                                                             \
      (unsigned options, unsigned *names, void **values, oct_cuda_link *link))                     \
    X(cuLinkAddData, "cuLinkAddData_v2",                                                           \
      (oct_cuda_link link, unsigned type, void *data, size_t bytes, const char *name,              \
       unsigned options, unsigned *names, void **values))                                          \
    X(cuLinkComplete, "cuLinkComplete", (oct_cuda_link link, void **binary, size_t *bytes))        \
    X(cuLinkDestroy, "cuLinkDestroy", (oct_cuda_link link))                                        \
    X(cuModuleUnload, "cuModuleUnload", (oct_cuda_module module))                                  \
    X(cuModuleGetFunction, "cuModuleGetFunction",                                                  \
      (oct_cuda_function * function, oct_cuda_module module, const char *name))                    \
    X(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (oct_cuda_function function, unsigned groups_x, unsigned groups_y, unsigned groups_z,        \
       unsigned items_x, unsigned items_y, unsigned items_z, unsigned shared_bytes,                \
       oct_cuda_stream stream, void **arguments, void **extra))

/* The reference gives cuEventElapsedTime a second version in CUDA 12.8; the symbol without a suffix
 * stays, and means the same here. */

enum {
    /* cublasStatus_t */
    OCT_CUBLAS_SUCCESS = 0,
    OCT_CUBLAS_NOT_INITIALIZED = 1,
    OCT_CUBLAS_ALLOC_FAILED = 3,
    OCT_CUBLAS_INVALID_VALUE = 7,
    OCT_CUBLAS_EXECUTION_FAILED = 13,
    OCT_CUBLAS_NOT_SUPPORTED = 15,
    /* cublasOperation_t, cublasComputeType_t, cudaDataType */
    OCT_CUBLAS_OP_N = 0,
    OCT_CUBLAS_OP_T = 1,
    OCT_CUBLAS_COMPUTE_32F = 68,
    OCT_CUDA_R_32F = 0,
    OCT_CUDA_R_16BF = 14,
    OCT_CUDA_R_8F_E4M3 = 28,
    OCT_CUDA_R_8F_E5M2 = 29,
    /* cublasLtMatmulDescAttributes_t; scale modes since cuBLAS 12.9, outer vectors too */
    OCT_CUBLASLT_DESC_TRANSA = 3,
    OCT_CUBLASLT_DESC_TRANSB = 4,
    OCT_CUBLASLT_DESC_A_SCALE_POINTER = 17,
    OCT_CUBLASLT_DESC_B_SCALE_POINTER = 18,
    OCT_CUBLASLT_DESC_A_SCALE_MODE = 31,
    OCT_CUBLASLT_DESC_B_SCALE_MODE = 32,
    OCT_CUBLASLT_SCALE_OUTER_VEC_32F = 3,
    /* cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t */
    OCT_CUBLASLT_LAYOUT_BATCH_COUNT = 5,
    OCT_CUBLASLT_LAYOUT_STRIDED_BATCH_OFFSET = 6,
    OCT_CUBLASLT_PREFERENCE_MAX_WORKSPACE_BYTES = 1,
};

/* cublasLtMatmulHeuristicResult_t */
struct oct_cublaslt_choice {
    uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t */
    size_t workspace_bytes;
    unsigned state;
    float waves;
    int reserved[4];
};

/* Handles and descriptors are opaque pointers here; all return cublasStatus_t, an unsigned enum. */
#define OCT_CUBLASLT_FUNCTIONS(X)                                                                  \
    X(cublasLtCreate, (void **handle))                                                             \
    X(cublasLtDestroy, (void *handle))                                                             \
    X(cublasLtMatmulDescCreate, (void **desc, unsigned compute, unsigned scale))                   \
    X(cublasLtMatmulDescDestroy, (void *desc))                                                     \
    X(cublasLtMatmulDescSetAttribute,                                                              \
      (void *desc, unsigned attribute, const void *value, size_t bytes))                           \
    X(cublasLtMatrixLayoutCreate,                                                                  \
      (void **layout, unsigned type, uint64_t rows, uint64_t columns, int64_t stride))             \
    X(cublasLtMatrixLayoutDestroy, (void *layout))                                                 \
    X(cublasLtMatrixLayoutSetAttribute,                                                            \
      (void *layout, unsigned attribute, const void *value, size_t bytes))                         \
    X(cublasLtMatmulPreferenceCreate, (void **preference))                                         \
    X(cublasLtMatmulPreferenceDestroy, (void *preference))                                         \
    X(cublasLtMatmulPreferenceSetAttribute,                                                        \
      (void *preference, unsigned attribute, const void *value, size_t bytes))                     \
    X(cublasLtMatmulAlgoGetHeuristic,                                                              \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,             \
       int choices_max, struct oct_cublaslt_choice *choices, int *choices_count))                  \
    X(cublasLtMatmul, (void *handle, void *desc, const void *alpha, const void *a_data, void *a,   \
                       const void *b_data, void *b, const void *beta, const void *c_data, void *c, \
                       void *d_data, void *d, const void *algorithm, void *workspace,              \
                       size_t workspace_bytes, oct_cuda_stream stream))

#endif
