/* The methods PutTensors and GetTensors: tensors in chunks.
 *
 * Decision: the chunks of one tensor come in order and without gaps, those of several may be mixed.
 * Then one number a tensor tells what is there, and neither an overlap nor a hole goes unseen. What
 * a stream that fails has written stays written: a second copy of a model's weights would be the
 * price of the alternative. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/convert.h"
#include "wire/held.h"

enum { SETS = OCTET_SET_OPTIMIZER_NU + 1 };
enum { CHUNK_BYTES = 1 << 20, CHUNK_BYTES_MAX = 64 << 20 };

static const char *const prefixes[SETS] = {"", "", "mu/", "nu/"};

static enum octet_status no_set(Octet__V1__TensorKind kind, struct octet_error *err)
{
    static const char *const names[] = {"parameters", "gradients", "optimizer state"};

    return octet_fail(err, OCTET_FAILED_PRECONDITION, "kind",
                      "the session has no %s: its mode is SESSION_MODE_INFER", names[kind]);
}

/* The sets that a kind stands for, [first, last]. */
static void sets_of(Octet__V1__TensorKind kind, size_t *first, size_t *last)
{
    *first = *last = OCTET_SET_PARAMETER;
    if (kind == OCTET__V1__TENSOR_KIND__TENSOR_KIND_GRADIENT) {
        *first = *last = OCTET_SET_GRADIENT;
    } else if (kind == OCTET__V1__TENSOR_KIND__TENSOR_KIND_OPTIMIZER) {
        *first = OCTET_SET_OPTIMIZER_MU;
        *last = OCTET_SET_OPTIMIZER_NU;
    }
}

/* ---- PutTensors ---- */

struct upload {
    uint64_t *received[SETS]; /* [parameters] 1 + bytes of each, 0: not named; NULL: none so far */
    int64_t tensors, bytes;
};

static void upload_free(void *state)
{
    struct upload *upload = state;

    for (size_t set = 0; set < SETS; set++)
        free(upload->received[set]);
    free(upload);
}

static enum octet_status upload_of(const struct octet_call *call, struct upload **out,
                                   struct octet_error *err)
{
    if (!call->exchange)
        return octet_fail(err, OCTET_INTERNAL, NULL, "the call was given no exchange");
    if (!call->exchange->state) {
        call->exchange->state = calloc(1, sizeof **out);
        call->exchange->state_free = upload_free;
    }
    *out = call->exchange->state;
    return *out ? OCTET_OK : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
}

static enum octet_status find_tensor(const octet_session *session,
                                     const Octet__V1__PutTensorsRequest *in, size_t *set,
                                     size_t *index, struct octet_error *err)
{
    size_t first, last;
    const octet_parameters *tensors = NULL;

    sets_of(in->kind, &first, &last);
    for (*set = first; *set <= last; (*set)++) {
        size_t length = strlen(prefixes[*set]);
        tensors = octet_session_tensors(session, (enum octet_tensor_set) * set);
        if (!tensors)
            return no_set(in->kind, err);
        *index = strncmp(in->name, prefixes[*set], length) == 0
                     ? octet_parameters_find(tensors, in->name + length)
                     : SIZE_MAX;
        if (*index != SIZE_MAX)
            return OCTET_OK;
    }
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "name", "the session has no tensor '%.200s'%s",
                      in->name, first != last ? "; moments are mu/PARAMETER and nu/PARAMETER" : "");
}

static enum octet_status check_tensor(const Octet__V1__PutTensorsRequest *in,
                                      const struct octet_array *array, struct octet_error *err)
{
    struct octet_array given = {.rank = 0};
    char want[200], have[200];

    if ((enum octet_dtype)in->dtype != array->dtype)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "dtype", "%s is %s, not %s", in->name,
                          octet_dtype_name(array->dtype),
                          in->dtype ? octet_dtype_name((enum octet_dtype)in->dtype) : "unset");
    bool same = in->n_shape == (size_t)array->rank;
    given.rank = (int32_t)(in->n_shape > OCTET_ARRAY_RANK_MAX ? OCTET_ARRAY_RANK_MAX : in->n_shape);
    for (int32_t i = 0; i < given.rank; i++) {
        given.dim[i] = in->shape[i];
        same = same && in->shape[i] == array->dim[i];
    }
    if (same)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "shape", "%s has shape %s, not %s", in->name,
                      octet_array_shape_text(array, want, sizeof want),
                      octet_array_shape_text(&given, have, sizeof have));
}

