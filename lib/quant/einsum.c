/* einsum of two operands: as jnp.einsum hands it to dot_general.
 *
 * Decision: an equation with an explicit result, each name once an operand, and every name in the
 * result or in both operands: what a matmul is. Others would be sums and diagonals around it, which
 * no rule touches. Source: JAX 0.10.2, numpy/einsum.py; Qwix 0.1.8, providers/qt.py; formula 18. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quant/panels.h"
#include "quant/pass.h"

struct equation {
    char lhs[OCTET_AXES_MAX + 1], rhs[OCTET_AXES_MAX + 1], result[OCTET_AXES_MAX + 1];
};

static enum octet_status refuse(const char *equation, const char *why, struct octet_error *err)
{
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "equation", "'%.80s': %s", equation, why);
}

static const char *read_names(const char **at, char *names)
{
    size_t n = 0;

    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        if (**at == ' ')
            continue;
        if (!((**at >= 'a' && **at <= 'z') || (**at >= 'A' && **at <= 'Z')))
            return "expected letters for axes, as in 'bsd,df->bsf'";
        if (memchr(names, **at, n))
            return "a name stands twice in one place";
        if (n == OCTET_AXES_MAX)
            return "an array has more than 8 axes";
        names[n++] = **at;
    }
    names[n] = '\0';
    return NULL;
}

static const char *parse(const char *text, struct equation *e)
{
    const char *why = read_names(&text, e->lhs);

    if (!why && *text++ != ',')
        return "expected two operands, separated by ','";
    if (!why)
        why = read_names(&text, e->rhs);
    if (!why && (text[0] != '-' || text[1] != '>'))
        return "expected '->' and the result's axes";
    if (why)
        return why;
    text += 2;
    why = read_names(&text, e->result);
    if (!why && *text)
        why = "text follows the result";
    for (const char *p = e->result; !why && *p; p++)
        if (!strchr(e->lhs, *p) && !strchr(e->rhs, *p))
            why = "the result has an axis that no operand has";
    for (const char *p = e->lhs; !why && *p; p++)
        if (!strchr(e->rhs, *p) && !strchr(e->result, *p))
            why = "an axis of the first operand is in neither the second nor the result";
    for (const char *p = e->rhs; !why && *p; p++)
        if (!strchr(e->lhs, *p) && !strchr(e->result, *p))
            why = "an axis of the second operand is in neither the first nor the result";
    return why;
}

/* batch names, then those that a has, then those that b has: the order of dot_general(a, b)'s
 * result. */
static void result_names(const char *result, const char *a, const char *b, char *out)
{
    size_t n = 0;

    for (const char *p = result; *p; p++)
        if (strchr(a, *p) && strchr(b, *p))
            out[n++] = *p;
    for (const char *p = a; *p; p++)
        if (!strchr(b, *p))
            out[n++] = *p;
    for (const char *p = b; *p; p++)
        if (!strchr(a, *p))
            out[n++] = *p;
    out[n] = '\0';
}

static int32_t index_of(const char *names, char name)
{
    return (int32_t)(strchr(names, name) - names);
}

/* Contracting names in alphabetical order, batch names in the result's. */
static struct octet_dot_dims dims_of(const char *result, const char *a, const char *b)
{
    struct octet_dot_dims dims = {0};

    for (int name = 'A'; name <= 'z'; name++)
        if (strchr(a, name) && strchr(b, name) && !strchr(result, name)) {
            dims.lhs_contracting[dims.contracting_count] = index_of(a, (char)name);
            dims.rhs_contracting[dims.contracting_count++] = index_of(b, (char)name);
        }
    for (const char *p = result; *p; p++)
        if (strchr(a, *p) && strchr(b, *p)) {
            dims.lhs_batch[dims.batch_count] = index_of(a, *p);
            dims.rhs_batch[dims.batch_count++] = index_of(b, *p);
        }
    return dims;
}

static void exchange(struct oct_record *record, struct octet_product *out)
{
    struct octet_array grad = out->lhs_grad;
    struct octet_operand_stats stats = out->lhs;

    out->lhs_grad = out->rhs_grad;
    out->rhs_grad = grad;
    out->lhs = out->rhs;
    out->rhs = stats;
    if (record) {
        struct octet_quantized q = record->lhs;
        record->lhs = record->rhs;
        record->rhs = q;
    }
}

/* A recorded array of the result's axes with those of dot_general's own result: out axis i = axis
 * from[i]. */
static enum octet_status turn(octet_arena *arena, const int32_t *from, struct octet_array *array,
                              struct octet_error *err)
{
    int64_t stride[OCTET_ARRAY_RANK_MAX], dim[OCTET_ARRAY_RANK_MAX], turned[OCTET_ARRAY_RANK_MAX];
    size_t bytes = octet_dtype_bytes(array->dtype);
    const int64_t *offsets;
    struct octet_array made;
    enum octet_status status;

    if (!array->data)
        return OCTET_OK;
    oct_strides(array, stride);
    for (int32_t i = 0; i < array->rank; i++) {
        dim[i] = array->dim[from[i]];
        turned[i] = stride[from[i]];
    }
    status = octet_array_create(arena, array->dtype, array->rank, dim, &made, err);
    if (status == OCTET_OK)
        status = oct_offsets(arena, array->rank, dim, NULL, turned, &offsets, NULL, err);
    if (status != OCTET_OK)
        return status;
    for (int64_t i = 0; i < octet_array_elements(&made); i++)
        memcpy((char *)made.data + (size_t)i * bytes,
               (const char *)array->data + (size_t)offsets[i] * bytes, bytes);
    *array = made;
    return OCTET_OK;
}

