/* See reference.h: arrays, types, quantization. */
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

/* ---- memory ---- */

static struct piece {
    struct piece *next;
    _Alignas(16) char data[];
} * pieces;

static void *allocate(size_t bytes)
{
    struct piece *piece = calloc(1, sizeof *piece + bytes + 1);

    if (!piece)
        ck_abort_msg("no memory");
    piece->next = pieces;
    pieces = piece;
    return piece->data;
}

void ref_clear(void)
{
    while (pieces) {
        struct piece *next = pieces->next;
        free(pieces);
        pieces = next;
    }
}

/* ---- arrays ---- */

struct ref ref_make(enum octet_dtype dtype, int32_t rank, const int64_t *dim)
{
    struct ref x = {.dtype = dtype, .rank = rank, .count = 1};

    for (int32_t i = 0; i < rank; i++)
        x.count *= x.dim[i] = dim[i];
    x.v = allocate((size_t)x.count * sizeof *x.v);
    return x;
}

bool ref_next(int32_t rank, const int64_t *dim, int64_t *index)
{
    for (int32_t i = rank - 1; i >= 0; i--) {
        if (++index[i] < dim[i])
            return true;
        index[i] = 0;
    }
    return false;
}

float *ref_at(const struct ref *x, const int64_t *index)
{
    int64_t at = 0;

    for (int32_t i = 0; i < x->rank; i++)
        at = at * x->dim[i] + index[i];
    return &x->v[at];
}

float ref_grid(const struct ref *grid, const struct ref *x, const int64_t *index)
{
    int64_t at[8];

    for (int32_t i = 0; i < x->rank; i++)
        at[i] = index[i] / (x->dim[i] / grid->dim[i]);
    return *ref_at(grid, at);
}

struct ref ref_of(const struct octet_array *array)
{
    struct ref x = ref_make(array->dtype, array->rank, array->dim);

    for (int64_t i = 0; i < x.count; i++)
        x.v[i] = octet_dtype_bytes(array->dtype) == 1
                     ? ref_decode(array->dtype, ((const uint8_t *)array->data)[i])
                     : array_at(array, i);
    return x;
}

struct ref_value ref_value_of(const struct octet_operand *operand)
{
    struct ref_value value = {0};

    if (!operand->is_quantized) {
        value.x = ref_of(&operand->array);
        return value;
    }
    value.x = ref_of(&operand->quantized.qvalue);
    value.scale = ref_of(&operand->quantized.scale);
    if (operand->quantized.zero_point.data)
        value.zero = ref_of(&operand->quantized.zero_point);
    return value;
}

struct ref ref_permute(const struct ref *x, const int32_t *from)
{
    int64_t dim[8] = {0}, index[8] = {0}, at[8];

    for (int32_t i = 0; i < x->rank; i++)
        dim[i] = x->dim[from[i]];
    struct ref y = ref_make(x->dtype, x->rank, dim);
    for (int64_t n = 0; n < y.count; n++, ref_next(y.rank, y.dim, index)) {
        for (int32_t i = 0; i < x->rank; i++)
            at[from[i]] = index[i];
        y.v[n] = *ref_at(x, at);
    }
    return y;
}

struct ref ref_cast(const struct ref *x, enum octet_dtype dtype)
{
    struct ref y = ref_make(dtype, x->rank, x->dim);

    for (int64_t i = 0; i < x->count; i++)
        y.v[i] = ref_round(dtype, x->v[i]);
    return y;
}

/* ---- numbers ---- */

/* To 8 significant bits, in double, which holds all of it exactly. */
float ref_round(enum octet_dtype dtype, float x)
{
    int exponent;

    if (dtype != OCTET_DTYPE_BF16 || x == 0 || !isfinite(x))
        return x;
    frexp((double)x, &exponent);
    double unit = ldexp(1, (exponent < -125 ? -125 : exponent) - 8);
    double rounded = nearbyint((double)x / unit) * unit;
    return fabs(rounded) >= 0x1p128 ? copysignf(INFINITY, x) : (float)rounded;
}

