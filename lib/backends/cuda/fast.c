/* Products on the device's matrix units, by cuBLASLt: accumulation FAST.
 *
 * Not for: EXACT_ORDER: matrix units add in an order of their own.
 *
 * cuBLASLt is column-major, and takes 8-bit floats only as D = A^T B ("TN"). Read so, our row-major
 * operands need no copy: rhs [n,k] is A^T (a k x n matrix with columns k apart), lhs [m,k] is B
 * (k x m), and out [m,n] is D (n x m). So its m is our n, and its A has our rhs' scales.
 * Sums are promoted to f32 as they grow (CUBLASLT_MATMUL_DESC_FAST_ACCUM stays off): the other mode
 * keeps some 14 bits, which is less than an FP8 product of a few hundred terms has.
 * Source: cuBLAS reference, cublasLtMatmul and "Narrow precision data types usage". */
#include "backends/cuda/cuda_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    ALIGNMENT = 16, /* bytes, of pointers and rows; of dimensions of 8-bit floats */
    CAPABILITY_FP8 = 89,
    CAPABILITY_OUTER_VECTORS = 90, /* on no other, newer ones included (cuBLAS 12.9 to 13.0) */
    /* What NVIDIA recommends for Hopper and newer; a smaller one rules algorithms out. */
    WORKSPACE_BYTES = 32 << 20,
};

/* How a product is laid out for the library. */
struct layout {
    unsigned a, b, d; /* cudaDataType */
    enum { SCALES_NONE, SCALES_SCALAR, SCALES_VECTORS, SCALES_AFTER } scales;
};

static enum octet_status open_library(struct oct_cublaslt *blas, const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    size_t used = strlen(blas->reason);
    char *reason = blas->reason + used;

    if (!library) {
        snprintf(reason, sizeof blas->reason - used, "%s%s", used ? "; " : "", dlerror());
        return OCTET_UNAVAILABLE;
    }
#define OCT_CUBLASLT_FIND(function, arguments)                                                     \
    *(void **)(void *)&blas->api.function = dlsym(library, #function);                             \
    if (!blas->api.function) {                                                                     \
        snprintf(reason, sizeof blas->reason - used, "%s%s has no %s", used ? "; " : "", name,     \
                 #function);                                                                       \
        return OCTET_UNAVAILABLE;                                                                  \
    }
    OCT_CUBLASLT_FUNCTIONS(OCT_CUBLASLT_FIND)
#undef OCT_CUBLASLT_FIND
    /* A library newer than the driver fails here, and an older one may do. It stays open: see
     * library.c. */
    unsigned result = blas->api.cublasLtCreate(&blas->handle);
    if (result == OCT_CUBLAS_SUCCESS)
        return OCTET_OK;
    blas->handle = NULL;
    snprintf(reason, sizeof blas->reason - used, "%s%s: cublasLtCreate gave %u", used ? "; " : "",
             name, result);
    return OCTET_UNAVAILABLE;
}

/* NULL: there is none; the reason is the library's own. The device is entered. */
static const struct oct_cublaslt *blas_of(struct oct_cuda *cuda)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

    pthread_mutex_lock(&cuda->lock);
    for (size_t i = 0; i < sizeof names / sizeof *names && !cuda->blas_is_tried; i++)
        if (open_library(&cuda->blas, names[i]) == OCTET_OK)
            break;
    cuda->blas_is_tried = true;
    pthread_mutex_unlock(&cuda->lock);
    return cuda->blas.handle ? &cuda->blas : NULL;
}

void oct_cublaslt_close(struct oct_cuda *cuda)
{
    if (cuda->blas.handle)
        (void)cuda->blas.api.cublasLtDestroy(cuda->blas.handle);
    cuda->blas.handle = NULL;
}

static bool is_fp8(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F8_E4M3FN || dtype == OCTET_DTYPE_F8_E5M2;
}

static bool type_of(enum octet_dtype dtype, unsigned *type)
{
    switch ((int)dtype) {
    case OCTET_DTYPE_F32:
        *type = OCT_CUDA_R_32F;
        return true;
    case OCTET_DTYPE_BF16:
        *type = OCT_CUDA_R_16BF;
        return true;
    case OCTET_DTYPE_F8_E4M3FN:
        *type = OCT_CUDA_R_8F_E4M3;
        return true;
    case OCTET_DTYPE_F8_E5M2:
        *type = OCT_CUDA_R_8F_E5M2;
        return true;
    }
    return false;
}

/* Sets which operands, rows and scales the library takes as they are. */
static enum octet_status plan(const struct oct_cuda *cuda, const struct oct_fast_product *p,
                              struct layout *layout, struct octet_error *err)
{
    bool fp8 = is_fp8(p->lhs_dtype) && is_fp8(p->rhs_dtype);
    int64_t bits = octet_dtype_bits(p->lhs_dtype), out_bits = octet_dtype_bits(p->out_dtype);

    if (!type_of(p->lhs_dtype, &layout->b) || !type_of(p->rhs_dtype, &layout->a) ||
        !type_of(p->out_dtype, &layout->d) || is_fp8(p->out_dtype) ||
        (!fp8 && p->lhs_dtype != p->rhs_dtype) ||
        (p->lhs_dtype == OCTET_DTYPE_F8_E5M2 && p->rhs_dtype == OCTET_DTYPE_F8_E5M2) ||
        (p->lhs_dtype == OCTET_DTYPE_F32 && p->out_dtype != OCTET_DTYPE_F32))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend", "cuBLASLt has no %s x %s -> %s",
                          octet_dtype_name(p->lhs_dtype), octet_dtype_name(p->rhs_dtype),
                          octet_dtype_name(p->out_dtype));
    if (fp8 && cuda->capability < CAPABILITY_FP8)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                          "compute capability %d.%d has no 8-bit floats; 8.9 or newer has",
                          cuda->capability / 10, cuda->capability % 10);
    if (!p->k || p->k * bits % (8 * ALIGNMENT) || p->n * out_bits % (8 * ALIGNMENT) ||
        (fp8 && p->n % ALIGNMENT))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                          "k %lld and n %lld are not of %d bytes for cuBLASLt", (long long)p->k,
                          (long long)p->n, ALIGNMENT);
    if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->batch > INT32_MAX)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend", "too large for cuBLASLt");
    bool lhs = p->lhs_scales > 0, rhs = p->rhs_scales > 0;
    bool vectors = p->lhs_scales == p->batch * p->m && p->rhs_scales == p->batch * p->n &&
                   cuda->capability == CAPABILITY_OUTER_VECTORS;
    layout->scales = !lhs && !rhs                                      ? SCALES_NONE
                     : fp8 && p->lhs_scales <= 1 && p->rhs_scales <= 1 ? SCALES_SCALAR
                     : fp8 && vectors                                  ? SCALES_VECTORS
                                                                       : SCALES_AFTER;
    return OCTET_OK;
}