/* Records tell what dot_general saw. */
static enum octet_status turn_record(octet_arena *arena, const int32_t *axes,
                                     struct oct_record *record, struct octet_error *err)
{
    struct octet_array *arrays[] = {&record->g_dlhs_pre,    &record->g_dlhs.qvalue,
                                    &record->g_dlhs.scale,  &record->g_drhs_pre,
                                    &record->g_drhs.qvalue, &record->g_drhs.scale};
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && status == OCTET_OK; i++)
        status = turn(arena, axes, arrays[i], err);
    return status;
}

static const struct octet_array *shape_of(const struct octet_operand *operand)
{
    return operand->is_quantized ? &operand->quantized.qvalue : &operand->array;
}

static enum octet_status check_shapes(const struct equation *e, const char *equation,
                                      const struct octet_array *l, const struct octet_array *r,
                                      struct octet_error *err)
{
    char a[160], b[160];

    if (l->rank != (int32_t)strlen(e->lhs))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "lhs.shape",
                          "has rank %d, but '%s' in '%.80s' %zu axes", l->rank, e->lhs, equation,
                          strlen(e->lhs));
    if (r->rank != (int32_t)strlen(e->rhs))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                          "has rank %d, but '%s' in '%.80s' %zu axes", r->rank, e->rhs, equation,
                          strlen(e->rhs));
    for (const char *p = e->lhs; *p; p++)
        if (strchr(e->rhs, *p) && l->dim[p - e->lhs] != r->dim[index_of(e->rhs, *p)])
            return octet_fail(
                err, OCTET_INVALID_ARGUMENT, "rhs.shape",
                "%s does not go with lhs %s: '%c' is %" PRId64 " there and %" PRId64 " here",
                octet_array_shape_text(r, b, sizeof b), octet_array_shape_text(l, a, sizeof a), *p,
                l->dim[p - e->lhs], r->dim[index_of(e->rhs, *p)]);
    return OCTET_OK;
}

/* What dot_general calls lhs is the caller's rhs, and the other way round. */
static void exchange_names(struct octet_error *err)
{
    if (err && strncmp(err->field, "lhs", 3) == 0)
        err->field[0] = 'r';
    else if (err && strncmp(err->field, "rhs", 3) == 0)
        err->field[0] = 'l';
}

enum octet_status oct_matmul_from_einsum(const char *equation, const struct octet_array *lhs,
                                         const struct octet_array *rhs, struct oct_matmul *matmul,
                                         bool *is_exchanged, struct octet_error *err)
{
    char names[2 * OCTET_AXES_MAX + 1];
    struct equation e;
    const char *why = parse(equation, &e);

    if (why)
        return refuse(equation, why, err);
    enum octet_status status = check_shapes(&e, equation, lhs, rhs, err);
    if (status != OCTET_OK)
        return status;
    matmul->kind = OCT_MATMUL_DOT;
    matmul->is_turned = false;
    result_names(e.result, e.lhs, e.rhs, names);
    *is_exchanged = strcmp(names, e.result) != 0;
    if (!*is_exchanged) {
        matmul->dims = dims_of(e.result, e.lhs, e.rhs);
        return OCTET_OK;
    }
    /* JAX takes the operands in the other order where this one does not give the result as it
     * stands. */
    result_names(e.result, e.rhs, e.lhs, names);
    matmul->dims = dims_of(e.result, e.rhs, e.lhs);
    matmul->is_turned = true;
    for (int32_t i = 0; names[i]; i++)
        matmul->result_axes[i] = index_of(e.result, names[i]);
    if (matmul->weight_operand != OCTET_WEIGHT_NONE)
        matmul->weight_operand =
            matmul->weight_operand == OCTET_WEIGHT_LHS ? OCTET_WEIGHT_RHS : OCTET_WEIGHT_LHS;
    return OCTET_OK;
}

enum octet_status oct_quant_einsum(const struct octet_compute *compute, const char *equation,
                                   const struct octet_operand *lhs, const struct octet_operand *rhs,
                                   const struct octet_product_options *options,
                                   struct oct_record *record, struct octet_product *out,
                                   struct octet_error *err)
{
    struct octet_product_options chosen = *options;
    struct oct_matmul matmul = {.weight_operand = options->weight_operand};
    bool is_exchanged;
    enum octet_status status =
        oct_matmul_from_einsum(equation, shape_of(lhs), shape_of(rhs), &matmul, &is_exchanged, err);

    if (status != OCTET_OK)
        return status;
    chosen.weight_operand = matmul.weight_operand;
    if (!is_exchanged)
        return oct_quant_matmul(compute, &matmul, lhs, rhs, NULL, &chosen, record, out, err);
    status = oct_quant_matmul(compute, &matmul, rhs, lhs, NULL, &chosen, record, out, err);
    if (status == OCTET_OK && record)
        status = turn_record(compute->arena, matmul.result_axes, record, err);
    if (status == OCTET_OK)
        exchange(record, out);
    else
        exchange_names(err);
    return status;
}

enum octet_status octet_einsum(const struct octet_compute *compute, const char *equation,
                               const struct octet_operand *lhs, const struct octet_operand *rhs,
                               const struct octet_product_options *options,
                               struct octet_product *out, struct octet_error *err)
{
    return oct_quant_einsum(compute, equation, lhs, rhs, options, NULL, out, err);
}
