/* The methods on checkpoints. */
#include <stdio.h>
#include <string.h>

#include "wire/convert.h"
#include "wire/held.h"

static enum octet_status put_checkpoint(octet_arena *arena, const struct octet_checkpoint *from,
                                        Octet__V1__Checkpoint *to, struct octet_error *err)
{
    to->name = oct_wire_text(arena, from->name);
    to->digest = oct_wire_text(arena, from->digest);
    to->model = oct_wire_text(arena, from->model);
    if (!to->name || !to->digest || !to->model)
        return octet_arena_exhausted(arena, err);
    to->bytes = from->bytes > INT64_MAX ? INT64_MAX : (int64_t)from->bytes;
    to->step = from->step;
    to->saved_at = from->saved_at;
    return OCTET_OK;
}

/* What Save and Load have in common. */
struct work {
    const struct octet_call *call;
    const char *session_id, *name, *request_id;
    octet_held *held;
    const char *directory;
    const struct oct_wire_applied *before; /* it was applied already */
};

/* Steps do not count here: an id alone says whether the request is new. */
static enum octet_status find_before(struct work *w, const char *method, struct octet_error *err)
{
    const octet_held *held = w->held;

    for (size_t i = 0; w->request_id[0] && i < held->applied_count; i++) {
        const struct oct_wire_applied *a = &held->applied[i];
        if (strcmp(a->id, w->request_id) != 0)
            continue;
        if (strcmp(a->method, method) != 0 || strcmp(a->name, w->name) != 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "request_id",
                              "'%s' was applied already, by %s%s%s; a new request needs an id of "
                              "its own",
                              w->request_id, a->method, a->name[0] ? " of " : "", a->name);
        w->before = a;
    }
    return OCTET_OK;
}

static enum octet_status prepare(struct work *w, const char *method, bool writes,
                                 struct octet_error *err)
{
    const struct octet_call *call = w->call;
    enum octet_status status = oct_wire_session(call, w->session_id, &w->held, err);

    if (status == OCTET_OK)
        status = oct_wire_check_id(w->request_id, err);
    if (status == OCTET_OK)
        status = oct_wire_check_checkpoint(w->name, "name", err);
    if (status == OCTET_OK)
        status = find_before(w, method, err);
    if (status != OCTET_OK || w->before)
        return status;
    if (!call->host)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "checkpoints are kept by a server; there is none here");
    return call->host->directory(call->host->user, writes, &w->directory, err);
}

static void remember(struct work *w, const char *method, const struct octet_checkpoint *checkpoint)
{
    struct oct_wire_applied applied = {
        .step = checkpoint->step,
        .step_after = octet_session_step(w->held->session),
        .bytes = checkpoint->bytes,
        .saved_at = checkpoint->saved_at,
    };

    snprintf(applied.id, sizeof applied.id, "%s", w->request_id);
    snprintf(applied.method, sizeof applied.method, "%s", method);
    snprintf(applied.name, sizeof applied.name, "%s", w->name);
    snprintf(applied.digest, sizeof applied.digest, "%s", checkpoint->digest);
    oct_wire_add_applied(w->held, &applied);
}

static enum octet_status answer(struct work *w, const struct octet_checkpoint *checkpoint,
                                ProtobufCMessage **response, struct octet_error *err)
{
    Octet__V1__Checkpoint *out = oct_wire_new(w->call->arena, &octet__v1__checkpoint__descriptor);

    if (!out)
        return octet_arena_exhausted(w->call->arena, err);
    out->replayed = w->before != NULL;
    *response = &out->base;
    return put_checkpoint(w->call->arena, checkpoint, out, err);
}

static enum octet_status replay(struct work *w, ProtobufCMessage **response,
                                struct octet_error *err)
{
    struct octet_checkpoint checkpoint = {
        .name = w->before->name,
        .step = w->before->step,
        .bytes = w->before->bytes,
        .model = w->held->model,
        .saved_at = w->before->saved_at,
    };

