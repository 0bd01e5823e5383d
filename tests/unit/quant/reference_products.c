/* See reference.h: products, forward and backward. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

/* For n numbers, until free. */
static float *ref_room(int64_t n)
{
    float *room = malloc((size_t)(n + 1) * sizeof *room);

    if (!room)
        ck_abort_msg("no memory");
    return room;
}

/* ---- sums ---- */

/* Blocks of 256; in a block pairs, the odd element of each first; a missing one is zero. */
float ref_dot(const float *a, const float *b, int64_t n)
{
    float total = 0;

    for (int64_t block = 0; block < n; block += 256) {
        float sum = 0;
        int64_t end = n - block < 256 ? n : block + 256;
        for (int64_t k = block; k < end; k += 2) {
            sum = k + 1 < end ? fmaf(a[k + 1], b[k + 1], sum) : fmaf(0, 0, sum);
            sum = fmaf(a[k], b[k], sum);
        }
        total = block == 0 ? sum : total + sum;
    }
    return total;
}

static int64_t integer_dot(const float *a, const float *b, int64_t n)
{
    int64_t sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += (int64_t)a[k] * (int64_t)b[k];
    return sum;
}

static bool is_float(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16;
}

static bool is_integer(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

/* F32 if either is; what has no type of its own (codes alone) does not count. */
static enum octet_dtype promote(enum octet_dtype a, enum octet_dtype b)
{
    return a == OCTET_DTYPE_F32 || b == OCTET_DTYPE_F32 ? OCTET_DTYPE_F32 : OCTET_DTYPE_BF16;
}

static enum octet_dtype dtype_of(const struct ref_value *value)
{
    return value->scale.v ? value->scale.dtype : value->x.dtype;
}

/* ---- one product: formula 9 ---- */

struct axes {
    int32_t count;
    int32_t axis[8];
};

static struct axes axes_of(const int32_t *axis, int32_t count)
{
    struct axes axes = {.count = count};

    memcpy(axes.axis, axis, (size_t)count * sizeof *axis);
    return axes;
}

static struct axes axes_left(int32_t rank, const struct axes *a, const struct axes *b)
{
    struct axes left = {0};

    for (int32_t axis = 0; axis < rank; axis++) {
        bool taken = false;
        for (int32_t i = 0; i < a->count; i++)
            taken |= a->axis[i] == axis;
        for (int32_t i = 0; i < b->count; i++)
            taken |= b->axis[i] == axis;
        if (!taken)
            left.axis[left.count++] = axis;
    }
    return left;
}

struct product {
    const struct ref_value *l, *r;
    struct axes lc, rc, lb, rb, lf, rf;
    int64_t tile[8], tiles[8];
    enum octet_dtype rounding; /* after each step */
};

static int64_t tile_size(const struct ref_value *value, int32_t axis)
{
    if (!value->scale.v || value->scale.dim[axis] <= 1)
        return 0;
    return value->x.dim[axis] / value->scale.dim[axis];
}

static bool has_small_tiles(const struct ref_value *value, const struct axes *contracting)
{
    for (int32_t i = 0; i < contracting->count; i++) {
        int64_t tile = tile_size(value, contracting->axis[i]);
        if (tile && tile < 128)
            return true;
    }
    return false;
}

static struct ref_value made_plain(const struct ref_value *value)
{
    if (!value->scale.v)
        return *value;
    return (struct ref_value){.x = ref_dequantize(value)};
}

/* One tile: R(R(R(dot) * ls) * rs), less a zero point's share. */
static float one_tile(const struct product *p, int64_t *li, int64_t *ri, const float *a,
                      const float *b, int64_t n)
{
    bool exact = is_integer(p->l->x.dtype) && is_integer(p->r->x.dtype);
    float *zeros = ref_room(n), sum = 0;

    int64_t integers = exact ? integer_dot(a, b, n) : 0;
    if (!exact)
        sum = ref_round(p->rounding, ref_dot(a, b, n));
    if (p->l->zero.v || p->r->zero.v) {
        float zero = p->l->zero.v ? ref_grid(&p->l->zero, &p->l->x, li)
                                  : ref_grid(&p->r->zero, &p->r->x, ri);
        for (int64_t k = 0; k < n; k++)
            zeros[k] = zero;
        const float *other = p->l->zero.v ? b : a;
        if (exact)
            integers -= integer_dot(zeros, other, n);
        else
            sum = sum - ref_round(p->rounding, ref_dot(zeros, other, n));
    }
    free(zeros);
    /* An integer takes the type of the scale that comes first; a float has both scales' type. */
    enum octet_dtype first = exact && p->l->scale.v ? p->l->scale.dtype : p->rounding;
    sum = ref_round(first, exact ? (float)integers : sum);
    if (p->l->scale.v)
        sum = ref_round(first, sum * ref_grid(&p->l->scale, &p->l->x, li));
    if (p->r->scale.v)
        sum = ref_round(p->rounding, sum * ref_grid(&p->r->scale, &p->r->x, ri));
    return sum;
}

/* All tiles of one element of the result; li, ri: its batch and free indices. */
static float one_element(const struct product *p, int64_t *li, int64_t *ri)
{
    int64_t t[8] = {0}, inner[8], n = 1, count = 1, depth = 0;
    float total = 0;

    for (int32_t i = 0; i < p->lc.count; i++) {
        n *= p->tile[i];
        count *= p->tiles[i];
    }
    float *a = ref_room(n), *b = ref_room(n);
    for (int64_t round = 0; round < count; round++) {
        memset(inner, 0, sizeof inner);
        for (depth = 0; depth < n; depth++, ref_next(p->lc.count, p->tile, inner)) {
            for (int32_t i = 0; i < p->lc.count; i++)
                li[p->lc.axis[i]] = ri[p->rc.axis[i]] = t[i] * p->tile[i] + inner[i];
            a[depth] = *ref_at(&p->l->x, li);
            b[depth] = *ref_at(&p->r->x, ri);
        }
        float part = one_tile(p, li, ri, a, b, n);
        total = round == 0 ? part : total + part;
        ref_next(p->lc.count, p->tiles, t);
    }
    free(a);
    free(b);
    return count > 1 ? ref_round(p->rounding, total) : total;
}

static struct ref all_elements(const struct product *p)
{
    int64_t dim[24], index[24] = {0}, li[8] = {0}, ri[8] = {0};
    int32_t rank = 0;

    for (int32_t i = 0; i < p->lb.count; i++)
        dim[rank++] = p->l->x.dim[p->lb.axis[i]];
    for (int32_t i = 0; i < p->lf.count; i++)
        dim[rank++] = p->l->x.dim[p->lf.axis[i]];
    for (int32_t i = 0; i < p->rf.count; i++)
        dim[rank++] = p->r->x.dim[p->rf.axis[i]];
    struct ref out = ref_make(p->rounding, rank, dim);
    bool is_empty = false;
    for (int32_t i = 0; i < p->lc.count; i++)
        is_empty |= p->l->x.dim[p->lc.axis[i]] == 0;
    for (int64_t n = 0; n < out.count && !is_empty; n++, ref_next(rank, dim, index)) {
        const int64_t *at = index;
        for (int32_t i = 0; i < p->lb.count; i++)
            li[p->lb.axis[i]] = ri[p->rb.axis[i]] = *at++;
        for (int32_t i = 0; i < p->lf.count; i++)
            li[p->lf.axis[i]] = *at++;
        for (int32_t i = 0; i < p->rf.count; i++)
            ri[p->rf.axis[i]] = *at++;
        out.v[n] = one_element(p, li, ri);
    }
    return out;
}

/* rounding: unspecified: the operands' promoted type. */
static struct ref multiply(const struct ref_value *lhs, const struct ref_value *rhs,
                           const struct octet_dot_dims *dims)
{
    struct ref_value l = *lhs, r = *rhs;
    struct product p = {.l = &l,
                        .r = &r,
                        .lc = axes_of(dims->lhs_contracting, dims->contracting_count),
                        .rc = axes_of(dims->rhs_contracting, dims->contracting_count),
                        .lb = axes_of(dims->lhs_batch, dims->batch_count),
                        .rb = axes_of(dims->rhs_batch, dims->batch_count)};

    if ((!l.scale.v && is_float(l.x.dtype)) || (!r.scale.v && is_float(r.x.dtype)) ||
        has_small_tiles(&l, &p.lc) || has_small_tiles(&r, &p.rc)) {
        l = made_plain(lhs);
        r = made_plain(rhs);
    }
    p.lf = axes_left(l.x.rank, &p.lc, &p.lb);
    p.rf = axes_left(r.x.rank, &p.rc, &p.rb);
    p.rounding = promote(dtype_of(&l), dtype_of(&r));
    for (int32_t i = 0; i < p.lc.count; i++) {
        int64_t dim = l.x.dim[p.lc.axis[i]], tile = tile_size(&l, p.lc.axis[i]);
        tile = tile ? tile : tile_size(&r, p.rc.axis[i]);
        p.tile[i] = tile ? tile : dim;
        p.tiles[i] = p.tile[i] ? dim / p.tile[i] : 1;
    }
    return all_elements(&p);
}

/* ---- what a rule says ---- */

struct settings {
    const char *lhs, *rhs, *lhs_method, *rhs_method, *bwd, *bwd_method; /* types: NULL: none */
    const char *tile, *lhs_grad_tile, *rhs_grad_tile;
    uint32_t lhs_mean, rhs_mean;
    bool is_quantized, per_tensor;
    struct octet_sparsity sparsity;
};

static const char *text(const char *given)
{
    return given && given[0] ? given : NULL;
}

static struct settings settings_of(const struct ref_op *op, int32_t lhs_rank, int32_t rhs_rank)
{
    const struct octet_rule *rule = op->rule;
    struct settings s = {0};

    if (!rule || !text(rule->weight_qtype))
        return s;
    s.is_quantized = true;
    bool l = op->weight == OCTET_WEIGHT_LHS, r = op->weight == OCTET_WEIGHT_RHS;
    s.lhs = text(l ? rule->weight_qtype : rule->act_qtype);
    s.rhs = text(r ? rule->weight_qtype : rule->act_qtype);
    s.lhs_method = l ? rule->weight_calibration_method : rule->act_calibration_method;
    s.rhs_method = r ? rule->weight_calibration_method : rule->act_calibration_method;
    s.bwd = text(rule->bwd_qtype);
    s.bwd_method = rule->bwd_calibration_method;
    s.tile = rule->tile_size;
    s.lhs_grad_tile = s.bwd && l ? rule->bwd_weight_grad_tile_size : NULL;
    s.rhs_grad_tile = s.bwd && r ? rule->bwd_weight_grad_tile_size : NULL;
    s.per_tensor = rule->disable_channelwise_axes;
    s.sparsity = rule->sparsity;
    for (size_t i = 0; rule->act_static_scale && i < rule->act_batch_axis_count; i++) {
        int32_t axis = rule->act_batch_axes[i];
        s.lhs_mean |= l ? 0 : 1u << (axis < 0 ? axis + lhs_rank : axis);
        s.rhs_mean |= r ? 0 : 1u << (axis < 0 ? axis + rhs_rank : axis);
    }
    return s;
}

/* All axes channelwise but the contracting ones; tiles along the last of those. */
static struct ref_how how_along(const struct ref *x, const struct axes *contracting,
                                const char *tile, bool per_tensor)
{
    struct ref_how how = {.channelwise = per_tensor ? 0 : (1u << x->rank) - 1};

    for (int32_t i = 0; i < contracting->count; i++)
        how.channelwise &= ~(1u << contracting->axis[i]);
    if (contracting->count) {
        int32_t last = contracting->axis[contracting->count - 1];
        how.tile[last] = ref_tile(tile, x->dim[last]);
    }
    return how;
}

static struct ref_value quantized_side(const struct ref_value *given, const char *qtype,
                                       const char *method, struct ref_how how)
{
    if (given->scale.v || !qtype)
        return *given;
    how.qtype = qtype;
    how.method = method;
    return ref_quantize(&given->x, &how);
}

/* ---- gradients ---- */

/* y with its codes, if the scale can go onto g; else what it was before. */
static struct ref_value residual_of(const struct ref_value *given, const struct ref_value *used,
                                    const struct axes *contracting, bool original)
{
    bool is_tiled = used->has_blocks;

    if (!used->scale.v)
        return *used;
    for (int32_t i = 0; i < used->x.rank; i++) {
        int64_t s = used->scale.dim[i];
        is_tiled |= s != 1 && s != used->x.dim[i];
        for (int32_t c = 0; c < contracting->count; c++)
            is_tiled |= s != 1 && contracting->axis[c] == i;
    }
    if (!original && !is_tiled)
        return *used;
    return given->scale.v ? made_plain(given) : *given;
}

/* dims: of g (left) and y (right). */
static struct ref folded(const struct ref *g, const struct ref_value *y,
                         const struct octet_dot_dims *dims)
{
    struct ref out = ref_make(promote(g->dtype, y->scale.dtype), g->rank, g->dim);
    int64_t index[8] = {0};

    for (int64_t n = 0; n < g->count; n++, ref_next(g->rank, g->dim, index)) {
        int64_t at[8] = {0};
        for (int32_t i = 0; i < dims->contracting_count; i++)
            at[dims->rhs_contracting[i]] = index[dims->lhs_contracting[i]];
        for (int32_t i = 0; i < dims->batch_count; i++)
            at[dims->rhs_batch[i]] = index[dims->lhs_batch[i]];
        out.v[n] = ref_round(out.dtype, g->v[n] * ref_grid(&y->scale, &y->x, at));
    }
    return out;
}

static void mask(const struct ref_value *used, const struct ref *x, struct ref *gradient)
{
    int64_t index[8] = {0};

    if (!used->clips)
        return;
    for (int64_t n = 0; n < x->count; n++, ref_next(x->rank, x->dim, index)) {
        float high = ref_grid(&used->high, x, index);
        float low = used->low.v ? ref_grid(&used->low, x, index) : -high;
        if (!(x->v[n] >= low && x->v[n] <= high))
            gradient->v[n] = 0;
    }
}

/* An op's operand in its two states. */
struct side {
    struct ref_value given, used;
    struct axes contracting, batch, free;
};

/* The gradient of x; y is the other side. for_lhs: g's axes are batch, x free, y free. */
static struct ref gradient_of(const struct settings *s, const struct ref *g, const struct side *x,
                              const struct side *y, bool for_lhs, const char *tile)
{
    struct octet_dot_dims dims = {.batch_count = x->batch.count,
                                  .contracting_count = y->free.count};
    int32_t from[8], at = 0;
    struct ref_value rest =
        residual_of(&y->given, &y->used, &y->contracting, s->is_quantized && !s->bwd);
    struct ref_value factor = {.x = *g};
    struct axes contracting;

    for (int32_t i = 0; i < y->free.count; i++) {
        dims.lhs_contracting[i] = x->batch.count + (for_lhs ? x->free.count : 0) + i;
        dims.rhs_contracting[i] = y->free.axis[i];
    }
    for (int32_t i = 0; i < x->batch.count; i++) {
        dims.lhs_batch[i] = i;
        dims.rhs_batch[i] = y->batch.axis[i];
    }
    if (s->bwd) {
        if (rest.scale.v) {
            factor.x = folded(g, &rest, &dims);
            rest = (struct ref_value){.x = rest.x};
        }
        contracting = axes_of(dims.lhs_contracting, dims.contracting_count);
        struct ref_how how = how_along(&factor.x, &contracting, tile, s->per_tensor);
        factor = quantized_side(&factor, s->bwd, s->bwd_method, how);
    }
    struct ref product = multiply(&factor, &rest, &dims);
    /* The product has x's batch axes, x's free axes, then y's contracting axes in their order. */
    for (int32_t i = 0; i < x->batch.count; i++)
        from[x->batch.axis[i]] = at++;
    for (int32_t i = 0; i < x->free.count; i++)
        from[x->free.axis[i]] = at++;
    for (int32_t axis = 0; axis < y->given.x.rank; axis++)
        for (int32_t i = 0; i < y->contracting.count; i++)
            if (y->contracting.axis[i] == axis)
                from[x->contracting.axis[i]] = at++;
    struct ref out = ref_permute(&product, from);
    if (!s->is_quantized)
        out = ref_cast(&out, x->given.x.dtype);
    mask(&x->used, &x->given.x, &out);
    return out;
}

static struct ref_result dot_general(const struct ref_value *lhs, const struct ref_value *rhs,
                                     const struct octet_dot_dims *dims, const struct ref_op *op)
{
    struct settings s = settings_of(op, lhs->x.rank, rhs->x.rank);
    struct side l = {.given = *lhs}, r = {.given = *rhs};
    struct ref_result result = {0};

    l.contracting = axes_of(dims->lhs_contracting, dims->contracting_count);
    r.contracting = axes_of(dims->rhs_contracting, dims->contracting_count);
    l.batch = axes_of(dims->lhs_batch, dims->batch_count);
    r.batch = axes_of(dims->rhs_batch, dims->batch_count);
    l.free = axes_left(lhs->x.rank, &l.contracting, &l.batch);
    r.free = axes_left(rhs->x.rank, &r.contracting, &r.batch);
    if (s.sparsity.m && !rhs->scale.v)
        r.given.x = ref_sparsify(&rhs->x, s.sparsity.n, s.sparsity.m, &rhs->x);
    struct ref_how how = how_along(&lhs->x, &l.contracting, s.tile, s.per_tensor);
    how.mean_axes = s.lhs_mean;
    l.used = quantized_side(&l.given, s.lhs, s.lhs_method, how);
    how = how_along(&rhs->x, &r.contracting, s.tile, s.per_tensor);
    how.mean_axes = s.rhs_mean;
    r.used = quantized_side(&r.given, s.rhs, s.rhs_method, how);
    result.lhs = l.used;
    result.rhs = r.used;
    result.out = multiply(&l.used, &r.used, dims);
    if (!op->cotangent.v)
        return result;
    struct ref g = ref_cast(&op->cotangent, result.out.dtype);
    if (!lhs->scale.v)
        result.lhs_grad = gradient_of(&s, &g, &l, &r, true, s.lhs_grad_tile);
    if (!rhs->scale.v) {
        result.rhs_grad = gradient_of(&s, &g, &r, &l, false, s.rhs_grad_tile);
        if (s.sparsity.m)
            result.rhs_grad = ref_sparsify(&rhs->x, s.sparsity.n, s.sparsity.m, &result.rhs_grad);
    }
    return result;
}

struct ref_result ref_dot_general(const struct ref_value *lhs, const struct ref_value *rhs,
                                  const struct octet_dot_dims *dims, const struct ref_op *op)
{
    unsigned env = ref_env();

    ref_env_set(REF_ENV);
    struct ref_result result = dot_general(lhs, rhs, dims, op);
    ref_env_set(env);
    return result;
}

/* ---- sparsity: formula 14; NaN counts as the largest, as in jax.lax.top_k ---- */

struct ref ref_sparsify(const struct ref *x, int32_t n, int32_t m, const struct ref *to)
{
    struct ref out = ref_cast(to, to->dtype);

    for (int64_t first = 0; first < x->count; first += m)
        for (int32_t i = 0; i < m; i++) {
            int32_t before = 0;
            for (int32_t j = 0; j < m; j++) {
                float a = fabsf(x->v[first + j]), b = fabsf(x->v[first + i]);
                bool ties = a == b || (isnan(a) && isnan(b));
                before += a > b || (isnan(a) && !isnan(b)) || (ties && j < i);
            }
            if (before >= n)
                out.v[first + i] = 0;
        }
    return out;
}

/* ---- grouped matmuls: formulas 12 and 13 ---- */

struct grouped {
    int64_t m, k, n, groups, first[64];
    bool transposed, is_gmm;
    struct settings s;
};

static struct ref_value pick_matrix(const struct ref_value *rhs, int64_t e)
{
    struct ref_value part = *rhs;
    int64_t size = rhs->x.dim[1] * rhs->x.dim[2];

    part.x.rank = 2;
    memcpy(part.x.dim, rhs->x.dim + 1, 2 * sizeof *part.x.dim);
    part.x.v += e * size;
    part.x.count = size;
    if (rhs->scale.v) {
        part.scale.rank = 2;
        memcpy(part.scale.dim, rhs->scale.dim + 1, 2 * sizeof *part.scale.dim);
        part.scale.v += rhs->scale.dim[0] == 1 ? 0 : e * rhs->scale.dim[1] * rhs->scale.dim[2];
    }
    return part;
}

static struct ref_value pick_rows(const struct ref_value *lhs, int64_t first, int64_t count)
{
    struct ref_value part = *lhs;

    part.x.dim[0] = count;
    part.x.v += first * lhs->x.dim[1];
    part.x.count = count * lhs->x.dim[1];
    if (lhs->scale.v && lhs->scale.dim[0] != 1) {
        part.scale.v += first * lhs->scale.dim[1];
        part.scale.dim[0] = count;
    }
    return part;
}

/* gmm: in f32 throughout, rounded once. */
static struct ref once_rounded(const struct grouped *g, const struct ref_value *a,
                               const struct ref_value *b, const struct octet_dot_dims *dims)
{
    struct ref_value l = *a, r = *b;

    if (!g->is_gmm)
        return multiply(a, b, dims);
    bool plain = (!a->scale.v && is_float(a->x.dtype)) || (!b->scale.v && is_float(b->x.dtype));
    if (plain) { /* dequantized in their own type */
        l = made_plain(a);
        r = made_plain(b);
    }
    if (is_float(l.x.dtype))
        l.x.dtype = OCTET_DTYPE_F32;
    if (is_float(r.x.dtype))
        r.x.dtype = OCTET_DTYPE_F32;
    l.scale.dtype = r.scale.dtype = OCTET_DTYPE_F32;
    return multiply(&l, &r, dims);
}

/* Zero points and small tiles: both sides are what they stand for, in their scale's type. */
static bool must_be_plain(const struct ref_value *a, const struct ref_value *b, int32_t axis)
{
    struct axes left = {1, {1}}, right = {1, {axis + 1}};

    return a->zero.v || b->zero.v || has_small_tiles(a, &left) || has_small_tiles(b, &right);
}

static void put(struct ref *out, int64_t at, const struct ref *part)
{
    for (int64_t i = 0; i < part->count; i++)
        out->v[at + i] = ref_round(out->dtype, part->v[i]);
}

/* Rows of a, group by group, with b's matrices; contracting axis of a matrix: `axis`. */
static struct ref by_rows(const struct grouped *g, const struct ref_value *a,
                          const struct ref_value *b, int32_t axis, enum octet_dtype dtype)
{
    struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {1}, .rhs_contracting = {axis}};
    int64_t columns = b->x.dim[2 - axis];
    struct ref out = ref_make(dtype, 2, DIMS(g->m, columns));
    struct ref_value plain_a, plain_b;

    if (must_be_plain(a, b, axis)) {
        plain_a = made_plain(a);
        plain_b = made_plain(b);
        a = &plain_a;
        b = &plain_b;
    }
    for (int64_t e = 0; e < g->groups; e++) {
        int64_t first = g->first[e], count = g->first[e + 1] - first;
        struct ref_value rows = pick_rows(a, first, count), matrix = pick_matrix(b, e);
        struct ref part = once_rounded(g, &rows, &matrix, &dims);
        put(&out, first * columns, &part);
    }
    return out;
}

