/* The methods DotGeneral and RaggedDot: one product under a rule, and its trace.
 *
 * Decision: the two differ in what they ask of the library; operands, rules, options, errors and
 * trace are one code. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/convert.h"
#include "wire/ref.h"
#include "wire/tensor.h"

/* What the two requests have in common, under one name. */
struct request {
    const Octet__V1__Operand *lhs, *rhs;
    const char *module_path;
    const char *op;    /* as rules name it: "dot_general", "gmm", "ragged_dot" */
    const char *op_id; /* as the trace names the first of its kind in a module */
    size_t rule_count;
    Octet__V1__QuantizationRule *const *rule_list;
    enum octet_weight_operand weight_operand;
    Octet__V1__DataType out_dtype;
    const Octet__V1__Tensor *cotangent;
    Octet__V1__Accumulation accumulation;
    bool qwix_compatible;
    Octet__V1__TraceLevel trace_level;
    struct oct_wire_buffers buffers;
};

/* The same on its way through the library. */
struct work {
    const struct octet_call *call;
    const struct request *in;
    struct octet_compute compute;
    octet_rules *rules; /* NULL: none */
    int rule;           /* -1: none takes the op */
    struct octet_operand lhs, rhs;
    struct octet_array cotangent;
    struct octet_product_options options;
    struct octet_product product;
};

struct answer {
    Octet__V1__Tensor *out, *lhs_grad, *rhs_grad;
    Octet__V1__Trace *trace;
    struct oct_wire_reply reply;
};

static enum octet_weight_operand weight_operand(Octet__V1__WeightOperand from)
{
    switch (from) {
    case OCTET__V1__WEIGHT_OPERAND__WEIGHT_OPERAND_LHS:
        return OCTET_WEIGHT_LHS;
    case OCTET__V1__WEIGHT_OPERAND__WEIGHT_OPERAND_NONE:
        return OCTET_WEIGHT_NONE;
    default:
        return OCTET_WEIGHT_RHS;
    }
}

static enum octet_status find_rule(struct work *w, struct octet_error *err)
{
    const struct request *in = w->in;
    enum octet_status status =
        oct_wire_rules(w->call, in->rule_count, in->rule_list, &w->rules, err);

    if (status == OCTET_OK && w->rules)
        status = octet_rules_match(w->rules, in->module_path, in->op, &w->rule, err);
    return status;
}

static enum octet_status read_operand(const struct work *w, const Octet__V1__Operand *operand,
                                      const char *field, struct octet_operand *out,
                                      struct octet_error *err)
{
    if (operand && operand->kind_case == OCTET__V1__OPERAND__KIND_REF)
        return oct_wire_to_ref(w->call, operand->ref, field, out, err);
    return oct_wire_to_operand(w->call->arena, operand, &w->in->buffers, field, out, err);
}

static enum octet_status read_operands(struct work *w, struct octet_error *err)
{
    const struct request *in = w->in;
    enum octet_status status = oct_wire_check_refs(in->lhs, in->rhs, err);

    if (status == OCTET_OK)
        status = read_operand(w, in->lhs, "lhs", &w->lhs, err);
    if (status == OCTET_OK)
        status = read_operand(w, in->rhs, "rhs", &w->rhs, err);
    if (status == OCTET_OK && in->cotangent)
        status = oct_wire_to_array(w->call->arena, in->cotangent, &in->buffers, "cotangent",
                                   &w->cotangent, err);
    return status;
}

/* w->rules is the caller's to drop, whatever is returned. */
static enum octet_status prepare(struct work *w, struct octet_error *err)
{
    const struct request *in = w->in;
    enum octet_status status = oct_wire_compute(w->call, &w->compute, err);

