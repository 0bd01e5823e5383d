/* Running a program: step after step on one block of memory. */
#include <string.h>
#include <time.h>

#include "base/float_env.h"
#include "base/pool.h"
#include "exec/activation.h"
#include "exec/add.h"
#include "exec/batch.h"
#include "exec/embed.h"
#include "exec/harvest.h"
#include "exec/parameters_private.h"
#include "exec/program_private.h"
#include "exec/prepared.h"
#include "exec/run_private.h"

enum { SCRATCH_SLACK_BYTES = 1 << 20 };

static struct octet_array array_of(const struct oct_execute *x, uint32_t slot)
{
    struct octet_array array = {.data = NULL};

    if (!slot)
        return array;
    const struct oct_slot *s = &x->program->slots[slot];
    array = s->view;
    if (s->place == OCT_PLACE_INPUT)
        array.data = x->inputs[s->index].data;
    else if (s->place == OCT_PLACE_PARAMETER)
        array.data = oct_parameters_slice(x->run->parameters, s->index, s->layer).data;
    else
        array.data = x->block + x->program->slots[s->owner].offset;
    return array;
}

/* ---- one step ---- */

/* A step's arrays are known on the device by their slots: a slot holds one value in a run. Weights
 * held as codes belong to all runs. */
static void fill_keys(struct oct_execute *x, const struct oct_step *step, struct oct_op_call *call)
{
    enum { NUMBERS = 1, SAVED = 2, KINDS_SHIFT = 2 };

    if (!step->is_placed)
        return;
    for (int i = 0; i < step->input_count; i++)
        x->keys.in[i] = (uint64_t)x->program->slots[step->in[i]].owner << KINDS_SHIFT | NUMBERS;
    if (step->prepared)
        x->keys.in[1] = OCT_RESIDENCE_SHARED | step->prepared;
    bool is_kept = step->is_kept || step->kind == OCT_STEP_VJP;
    x->keys.saved = is_kept ? (uint64_t)step->out[0] << KINDS_SHIFT | SAVED : 0;
    call->keys = &x->keys;
}

static void fill_call(struct oct_execute *x, const struct oct_step *step, struct oct_op_call *call)
{
    bool vjp = step->kind == OCT_STEP_VJP;

    *call = (struct oct_op_call){
        .execution = &x->execution, .node = step->node, .rule = step->rule, .scratch = x->scratch};
    for (int i = 0; i < step->input_count; i++) {
        call->in[i] = array_of(x, step->prepared && i == 1 ? 0 : step->in[i]);
        if (step->prepared && i == 1) {
            call->in[i] = x->program->slots[step->in[i]].view;
            call->prepared = &oct_prepared_piece(x->run->prepared, step->prepared - 1)->weight;
        }
        if (vjp && !(step->reads >> i & 1))
            call->in[i].data = NULL; /* may be gone */
    }
    for (int i = 0; i < step->output_count; i++) {
        call->out[i] = array_of(x, step->out[i]);
        if (vjp && !(step->reads & OUT))
            call->out[i].data = NULL;
    }
    if (step->saved) {
        call->saved = x->block + x->program->slots[step->saved].offset;
        call->saved_bytes = x->program->slots[step->saved].bytes;
    }
    fill_keys(x, step, call);
}

static enum octet_status run_forward(struct oct_execute *x, const struct oct_step *step,
                                     struct octet_error *err)
{
    struct oct_attention_call attention = {.product_dtype = (enum octet_dtype)step->product_dtype,
                                           .scores_dtype = (enum octet_dtype)step->scores_dtype};
    struct oct_op_call *call = &attention.call;
    enum octet_status status;

    fill_call(x, step, call);
    oct_harvest_before(x, step, call);
    status = step->is_attention ? oct_attention_forward(&attention, err)
             : step->is_gate    ? oct_gate_forward(call, err)
                                : oct_op_codes[step->node->op].forward(call, err);
    return status == OCTET_OK && !step->is_again ? oct_harvest_after(x, step, call, err) : status;
}

static struct octet_array array_of_gradient(const struct oct_execute *x,
                                            const struct oct_step *step, int i)
{
    const struct oct_slot *owner = &x->program->slots[step->sum[i]];
    struct octet_array array = x->program->slots[step->in[i]].view;

    array.dtype = OCTET_DTYPE_F32;
    array.data = oct_parameters_slice(x->run->gradients, owner->index, owner->layer).data;
    return array;
}