static struct ref by_groups(const struct grouped *g, const struct ref_value *a,
                            const struct ref_value *b, enum octet_dtype dtype)
{
    struct octet_dot_dims dims = {
        .contracting_count = 1, .lhs_contracting = {0}, .rhs_contracting = {0}};
    int64_t rows = a->x.dim[1], columns = b->x.dim[1];
    struct ref out = ref_make(dtype, 3, DIMS(g->groups, rows, columns));

    for (int64_t e = 0; e < g->groups; e++) {
        int64_t first = g->first[e], count = g->first[e + 1] - first;
        struct ref_value left = pick_rows(a, first, count), right = pick_rows(b, first, count);
        struct ref part = once_rounded(g, &left, &right, &dims);
        put(&out, e * rows * columns, &part);
    }
    return out;
}

/* g times y's scale, a vector along g's `axis`; y becomes codes alone. */
static struct ref fold_vector(const struct ref *g, struct ref_value *y, int32_t axis)
{
    struct ref out = ref_make(g->dtype, 2, g->dim);

    for (int64_t i = 0; i < g->count; i++) {
        int64_t at = axis == 0 ? i / g->dim[1] : i % g->dim[1];
        out.v[i] = ref_round(g->dtype, g->v[i] * y->scale.v[y->scale.count == 1 ? 0 : at]);
    }
    *y = (struct ref_value){.x = y->x};
    return out;
}

