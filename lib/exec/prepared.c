/* Weights held quantized; see prepared.h. */
#include "exec/prepared.h"

#include <stdlib.h>
#include <string.h>

#include "exec/dense.h"
#include "exec/parameters_private.h"
#include "exec/program_private.h"
#include "quant/pack.h"

enum { FIRST_AXIS = -1 };

struct oct_prepared {
    octet_arena *arena;
    struct oct_prepared_piece *pieces;
    size_t count;
    bool *holds; /* [parameter_count] */
};

/* ---- what a weight is made of ---- */

/* The parameter at the end of a chain of slices and casts; *piece learns of the cut. */
static uint32_t source_of(const octet_graph *g, uint32_t tensor, struct oct_prepared_piece *piece)
{
    piece->axis = FIRST_AXIS;
    while (g->tensors[tensor].kind != OCTET_TENSOR_PARAMETER) {
        const struct oct_node *node = &g->nodes[g->producers[tensor]];
        if (node->op == OCT_OP_slice) {
            piece->axis = node->attributes.slice.axis;
            piece->start = node->attributes.slice.start;
        }
        tensor = node->inputs[0];
    }
    return tensor;
}

/* The value of a tensor that is made of parameters alone. */
static enum octet_status evaluate(const struct oct_execution *execution,
                                  const octet_parameters *parameters, size_t parameter,
                                  int64_t layer, uint32_t tensor, octet_arena *scratch,
                                  struct octet_array *out, struct octet_error *err)
{
    const octet_graph *g = execution->graph;

    if (g->tensors[tensor].kind == OCTET_TENSOR_PARAMETER) {
        *out = oct_parameters_slice(parameters, parameter, layer);
        return OCTET_OK;
    }
    const struct oct_node *node = &g->nodes[g->producers[tensor]];
    const struct octet_tensor *result = &g->tensors[tensor];
    struct oct_op_call call = {.execution = execution, .node = node, .scratch = scratch};
    enum octet_status status = evaluate(execution, parameters, parameter, layer, node->inputs[0],
                                        scratch, &call.in[0], err);
    if (status == OCTET_OK)
        status = octet_array_create(scratch, (enum octet_dtype)result->dtype, result->shape.rank,
                                    result->shape.dim, &call.out[0], err);
    if (status == OCTET_OK)
        status = oct_op_codes[node->op].forward(&call, err);
    *out = call.out[0];
    return status;
}

/* ---- making ---- */

/* Codes are laid out for the CPU's kernels, unless a device takes them. */
static bool packs(const struct oct_step *step)
{
    return !step->is_placed;
}

static enum octet_status prepare(oct_prepared *p, const oct_program *program,
                                 const octet_parameters *parameters,
                                 const struct octet_compute *compute, const struct oct_step *step,
                                 struct octet_error *err)
{
    struct oct_prepared_piece *piece = &p->pieces[step->prepared - 1];
    const struct oct_execution execution = {.compute = compute, .graph = program->graph};
    const struct octet_compute keep = {p->arena, compute->workers, compute->cancel};
    octet_arena *scratch = octet_arena_create_within(compute->arena);
    uint32_t source = source_of(program->graph, step->node->inputs[1], piece);
    struct octet_array weight;
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;

    while (program->graph->parameters[piece->parameter] != source)
        piece->parameter++;
    piece->layer = program->graph->tensors[source].layers ? step->turn : 0;
    if (!scratch)
        return octet_arena_exhausted(compute->arena, err);
    status = evaluate(&execution, parameters, piece->parameter, piece->layer, step->node->inputs[1],
                      scratch, &weight, err);
    if (status == OCTET_OK)
        status = oct_dense_prepare(&keep, program->graph, step->node, step->rule, &weight,
                                   packs(step), &piece->weight, err);
    octet_arena_destroy(scratch);
    return status;
}

/* Held is what some step has prepared and no step reads as it is. is_made: of a parameter. */
static void find_held(const oct_program *program, const bool *is_made, bool *holds)
{
    memcpy(holds, is_made, program->graph->parameter_count * sizeof *holds);
    for (uint32_t i = 0; i < program->step_count; i++) {
        const struct oct_step *step = &program->steps[i];
        for (int j = 0; j < step->input_count; j++) {
            const struct oct_slot *owner = &program->slots[program->slots[step->in[j]].owner];
            if (step->in[j] && owner->place == OCT_PLACE_PARAMETER && !(step->prepared && j == 1))
                holds[owner->index] = false;
        }
    }
}

