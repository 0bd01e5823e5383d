/* Weights of a session that only infers: codes and scales instead of floats.
 *
 * Decision: codes are made when the first pass needs them, from what the parameters hold then, and
 * the floats are freed. Writing to a parameter afterwards brings all floats back as codes * scale,
 * and the next pass quantizes them again: codes stay the same, a scale may change in its last bit.
 */
#include <stdlib.h>
#include <string.h>

#include "dtypes/codes.h"
#include "train/session_private.h"

static enum octet_status hold(octet_session *s, const oct_program *program,
                              const struct octet_compute *compute, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (s->options.backend && !s->weights)
        status = oct_residence_create(s->options.backend, NULL, &s->weights, err);
    if (status == OCTET_OK)
        status = oct_prepared_create(program, s->parameters, compute, &s->prepared, err);
    for (size_t i = 0; status == OCTET_OK && i < s->parameters->count; i++)
        if (oct_prepared_holds(s->prepared, i))
            oct_parameters_drop(s->parameters, i);
    return status;
}

enum octet_status oct_session_hold(const octet_session *session, const oct_program *program,
                                   const struct octet_compute *compute, struct octet_error *err)
{
    octet_session *s = (octet_session *)session; /* what its lock guards */

    pthread_mutex_lock(&s->lock);
    enum octet_status status = s->prepared ? OCTET_OK : hold(s, program, compute, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* What reading codes works with: one thread, memory of its own. */
static enum octet_status compute_begin(struct octet_compute *compute, struct octet_error *err)
{
    *compute = (struct octet_compute){.arena = octet_arena_create(SIZE_MAX / 2)};
    if (!compute->arena)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    enum octet_status status = octet_workers_create(NULL, 1, &compute->workers, err);
    if (status != OCTET_OK)
        octet_arena_destroy(compute->arena);
    return status;
}

static void compute_end(struct octet_compute *compute)
{
    octet_workers_destroy(compute->workers);
    octet_arena_destroy(compute->arena);
}

/* All layers of parameter i, one behind the other. out: its elements. */
static enum octet_status decode_layers(const octet_session *s, size_t i, float *out,
                                       struct octet_error *err)
{
    const struct oct_parameter *p = &s->parameters->entries[i];
    struct octet_compute compute;
    enum octet_status status = compute_begin(&compute, err);

    if (status != OCTET_OK)
        return status;
    for (size_t layer = 0; layer < p->layers && status == OCTET_OK; layer++)
        status = oct_prepared_read(s->prepared, i, (int64_t)layer, &compute,
                                   out + layer * p->outer * p->inner, err);
    compute_end(&compute);
    return status;
}

static void store(const struct oct_parameter *p, const float *from, size_t count, void *to)
{
    if (p->dtype == OCTET_DTYPE_F32)
        memcpy(to, from, count * sizeof *from);
    else
        for (size_t e = 0; e < count; e++)
            ((uint16_t *)to)[e] = oct_bf16_cast(from[e]);
}

static enum octet_status take_back(octet_session *s, size_t i, struct octet_error *err)
{
    size_t count = oct_parameters_elements(s->parameters, i);
    float *values = malloc(count * sizeof *values + 1);

    if (!values)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "no memory for the floats of a weight");
    enum octet_status status = decode_layers(s, i, values, err);
    if (status == OCTET_OK) {
        oct_parameters_take(s->parameters, i);
        store(&s->parameters->entries[i], values, count, oct_parameters_data(s->parameters, i));
    }
    free(values);
    return status;
}

enum octet_status oct_session_release(octet_session *session, bool zeros, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < session->parameters->count && status == OCTET_OK; i++) {
        if (!session->parameters->entries[i].dropped)
            continue;
        if (zeros)
            oct_parameters_take(session->parameters, i);
        else
            status = take_back(session, i, err);
    }
    if (status != OCTET_OK)
        return status;
    oct_residence_destroy(session->weights);
    session->weights = NULL;
    oct_prepared_destroy(session->prepared);
    session->prepared = NULL;
    free(session->decoded);
    session->decoded = NULL;
    return OCTET_OK;
}

