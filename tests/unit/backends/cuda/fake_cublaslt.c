/* A stand-in for libcublasLt.so.13: reads descriptors as the library's reference has them
 * (column-major, D = scale_a scale_b op(A) op(B)), refuses what it refuses, and multiplies in
 * double precision. */
#include "fake.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/facts.h"

#define API __attribute__((visibility("default")))

#define DECLARE(name, arguments) API unsigned name arguments;
OCT_CUBLASLT_FUNCTIONS(DECLARE)
#undef DECLARE

struct desc {
    int32_t transposed_a, transposed_b, mode_a, mode_b;
    const float *scale_a, *scale_b;
};

struct matrix {
    unsigned type;
    uint64_t rows, columns;
    int64_t stride, apart;
    int32_t batch;
};

struct product {
    struct desc desc;
    struct matrix a, b, d;
    const void *a_data, *b_data;
    void *d_data;
};

unsigned cublasLtCreate(void **handle)
{
    *handle = calloc(1, 1);
    return *handle ? OCT_CUBLAS_SUCCESS : OCT_CUBLAS_ALLOC_FAILED;
}

unsigned cublasLtDestroy(void *handle)
{
    free(handle);
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatmulDescCreate(void **out, unsigned compute, unsigned scale)
{
    if (compute != OCT_CUBLAS_COMPUTE_32F || scale != OCT_CUDA_R_32F)
        return OCT_CUBLAS_NOT_SUPPORTED;
    *out = calloc(1, sizeof(struct desc));
    return *out ? OCT_CUBLAS_SUCCESS : OCT_CUBLAS_ALLOC_FAILED;
}

unsigned cublasLtMatmulDescDestroy(void *desc)
{
    free(desc);
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatmulDescSetAttribute(void *opaque, unsigned attribute, const void *value,
                                        size_t bytes)
{
    struct desc *desc = opaque;
    struct {
        unsigned attribute;
        void *to;
        size_t bytes;
    } known[] = {
        {OCT_CUBLASLT_DESC_TRANSA, &desc->transposed_a, 4},
        {OCT_CUBLASLT_DESC_TRANSB, &desc->transposed_b, 4},
        {OCT_CUBLASLT_DESC_A_SCALE_POINTER, &desc->scale_a, 8},
        {OCT_CUBLASLT_DESC_B_SCALE_POINTER, &desc->scale_b, 8},
        {OCT_CUBLASLT_DESC_A_SCALE_MODE, &desc->mode_a, 4},
        {OCT_CUBLASLT_DESC_B_SCALE_MODE, &desc->mode_b, 4},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute && known[i].bytes == bytes &&
            (fake_cuda.knows_vectors || attribute < OCT_CUBLASLT_DESC_A_SCALE_MODE)) {
            memcpy(known[i].to, value, bytes);
            return OCT_CUBLAS_SUCCESS;
        }
    return OCT_CUBLAS_INVALID_VALUE;
}

unsigned cublasLtMatrixLayoutCreate(void **out, unsigned type, uint64_t rows, uint64_t columns,
                                    int64_t stride)
{
    struct matrix *matrix = calloc(1, sizeof *matrix);

    if (!matrix)
        return OCT_CUBLAS_ALLOC_FAILED;
    *matrix = (struct matrix){type, rows, columns, stride, 0, 1};
    *out = matrix;
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatrixLayoutDestroy(void *layout)
{
    free(layout);
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatrixLayoutSetAttribute(void *opaque, unsigned attribute, const void *value,
                                          size_t bytes)
{
    struct matrix *matrix = opaque;

    if (attribute == OCT_CUBLASLT_LAYOUT_BATCH_COUNT && bytes == sizeof matrix->batch)
        memcpy(&matrix->batch, value, bytes);
    else if (attribute == OCT_CUBLASLT_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof matrix->apart)
        memcpy(&matrix->apart, value, bytes);
    else
        return OCT_CUBLAS_INVALID_VALUE;
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatmulPreferenceCreate(void **preference)
{
    *preference = calloc(1, sizeof(uint64_t));
    return *preference ? OCT_CUBLAS_SUCCESS : OCT_CUBLAS_ALLOC_FAILED;
}

unsigned cublasLtMatmulPreferenceDestroy(void *preference)
{
    free(preference);
    return OCT_CUBLAS_SUCCESS;
}

unsigned cublasLtMatmulPreferenceSetAttribute(void *preference, unsigned attribute,
                                              const void *value, size_t bytes)
{
    if (attribute != OCT_CUBLASLT_PREFERENCE_MAX_WORKSPACE_BYTES || bytes != sizeof(uint64_t))
        return OCT_CUBLAS_INVALID_VALUE;
    memcpy(preference, value, bytes);
    return OCT_CUBLAS_SUCCESS;
}

static size_t bytes_of(unsigned type)
{
    return type == OCT_CUDA_R_32F ? 4 : type == OCT_CUDA_R_16BF ? 2 : 1;
}

static bool is_fp8(unsigned type)
{
    return type == OCT_CUDA_R_8F_E4M3 || type == OCT_CUDA_R_8F_E5M2;
}

/* What the reference says of types, layouts, alignment and scales. */
static bool is_supported(const struct desc *desc, const struct matrix *a, const struct matrix *b,
                         const struct matrix *d)
{
    bool fp8 = is_fp8(a->type) && is_fp8(b->type);
    uint64_t m = desc->transposed_a ? a->columns : a->rows,
             k = desc->transposed_a ? a->rows : a->columns;
    bool vectors = desc->mode_a || desc->mode_b;

    if (d->rows != m || d->columns != b->columns || b->rows != k || desc->transposed_b)
        return false;
    if (a->stride != (int64_t)a->rows || b->stride != (int64_t)b->rows ||
        d->stride != (int64_t)d->rows)
        return false;
    if (!fp8)
        return a->type == b->type && !is_fp8(a->type) && !desc->scale_a && !desc->scale_b &&
               (a->type != OCT_CUDA_R_32F || d->type == OCT_CUDA_R_32F);
    return desc->transposed_a && m % 16 == 0 && k % 16 == 0 && !is_fp8(d->type) &&
           !(a->type == OCT_CUDA_R_8F_E5M2 && b->type == OCT_CUDA_R_8F_E5M2) &&
           fake_cuda.capability >= 89 &&
           (!vectors || (desc->mode_a == OCT_CUBLASLT_SCALE_OUTER_VEC_32F &&
                         desc->mode_b == OCT_CUBLASLT_SCALE_OUTER_VEC_32F && desc->scale_a &&
                         desc->scale_b && fake_cuda.capability == 90 && a->batch == 1));
}

unsigned cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c,
                                        void *d, void *preference, int choices_max,
                                        struct oct_cublaslt_choice *choices, int *choices_count)
{
    (void)handle, (void)preference;
    *choices_count = 0;
    if (choices_max < 1 || c != d || !is_supported(desc, a, b, d))
        return OCT_CUBLAS_NOT_SUPPORTED;
    choices[0].state = OCT_CUBLAS_SUCCESS;
    choices[0].algorithm[0] = 4711;
    *choices_count = 1;
    return OCT_CUBLAS_SUCCESS;
}

static double number(unsigned type, const void *data, int64_t i)
{
    float x;
    uint32_t bits;

    if (type == OCT_CUDA_R_32F)
        return (double)((const float *)data)[i];
    if (type == OCT_CUDA_R_16BF) {
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
    int mantissa = type == OCT_CUDA_R_8F_E4M3 ? 3 : 2, bias = type == OCT_CUDA_R_8F_E4M3 ? 7 : 15;
    int code = ((const uint8_t *)data)[i], exponent = (code & 127) >> mantissa;
    int fraction = code & ((1 << mantissa) - 1);
    double value = exponent ? fraction + (1 << mantissa) : fraction;
    for (int e = (exponent ? exponent : 1) - bias - mantissa; e; e += e < 0 ? 1 : -1)
        value *= e < 0 ? 0.5 : 2;
    return code & 128 ? -value : value;
}

static void put(unsigned type, void *data, int64_t i, double value)
{
    float x = (float)value;
    uint32_t bits;

    if (type == OCT_CUDA_R_32F) {
        ((float *)data)[i] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void run_product(void *argument)
{
    const struct product *p = argument;
    int64_t m = (int64_t)p->d.rows, n = (int64_t)p->d.columns, k = (int64_t)p->b.rows;

    fake_cuda.products++;
    for (int32_t batch = 0; batch < p->d.batch; batch++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += number(p->a.type, p->a_data, batch * p->a.apart + i * p->a.stride + l) *
                           number(p->b.type, p->b_data, batch * p->b.apart + j * p->b.stride + l);
                if (p->desc.scale_a)
                    sum *= (double)p->desc.scale_a[p->desc.mode_a ? i : 0];
                if (p->desc.scale_b)
                    sum *= (double)p->desc.scale_b[p->desc.mode_b ? j : 0];
                put(p->d.type, p->d_data, batch * p->d.apart + j * p->d.stride + i, sum);
            }
}

unsigned cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a_data, void *a,
                        const void *b_data, void *b, const void *beta, const void *c_data, void *c,
                        void *d_data, void *d, const void *algorithm, void *workspace,
                        size_t workspace_bytes, oct_cuda_stream stream)
{
    struct product *product = calloc(1, sizeof *product);
    uint64_t choice;

    (void)handle, (void)workspace, (void)workspace_bytes;
    if (!product)
        return OCT_CUBLAS_ALLOC_FAILED;
    memcpy(&choice, algorithm, sizeof choice);
    *product = (struct product){.a_data = a_data, .b_data = b_data, .d_data = d_data};
    memcpy(&product->desc, desc, sizeof product->desc);
    memcpy(&product->a, a, sizeof product->a);
    memcpy(&product->b, b, sizeof product->b);
    memcpy(&product->d, d, sizeof product->d);
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 || c != d || c_data != d_data ||
        choice != 4711 || !product->desc.transposed_a ||
        !is_supported(&product->desc, &product->a, &product->b, &product->d)) {
        free(product);
        return OCT_CUBLAS_INVALID_VALUE;
    }
    fake_cuda_enqueue(stream, run_product, product);
    return OCT_CUBLAS_SUCCESS;
}