    w->rule = -1;
    if (status == OCTET_OK)
        status = find_rule(w, err);
    if (status == OCTET_OK)
        status = read_operands(w, err);
    if (status != OCTET_OK)
        return status;
    w->options = (struct octet_product_options){
        .rule = w->rule < 0 ? NULL : octet_rules_get(w->rules, (size_t)w->rule),
        .weight_operand = in->weight_operand,
        .out_dtype = (enum octet_dtype)in->out_dtype,
        .cotangent = in->cotangent ? &w->cotangent : NULL,
        .accumulation = in->accumulation == OCTET__V1__ACCUMULATION__ACCUMULATION_FAST
                            ? OCTET_FAST
                            : OCTET_EXACT_ORDER,
        .qwix_compatible = in->qwix_compatible,
        .numerics = in->trace_level == OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS,
    };
    return OCTET_OK;
}

/* The library knows one rule, the client sent a list: "rule.tile_size" -> "rules[2].tile_size". */
static void name_rule(const struct work *w, struct octet_error *err)
{
    char field[sizeof((struct octet_error *)0)->field];

    if (!err || w->rule < 0 || strncmp(err->field, "rule", 4) != 0 ||
        (err->field[4] != '.' && err->field[4] != '\0'))
        return;
    snprintf(field, sizeof field, "rules[%d]%.200s", w->rule, err->field + 4);
    memcpy(err->field, field, sizeof field);
}

/* ---- The trace ---- */

static const struct octet_array *array_of(const struct octet_operand *operand)
{
    return operand->is_quantized ? &operand->quantized.qvalue : &operand->array;
}

static bool put_sizes(octet_arena *arena, const struct octet_array *array, size_t *rank,
                      int64_t **sizes)
{
    size_t n = (size_t)array->rank;

    *sizes = OCTET_NEW_ARRAY(arena, n, int64_t);
    if (!*sizes)
        return false;
    if (n)
        memcpy(*sizes, array->dim, n * sizeof **sizes);
    *rank = n;
    return true;
}

static bool put_numerics(const struct work *w, Octet__V1__Interception *to)
{
    octet_arena *arena = w->call->arena;

    to->digest = oct_wire_text(arena, w->product.digest);
    return to->digest && oct_wire_put_stats(arena, &w->product.lhs, &to->lhs) &&
           oct_wire_put_stats(arena, &w->product.rhs, &to->rhs) &&
           (!w->options.cotangent ||
            oct_wire_put_stats(arena, &w->product.cotangent, &to->cotangent));
}

/* Of the forward product, as in the trace of a model. */
static int64_t flops(const struct work *w, int64_t depth)
{
    int64_t n = octet_array_elements(&w->product.out);

    if (__builtin_mul_overflow(n, depth, &n) || __builtin_mul_overflow(n, 2, &n))
        return INT64_MAX;
    return n;
}

static int64_t weight_bytes(const struct work *w)
{
    switch (w->options.weight_operand) {
    case OCTET_WEIGHT_RHS:
        return octet_array_bytes(array_of(&w->rhs));
    case OCTET_WEIGHT_LHS:
        return octet_array_bytes(array_of(&w->lhs));
    case OCTET_WEIGHT_NONE:
        break;
    }
    return 0;
}

static bool put_line(const struct work *w, int64_t depth, Octet__V1__Interception *to)
{
    octet_arena *arena = w->call->arena;

    to->module = oct_wire_text(arena, w->in->module_path);
    to->note = oct_wire_text(arena, w->product.note);
    if (!to->module || !to->note)
        return false;
    to->op = (char *)w->in->op_id;
    to->kind = (char *)w->in->op;
    to->rule = w->rule;
    to->flops = flops(w, depth);
    to->weight_bytes = weight_bytes(w);
    to->backend = (char *)"cpu";
    to->accumulation = (char *)octet_accumulation_name(w->product.accumulation);
    to->count = 1;
    /* Without rules nobody intercepts; MaxText asks for gmm's rule itself, and Qwix prints nothing.
     */
    to->looked_up = w->rules != NULL;
    to->logged = to->looked_up && strcmp(w->in->op, "gmm") != 0;
    return put_sizes(arena, array_of(&w->lhs), &to->n_lhs_shape, &to->lhs_shape) &&
           put_sizes(arena, array_of(&w->rhs), &to->n_rhs_shape, &to->rhs_shape) &&
           put_sizes(arena, &w->product.out, &to->n_out_shape, &to->out_shape) &&
           (!w->options.numerics || put_numerics(w, to));
}

