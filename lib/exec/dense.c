/* Products of two operands, forward and backward: dot_general, einsum, grouped_matmul. With a rule
 * they are Qwix's (lib/quant/passes.h); without, plain products through the same code.
 *
 * Operands are cast to the result's dtype first, as MaxText casts parameters to the compute type.
 * The gradient has that dtype too; a cast's own gradient is the cast back, so that of a parameter
 * is rounded to its dtype, even where it is kept in F32. */
#include "exec/dense.h"

#include <string.h>

#include "exec/piece.h"
#include "plan/weights.h"
#include "quant/pack.h"
#include "quant/passes.h"
#include "quant/quantize.h"
#include "rules/fields.h"

/* A node's product: which input is its lhs, in which dtype it is computed. */
struct dense {
    struct oct_matmul matmul;
    int lhs, rhs; /* inputs */
    enum octet_dtype dtype;
};

static struct octet_array shape_of(const octet_graph *graph, uint32_t tensor,
                                   enum octet_dtype dtype)
{
    const struct octet_shape *shape = &graph->tensors[tensor].shape;
    struct octet_array array = {.dtype = dtype, .rank = shape->rank};

    memcpy(array.dim, shape->dim, sizeof shape->dim);
    return array;
}

static void copy_axes(const uint8_t *from, int32_t count, int32_t *to)
{
    for (int32_t i = 0; i < count; i++)
        to[i] = from[i];
}

static struct octet_dot_dims dims_of(const struct oct_dot_dims *from)
{
    struct octet_dot_dims dims = {.contracting_count = from->contracting_count,
                                  .batch_count = from->batch_count};

    copy_axes(from->lhs_contracting, dims.contracting_count, dims.lhs_contracting);
    copy_axes(from->rhs_contracting, dims.contracting_count, dims.rhs_contracting);
    copy_axes(from->lhs_batch, dims.batch_count, dims.lhs_batch);
    copy_axes(from->rhs_batch, dims.batch_count, dims.rhs_batch);
    return dims;
}

/* Which operand is a weight: formula 16 of Qwix's arithmetic. */
static enum octet_weight_operand weight_of(const octet_graph *graph, const struct oct_node *node)
{
    if (oct_plan_weights(graph, node->inputs[1], NULL, NULL))
        return OCTET_WEIGHT_RHS;
    return oct_plan_weights(graph, node->inputs[0], NULL, NULL) ? OCTET_WEIGHT_LHS
                                                                : OCTET_WEIGHT_NONE;
}

static enum octet_status describe(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, struct dense *d,
                                  struct octet_error *err)
{
    bool is_exchanged = false;
    enum octet_status status = OCTET_OK;

    *d = (struct dense){.dtype = graph->tensors[node->outputs[0]].dtype,
                        .matmul = {.rule = rule, .weight_operand = weight_of(graph, node)}};
    if (node->op == OCT_OP_dot_general) {
        d->matmul.dims = dims_of(&node->attributes.dot);
    } else if (node->op == OCT_OP_grouped_matmul) {
        d->matmul.kind =
            node->lookup == OCTET_LOOKUP_RAGGED_DOT ? OCT_MATMUL_RAGGED_DOT : OCT_MATMUL_GMM;
    } else {
        struct octet_array lhs = shape_of(graph, node->inputs[0], d->dtype);
        struct octet_array rhs = shape_of(graph, node->inputs[1], d->dtype);
        status = oct_matmul_from_einsum(node->attributes.equation, &lhs, &rhs, &d->matmul,
                                        &is_exchanged, err);
    }
    d->lhs = is_exchanged;
    d->rhs = !is_exchanged;
    return status;
}

/* ---- what is known beforehand ---- */

enum octet_status oct_dense_check(const octet_graph *graph, const struct oct_node *node,
                                  const struct octet_rule *rule, bool backward,
                                  struct octet_error *err)
{
    struct dense d;
    enum octet_status status = describe(graph, node, rule, &d, err);

    if (status != OCTET_OK)
        return status;
    d.matmul.has_backward = backward;
    struct octet_array lhs = shape_of(graph, node->inputs[d.lhs], d.dtype);
    struct octet_array rhs = shape_of(graph, node->inputs[d.rhs], d.dtype);
    return oct_matmul_check(&d.matmul, &lhs, &rhs, err);
}

size_t oct_dense_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule)
{
    struct dense d;

    if (describe(graph, node, rule, &d, NULL) != OCTET_OK)
        return 0;
    d.matmul.has_backward = true;
    struct octet_array lhs = shape_of(graph, node->inputs[d.lhs], d.dtype);
    struct octet_array rhs = shape_of(graph, node->inputs[d.rhs], d.dtype);
    return oct_matmul_saved_bytes(&d.matmul, &lhs, &rhs);
}