/* What one backward product is made of: g as it is multiplied, and y. y_axis: the axis of g that
 * y's scale lies along. */
static struct ref_value factor_of(const struct grouped *g, const struct ref *cotangent,
                                  const struct ref_value *given, struct ref_value *y,
                                  int32_t y_axis, const char *tile)
{
    struct ref_value factor = {.x = *cotangent};
    bool folds = g->s.bwd || g->is_gmm;
    int32_t k_axis = y_axis == 0 ? 1 : g->transposed ? 2 : 1; /* of y */
    bool has_tiles = y->scale.v && y->scale.dim[k_axis] != 1;

    if (y->scale.v && has_tiles && folds && !given->scale.v) {
        *y = *given;
    } else if (y->scale.v && folds && !y->zero.v && !has_tiles) {
        factor.x = fold_vector(cotangent, y, y_axis);
    } else {
        *y = made_plain(y);
    }
    if (!g->s.bwd)
        return factor;
    struct ref_how how = {.channelwise = g->s.per_tensor ? 0 : 1u << (1 - y_axis)};
    how.tile[y_axis] = g->is_gmm ? 0 : ref_tile(tile, cotangent->dim[y_axis]);
    factor = quantized_side(&factor, g->s.bwd, g->s.bwd_method, how);
    return how.tile[y_axis] ? made_plain(&factor) : factor;
}

