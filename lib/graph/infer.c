/* Shape inference; see infer.h. */
#include "graph/infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct octet_tensor *input(const struct octet_graph *g, const struct oct_node *n,
                                        int i)
{
    return &g->tensors[n->inputs[i]];
}

static struct octet_tensor *output(struct octet_graph *g, const struct oct_node *n, int i)
{
    return &g->tensors[n->outputs[i]];
}

static void append(struct octet_shape *shape, int64_t dim, uint8_t axis)
{
    shape->dim[shape->rank] = dim;
    shape->axis[shape->rank] = axis;
    shape->rank++;
}

static void append_from(struct octet_shape *shape, const struct octet_shape *from, int i)
{
    append(shape, from->dim[i], from->axis[i]);
}

/* "[1, 128, 7168]" */
static const char *shape_text(const struct octet_shape *shape, char *buffer, size_t size)
{
    int at = snprintf(buffer, size, "[");

    for (int i = 0; i < shape->rank && (size_t)at < size; i++)
        at += snprintf(buffer + at, size - (size_t)at, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
    if ((size_t)at < size)
        snprintf(buffer + at, size - (size_t)at, "]");
    return buffer;
}

static enum octet_status misfit(const struct octet_graph *g, const struct oct_node *n,
                                struct octet_error *err, const char *expected)
{
    char a[128] = "", b[128] = "";

    shape_text(&input(g, n, 0)->shape, a, sizeof a);
    if (n->input_count > 1)
        shape_text(&input(g, n, 1)->shape, b, sizeof b);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s of module '%s': %s%s%s do not fit: %s",
                      oct_op_rows[n->op].name, g->modules[n->module], a, b[0] ? " and " : "", b,
                      expected);
}

static enum octet_status same_as_first(struct octet_graph *g, struct oct_node *n)
{
    struct octet_tensor *out = output(g, n, 0);

    out->shape = input(g, n, 0)->shape;
    out->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

#define SAME_AS_FIRST(op)                                                                          \
    enum octet_status oct_infer_##op(struct octet_graph *g, struct oct_node *n,                    \
                                     struct octet_error *err)                                      \
    {                                                                                              \
        (void)err;                                                                                 \
        return same_as_first(g, n);                                                                \
    }
SAME_AS_FIRST(rope)
SAME_AS_FIRST(scale)
SAME_AS_FIRST(activation)
SAME_AS_FIRST(soft_cap)
SAME_AS_FIRST(stop_gradient)
SAME_AS_FIRST(shift_left)
SAME_AS_FIRST(attention_normalize)
SAME_AS_FIRST(stream_mix)
SAME_AS_FIRST(index_mask)

enum octet_status oct_infer_embed(struct octet_graph *g, struct oct_node *n,
                                  struct octet_error *err)
{
    struct octet_tensor *out = output(g, n, 0);

    (void)err;
    out->shape = input(g, n, 0)->shape;
    append_from(&out->shape, &input(g, n, 1)->shape, 1);
    return OCTET_OK;
}

static bool listed(const uint8_t *axes, int count, int axis)
{
    for (int i = 0; i < count; i++)
        if (axes[i] == axis)
            return true;
    return false;
}

/* Result axes in lax.dot_general's order: batch, lhs free, rhs free. */
enum octet_status oct_infer_dot_general(struct octet_graph *g, struct oct_node *n,
                                        struct octet_error *err)
{
    const struct oct_dot_dims *d = &n->attributes.dot;
    const struct octet_shape *lhs = &input(g, n, 0)->shape, *rhs = &input(g, n, 1)->shape;
    struct octet_shape out = {0};

