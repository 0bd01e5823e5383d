/* Numbers of a model's parameters in one block; see octet/parameters.h.
 *
 * Decision: one block for all, each parameter from a cache line's start. A set is made and freed in
 * one step, and clearing gradients is one pass. */
#include "exec/parameters_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"

enum { ALIGNMENT = 64 };

static struct oct_parameter lay_out(const struct octet_tensor *tensor, enum octet_dtype dtype)
{
    struct oct_parameter p = {.tensor = tensor,
                              .dtype = dtype ? dtype : (enum octet_dtype)tensor->dtype,
                              .layers = tensor->layers ? (size_t)tensor->layers : 1,
                              .outer = 1,
                              .inner = 1};

    p.element_bytes = octet_dtype_bytes(p.dtype);
    for (int32_t axis = 0; axis < tensor->shape.rank; axis++)
        *(axis < tensor->stack_axis ? &p.outer : &p.inner) *= (size_t)tensor->shape.dim[axis];
    return p;
}

static size_t elements_of(const struct oct_parameter *p)
{
    return p->layers * p->outer * p->inner;
}

static size_t pieces_of(const struct oct_parameter *p)
{
    return (elements_of(p) + OCT_PIECE_ELEMENTS - 1) / OCT_PIECE_ELEMENTS;
}

/* Bytes of the block; entries may be NULL. UINT64_MAX when that does not fit. */
static uint64_t place_all(const octet_plan *plan, enum octet_dtype dtype,
                          struct oct_parameter *entries, uint64_t *bytes, size_t *pieces)
{
    uint64_t used = 0;

    *bytes = 0;
    *pieces = 0;
    for (size_t i = 0; i < octet_plan_parameter_count(plan); i++) {
        const struct octet_tensor *tensor = octet_plan_parameter(plan, i);
        int64_t whole = octet_tensor_bytes(tensor); /* in its own type, at most 8 bytes */
        if (whole > INT64_MAX / 16 || used > INT64_MAX / 2)
            return UINT64_MAX;
        struct oct_parameter p = lay_out(tensor, dtype);
        p.offset = used;
        p.first_piece = *pieces;
        if (entries)
            entries[i] = p;
        *bytes += elements_of(&p) * p.element_bytes;
        *pieces += pieces_of(&p);
        used += (elements_of(&p) * p.element_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return used;
}

uint64_t oct_parameters_bytes_of(const octet_plan *plan, enum octet_dtype dtype)
{
    size_t pieces;
    uint64_t bytes, block = place_all(plan, dtype, NULL, &bytes, &pieces);

    return block == UINT64_MAX
               ? block
               : block + octet_plan_parameter_count(plan) * sizeof(struct oct_parameter);
}

enum octet_status octet_parameters_create(octet_plan *plan, enum octet_dtype dtype,
                                          octet_parameters **out, struct octet_error *err)
{
    octet_parameters *p = calloc(1, sizeof *p);
    size_t count = octet_plan_parameter_count(plan);

    if (p)
        p->entries = calloc(count ? count : 1, sizeof *p->entries);
    if (p && p->entries) {
        uint64_t block = place_all(plan, dtype, p->entries, &p->bytes, &p->pieces);
        p->count = count;
        p->block_bytes = block ? block : ALIGNMENT;
        p->block = block == UINT64_MAX ? NULL : oct_pages_map(p->block_bytes);
        if (p->block) {
            p->plan = octet_plan_ref(plan);
            *out = p;
            return OCTET_OK;
        }
    }
    uint64_t bytes = oct_parameters_bytes_of(plan, dtype);
    if (p)
        free(p->entries);
    free(p);
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "no memory for the %llu bytes of a set of parameters",
                      (unsigned long long)bytes);
}

void octet_parameters_destroy(octet_parameters *parameters)
{
    if (!parameters)
        return;
    oct_pages_unmap(parameters->block, parameters->block_bytes);
    octet_plan_unref(parameters->plan);
    free(parameters->entries);
    free(parameters);
}

size_t octet_parameters_count(const octet_parameters *parameters)
{
    return parameters->count;
}

uint64_t octet_parameters_bytes(const octet_parameters *parameters)
{
    return parameters->bytes;
}

size_t octet_parameters_find(const octet_parameters *parameters, const char *name)
{
    size_t low = 0, high = parameters->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, parameters->entries[middle].tensor->name);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return SIZE_MAX;
}

