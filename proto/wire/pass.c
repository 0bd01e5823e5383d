/* See pass.h. */
#include "wire/pass.h"

#include <stdio.h>
#include <string.h>

static enum octet_status read_one(octet_arena *arena, const Octet__V1__Tensor *tensor,
                                  const struct oct_wire_buffers *buffers, const char *field,
                                  enum octet_dtype dtype, struct octet_array *out,
                                  struct octet_error *err)
{
    *out = (struct octet_array){.data = NULL};
    if (!tensor)
        return OCTET_OK;
    enum octet_status status = oct_wire_to_array(arena, tensor, buffers, field, out, err);
    if (status != OCTET_OK || out->dtype == dtype)
        return status;
    octet_fail(err, OCTET_INVALID_ARGUMENT, "dtype", "is %s, must be %s",
               octet_dtype_name(out->dtype), octet_dtype_name(dtype));
    return octet_error_within(err, field);
}

enum octet_status oct_wire_to_batch(octet_arena *arena, const Octet__V1__Batch *batch,
                                    const struct oct_wire_buffers *buffers, struct octet_batch *out,
                                    struct octet_error *err)
{
    const enum octet_dtype ids = OCTET_DTYPE_S32;
    enum octet_status status = OCTET_OK;

    *out = (struct octet_batch){.tokens = {.data = NULL}};
    if (!batch)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "batch", "is missing");
    const struct {
        const char *name;
        const Octet__V1__Tensor *from;
        struct octet_array *to;
        enum octet_dtype dtype;
    } all[] = {
        {"tokens", batch->tokens, &out->tokens, ids},
        {"targets", batch->targets, &out->targets, ids},
        {"positions", batch->positions, &out->positions, ids},
        {"segment_ids", batch->segment_ids, &out->segment_ids, ids},
        {"target_mask", batch->target_mask, &out->target_mask, ids},
        {"weights", batch->weights, &out->weights, OCTET_DTYPE_F32},
    };
    if (!batch->tokens)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "batch.tokens", "is missing");
    for (size_t i = 0; status == OCTET_OK && i < sizeof all / sizeof *all; i++)
        status = read_one(arena, all[i].from, buffers, all[i].name, all[i].dtype, all[i].to, err);
    if (status == OCTET_INVALID_ARGUMENT)
        octet_error_within(err, "batch");
    return status;
}

enum octet_status oct_wire_name_batch(struct octet_error *err)
{
    static const char *const names[] = {"tokens",      "targets",     "positions",
                                        "segment_ids", "target_mask", "weights"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(err->field, names[i], length) == 0 &&
            (err->field[length] == '\0' || err->field[length] == '.' || err->field[length] == '['))
            return octet_error_within(err, "batch");
    }
    return err->status;
}

enum octet_status oct_wire_to_reduction(Octet__V1__Reduction reduction, double denominator,
                                        struct octet_pass_options *out, struct octet_error *err)
{
    bool is_sum = reduction == OCTET__V1__REDUCTION__REDUCTION_SUM;

    out->reduction = is_sum ? OCTET_REDUCTION_SUM : OCTET_REDUCTION_MEAN;
    out->denominator = denominator;
    if (is_sum && !(denominator >= 1e-300 && denominator <= 1e300))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "denominator",
                          "%g is not in 1e-300 to 1e300; REDUCTION_SUM divides by it", denominator);
    if (!is_sum && denominator != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "denominator",
                          "%g is for REDUCTION_SUM; REDUCTION_MEAN divides by the weights' sum",
                          denominator);
    return OCTET_OK;
}