    for (int i = 0; i < d->contracting_count; i++)
        if (lhs->dim[d->lhs_contracting[i]] != rhs->dim[d->rhs_contracting[i]])
            return misfit(g, n, err, "the contracted dimensions must be equal");
    for (int i = 0; i < d->batch_count; i++)
        append_from(&out, lhs, d->lhs_batch[i]);
    for (int i = 0; i < lhs->rank; i++)
        if (!listed(d->lhs_contracting, d->contracting_count, i) &&
            !listed(d->lhs_batch, d->batch_count, i))
            append_from(&out, lhs, i);
    for (int i = 0; i < rhs->rank; i++)
        if (!listed(d->rhs_contracting, d->contracting_count, i) &&
            !listed(d->rhs_batch, d->batch_count, i))
            append_from(&out, rhs, i);
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

/* Writes the labels of one operand; *text moves behind it. dots: dimensions under "...". */
static bool operand_labels(const char **text, int rank, char *labels, int *dots)
{
    int letters = 0, at = 0;
    const char *p = *text;
    bool ellipsis = false;

    for (; *p && *p != ',' && *p != '-'; p++) {
        ellipsis |= *p == '.';
        letters += *p != '.' && *p != ' ';
    }
    if (ellipsis && rank >= 0)
        *dots = rank - letters;
    if (*dots < 0 || (rank >= 0 && letters + (ellipsis ? *dots : 0) != rank))
        return false;
    bool expanded = false;
    for (p = *text; *p && *p != ',' && *p != '-'; p++) {
        if (*p == ' ' || (*p == '.' && expanded))
            continue;
        int copies = *p == '.' ? *dots : 1;
        for (int i = 0; i < copies; i++) {
            if (at >= OCTET_RANK_MAX)
                return false;
            labels[at++] = *p == '.' ? (char)('0' + i) : *p;
        }
        expanded |= *p == '.';
    }
    *text = p;
    return true;
}

bool oct_einsum_labels(const char *equation, int lhs_rank, int rhs_rank, char *lhs, char *rhs,
                       char *out, int *out_rank)
{
    int dots = 0;
    const char *p = equation;

    memset(out, 0, OCTET_RANK_MAX);
    if (!operand_labels(&p, lhs_rank, lhs, &dots) || *p++ != ',' ||
        !operand_labels(&p, rhs_rank, rhs, &dots) || p[0] != '-' || p[1] != '>')
        return false;
    p += 2;
    if (!operand_labels(&p, -1, out, &dots))
        return false;
    *out_rank = (int)strnlen(out, OCTET_RANK_MAX);
    return true;
}

enum octet_status oct_infer_einsum(struct octet_graph *g, struct oct_node *n,
                                   struct octet_error *err)
{
    const struct octet_shape *lhs = &input(g, n, 0)->shape, *rhs = &input(g, n, 1)->shape;
    char a[OCTET_RANK_MAX], b[OCTET_RANK_MAX], c[OCTET_RANK_MAX];
    struct octet_shape out = {0};
    int rank;

    if (!oct_einsum_labels(n->attributes.equation, lhs->rank, rhs->rank, a, b, c, &rank))
        return misfit(g, n, err, n->attributes.equation);
    for (int i = 0; i < lhs->rank; i++) {
        const char *same = memchr(b, a[i], (size_t)rhs->rank);
        if (same && lhs->dim[i] != rhs->dim[same - b])
            return misfit(g, n, err, n->attributes.equation);
    }
    for (int i = 0; i < rank; i++) {
        const char *from = memchr(a, c[i], (size_t)lhs->rank);
        if (from)
            append_from(&out, lhs, (int)(from - a));
        else
            append_from(&out, rhs, (int)((const char *)memchr(b, c[i], (size_t)rhs->rank) - b));
    }
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_grouped_matmul(struct octet_graph *g, struct oct_node *n,
                                           struct octet_error *err)
{
    const struct octet_shape *rows = &input(g, n, 0)->shape, *experts = &input(g, n, 1)->shape;
    struct octet_shape out = {0};

    if (rows->dim[1] != experts->dim[1])
        return misfit(g, n, err, "rows' second dimension must equal experts' second");
    append_from(&out, rows, 0);
    append_from(&out, experts, 2);
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_rms_norm(struct octet_graph *g, struct oct_node *n,
                                     struct octet_error *err)
{
    const struct octet_shape *x = &input(g, n, 0)->shape;

    if (n->input_count > 1 && input(g, n, 1)->shape.dim[0] != x->dim[x->rank - 1])
        return misfit(g, n, err, "the scale must have the size of the last dimension");
    return same_as_first(g, n);
}

enum octet_status oct_infer_layer_norm(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    return oct_infer_rms_norm(g, n, err);
}

/* The second operand's trailing dimensions equal the first's, or are 1. */
static enum octet_status infer_broadcasting(struct octet_graph *g, struct oct_node *n,
                                            struct octet_error *err)
{
    const struct octet_shape *x = &input(g, n, 0)->shape, *y = &input(g, n, 1)->shape;

    for (int i = 1; i <= y->rank; i++)
        if (i > x->rank || (y->dim[y->rank - i] != x->dim[x->rank - i] && y->dim[y->rank - i] != 1))
            return misfit(g, n, err, "the second must broadcast to the first");
    return same_as_first(g, n);
}

enum octet_status oct_infer_add(struct octet_graph *g, struct oct_node *n, struct octet_error *err)
{
    return infer_broadcasting(g, n, err);
}

enum octet_status oct_infer_multiply(struct octet_graph *g, struct oct_node *n,
                                     struct octet_error *err)
{
    return infer_broadcasting(g, n, err);
}

enum octet_status oct_infer_slice(struct octet_graph *g, struct oct_node *n,
                                  struct octet_error *err)
{
    int axis = n->attributes.slice.axis;
    int64_t start = n->attributes.slice.start, size = n->attributes.slice.size;

