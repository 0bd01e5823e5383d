/* Comparing with reference data. The exceptions to bit equality stand in qwix_compare.h. */
#include "golden/qwix_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

struct check {
    const struct qwix_case *c;
    octet_arena *arena;
    const struct qwix_tensors *ours;
    struct qwix_tally *tally;
    bool is_soft; /* an excused scale came before what is compared now */
    bool soft_lhs, soft_rhs, soft_any;
    bool is_lost; /* exception 3 */
    int failures;
};

static const struct oct_kernels *scalar(void)
{
    return oct_kernels_find("scalar", NULL);
}

static float *floats(octet_arena *arena, const struct octet_array *array)
{
    size_t n = (size_t)octet_array_elements(array);
    float *values = OCTET_NEW_ARRAY(arena, n + 1, float);

    scalar()->decode(array->dtype, n, array->data, values);
    return values;
}

static bool same_shape(const struct octet_array *a, const struct octet_array *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

static bool same_value(float a, float b)
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : a == b && signbit(a) == signbit(b);
}

bool qwix_same(const struct octet_array *a, const struct octet_array *b, int64_t *index)
{
    octet_arena *arena = octet_arena_create((size_t)1 << 30);
    int64_t n = octet_array_elements(a);
    bool same = true;

    *index = -1;
    if (a->dtype != b->dtype || !same_shape(a, b)) {
        octet_arena_destroy(arena);
        return false;
    }
    if (memcmp(a->data, b->data, (size_t)octet_array_bytes(a)) != 0) {
        const float *va = floats(arena, a), *vb = floats(arena, b);
        for (int64_t i = 0; i < n && same; i++)
            if (!same_value(va[i], vb[i])) {
                *index = i;
                same = false;
            }
    }
    octet_arena_destroy(arena);
    return same;
}

static const struct octet_array *theirs(const struct check *k, const char *name)
{
    return qwix_case_tensor(k->c, name);
}
static const struct octet_array *mine(const struct check *k, const char *name)
{
    return qwix_tensors_find(k->ours, name);
}
#define NAME(...) octet_arena_format(k->arena, __VA_ARGS__)

static void fail_at(struct check *k, const char *name, int64_t i, double expected, double found)
{
    k->failures++;
    printf("FAIL %s: %s[%lld]: expected %.9g (%a), found %.9g (%a)\n", k->c->path, name,
           (long long)i, expected, expected, found, found);
}

static void fail_text(struct check *k, const char *name, const char *text)
{
    k->failures++;
    printf("FAIL %s: %s: %s\n", k->c->path, name, text);
}

/* Both or neither there, of one type and shape. */
static bool comparable(struct check *k, const char *name, const struct octet_array *expected,
                       const struct octet_array *found)
{
    char a[80], b[80];

    if (!expected && !found)
        return false;
    if (!found || !expected) {
        fail_text(k, name, found ? "the library has it and Qwix has not" : "the library lacks it");
        return false;
    }
    if (found->dtype != expected->dtype || !same_shape(found, expected)) {
        fail_text(k, name,
                  NAME("expected %s %s, found %s %s", octet_dtype_name(expected->dtype),
                       octet_array_shape_text(expected, a, sizeof a),
                       octet_dtype_name(found->dtype), octet_array_shape_text(found, b, sizeof b)));
        return false;
    }
    return true;
}

/* ---- codes and scales ---- */

/* The calibration of an operand; "" when it is not known. */
static const char *method_of(const struct check *k, const char *base)
{
    json_t *config = qwix_case_get(k->c, "config"), *rule = qwix_case_get(k->c, "rule");
    const char *key, *method;

    if (!strncmp(base, "dot_", 4))
        base += 4;
    if (!strcmp(k->c->op, "ragged_dot"))
        return "absmax";
    if (config) {
        const char *first =
            json_string_value(json_array_get(qwix_case_get(k->c, "dot_operand_order"), 0));
        if (base[0] == 'x' || base[0] == 'w') /* of an einsum, whose dot may have them swapped */
            base = first && base[0] == first[0] ? "lhs" : "rhs";
        key = base[0] == 'g'   ? NAME("%s_grad_calibration_method", base + 2)
              : base[0] == 'y' ? NAME("%s_residual_calibration_method", base + 2)
                               : NAME("%s_calibration_method", base);
        method = json_string_value(json_object_get(config, key));
    } else {
        key = base[0] == 'g'                     ? "bwd_calibration_method"
              : base[0] == 'l' || base[0] == 'x' ? "act_calibration_method"
                                                 : "weight_calibration_method";
        method = json_string_value(json_object_get(rule, key));
    }
    return method ? method : "absmax";
}