static struct octet_array array_of(const struct octet_shape *shape, enum octet_dtype dtype)
{
    struct octet_array array = {.dtype = dtype, .rank = shape->rank};

    for (int32_t axis = 0; axis < shape->rank; axis++)
        array.dim[axis] = shape->dim[axis];
    return array;
}

void octet_parameters_describe(const octet_parameters *parameters, size_t i, const char **name,
                               struct octet_array *out)
{
    const struct oct_parameter *p = &parameters->entries[i];
    struct octet_shape shape = octet_parameter_shape(p->tensor);

    *name = p->tensor->name;
    *out = array_of(&shape, p->dtype);
}

void *oct_parameters_data(const octet_parameters *parameters, size_t i)
{
    return parameters->block + parameters->entries[i].offset;
}

size_t oct_parameters_elements(const octet_parameters *parameters, size_t i)
{
    return elements_of(&parameters->entries[i]);
}

struct octet_array oct_parameters_slice(const octet_parameters *parameters, size_t i, int64_t layer)
{
    const struct oct_parameter *p = &parameters->entries[i];
    struct octet_array array = array_of(&p->tensor->shape, p->dtype);

    assert(layer >= 0 && (size_t)layer < p->layers && !p->dropped);
    array.data =
        parameters->block + p->offset + (size_t)layer * p->outer * p->inner * p->element_bytes;
    return array;
}

struct oct_piece oct_parameters_piece(const octet_parameters *parameters, size_t item)
{
    size_t low = 0, high = parameters->count;

    while (high - low > 1) { /* of several that begin here all but the last are empty */
        size_t middle = low + (high - low) / 2;
        *(parameters->entries[middle].first_piece <= item ? &low : &high) = middle;
    }
    size_t begin = (item - parameters->entries[low].first_piece) * OCT_PIECE_ELEMENTS;
    size_t left = elements_of(&parameters->entries[low]) - begin;
    return (struct oct_piece){low, begin, left < OCT_PIECE_ELEMENTS ? left : OCT_PIECE_ELEMENTS};
}

void oct_parameters_drop(octet_parameters *parameters, size_t i)
{
    struct oct_parameter *p = &parameters->entries[i];

    if (p->dropped)
        return;
    p->dropped = true;
    parameters->bytes -= elements_of(p) * p->element_bytes;
    oct_pages_drop(oct_parameters_data(parameters, i), elements_of(p) * p->element_bytes);
}

void oct_parameters_take(octet_parameters *parameters, size_t i)
{
    struct oct_parameter *p = &parameters->entries[i];

    if (!p->dropped)
        return;
    p->dropped = false;
    parameters->bytes += elements_of(p) * p->element_bytes;
    memset(oct_parameters_data(parameters, i), 0, elements_of(p) * p->element_bytes);
}

/* ---- MaxText's layout ---- */

/* Element e of MaxText's array: row o of `outer`, layer l, place r in `inner`. */
struct place {
    size_t o, l, r;
};

static struct place place_of(const struct oct_parameter *p, size_t e)
{
    return (struct place){e / (p->layers * p->inner), e / p->inner % p->layers, e % p->inner};
}

/* `count` elements of a stacked vector, which MaxText's layout interleaves. Constant sizes let the
 * compiler make moves of the copies. */
#define COPY_EACH(type)                                                                            \
    for (size_t k = 0; k < count; k++)                                                             \
    ((type *)to)[k * to_stride] = ((const type *)from)[k * from_stride]

static void copy_strided(size_t element_bytes, size_t count, const void *from, size_t from_stride,
                         void *to, size_t to_stride)
{
    if (element_bytes == 4)
        COPY_EACH(uint32_t);
    else if (element_bytes == 2)
        COPY_EACH(uint16_t);
    else
        COPY_EACH(uint8_t);
}

/* Vectors (inner is 1): layer by layer, along the rows that lie whole in the range. */
static void copy_rows(const struct oct_parameter *p, size_t bytes, char *within, size_t row,
                      size_t rows, char *outside, bool out)
{
    for (size_t l = 0; l < p->layers; l++) {
        char *inside = within + (l * p->outer + row) * bytes, *other = outside + l * bytes;
        if (out)
            copy_strided(bytes, rows, inside, 1, other, p->layers);
        else
            copy_strided(bytes, rows, other, p->layers, inside, 1);
    }
}