static void description_free(const struct oct_cublaslt_api *api, struct oct_cublaslt_product *it)
{
    if (it->preference)
        (void)api->cublasLtMatmulPreferenceDestroy(it->preference);
    if (it->d)
        (void)api->cublasLtMatrixLayoutDestroy(it->d);
    if (it->b)
        (void)api->cublasLtMatrixLayoutDestroy(it->b);
    if (it->a)
        (void)api->cublasLtMatrixLayoutDestroy(it->a);
    if (it->product)
        (void)api->cublasLtMatmulDescDestroy(it->product);
}

static unsigned describe_matrix(const struct oct_cublaslt_api *api, void **out, unsigned type,
                                int64_t rows, int64_t columns, int32_t batch)
{
    int64_t apart = rows * columns;
    unsigned result =
        api->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, rows);

    if (result == OCT_CUBLAS_SUCCESS && batch > 1)
        result = api->cublasLtMatrixLayoutSetAttribute(*out, OCT_CUBLASLT_LAYOUT_BATCH_COUNT,
                                                       &batch, sizeof batch);
    if (result == OCT_CUBLAS_SUCCESS && batch > 1)
        result = api->cublasLtMatrixLayoutSetAttribute(
            *out, OCT_CUBLASLT_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart);
    return result;
}

