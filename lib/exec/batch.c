/* Batch: checks what a caller gave and makes what was left out.
 *
 * Decision: everything that an op would have to trust (ranges of ids, shapes) is checked here, once
 * for a request; ops do not look again. Source of the defaults: MaxText's data pipeline (shifted
 * targets, positions that restart in packed documents) and its MTP block, which stays inside of
 * documents. */
#include "exec/batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B, S }; /* the dimensions */

struct field {
    const char *name;
    enum octet_dtype dtype;
    const struct octet_array *array;
};

static enum octet_status fail_at(const struct field *field, const struct octet_array *tokens,
                                 int64_t i, const char *expected, struct octet_error *err)
{
    char name[64];
    int64_t s = tokens->dim[S];

    snprintf(name, sizeof name, "%s[%" PRId64 ",%" PRId64 "]", field->name, i / s, i % s);
    if (field->dtype == OCTET_DTYPE_F32)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, name, "%g; %s was expected",
                          (double)((const float *)field->array->data)[i], expected);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, name, "%" PRId32 "; %s was expected",
                      ((const int32_t *)field->array->data)[i], expected);
}

static enum octet_status fail_field(const struct field *field, const char *part,
                                    struct octet_error *err, const char *is, const char *expected)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s", field->name, part);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, name, "%s; %s was expected", is, expected);
}

static enum octet_status check_tokens_shape(const struct field *field, struct octet_error *err)
{
    const struct octet_array *tokens = field->array;
    char shape[128];

    if (!tokens->data)
        return fail_field(field, "", err, "missing", "an array [batch, length]");
    if (tokens->rank != 2 || tokens->dim[B] < 1 || tokens->dim[S] < 1 ||
        octet_array_bytes(tokens) == INT64_MAX)
        return fail_field(field, ".shape", err, octet_array_shape_text(tokens, shape, sizeof shape),
                          "[batch, length], both at least 1,");
    return OCTET_OK;
}

/* dtype, and the shape of tokens. An array that was left out is fine. */
static enum octet_status check_form(const struct field *field, const struct octet_array *tokens,
                                    struct octet_error *err)
{
    const struct octet_array *array = field->array;
    char shape[128], expected[128];

    if (!array->data)
        return OCTET_OK;
    if (array->dtype != field->dtype)
        return fail_field(field, ".dtype", err, octet_dtype_name(array->dtype),
                          octet_dtype_name(field->dtype));
    if (array->rank != 2 || array->dim[B] != tokens->dim[B] || array->dim[S] != tokens->dim[S])
        return fail_field(field, ".shape", err, octet_array_shape_text(array, shape, sizeof shape),
                          octet_array_shape_text(tokens, expected, sizeof expected));
    return OCTET_OK;
}

/* 0 <= each < end. */
static enum octet_status check_range(const struct field *field, const struct octet_array *tokens,
                                     int64_t end, const char *expected, struct octet_error *err)
{
    const int32_t *x = field->array->data;

    for (int64_t i = 0, n = octet_array_elements(tokens); x && i < n; i++)
        if (x[i] < 0 || x[i] >= end)
            return fail_at(field, tokens, i, expected, err);
    return OCTET_OK;
}

static enum octet_status check_finite(const struct field *field, const struct octet_array *tokens,
                                      struct octet_error *err)
{
    const float *x = field->array->data;

    for (int64_t i = 0, n = octet_array_elements(tokens); x && i < n; i++)
        if (!isfinite(x[i]))
            return fail_at(field, tokens, i, "a finite number", err);
    return OCTET_OK;
}

static enum octet_status check(const struct octet_batch *given, int64_t vocab_size,
                               struct octet_error *err)
{
    const struct field fields[] = {
        {"tokens", OCTET_DTYPE_S32, &given->tokens},
        {"targets", OCTET_DTYPE_S32, &given->targets},
        {"positions", OCTET_DTYPE_S32, &given->positions},
        {"segment_ids", OCTET_DTYPE_S32, &given->segment_ids},
        {"target_mask", OCTET_DTYPE_S32, &given->target_mask},
        {"weights", OCTET_DTYPE_F32, &given->weights},
    };
    char ids[64];
    enum octet_status status = check_tokens_shape(&fields[0], err);