static bool close_to(float a, float b, double relative)
{
    return same_value(a, b) ||
           (relative > 0 && fabs((double)a - (double)b) <= relative * fabs((double)a) + 1.2e-38);
}

/* May differ as exceptions 1 and 2 say. */
static double scale_slack(const struct check *k, const struct octet_array *scale,
                          const char *method)
{
    if (k->is_soft)
        return 4e-6;
    if (scale->dtype != OCTET_DTYPE_F32)
        return 0;
    if (!strncmp(method, "rms", 3))
        return 4e-7;
    return octet_array_elements(scale) == 1 && strncmp(method, "fixed", 5) ? 1.2e-7 : 0;
}

static bool compare_close(struct check *k, const char *name, const struct octet_array *expected,
                          const struct octet_array *found, double relative, bool *is_exact)
{
    *is_exact = true;
    if (!comparable(k, name, expected, found))
        return false;
    const float *a = floats(k->arena, expected), *b = floats(k->arena, found);
    for (int64_t i = 0; i < octet_array_elements(expected); i++) {
        if (same_value(a[i], b[i]))
            continue;
        *is_exact = false;
        if (!close_to(a[i], b[i], relative)) {
            fail_at(k, name, i, (double)a[i], (double)b[i]);
            return false;
        }
    }
    return true;
}

/* Position of the scale of element i. */
static int64_t scale_index(const struct octet_array *array, const struct octet_array *scale,
                           int64_t i)
{
    int64_t at = 0, step = 1;

    for (int a = array->rank - 1; a >= 0; a--) {
        int64_t place = i % array->dim[a];
        i /= array->dim[a];
        at += place / (array->dim[a] / scale->dim[a]) * step;
        step *= scale->dim[a];
    }
    return at;
}

static float rounded(enum octet_dtype dtype, float value)
{
    uint16_t code;

    if (dtype == OCTET_DTYPE_F32)
        return value;
    scalar()->cast(dtype, 1, &value, &code);
    scalar()->decode(dtype, 1, &code, &value);
    return value;
}

/* The code of x under formula 6 of Qwix's arithmetic, as a value. */
static float code_of(enum octet_dtype dtype, enum octet_dtype qtype, float x, float scale, float zp,
                     bool has_zp)
{
    uint8_t code;
    float v = rounded(dtype, x * (1.0f / scale)), value;

    if (has_zp)
        v = rounded(dtype, v + zp);
    scalar()->saturate(qtype, 1, &v, &code);
    scalar()->decode(qtype, 1, &code, &value);
    return value;
}

struct quantized_side {
    const struct octet_array *x, *q, *scale, *zp;
    const float *xs, *qs, *ss, *zs;
};

static struct quantized_side side_of(struct check *k, const struct octet_array *x,
                                     const struct octet_array *q, const struct octet_array *scale,
                                     const struct octet_array *zp)
{
    return (struct quantized_side){x,
                                   q,
                                   scale,
                                   zp,
                                   x ? floats(k->arena, x) : NULL,
                                   floats(k->arena, q),
                                   floats(k->arena, scale),
                                   zp ? floats(k->arena, zp) : NULL};
}

/* Is code i what its own side's scale makes of x? */
static bool consistent(const struct quantized_side *s, int64_t i)
{
    int64_t at = scale_index(s->q, s->scale, i);
    float zp = s->zs ? s->zs[at] : 0;

    return same_value(s->qs[i], code_of(s->x->dtype, s->q->dtype, s->xs[i], s->ss[at], zp, s->zs));
}