static void grouped_backward(const struct grouped *g, const struct ref *cotangent,
                             const struct ref_value *lhs, const struct ref_value *rhs,
                             struct ref_result *result)
{
    int32_t k_axis = g->transposed ? 1 : 0, n_axis = 1 - k_axis; /* of a matrix */
    bool as_given = g->is_gmm || !g->s.is_quantized;

    if (!lhs->scale.v) {
        struct ref_value y = result->rhs;
        struct ref_value f = factor_of(g, cotangent, rhs, &y, 1, NULL);
        enum octet_dtype dtype = as_given ? lhs->x.dtype : promote(dtype_of(&f), dtype_of(&y));
        result->lhs_grad = by_rows(g, &f, &y, n_axis, dtype);
    }
    if (!rhs->scale.v) {
        struct ref_value y = result->lhs;
        struct ref_value f = factor_of(g, cotangent, lhs, &y, 0, g->s.rhs_grad_tile);
        enum octet_dtype dtype = as_given ? rhs->x.dtype : promote(dtype_of(&f), dtype_of(&y));
        result->rhs_grad =
            g->transposed ? by_groups(g, &f, &y, dtype) : by_groups(g, &y, &f, dtype);
    }
}

static struct ref_result grouped(const struct ref_value *lhs, const struct ref_value *rhs,
                                 const int32_t *sizes, bool transpose_rhs,
                                 enum octet_grouped_op kind, const struct ref_op *op)
{
    struct grouped g = {.m = lhs->x.dim[0],
                        .k = lhs->x.dim[1],
                        .groups = rhs->x.dim[0],
                        .transposed = transpose_rhs,
                        .is_gmm = kind == OCTET_GMM,
                        .s = settings_of(op, 2, 3)};
    struct ref_result result = {0};
    int32_t k_axis = transpose_rhs ? 2 : 1;

