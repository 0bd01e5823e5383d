/* The Trace method: config -> plan -> the list of interceptions, coverage, and what differs. */
#include <stdio.h>
#include <string.h>

#include "wire/convert.h"

bool oct_wire_put_shape(octet_arena *arena, const struct octet_shape *shape, size_t *rank,
                        int64_t **sizes, size_t *axis_count, char ***axes)
{
    size_t n = (size_t)shape->rank;
    int64_t *dims = OCTET_NEW_ARRAY(arena, n, int64_t);
    char **names = OCTET_NEW_ARRAY(arena, n, char *);

    if (!dims || !names)
        return false;
    for (size_t i = 0; i < n; i++) {
        dims[i] = shape->dim[i];
        names[i] = (char *)octet_axis_name(shape->axis[i]); /* the library's own, never freed */
    }
    *rank = *axis_count = n;
    *sizes = dims;
    *axes = names;
    return true;
}

static bool put_interception(octet_arena *arena, const struct octet_interception *from,
                             Octet__V1__Interception *to)
{
    to->module = oct_wire_text(arena, from->module);
    to->op = oct_wire_text(arena, from->op);
    to->equation = oct_wire_text(arena, from->equation);
    if (!to->module || !to->op || !to->equation)
        return false;
    to->rule = from->rule;
    to->kind = (char *)octet_lookup_name(from->kind);
    to->flops = from->flops;
    to->weight_bytes = from->weight_bytes;
    to->count = from->count;
    to->logged = from->logged;
    to->looked_up = from->looked_up;
    to->backend = (char *)from->backend; /* the library's own, never freed */
    to->accumulation = (char *)"EXACT_ORDER";
    return oct_wire_put_shape(arena, &from->lhs, &to->n_lhs_shape, &to->lhs_shape, &to->n_lhs_axes,
                              &to->lhs_axes) &&
           oct_wire_put_shape(arena, &from->rhs, &to->n_rhs_shape, &to->rhs_shape, &to->n_rhs_axes,
                              &to->rhs_axes) &&
           oct_wire_put_shape(arena, &from->out, &to->n_out_shape, &to->out_shape, &to->n_out_axes,
                              &to->out_axes);
}

static bool put_interceptions(octet_arena *arena, const octet_plan *plan, Octet__V1__Trace *trace)
{
    size_t count = octet_plan_interception_count(plan);
    ProtobufCMessage **list;

    if (!oct_wire_new_list(arena, &octet__v1__interception__descriptor, count, &list))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!put_interception(arena, octet_plan_interception(plan, i),
                              (Octet__V1__Interception *)list[i]))
            return false;
    trace->n_interceptions = count;
    trace->interceptions = (Octet__V1__Interception **)list;
    return true;
}

static bool put_block(octet_arena *arena, const struct octet_coverage *from,
                      Octet__V1__CoverageBlock *to)
{
    to->block = oct_wire_text(arena, from->block);
    to->flops_quantized = from->flops_quantized;
    to->flops_total = from->flops_total;
    to->weight_bytes_quantized = from->weight_bytes_quantized;
    to->weight_bytes_total = from->weight_bytes_total;
    return to->block != NULL;
}

static bool put_coverage(octet_arena *arena, const octet_plan *plan, Octet__V1__Trace *trace)
{
    const struct octet_coverage *rows;
    size_t count = octet_plan_coverage(plan, &rows), blocks = count ? count - 1 : 0;
    Octet__V1__Coverage *coverage = oct_wire_new(arena, &octet__v1__coverage__descriptor);
    ProtobufCMessage **list;

    if (!coverage ||
        !oct_wire_new_list(arena, &octet__v1__coverage_block__descriptor, blocks, &list))
        return false;
    if (count) { /* row 0 is the total */
        coverage->flops_quantized = rows[0].flops_quantized;
        coverage->flops_total = rows[0].flops_total;
        coverage->weight_bytes_quantized = rows[0].weight_bytes_quantized;
        coverage->weight_bytes_total = rows[0].weight_bytes_total;
    }
    for (size_t i = 0; i < blocks; i++)
        if (!put_block(arena, &rows[i + 1], (Octet__V1__CoverageBlock *)list[i]))
            return false;
    coverage->n_by_block = blocks;
    coverage->by_block = (Octet__V1__CoverageBlock **)list;
    trace->coverage = coverage;
    return true;
}

static bool put_unused(octet_arena *arena, const octet_plan *plan, Octet__V1__Trace *trace)
{
    const int32_t *unused;
    size_t count = octet_plan_unused_rules(plan, &unused);

    trace->unused_rules = OCTET_NEW_ARRAY(arena, count, int32_t);
    if (!trace->unused_rules)
        return false;
    if (count)
        memcpy(trace->unused_rules, unused, count * sizeof *unused);
    trace->n_unused_rules = count;
    return true;
}