int oct_dense_reads(const octet_graph *graph, const struct oct_node *node,
                    const struct octet_rule *rule)
{
    struct dense d;
    int reads = 3;

    if (describe(graph, node, rule, &d, NULL) == OCTET_OK) {
        d.matmul.has_backward = true;
        d.matmul.step = INT64_MAX; /* sparsity may come to act */
        struct octet_array lhs = shape_of(graph, node->inputs[d.lhs], d.dtype);
        struct octet_array rhs = shape_of(graph, node->inputs[d.rhs], d.dtype);
        reads = oct_matmul_reads(&d.matmul, &lhs, &rhs);
    }
    return (reads & 1 ? 1 << d.lhs : 0) | (reads & 2 ? 1 << d.rhs : 0) |
           (node->op == OCT_OP_grouped_matmul ? IN2 : 0);
}

static size_t cast_bytes(const octet_graph *graph, uint32_t tensor, enum octet_dtype dtype)
{
    struct octet_array array = shape_of(graph, tensor, dtype);

    return graph->tensors[tensor].dtype == dtype ? 0 : (size_t)octet_array_bytes(&array) + 64;
}

size_t oct_dense_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                               const struct octet_rule *rule, bool backward)
{
    struct dense d;
    size_t bytes = 0;

    if (describe(graph, node, rule, &d, NULL) != OCTET_OK)
        return 0;
    d.matmul.has_backward = true;
    d.matmul.step = INT64_MAX;
    struct octet_array lhs = shape_of(graph, node->inputs[d.lhs], d.dtype);
    struct octet_array rhs = shape_of(graph, node->inputs[d.rhs], d.dtype);
    int reads = backward ? oct_dense_reads(graph, node, rule) : 3;
    for (int i = 0; i < 2; i++)
        bytes += reads >> i & 1 ? cast_bytes(graph, node->inputs[i], d.dtype) : 0;
    return bytes + oct_matmul_scratch_bytes(&d.matmul, &lhs, &rhs, backward);
}

/* ---- execution ---- */

static struct octet_compute work_of(const struct oct_op_call *call)
{
    struct octet_compute work = *call->execution->compute;

    work.arena = call->scratch;
    return work;
}

static enum octet_status begin(const struct oct_op_call *call, struct dense *d,
                               struct octet_error *err)
{
    const struct oct_execution *x = call->execution;
    enum octet_status status = describe(x->graph, call->node, call->rule, d, err);

    d->dtype = call->out[0].dtype;
    d->matmul.numerics = x->numerics && call->figures;
    d->matmul.step = x->step;
    d->matmul.accumulation = x->accumulation;
    return status;
}

/* An operand in the product's dtype; its shape alone where it has no data. */
static enum octet_status operand_of(const struct oct_op_call *call, const struct dense *d, int i,
                                    struct octet_array *out, struct octet_error *err)
{
    struct octet_compute work = work_of(call);

    if (call->in[i].data)
        return oct_array_cast(&work, &call->in[i], d->dtype, out, err);
    *out = call->in[i];
    out->dtype = d->dtype;
    return OCTET_OK;
}

/* ---- on a backend ---- */

/* The copy of an operand that was cast is another array than the one that the key names. */
static uint64_t key_of(const struct oct_op_call *call, const struct dense *d, int i)
{
    bool is_prepared = call->prepared && i == 1;

    return is_prepared || call->in[i].dtype == d->dtype ? call->keys->in[i] : 0;
}

static struct oct_backend_product placed(const struct oct_op_call *call, const struct dense *d,
                                         const struct octet_compute *work)
{
    return (struct oct_backend_product){
        .compute = work,
        .matmul = &d->matmul,
        .accumulation = call->execution->accumulation,
        .residence = call->execution->residence,
        .lhs = key_of(call, d, d->lhs),
        .rhs = key_of(call, d, d->rhs),
        .saved = call->keys->saved,
    };
}

static enum octet_status placed_forward(const struct oct_op_call *call, const struct dense *d,
                                        const struct octet_compute *work,
                                        const struct octet_operand *lhs,
                                        const struct octet_operand *rhs,
                                        struct oct_pass_figures *figures, struct octet_error *err)
{
    const struct oct_backend_product product = placed(call, d, work);

    return oct_backend_forward(&product, lhs, rhs, &call->in[2], &call->out[0], figures, err);
}

