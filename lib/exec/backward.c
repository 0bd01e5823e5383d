/* The steps of backward: forward's, from the last to the first.
 *
 * Decision: an op writes whole gradients. Where a value is read more than once, the first gradient
 * that flows back into it is written in place and later ones are added to it; a residual sum hands
 * its gradient on to one operand as it is. */
#include "exec/program_private.h"

/* again: [slot_count at the start], the slot of a value that was computed once more; NULL: nothing
 * is. */
struct reverse {
    oct_program *program;
    uint32_t *again;
    struct octet_error *err;
};

static enum octet_status no_memory(struct reverse *r)
{
    return octet_arena_exhausted(r->program->arena, r->err);
}

static struct oct_slot *owner_of(oct_program *p, uint32_t slot)
{
    return &p->slots[p->slots[slot].owner];
}

/* A slot of the block with room for a gradient of what `slot` holds. */
static uint32_t gradient_slot(oct_program *p, uint32_t slot)
{
    struct oct_slot gradient = {.view = p->slots[slot].view, .place = OCT_PLACE_BLOCK};

    gradient.bytes = (uint64_t)octet_array_bytes(&gradient.view);
    return oct_slot_add(p, &gradient);
}

/* Where step's gradient of input i goes. */
static enum octet_status choose_gradient(struct reverse *r, struct oct_step *step, int i)
{
    oct_program *p = r->program;
    uint32_t slot = step->in[i], owner = p->slots[slot].owner;

    if (!p->slots[slot].flows)
        return OCTET_OK;
    if (p->slots[owner].place == OCT_PLACE_PARAMETER) {
        step->sum[i] = owner;
        step->is_first[i] = p->slots[owner].gradient == 0;
        p->slots[owner].gradient = owner;
        return OCTET_OK;
    }
    step->gradient[i] = gradient_slot(p, slot);
    if (!step->gradient[i])
        return no_memory(r);
    if (p->slots[owner].gradient)
        step->sum[i] = p->slots[owner].gradient;
    else
        p->slots[owner].gradient = step->gradient[i];
    return OCTET_OK;
}

/* x + y of one shape and type: the gradient of the sum becomes the gradient of an operand that has
 * none yet. */
static void hand_on(oct_program *p, struct oct_step *step)
{
    const struct octet_array *out = &p->slots[step->out[0]].view;

    for (int i = 0; i < 2; i++) {
        const struct octet_array *in = &p->slots[step->in[i]].view;
        struct oct_slot *owner = owner_of(p, step->in[i]);
        if (!p->slots[step->in[i]].flows || owner->place != OCT_PLACE_BLOCK || owner->gradient ||
            in->dtype != out->dtype || octet_array_elements(in) != octet_array_elements(out))
            continue;
        owner->gradient = step->cotangent[0];
        step->in[i] = 0; /* done */
        return;
    }
}

static enum octet_status add_vjp(struct reverse *r, const struct oct_step *forward)
{
    oct_program *p = r->program;
    struct oct_step step = *forward;
    bool any = false, wanted = false;

    step.kind = OCT_STEP_VJP;
    step.lines[0] = step.lines[1] = 0;
    for (int i = 0; i < step.output_count; i++) {
        step.cotangent[i] = p->slots[step.out[i]].flows ? owner_of(p, step.out[i])->gradient : 0;
        any |= step.cotangent[i] != 0;
    }
    if (!any)
        return OCTET_OK;
    if (step.node->op == OCT_OP_add)
        hand_on(p, &step);
    for (int i = 0; i < step.input_count; i++) {
        enum octet_status status = step.in[i] ? choose_gradient(r, &step, i) : OCTET_OK;
        if (status != OCTET_OK)
            return status;
        wanted |= step.gradient[i] || step.sum[i];
    }
    for (int i = 0; i < step.input_count; i++)
        if (!step.in[i])
            step.in[i] = forward->in[i];
    if (!wanted)
        return OCTET_OK;
    step.reads = oct_step_reads(p, &step);
    return oct_step_add(p, &step) ? OCTET_OK : no_memory(r);
}

static enum octet_status add_seed(struct reverse *r)
{
    static const struct oct_node none = {.op = OCT_OP_loss_ratio};
    oct_program *p = r->program;
    struct oct_step step = {.kind = OCT_STEP_SEED, .node = &none, .loss = -1};

    if (!p->loss || !p->slots[p->loss].flows)
        return OCTET_OK;
    step.out[0] = gradient_slot(p, p->loss); /* may move the slots, so before owner_of */
    owner_of(p, p->loss)->gradient = step.out[0];
    return step.out[0] && oct_step_add(p, &step) ? OCTET_OK : no_memory(r);
}