/* The longest piece from element e on that copies in one step: its elements. */
static size_t copy_piece(const struct oct_parameter *p, size_t bytes, char *within, size_t e,
                         size_t count, char *outside, bool out)
{
    struct place at = place_of(p, e);

    if (p->inner == 1 && p->layers > 1 && at.l == 0 && count >= p->layers) {
        size_t rows = count / p->layers;
        copy_rows(p, bytes, within, at.o, rows, outside, out);
        return rows * p->layers;
    }
    size_t run = p->layers == 1 ? count : p->inner - at.r;
    run = run < count ? run : count;
    char *inside = within + ((at.l * p->outer + at.o) * p->inner + at.r) * bytes;
    if (p->layers == 1)
        inside = within + e * bytes;
    memcpy(out ? outside : inside, out ? inside : outside, run * bytes);
    return run;
}

void oct_parameter_gather(const struct oct_parameter *parameter, size_t element_bytes,
                          const void *within, size_t first, size_t count, void *outside)
{
    for (size_t done = 0; done < count;)
        done += copy_piece(parameter, element_bytes, (char *)within, first + done, count - done,
                           (char *)outside + done * element_bytes, true);
}

void oct_parameter_scatter(const struct oct_parameter *parameter, size_t element_bytes,
                           void *within, size_t first, size_t count, const void *outside)
{
    for (size_t done = 0; done < count;)
        done += copy_piece(parameter, element_bytes, within, first + done, count - done,
                           (char *)outside + done * element_bytes, false);
}

enum octet_status oct_parameter_range(const struct oct_parameter *parameter, uint64_t offset,
                                      uint64_t size, size_t *first, size_t *count,
                                      struct octet_error *err)
{
    uint64_t bytes = elements_of(parameter) * parameter->element_bytes;

    if (offset % parameter->element_bytes || size % parameter->element_bytes)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "offset",
                          "%llu bytes from byte %llu of '%s': multiples of the element's %zu bytes "
                          "were expected",
                          (unsigned long long)size, (unsigned long long)offset,
                          parameter->tensor->name, parameter->element_bytes);
    if (offset > bytes || size > bytes - offset)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "offset",
                          "%llu bytes from byte %llu reach beyond the %llu bytes of '%s'",
                          (unsigned long long)size, (unsigned long long)offset,
                          (unsigned long long)bytes, parameter->tensor->name);
    *first = offset / parameter->element_bytes;
    *count = size / parameter->element_bytes;
    return OCTET_OK;
}

static enum octet_status check_data(const octet_parameters *parameters, size_t i, const void *data,
                                    uint64_t size, struct octet_error *err)
{
    const struct oct_parameter *p = &parameters->entries[i];

    if (p->dropped)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL, "'%s' is held as codes",
                          p->tensor->name);
    if (!data && size)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "data", "is not there");
    return OCTET_OK;
}

enum octet_status octet_parameters_write(octet_parameters *parameters, size_t i, uint64_t offset,
                                         uint64_t size, const void *data, struct octet_error *err)
{
    size_t first, count;
    const struct oct_parameter *p = &parameters->entries[i];
    enum octet_status status = check_data(parameters, i, data, size, err);

    if (status != OCTET_OK ||
        (status = oct_parameter_range(p, offset, size, &first, &count, err)) != OCTET_OK)
        return status;
    oct_parameter_scatter(p, p->element_bytes, oct_parameters_data(parameters, i), first, count,
                          data);
    return OCTET_OK;
}

enum octet_status octet_parameters_read(const octet_parameters *parameters, size_t i,
                                        uint64_t offset, uint64_t size, void *data,
                                        struct octet_error *err)
{
    size_t first, count;
    const struct oct_parameter *p = &parameters->entries[i];
    enum octet_status status = check_data(parameters, i, data, size, err);

    if (status != OCTET_OK ||
        (status = oct_parameter_range(p, offset, size, &first, &count, err)) != OCTET_OK)
        return status;
    oct_parameter_gather(p, p->element_bytes, oct_parameters_data(parameters, i), first, count,
                         data);
    return OCTET_OK;
}

void octet_parameters_clear(octet_parameters *parameters)
{
    memset(parameters->block, 0, parameters->block_bytes);
}