static bool put_coverage(const struct work *w, const Octet__V1__Interception *line,
                         Octet__V1__Trace *trace)
{
    octet_arena *arena = w->call->arena;
    Octet__V1__Coverage *c = oct_wire_new(arena, &octet__v1__coverage__descriptor);
    ProtobufCMessage **list;

    if (!c || !oct_wire_new_list(arena, &octet__v1__coverage_block__descriptor, 1, &list))
        return false;
    bool quantized = w->product.is_quantized;
    c->flops_total = line->flops;
    c->flops_quantized = quantized ? line->flops : 0;
    c->weight_bytes_total = line->weight_bytes;
    c->weight_bytes_quantized = quantized ? line->weight_bytes : 0;
    c->by_block = (Octet__V1__CoverageBlock **)list;
    c->n_by_block = 1;
    *c->by_block[0] = (Octet__V1__CoverageBlock){
        .base = c->by_block[0]->base,
        .block = line->module,
        .flops_quantized = c->flops_quantized,
        .flops_total = c->flops_total,
        .weight_bytes_quantized = c->weight_bytes_quantized,
        .weight_bytes_total = c->weight_bytes_total,
    };
    trace->coverage = c;
    return true;
}

static bool put_unused(const struct work *w, Octet__V1__Trace *trace)
{
    size_t count = w->rules ? octet_rules_count(w->rules) : 0;

    trace->unused_rules = OCTET_NEW_ARRAY(w->call->arena, count, int32_t);
    if (!trace->unused_rules)
        return false;
    for (size_t i = 0; i < count; i++)
        if ((int)i != w->rule)
            trace->unused_rules[trace->n_unused_rules++] = (int32_t)i;
    return true;
}

static enum octet_status put_trace(const struct work *w, int64_t depth, Octet__V1__Trace **out,
                                   struct octet_error *err)
{
    octet_arena *arena = w->call->arena;
    Octet__V1__Trace *trace;
    ProtobufCMessage **list;

    if (w->in->trace_level == OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NONE)
        return OCTET_OK;
    trace = oct_wire_new(arena, &octet__v1__trace__descriptor);
    if (!trace || !oct_wire_new_list(arena, &octet__v1__interception__descriptor, 1, &list))
        return octet_arena_exhausted(arena, err);
    trace->interceptions = (Octet__V1__Interception **)list;
    trace->n_interceptions = 1;
    if (!put_line(w, depth, trace->interceptions[0]) ||
        !put_coverage(w, trace->interceptions[0], trace) || !put_unused(w, trace))
        return octet_arena_exhausted(arena, err);
    *out = trace;
    return w->rules ? oct_wire_put_rules(arena, w->rules, &trace->n_rules, &trace->rules, err)
                    : OCTET_OK;
}

static enum octet_status put_answer(const struct work *w, int64_t depth, struct answer *out,
                                    struct octet_error *err)
{
    octet_arena *arena = w->call->arena;

    *out = (struct answer){.trace = NULL};
    if (!oct_wire_reply_init(&out->reply, arena, &w->in->buffers, OCT_WIRE_REPLY_TENSORS) ||
        !oct_wire_put_array(&out->reply, &w->product.out, &out->out) ||
        !oct_wire_put_array(&out->reply, &w->product.lhs_grad, &out->lhs_grad) ||
        !oct_wire_put_array(&out->reply, &w->product.rhs_grad, &out->rhs_grad))
        return octet_arena_exhausted(arena, err);
    return put_trace(w, depth, &out->trace, err);
}