/* Returns whether all are equal. */
static bool compare_codes(struct check *k, const char *base, const struct quantized_side *a,
                          const struct quantized_side *b, bool scale_exact)
{
    int64_t n = octet_array_elements(a->q), off = 0;
    bool judged = a->x && b->x && !scale_exact;

    k->tally->codes += n;
    for (int64_t i = 0; i < n; i++) {
        if (same_value(a->qs[i], b->qs[i]))
            continue;
        off++;
        if (k->is_soft && off <= 1 + n / 50 && (!b->x || consistent(b, i)))
            continue;
        if (judged && consistent(a, i) && consistent(b, i))
            continue;
        fail_at(k, NAME("%s_q", base), i, (double)a->qs[i], (double)b->qs[i]);
        break;
    }
    k->tally->codes_excused += off;
    return !off;
}

static const struct octet_array *input_of(const struct check *k, const char *base, bool ours)
{
    if (base[0] == 'g' || !strncmp(base, "dot_g", 5)) {
        const char *name = NAME("%s_pre", base);
        return ours ? mine(k, name) : theirs(k, name);
    }
    if (!strcmp(base, "rhs") || !strcmp(base, "y_dlhs"))
        return theirs(k, "rhs_sparse") ? theirs(k, "rhs_sparse") : theirs(k, "rhs");
    if (!strcmp(base, "lhs") || !strcmp(base, "y_drhs"))
        return theirs(k, "lhs");
    return theirs(k, base); /* of convolutions; NULL for the operands of an einsum's dot */
}

/* Files have int8 and int4 as I32, e2m1 as its value in F32. */
static bool is_stored_as(enum octet_dtype stored, enum octet_dtype code)
{
    if (stored == OCTET_DTYPE_S32)
        return code == OCTET_DTYPE_S8 || code == OCTET_DTYPE_S4;
    return stored == code || (stored == OCTET_DTYPE_F32 && code == OCTET_DTYPE_F4_E2M1FN);
}

/* Exception 3: a group of x has a NaN, our scale is NaN and XLA's is not. */
static bool has_lost_nan(const struct check *k, const struct octet_array *x,
                         const struct octet_array *expected, const struct octet_array *found)
{
    if (!x || !expected || !found || x->dtype != OCTET_DTYPE_F32 || !same_shape(expected, found))
        return false;
    const float *xs = floats(k->arena, x), *a = floats(k->arena, expected),
                *b = floats(k->arena, found);
    for (int64_t i = 0; i < octet_array_elements(x); i++) {
        int64_t at = scale_index(x, expected, i);
        if (isnan(xs[i]) && !isnan(a[at]) && isnan(b[at]))
            return true;
    }
    return false;
}

static int lose(struct check *k)
{
    k->tally->lost++;
    printf("not run: %s (XLA lost a NaN)\n", k->c->path);
    return 0;
}

/* One quantized operand with everything that belongs to it. */
static void compare_operand(struct check *k, const char *base)
{
    bool of_gradient = strstr(base, "g_d") != NULL,
         is_left = !strcmp(base, "lhs") || base[0] == 'x';
    const char *q_name = NAME("%s_q", base), *s_name = NAME("%s_scale", base),
               *z_name = NAME("%s_zp", base), *pre = NAME("%s_pre", base);
    const struct octet_array *q = theirs(k, q_name), *found = mine(k, q_name), *zp;
    const char *method = method_of(k, base);
    bool exact, scale_exact;

    /* The other operand's scale was moved onto a gradient; an einsum may have swapped them. */
    k->is_soft = of_gradient && (strstr(base, "dot_")     ? k->soft_any
                                 : strstr(base, "g_dlhs") ? k->soft_rhs
                                                          : k->soft_lhs);
    if (!q && !found)
        return;
    if (!q || !found) {
        fail_text(k, q_name,
                  found ? "the library quantizes it and Qwix does not"
                        : "the library does not quantize it");
        return;
    }
    if (of_gradient &&
        !compare_close(k, pre, theirs(k, pre), mine(k, pre), k->is_soft ? 4e-6 : 0, &exact))
        return;
    if (has_lost_nan(k, input_of(k, base, false), theirs(k, s_name), mine(k, s_name)))
        k->is_lost = true;
    if (k->is_lost || !compare_close(k, s_name, theirs(k, s_name), mine(k, s_name),
                                     scale_slack(k, theirs(k, s_name), method), &scale_exact))
        return;
    k->tally->scales += octet_array_elements(theirs(k, s_name));
    k->tally->scales_excused += !scale_exact;
    zp = theirs(k, z_name);
    struct octet_array expected = qwix_codes(k->arena, q, found->dtype), zero;
    if (!comparable(k, q_name, &expected, found))
        return;
    if (!is_stored_as(q->dtype, found->dtype))
        fail_text(k, q_name, "another type of code");
    if (zp || mine(k, z_name)) {
        if (zp)
            zero = qwix_codes(k->arena, zp, found->dtype);
        if (!compare_close(k, z_name, zp ? &zero : NULL, mine(k, z_name), 0, &exact))
            return;
    }
    struct quantized_side a = side_of(k, input_of(k, base, false), &expected, theirs(k, s_name),
                                      zp ? &zero : NULL),
                          b = side_of(k, input_of(k, base, true), found, mine(k, s_name),
                                      mine(k, z_name));
    bool same = compare_codes(k, base, &a, &b, scale_exact) && scale_exact && !k->is_soft;
    k->soft_any = k->soft_any || !same;
    k->soft_lhs = k->soft_lhs || (!same && is_left);
    k->soft_rhs = k->soft_rhs || (!same && !is_left);
}