/* Is it the first thing that becomes of this gradient? */
static bool is_written_whole(const struct oct_execute *x, const struct oct_step *step, int i)
{
    return step->is_first[i] && x->run->gradients_are_zero;
}

/* An embedding's gradient touches few rows of a large table: where something is there already, only
 * those are added to. */
static bool adds_rows(const struct oct_execute *x, const struct oct_step *step)
{
    return step->node->op == OCT_OP_embed && step->sum[1] &&
           x->program->slots[step->sum[1]].place == OCT_PLACE_PARAMETER &&
           !is_written_whole(x, step, 1);
}

/* A parameter's gradient goes straight to the set where nothing is there yet. */
static enum octet_status choose_target(struct oct_execute *x, const struct oct_step *step, int i,
                                       struct octet_array *out, struct octet_array *sum,
                                       struct octet_error *err)
{
    const struct oct_slot *owner = &x->program->slots[step->sum[i]];

    *sum = (struct octet_array){.data = NULL};
    if (!step->sum[i] || owner->place != OCT_PLACE_PARAMETER) {
        *out = array_of(x, step->gradient[i]);
        *sum = array_of(x, step->sum[i]);
        return OCTET_OK;
    }
    *out = array_of_gradient(x, step, i);
    if (is_written_whole(x, step, i))
        return OCTET_OK;
    *sum = *out;
    out->data = octet_arena_alloc_unset(x->scratch, (size_t)octet_array_bytes(out));
    return out->data ? OCTET_OK : octet_arena_exhausted(x->scratch, err);
}

static enum octet_status run_vjp(struct oct_execute *x, const struct oct_step *step,
                                 struct octet_error *err)
{
    struct oct_attention_call attention = {.product_dtype = (enum octet_dtype)step->product_dtype,
                                           .scores_dtype = (enum octet_dtype)step->scores_dtype};
    struct oct_op_call *call = &attention.call;
    struct octet_array cotangent[2], gradient[OCTET_NODE_INPUTS_MAX], sum[OCTET_NODE_INPUTS_MAX];
    enum octet_status status = OCTET_OK;

    fill_call(x, step, call);
    oct_harvest_before(x, step, call);
    for (int i = 0; i < 2; i++) {
        cotangent[i] = array_of(x, step->cotangent[i]);
        if (step->cotangent[i]) { /* in the shape that the op knows */
            void *data = cotangent[i].data;
            cotangent[i] = x->program->slots[step->out[i]].view;
            cotangent[i].data = data;
        }
    }
    if (adds_rows(x, step)) {
        gradient[1] = array_of_gradient(x, step, 1);
        return oct_embed_vjp_add(call, cotangent, gradient, err);
    }
    for (int i = 0; i < step->input_count && status == OCTET_OK; i++)
        status = choose_target(x, step, i, &gradient[i], &sum[i], err);
    if (status != OCTET_OK)
        return status;
    status = step->is_attention ? oct_attention_vjp(&attention, cotangent, gradient, err)
             : step->is_gate    ? oct_gate_vjp(call, cotangent, gradient, err)
                                : oct_op_codes[step->node->op].vjp(call, cotangent, gradient, err);
    for (int i = 0; i < step->input_count && status == OCTET_OK; i++)
        if (sum[i].data)
            status = oct_add_in_place(x->run->compute, &gradient[i], &sum[i], err);
    return status == OCTET_OK ? oct_harvest_after(x, step, call, err) : status;
}

static enum octet_status run_step(struct oct_execute *x, const struct oct_step *step,
                                  struct octet_error *err)
{
    if (step->kind == OCT_STEP_FORWARD)
        return run_forward(x, step, err);
    if (step->kind == OCT_STEP_VJP)
        return run_vjp(x, step, err);
    *(float *)array_of(x, step->out[0]).data = 1;
    return OCTET_OK;
}