enum octet_status oct_prepared_estimate(const oct_program *program, uint64_t *code_bytes,
                                        uint64_t *held_bytes, struct octet_error *err)
{
    const octet_graph *g = program->graph;
    octet_arena *scratch = octet_arena_create(SIZE_MAX / 2);
    bool *is_made = scratch ? OCTET_NEW_ARRAY(scratch, g->parameter_count, bool) : NULL;
    bool *holds = is_made ? OCTET_NEW_ARRAY(scratch, g->parameter_count, bool) : NULL;

    *code_bytes = *held_bytes = 0;
    if (!holds) {
        octet_arena_destroy(scratch);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    for (uint32_t i = 0; i < program->step_count; i++) {
        const struct oct_step *step = &program->steps[i];
        struct oct_prepared_piece piece = {.parameter = 0};
        if (!step->prepared)
            continue;
        uint32_t source = source_of(g, step->node->inputs[1], &piece);
        while (g->parameters[piece.parameter] != source)
            piece.parameter++;
        is_made[piece.parameter] = true;
        *code_bytes += oct_dense_prepared_bytes(g, step->node, step->rule, packs(step));
    }
    find_held(program, is_made, holds);
    for (uint32_t i = 0; i < g->parameter_count; i++)
        if (holds[i])
            *held_bytes += (uint64_t)octet_tensor_bytes(&g->tensors[g->parameters[i]]);
    octet_arena_destroy(scratch);
    return OCTET_OK;
}

enum octet_status oct_prepared_create(const oct_program *program,
                                      const octet_parameters *parameters,
                                      const struct octet_compute *compute, oct_prepared **out,
                                      struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    oct_prepared *p = calloc(1, sizeof *p);
    bool *is_made = NULL;

    if (!p || !(p->arena = octet_arena_create(SIZE_MAX / 2)) ||
        !(p->pieces =
              OCTET_NEW_ARRAY(p->arena, program->prepared_count, struct oct_prepared_piece)) ||
        !(p->holds = OCTET_NEW_ARRAY(p->arena, program->graph->parameter_count, bool)) ||
        !(is_made = OCTET_NEW_ARRAY(p->arena, program->graph->parameter_count, bool))) {
        oct_prepared_destroy(p);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    p->count = program->prepared_count;
    for (uint32_t i = 0; i < program->step_count && status == OCTET_OK; i++)
        if (program->steps[i].prepared)
            status = prepare(p, program, parameters, compute, &program->steps[i], err);
    if (status != OCTET_OK) {
        oct_prepared_destroy(p);
        return status;
    }
    for (size_t i = 0; i < p->count; i++)
        is_made[p->pieces[i].parameter] = true;
    find_held(program, is_made, p->holds);
    *out = p;
    return OCTET_OK;
}

void oct_prepared_destroy(oct_prepared *prepared)
{
    if (!prepared)
        return;
    octet_arena_destroy(prepared->arena);
    free(prepared);
}

/* ---- reading ---- */

uint64_t oct_prepared_bytes(const oct_prepared *prepared)
{
    return octet_arena_held(prepared->arena);
}

bool oct_prepared_holds(const oct_prepared *prepared, size_t i)
{
    return prepared->holds[i];
}

size_t oct_prepared_count(const oct_prepared *prepared)
{
    return prepared->count;
}

const struct oct_prepared_piece *oct_prepared_piece(const oct_prepared *prepared, size_t i)
{
    return &prepared->pieces[i];
}

enum octet_status oct_prepared_unpack(const struct octet_compute *compute,
                                      struct octet_quantized *weight, struct octet_error *err)
{
    return oct_unpack(compute, weight, err);
}

/* Copies a piece into its place of the whole along piece->axis, `whole` wide. */
static void put_piece(const struct oct_prepared_piece *piece, const struct octet_array *values,
                      int64_t whole, float *out)
{
    const float *from = values->data;
    int64_t outer = 1, inner = 1;
    int32_t axis = piece->axis < 0 ? 0 : piece->axis;

    for (int32_t i = 0; i < axis; i++)
        outer *= values->dim[i];
    for (int32_t i = axis + 1; i < values->rank; i++)
        inner *= values->dim[i];
    int64_t run = values->dim[axis] * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy(out + i * whole * inner + piece->start * inner, from + i * run,
               (size_t)run * sizeof *out);
}

/* Sizes of the pieces along the axis, added up. */
static int64_t whole_of(const oct_prepared *p, size_t i, int64_t layer)
{
    int64_t whole = 0;

    for (size_t j = 0; j < p->count; j++) {
        const struct oct_prepared_piece *piece = &p->pieces[j];
        if (piece->parameter != i || piece->layer != layer)
            continue;
        int64_t end = piece->start + piece->weight.qvalue.dim[piece->axis < 0 ? 0 : piece->axis];
        whole = end > whole ? end : whole;
    }
    return whole;
}

enum octet_status oct_prepared_read(const oct_prepared *prepared, size_t i, int64_t layer,
                                    const struct octet_compute *compute, float *out,
                                    struct octet_error *err)
{
    int64_t whole = whole_of(prepared, i, layer);
    enum octet_status status = OCTET_OK;

    for (size_t j = 0; j < prepared->count && status == OCTET_OK; j++) {
        const struct oct_prepared_piece *piece = &prepared->pieces[j];
        if (piece->parameter != i || piece->layer != layer)
            continue;
        octet_arena *scratch = octet_arena_create_within(compute->arena);
        if (!scratch)
            return octet_arena_exhausted(compute->arena, err);
        const struct octet_compute work = {scratch, compute->workers, compute->cancel};
        struct octet_array values;
        status = octet_dequantize(&work, &piece->weight, OCTET_DTYPE_F32, &values, err);
        if (status == OCTET_OK)
            put_piece(piece, &values, whole, out);
        octet_arena_destroy(scratch);
    }
    return status;
}