static enum octet_status check_range(const Octet__V1__PutTensorsRequest *in,
                                     const struct octet_array *array, uint64_t received,
                                     struct octet_error *err)
{
    uint64_t whole = (uint64_t)octet_array_bytes(array), offset = (uint64_t)in->offset;
    size_t item = octet_dtype_bytes(array->dtype);

    if (in->offset < 0 || offset > whole || in->data.len > whole - offset)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "offset",
                          "%zu bytes from %" PRId64 " on do not lie in %s, which has %" PRIu64,
                          in->data.len, in->offset, in->name, whole);
    if (offset < received)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "offset",
                          "%" PRId64 " overlaps bytes of %s that came already (%" PRIu64 ")",
                          in->offset, in->name, received);
    if (offset > received)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "offset",
                          "bytes %" PRIu64 " to %" PRId64 " of %s are missing; a tensor's chunks "
                          "come in order",
                          received, in->offset, in->name);
    if (in->data.len % item != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "data",
                          "has %zu bytes, which is no multiple of %s's %zu", in->data.len,
                          octet_dtype_name(array->dtype), item);
    return OCTET_OK;
}

static enum octet_status put_chunk(const struct octet_call *call, octet_held *held,
                                   const Octet__V1__PutTensorsRequest *in, struct upload *upload,
                                   struct octet_error *err)
{
    size_t set, index;
    struct octet_array array;
    const char *name;
    enum octet_status status = find_tensor(held->session, in, &set, &index, err);

    if (status != OCTET_OK)
        return status;
    const octet_parameters *tensors =
        octet_session_tensors(held->session, (enum octet_tensor_set)set);
    octet_parameters_describe(tensors, index, &name, &array);
    status = check_tensor(in, &array, err);
    if (status != OCTET_OK)
        return status;
    if (!upload->received[set])
        upload->received[set] = calloc(octet_parameters_count(tensors), sizeof(uint64_t));
    if (!upload->received[set])
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    uint64_t *received = &upload->received[set][index];
    status = check_range(in, &array, *received ? *received - 1 : 0, err);
    if (status == OCTET_OK && in->data.len) {
        call->exchange->has_changed = true;
        status = octet_session_put(held->session, (enum octet_tensor_set)set, index,
                                   (uint64_t)in->offset, in->data.len, in->data.data, err);
        oct_wire_tell_state(held);
    }
    if (status == OCTET_OK) {
        upload->tensors += *received == 0;
        *received += in->data.len + (*received == 0);
        upload->bytes += (int64_t)in->data.len;
    }
    return status;
}

static enum octet_status check_complete(const octet_held *held, const struct upload *upload,
                                        struct octet_error *err)
{
    struct octet_array array;
    const char *name;

    for (size_t set = 0; set < SETS; set++) {
        const octet_parameters *tensors =
            upload->received[set] ? octet_session_tensors(held->session, (enum octet_tensor_set)set)
                                  : NULL;
        for (size_t i = 0; tensors && i < octet_parameters_count(tensors); i++) {
            octet_parameters_describe(tensors, i, &name, &array);
            uint64_t whole = (uint64_t)octet_array_bytes(&array), named = upload->received[set][i];
            uint64_t got = named ? named - 1 : whole;
            if (got < whole)
                return octet_fail(err, OCTET_INVALID_ARGUMENT, "data",
                                  "the stream ended, but bytes %" PRIu64 " to %" PRIu64
                                  " of %s%s have not come",
                                  got, whole, prefixes[set], name);
        }
    }
    return OCTET_OK;
}