enum octet_status oct_wire_put_trace(octet_arena *arena, const octet_plan *plan,
                                     Octet__V1__Trace **out, struct octet_error *err)
{
    Octet__V1__Trace *trace = oct_wire_new(arena, &octet__v1__trace__descriptor);

    if (!trace || !put_interceptions(arena, plan, trace) || !put_coverage(arena, plan, trace) ||
        !put_unused(arena, plan, trace))
        return octet_arena_exhausted(arena, err);
    *out = trace;
    return oct_wire_put_rules(arena, octet_plan_rules(plan), &trace->n_rules, &trace->rules, err);
}

/* FAILED_PRECONDITION that lists the rules which took no op. field: "model" or "against". */
static enum octet_status refuse_unused(const octet_plan *plan, const char *field,
                                       struct octet_error *err)
{
    const int32_t *unused;
    size_t count = octet_plan_unused_rules(plan, &unused);
    const octet_rules *rules = octet_plan_rules(plan);
    char list[768];
    size_t used = 0;

    if (count == 0)
        return OCTET_OK;
    list[0] = '\0';
    for (size_t i = 0; i < count && used < sizeof list; i++) {
        const struct octet_rule *rule = octet_rules_get(rules, (size_t)unused[i]);
        int n = snprintf(list + used, sizeof list - used, "%srules[%d] (module_path '%.100s')",
                         i ? ", " : "", unused[i], rule->module_path[0] ? rule->module_path : ".*");
        used += n > 0 ? (size_t)n : 0;
    }
    return octet_fail(err, OCTET_FAILED_PRECONDITION, "strict",
                      "%zu of %zu rules of '%s' match no op: %s", count, octet_rules_count(rules),
                      field, list);
}

static enum octet_status make_plan(const struct octet_call *call, const Octet__V1__TraceRequest *in,
                                   const Octet__V1__ModelConfig *model, const char *field,
                                   octet_rules *rules, octet_plan **plan, struct octet_error *err)
{
    struct octet_graph_options options;
    const octet_config *config;
    enum octet_status status = oct_wire_sizes(in->batch_size, in->sequence_length, &options, err);

    if (status == OCTET_OK)
        status = oct_wire_config(call, model, field, &config, err);
    if (status != OCTET_OK)
        return status;
    status = octet_plan_create(call->context, config, rules, &options, call->cancel, plan, err);
    if (status != OCTET_OK)
        return oct_wire_name_key(call, config, field, err);
    return in->strict ? refuse_unused(*plan, field, err) : OCTET_OK;
}

static Octet__V1__DifferenceKind difference_kind(enum octet_difference_kind kind)
{
    switch (kind) {
    case OCTET_CHANGED:
        return OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_CHANGED;
    case OCTET_ONLY_HERE:
        return OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_ONLY_HERE;
    case OCTET_ONLY_AGAINST:
        return OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_ONLY_AGAINST;
    }
    return OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_UNSPECIFIED;
}

static enum octet_status put_differences(octet_arena *arena, const octet_plan *here,
                                         const octet_plan *against, Octet__V1__TraceResponse *out,
                                         struct octet_error *err)
{
    const struct octet_difference *rows;
    size_t count;
    ProtobufCMessage **list;
    enum octet_status status = octet_plan_compare(here, against, arena, &rows, &count, err);

    if (status != OCTET_OK)
        return status;
    if (!oct_wire_new_list(arena, &octet__v1__difference__descriptor, count, &list))
        return octet_arena_exhausted(arena, err);
    out->differences = (Octet__V1__Difference **)list;
    out->n_differences = count;
    for (size_t i = 0; i < count; i++) {
        Octet__V1__Difference *to = out->differences[i];
        to->module = oct_wire_text(arena, rows[i].module);
        to->op = oct_wire_text(arena, rows[i].op);
        if (!to->module || !to->op)
            return octet_arena_exhausted(arena, err);
        to->kind = difference_kind(rows[i].kind);
        to->rule = rows[i].rule;
        to->against_rule = rows[i].against_rule;
    }
    return OCTET_OK;
}

enum octet_status oct_wire_trace(const struct octet_call *call, const ProtobufCMessage *request,
                                 ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__TraceRequest *in = (const Octet__V1__TraceRequest *)request;
    Octet__V1__TraceResponse *out =
        oct_wire_new(call->arena, &octet__v1__trace_response__descriptor);
    octet_rules *rules = NULL;
    octet_plan *plan = NULL, *against = NULL;
    enum octet_status status;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    status = oct_wire_rules(call, in->n_rules, in->rules, &rules, err);
    if (status == OCTET_OK)
        status = make_plan(call, in, in->model, "model", rules, &plan, err);
    if (status == OCTET_OK)
        status = oct_wire_put_trace(call->arena, plan, &out->trace, err);
    if (status == OCTET_OK && in->against) {
        status = make_plan(call, in, in->against, "against", rules, &against, err);
        if (status == OCTET_OK)
            status = oct_wire_put_trace(call->arena, against, &out->against, err);
        if (status == OCTET_OK)
            status = put_differences(call->arena, plan, against, out, err);
    }
    if (status == OCTET_OK) {
        out->parameters = octet_plan_totals(plan)->parameters;
        out->activation_bytes = octet_plan_totals(plan)->activation_bytes;
        *response = &out->base;
    }
    octet_plan_unref(against);
    octet_plan_unref(plan);
    octet_rules_unref(rules);
    return status;
}