/* ---- results ---- */

enum side { FILES, OURS };

static const struct octet_array *get(const struct check *k, enum side side, const char *name)
{
    const struct octet_array *found = side == OURS ? mine(k, name) : NULL;

    return found ? found : theirs(k, name);
}

/* (q - zp) * scale, or the codes alone. */
static double *dequantized(const struct check *k, enum side side, const char *base, bool with_scale)
{
    const struct octet_array *q = get(k, side, NAME("%s_q", base)),
                             *scale = get(k, side, NAME("%s_scale", base)),
                             *zp = get(k, side, NAME("%s_zp", base));
    double *values = qwix_doubles(k->arena, q), *scales = qwix_doubles(k->arena, scale),
           *zeros = zp ? qwix_doubles(k->arena, zp) : NULL;

    for (int64_t i = 0; i < octet_array_elements(q); i++) {
        int64_t at = scale_index(q, scale, i);
        values[i] -= zeros ? zeros[at] : 0;
        values[i] *= with_scale ? scales[at] : 1;
    }
    return values;
}

/* The same with (|q| + |zp|): a zero point's share is subtracted from the sum, which was rounded
 * before. */
static double *magnitudes(const struct check *k, const char *base)
{
    const struct octet_array *q = theirs(k, NAME("%s_q", base)),
                             *zp = theirs(k, NAME("%s_zp", base));
    double *values;

    if (!q)
        return qwix_doubles(k->arena, theirs(k, base));
    values = qwix_doubles(k->arena, q);
    const double *scales = qwix_doubles(k->arena, theirs(k, NAME("%s_scale", base))),
                 *zeros = zp ? qwix_doubles(k->arena, zp) : NULL;
    for (int64_t i = 0; i < octet_array_elements(q); i++) {
        int64_t at = scale_index(q, theirs(k, NAME("%s_scale", base)), i);
        values[i] = (fabs(values[i]) + (zeros ? fabs(zeros[at]) : 0)) * scales[at];
    }
    return values;
}

/* An operand of the forward product. */
static double *operand(const struct check *k, enum side side, const char *base)
{
    if (theirs(k, NAME("%s_q", base)))
        return dequantized(k, side, base, true);
    const struct octet_array *sparse = theirs(k, "rhs_sparse");
    return qwix_doubles(k->arena, !strcmp(base, "rhs") && sparse ? sparse : theirs(k, base));
}

static bool is_tiled(const struct octet_array *q, const struct octet_array *scale)
{
    for (int a = 0; a < q->rank; a++)
        if (scale->dim[a] != 1 && scale->dim[a] != q->dim[a])
            return true;
    return false;
}

