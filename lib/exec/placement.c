/* Where each slot lies in the block: first and last use, then a place for that time.
 *
 * Decision: best fit among the gaps, in order of first use; the peak is what a run needs, and it is
 * known here, before anything runs. */
#include <string.h>

#include "exec/program_private.h"

struct gap {
    uint64_t offset, bytes;
};

struct placement {
    oct_program *program;
    uint32_t step; /* at which a slot is touched */
    struct gap *gaps;
    size_t gap_count;
    uint64_t top, peak;
};

/* ---- first and last use ---- */

static void touch(struct placement *p, uint32_t slot)
{
    struct oct_slot *owner = &p->program->slots[p->program->slots[slot].owner];

    if (!slot || owner->place != OCT_PLACE_BLOCK)
        return;
    if (owner->first > p->step)
        owner->first = p->step;
    if (owner->last < p->step)
        owner->last = p->step;
}

static void touch_step(struct placement *p, const struct oct_step *step)
{
    bool vjp = step->kind == OCT_STEP_VJP;

    for (int i = 0; i < step->input_count; i++)
        if (!(vjp && !(step->reads >> i & 1)) && !(step->prepared && i == 1))
            touch(p, step->in[i]);
    for (int i = 0; i < 2; i++)
        if (!vjp || step->reads & OUT)
            touch(p, step->out[i]);
    touch(p, step->saved);
    if (!vjp)
        return;
    for (int i = 0; i < 2; i++)
        touch(p, step->cotangent[i]);
    for (int i = 0; i < step->input_count; i++) {
        touch(p, step->gradient[i]);
        touch(p, step->sum[i]);
    }
}

static void find_uses(struct placement *p)
{
    oct_program *program = p->program;
    const uint32_t kept[] = {program->loss, program->main_loss, program->mtp_loss,
                             program->auxiliary_loss};

    for (uint32_t i = 0; i < program->slot_count; i++) {
        program->slots[i].first = UINT32_MAX;
        program->slots[i].last = 0;
    }
    for (p->step = 0; p->step < program->step_count; p->step++)
        touch_step(p, &program->steps[p->step]);
    p->step = program->step_count;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i] && program->slots[program->slots[kept[i]].owner].first != UINT32_MAX)
            touch(p, kept[i]);
}

/* ---- saved bytes ---- */

static uint64_t saved_bytes(const oct_program *program, const struct oct_step *step)
{
    const struct oct_op_code *code = &oct_op_codes[step->node->op];
    const struct octet_array *query = &program->slots[step->in[0]].view;

    if (step->is_attention)
        return oct_attention_saved_bytes(query->dim[0], query->dim[2] * query->dim[3],
                                         query->dim[1]);
    if (step->is_placed) /* it stays on the device */
        return 0;
    return code->saved_bytes ? code->saved_bytes(program->graph, step->node, step->rule) : 0;
}

/* The forward step that made what a VJP reads: the last before it with the same outputs. Saved
 * bytes of forward and VJP are one slot. by_output: [slot_count], step + 1 that made the slot. */
static enum octet_status add_saved(oct_program *program, struct octet_error *err)
{
    uint32_t *by_output = OCTET_NEW_ARRAY(program->arena, program->slot_count, uint32_t);

    if (!by_output)
        return octet_arena_exhausted(program->arena, err);
    for (uint32_t i = 0; i < program->step_count; i++) {
        struct oct_step *step = &program->steps[i];
        if (step->kind == OCT_STEP_FORWARD) {
            by_output[step->out[0]] = i + 1;
            continue;
        }
        uint32_t maker = step->kind == OCT_STEP_VJP ? by_output[step->out[0]] : 0;
        struct oct_slot slot = {.place = OCT_PLACE_BLOCK};
        if (maker && step->is_placed)
            program->steps[maker - 1].is_kept = true;
        slot.bytes = maker ? saved_bytes(program, step) : 0;
        if (!slot.bytes)
            continue;
        uint32_t saved = oct_slot_add(program, &slot);
        if (!saved)
            return octet_arena_exhausted(program->arena, err);
        step->saved = program->steps[maker - 1].saved = saved;
    }
    return OCTET_OK;
}

/* ---- places ---- */

static void take_gap(struct placement *p, size_t i, uint64_t bytes)
{
    p->gaps[i].offset += bytes;
    p->gaps[i].bytes -= bytes;
    if (p->gaps[i].bytes)
        return;
    p->gap_count--;
    memmove(p->gaps + i, p->gaps + i + 1, (p->gap_count - i) * sizeof *p->gaps);
}

