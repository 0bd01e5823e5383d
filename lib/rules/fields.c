/* What a field of a rule may say; see fields.h. */
#include "rules/fields.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/nearest.h"

/* ---- names ---- */

static const char *name_at(const void *names, size_t i)
{
    return ((const char *const *)names)[i];
}

/* One line of at most `size` bytes for a message, whatever was given. */
static const char *shown(const char *given, char *buffer, size_t size)
{
    size_t i = 0;

    for (; given[i] && i + 1 < size; i++)
        buffer[i] = isprint((unsigned char)given[i]) ? given[i] : '?';
    buffer[i] = '\0';
    return buffer;
}

enum octet_status oct_field_unknown(const char *field, const char *what, const char *given,
                                    const char *const *names, size_t count, struct octet_error *err)
{
    char list[700], safe[64];
    size_t length = 0;

    for (size_t i = 0; i < count && length < sizeof list; i++)
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", names[i]);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                      "'%s' is no %s; the nearest is '%s' (known: %s)",
                      shown(given, safe, sizeof safe), what,
                      names[octet_nearest(given, count, name_at, names)], list);
}

/* ---- ops ---- */

static const char *const op_names[] = {
#define NAME(name) #name,
    OCT_RULE_OPS(NAME)
#undef NAME
};

enum oct_rule_op oct_rule_op_find(const char *name)
{
    int op = 0;

    while (op < OCT_RULE_OP_COUNT && strcmp(op_names[op], name))
        op++;
    return (enum oct_rule_op)op;
}

const char *oct_rule_op_name(enum oct_rule_op op)
{
    return op_names[op];
}

/* ---- types ---- */

/* The names that Octet has codes for, with: codes for an asymmetric range; the size of a block. */
#define QTYPES(X)                                                                                  \
    X(float8_e4m3fn, false, 0)                                                                     \
    X(float8_e5m2, false, 0)                                                                       \
    X(int8, true, 0)                                                                               \
    X(int4, true, 0)                                                                               \
    X(float4_e2m1fn, false, 0)                                                                     \
    X(mxfp8, false, 32)                                                                            \
    X(mxfp4, false, 32)                                                                            \
    X(nvfp4, false, 16)                                                                            \
    X(int2, false, 0)                                                                              \
    X(int3, false, 0)                                                                              \
    X(int5, false, 0)                                                                              \
    X(int6, false, 0)                                                                              \
    X(int7, false, 0)

static const char *const qtype_names[] = {
#define NAME(name, zero_point, block) #name,
    QTYPES(NAME)
#undef NAME
};

enum { QTYPE_COUNT = sizeof qtype_names / sizeof qtype_names[0] };

/* Types of JAX or Qwix without codes here. A suggestion would mislead: E4M3FNUZ's codes mean half
 * of E4M3FN's. */
static const char *const foreign_qtypes[] = {
    "nf4",
    "int16",
    "uint8",
    "uint4",
    "int32",
    "float16",
    "bfloat16",
    "float32",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "mxfp8_16",
};

static size_t qtype_find(const char *name)
{
    size_t i = 0;

    while (i < QTYPE_COUNT && strcmp(qtype_names[i], name))
        i++;
    return i;
}

bool oct_qtype_has_zero_point(const char *qtype)
{
    static const bool has[] = {
#define HAS(name, zero_point, block) zero_point,
        QTYPES(HAS)
#undef HAS
            false};

    return has[qtype_find(qtype)];
}

int oct_qtype_block(const char *qtype)
{
    static const int blocks[] = {
#define BLOCK(name, zero_point, block) block,
        QTYPES(BLOCK)
#undef BLOCK
            0};

    return blocks[qtype_find(qtype)];
}

static enum octet_status read_qtype(const char *field, const char *given, const char **out,
                                    struct octet_error *err)
{
    size_t i = qtype_find(given);

    if (!given[0]) {
        *out = "";
        return OCTET_OK;
    }
    if (i < QTYPE_COUNT) {
        *out = qtype_names[i];
        return OCTET_OK;
    }
    for (size_t k = 0; k < sizeof foreign_qtypes / sizeof foreign_qtypes[0]; k++)
        if (!strcmp(foreign_qtypes[k], given))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "'%s' is not supported as a quantized type (supported: "
                              "float8_e4m3fn, float8_e5m2, float4_e2m1fn, mxfp8, mxfp4, nvfp4, "
                              "int2 to int8)",
                              given);
    return oct_field_unknown(field, "quantized type", given, qtype_names, QTYPE_COUNT, err);
}