/* The backward pass multiplies the codes of the forward pass. Formula 10 of Qwix's arithmetic. */
static bool reuses(const struct check *k, const char *base)
{
    const struct octet_array *q = theirs(k, NAME("%s_q", base));
    json_t *config = qwix_case_get(k->c, "config");
    const char *qtype = json_string_value(json_object_get(config, NAME("%s_qtype", base)));

    if (!q)
        return false;
    if (strcmp(k->c->op, "dot_general") != 0)
        return true;
    return !json_is_true(json_object_get(config, "use_original_residuals")) &&
           !is_tiled(q, theirs(k, NAME("%s_scale", base))) &&
           !(qtype && (!strncmp(qtype, "mx", 2) || !strncmp(qtype, "nv", 2)));
}

/* The factors of a gradient: the cotangent and the other operand (`other`: lhs or rhs), as
 * multiplied. */
static void factors(const struct check *k, enum side side, const char *gradient, const char *other,
                    double **g, double **y)
{
    const char *g_base = NAME("g_%s", gradient), *y_base = NAME("y_%s", gradient);
    bool g_quantized = theirs(k, NAME("%s_q", g_base));

    *g = g_quantized ? dequantized(k, side, g_base, true) : qwix_doubles(k->arena, theirs(k, "g"));
    if (theirs(k, NAME("%s_q", y_base))) {
        *y = dequantized(k, side, y_base, true);
    } else if (reuses(k, other)) {
        *y = dequantized(k, side, other, !g_quantized);
    } else {
        const struct octet_array *sparse = !strcmp(other, "rhs") ? theirs(k, "rhs_sparse") : NULL;
        *y = qwix_doubles(k->arena, sparse ? sparse : theirs(k, other));
    }
}

struct sums {
    double *exact, *size; /* of the files' operands */
    double *ours;         /* of our operands, when they may differ; else NULL */
    double loose;         /* more room, as a part of size */
};

static int64_t rows_that_count(const struct check *k, const char *name,
                               const struct octet_array *found)
{
    json_t *valid = qwix_case_get(k->c, "valid_rows");
    int64_t n = octet_array_elements(found);

    if (strcmp(k->c->op, "gmm") != 0 || !strcmp(name, "drhs") || !valid || !found->dim[0])
        return n;
    return n / found->dim[0] * json_integer_value(valid);
}

static bool acceptable(const struct sums *s, int64_t i, double want, double have, bool is_brain)
{
    double slack = 1.2e-38 + s->loose * s->size[i];

    if (isnan(want) || isnan(have) || isinf(want) || isinf(have))
        return isnan(want) ? isnan(have) : want == have;
    if (!isfinite(s->size[i]))
        return true; /* the exact sum overflows where the rounded one does not: nothing to measure
                        with */
    if (s->ours)
        slack += fabs(s->ours[i] - s->exact[i]);
    if (fabs(have - want) <= (is_brain ? 0x1p-7 : 1e-6) * s->size[i] + slack)
        return true;
    /* Both are roundings of the exact sum (a masked gradient is not). */
    return is_brain && fabs(want - s->exact[i]) <= 0x1p-7 * s->size[i] &&
           fabs(have - s->exact[i]) <= 0x1p-8 * fabs(s->exact[i]) + 1e-6 * s->size[i] + slack;
}

static void compare_result(struct check *k, const char *name, const struct sums *sums)
{
    const struct octet_array *want = theirs(k, name), *have = mine(k, name);

    if (!comparable(k, name, want, have))
        return;
    const float *a = floats(k->arena, want), *b = floats(k->arena, have);
    int64_t n = octet_array_elements(want), count = rows_that_count(k, name, have);
    bool is_brain = want->dtype == OCTET_DTYPE_BF16;
    int before = k->failures;

    for (int64_t i = 0; i < n && k->failures == before; i++) {
        if (i >= count) {
            if (b[i] != 0)
                fail_at(k, name, i, 0, (double)b[i]);
            continue;
        }
        k->tally->outputs++;
        k->tally->brains += is_brain;
        /* -0 and 0 count as one: XLA makes a product of a sum of one term. */
        bool is_same = a[i] == b[i] || same_value(a[i], b[i]);
        k->tally->brains_same += is_brain && is_same;
        if (k->tally->show && is_brain && !is_same)
            printf("%s: %s[%lld]: Qwix %a, found %a, exact %a\n", k->c->name, name, (long long)i,
                   (double)a[i], (double)b[i], sums->exact[i]);
        if (!acceptable(sums, i, (double)a[i], (double)b[i], is_brain))
            fail_at(k, name, i, (double)a[i], (double)b[i]);
    }
}