    ck_assert_int_lt(g.groups, 64);
    for (int64_t e = 0; e < g.groups; e++)
        g.first[e + 1] = g.first[e] + sizes[e];
    struct ref_how how = {.channelwise = g.s.per_tensor ? 0 : 1u << 0};
    how.tile[1] = g.is_gmm ? 0 : ref_tile(g.s.tile, g.k);
    result.lhs = quantized_side(lhs, g.s.lhs, g.s.lhs_method, how);
    how = (struct ref_how){.channelwise = g.s.per_tensor ? 0 : 1u << (3 - k_axis)};
    how.tile[k_axis] = g.is_gmm ? 0 : ref_tile(g.s.tile, g.k);
    result.rhs = quantized_side(rhs, g.s.rhs, g.s.rhs_method, how);
    enum octet_dtype dtype = promote(dtype_of(&result.lhs), dtype_of(&result.rhs));
    result.out = by_rows(&g, &result.lhs, &result.rhs, k_axis - 1, dtype);
    if (op->cotangent.v) {
        struct ref cotangent = ref_cast(&op->cotangent, dtype);
        grouped_backward(&g, &cotangent, lhs, rhs, &result);
    }
    return result;
}

struct ref_result ref_grouped(const struct ref_value *lhs, const struct ref_value *rhs,
                              const int32_t *sizes, bool transpose_rhs, enum octet_grouped_op kind,
                              const struct ref_op *op)
{
    unsigned env = ref_env();

    ref_env_set(REF_ENV);
    struct ref_result result = grouped(lhs, rhs, sizes, transpose_rhs, kind, op);
    ref_env_set(env);
    return result;
}