static unsigned describe_scales(const struct oct_cublaslt_api *api, void *product, bool vectors,
                                oct_cuda_pointer lhs, oct_cuda_pointer rhs)
{
    int32_t mode = OCT_CUBLASLT_SCALE_OUTER_VEC_32F;
    unsigned result = OCT_CUBLAS_SUCCESS;

    if (vectors)
        result = api->cublasLtMatmulDescSetAttribute(product, OCT_CUBLASLT_DESC_A_SCALE_MODE, &mode,
                                                     sizeof mode);
    if (vectors && result == OCT_CUBLAS_SUCCESS)
        result = api->cublasLtMatmulDescSetAttribute(product, OCT_CUBLASLT_DESC_B_SCALE_MODE, &mode,
                                                     sizeof mode);
    if (rhs && result == OCT_CUBLAS_SUCCESS)
        result =
            api->cublasLtMatmulDescSetAttribute(product, OCT_CUBLASLT_DESC_A_SCALE_POINTER,
                                                &(void *){(void *)(uintptr_t)rhs}, sizeof(void *));
    if (lhs && result == OCT_CUBLAS_SUCCESS)
        result =
            api->cublasLtMatmulDescSetAttribute(product, OCT_CUBLASLT_DESC_B_SCALE_POINTER,
                                                &(void *){(void *)(uintptr_t)lhs}, sizeof(void *));
    return result;
}

static unsigned describe(const struct oct_cublaslt_api *api, const struct oct_fast_product *p,
                         const struct layout *layout, uint64_t workspace,
                         struct oct_cublaslt_product *it)
{
    int32_t transposed = OCT_CUBLAS_OP_T, as_it_is = OCT_CUBLAS_OP_N;
    int32_t batch = (int32_t)p->batch;
    bool scaled = layout->scales == SCALES_SCALAR || layout->scales == SCALES_VECTORS;
    unsigned result =
        api->cublasLtMatmulDescCreate(&it->product, OCT_CUBLAS_COMPUTE_32F, OCT_CUDA_R_32F);

    if (result == OCT_CUBLAS_SUCCESS)
        result = api->cublasLtMatmulDescSetAttribute(it->product, OCT_CUBLASLT_DESC_TRANSA,
                                                     &transposed, sizeof transposed);
    if (result == OCT_CUBLAS_SUCCESS)
        result = api->cublasLtMatmulDescSetAttribute(it->product, OCT_CUBLASLT_DESC_TRANSB,
                                                     &as_it_is, sizeof as_it_is);
    if (result == OCT_CUBLAS_SUCCESS && scaled)
        result =
            describe_scales(api, it->product, layout->scales == SCALES_VECTORS,
                            p->lhs_scales ? p->lhs_scale : 0, p->rhs_scales ? p->rhs_scale : 0);
    if (result == OCT_CUBLAS_SUCCESS)
        result = describe_matrix(api, &it->a, layout->a, p->k, p->n, batch);
    if (result == OCT_CUBLAS_SUCCESS)
        result = describe_matrix(api, &it->b, layout->b, p->k, p->m, batch);
    if (result == OCT_CUBLAS_SUCCESS)
        result = describe_matrix(api, &it->d, layout->d, p->n, p->m, batch);
    if (result == OCT_CUBLAS_SUCCESS)
        result = api->cublasLtMatmulPreferenceCreate(&it->preference);
    if (result == OCT_CUBLAS_SUCCESS)
        result = api->cublasLtMatmulPreferenceSetAttribute(
            it->preference, OCT_CUBLASLT_PREFERENCE_MAX_WORKSPACE_BYTES, &workspace,
            sizeof workspace);
    return result;
}

/* Descriptors, and the algorithm that the library takes for them. Results: NOT_SUPPORTED and the
 * like mean: not for this product. The caller frees `it` either way. */
static unsigned choose(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                       const struct layout *layout, struct oct_cublaslt_product *it)
{
    const struct oct_cublaslt *blas = &queue->cuda->blas;
    int choices = 0;
    unsigned result = describe(&blas->api, p, layout, queue->workspace_bytes, it);

    if (result == OCT_CUBLAS_SUCCESS)
        result = blas->api.cublasLtMatmulAlgoGetHeuristic(blas->handle, it->product, it->a, it->b,
                                                          it->d, it->d, it->preference, 1,
                                                          &it->choice, &choices);
    if (result == OCT_CUBLAS_SUCCESS && (choices < 1 || it->choice.state != OCT_CUBLAS_SUCCESS))
        result = OCT_CUBLAS_NOT_SUPPORTED;
    return result;
}