/* The floats of the parameter that was asked for last are kept, since it is asked for in chunks. */
static enum octet_status decode(octet_session *s, size_t index, struct octet_error *err)
{
    if (s->decoded && s->decoded_index == index)
        return OCTET_OK;
    free(s->decoded);
    s->decoded = malloc(oct_parameters_elements(s->parameters, index) * sizeof *s->decoded + 1);
    if (!s->decoded)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "no memory for the floats of a weight");
    s->decoded_index = index;
    enum octet_status status = decode_layers(s, index, s->decoded, err);
    if (status != OCTET_OK) {
        free(s->decoded);
        s->decoded = NULL;
    }
    return status;
}

enum octet_status oct_session_read_held(const octet_session *session, size_t index, size_t first,
                                        size_t count, void *out, struct octet_error *err)
{
    octet_session *s = (octet_session *)session; /* what its lock guards */
    const struct oct_parameter *p = &s->parameters->entries[index];
    enum { CHUNK = 4096 };
    float chunk[CHUNK];

    enum octet_status status = decode(s, index, err);
    for (size_t done = 0; status == OCTET_OK && done < count; done += CHUNK) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        oct_parameter_gather(p, sizeof *chunk, s->decoded, first + done, n, chunk);
        store(p, chunk, n, (char *)out + done * p->element_bytes);
    }
    if (status == OCTET_OK && first + count == oct_parameters_elements(s->parameters, index)) {
        free(s->decoded); /* the last chunk */
        s->decoded = NULL;
    }
    return status;
}

/* ---- Codes as one array ---- */

/* An array that pieces are pasted into: MaxText's shape, with the axis of layers when there is one.
 */
struct paste {
    int32_t stack_axis; /* of the whole; -1: not stacked */
    struct octet_array *whole;
};

static int64_t axis_start(const struct oct_prepared_piece *piece, const struct octet_array *part,
                          int32_t axis)
{
    /* A scale that all share has size 1 along the cut and begins at 0. */
    return axis == piece->axis && part->dim[axis] > 1 ? piece->start : 0;
}

static void paste_one(const struct paste *paste, const struct oct_prepared_piece *piece,
                      const struct octet_array *part)
{
    const struct octet_array *whole = paste->whole;
    size_t width = octet_dtype_bytes(part->dtype);
    int64_t count = octet_array_elements(part), at[OCTET_ARRAY_RANK_MAX] = {0};

    for (int64_t e = 0; e < count; e++) {
        int64_t place = 0;
        for (int32_t axis = 0, from = 0; axis < whole->rank; axis++) {
            int64_t index;
            if (axis == paste->stack_axis)
                index = piece->layer;
            else {
                index = at[from] + axis_start(piece, part, from);
                from++;
            }
            place = place * whole->dim[axis] + index;
        }
        memcpy((char *)whole->data + (size_t)place * width, (char *)part->data + (size_t)e * width,
               width);
        for (int32_t axis = part->rank - 1; axis >= 0 && ++at[axis] == part->dim[axis]; axis--)
            at[axis] = 0;
    }
}

/* The whole's shape, from a piece's: along the cut the parameter's own size, and the layers. */
static enum octet_status make_whole(const struct oct_parameter *p,
                                    const struct oct_prepared_piece *piece,
                                    const struct octet_array *part, octet_arena *arena,
                                    struct octet_array *out, struct octet_error *err)
{
    int64_t dim[OCTET_ARRAY_RANK_MAX];
    int32_t rank = 0;