    for (size_t i = 0; status == OCTET_OK && i < sizeof fields / sizeof *fields; i++)
        status = check_form(&fields[i], &given->tokens, err);
    snprintf(ids, sizeof ids, "0 to %" PRId64 " (vocab_size - 1)", vocab_size - 1);
    for (size_t i = 0; status == OCTET_OK && i < 2; i++)
        status = check_range(&fields[i], &given->tokens, vocab_size, ids, err);
    for (size_t i = 2; status == OCTET_OK && i < 4; i++)
        status = check_range(&fields[i], &given->tokens, INT64_MAX, "0 or more", err);
    return status == OCTET_OK ? check_finite(&fields[5], &given->tokens, err) : status;
}

/* ---- What was left out ---- */

static enum octet_status create(octet_arena *arena, const struct octet_array *tokens,
                                struct octet_array *out, struct octet_error *err)
{
    return octet_array_create(arena, OCTET_DTYPE_S32, 2, tokens->dim, out, err);
}

/* Does token i have a next one in its document? Padding has none. */
static bool continues(const int32_t *segment, int64_t i, int64_t s)
{
    return (i + 1) % s != 0 && segment[i] != 0 && segment[i] == segment[i + 1];
}

static void fill_segments(int64_t n, int32_t *segment)
{
    for (int64_t i = 0; i < n; i++)
        segment[i] = 1;
}

static void fill_positions(int64_t n, int64_t s, const int32_t *segment, int32_t *position)
{
    for (int64_t i = 0; i < n; i++)
        position[i] = i % s && segment[i] == segment[i - 1] ? position[i - 1] + 1 : 0;
}

static void fill_targets(int64_t n, int64_t s, const int32_t *segment, const int32_t *token,
                         int32_t *target)
{
    for (int64_t i = 0; i < n; i++)
        target[i] = continues(segment, i, s) ? token[i + 1] : 0;
}

/* Targets that were given stand for every token of a document, its last too. */
static void fill_mask(int64_t n, int64_t s, const int32_t *segment, bool given, int32_t *mask)
{
    for (int64_t i = 0; i < n; i++)
        mask[i] = given ? segment[i] != 0 : continues(segment, i, s);
}

enum octet_status octet_batch_complete(const struct octet_batch *given, int64_t vocab_size,
                                       octet_arena *arena, struct octet_batch *out,
                                       struct octet_error *err)
{
    enum octet_status status = check(given, vocab_size, err);

    if (status != OCTET_OK)
        return status;
    *out = *given;
    const struct octet_array *tokens = &out->tokens;
    const int64_t n = octet_array_elements(tokens), s = tokens->dim[S];
    struct octet_array *const made[] = {&out->segment_ids, &out->positions, &out->targets,
                                        &out->target_mask};
    bool missing[sizeof made / sizeof *made];
    for (size_t i = 0; status == OCTET_OK && i < sizeof made / sizeof *made; i++) {
        missing[i] = !made[i]->data;
        if (missing[i])
            status = create(arena, tokens, made[i], err);
    }
    if (status != OCTET_OK)
        return status;
    const int32_t *segment = out->segment_ids.data;
    if (missing[0])
        fill_segments(n, out->segment_ids.data);
    if (missing[1])
        fill_positions(n, s, segment, out->positions.data);
    if (missing[2])
        fill_targets(n, s, segment, tokens->data, out->targets.data);
    if (missing[3])
        fill_mask(n, s, segment, !missing[2], out->target_mask.data);
    return OCTET_OK;
}

void oct_batch_target_weights(const struct octet_batch *batch, float *out)
{
    const int32_t *mask = batch->target_mask.data;
    const float *weight = batch->weights.data;

    for (int64_t i = 0, n = octet_array_elements(&batch->tokens); i < n; i++)
        out[i] = mask[i] == 0 ? 0.0f : weight ? weight[i] : 1.0f;
}