/* ---- layers computed again ---- */

static uint32_t again_of(const struct reverse *r, uint32_t slot)
{
    return r->again[slot] ? r->again[slot] : slot;
}

/* The value in a place of its own; a view of one that was computed again is a view of that. */
static uint32_t copy_slot(struct reverse *r, uint32_t slot)
{
    oct_program *p = r->program;
    struct oct_slot copy = p->slots[slot];
    uint32_t owner = copy.owner;

    copy.gradient = 0;
    copy.owner = owner == slot ? 0 : again_of(r, owner);
    return r->again[slot] = oct_slot_add(p, &copy);
}

/* Views are no steps: those of a value are made when something reads them. */
static uint32_t read_again(struct reverse *r, uint32_t slot)
{
    oct_program *p = r->program;
    uint32_t owner = p->slots[slot].owner;

    if (!r->again[slot] && owner != slot && r->again[owner])
        copy_slot(r, slot);
    return again_of(r, slot);
}

static void point_to_copies(struct reverse *r, struct oct_step *step)
{
    for (int i = 0; i < step->input_count; i++)
        step->in[i] = read_again(r, step->in[i]);
    for (int i = 0; i < step->output_count; i++)
        step->out[i] = again_of(r, step->out[i]);
    step->saved = 0;
}

/* Forward steps [first, end) once more. What leaves the layer is not needed again, and its gradient
 * is that of the first time. */
static enum octet_status compute_again(struct reverse *r, uint32_t first, uint32_t end)
{
    oct_program *p = r->program;

    for (uint32_t i = first; i < end; i++) {
        struct oct_step step = p->steps[i];
        for (int j = 0; j < step.output_count; j++) {
            uint32_t old = step.out[j], gradient = p->slots[old].gradient;
            if (!copy_slot(r, old))
                return no_memory(r);
            p->slots[r->again[old]].gradient = gradient;
        }
        point_to_copies(r, &step);
        step.is_again = true;
        step.lines[0] = step.lines[1] = 0;
        if (!oct_step_add(p, &step))
            return no_memory(r);
    }
    return OCTET_OK;
}

static enum octet_status reverse_layer(struct reverse *r, uint32_t first, uint32_t end)
{
    enum octet_status status = compute_again(r, first, end);

    for (uint32_t i = end; i-- > first && status == OCTET_OK;) {
        struct oct_step step = r->program->steps[i];
        point_to_copies(r, &step);
        status = add_vjp(r, &step);
    }
    return status;
}

static enum octet_status list_untouched(struct reverse *r)
{
    oct_program *p = r->program;
    const octet_graph *g = p->graph;
    uint32_t count = 0, *first = OCTET_NEW_ARRAY(p->arena, g->parameter_count + 1, uint32_t);

    for (uint32_t i = 0; first && i < g->parameter_count; i++) {
        first[i] = count;
        int64_t layers = g->tensors[g->parameters[i]].layers;
        count += layers ? (uint32_t)layers : 1;
    }
    bool *touched = OCTET_NEW_ARRAY(p->arena, count, bool);
    p->untouched = OCTET_NEW_ARRAY(p->arena, count, struct oct_untouched);
    if (!first || !touched || !p->untouched)
        return no_memory(r);
    for (uint32_t i = 1; i < p->slot_count; i++)
        if (p->slots[i].place == OCT_PLACE_PARAMETER && p->slots[i].gradient)
            touched[first[p->slots[i].index] + p->slots[i].layer] = true;
    first[g->parameter_count] = count;
    for (uint32_t i = 0; i < g->parameter_count; i++)
        for (uint32_t j = first[i]; j < first[i + 1]; j++)
            if (!touched[j])
                p->untouched[p->untouched_count++] = (struct oct_untouched){i, j - first[i]};
    return OCTET_OK;
}

enum octet_status oct_program_reverse(oct_program *program, struct octet_error *err)
{
    struct reverse r = {.program = program, .err = err};
    enum octet_status status;

    r.again = OCTET_NEW_ARRAY(program->arena, program->slot_count, uint32_t);
    if (!r.again)
        return no_memory(&r);
    status = add_seed(&r);
    for (uint32_t end = program->forward_count; end > 0 && status == OCTET_OK;) {
        uint32_t first = end - 1, group = program->steps[first].group;
        if (program->options.recompute && group) {
            while (first > 0 && program->steps[first - 1].group == group)
                first--;
            status = reverse_layer(&r, first, end);
        } else {
            struct oct_step step = program->steps[first];
            status = add_vjp(&r, &step);
        }
        end = first;
    }
    return status == OCTET_OK ? list_untouched(&r) : status;
}