enum octet_status oct_wire_put_tensors(const struct octet_call *call,
                                       const ProtobufCMessage *request, ProtobufCMessage **response,
                                       struct octet_error *err)
{
    const Octet__V1__PutTensorsRequest *in = (const Octet__V1__PutTensorsRequest *)request;
    Octet__V1__PutTensorsResponse *out =
        oct_wire_new(call->arena, &octet__v1__put_tensors_response__descriptor);
    octet_held *held = call->session;
    struct upload *upload = NULL;
    enum octet_status status = OCTET_OK;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    *response = &out->base;
    /* The first chunk names the session; later ones may leave it out. */
    if (in && (in->session_id[0] || !(held && call->exchange && call->exchange->state)))
        status = oct_wire_session(call, in->session_id, &held, err);
    if (status == OCTET_OK)
        status = upload_of(call, &upload, err);
    if (status == OCTET_OK && in)
        status = put_chunk(call, held, in, upload, err);
    if (status == OCTET_OK && !in && held)
        status = check_complete(held, upload, err);
    if (status == OCTET_OK && !in) {
        out->tensors = upload->tensors;
        out->bytes = upload->bytes;
    }
    return status;
}

/* ---- GetTensors ---- */

struct download {
    Octet__V1__TensorKind kind;
    uint64_t chunk_bytes;
    size_t count, at; /* of entries */
    uint64_t offset;  /* in the entry at `at` */
    struct entry {
        uint32_t set, index;
    } entries[];
};

static enum octet_status match(octet_pattern *const *patterns, size_t count, const char *name,
                               bool *is_used, bool *matches, struct octet_error *err)
{
    *matches = count == 0;
    for (size_t i = 0; i < count; i++) {
        bool is_match;
        enum octet_status status = octet_pattern_match(patterns[i], name, &is_match, err);
        if (status != OCTET_OK)
            return octet_error_within(err, "names");
        is_used[i] |= is_match;
        *matches |= is_match;
    }
    return OCTET_OK;
}

static enum octet_status choose(const struct octet_call *call, const octet_session *session,
                                octet_pattern *const *patterns, size_t pattern_count,
                                char *const *texts, struct download *d, struct octet_error *err)
{
    bool *is_used = OCTET_NEW_ARRAY(call->arena, pattern_count, bool);
    size_t first, last;

    if (!is_used)
        return octet_arena_exhausted(call->arena, err);
    sets_of(d->kind, &first, &last);
    for (size_t set = first; set <= last; set++) {
        const octet_parameters *tensors =
            octet_session_tensors(session, (enum octet_tensor_set)set);
        for (size_t i = 0; i < octet_parameters_count(tensors); i++) {
            struct octet_array array;
            const char *name;
            bool matches;
            octet_parameters_describe(tensors, i, &name, &array);
            const char *full = octet_arena_format(call->arena, "%s%s", prefixes[set], name);
            if (!full)
                return octet_arena_exhausted(call->arena, err);
            enum octet_status status = match(patterns, pattern_count, full, is_used, &matches, err);
            if (status != OCTET_OK)
                return status;
            if (matches)
                d->entries[d->count++] = (struct entry){(uint32_t)set, (uint32_t)i};
        }
    }
    for (size_t i = 0; i < pattern_count; i++)
        if (!is_used[i])
            return octet_fail(err, OCTET_NOT_FOUND, "names",
                              "'%.200s' matches no tensor; it must match a whole name", texts[i]);
    return OCTET_OK;
}

static enum octet_status chunk_bytes(const Octet__V1__GetTensorsRequest *in, uint64_t *out,
                                     struct octet_error *err)
{
    if (in->chunk_bytes < 0 || in->chunk_bytes > CHUNK_BYTES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "chunk_bytes",
                          "%" PRId64 " is not in 0 .. %d (0: %d)", in->chunk_bytes, CHUNK_BYTES_MAX,
                          CHUNK_BYTES);
    *out = in->chunk_bytes ? (uint64_t)in->chunk_bytes & ~(uint64_t)7 : CHUNK_BYTES;
    if (*out == 0) /* whole elements */
        *out = 8;
    return OCTET_OK;
}