/* What forward left on the device has served its purpose then. */
static enum octet_status placed_backward(const struct oct_op_call *call, const struct dense *d,
                                         const struct octet_compute *work,
                                         const struct octet_array *lhs,
                                         const struct octet_array *rhs,
                                         const struct octet_array *cotangent,
                                         const struct octet_array *gradient,
                                         struct oct_pass_figures *figures, struct octet_error *err)
{
    const struct oct_backend_product product = placed(call, d, work);
    enum octet_status status =
        oct_backend_backward(&product, lhs, rhs, &call->in[2], &cotangent[0], &gradient[d->lhs],
                             &gradient[d->rhs], figures, err);

    oct_residence_forget(product.residence, product.saved);
    return status;
}

/* ---- on the CPU, or there ---- */

enum octet_status oct_dense_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct octet_compute work = work_of(call);
    struct octet_operand lhs = {0}, rhs = {0};
    struct oct_pass_figures figures = {.is_fast = false};
    struct dense d;
    enum octet_status status = begin(call, &d, err);

    d.matmul.has_backward = call->saved != NULL || (call->keys && call->keys->saved);
    if (status == OCTET_OK)
        status = operand_of(call, &d, d.lhs, &lhs.array, err);
    if (status == OCTET_OK)
        status = operand_of(call, &d, d.rhs, &rhs.array, err);
    if (call->prepared) {
        struct octet_operand *second = d.rhs == 1 ? &rhs : &lhs;
        second->is_quantized = true;
        second->quantized = *call->prepared;
    }
    if (status == OCTET_OK && call->keys)
        status = placed_forward(call, &d, &work, &lhs, &rhs, &figures, err);
    else if (status == OCTET_OK)
        status = oct_matmul_forward(&work, &d.matmul, &lhs, &rhs, &call->in[2], &call->out[0],
                                    call->saved, call->saved_bytes, &figures, err);
    call->is_fast = figures.is_fast;
    if (status == OCTET_OK && d.matmul.numerics) {
        call->figures->lhs = d.lhs == 0 ? figures.lhs : figures.rhs;
        call->figures->rhs = d.lhs == 0 ? figures.rhs : figures.lhs;
        memcpy(call->figures->digest, figures.digest, sizeof figures.digest);
    }
    return status;
}

/* ---- a gradient through the cast of its operand ---- */

struct rounding {
    const struct oct_kernels *kernels;
    const struct octet_array *array; /* F32 */
    enum octet_dtype dtype;
};

static void round_range(void *user, int64_t first, int64_t end)
{
    const struct rounding *r = user;
    float *x = r->array->data;
    uint16_t codes[OCT_PIECE];

    for (int64_t at = first; at < end; at += OCT_PIECE) {
        size_t n = (size_t)(end - at < OCT_PIECE ? end - at : OCT_PIECE);
        r->kernels->cast(r->dtype, n, x + at, codes);
        r->kernels->decode(r->dtype, n, codes, x + at);
    }
}

/* JAX keeps the gradient of a bfloat16 parameter in bfloat16; the value is that, also in F32. */
static enum octet_status round_gradient(const struct oct_op_call *call, int input,
                                        const struct dense *d, const struct octet_array *gradient,
                                        struct octet_error *err)
{
    struct rounding r = {oct_call_kernels(call), gradient, call->in[input].dtype};
    int64_t count = octet_array_elements(gradient);

    if (!gradient->data || gradient->dtype != OCTET_DTYPE_F32 || d->dtype != OCTET_DTYPE_F32 ||
        r.dtype != OCTET_DTYPE_BF16)
        return OCTET_OK;
    return oct_ranges(call, count, 1 << 16, count, round_range, &r, err);
}

enum octet_status oct_dense_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                struct octet_array *gradient, struct octet_error *err)
{
    struct octet_compute work = work_of(call);
    struct octet_array lhs, rhs;
    struct oct_pass_figures figures = {.is_fast = false};
    struct dense d;
    enum octet_status status = begin(call, &d, err);

    d.matmul.has_backward = true;
    if (status == OCTET_OK)
        status = operand_of(call, &d, d.lhs, &lhs, err);
    if (status == OCTET_OK)
        status = operand_of(call, &d, d.rhs, &rhs, err);
    if (status == OCTET_OK && call->keys)
        status = placed_backward(call, &d, &work, &lhs, &rhs, cotangent, gradient, &figures, err);
    else if (status == OCTET_OK)
        status = oct_matmul_backward(&work, &d.matmul, &lhs, &rhs, &call->in[2],
                                     call->saved_bytes ? call->saved : NULL, &cotangent[0],
                                     &gradient[d.lhs], &gradient[d.rhs], &figures, err);
    for (int i = 0; i < 2 && status == OCTET_OK; i++)
        status = round_gradient(call, i, &d, &gradient[i], err);
    call->is_fast = figures.is_fast;
    if (status == OCTET_OK && d.matmul.numerics)
        call->figures->cotangent = figures.cotangent;
    return status;
}