static const struct qtype {
    const char *name;
    enum octet_dtype dtype;
    float bound;
    int code_max;      /* of floats the code of the largest number */
    int exponent_bits; /* 0: an integer */
    int mantissa_bits, bias, bits;
    int block;
    char rule; /* of the scale: ' ', '2': power of two, 'e': E4M3 */
} qtypes[] = {
    {"float8_e4m3fn", OCTET_DTYPE_F8_E4M3FN, 448, 0x7e, 4, 3, 7, 8, 0, ' '},
    {"float8_e5m2", OCTET_DTYPE_F8_E5M2, 57344, 0x7b, 5, 2, 15, 8, 0, ' '},
    {"float4_e2m1fn", OCTET_DTYPE_F4_E2M1FN, 6, 7, 2, 1, 1, 4, 0, ' '},
    {"mxfp8", OCTET_DTYPE_F8_E4M3FN, 448, 0x7e, 4, 3, 7, 8, 32, '2'},
    {"mxfp4", OCTET_DTYPE_F4_E2M1FN, 6, 7, 2, 1, 1, 4, 32, '2'},
    {"nvfp4", OCTET_DTYPE_F4_E2M1FN, 6, 7, 2, 1, 1, 4, 16, 'e'},
    {"int8", OCTET_DTYPE_S8, 127.5f, 127, 0, 0, 0, 8, 0, ' '},
    {"int7", OCTET_DTYPE_S8, 63.5f, 63, 0, 0, 0, 8, 0, ' '},
    {"int6", OCTET_DTYPE_S8, 31.5f, 31, 0, 0, 0, 8, 0, ' '},
    {"int5", OCTET_DTYPE_S8, 15.5f, 15, 0, 0, 0, 8, 0, ' '},
    {"int4", OCTET_DTYPE_S4, 7.5f, 7, 0, 0, 0, 4, 0, ' '},
    {"int3", OCTET_DTYPE_S4, 3.5f, 3, 0, 0, 0, 4, 0, ' '},
    {"int2", OCTET_DTYPE_S4, 1.5f, 1, 0, 0, 0, 4, 0, ' '},
};

static const struct qtype *find_qtype(const char *name)
{
    for (size_t i = 0; name && i < sizeof qtypes / sizeof *qtypes; i++)
        if (strcmp(qtypes[i].name, name) == 0)
            return &qtypes[i];
    ck_abort_msg("no type '%s'", name ? name : "");
    return NULL;
}

static const struct qtype *type_of(enum octet_dtype dtype)
{
    size_t i = 0;

    while (qtypes[i].dtype != dtype)
        i++;
    return &qtypes[i];
}

static double magnitude_by_definition(const struct qtype *type, int code)
{
    int mantissa = code & ((1 << type->mantissa_bits) - 1), exponent = code >> type->mantissa_bits;

    if (exponent == 0)
        return ldexp(mantissa, 1 - type->bias - type->mantissa_bits);
    return ldexp((1 << type->mantissa_bits) + mantissa,
                 exponent - type->bias - type->mantissa_bits);
}

/* The same from a table of the type's numbers, made once. */
static double magnitude_of(const struct qtype *type, int code)
{
    static double tables[sizeof qtypes / sizeof *qtypes][128];
    double *table = tables[type_of(type->dtype) - qtypes];

    for (int i = 127; !table[1] && i > 0; i--)
        table[i] = magnitude_by_definition(type, i);
    return table[code];
}

float ref_decode(enum octet_dtype dtype, uint8_t code)
{
    const struct qtype *type = type_of(dtype);
    int sign = 1 << (type->bits - 1), magnitude = code & (sign - 1);

    if (!type->exponent_bits)
        return (float)(magnitude - (code & sign));
    if (dtype == OCTET_DTYPE_F8_E5M2 && magnitude == 0x7c)
        return code & sign ? -INFINITY : INFINITY;
    if (dtype != OCTET_DTYPE_F4_E2M1FN && magnitude > type->code_max)
        return NAN;
    float value = (float)magnitude_of(type, magnitude);
    return code & sign ? -value : value;
}

/* The nearest number of the type, of two equally near ones that with the even code. */
static uint8_t nearest_code(const struct qtype *type, float x)
{
    double a = fabs((double)x);
    int code = 0, sign = signbit(x) ? 1 << (type->bits - 1) : 0;

    if (isnan(x))
        return type->bits == 4 ? 8 : 0x7f;
    for (int step = 64; step; step /= 2) /* the last number that is not above */
        if (code + step <= type->code_max && magnitude_of(type, code + step) <= a)
            code += step;
    while (code < type->code_max) {
        double middle = (magnitude_of(type, code) + magnitude_of(type, code + 1)) / 2;
        if (a < middle || (a == middle && code % 2 == 0))
            break;
        code++;
    }
    return (uint8_t)(code | sign);
}