static unsigned start(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                      const struct oct_cublaslt_product *it)
{
    const struct oct_cublaslt *blas = &queue->cuda->blas;
    float one = 1, zero = 0;
    void *out = (void *)(uintptr_t)p->out;

    return blas->api.cublasLtMatmul(
        blas->handle, it->product, &one, (const void *)(uintptr_t)p->rhs, it->a,
        (const void *)(uintptr_t)p->lhs, it->b, &zero, out, it->d, out, it->d, it->choice.algorithm,
        (void *)(uintptr_t)queue->workspace, queue->workspace_bytes, queue->stream);
}

static unsigned multiply(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                         const struct layout *layout)
{
    struct oct_cublaslt_product it = {0};
    unsigned result = choose(queue, p, layout, &it);

    if (result == OCT_CUBLAS_SUCCESS)
        result = start(queue, p, &it);
    description_free(&queue->cuda->blas.api, &it);
    return result;
}

/* Vectors belong to one product each, so those of a batch are multiplied one after another. */
static unsigned multiply_each(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                              const struct layout *layout)
{
    size_t lhs = (size_t)(p->m * p->k), rhs = (size_t)(p->n * p->k);
    size_t out = (size_t)(p->m * p->n) * octet_dtype_bytes(p->out_dtype);
    unsigned result = OCT_CUBLAS_SUCCESS;

    for (int64_t b = 0; b < p->batch && result == OCT_CUBLAS_SUCCESS; b++) {
        struct oct_fast_product one = *p;

        one.batch = 1;
        one.lhs += (size_t)b * lhs;
        one.rhs += (size_t)b * rhs;
        one.out += (size_t)b * out;
        one.lhs_scale += (size_t)(b * p->m) * sizeof(float);
        one.rhs_scale += (size_t)(b * p->n) * sizeof(float);
        one.lhs_scales = p->m;
        one.rhs_scales = p->n;
        result = multiply(queue, &one, layout);
    }
    return result;
}

static enum octet_status blas_status(struct oct_cuda *cuda, unsigned result,
                                     struct octet_error *err)
{
    switch (result) {
    case OCT_CUBLAS_SUCCESS:
        return OCTET_OK;
    case OCT_CUBLAS_NOT_SUPPORTED:
    case OCT_CUBLAS_INVALID_VALUE: /* an attribute that this version does not know */
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                          "cuBLASLt has no algorithm for this product (%u)", result);
    case OCT_CUBLAS_ALLOC_FAILED:
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "backend",
                          "cuBLASLt found no memory for a product");
    case OCT_CUBLAS_EXECUTION_FAILED:
        return oct_cuda_status(cuda, OCT_CUDA_LAUNCH_FAILED, err, "a product of cuBLASLt");
    }
    return octet_fail(err, OCTET_INTERNAL, "backend", "cuBLASLt failed: %u", result);
}

/* Memory of the queue's, kept: at least `bytes`. */
static enum octet_status keep(struct oct_cuda_queue *queue, oct_cuda_pointer *pointer, size_t *held,
                              size_t bytes, struct octet_error *err)
{
    struct oct_cuda *cuda = queue->cuda;

    if (*held >= bytes)
        return OCTET_OK;
    if (*pointer)
        (void)cuda->api.cuMemFree(*pointer);
    *pointer = 0;
    *held = 0;
    enum octet_status status = oct_cuda_status(cuda, cuda->api.cuMemAlloc(pointer, bytes), err,
                                               "taking %zu bytes for a FAST product", bytes);
    if (status == OCTET_OK)
        *held = bytes;
    return status;
}

/* out = sums * lhs' scale * rhs' scale, by a kernel. */
static enum octet_status scale_after(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                                     oct_cuda_pointer sums, struct octet_error *err)
{
    enum { ITEMS = 256 };
    int64_t columns = (p->n + ITEMS - 1) / ITEMS;
    int64_t rows = p->batch * p->m;
    struct oct_device_argument arguments[] = {
        {OCT_ARGUMENT_BUFFER, .buffer = sums},
        {OCT_ARGUMENT_BUFFER, .buffer = p->lhs_scale},
        {OCT_ARGUMENT_BUFFER, .buffer = p->rhs_scale},
        {OCT_ARGUMENT_INTEGER, .integer = p->m},
        {OCT_ARGUMENT_INTEGER, .integer = p->n},
        {OCT_ARGUMENT_INTEGER, .integer = p->lhs_scales},
        {OCT_ARGUMENT_INTEGER, .integer = p->rhs_scales},
        {OCT_ARGUMENT_INTEGER, .integer = p->out_dtype},
        {OCT_ARGUMENT_BUFFER, .buffer = p->out},
    };
    struct oct_device_grid grid = {{(size_t)rows, (size_t)columns}, {ITEMS, 1}};

