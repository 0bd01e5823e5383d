/* The Check method: findings, and the trace where there is one. */
#include "wire/convert.h"

static Octet__V1__Severity severity(enum octet_severity from)
{
    switch (from) {
    case OCTET_NOTE:
        return OCTET__V1__SEVERITY__SEVERITY_NOTE;
    case OCTET_WARNING:
        return OCTET__V1__SEVERITY__SEVERITY_WARNING;
    case OCTET_ERROR:
        return OCTET__V1__SEVERITY__SEVERITY_ERROR;
    }
    return OCTET__V1__SEVERITY__SEVERITY_UNSPECIFIED;
}

static enum octet_status put_findings(octet_arena *arena, const struct octet_finding *rows,
                                      size_t count, Octet__V1__CheckResponse *out,
                                      struct octet_error *err)
{
    ProtobufCMessage **list;

    if (!oct_wire_new_list(arena, &octet__v1__finding__descriptor, count, &list))
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < count; i++) {
        Octet__V1__Finding *to = (Octet__V1__Finding *)list[i];
        to->severity = severity(rows[i].severity);
        to->id = oct_wire_text(arena, rows[i].id);
        to->subject = oct_wire_text(arena, rows[i].subject);
        to->message = oct_wire_text(arena, rows[i].message);
        to->remedy = oct_wire_text(arena, rows[i].remedy);
        if (!to->id || !to->subject || !to->message || !to->remedy)
            return octet_arena_exhausted(arena, err);
    }
    out->findings = (Octet__V1__Finding **)list;
    out->n_findings = count;
    return OCTET_OK;
}

/* A config that makes no plan is what `check` is for; running out of time or memory is not. */
static bool is_finding(enum octet_status status)
{
    return status == OCTET_INVALID_ARGUMENT || status == OCTET_UNIMPLEMENTED ||
           status == OCTET_FAILED_PRECONDITION || status == OCTET_NOT_FOUND;
}

static enum octet_status answer(const struct octet_call *call, const Octet__V1__CheckRequest *in,
                                const octet_config *config, const octet_plan *plan,
                                const struct octet_error *plan_error, Octet__V1__CheckResponse *out,
                                struct octet_error *err)
{
    const struct octet_check_options options = {
        .require = (const char *const *)in->require,
        .require_count = in->n_require,
        .forbid = (const char *const *)in->forbid,
        .forbid_count = in->n_forbid,
    };
    const struct octet_finding *rows;
    size_t count;
    enum octet_status status = octet_check(call->context, call->arena, config, plan, plan_error,
                                           &options, &rows, &count, err);

    if (status == OCTET_OK)
        status = put_findings(call->arena, rows, count, out, err);
    if (status == OCTET_OK && plan)
        status = oct_wire_put_trace(call->arena, plan, &out->trace, err);
    return status;
}

enum octet_status oct_wire_check(const struct octet_call *call, const ProtobufCMessage *request,
                                 ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__CheckRequest *in = (const Octet__V1__CheckRequest *)request;
    Octet__V1__CheckResponse *out =
        oct_wire_new(call->arena, &octet__v1__check_response__descriptor);
    struct octet_graph_options sizes;
    struct octet_error plan_error = {0};
    const octet_config *config;
    octet_rules *rules = NULL;
    octet_plan *plan = NULL;
    enum octet_status status;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    status = oct_wire_sizes(in->batch_size, in->sequence_length, &sizes, err);
    if (status == OCTET_OK)
        status = oct_wire_rules(call, in->n_rules, in->rules, &rules, err);
    if (status == OCTET_OK)
        status = oct_wire_config(call, in->model, "model", &config, err);
    if (status != OCTET_OK)
        goto done;
    status =
        octet_plan_create(call->context, config, rules, &sizes, call->cancel, &plan, &plan_error);
    if (status != OCTET_OK && !is_finding(status)) {
        if (err)
            *err = plan_error;
        goto done;
    }
    status = answer(call, in, config, plan, plan ? NULL : &plan_error, out, err);
    if (status == OCTET_OK)
        *response = &out->base;
done:
    octet_plan_unref(plan);
    octet_rules_unref(rules);
    return status;
}