static int integer_of(const struct qtype *type, float x)
{
    double low = -type->code_max - 1, high = type->code_max, rounded = nearbyint((double)x);

    if (isnan(x))
        return 0;
    return (int)(rounded < low ? low : rounded > high ? high : rounded);
}

static uint8_t encode(const struct qtype *type, float x)
{
    if (type->exponent_bits)
        return nearest_code(type, x);
    return (uint8_t)integer_of(type, x); /* an int4 carries its sign through the byte */
}

uint8_t ref_encode(const char *qtype, float x)
{
    return encode(find_qtype(qtype), x);
}

/* ---- calibration ---- */

struct method {
    enum { ABSMAX, MINMAX, RMS, FIXED } kind;
    int count;
    float number[2];
};

static struct method read_method(const char *text)
{
    static const char *const names[] = {"absmax", "minmax", "rms", "fixed"};
    struct method method = {.kind = ABSMAX};

    if (!text || !text[0])
        return method;
    for (int i = 0; i < 4; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0)
            method.kind = (int)i;
    for (const char *p = strchr(text, ','); p; p = strchr(p + 1, ','))
        method.number[method.count++] = (float)strtod(p + 1, NULL);
    return method;
}

int64_t ref_tile(const char *text, int64_t dim)
{
    if (!text || !text[0])
        return 0;
    if (strncmp(text, "1/", 2) == 0)
        return (int64_t)nearbyint((double)dim * (1.0 / strtod(text + 2, NULL)));
    if (strchr(text, '.'))
        return (int64_t)nearbyint((double)dim * strtod(text, NULL));
    return strtoll(text, NULL, 10);
}

static struct ref grid_like(const struct ref *x, const struct ref_how *how, bool is_fixed)
{
    int64_t dim[8] = {0};

    for (int32_t i = 0; i < x->rank; i++) {
        dim[i] = how->channelwise >> i & 1 ? x->dim[i] : 1;
        if (how->tile[i])
            dim[i] = x->dim[i] / how->tile[i];
        if (is_fixed)
            dim[i] = 1;
    }
    return ref_make(x->dtype, x->rank, dim);
}

static float *grid_slot(const struct ref *grid, const struct ref *x, const int64_t *index)
{
    int64_t at[8];

    for (int32_t i = 0; i < x->rank; i++)
        at[i] = index[i] / (x->dim[i] / grid->dim[i]);
    return ref_at(grid, at);
}

static float greater(float a, float b)
{
    return isnan(a) || a > b ? a : b;
}

static void measure(const struct ref *x, enum octet_dtype dtype, const struct method *method,
                    struct ref *low, struct ref *high)
{
    double *sums = allocate((size_t)high->count * sizeof *sums);
    int64_t index[8] = {0}, group = high->count ? x->count / high->count : 0;

    for (int64_t n = 0; n < x->count; n++, ref_next(x->rank, x->dim, index)) {
        float v = x->v[n], *top = grid_slot(high, x, index);
        if (method->kind == ABSMAX) {
            *top = greater(*top, fabsf(v));
        } else if (method->kind == MINMAX) {
            float *bottom = grid_slot(low, x, index);
            *top = greater(*top, v);
            *bottom = -greater(-*bottom, -v);
        } else {
            /* Up to 31 squares one by one in f32; what is longer in double, rounded at the end. */
            float square = ref_round(dtype, v * v);
            sums[top - high->v] += square;
            *top += square;
        }
    }
    for (int64_t i = 0; method->kind == RMS && i < high->count; i++) {
        float sum = group > 31 ? (float)sums[i] : high->v[i];
        float mean = ref_round(dtype, group ? sum * (1.0f / (float)group) : 0);
        high->v[i] = ref_round(dtype, sqrtf(mean));
    }
}

static void times(struct ref *x, float factor)
{
    float f = ref_round(x->dtype, factor);

    for (int64_t i = 0; x->v && i < x->count; i++)
        x->v[i] = ref_round(x->dtype, x->v[i] * f);
}

/* The mean over some axes, which become 1. */
static struct ref mean_over(const struct ref *x, uint32_t axes)
{
    int64_t dim[8], index[8] = {0}, at[8];

