/* lib/backends/cuda/facts.h beside NVIDIA's own headers: what does not agree does not compile. */
#include <cublasLt.h>
#include <cuda.h>

#include "backends/cuda/facts.h"

/* The header's name is a macro for the symbol that it stands for. */
#define TEXT_OF(name) #name
#define SYMBOL_OF(name) TEXT_OF(name)
/* cuEventElapsedTime: a newer version of the same since 12.8. */
#define FUNCTION(name, symbol, arguments)                                                          \
    _Static_assert(_Generic(&name, unsigned(*) arguments : 1, default : 0), #name);                \
    _Static_assert(sizeof(SYMBOL_OF(name)) == sizeof(symbol) ||                                    \
                       sizeof(symbol) == sizeof("cuEventElapsedTime"),                             \
                   "symbol of " #name);
OCT_CUDA_FUNCTIONS(FUNCTION)

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define RESULT(name, number, death)                                                                \
    _Static_assert(number == 0 || (int)CUDA_ERROR_##name == number, #name);
#define CUDA_ERROR_SUCCESS 0
OCT_CUDA_RESULTS(RESULT)

SAME(OCT_CUDA_ATTRIBUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(OCT_CUDA_ATTRIBUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(OCT_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(OCT_CUDA_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(OCT_CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(OCT_CUDA_JIT_INPUT_PTX, CU_JIT_INPUT_PTX);
SAME(OCT_CUDA_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER);
SAME(OCT_CUDA_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(OCT_CUBLAS_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(OCT_CUBLAS_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(OCT_CUBLAS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(OCT_CUBLAS_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(OCT_CUBLAS_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED);
SAME(OCT_CUBLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(OCT_CUBLAS_OP_N, CUBLAS_OP_N);
SAME(OCT_CUBLAS_OP_T, CUBLAS_OP_T);
SAME(OCT_CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(OCT_CUDA_R_32F, CUDA_R_32F);
SAME(OCT_CUDA_R_16BF, CUDA_R_16BF);
SAME(OCT_CUDA_R_8F_E4M3, CUDA_R_8F_E4M3);
SAME(OCT_CUDA_R_8F_E5M2, CUDA_R_8F_E5M2);
SAME(OCT_CUBLASLT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(OCT_CUBLASLT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(OCT_CUBLASLT_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(OCT_CUBLASLT_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME(OCT_CUBLASLT_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
SAME(OCT_CUBLASLT_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
SAME(OCT_CUBLASLT_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
SAME(OCT_CUBLASLT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(OCT_CUBLASLT_LAYOUT_STRIDED_BATCH_OFFSET, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(OCT_CUBLASLT_PREFERENCE_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(sizeof(struct oct_cublaslt_choice), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(sizeof(((struct oct_cublaslt_choice *)0)->algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(offsetof(struct oct_cublaslt_choice, workspace_bytes),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct oct_cublaslt_choice, state), offsetof(cublasLtMatmulHeuristicResult_t, state));

/* Its descriptors have tags of their own, so the calls are compared: each is given our arguments.
 * Nothing here is run or linked. */
#define GIVES_STATUS(call) _Static_assert(sizeof(call) == sizeof(unsigned), "status")
void oct_cublaslt_calls(void *p, const void *c, uint64_t u, int64_t i, size_t z, int n, int *count,
                        unsigned e, oct_cuda_stream s);
void oct_cublaslt_calls(void *p, const void *c, uint64_t u, int64_t i, size_t z, int n, int *count,
                        unsigned e, oct_cuda_stream s)
{
    (void)p, (void)c, (void)u, (void)i, (void)z, (void)n, (void)count, (void)e, (void)s;
    GIVES_STATUS(cublasLtCreate(p));
    GIVES_STATUS(cublasLtDestroy(p));
    GIVES_STATUS(cublasLtMatmulDescCreate(p, e, e));
    GIVES_STATUS(cublasLtMatmulDescDestroy(p));
    GIVES_STATUS(cublasLtMatmulDescSetAttribute(p, e, c, z));
    GIVES_STATUS(cublasLtMatrixLayoutCreate(p, e, u, u, i));
    GIVES_STATUS(cublasLtMatrixLayoutDestroy(p));
    GIVES_STATUS(cublasLtMatrixLayoutSetAttribute(p, e, c, z));
    GIVES_STATUS(cublasLtMatmulPreferenceCreate(p));
    GIVES_STATUS(cublasLtMatmulPreferenceDestroy(p));
    GIVES_STATUS(cublasLtMatmulPreferenceSetAttribute(p, e, c, z));
    GIVES_STATUS(cublasLtMatmulAlgoGetHeuristic(p, p, p, p, p, p, p, n, p, count));
    GIVES_STATUS(cublasLtMatmul(p, p, c, c, p, c, p, c, c, p, p, p, c, p, z, s));
}