/* ---- numbers ---- */

/* The length of the decimal number at `text`: 12, -0.5, .5, 5., 1e-3; 0 when there is none.
 * *value is the number, whatever the locale's decimal point is: strtod sees digits and an exponent.
 */
static size_t read_number(const char *text, double *value)
{
    const char *p = text + (*text == '-' || *text == '+');
    char digits[80];
    size_t count = 0;
    int places = 0, exponent = 0;
    bool point = false;

    for (; isdigit((unsigned char)*p) || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
        } else if (count < 40) { /* more than a double holds */
            digits[count++] = *p;
            places += point;
        } else {
            return 0;
        }
    }
    if (!count)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        bool minus = *q == '-';
        q += *q == '-' || *q == '+';
        if (!isdigit((unsigned char)*q))
            return 0;
        for (; isdigit((unsigned char)*q); q++)
            exponent = exponent < 10000 ? exponent * 10 + (*q - '0') : exponent;
        exponent = minus ? -exponent : exponent;
        p = q;
    }
    snprintf(digits + count, sizeof digits - count, "e%d", exponent - places);
    *value = strtod(digits, NULL);
    if (*text == '-')
        *value = -*value;
    return (size_t)(p - text);
}

/* ---- calibration methods ---- */

/* name, fewest and most numbers behind it */
static const struct method {
    const char *name;
    int least, most;
} methods[] = {{"absmax", 0, 1}, {"minmax", 0, 1}, {"rms", 1, 1}, {"fixed", 1, 2}};

enum { METHOD_COUNT = sizeof methods / sizeof methods[0], METHOD_LENGTH_MAX = 120 };

static const struct method *method_find(const char *name, size_t length)
{
    for (size_t i = 0; i < METHOD_COUNT; i++)
        if (strlen(methods[i].name) == length && !memcmp(methods[i].name, name, length))
            return &methods[i];
    return NULL;
}

static enum octet_status refuse_method(const char *field, const char *given, const char *why,
                                       struct octet_error *err)
{
    char safe[64];

    return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                      "'%s': %s; expected absmax[,FACTOR], minmax[,FACTOR], rms,FACTOR, "
                      "fixed,BOUND or fixed,MIN,MAX",
                      shown(given, safe, sizeof safe), why);
}

static const char *check_numbers(const struct method *method, const double *numbers, int count)
{
    for (int i = 0; i < count; i++)
        if (!(numbers[i] >= -(double)FLT_MAX && numbers[i] <= (double)FLT_MAX))
            return "a number is beyond float32";
    if (count < method->least)
        return method->most == 1 ? "a factor is needed" : "a range is needed";
    if (strcmp(method->name, "fixed"))
        return count && !(numbers[0] > 0) ? "the factor must be positive" : NULL;
    if (count == 1)
        return numbers[0] > 0 ? NULL : "the bound must be positive";
    return numbers[0] <= 0 && numbers[1] >= 0 && numbers[0] < numbers[1]
               ? NULL
               : "the range must contain 0 and be no single point";
}

/* ",0.8" behind the method's name, copied without white space to `normal`, which has room for all
 * of `p`. Returns why it is refused, or NULL. */
static const char *read_numbers(const struct method *method, const char *p, char *normal)
{
    double numbers[2];
    int count = 0;

    while (*p) {
        if (*p != ',')
            return "a ',' is expected before each number";
        p += 1 + strspn(p + 1, " \t");
        if (count == method->most)
            return "too many numbers";
        size_t length = read_number(p, &numbers[count++]);
        if (!length)
            return "what follows a ',' is no number";
        *normal++ = ',';
        memcpy(normal, p, length);
        normal += length;
        *normal = '\0';
        p += length + strspn(p + length, " \t");
    }
    return check_numbers(method, numbers, count);
}

static enum octet_status read_method(octet_arena *arena, const char *field, const char *given,
                                     const char **out, struct octet_error *err)
{
    char lower[METHOD_LENGTH_MAX + 1], normal[METHOD_LENGTH_MAX + 1];
    size_t length = strlen(given);

    if (!length) {
        *out = "absmax";
        return OCTET_OK;
    }
    if (length > METHOD_LENGTH_MAX)
        return refuse_method(field, given, "too long", err);
    for (size_t i = 0; i <= length; i++)
        lower[i] = (char)tolower((unsigned char)given[i]);
    size_t name = strcspn(lower, ",");
    const struct method *method = method_find(lower, name);
    if (!method)
        return refuse_method(field, given, "unknown calibration method", err);
    memcpy(normal, lower, name + 1);
    normal[name] = '\0';
    const char *why = read_numbers(method, lower + name, normal + name);
    if (why)
        return refuse_method(field, given, why, err);
    *out = octet_arena_copy(arena, normal, strlen(normal));
    return *out ? OCTET_OK : octet_arena_exhausted(arena, err);
}