    memcpy(checkpoint.digest, w->before->digest, sizeof checkpoint.digest);
    return answer(w, &checkpoint, response, err);
}

enum octet_status oct_wire_save_checkpoint(const struct octet_call *call,
                                           const ProtobufCMessage *request,
                                           ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__SaveCheckpointRequest *in = (const Octet__V1__SaveCheckpointRequest *)request;
    struct work w = {call, in->session_id, in->name, in->request_id, NULL, NULL, NULL};
    struct octet_checkpoint saved;
    enum octet_status status = prepare(&w, "SaveCheckpoint", true, err);

    if (status != OCTET_OK)
        return status;
    if (w.before)
        return replay(&w, response, err);
    char *note = oct_wire_applied_note(w.held, call->arena);
    if (!note)
        return octet_arena_exhausted(call->arena, err);
    status =
        octet_session_save(w.held->session, w.directory, in->name, note, call->arena, &saved, err);
    if (status != OCTET_OK)
        return status;
    remember(&w, "SaveCheckpoint", &saved);
    if (call->exchange)
        call->exchange->has_changed = true;
    return answer(&w, &saved, response, err);
}

enum octet_status oct_wire_load_checkpoint(const struct octet_call *call,
                                           const ProtobufCMessage *request,
                                           ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__LoadCheckpointRequest *in = (const Octet__V1__LoadCheckpointRequest *)request;
    struct work w = {call, in->session_id, in->name, in->request_id, NULL, NULL, NULL};
    struct octet_checkpoint loaded;
    const char *note;
    enum octet_status status = prepare(&w, "LoadCheckpoint", false, err);

    if (status != OCTET_OK)
        return status;
    if (w.before)
        return replay(&w, response, err);
    if (oct_wire_is_forgotten(w.held, in->request_id))
        return octet_fail(err, OCTET_FAILED_PRECONDITION, "request_id", "'%s' was applied already",
                          in->request_id);
    status = octet_session_load(w.held->session, w.directory, in->name, call->arena, &note, &loaded,
                                err);
    if (status != OCTET_OK)
        return status;
    if (call->exchange)
        call->exchange->has_changed = true;
    oct_wire_read_note(w.held, note); /* what was applied since the checkpoint is no more */
    remember(&w, "LoadCheckpoint", &loaded);
    return answer(&w, &loaded, response, err);
}

static bool is_wanted(const octet_held *held, const struct octet_checkpoint *checkpoint)
{
    return !held || strcmp(held->model, checkpoint->model) == 0;
}

enum octet_status oct_wire_list_checkpoints(const struct octet_call *call,
                                            const ProtobufCMessage *request,
                                            ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__ListCheckpointsRequest *in =
        (const Octet__V1__ListCheckpointsRequest *)request;
    Octet__V1__ListCheckpointsResponse *out =
        oct_wire_new(call->arena, &octet__v1__list_checkpoints_response__descriptor);
    const struct octet_checkpoint *list = NULL;
    octet_held *held = NULL;
    const char *directory;
    ProtobufCMessage **messages;
    size_t count = 0;
    enum octet_status status = OCTET_OK;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    if (in->session_id[0])
        status = oct_wire_session(call, in->session_id, &held, err);
    if (status == OCTET_OK && !call->host)
        status = octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                            "checkpoints are kept by a server; there is none here");
    if (status == OCTET_OK)
        status = call->host->directory(call->host->user, false, &directory, err);
    if (status == OCTET_OK)
        status = octet_checkpoint_list(directory, call->arena, &list, &count, err);
    if (status != OCTET_OK)
        return status;
    if (!oct_wire_new_list(call->arena, &octet__v1__checkpoint__descriptor, count, &messages))
        return octet_arena_exhausted(call->arena, err);
    out->checkpoints = (Octet__V1__Checkpoint **)messages;
    for (size_t i = 0; status == OCTET_OK && i < count; i++)
        if (is_wanted(held, &list[i]))
            status =
                put_checkpoint(call->arena, &list[i], out->checkpoints[out->n_checkpoints++], err);
    *response = &out->base;
    return status;
}