bool oct_wire_put_losses(octet_arena *arena, const struct octet_losses *from,
                         Octet__V1__Losses **out)
{
    Octet__V1__Losses *to = oct_wire_new(arena, &octet__v1__losses__descriptor);

    *out = to;
    if (!to)
        return false;
    to->total = from->total;
    to->main = from->main;
    to->weight_sum = from->weight_sum;
    if (from->has_mtp) {
        to->has_mtp_case = OCTET__V1__LOSSES__HAS_MTP_MTP;
        to->mtp = from->mtp;
        to->has_mtp_weight_sum_case = OCTET__V1__LOSSES__HAS_MTP_WEIGHT_SUM_MTP_WEIGHT_SUM;
        to->mtp_weight_sum = from->mtp_weight_sum;
    }
    if (from->has_load_balance) {
        to->has_load_balance_case = OCTET__V1__LOSSES__HAS_LOAD_BALANCE_LOAD_BALANCE;
        to->load_balance = from->load_balance;
    }
    return true;
}

bool oct_wire_put_numbers(octet_arena *arena, const double *from, size_t count, size_t *n,
                          double **out)
{
    *n = from ? count : 0;
    *out = OCTET_NEW_ARRAY(arena, *n, double);
    if (*out && *n)
        memcpy(*out, from, *n * sizeof **out);
    return *out != NULL;
}

/* ---- The trace ---- */

static bool put_figures(octet_arena *arena, const struct octet_line_figures *from, bool is_backward,
                        Octet__V1__Interception *to)
{
    to->digest = oct_wire_text(arena, from->digest);
    return to->digest && oct_wire_put_stats(arena, &from->lhs, &to->lhs) &&
           oct_wire_put_stats(arena, &from->rhs, &to->rhs) &&
           (!is_backward || oct_wire_put_stats(arena, &from->cotangent, &to->cotangent));
}

enum octet_status oct_wire_put_pass_trace(octet_arena *arena, const struct octet_pass *pass,
                                          Octet__V1__TraceLevel level, bool is_backward,
                                          Octet__V1__Trace **out, struct octet_error *err)
{
    *out = NULL;
    if (level == OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NONE)
        return OCTET_OK;
    enum octet_status status = oct_wire_put_trace(arena, pass->plan, out, err);
    for (size_t i = 0; status == OCTET_OK && i < (*out)->n_interceptions; i++) {
        Octet__V1__Interception *line = (*out)->interceptions[i];
        line->count = pass->counts[i];
        line->accumulation =
            (char *)octet_accumulation_name(pass->is_fast[i] ? OCTET_FAST : OCTET_EXACT_ORDER);
        bool is_measured = pass->figures && pass->figures[i].digest[0]; /* under a rule */
        if (is_measured && !put_figures(arena, &pass->figures[i], is_backward, line))
            status = octet_arena_exhausted(arena, err);
    }
    return status;
}

/* ---- Gradients ---- */

static enum octet_status match_all(octet_pattern *const *patterns, size_t count, const char *name,
                                   bool *is_used, bool *matches, struct octet_error *err)
{
    *matches = false;
    for (size_t i = 0; i < count; i++) {
        bool is_match;
        enum octet_status status = octet_pattern_match(patterns[i], name, &is_match, err);
        if (status != OCTET_OK)
            return status;
        is_used[i] |= is_match;
        *matches |= is_match;
    }
    return OCTET_OK;
}

static enum octet_status fail_pattern(size_t i, struct octet_error *err)
{
    char field[48];

    snprintf(field, sizeof field, "return_gradients[%zu]", i);
    return octet_error_within(err, field);
}

/* Which parameters: out->index and count, without room for numbers. */
static enum octet_status choose(const struct octet_call *call, const octet_parameters *all,
                                octet_pattern *const *patterns, size_t pattern_count,
                                char *const *texts, struct oct_wire_gradients *out,
                                struct octet_error *err)
{
    bool *is_used = OCTET_NEW_ARRAY(call->arena, pattern_count, bool);
    struct octet_array array;
    const char *name;

    if (!is_used)
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < octet_parameters_count(all); i++) {
        bool matches;
        octet_parameters_describe(all, i, &name, &array);
        enum octet_status status = match_all(patterns, pattern_count, name, is_used, &matches, err);
        if (status != OCTET_OK)
            return octet_error_within(err, "return_gradients");
        if (matches)
            out->index[out->count++] = i;
    }
    for (size_t i = 0; i < pattern_count; i++)
        if (!is_used[i]) {
            octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                       "'%.200s' matches no parameter; it must match a whole name, such as '%s'",
                       texts[i], name);
            return fail_pattern(i, err);
        }
    return OCTET_OK;
}