/* ---- DotGeneral ---- */

static enum octet_status read_axes(size_t count, const int32_t *axes, const char *name,
                                   int32_t out[OCTET_AXES_MAX], struct octet_error *err)
{
    if (count > OCTET_AXES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, name, "has %zu axes, at most %d can be",
                          count, OCTET_AXES_MAX);
    if (count)
        memcpy(out, axes, count * sizeof *axes);
    return OCTET_OK;
}

static enum octet_status check_pair(size_t lhs, size_t rhs, const char *name, const char *peer,
                                    struct octet_error *err)
{
    if (lhs == rhs)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, name, "has %zu axes, %s has %zu", rhs, peer,
                      lhs);
}

static enum octet_status read_dims(const Octet__V1__DotDimensionNumbers *from,
                                   struct octet_dot_dims *out, struct octet_error *err)
{
    enum octet_status status;

    *out = (struct octet_dot_dims){.contracting_count = 0};
    if (!from)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "is missing; an outer product takes an empty one");
    status = read_axes(from->n_lhs_contracting, from->lhs_contracting, "lhs_contracting",
                       out->lhs_contracting, err);
    if (status == OCTET_OK)
        status = read_axes(from->n_rhs_contracting, from->rhs_contracting, "rhs_contracting",
                           out->rhs_contracting, err);
    if (status == OCTET_OK)
        status = read_axes(from->n_lhs_batch, from->lhs_batch, "lhs_batch", out->lhs_batch, err);
    if (status == OCTET_OK)
        status = read_axes(from->n_rhs_batch, from->rhs_batch, "rhs_batch", out->rhs_batch, err);
    if (status == OCTET_OK)
        status = check_pair(from->n_lhs_contracting, from->n_rhs_contracting, "rhs_contracting",
                            "lhs_contracting", err);
    if (status == OCTET_OK)
        status = check_pair(from->n_lhs_batch, from->n_rhs_batch, "rhs_batch", "lhs_batch", err);
    out->contracting_count = (int32_t)from->n_lhs_contracting;
    out->batch_count = (int32_t)from->n_lhs_batch;
    return status;
}

/* Additions an element of the result takes; the axes were checked by the library. */
static int64_t contracted(const struct octet_array *lhs, const struct octet_dot_dims *dims)
{
    int64_t n = 1;

    for (int32_t i = 0; i < dims->contracting_count; i++)
        if (__builtin_mul_overflow(n, lhs->dim[dims->lhs_contracting[i]], &n))
            return INT64_MAX;
    return n;
}