static uint64_t place(struct placement *p, uint64_t bytes)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < p->gap_count; i++)
        if (p->gaps[i].bytes >= bytes &&
            (best == SIZE_MAX || p->gaps[i].bytes < p->gaps[best].bytes))
            best = i;
    if (best == SIZE_MAX) {
        struct gap *last = p->gap_count ? &p->gaps[p->gap_count - 1] : NULL;
        uint64_t offset = p->top;
        if (last && last->offset + last->bytes == p->top) { /* the open end */
            offset = last->offset;
            p->gap_count--;
        }
        p->top = offset + bytes;
        p->peak = p->top > p->peak ? p->top : p->peak;
        return offset;
    }
    uint64_t offset = p->gaps[best].offset;
    take_gap(p, best, bytes);
    return offset;
}

static void give(struct placement *p, uint64_t offset, uint64_t bytes)
{
    size_t at = 0;

    while (at < p->gap_count && p->gaps[at].offset < offset)
        at++;
    bool before = at > 0 && p->gaps[at - 1].offset + p->gaps[at - 1].bytes == offset;
    bool after = at < p->gap_count && offset + bytes == p->gaps[at].offset;
    if (before && after) {
        p->gaps[at - 1].bytes += bytes + p->gaps[at].bytes;
        p->gap_count--;
        memmove(p->gaps + at, p->gaps + at + 1, (p->gap_count - at) * sizeof *p->gaps);
    } else if (before) {
        p->gaps[at - 1].bytes += bytes;
    } else if (after) {
        p->gaps[at].offset = offset;
        p->gaps[at].bytes += bytes;
    } else {
        memmove(p->gaps + at + 1, p->gaps + at, (p->gap_count - at) * sizeof *p->gaps);
        p->gaps[at] = (struct gap){offset, bytes};
        p->gap_count++;
    }
}

static uint64_t padded(uint64_t bytes)
{
    bytes += bytes == 0;
    return (bytes + OCT_SLOT_ALIGNMENT - 1) / OCT_SLOT_ALIGNMENT * OCT_SLOT_ALIGNMENT;
}

/* Slots that begin (or end) at each step, as lists: heads [step_count + 1], next [slot_count]. */
struct schedule {
    uint32_t *begins, *begins_next, *ends, *ends_next;
};

static enum octet_status make_schedule(oct_program *program, struct schedule *s,
                                       struct octet_error *err)
{
    size_t steps = program->step_count + 1, slots = program->slot_count;

    s->begins = OCTET_NEW_ARRAY(program->arena, steps, uint32_t);
    s->ends = OCTET_NEW_ARRAY(program->arena, steps, uint32_t);
    s->begins_next = OCTET_NEW_ARRAY(program->arena, slots, uint32_t);
    s->ends_next = OCTET_NEW_ARRAY(program->arena, slots, uint32_t);
    if (!s->begins || !s->ends || !s->begins_next || !s->ends_next)
        return octet_arena_exhausted(program->arena, err);
    for (uint32_t i = (uint32_t)slots; i-- > 1;) {
        const struct oct_slot *slot = &program->slots[i];
        if (slot->owner != i || slot->place != OCT_PLACE_BLOCK || slot->first == UINT32_MAX)
            continue;
        s->begins_next[i] = s->begins[slot->first];
        s->begins[slot->first] = i;
        s->ends_next[i] = s->ends[slot->last];
        s->ends[slot->last] = i;
    }
    return OCTET_OK;
}

enum octet_status oct_program_place(oct_program *program, struct octet_error *err)
{
    struct placement p = {.program = program};
    struct schedule s;
    enum octet_status status = program->options.backward ? add_saved(program, err) : OCTET_OK;

    if (status != OCTET_OK)
        return status;
    find_uses(&p);
    status = make_schedule(program, &s, err);
    p.gaps = OCTET_NEW_ARRAY(program->arena, program->slot_count + 1, struct gap);
    if (status == OCTET_OK && !p.gaps)
        return octet_arena_exhausted(program->arena, err);
    for (uint32_t i = 0; i <= program->step_count && status == OCTET_OK; i++) {
        for (uint32_t slot = s.begins[i]; slot; slot = s.begins_next[slot])
            program->slots[slot].offset = place(&p, padded(program->slots[slot].bytes));
        for (uint32_t slot = s.ends[i]; slot; slot = s.ends_next[slot])
            give(&p, program->slots[slot].offset, padded(program->slots[slot].bytes));
    }
    program->memory.block_bytes = p.peak;
    return status;
}