static enum octet_status make_room(const struct octet_call *call, const octet_parameters *all,
                                   struct oct_wire_gradients *out, struct octet_error *err)
{
    out->list = OCTET_NEW_ARRAY(call->arena, out->count, struct octet_array);
    out->name = OCTET_NEW_ARRAY(call->arena, out->count, const char *);
    if (!out->list || !out->name)
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < out->count; i++) {
        struct octet_array shape;
        octet_parameters_describe(all, out->index[i], &out->name[i], &shape);
        out->list[i] = shape;
        uint64_t bytes = (uint64_t)octet_array_bytes(&shape);
        out->list[i].data = octet_arena_alloc_unset(call->arena, bytes);
        if (!out->list[i].data)
            return octet_arena_exhausted(call->arena, err);
        out->bytes += bytes;
    }
    if (out->bytes > call->facts->message_bytes_max)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "return_gradients",
                          "these gradients have %llu bytes, a message holds %llu; GetTensors "
                          "streams them",
                          (unsigned long long)out->bytes,
                          (unsigned long long)call->facts->message_bytes_max);
    return OCTET_OK;
}

enum octet_status oct_wire_choose_gradients(const struct octet_call *call,
                                            const octet_session *session, size_t pattern_count,
                                            char *const *texts, struct oct_wire_gradients *out,
                                            struct octet_error *err)
{
    const octet_parameters *all = octet_session_tensors(session, OCTET_SET_GRADIENT);
    size_t made = 0;
    enum octet_status status = OCTET_OK;

    *out = (struct oct_wire_gradients){.count = 0};
    if (pattern_count == 0)
        return OCTET_OK;
    if (!all)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, "return_gradients",
                          "the session has no gradients: its mode is SESSION_MODE_INFER");
    octet_pattern **patterns = OCTET_NEW_ARRAY(call->arena, pattern_count, octet_pattern *);
    out->index = OCTET_NEW_ARRAY(call->arena, octet_parameters_count(all), size_t);
    if (!patterns || !out->index)
        return octet_arena_exhausted(call->arena, err);
    for (; status == OCTET_OK && made < pattern_count; made += status == OCTET_OK) {
        status = octet_pattern_create(call->context, texts[made], &patterns[made], err);
        if (status != OCTET_OK)
            fail_pattern(made, err);
    }
    if (status == OCTET_OK)
        status = choose(call, all, patterns, pattern_count, texts, out, err);
    if (status == OCTET_OK)
        status = make_room(call, all, out, err);
    while (made > 0)
        octet_pattern_destroy(patterns[--made]);
    return status;
}

enum octet_status oct_wire_read_gradients(const octet_session *session,
                                          const struct oct_wire_gradients *gradients,
                                          struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; status == OCTET_OK && i < gradients->count; i++)
        status = octet_session_get(session, OCTET_SET_GRADIENT, gradients->index[i], 0,
                                   (uint64_t)octet_array_bytes(&gradients->list[i]),
                                   gradients->list[i].data, err);
    return status;
}

bool oct_wire_put_gradients(struct oct_wire_reply *reply,
                            const struct oct_wire_gradients *gradients, size_t *count,
                            Octet__V1__NamedTensor ***out)
{
    ProtobufCMessage **list;

    if (!oct_wire_new_list(reply->arena, &octet__v1__named_tensor__descriptor, gradients->count,
                           &list))
        return false;
    for (size_t i = 0; i < gradients->count; i++) {
        Octet__V1__NamedTensor *to = (Octet__V1__NamedTensor *)list[i];
        to->name = oct_wire_text(reply->arena, gradients->name[i]);
        if (!to->name || !oct_wire_put_array(reply, &gradients->list[i], &to->tensor))
            return false;
    }
    *out = (Octet__V1__NamedTensor **)list;
    *count = gradients->count;
    return true;
}