    same_as_first(g, n);
    struct octet_shape *shape = &output(g, n, 0)->shape;
    if (start < 0 || size <= 0 || start > shape->dim[axis] - size)
        return misfit(g, n, err, "the slice must lie within the dimension");
    shape->dim[axis] = size;
    return OCTET_OK;
}

enum octet_status oct_infer_concat(struct octet_graph *g, struct oct_node *n,
                                   struct octet_error *err)
{
    const struct octet_shape *x = &input(g, n, 0)->shape, *y = &input(g, n, 1)->shape;

    if (x->rank != y->rank)
        return misfit(g, n, err, "both must have the same rank");
    for (int i = 0; i < x->rank - 1; i++)
        if (x->dim[i] != y->dim[i])
            return misfit(g, n, err, "all dimensions but the last must be equal");
    same_as_first(g, n);
    output(g, n, 0)->shape.dim[x->rank - 1] += y->dim[x->rank - 1];
    return OCTET_OK;
}

enum octet_status oct_infer_reshape(struct octet_graph *g, struct oct_node *n,
                                    struct octet_error *err)
{
    struct octet_tensor *out = output(g, n, 0);

    if (octet_shape_elements(&out->shape) != octet_shape_elements(&input(g, n, 0)->shape))
        return misfit(g, n, err, "the new shape must have as many elements");
    out->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_broadcast(struct octet_graph *g, struct oct_node *n,
                                      struct octet_error *err)
{
    same_as_first(g, n);
    struct octet_shape *shape = &output(g, n, 0)->shape;
    if (shape->dim[n->attributes.broadcast.axis] != 1)
        return misfit(g, n, err, "only a dimension of size 1 is repeated");
    shape->dim[n->attributes.broadcast.axis] = n->attributes.broadcast.size;
    return OCTET_OK;
}

enum octet_status oct_infer_cast(struct octet_graph *g, struct oct_node *n, struct octet_error *err)
{
    (void)err;
    same_as_first(g, n);
    output(g, n, 0)->dtype = (uint8_t)n->attributes.dtype;
    return OCTET_OK;
}

/* scores [b, kv, g, t, s] -> exps of the same shape, sums [b, t, kv, g, 1], as the values are laid
 * out */
enum octet_status oct_infer_attention_softmax(struct octet_graph *g, struct oct_node *n,
                                              struct octet_error *err)
{
    const struct octet_shape *scores = &input(g, n, 0)->shape;
    struct octet_shape sums = {0};

    (void)err;
    same_as_first(g, n);
    append_from(&sums, scores, 0);
    append_from(&sums, scores, 3);
    append_from(&sums, scores, 1);
    append_from(&sums, scores, 2);
    append(&sums, 1, OCTET_AXIS_none);
    output(g, n, 1)->shape = sums;
    output(g, n, 1)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_top_k(struct octet_graph *g, struct oct_node *n,
                                  struct octet_error *err)
{
    int64_t k = n->attributes.top_k.k;

    same_as_first(g, n);
    struct octet_shape *shape = &output(g, n, 0)->shape;
    int last = shape->rank - 1;
    if (k < 1 || k > shape->dim[last])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "num_experts_per_tok",
                          "%" PRId64 " of num_experts=%" PRId64 " cannot be chosen", k,
                          shape->dim[last]);
    shape->dim[last] = k;
    shape->axis[last] = OCTET_AXIS_exp_per_tok;
    output(g, n, 1)->shape = *shape;
    output(g, n, 1)->dtype = OCTET_DTYPE_S32;
    return OCTET_OK;
}

/* tokens [b, s, e], indices [b, s, k] -> rows [b * s * k, e], group sizes [k's experts] */
enum octet_status oct_infer_dispatch(struct octet_graph *g, struct oct_node *n,
                                     struct octet_error *err)
{
    const struct octet_shape *tokens = &input(g, n, 0)->shape;
    struct octet_shape rows = {0}, sizes = {0};