/* ---- einsum: formula 18 ---- */

static int32_t place(const char *names, char name)
{
    return (int32_t)(strchr(names, name) - names);
}

/* dot_general(a, b): contracting names in alphabetical order, batch names in the result's. Returns
 * the names of its result. */
static void dims_for(const char *result, const char *a, const char *b, struct octet_dot_dims *dims,
                     char *names)
{
    for (char c = 'A'; c <= 'z'; c++)
        if (strchr(a, c) && strchr(b, c) && !strchr(result, c)) {
            dims->lhs_contracting[dims->contracting_count] = place(a, c);
            dims->rhs_contracting[dims->contracting_count++] = place(b, c);
        }
    for (const char *p = result; *p; p++)
        if (strchr(a, *p) && strchr(b, *p)) {
            dims->lhs_batch[dims->batch_count] = place(a, *p);
            dims->rhs_batch[dims->batch_count++] = place(b, *p);
            *names++ = *p;
        }
    for (const char *p = a; *p; p++)
        if (!strchr(b, *p))
            *names++ = *p;
    for (const char *p = b; *p; p++)
        if (!strchr(a, *p))
            *names++ = *p;
    *names = '\0';
}

struct ref_result ref_einsum(const char *equation, const struct ref_value *lhs,
                             const struct ref_value *rhs, const struct ref_op *op)
{
    char a[16] = "", b[16] = "", result[16] = "", names[32];
    struct octet_dot_dims dims = {0};
    struct ref_op turned = *op;
    struct ref_result out;
    int32_t from[8], back[8];

    for (char *p = a; *equation; equation++) {
        if (*equation == ',')
            p = b;
        else if (*equation == '-')
            p = result;
        else if (*equation != ' ' && *equation != '>')
            *p++ = *equation;
    }
    dims_for(result, a, b, &dims, names);
    bool flips = strcmp(names, result) != 0;
    if (flips) {
        dims = (struct octet_dot_dims){0};
        dims_for(result, b, a, &dims, names);
        if (op->weight != OCTET_WEIGHT_NONE)
            turned.weight = op->weight == OCTET_WEIGHT_LHS ? OCTET_WEIGHT_RHS : OCTET_WEIGHT_LHS;
    }
    for (int32_t i = 0; result[i]; i++) {
        from[i] = place(names, result[i]);
        back[i] = place(result, names[i]);
    }
    if (op->cotangent.v)
        turned.cotangent = ref_permute(&op->cotangent, back);
    out = flips ? ref_dot_general(rhs, lhs, &dims, &turned)
                : ref_dot_general(lhs, rhs, &dims, &turned);
    out.out = ref_permute(&out.out, from);
    if (flips) {
        struct ref grad = out.lhs_grad;
        out.lhs_grad = out.rhs_grad;
        out.rhs_grad = grad;
        struct ref_value side = out.lhs;
        out.lhs = out.rhs;
        out.rhs = side;
    }
    return out;
}