    return oct_driver_cuda.launch(queue, OCT_KERNEL_rescale, &grid, arguments,
                                  sizeof arguments / sizeof *arguments, err);
}

/* The library's sums in f32, then the scales. */
static enum octet_status multiply_then_scale(struct oct_cuda_queue *queue,
                                             const struct oct_fast_product *p,
                                             struct octet_error *err)
{
    struct oct_fast_product sums = *p;
    struct layout layout;
    enum octet_status status = OCTET_OK;

    sums.lhs_scales = sums.rhs_scales = 0;
    sums.out_dtype = OCTET_DTYPE_F32;
    if (p->out_dtype != OCTET_DTYPE_F32) {
        status = keep(queue, &queue->sums, &queue->sums_bytes,
                      (size_t)(p->batch * p->m * p->n) * sizeof(float), err);
        sums.out = queue->sums;
    }
    if (status == OCTET_OK)
        status = plan(queue->cuda, &sums, &layout, err);
    if (status == OCTET_OK)
        status = blas_status(queue->cuda, multiply(queue, &sums, &layout), err);
    return status == OCTET_OK ? scale_after(queue, p, sums.out, err) : status;
}

/* The library, and a workspace, without which it has fewer algorithms, not none. */
static enum octet_status make_ready(struct oct_cuda_queue *queue, struct octet_error *err)
{
    struct octet_error why;

    if (!blas_of(queue->cuda))
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend", "no cuBLASLt: %s",
                          queue->cuda->blas.reason);
    if (keep(queue, &queue->workspace, &queue->workspace_bytes, WORKSPACE_BYTES, &why) ==
        OCTET_UNAVAILABLE)
        return octet_fail(err, OCTET_UNAVAILABLE, why.field, "%s", why.text);
    return OCTET_OK;
}

static enum octet_status run(struct oct_cuda_queue *queue, const struct oct_fast_product *p,
                             struct layout *layout, struct octet_error *err)
{
    unsigned result = OCT_CUBLAS_NOT_SUPPORTED;
    enum octet_status status = make_ready(queue, err);

    if (status != OCTET_OK)
        return status;
    if (layout->scales == SCALES_VECTORS)
        result = multiply_each(queue, p, layout);
    else if (layout->scales != SCALES_AFTER)
        result = multiply(queue, p, layout);
    /* Vectors of scales: a library before 12.9 does not know them. */
    if (layout->scales == SCALES_AFTER ||
        (layout->scales == SCALES_VECTORS &&
         (result == OCT_CUBLAS_NOT_SUPPORTED || result == OCT_CUBLAS_INVALID_VALUE)))
        return multiply_then_scale(queue, p, err);
    return blas_status(queue->cuda, result, err);
}

enum octet_status oct_cuda_fast_product(void *opaque, const struct oct_fast_product *product,
                                        struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    struct layout layout;
    enum octet_status status = plan(queue->cuda, product, &layout, err);

    if (status != OCTET_OK || !product->batch || !product->m || !product->n)
        return status;
    status = oct_cuda_enter(queue->cuda, err);
    if (status != OCTET_OK)
        return status;
    status = run(queue, product, &layout, err);
    oct_cuda_leave(queue->cuda);
    return status;
}

enum octet_status oct_cublaslt_prepare(struct oct_cuda_queue *queue,
                                       const struct oct_fast_product *product,
                                       struct oct_cublaslt_product *it, struct octet_error *err)
{
    struct layout layout;
    enum octet_status status = plan(queue->cuda, product, &layout, err);

    if (status == OCTET_OK)
        status = make_ready(queue, err);
    if (status == OCTET_OK)
        status = blas_status(queue->cuda, choose(queue, product, &layout, it), err);
    return status;
}

enum octet_status oct_cublaslt_start(struct oct_cuda_queue *queue,
                                     const struct oct_fast_product *product,
                                     const struct oct_cublaslt_product *it, struct octet_error *err)
{
    return blas_status(queue->cuda, start(queue, product, it), err);
}

void oct_cublaslt_release(struct oct_cuda_queue *queue, struct oct_cublaslt_product *it)
{
    description_free(&queue->cuda->blas.api, it);
}