    (void)err;
    append(&rows, octet_shape_elements(&input(g, n, 1)->shape), OCTET_AXIS_tokens);
    append_from(&rows, tokens, tokens->rank - 1);
    append(&sizes, n->attributes.k, OCTET_AXIS_exp);
    output(g, n, 0)->shape = rows;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    output(g, n, 1)->shape = sizes;
    output(g, n, 1)->dtype = OCTET_DTYPE_S32;
    return OCTET_OK;
}

/* rows [b * s * k, e], indices [b, s, k] -> [b * s, k, e] */
enum octet_status oct_infer_undispatch(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    const struct octet_shape *rows = &input(g, n, 0)->shape, *indices = &input(g, n, 1)->shape;
    struct octet_shape out = {0};

    (void)err;
    append(&out, rows->dim[0] / indices->dim[indices->rank - 1], OCTET_AXIS_tokens);
    append_from(&out, indices, indices->rank - 1);
    append_from(&out, rows, 1);
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

/* bias [n, d], indices [b, s, k] -> [b * s * k, d], in the order of dispatch */
enum octet_status oct_infer_expert_bias(struct octet_graph *g, struct oct_node *n,
                                        struct octet_error *err)
{
    struct octet_shape out = {0};

    (void)err;
    append(&out, octet_shape_elements(&input(g, n, 1)->shape), OCTET_AXIS_tokens);
    append_from(&out, &input(g, n, 0)->shape, 1);
    output(g, n, 0)->shape = out;
    return OCTET_OK;
}

enum octet_status oct_infer_expert_weights(struct octet_graph *g, struct oct_node *n,
                                           struct octet_error *err)
{
    (void)err;
    same_as_first(g, n);
    struct octet_shape *shape = &output(g, n, 0)->shape;
    shape->dim[shape->rank - 1] = n->attributes.k;
    shape->axis[shape->rank - 1] = OCTET_AXIS_exp;
    return OCTET_OK;
}

/* weights [b, s, n] -> dispatch and combine masks [b, s, n, capacity] */
enum octet_status oct_infer_capacity_masks(struct octet_graph *g, struct oct_node *n,
                                           struct octet_error *err)
{
    (void)err;
    same_as_first(g, n);
    struct octet_tensor *dispatch = output(g, n, 0);
    append(&dispatch->shape, n->attributes.capacity, OCTET_AXIS_capacity);
    output(g, n, 1)->shape = dispatch->shape;
    output(g, n, 1)->dtype = dispatch->dtype;
    dispatch->dtype = OCTET_DTYPE_BOOL;
    return OCTET_OK;
}

static enum octet_status scalar(struct octet_graph *g, struct oct_node *n)
{
    for (int i = 0; i < n->output_count; i++) {
        output(g, n, i)->shape = (struct octet_shape){0};
        output(g, n, i)->dtype = OCTET_DTYPE_F32;
    }
    return OCTET_OK;
}

enum octet_status oct_infer_load_balance_loss(struct octet_graph *g, struct oct_node *n,
                                              struct octet_error *err)
{
    (void)err;
    return scalar(g, n);
}

enum octet_status oct_infer_index_loss(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    (void)err;
    return scalar(g, n);
}

enum octet_status oct_infer_cross_entropy(struct octet_graph *g, struct oct_node *n,
                                          struct octet_error *err)
{
    (void)err;
    return scalar(g, n);
}

enum octet_status oct_infer_loss_ratio(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    (void)err;
    return scalar(g, n);
}

/* [b, s, streams, e] -> [b, s, e] */
enum octet_status oct_infer_stream_sum(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    const struct octet_shape *x = &input(g, n, 0)->shape;
    struct octet_shape out = {0};

    (void)err;
    append_from(&out, x, 0);
    append_from(&out, x, 1);
    append_from(&out, x, 3);
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_transpose(struct octet_graph *g, struct oct_node *n,
                                      struct octet_error *err)
{
    const struct octet_shape *x = &input(g, n, 0)->shape;
    struct octet_shape out = {0};

    (void)err;
    for (int i = 0; i < x->rank - 2; i++)
        append_from(&out, x, i);
    append_from(&out, x, x->rank - 1);
    append_from(&out, x, x->rank - 2);
    output(g, n, 0)->shape = out;
    output(g, n, 0)->dtype = input(g, n, 0)->dtype;
    return OCTET_OK;
}

enum octet_status oct_infer_one_hot(struct octet_graph *g, struct oct_node *n,
                                    struct octet_error *err)
{
    struct octet_tensor *out = output(g, n, 0);

    (void)err;
    out->shape = input(g, n, 0)->shape;
    append(&out->shape, n->attributes.k, OCTET_AXIS_vocab);
    return OCTET_OK;
}

enum octet_status oct_infer_sinusoid(struct octet_graph *g, struct oct_node *n,
                                     struct octet_error *err)
{
    struct octet_tensor *out = output(g, n, 0);

    (void)err;
    out->shape = input(g, n, 0)->shape;
    append(&out->shape, n->attributes.k, OCTET_AXIS_embed);
    return OCTET_OK;
}

enum octet_status oct_infer_chunk_mean(struct octet_graph *g, struct oct_node *n,
                                       struct octet_error *err)
{
    int64_t chunk = n->attributes.k;

    if (chunk < 1)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "moba_chunk_size",
                          "%" PRId64 "; at least 1 was expected", chunk);
    same_as_first(g, n);
    struct octet_shape *shape = &output(g, n, 0)->shape;
    shape->dim[1] = (shape->dim[1] + chunk - 1) / chunk;
    return OCTET_OK;
}