static enum octet_status start(const struct octet_call *call, const octet_held *held,
                               const Octet__V1__GetTensorsRequest *in, struct octet_error *err)
{
    size_t first, last, made = 0;
    octet_pattern **patterns = OCTET_NEW_ARRAY(call->arena, in->n_names, octet_pattern *);
    struct download *d;
    uint64_t size = 0;
    enum octet_status status = chunk_bytes(in, &size, err);

    if (status != OCTET_OK)
        return status;
    sets_of(in->kind, &first, &last);
    const octet_parameters *tensors =
        octet_session_tensors(held->session, (enum octet_tensor_set)first);
    if (!tensors)
        return no_set(in->kind, err);
    size_t most = octet_parameters_count(tensors) * (last - first + 1);
    d = calloc(1, sizeof *d + most * sizeof *d->entries);
    if (!patterns || !d) {
        free(d);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    d->kind = in->kind;
    d->chunk_bytes = size;
    call->exchange->state = d;
    call->exchange->state_free = free;
    for (; status == OCTET_OK && made < in->n_names; made += status == OCTET_OK) {
        char field[32];
        snprintf(field, sizeof field, "names[%zu]", made);
        status = octet_pattern_create(call->context, in->names[made], &patterns[made], err);
        if (status != OCTET_OK)
            octet_error_within(err, field);
    }
    if (status == OCTET_OK)
        status = choose(call, held->session, patterns, in->n_names, in->names, d, err);
    while (made > 0)
        octet_pattern_destroy(patterns[--made]);
    return status;
}

/* The next chunk. A tensor without elements has one, too. */
static enum octet_status next(const struct octet_call *call, const octet_held *held,
                              struct download *d, Octet__V1__GetTensorsResponse *out,
                              struct octet_error *err)
{
    const struct entry *entry = &d->entries[d->at];
    enum octet_tensor_set set = (enum octet_tensor_set)entry->set;
    struct octet_array array;
    const char *name;

    octet_parameters_describe(octet_session_tensors(held->session, set), entry->index, &name,
                              &array);
    uint64_t left = (uint64_t)octet_array_bytes(&array) - d->offset;
    size_t length = (size_t)(left < d->chunk_bytes ? left : d->chunk_bytes);
    out->session_id = oct_wire_text(call->arena, held->id);
    out->kind = d->kind;
    out->name = octet_arena_format(call->arena, "%s%s", prefixes[set], name);
    out->dtype = (Octet__V1__DataType)array.dtype;
    out->n_shape = (size_t)array.rank;
    out->shape = OCTET_NEW_ARRAY(call->arena, array.rank, int64_t);
    out->offset = (int64_t)d->offset;
    out->data.data = octet_arena_alloc_unset(call->arena, length);
    out->data.len = length;
    if (!out->session_id || !out->name || !out->shape || !out->data.data)
        return octet_arena_exhausted(call->arena, err);
    if (array.rank)
        memcpy(out->shape, array.dim, (size_t)array.rank * sizeof *out->shape);
    d->offset += length;
    if (length == left) {
        d->offset = 0;
        d->at++;
    }
    call->exchange->has_more = d->at < d->count;
    return octet_session_get(held->session, set, entry->index, (uint64_t)out->offset, length,
                             out->data.data, err);
}

enum octet_status oct_wire_get_tensors(const struct octet_call *call,
                                       const ProtobufCMessage *request, ProtobufCMessage **response,
                                       struct octet_error *err)
{
    const Octet__V1__GetTensorsRequest *in = (const Octet__V1__GetTensorsRequest *)request;
    Octet__V1__GetTensorsResponse *out =
        oct_wire_new(call->arena, &octet__v1__get_tensors_response__descriptor);
    octet_held *held = call->session;
    enum octet_status status = OCTET_OK;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    if (in)
        status = oct_wire_session(call, in->session_id, &held, err);
    if (status == OCTET_OK && (!call->exchange || !held))
        status = octet_fail(err, OCTET_INTERNAL, NULL, "the call was given no exchange");
    if (status == OCTET_OK && in && !call->exchange->state)
        status = start(call, held, in, err);
    if (status == OCTET_OK)
        status = next(call, held, call->exchange->state, out, err);
    *response = &out->base;
    return status;
}