    for (int32_t i = 0; i < x->rank; i++)
        dim[i] = axes >> i & 1 ? 1 : x->dim[i];
    struct ref mean = ref_make(x->dtype, x->rank, dim);
    for (int64_t n = 0; n < x->count; n++, ref_next(x->rank, x->dim, index)) {
        for (int32_t i = 0; i < x->rank; i++)
            at[i] = axes >> i & 1 ? 0 : index[i];
        *ref_at(&mean, at) += x->v[n];
    }
    if (mean.count == x->count)
        return *x;
    for (int64_t i = 0; i < mean.count; i++)
        mean.v[i] = ref_round(x->dtype, mean.v[i] * (1.0f / (float)(x->count / mean.count)));
    return mean;
}

static void calibrate(const struct ref *x, const struct ref_how *how, const struct method *method,
                      struct ref_value *out)
{
    out->high = grid_like(x, how, method->kind == FIXED);
    if (method->kind == MINMAX)
        out->low = grid_like(x, how, false);
    if (method->kind == FIXED) {
        float low = method->count == 1 ? -method->number[0] : method->number[0];
        out->high.v[0] = ref_round(x->dtype, method->number[method->count - 1]);
        if (low + method->number[method->count - 1] != 0) {
            out->low = grid_like(x, how, true);
            out->low.v[0] = ref_round(x->dtype, low);
        }
        out->clips = true;
        return;
    }
    measure(x, x->dtype, method, &out->low, &out->high);
    if (method->count) {
        times(&out->low, method->number[0]);
        times(&out->high, method->number[0]);
    }
    out->clips = method->kind == RMS || (method->count && method->number[0] < 1);
    if (how->mean_axes) {
        out->high = mean_over(&out->high, how->mean_axes);
        if (out->low.v)
            out->low = mean_over(&out->low, how->mean_axes);
    }
}

/* ---- scales and codes ---- */

static float over_constant(enum octet_dtype dtype, float a, float b, bool is_fixed)
{
    if (dtype == OCTET_DTYPE_BF16 || is_fixed)
        return ref_round(dtype, a / b);
    return a * (1.0f / b);
}

static float shaped_scale(const struct qtype *type, enum octet_dtype dtype, float s)
{
    if (s < 0x1p-63f)
        s = 1;
    if (type->rule == 'e')
        return isnan(s) ? s : ref_decode(OCTET_DTYPE_F8_E4M3FN, ref_encode("float8_e4m3fn", s));
    if (type->rule == ' ' || !isfinite(s))
        return s;
    float l = ref_round(dtype, (float)log((double)s));
    l = dtype == OCTET_DTYPE_BF16 ? ref_round(dtype, l / 0.69140625f) : l * 1.44269502f;
    return (float)ldexp(1, (int)ceil((double)l));
}

static void make_scales(const struct qtype *type, const struct method *method,
                        struct ref_value *out)
{
    enum octet_dtype dtype = out->high.dtype;
    bool is_fixed = method->kind == FIXED;

    out->scale = ref_make(dtype, out->high.rank, out->high.dim);
    if (out->low.v)
        out->zero = ref_make(type->dtype, out->high.rank, out->high.dim);
    for (int64_t i = 0; i < out->scale.count; i++) {
        if (!out->low.v) {
            float s = over_constant(dtype, out->high.v[i], type->bound, is_fixed);
            out->scale.v[i] = shaped_scale(type, dtype, s);
            continue;
        }
        float code_min = (float)(-type->code_max - 1), span = (float)(2 * type->code_max + 1);
        float range = ref_round(dtype, out->high.v[i] - out->low.v[i]);
        float s = over_constant(dtype, range, span, is_fixed);
        out->scale.v[i] = s < 0x1p-63f ? 1 : s;
        float low = ref_round(dtype, out->low.v[i] / out->scale.v[i]);
        out->zero.v[i] = (float)integer_of(type, ref_round(dtype, code_min - low));
    }
}