static bool is_brain(const struct octet_array *array)
{
    return array && array->dtype == OCTET_DTYPE_BF16;
}

static void compare_sum(struct check *k, const char *name, const struct qwix_terms *terms)
{
    const struct octet_array *want = theirs(k, name);
    bool is_out = !strcmp(name, "out"), is_left = !strcmp(name, "dlhs");
    const uint32_t *target = is_out ? terms->o : is_left ? terms->l : terms->r;
    const uint32_t *ia = is_out ? terms->l : terms->o, *ib = is_out    ? terms->r
                                                             : is_left ? terms->r
                                                                       : terms->l;
    const char *left = theirs(k, "x") ? "x" : "lhs", *right = theirs(k, "w") ? "w" : "rhs";

    if (!want) {
        comparable(k, name, want, mine(k, name));
        return;
    }
    size_t n = (size_t)octet_array_elements(want);
    struct sums sums = {OCTET_NEW_ARRAY(k->arena, n + 1, double),
                        OCTET_NEW_ARRAY(k->arena, n + 1, double), NULL, 0};
    /* Sums that differ by an excused code may round to other bfloat16s on the way (integers times a
     * scale in it). */
    if (k->soft_any && (is_brain(theirs(k, left)) || is_brain(theirs(k, right))))
        sums.loose = 0x1p-7;
    for (enum side side = FILES; side <= (k->soft_any ? OURS : FILES); side++) {
        double *a, *b,
            *value = side == FILES ? sums.exact : OCTET_NEW_ARRAY(k->arena, n + 1, double);
        if (is_out)
            a = operand(k, side, left), b = operand(k, side, right);
        else
            factors(k, side, name, is_left ? right : left, &a, &b);
        double *size = side == FILES ? sums.size : OCTET_NEW_ARRAY(k->arena, n + 1, double);
        qwix_terms_sum(terms, target, ia, a, ib, b, n, value, size);
        if (side == OURS)
            sums.ours = value;
    }
    if (is_out && (theirs(k, NAME("%s_zp", left)) || theirs(k, NAME("%s_zp", right))))
        qwix_terms_sum(terms, target, ia, magnitudes(k, left), ib, magnitudes(k, right), n,
                       OCTET_NEW_ARRAY(k->arena, n + 1, double), sums.size);
    compare_result(k, name, &sums);
}

/* An einsum's dot has operands that this test does not know (they may be swapped, or summed
 * before): room is measured with the unquantized ones. */
static void compare_loose(struct check *k, const char *name, const struct qwix_terms *terms)
{
    const struct octet_array *want = theirs(k, name);
    bool is_out = !strcmp(name, "out"), is_left = !strcmp(name, "dlhs");

    if (!want)
        return;
    size_t n = (size_t)octet_array_elements(want);
    struct sums sums = {OCTET_NEW_ARRAY(k->arena, n + 1, double),
                        OCTET_NEW_ARRAY(k->arena, n + 1, double), NULL, k->soft_any ? 1e-3 : 1e-6};
    const double *x = qwix_doubles(k->arena, theirs(k, "x")),
                 *w = qwix_doubles(k->arena, theirs(k, "w")),
                 *g = is_out ? NULL : qwix_doubles(k->arena, theirs(k, "g"));
    qwix_terms_sum(terms,
                   is_out    ? terms->o
                   : is_left ? terms->l
                             : terms->r,
                   is_out ? terms->l : terms->o, is_out ? x : g,
                   is_left || is_out ? terms->r : terms->l, is_left || is_out ? w : x, n,
                   sums.exact, sums.size);
    compare_result(k, name, &sums);
}

int qwix_compare(const struct qwix_case *c, octet_arena *arena, const struct qwix_tensors *ours,
                 struct qwix_tally *tally)
{
    static const char *const dot[] = {"lhs", "rhs", "y_dlhs", "y_drhs", "g_dlhs", "g_drhs"};
    struct check check = {c, arena, ours, tally, .failures = 0}, *k = &check;
    bool is_einsum = !strcmp(c->op, "einsum"), is_conv = !strcmp(c->op, "conv_general_dilated");
    const char *sparse = is_einsum ? "dot_rhs_sparse" : "rhs_sparse",
               *prefix = is_einsum ? "dot_" : "";
    bool exact;
    const struct octet_array *lhs = theirs(k, is_einsum || is_conv ? "x" : "lhs"),
                             *rhs = theirs(k, is_einsum || is_conv ? "w" : "rhs");
    struct octet_array q_lhs, q_rhs;
    struct qwix_terms terms;
    int64_t out_dim[OCTET_ARRAY_RANK_MAX];

