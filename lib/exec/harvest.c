/* Losses, outputs, counts, figures, times of a run; see harvest.h. */
#include "exec/harvest.h"

#include <math.h>
#include <string.h>

#include "exec/acceptance.h"
#include "exec/moe.h"
#include "kernels/kernels.h"

enum { ATTENTION = OCT_OP_COUNT }; /* its place among the times */

static octet_arena *arena_of(const struct oct_execute *x)
{
    return x->run->compute->arena;
}

static enum octet_status make_tokens(struct oct_execute *x, enum octet_dtype dtype,
                                     struct octet_array *out, struct octet_error *err)
{
    return octet_array_create(arena_of(x), dtype, 2, x->run->batch->tokens.dim, out, err);
}

static enum octet_status make_reports(struct oct_execute *x, struct octet_error *err)
{
    const struct oct_run *run = x->run;
    uint32_t count = x->program->loss_count;
    enum octet_status status = OCTET_OK;

    x->reports = OCTET_NEW_ARRAY(arena_of(x), count, struct oct_report);
    if (!x->reports)
        return octet_arena_exhausted(arena_of(x), err);
    for (uint32_t i = 0; i < count && status == OCTET_OK; i++) {
        if (run->want_logprobs && i == 0)
            status = make_tokens(x, OCTET_DTYPE_F32, &x->reports[i].logprobs, err);
        if (run->want_acceptance && status == OCTET_OK)
            status = make_tokens(x, OCTET_DTYPE_S32, &x->reports[i].argmax, err);
    }
    return status;
}

enum octet_status oct_harvest_begin(struct oct_execute *x, struct octet_error *err)
{
    struct oct_run_result *r = x->result;
    size_t lines = x->program->plan->interception_count, loads = 0;
    uint32_t losses = x->program->loss_count;

    r->mtp_layers = losses ? losses - 1 : 0;
    for (uint32_t i = 0; i < x->program->forward_count; i++)
        loads += x->program->steps[i].bias != 0;
    r->counts = OCTET_NEW_ARRAY(arena_of(x), lines, int64_t);
    r->is_fast = OCTET_NEW_ARRAY(arena_of(x), lines, bool);
    r->loads = OCTET_NEW_ARRAY(arena_of(x), loads, struct oct_expert_load);
    r->mtp_logits = OCTET_NEW_ARRAY(arena_of(x), r->mtp_layers, struct octet_array);
    r->mtp_accepted = OCTET_NEW_ARRAY(arena_of(x), r->mtp_layers, int64_t);
    r->mtp_drafted = OCTET_NEW_ARRAY(arena_of(x), r->mtp_layers, int64_t);
    if (x->run->numerics)
        r->figures = OCTET_NEW_ARRAY(arena_of(x), lines, struct oct_figures);
    if (x->run->times)
        x->times = OCTET_NEW_ARRAY(arena_of(x), OCT_OP_COUNT + 1, struct octet_op_time);
    if (!r->counts || !r->is_fast || !r->loads || !r->mtp_logits || !r->mtp_accepted ||
        !r->mtp_drafted || (x->run->numerics && !r->figures) || (x->run->times && !x->times))
        return octet_arena_exhausted(arena_of(x), err);
    return make_reports(x, err);
}

void oct_harvest_before(struct oct_execute *x, const struct oct_step *step,
                        struct oct_op_call *call)
{
    if (step->loss >= 0 && step->kind == OCT_STEP_FORWARD)
        call->report = &x->reports[step->loss];
    if (!x->run->numerics || !step->rule)
        return;
    x->figures = (struct oct_figures){.digest = ""};
    call->figures = &x->figures;
}

/* ---- outputs ---- */

static enum octet_status copy_out(struct oct_execute *x, const struct octet_array *from,
                                  enum octet_dtype dtype, struct octet_array *out,
                                  struct octet_error *err)
{
    size_t bytes = (size_t)octet_array_elements(from) * octet_dtype_bytes(dtype);

    *out = *from;
    out->dtype = dtype;
    out->data = octet_arena_alloc_unset(arena_of(x), bytes);
    if (!out->data)
        return octet_arena_exhausted(arena_of(x), err);
    if (dtype == from->dtype)
        memcpy(out->data, from->data, bytes);
    else
        x->run->compute->workers->kernels->decode(from->dtype, (size_t)octet_array_elements(from),
                                                  from->data, out->data);
    return OCTET_OK;
}

static enum octet_status take_loss(struct oct_execute *x, const struct oct_step *step,
                                   const struct oct_op_call *call, struct octet_error *err)
{
    struct oct_run_result *r = x->result;
    bool mtp = step->loss > 0, wanted = mtp ? x->run->want_mtp_logits : x->run->want_logits;

    x->sums[mtp] += *(const float *)call->out[0].data;
    x->weights[mtp] += *(const float *)call->out[1].data;
    if (!wanted)
        return OCTET_OK;
    return copy_out(x, &call->in[0], OCTET_DTYPE_F32,
                    mtp ? &r->mtp_logits[step->loss - 1] : &r->logits, err);
}

