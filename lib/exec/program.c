/* Program: life and memory; see program.h. The work is in unroll.c, backward.c, placement.c. */
#include "exec/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/dense.h"
#include "exec/program_private.h"

enum { PROGRAM_BYTES_MAX = 1 << 30, FIRST_CAPACITY = 256 };
/* What an op without a bound of its own may take. */
enum { SMALL_SCRATCH_BYTES = 64 << 10 };

static bool grow(octet_arena *arena, void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    void *larger = octet_arena_array(arena, wanted, size);
    if (!larger)
        return false;
    if (count)
        memcpy(larger, *array, count * size);
    *array = larger;
    *capacity = wanted;
    return true;
}

uint32_t oct_slot_add(oct_program *program, const struct oct_slot *slot)
{
    void *slots = program->slots;

    if (!grow(program->arena, &slots, program->slot_count, &program->slot_capacity, sizeof *slot))
        return 0;
    program->slots = slots;
    uint32_t id = program->slot_count++;
    program->slots[id] = *slot;
    if (!slot->owner)
        program->slots[id].owner = id;
    return id;
}

struct oct_step *oct_step_add(oct_program *program, const struct oct_step *step)
{
    void *steps = program->steps;

    if (!grow(program->arena, &steps, program->step_count, &program->step_capacity, sizeof *step))
        return NULL;
    program->steps = steps;
    program->steps[program->step_count] = *step;
    return &program->steps[program->step_count++];
}

int oct_step_reads(const oct_program *program, const struct oct_step *step)
{
    const struct oct_op_code *code = &oct_op_codes[step->node->op];

    if (step->is_attention)
        return IN0 | IN1 | IN2 | 8 | 16 | 32 | OUT;
    if (step->is_gate)
        return IN0 | IN1;
    return code->reads ? code->reads(program->graph, step->node, step->rule)
                       : oct_op_rows[step->node->op].reads;
}

static uint64_t scratch_of(const oct_program *program, const struct oct_step *step)
{
    const struct oct_op_code *code = &oct_op_codes[step->node->op];
    const struct octet_array *query = &program->slots[step->in[0]].view;

    if (step->is_attention)
        return oct_attention_scratch_bytes(query, &program->slots[step->in[2]].view,
                                           step->kind == OCT_STEP_VJP, program->options.threads);
    return code->scratch_bytes ? code->scratch_bytes(program->graph, step->node, step->rule,
                                                     step->kind == OCT_STEP_VJP)
                               : SMALL_SCRATCH_BYTES;
}

static void measure_scratch(oct_program *program)
{
    for (uint32_t i = 0; i < program->step_count; i++) {
        struct oct_step *step = &program->steps[i];
        if (step->kind == OCT_STEP_SEED)
            continue;
        step->scratch_bytes = scratch_of(program, step);
        for (int j = 0; j < step->input_count; j++) /* a parameter's gradient before it is added */
            if (step->sum[j] && program->slots[step->sum[j]].place == OCT_PLACE_PARAMETER) {
                uint64_t elements =
                    (uint64_t)octet_array_elements(&program->slots[step->in[j]].view);
                step->scratch_bytes += sizeof(float) * elements + OCT_SLOT_ALIGNMENT;
            }
        if (step->scratch_bytes > program->memory.scratch_bytes)
            program->memory.scratch_bytes = step->scratch_bytes;
    }
}

/* "rule.tile_size" -> "rules[2].tile_size" */
static enum octet_status name_rule(const oct_program *program, const struct octet_rule *rule,
                                   struct octet_error *err)
{
    const octet_rules *rules = octet_plan_rules(program->plan);
    char field[sizeof err->field];

    if (!err || strncmp(err->field, "rule.", 5) != 0)
        return err ? err->status : OCTET_INVALID_ARGUMENT;
    for (size_t i = 0; i < octet_rules_count(rules); i++)
        if (octet_rules_get(rules, i) == rule) {
            snprintf(field, sizeof field, "rules[%zu].%.200s", i, err->field + 5);
            memcpy(err->field, field, sizeof field);
            break;
        }
    return err->status;
}

/* A rule that does not fit a product's shapes is refused before anything runs. */
static enum octet_status check_rules(const oct_program *program, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (uint32_t i = 0; i < program->step_count && status == OCTET_OK; i++) {
        const struct oct_step *step = &program->steps[i];
        bool is_product = oct_op_codes[step->node->op].forward == oct_dense_forward;
        if (!step->rule || step->is_attention || !is_product)
            continue;
        status =
            oct_dense_check(program->graph, step->node, step->rule, program->options.backward, err);
        if (status != OCTET_OK)
            return name_rule(program, step->rule, err);
    }
    return status;
}

static enum octet_status build(oct_program *program, struct octet_error *err)
{
    enum octet_status status;

    if (!oct_slot_add(program, &(struct oct_slot){.owner = 0}) && !program->slots)
        return octet_arena_exhausted(program->arena, err);
    status = oct_program_unroll(program, err);
    program->forward_count = program->step_count;
    if (status == OCTET_OK)
        status = check_rules(program, err);
    if (status == OCTET_OK && program->options.backward)
        status = oct_program_reverse(program, err);
    if (status == OCTET_OK)
        status = oct_program_place(program, err);
    if (status == OCTET_OK)
        measure_scratch(program);
    return status;
}

enum octet_status oct_program_create(octet_plan *plan, const struct oct_program_options *options,
                                     oct_program **out, struct octet_error *err)
{
    oct_program *program = calloc(1, sizeof *program);

    if (!program)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    atomic_init(&program->references, 1);
    program->plan = octet_plan_ref(plan);
    program->graph = plan->graph;
    program->options = *options;
    program->arena = octet_arena_create(PROGRAM_BYTES_MAX);
    enum octet_status status =
        program->arena ? build(program, err)
                       : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    if (status == OCTET_OK)
        *out = program;
    else
        oct_program_unref(program);
    return status;
}

oct_program *oct_program_ref(oct_program *program)
{
    /* Relaxed: whoever makes a reference has one already. */
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
    return program;
}

void oct_program_unref(oct_program *program)
{
    /* Release and acquire: all reads of the others come before the memory goes. */
    if (!program || atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) != 1)
        return;
    octet_arena_destroy(program->arena);
    octet_plan_unref(program->plan);
    free(program);
}

octet_plan *oct_program_plan(const oct_program *program)
{
    return program->plan;
}

struct oct_program_memory oct_program_memory(const oct_program *program)
{
    return program->memory;
}
