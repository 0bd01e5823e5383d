/* See figures.h. */
#include "figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    return copysignf((float)fraction * 0x1p-24f, from_bits(sign | 0x3f800000));
}

bool figures_reads(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16 || dtype == OCTET_DTYPE_F16 ||
           dtype == OCTET_DTYPE_S32 || dtype == OCTET_DTYPE_S8;
}

double figures_number(const struct octet_array *array, int64_t i)
{
    const char *at = (const char *)array->data + (size_t)i * octet_dtype_bytes(array->dtype);
    uint32_t word = 0;

    memcpy(&word, at, octet_dtype_bytes(array->dtype));
    switch (array->dtype) {
    case OCTET_DTYPE_F32:
        return (double)from_bits(word);
    case OCTET_DTYPE_BF16:
        return (double)from_bits(word << 16);
    case OCTET_DTYPE_F16:
        return (double)from_half((uint16_t)word);
    case OCTET_DTYPE_S32:
        return (int32_t)word;
    case OCTET_DTYPE_S8:
        return (int8_t)word;
    default:
        return NAN;
    }
}

float largest_of_qtype(const char *qtype)
{
    static const struct {
        const char *name;
        float largest; /* of floats: half way to the code that would come next */
    } rows[] = {
        {"float8_e4m3fn", 464}, {"float8_e4m3", 464}, {"float8_e5m2", 61440}, {"mxfp8", 464},
        {"float4_e2m1fn", 7},   {"mxfp4", 7},         {"nvfp4", 7},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(qtype, rows[i].name) == 0)
            return rows[i].largest;
    if (strncmp(qtype, "int", 3) == 0 && qtype[3] >= '2' && qtype[3] <= '8' && !qtype[4])
        return (float)(1 << (qtype[3] - '1')) - 0.5f;
    return 0;
}

/* Where the elements of a row (the last axis) find their scales. */
struct grid {
    const struct octet_array *array, *scale;
    int64_t stride[OCTET_ARRAY_RANK_MAX]; /* of the scale, for one step of its own axis */
    int64_t tile[OCTET_ARRAY_RANK_MAX];   /* elements of the array for one step of the scale */
};

static void grid_make(const struct octet_array *array, const struct octet_array *scale,
                      struct grid *out)
{
    int64_t stride = 1;

    *out = (struct grid){.array = array, .scale = scale};
    for (int32_t i = array->rank - 1; i >= 0; i--) {
        int64_t size = scale->dim[i];
        out->stride[i] = stride;
        out->tile[i] = size > 0 && array->dim[i] >= size ? array->dim[i] / size : 1;
        stride *= size;
    }
}

/* Index of the first scale of the row that begins at this element. */
static int64_t row_scale(const struct grid *grid, int64_t element)
{
    int64_t index = 0;

    for (int32_t i = grid->array->rank - 1; i >= 0; i--) {
        int64_t size = grid->array->dim[i], at = element % size;
        element /= size;
        index += at / grid->tile[i] * grid->stride[i];
    }
    return index;
}

static void look_at(double x, float scale, double y, float largest, struct loss *out,
                    double *signal, double *noise)
{
    double magnitude = fabs(x), error = fabs(x - y);

    if (!isfinite(x)) {
        out->nonfinite++;
        return;
    }
    out->amax = (float)magnitude > out->amax ? (float)magnitude : out->amax;
    out->saturated += largest > 0 && fabsf((float)x * (1.0f / scale)) > largest;
    out->underflowed += magnitude > 0 && y == 0;
    if (!isfinite(y)) {
        out->destroyed++;
        return;
    }
    *signal += x * x;
    *noise += error * error;
    out->error_max = error > out->error_max ? error : out->error_max;
}

static void measure_scales(const struct octet_array *scale, struct loss *out)
{
    int64_t count = octet_array_elements(scale);
    bool any = false;

    for (int64_t i = 0; i < count; i++) {
        float value = (float)figures_number(scale, i);
        if (!isfinite(value)) /* of a group that holds a NaN or Inf */
            continue;
        out->scale_min = any && out->scale_min < value ? out->scale_min : value;
        out->scale_max = any && out->scale_max > value ? out->scale_max : value;
        any = true;
    }
}

static double decibel(double signal, double noise)
{
    return signal > 0 ? noise > 0 ? 10 * log10(signal / noise) : INFINITY : NAN;
}

void loss_measure(const struct octet_array *array, const struct octet_array *scale,
                  const struct octet_array *dequantized, float largest, struct loss *out)
{
    double signal = 0, noise = 0;
    int32_t last = array->rank - 1;
    struct grid grid;

    *out = (struct loss){.elements = octet_array_elements(array)};
    grid_make(array, scale, &grid);
    measure_scales(scale, out);
    int64_t row = last >= 0 ? array->dim[last] : 1, tile = last >= 0 ? grid.tile[last] : 1;
    for (int64_t begin = 0; begin < out->elements; begin += row) {
        int64_t first = row_scale(&grid, begin);
        for (int64_t i = 0; i < row; i++)
            look_at(figures_number(array, begin + i),
                    (float)figures_number(scale, first + i / tile),
                    figures_number(dequantized, begin + i), largest, out, &signal, &noise);
    }
    out->sqnr_db = decibel(signal, noise);
}

void difference_measure(const struct octet_array *array, const struct octet_array *reference,
                        struct difference *out)
{
    size_t bytes = octet_dtype_bytes(array->dtype);
    bool same_type = array->dtype == reference->dtype;
    double signal = 0, noise = 0;

    *out = (struct difference){.elements = octet_array_elements(array)};
    for (int64_t i = 0; i < out->elements; i++) {
        const char *a = (const char *)array->data + (size_t)i * bytes;
        const char *b = (const char *)reference->data + (size_t)i * bytes;
        double x = figures_number(array, i), y = figures_number(reference, i);
        bool equal = same_type && memcmp(a, b, bytes) == 0;
        out->equal_bits += equal;
        if (isfinite(y) && fabs(y) > out->reference_max)
            out->reference_max = fabs(y);
        if (!isfinite(x) || !isfinite(y)) {
            out->nonfinite += !equal && !(x == y) && !(isnan(x) && isnan(y));
            continue;
        }
        if (fabs(x - y) > out->absolute_max)
            out->absolute_max = fabs(x - y);
        signal += y * y;
        noise += (x - y) * (x - y);
    }
    out->sqnr_db = decibel(signal, noise);
    out->relative = out->absolute_max > 0 ? out->absolute_max / out->reference_max : 0;
    if (!same_type)
        out->equal_bits = -1;
}