bool oct_method_is_symmetric(const char *method)
{
    double low, high;

    if (!strncmp(method, "minmax", 6))
        return false;
    if (strncmp(method, "fixed,", 6))
        return true;
    const char *second = strchr(method + 6, ',');
    return !second ||
           (read_number(method + 6, &low) && read_number(second + 1, &high) && low + high == 0);
}

int oct_method_numbers(const char *method, enum oct_method *kind, double numbers[2])
{
    const char *p = method + strcspn(method, ",");
    int count = 0;

    *kind = (enum oct_method)(method_find(method, (size_t)(p - method)) - methods);
    while (*p == ',' && count < 2) {
        p++;
        p += read_number(p, &numbers[count++]);
    }
    return count;
}

/* ---- tile sizes ---- */

static enum octet_status refuse_tile(const char *field, const char *given, struct octet_error *err)
{
    char safe[64];

    return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                      "'%s' is no tile size; expected a number of elements such as 128, or a part "
                      "of the axis such as 1/4 or 0.25",
                      shown(given, safe, sizeof safe));
}

/* The value of a text of digits without a leading zero; 0 for anything else and above 2^31 - 1. */
static int32_t read_positive(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (!digits || digits > 10 || text[digits] || text[0] == '0')
        return 0;
    long long value = strtoll(text, NULL, 10);
    return value <= INT32_MAX ? (int32_t)value : 0;
}

int64_t oct_tile_elements(const char *tile, int64_t dim)
{
    double part;

    if (!strncmp(tile, "1/", 2))
        return (int64_t)rint((double)dim * (1.0 / read_positive(tile + 2)));
    if (!strchr(tile, '.'))
        return read_positive(tile);
    return read_number(tile, &part) ? (int64_t)rint((double)dim * part) : 0;
}

/* A whole number counts elements, a fraction is a part of the axis: 1 is one element, 1.0 and 1/1
 * are all of it, as Qwix's int and float are. */
static enum octet_status read_tile(octet_arena *arena, const char *field, const char *given,
                                   const char **out, struct octet_error *err)
{
    double part;

    if (!given[0]) {
        *out = "";
        return OCTET_OK;
    }
    if (read_positive(given) || (!strncmp(given, "1/", 2) && read_positive(given + 2))) {
        *out = octet_arena_copy(arena, given, strlen(given));
    } else if (strspn(given, "0123456789.") == strlen(given) && strchr(given, '.') &&
               read_number(given, &part) == strlen(given) && part > 0 && part <= 1) {
        double count = 1 / part;
        bool exact = count <= INT32_MAX && 1 / (double)(int32_t)(count + 0.5) == part;
        *out = exact ? octet_arena_format(arena, "1/%d", (int32_t)(count + 0.5))
                     : octet_arena_copy(arena, given, strlen(given));
    } else {
        return refuse_tile(field, given, err);
    }
    return *out ? OCTET_OK : octet_arena_exhausted(arena, err);
}

/* ---- the others ---- */

static enum octet_status read_rounding(const char *field, const char *given, const char **out,
                                       struct octet_error *err)
{
    static const char *const names[] = {"uniform", "low_bit_uniform"};

    *out = "";
    if (!given[0])
        return OCTET_OK;
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(names[i], given)) {
            *out = names[i];
            return OCTET_OK;
        }
    return oct_field_unknown(field, "way of stochastic rounding", given, names, 2, err);
}

static enum octet_status read_bool(const char *field, const char *given, const char **out,
                                   struct octet_error *err)
{
    char safe[64];

    if (strcasecmp(given, "true") && strcasecmp(given, "false"))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "'%s' is neither true nor false",
                          shown(given, safe, sizeof safe));
    *out = tolower((unsigned char)given[0]) == 't' ? "true" : "false";
    return OCTET_OK;
}