/* ---- convolution ---- */

struct conv {
    const struct octet_conv_options *how;
    struct ref_value l, r;
    struct ref out;
    enum octet_dtype rounding;
};

/* The input under one tap of the window, 0 in the padding. */
static float tap(const struct conv *c, const int64_t *at, const int64_t *window, int64_t channel)
{
    int64_t index[8] = {at[0]};
    int32_t spatial = c->how->spatial_count;

    for (int32_t i = 0; i < spatial; i++) {
        int64_t p = at[i + 1] * c->how->stride[i] + window[i] * c->how->rhs_dilation[i] -
                    c->how->padding_low[i];
        if (p < 0 || p % c->how->lhs_dilation[i])
            return 0;
        index[i + 1] = p / c->how->lhs_dilation[i];
        if (index[i + 1] >= c->l.x.dim[i + 1])
            return 0;
    }
    index[spatial + 1] = channel;
    return *ref_at(&c->l.x, index);
}

static float conv_element(const struct conv *c, const int64_t *at)
{
    const struct ref *w = &c->r.x;
    int32_t last = w->rank - 1;
    int64_t index[8] = {0}, depth = 0, feature = at[last];
    int64_t group = feature / (w->dim[last] / c->how->feature_groups);
    float *a = ref_room(w->count), *b = ref_room(w->count);

    index[last] = feature;
    do {
        if (w->count == 0)
            break;
        a[depth] = tap(c, at, index, group * w->dim[last - 1] + index[last - 1]);
        b[depth++] = *ref_at(w, index);
    } while (ref_next(last, w->dim, index));
    bool exact = is_integer(c->l.x.dtype) && is_integer(w->dtype);
    float sum = exact ? (float)integer_dot(a, b, depth) : ref_dot(a, b, depth);
    free(a);
    free(b);
    sum = ref_round(c->rounding, sum);
    if (c->l.scale.v)
        sum = ref_round(c->rounding, sum * c->l.scale.v[c->l.scale.count == 1 ? 0 : at[0]]);
    if (c->r.scale.v)
        sum = ref_round(c->rounding, sum * c->r.scale.v[c->r.scale.count == 1 ? 0 : feature]);
    return sum;
}