/* Gradients of what the loss does not depend on. */
static void clear_untouched(const struct oct_execute *x)
{
    const oct_program *p = x->program;

    for (uint32_t i = 0; i < p->untouched_count && x->run->gradients; i++) {
        struct octet_array slice = oct_parameters_slice(
            x->run->gradients, p->untouched[i].parameter, p->untouched[i].layer);
        memset(slice.data, 0, (size_t)octet_array_bytes(&slice));
    }
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum octet_status run_steps(struct oct_execute *x, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (uint32_t i = 0; i < x->program->step_count && status == OCTET_OK; i++) {
        const struct oct_step *step = &x->program->steps[i];
        double begin = x->run->times ? seconds() : 0;
        status = octet_cancel_check(x->run->compute->cancel, err);
        if (status == OCTET_OK)
            status = run_step(x, step, err);
        if (x->run->times)
            oct_harvest_time(x, step, seconds() - begin);
        octet_arena_reset(x->scratch);
    }
    return status;
}

/* ---- a run ---- */

static double sum_of(const struct octet_array *weights)
{
    double sum = 0;

    for (int64_t i = 0, n = octet_array_elements(weights); i < n; i++)
        sum += (double)((const float *)weights->data)[i];
    return sum;
}

static enum octet_status read_batch(struct oct_execute *x, struct octet_error *err)
{
    const struct octet_batch *batch = x->run->batch;
    octet_arena *arena = x->run->compute->arena;
    struct octet_array *weights = &x->inputs[OCT_INPUT_TARGET_WEIGHTS];

    x->inputs[OCT_INPUT_TOKENS] = batch->tokens;
    x->inputs[OCT_INPUT_TARGETS] = batch->targets;
    x->inputs[OCT_INPUT_POSITIONS] = batch->positions;
    x->inputs[OCT_INPUT_SEGMENT_IDS] = batch->segment_ids;
    enum octet_status status =
        octet_array_create(arena, OCTET_DTYPE_F32, 2, batch->tokens.dim, weights, err);
    if (status != OCTET_OK)
        return status;
    oct_batch_target_weights(batch, weights->data);
    x->execution.weights = sum_of(weights);
    return OCTET_OK;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + OCT_SLOT_ALIGNMENT - 1) / OCT_SLOT_ALIGNMENT * OCT_SLOT_ALIGNMENT;
}

uint64_t oct_program_block_bytes(const oct_program *program)
{
    return aligned(program->memory.block_bytes) + aligned(program->memory.scratch_bytes) +
           SCRATCH_SLACK_BYTES + OCT_SLOT_ALIGNMENT;
}

/* The block: values, then scratch. */
static enum octet_status take_block(struct oct_execute *x, struct octet_error *err)
{
    uint64_t bytes = oct_program_block_bytes(x->program);
    uint64_t values = aligned(x->program->memory.block_bytes);
    unsigned char *block = x->run->block;

    if (!block)
        block = octet_arena_alloc_unset(x->run->compute->arena, bytes);
    if (!block)
        return octet_arena_exhausted(x->run->compute->arena, err);
    x->block = block + (-(uintptr_t)block & (OCT_SLOT_ALIGNMENT - 1));
    x->scratch = octet_arena_create_over(
        x->block + values, bytes - values - (size_t)(x->block - block), (size_t)1 << 40);
    return x->scratch ? OCTET_OK : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
}

enum octet_status oct_program_run(const oct_program *program, const struct oct_run *run,
                                  struct oct_run_result *result, struct octet_error *err)
{
    struct oct_execute x = {
        .program = program,
        .run = run,
        .result = result,
        .execution = {.compute = run->compute,
                      .graph = program->graph,
                      .numerics = run->numerics,
                      .step = run->step,
                      .reduction = run->reduction,
                      .denominator = run->denominator,
                      .accumulation = run->accumulation},
    };
    struct oct_float_env env = oct_float_env_enter();
    enum octet_status status;

    *result = (struct oct_run_result){.total = 0};
    status = read_batch(&x, err);
    if (status == OCTET_OK)
        status = take_block(&x, err);
    if (status == OCTET_OK && program->placed_count)
        status = oct_residence_create(run->backend, run->weights, &x.execution.residence, err);
    if (status == OCTET_OK)
        status = oct_harvest_begin(&x, err);
    if (run->gradients_are_zero)
        clear_untouched(&x);
    if (status == OCTET_OK)
        status = run_steps(&x, err);
    if (status == OCTET_OK)
        oct_harvest_end(&x);
    oct_residence_destroy(x.execution.residence);
    octet_arena_destroy(x.scratch);
    oct_float_env_leave(env);
    return status;
}