enum octet_status oct_field_read(octet_arena *arena, enum oct_field_kind kind, const char *field,
                                 const char *given, const char **out, struct octet_error *err)
{
    given = given ? given : "";
    switch (kind) {
    case OCT_FIELD_PATH:
        *out = given[0] ? octet_arena_copy(arena, given, strlen(given)) : ".*";
        return *out ? OCTET_OK : octet_arena_exhausted(arena, err);
    case OCT_FIELD_QTYPE:
        return read_qtype(field, given, out, err);
    case OCT_FIELD_METHOD:
        return read_method(arena, field, given, out, err);
    case OCT_FIELD_TILE:
        return read_tile(arena, field, given, out, err);
    case OCT_FIELD_ROUNDING:
        return read_rounding(field, given, out, err);
    case OCT_FIELD_BOOL:
        return read_bool(field, given, out, err);
    }
    return octet_fail(err, OCTET_INTERNAL, field, "a field of no kind");
}

/* ---- additional_qt_config ---- */

/* The fields of Qwix's DotGeneralQtConfig; ConvGeneralQtConfig's are among them. Those that hold a
 * function or an object of Python's cannot be said here. */
#define ADDITIONAL(X)                                                                              \
    X(lhs_qtype, QTYPE)                                                                            \
    X(rhs_qtype, QTYPE)                                                                            \
    X(tile_size, TILE)                                                                             \
    X(lhs_calibration_method, METHOD)                                                              \
    X(rhs_calibration_method, METHOD)                                                              \
    X(lhs_disable_channelwise_axes, BOOL)                                                          \
    X(rhs_disable_channelwise_axes, BOOL)                                                          \
    X(dlhs_grad_qtype, QTYPE)                                                                      \
    X(dlhs_grad_calibration_method, METHOD)                                                        \
    X(dlhs_tile_size, TILE)                                                                        \
    X(dlhs_grad_disable_channelwise_axes, BOOL)                                                    \
    X(drhs_grad_qtype, QTYPE)                                                                      \
    X(drhs_grad_calibration_method, METHOD)                                                        \
    X(drhs_tile_size, TILE)                                                                        \
    X(drhs_grad_disable_channelwise_axes, BOOL)                                                    \
    X(disable_gradient_clipping, BOOL)                                                             \
    X(use_original_residuals, BOOL)                                                                \
    X(dlhs_residual_qtype, QTYPE)                                                                  \
    X(dlhs_residual_calibration_method, METHOD)                                                    \
    X(dlhs_residual_disable_channelwise_axes, BOOL)                                                \
    X(drhs_residual_qtype, QTYPE)                                                                  \
    X(drhs_residual_calibration_method, METHOD)                                                    \
    X(drhs_residual_disable_channelwise_axes, BOOL)

static const char *const additional_names[] = {
#define NAME(name, kind) #name,
    ADDITIONAL(NAME)
#undef NAME
};
static const enum oct_field_kind additional_kinds[] = {
#define KIND(name, kind) OCT_FIELD_##kind,
    ADDITIONAL(KIND)
#undef KIND
};
static const char *const unspeakable[] = {
    "lhs_collect_quant_stat",
    "rhs_collect_quant_stat",
    "dlhs_stochastic_rounding_noise_fn",
    "drhs_stochastic_rounding_noise_fn",
};

enum { ADDITIONAL_COUNT = sizeof additional_names / sizeof additional_names[0] };

static enum octet_status refuse_additional(const char *key, struct octet_error *err)
{
    const char *field = "additional_qt_config";

    if (!strcmp(key, "sparsity_rule"))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                          "sparsity_rule is an object of Python's; use the rule's own field "
                          "'sparsity'");
    for (size_t i = 0; i < sizeof unspeakable / sizeof unspeakable[0]; i++)
        if (!strcmp(key, unspeakable[i]))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                              "%s is a function of Python's and cannot be given here", key);
    return oct_field_unknown(field, "key of Qwix's DotGeneralQtConfig", key, additional_names,
                             ADDITIONAL_COUNT, err);
}

enum octet_status oct_field_read_additional(octet_arena *arena, const struct octet_pair *given,
                                            struct octet_pair *out, struct octet_error *err)
{
    const char *key = given->key ? given->key : "", *value = given->value ? given->value : "";
    char field[128];
    size_t i = 0;

    while (i < ADDITIONAL_COUNT && strcmp(additional_names[i], key))
        i++;
    if (i == ADDITIONAL_COUNT)
        return refuse_additional(key, err);
    if (!strcasecmp(value, "none") || !strcasecmp(value, "null"))
        value = "";
    snprintf(field, sizeof field, "additional_qt_config[%s]", key);
    out->key = additional_names[i];
    return oct_field_read(arena, additional_kinds[i], field, value, &out->value, err);
}