    if (!lhs) /* already quantized: the shape is the codes' */
        q_lhs = *theirs(k, "lhs_q"), lhs = &q_lhs;
    if (!rhs)
        q_rhs = *theirs(k, "rhs_q"), rhs = &q_rhs;
    bool is_known = !qwix_case_get(c, "operands_unknown");
    if (is_known && (theirs(k, sparse) || mine(k, sparse)))
        compare_close(k, sparse, theirs(k, sparse), mine(k, sparse), 0, &exact);
    for (size_t i = 0; i < 6 && is_known && !qwix_case_get(c, "direct"); i++)
        compare_operand(k, i > 1             ? NAME("%s%s", prefix, dot[i])
                           : !theirs(k, "x") ? dot[i]
                           : i               ? "w"
                                             : "x");
    if (k->is_lost)
        return lose(k);
    if (is_einsum) {
        terms = qwix_terms_of_einsum(arena, lhs, rhs, qwix_case_text(c, "einsum"));
    } else if (is_conv) {
        struct octet_conv_options conv = qwix_conv_options(c);
        terms = qwix_terms_of_conv(arena, lhs, rhs, &conv, out_dim);
    } else if (!strcmp(c->op, "dot_general")) {
        struct octet_dot_dims dims = qwix_case_dims(c);
        terms = qwix_terms_of_dot(arena, lhs, rhs, &dims);
    } else {
        terms = qwix_terms_of_groups(arena, lhs, rhs, theirs(k, "group_sizes")->data,
                                     json_is_true(qwix_case_get(c, "transpose_rhs")));
    }
    static const char *const results[] = {"out", "dlhs", "drhs"};
    for (size_t i = 0; i < 3; i++)
        (is_einsum ? compare_loose : compare_sum)(k, results[i], &terms);
    return k->failures;
}

/* ---- quantize ---- */

int qwix_compare_combo(const struct qwix_case *c, octet_arena *arena, const char *name,
                       json_t *combo, const struct qwix_tensors *ours, struct qwix_tally *tally)
{
    struct check check = {c, arena, ours, tally, .failures = 0}, *k = &check;
    const char *method = json_string_value(json_object_get(combo, "calibration"));
    const struct octet_array *x = theirs(k, json_string_value(json_object_get(combo, "x")));
    const char *q_name = NAME("%s.q", name), *s_name = NAME("%s.scale", name),
               *z_name = NAME("%s.zp", name), *d_name = NAME("%s.deq", name);
    const struct octet_array *zp = theirs(k, z_name), *found = mine(k, q_name);
    bool exact, scale_exact;
    struct octet_array zero;

    /* A scale cast to another type afterwards hides the one that the codes were made with. */
    bool is_recast = theirs(k, s_name)->dtype != x->dtype;
    struct octet_array as_made = *theirs(k, s_name);
    as_made.dtype = x->dtype;
    double slack = scale_slack(k, &as_made, method);
    if (is_recast && slack > 0)
        slack = 0x1p-8; /* an ulp of bfloat16 */
    if (has_lost_nan(k, x, theirs(k, s_name), mine(k, s_name)))
        return lose(k);
    if (!compare_close(k, s_name, theirs(k, s_name), mine(k, s_name), slack, &scale_exact))
        return k->failures;
    tally->scales += octet_array_elements(theirs(k, s_name));
    tally->scales_excused += !scale_exact;
    struct octet_array expected = qwix_codes(arena, theirs(k, q_name), found->dtype);
    if (!comparable(k, q_name, &expected, found))
        return k->failures;
    if (zp || mine(k, z_name)) {
        if (zp)
            zero = qwix_codes(arena, zp, found->dtype);
        if (!compare_close(k, z_name, zp ? &zero : NULL, mine(k, z_name), 0, &exact))
            return k->failures;
    }
    struct quantized_side a = side_of(k, x, &expected, theirs(k, s_name), zp ? &zero : NULL),
                          b = side_of(k, x, found, mine(k, s_name), mine(k, z_name));
    if (is_recast && octet_array_elements(theirs(k, s_name)) == 1)
        k->is_soft = true, a.x = b.x = NULL;
    bool same = compare_codes(k, name, &a, &b, scale_exact);
    if (same && scale_exact) /* else it follows from other codes */
        compare_close(k, d_name, theirs(k, d_name), mine(k, d_name), 0, &exact);
    return k->failures;
}

