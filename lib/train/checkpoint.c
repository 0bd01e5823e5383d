/* Saving a session; see octet/session.h. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "files/safetensors_stream.h"
#include "models/settings.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/manifest.h"

/* ---- Which arrays ---- */

struct listing {
    const octet_session *session;
    octet_arena *arena;
    struct octet_named_array *arrays;
    struct oct_saved *saved;
    size_t count;
};

static enum octet_status list_one(struct listing *l, const char *prefix, enum octet_tensor_set set,
                                  size_t i, bool is_load, struct octet_error *err)
{
    struct octet_named_array *to = &l->arrays[l->count];
    const char *name;

    octet_parameters_describe(oct_session_set(l->session, set), i, &name, &to->array);
    to->name = octet_arena_format(l->arena, "%s%s", prefix, name);
    if (!to->name)
        return octet_arena_exhausted(l->arena, err);
    if (is_load)
        to->array = (struct octet_array){
            .dtype = OCTET_DTYPE_S64,
            .rank = 1,
            .dim = {(int64_t)oct_parameters_elements(l->session->parameters, i)}};
    l->saved[l->count++] = (struct oct_saved){set, i, is_load};
    return OCTET_OK;
}

static enum octet_status list_set(struct listing *l, const char *prefix, enum octet_tensor_set set,
                                  struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < l->session->parameters->count && status == OCTET_OK; i++)
        status = list_one(l, prefix, set, i, false, err);
    return status;
}

enum octet_status oct_checkpoint_arrays(const octet_session *session, bool moments, bool gradients,
                                        octet_arena *arena, struct octet_named_array **arrays,
                                        struct oct_saved **saved, size_t *count,
                                        struct octet_error *err)
{
    size_t most = 5 * session->parameters->count; /* parameters, moments, gradients, loads */
    struct listing l = {session, arena, OCTET_NEW_ARRAY(arena, most, struct octet_named_array),
                        OCTET_NEW_ARRAY(arena, most, struct oct_saved), 0};

    if (!l.arrays || !l.saved)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = list_set(&l, "", OCTET_SET_PARAMETER, err);
    if (status == OCTET_OK && moments)
        status = list_set(&l, OCT_CHECKPOINT_MU, OCTET_SET_OPTIMIZER_MU, err);
    if (status == OCTET_OK && moments)
        status = list_set(&l, "optimizer.nu/", OCTET_SET_OPTIMIZER_NU, err);
    if (status == OCTET_OK && gradients)
        status = list_set(&l, "gradient/", OCTET_SET_GRADIENT, err);
    for (size_t i = 0; gradients && i < session->parameters->count && status == OCTET_OK; i++)
        if (session->loads[i])
            status = list_one(&l, "router_load/", OCTET_SET_PARAMETER, i, true, err);
    *arrays = l.arrays;
    *saved = l.saved;
    *count = l.count;
    return status;
}

/* ---- Tensors ---- */

/* A tensor file under way. */
struct writing {
    const octet_session *session;
    const struct oct_saved *saved;
    XXH3_state_t *hash;
    uint64_t bytes;
    enum octet_status status; /* the first failure */
    struct octet_error *err;
};

static void fill(void *user, size_t array, uint64_t offset, size_t size, void *to)
{
    struct writing *w = user;
    const struct oct_saved *saved = &w->saved[array];

    if (saved->is_load)
        memcpy(to, (const char *)w->session->loads[saved->index] + offset, size);
    else if (w->status == OCTET_OK)
        w->status =
            octet_session_get(w->session, saved->set, saved->index, offset, size, to, w->err);
}

static void on_bytes(void *user, const void *bytes, size_t size)
{
    struct writing *w = user;

    XXH3_128bits_update(w->hash, bytes, size);
    w->bytes += size;
}

static enum octet_status write_tensors(const octet_session *session, int fd, const char *path,
                                       octet_arena *arena, struct oct_manifest *manifest,
                                       struct octet_error *err)
{
    _Alignas(64) XXH3_state_t hash;
    struct octet_named_array *arrays;
    struct oct_saved *saved;
    size_t count;
    XXH128_canonical_t digest;
    bool trains = session->options.mode == OCTET_SESSION_TRAIN;
    enum octet_status status = oct_checkpoint_arrays(
        session, trains, trains && session->accumulated, arena, &arrays, &saved, &count, err);