    for (int32_t axis = 0; axis <= part->rank; axis++) {
        if (p->tensor->layers && axis == p->tensor->stack_axis)
            dim[rank++] = p->tensor->layers;
        if (axis < part->rank)
            dim[rank++] = axis == piece->axis && part->dim[axis] > 1 ? p->tensor->shape.dim[axis]
                                                                     : part->dim[axis];
    }
    return octet_array_create(arena, part->dtype, rank, dim, out, err);
}

static enum octet_status
paste_part(const octet_session *s, size_t index,
           const struct octet_array *(*part_of)(const struct octet_quantized *weight),
           const struct octet_compute *compute, octet_arena *arena, struct octet_array *out,
           struct octet_error *err)
{
    const struct oct_parameter *p = &s->parameters->entries[index];
    enum octet_status status = OCTET_OK;
    bool made = false;

    for (size_t i = 0; i < oct_prepared_count(s->prepared) && status == OCTET_OK; i++) {
        const struct oct_prepared_piece *piece = oct_prepared_piece(s->prepared, i);
        struct octet_quantized weight = piece->weight;
        const struct octet_array *part = part_of(&weight);
        if (piece->parameter != index)
            continue;
        if (part == &weight.qvalue)
            status = oct_prepared_unpack(compute, &weight, err);
        if (status != OCTET_OK || !part->data)
            continue;
        if (!made)
            status = make_whole(p, piece, part, arena, out, err);
        made = true;
        struct paste paste = {p->tensor->layers ? p->tensor->stack_axis : -1, out};
        if (status == OCTET_OK)
            paste_one(&paste, piece, part);
    }
    return status;
}

static const struct octet_array *codes_of(const struct octet_quantized *weight)
{
    return &weight->qvalue;
}

static const struct octet_array *scale_of(const struct octet_quantized *weight)
{
    return &weight->scale;
}

static const struct octet_array *zero_point_of(const struct octet_quantized *weight)
{
    return &weight->zero_point;
}

static enum octet_status paste_parts(const octet_session *s, size_t index, octet_arena *arena,
                                     struct octet_quantized *out, struct octet_error *err)
{
    struct octet_compute compute;
    enum octet_status status = compute_begin(&compute, err);

    if (status != OCTET_OK)
        return status;
    status = paste_part(s, index, codes_of, &compute, arena, &out->qvalue, err);
    if (status == OCTET_OK)
        status = paste_part(s, index, scale_of, &compute, arena, &out->scale, err);
    if (status == OCTET_OK)
        status = paste_part(s, index, zero_point_of, &compute, arena, &out->zero_point, err);
    compute_end(&compute);
    return status;
}

/* Can codes and scales of all pieces stand in one array each? Not when a parameter is cut and a
 * piece has one scale, or tiles, along the cut. */
static bool is_one_array(const octet_session *s, size_t index)
{
    const struct oct_parameter *p = &s->parameters->entries[index];

    for (size_t i = 0; i < oct_prepared_count(s->prepared); i++) {
        const struct oct_prepared_piece *piece = oct_prepared_piece(s->prepared, i);
        if (piece->parameter != index)
            continue;
        if (piece->weight.qvalue.rank != p->tensor->shape.rank)
            return false;
        if (piece->axis >= 0 &&
            piece->weight.scale.dim[piece->axis] != piece->weight.qvalue.dim[piece->axis])
            return false;
    }
    return true;
}

enum octet_status octet_session_quantized(const octet_session *session, size_t index,
                                          octet_arena *arena, bool *held,
                                          struct octet_quantized *out, struct octet_error *err)
{
    octet_session *s = (octet_session *)session; /* its lock: the first pass may be under way */
    enum octet_status status = OCTET_OK;

    pthread_mutex_lock(&s->lock);
    *held = s->prepared && index < s->parameters->count && oct_prepared_holds(s->prepared, index) &&
            is_one_array(s, index);
    if (*held) {
        *out = (struct octet_quantized){.qvalue = {.data = NULL}};
        status = paste_parts(s, index, arena, out, err);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}