static struct ref conv(const struct ref_value *lhs, const struct ref_value *rhs,
                       const struct octet_conv_options *options, const struct ref_op *op)
{
    struct settings s = settings_of(op, lhs->x.rank, rhs->x.rank);
    struct conv c = {.how = options};
    struct ref_how l_how = {.channelwise = s.per_tensor ? 0 : 1};
    struct ref_how r_how = {.channelwise = s.per_tensor ? 0 : 1u << (rhs->x.rank - 1)};
    int64_t dim[8] = {lhs->x.dim[0]}, index[8] = {0};

    c.l = quantized_side(lhs, s.lhs, s.lhs_method, l_how);
    c.r = quantized_side(rhs, s.rhs, s.rhs_method, r_how);
    if ((c.l.scale.v == NULL) != (c.r.scale.v == NULL)) {
        c.l = made_plain(&c.l);
        c.r = made_plain(&c.r);
    }
    c.rounding = promote(dtype_of(&c.l), dtype_of(&c.r));
    for (int32_t i = 0; i < options->spatial_count; i++) {
        int64_t extent =
            lhs->x.dim[i + 1] ? (lhs->x.dim[i + 1] - 1) * options->lhs_dilation[i] + 1 : 0;
        int64_t reach = (rhs->x.dim[i] - 1) * options->rhs_dilation[i] + 1;
        extent += options->padding_low[i] + options->padding_high[i];
        dim[i + 1] = extent < reach ? 0 : (extent - reach) / options->stride[i] + 1;
    }
    dim[lhs->x.rank - 1] = rhs->x.dim[rhs->x.rank - 1];
    c.out = ref_make(c.rounding, lhs->x.rank, dim);
    for (int64_t n = 0; n < c.out.count; n++, ref_next(c.out.rank, dim, index))
        c.out.v[n] = conv_element(&c, index);
    return c.out;
}

struct ref ref_conv(const struct ref_value *lhs, const struct ref_value *rhs,
                    const struct octet_conv_options *options, const struct ref_op *op)
{
    unsigned env = ref_env();

    ref_env_set(REF_ENV);
    struct ref out = conv(lhs, rhs, options, op);
    ref_env_set(env);
    return out;
}