/* ---- casts ---- */

static enum octet_dtype dtype_of_cast(const char *name)
{
    static const struct {
        const char *prefix;
        enum octet_dtype dtype;
    } table[] = {{"e4m3fn", OCTET_DTYPE_F8_E4M3FN},
                 {"e5m2", OCTET_DTYPE_F8_E5M2},
                 {"e2m1fn", OCTET_DTYPE_F4_E2M1FN},
                 {"int8", OCTET_DTYPE_S8},
                 {"int4", OCTET_DTYPE_S4}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (!strncmp(name, table[i].prefix, strlen(table[i].prefix)))
            return table[i].dtype;
    return OCTET_DTYPE_UNSPECIFIED;
}

/* Codes (as stored), decoded, against the values of the file: "e4m3fn" and "e4m3fn_value". */
static void compare_decode(struct check *k, const struct oct_kernels *kernels)
{
    static const char *const names[] = {"e4m3fn", "e5m2", "e2m1fn"};

    for (size_t i = 0; i < 3; i++) {
        const struct octet_array *codes = theirs(k, names[i]),
                                 *values = theirs(k, NAME("%s_value", names[i]));
        if (!values)
            continue;
        size_t n = (size_t)octet_array_elements(values);
        uint8_t *ordinal = octet_arena_alloc(k->arena, n);
        float *found = OCTET_NEW_ARRAY(k->arena, n, float);
        for (size_t j = 0; j < n; j++)
            ordinal[j] = (uint8_t)j;
        kernels->decode(dtype_of_cast(names[i]), n, codes ? codes->data : ordinal, found);
        struct octet_array array = *values;
        int64_t at;
        array.data = found;
        k->tally->codes += (int64_t)n;
        if (!qwix_same(values, &array, &at))
            fail_at(k, names[i], at, (double)((float *)values->data)[at], (double)found[at]);
    }
}

int qwix_compare_casts(const struct qwix_case *c, octet_arena *arena, const char *kernels,
                       struct qwix_tally *tally)
{
    struct check check = {c, arena, NULL, tally, .failures = 0}, *k = &check;
    const struct oct_kernels *set = oct_kernels_find(kernels, NULL);

    if (!strcmp(c->op, "decode")) {
        compare_decode(k, set);
        return k->failures;
    }
    for (size_t i = 0; i < octet_safetensors_count(c->file); i++) {
        const struct octet_named_array *item = octet_safetensors_get(c->file, i);
        enum octet_dtype dtype = dtype_of_cast(item->name);
        if (!dtype || !strchr(item->name, '_') || strstr(item->name, "_mldtypes"))
            continue; /* ml_dtypes' own casts differ from XLA's in the bits of NaN only */
        const struct octet_array *in = theirs(k, dtype == OCTET_DTYPE_F4_E2M1FN ? "in_fp4" : "in");
        size_t n = (size_t)octet_array_elements(in);
        const float *values = floats(arena, in);
        struct octet_array found = *in;
        found.dtype = dtype;
        found.data = octet_arena_array(arena, n, octet_dtype_bytes(dtype));
        (strstr(item->name, "_qwix") ? set->saturate : set->cast)(dtype, n, values, found.data);
        struct octet_array expected = qwix_codes(arena, &item->array, dtype);
        int64_t at;
        tally->codes += (int64_t)n;
        if (!qwix_same(&expected, &found, &at))
            fail_at(k, item->name, at, at < 0 ? 0 : (double)values[at],
                    at < 0 ? 0 : (double)floats(arena, &found)[at]);
    }
    return k->failures;
}