enum octet_status oct_wire_dot_general(const struct octet_call *call,
                                       const ProtobufCMessage *request, ProtobufCMessage **response,
                                       struct octet_error *err)
{
    const Octet__V1__DotGeneralRequest *from = (const Octet__V1__DotGeneralRequest *)request;
    const struct request in = {
        .lhs = from->lhs,
        .rhs = from->rhs,
        .module_path = from->module_path,
        .op = "dot_general",
        .op_id = "dot_general0",
        .rule_count = from->n_rules,
        .rule_list = from->rules,
        .weight_operand = weight_operand(from->weight_operand),
        .out_dtype = from->out_dtype,
        .cotangent = from->cotangent,
        .accumulation = from->accumulation,
        .qwix_compatible = from->qwix_compatible,
        .trace_level = from->trace_level,
        .buffers = {from->buffers, from->n_buffers},
    };
    struct work w = {.call = call, .in = &in};
    struct octet_dot_dims dims;
    struct answer answer;
    Octet__V1__DotGeneralResponse *out =
        oct_wire_new(call->arena, &octet__v1__dot_general_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = read_dims(from->dimension_numbers, &dims, err);
    if (status != OCTET_OK)
        return octet_error_within(err, "dimension_numbers");
    status = prepare(&w, err);
    if (status == OCTET_OK) {
        status = octet_dot_general(&w.compute, &w.lhs, &w.rhs, &dims, &w.options, &w.product, err);
        if (status != OCTET_OK)
            name_rule(&w, err);
    }
    if (status == OCTET_OK)
        status = put_answer(&w, contracted(array_of(&w.lhs), &dims), &answer, err);
    octet_rules_unref(w.rules);
    if (status != OCTET_OK)
        return status;
    out->out = answer.out;
    out->lhs_grad = answer.lhs_grad;
    out->rhs_grad = answer.rhs_grad;
    out->trace = answer.trace;
    out->buffers = answer.reply.list;
    out->n_buffers = answer.reply.count;
    *response = &out->base;
    return OCTET_OK;
}

/* ---- RaggedDot ---- */

static enum octet_status read_op(const char *name, enum octet_grouped_op *op, struct request *in,
                                 struct octet_error *err)
{
    static const struct {
        const char *name, *op, *op_id;
        enum octet_grouped_op grouped;
    } ops[] = {{"", "gmm", "gmm", OCTET_GMM},
               {"gmm", "gmm", "gmm", OCTET_GMM},
               {"ragged_dot", "ragged_dot", "ragged_dot0", OCTET_RAGGED_DOT}};

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(name, ops[i].name) == 0) {
            in->op = ops[i].op;
            in->op_id = ops[i].op_id;
            *op = ops[i].grouped;
            return OCTET_OK;
        }
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "op_name",
                      "'%.100s' is neither gmm nor ragged_dot", name);
}

enum octet_status oct_wire_ragged_dot(const struct octet_call *call,
                                      const ProtobufCMessage *request, ProtobufCMessage **response,
                                      struct octet_error *err)
{
    const Octet__V1__RaggedDotRequest *from = (const Octet__V1__RaggedDotRequest *)request;
    struct request in = {
        .lhs = from->lhs,
        .rhs = from->rhs,
        .module_path = from->module_path,
        .rule_count = from->n_rules,
        .rule_list = from->rules,
        .weight_operand = OCTET_WEIGHT_RHS,
        .out_dtype = from->out_dtype,
        .cotangent = from->cotangent,
        .accumulation = from->accumulation,
        .qwix_compatible = from->qwix_compatible,
        .trace_level = from->trace_level,
        .buffers = {from->buffers, from->n_buffers},
    };
    struct work w = {.call = call, .in = &in};
    enum octet_grouped_op op = OCTET_GMM;
    struct octet_array sizes;
    struct answer answer;
    Octet__V1__RaggedDotResponse *out =
        oct_wire_new(call->arena, &octet__v1__ragged_dot_response__descriptor);

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = read_op(from->op_name, &op, &in, err);
    if (status == OCTET_OK)
        status = prepare(&w, err);
    if (status == OCTET_OK)
        status = oct_wire_to_array(call->arena, from->group_sizes, &in.buffers, "group_sizes",
                                   &sizes, err);
    if (status == OCTET_OK) {
        status = octet_ragged_dot(&w.compute, &w.lhs, &w.rhs, &sizes, from->transpose_rhs, op,
                                  &w.options, &w.product, err);
        if (status != OCTET_OK)
            name_rule(&w, err);
    }
    if (status == OCTET_OK) /* the library has checked that lhs is [m, k] */
        status = put_answer(&w, array_of(&w.lhs)->dim[1], &answer, err);
    octet_rules_unref(w.rules);
    if (status != OCTET_OK)
        return status;
    out->out = answer.out;
    out->lhs_grad = answer.lhs_grad;
    out->rhs_grad = answer.rhs_grad;
    out->trace = answer.trace;
    out->buffers = answer.reply.list;
    out->n_buffers = answer.reply.count;
    *response = &out->base;
    return OCTET_OK;
}