static enum octet_status take_load(struct oct_execute *x, const struct oct_step *step,
                                   const struct oct_op_call *call, struct octet_error *err)
{
    int64_t experts = call->in[0].dim[call->in[0].rank - 1];
    int64_t *count = OCTET_NEW_ARRAY(arena_of(x), experts, int64_t);

    if (!count)
        return octet_arena_exhausted(arena_of(x), err);
    oct_expert_counts(&call->out[1], experts, count);
    x->result->loads[x->result->load_count++] =
        (struct oct_expert_load){step->bias - 1, step->turn, count, experts};
    return OCTET_OK;
}

/* ---- figures ---- */

/* A line stands for all its executions: sums of counts, extremes of ranges, the worst ratio. */
static void merge_stats(struct octet_operand_stats *sum, const struct octet_operand_stats *one,
                        bool is_first)
{
    if (is_first) {
        *sum = *one;
        return;
    }
    sum->is_quantized |= one->is_quantized;
    sum->amax = fmaxf(sum->amax, one->amax);
    sum->scale_min = fminf(sum->scale_min, one->scale_min);
    sum->scale_max = fmaxf(sum->scale_max, one->scale_max);
    sum->saturated += one->saturated;
    sum->underflowed += one->underflowed;
    sum->nonfinite += one->nonfinite;
    sum->destroyed += one->destroyed;
    sum->sqnr_db = fmin(sum->sqnr_db, one->sqnr_db);
}

static void merge_figures(struct oct_execute *x, const struct oct_step *step, uint32_t line)
{
    struct oct_figures *sum = &x->result->figures[line];
    bool is_first = x->result->counts[line] == 1;

    if (step->kind == OCT_STEP_VJP) {
        merge_stats(&sum->cotangent, &x->figures.cotangent, !sum->has_cotangent);
        sum->has_cotangent = true;
        return;
    }
    merge_stats(&sum->lhs, &x->figures.lhs, is_first);
    merge_stats(&sum->rhs, &x->figures.rhs, is_first);
    memcpy(sum->digest, x->figures.digest, sizeof sum->digest);
}

enum octet_status oct_harvest_after(struct oct_execute *x, const struct oct_step *step,
                                    const struct oct_op_call *call, struct octet_error *err)
{
    const oct_program *p = x->program;
    bool forward = step->kind == OCT_STEP_FORWARD;
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 2 && forward; i++)
        if (step->lines[i])
            x->result->counts[step->lines[i] - 1]++;
    if (call->is_fast && step->line)
        x->result->is_fast[step->line - 1] = true;
    if (call->figures && step->line)
        merge_figures(x, step, step->line - 1);
    if (!forward)
        return OCTET_OK;
    if (step->loss >= 0)
        status = take_loss(x, step, call, err);
    if (step->bias && status == OCTET_OK)
        status = take_load(x, step, call, err);
    if (x->run->want_hidden && p->hidden && status == OCTET_OK &&
        p->slots[step->out[0]].owner == p->slots[p->hidden].owner) {
        struct octet_array hidden = p->slots[p->hidden].view;
        hidden.data = call->out[0].data;
        status = copy_out(x, &hidden, hidden.dtype, &x->result->hidden, err);
    }
    return status;
}

/* ---- times, the end ---- */

void oct_harvest_time(struct oct_execute *x, const struct oct_step *step, double seconds)
{
    struct octet_op_time *time = &x->times[step->is_attention ? ATTENTION : step->node->op];

    time->op = step->is_attention ? "attention" : oct_op_rows[step->node->op].name;
    if (step->kind == OCT_STEP_FORWARD && !step->is_again)
        time->forward_s += seconds;
    else
        time->backward_s += seconds;
}

static double value_of(const struct oct_execute *x, uint32_t slot)
{
    const struct oct_slot *s = &x->program->slots[x->program->slots[slot].owner];

    return slot ? (double)*(const float *)(const void *)(x->block + s->offset) : 0;
}

static void count_accepted(struct oct_execute *x)
{
    struct oct_run_result *r = x->result;

    for (size_t k = 1; k <= r->mtp_layers; k++)
        oct_mtp_acceptance(x->run->batch, (int64_t)k, &x->reports[0].argmax, &x->reports[k].argmax,
                           &r->mtp_accepted[k - 1], &r->mtp_drafted[k - 1]);
}

void oct_harvest_end(struct oct_execute *x)
{
    struct oct_run_result *r = x->result;
    const oct_program *p = x->program;

    r->has_mtp = p->mtp_loss != 0;
    r->has_load_balance = p->auxiliary_loss != 0;
    r->total = value_of(x, p->loss);
    r->main = value_of(x, p->main_loss);
    r->mtp = value_of(x, p->mtp_loss);
    r->load_balance = value_of(x, p->auxiliary_loss);
    r->main_sum = x->sums[0];
    r->mtp_sum = x->sums[1];
    r->weight_sum = x->weights[0];
    r->mtp_weight_sum = x->weights[1];
    if (x->run->want_logprobs && p->loss_count)
        r->logprobs = x->reports[0].logprobs;
    if (x->run->want_acceptance)
        count_accepted(x);
    for (size_t i = 0; x->times && i <= OCT_OP_COUNT; i++)
        if (x->times[i].op)
            x->times[r->time_count++] = x->times[i];
    r->times = x->times;
}