static bool same_shape(const struct ref *a, const struct ref *b)
{
    return a->rank == 0 || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

static struct ref_value quantize(const struct ref *x, const struct ref_how *how)
{
    const struct qtype *type = find_qtype(how->qtype);
    struct method method = read_method(how->method);
    struct ref_value out = {.has_blocks = type->block != 0};
    int64_t index[8] = {0};

    calibrate(x, how, &method, &out);
    make_scales(type, &method, &out);
    out.x = ref_make(type->dtype, x->rank, x->dim);
    out.codes = allocate((size_t)x->count);
    bool divides = same_shape(x, &out.scale);
    for (int64_t n = 0; n < x->count; n++, ref_next(x->rank, x->dim, index)) {
        float s = ref_grid(&out.scale, x, index), v;
        v = ref_round(x->dtype, divides ? x->v[n] / s : x->v[n] * (1.0f / s));
        if (out.zero.v)
            v = ref_round(x->dtype, v + ref_grid(&out.zero, x, index));
        out.codes[n] = encode(type, v);
        out.x.v[n] = ref_decode(type->dtype, out.codes[n]);
    }
    return out;
}

struct ref_value ref_quantize(const struct ref *x, const struct ref_how *how)
{
    unsigned env = ref_env();
    struct ref_value out;

    ref_env_set(REF_ENV);
    out = quantize(x, how);
    ref_env_set(env);
    return out;
}

struct ref ref_dequantize(const struct ref_value *value)
{
    struct ref y = ref_make(value->scale.dtype, value->x.rank, value->x.dim);
    int64_t index[8] = {0};
    unsigned env = ref_env();

    ref_env_set(REF_ENV);
    for (int64_t n = 0; n < y.count; n++, ref_next(y.rank, y.dim, index)) {
        float v = value->x.v[n];
        if (value->zero.v)
            v = ref_round(y.dtype, v - ref_grid(&value->zero, &value->x, index));
        y.v[n] = ref_round(y.dtype, v * ref_grid(&value->scale, &value->x, index));
    }
    ref_env_set(env);
    return y;
}

/* ---- comparison ---- */

static void same_dims(const struct octet_array *found, const struct ref *expected, const char *what)
{
    char text[160];
    bool same = found->rank == expected->rank && found->dtype == expected->dtype && found->data;

    for (int32_t i = 0; same && i < found->rank; i++)
        same = found->dim[i] == expected->dim[i];
    ck_assert_msg(same, "%s: %s: found %s %s, expected %s of rank %d, [%" PRId64 ", ...]",
                  bench.label, what, octet_dtype_name(found->dtype),
                  octet_array_shape_text(found, text, sizeof text),
                  octet_dtype_name(expected->dtype), expected->rank, expected->dim[0]);
}

/* Asserts are calls into Check that write to a pipe: only what is wrong gets there. */
void ref_same(const struct octet_array *found, const struct ref *expected, const char *what)
{
    same_dims(found, expected, what);
    for (int64_t i = 0; i < expected->count; i++) {
        float a = array_at(found, i), b = expected->v[i];
        if ((isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0)
            continue;
        ck_abort_msg("%s: %s: element %" PRId64 " is %a, expected %a", bench.label, what, i,
                     (double)a, (double)b);
    }
}

static void same_codes(const struct octet_array *found, const struct ref *numbers,
                       const uint8_t *codes, const char *what)
{
    same_dims(found, numbers, what);
    for (int64_t i = 0; i < numbers->count; i++) {
        uint8_t code = ((const uint8_t *)found->data)[i];
        if (code == codes[i] || (isnan(numbers->v[i]) && isnan(ref_decode(numbers->dtype, code))))
            continue;
        ck_abort_msg("%s: %s: code %" PRId64 " is %02x, expected %02x", bench.label, what, i, code,
                     codes[i]);
    }
}

void ref_same_codes(const struct octet_quantized *found, const struct ref_value *expected,
                    const char *what)
{
    char part[100];

    snprintf(part, sizeof part, "%s's scale", what);
    ref_same(&found->scale, &expected->scale, part);
    ck_assert_msg((found->zero_point.data != NULL) == (expected->zero.v != NULL), "%s: %s",
                  bench.label, what);
    if (expected->zero.v) {
        uint8_t *codes = allocate((size_t)expected->zero.count);
        for (int64_t i = 0; i < expected->zero.count; i++)
            codes[i] = (uint8_t)(int8_t)expected->zero.v[i];
        snprintf(part, sizeof part, "%s's zero point", what);
        same_codes(&found->zero_point, &expected->zero, codes, part);
    }
    same_codes(&found->qvalue, &expected->x, expected->codes, what);
}