/* ---- weights made once ---- */

/* The axes of the second operand that its product contracts, if its codes are to be packed for it:
 * where both operands are codes that are multiplied as they are. */
static bool find_packed_axes(const struct dense *d, int32_t *axis, int32_t *count)
{
    const struct octet_rule *rule = d->matmul.rule;
    const struct octet_dot_dims *dims = &d->matmul.dims;

    if (d->rhs != 1 || !rule->act_qtype[0] || rule->tile_size[0] ||
        !oct_method_is_symmetric(rule->weight_calibration_method) ||
        oct_qtype_block(rule->weight_qtype) || oct_qtype_block(rule->act_qtype))
        return false;
    if (d->matmul.kind != OCT_MATMUL_DOT) {
        *axis = d->matmul.transpose_rhs ? 2 : 1;
        *count = 1;
        return true;
    }
    *axis = dims->rhs_contracting[0];
    *count = dims->contracting_count;
    for (int32_t i = 0; i < *count; i++)
        if (dims->rhs_contracting[i] != *axis + i)
            return false;
    return dims->batch_count == 0 && *count > 0;
}

/* Of codes of that shape; 0: they stay as they are. */
static size_t packed_bytes(const struct dense *d, const struct octet_array *codes, int32_t *axis,
                           int32_t *count)
{
    bool is_dot = d->matmul.kind == OCT_MATMUL_DOT;

    if (!find_packed_axes(d, axis, count) || (is_dot && *axis > 0 && codes->rank != 2))
        return 0;
    return oct_packed_bytes(codes, *axis, *count);
}

size_t oct_dense_prepared_bytes(const octet_graph *graph, const struct oct_node *node,
                                const struct octet_rule *rule, bool packs)
{
    const struct oct_qtype *qtype = oct_qtype_find(rule->weight_qtype);
    int32_t axis, count;
    struct dense d;

    if (!qtype || describe(graph, node, rule, &d, NULL) != OCTET_OK)
        return 0;
    struct octet_array codes = shape_of(graph, node->inputs[1], qtype->dtype);
    size_t bytes = packs ? packed_bytes(&d, &codes, &axis, &count) : 0;
    return bytes ? bytes : (size_t)octet_array_bytes(&codes);
}

static enum octet_status keep_array(const struct octet_compute *compute, struct octet_array *array,
                                    struct octet_error *err)
{
    const void *from = array->data;

    if (!from)
        return OCTET_OK;
    enum octet_status status = oct_array_like(compute, array, array->dtype, array, err);
    if (status == OCTET_OK)
        memcpy(array->data, from, (size_t)octet_array_bytes(array));
    return status;
}

/* From working memory into the compute's arena, packed if that is to be. */
static enum octet_status keep(const struct octet_compute *compute, const struct dense *d,
                              bool packs, struct octet_quantized *q, struct octet_error *err)
{
    int32_t axis, count;
    enum octet_status status = keep_array(compute, &q->scale, err);

    if (status == OCTET_OK)
        status = keep_array(compute, &q->zero_point, err);
    if (status != OCTET_OK || !q->qvalue.data)
        return status;
    if (!packs || !packed_bytes(d, &q->qvalue, &axis, &count))
        return keep_array(compute, &q->qvalue, err);
    status = oct_pack(compute, q, axis, count, err);
    q->qvalue.data = NULL;
    q->packed.codes = NULL;
    return status;
}

enum octet_status oct_dense_prepare(const struct octet_compute *compute, const octet_graph *graph,
                                    const struct oct_node *node, const struct octet_rule *rule,
                                    const struct octet_array *weight, bool packs,
                                    struct octet_quantized *out, struct octet_error *err)
{
    struct octet_compute work = *compute;
    struct octet_array other, cast;
    struct dense d;
    enum octet_status status = describe(graph, node, rule, &d, err);

    if (status != OCTET_OK)
        return status;
    d.matmul.step = INT64_MAX;
    work.arena = octet_arena_create_within(compute->arena);
    if (!work.arena)
        return octet_arena_exhausted(compute->arena, err);
    other = shape_of(graph, node->inputs[0], d.dtype);
    status = oct_array_cast(&work, weight, d.dtype, &cast, err);
    if (status == OCTET_OK)
        status = oct_matmul_prepare(&work, &d.matmul, d.rhs == 1 ? &other : &cast,
                                    d.rhs == 1 ? &cast : &other, d.rhs != 1, work.arena, out, err);
    if (status == OCTET_OK)
        status = keep(compute, &d, packs, out, err);
    octet_arena_destroy(work.arena);
    return status;
}