    if (status != OCTET_OK)
        return status;
    XXH3_INITSTATE(&hash);
    XXH3_128bits_reset(&hash);
    struct writing w = {session, saved, &hash, 0, OCTET_OK, err};
    struct oct_safetensors_stream stream = {fill, on_bytes, &w};
    status = oct_safetensors_stream(arena, fd, path, arrays, count, &stream, err);
    if (w.status != OCTET_OK)
        return w.status;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    for (size_t k = 0; k < sizeof digest.digest; k++)
        snprintf(manifest->digest + 2 * k, 3, "%02x", digest.digest[k]);
    manifest->bytes = w.bytes;
    return status;
}

/* ---- Save ---- */

static enum octet_status describe(const octet_session *session, const char *name, const char *note,
                                  octet_arena *arena, struct oct_manifest *m,
                                  struct octet_error *err)
{
    m->mode = session->options.mode == OCTET_SESSION_TRAIN ? "TRAIN" : "INFER";
    m->accumulation = octet_accumulation_name(session->options.accumulation);
    m->step = session->step;
    m->accumulated = session->accumulated;
    m->saved_at = (int64_t)time(NULL);
    m->model_name = octet_config_model_name(session->config);
    m->input = session->input;
    m->note = note;
    m->file = octet_arena_format(arena, "%s-%.16s.safetensors", name, m->digest);
    if (!m->file)
        return octet_arena_exhausted(arena, err);
    return session->rules ? oct_rules_write(session->rules, arena, &m->rules, err) : OCTET_OK;
}

static enum octet_status tell(const struct oct_manifest *m, const char *name, octet_arena *arena,
                              struct octet_checkpoint *out, struct octet_error *err)
{
    *out = (struct octet_checkpoint){
        .name = octet_arena_copy(arena, name, strlen(name)),
        .step = m->step,
        .bytes = m->bytes,
        .model = octet_arena_copy(arena, m->model_name, strlen(m->model_name)),
        .saved_at = m->saved_at};
    memcpy(out->digest, m->digest, sizeof out->digest);
    return out->name && out->model ? OCTET_OK : octet_arena_exhausted(arena, err);
}

static enum octet_status save_in(const octet_session *session, const char *directory,
                                 const char *name, const char *note, octet_arena *scratch,
                                 struct oct_manifest *m, struct octet_error *err)
{
    const char *temporary, *text;
    size_t length;
    int fd;
    enum octet_status status = oct_temporary_create(directory, name, scratch, &fd, &temporary, err);

    if (status != OCTET_OK)
        return status;
    if ((status = write_tensors(session, fd, temporary, scratch, m, err)) == OCTET_OK &&
        (status = describe(session, name, note, scratch, m, err)) == OCTET_OK &&
        (status = oct_manifest_write(m, scratch, &text, &length, err)) == OCTET_OK)
        status =
            oct_checkpoint_replace(directory, name, temporary, m->file, text, length, scratch, err);
    if (status != OCTET_OK)
        unlink(temporary);
    close(fd); /* not before: its lock keeps others from removing it */
    return status;
}

enum octet_status octet_session_save(const octet_session *session, const char *directory,
                                     const char *name, const char *note, octet_arena *arena,
                                     struct octet_checkpoint *out, struct octet_error *err)
{
    struct oct_manifest manifest = {.step = 0};
    enum octet_status status = oct_checkpoint_name_check(name, err);

    if (status != OCTET_OK)
        return status;
    octet_arena *scratch = octet_arena_create_within(arena);
    if (!scratch)
        return octet_arena_exhausted(arena, err);
    status = save_in(session, directory, name, note, scratch, &manifest, err);
    if (status == OCTET_OK)
        status = tell(&manifest, name, arena, out, err);
    octet_arena_destroy(scratch);
    return status;
}
