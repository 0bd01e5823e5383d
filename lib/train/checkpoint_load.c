/* Loading checkpoints, and listing them; see octet/session.h.
 *
 * Decision: the tensor file is mapped and hashed whole before anything of the session changes; what
 * can fail comes first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "files/safetensors_stream.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/manifest.h"

/* ---- Opening ---- */

/* A checkpoint that is read: the manifest, and the tensor file mapped. */
struct opened {
    struct oct_manifest manifest;
    const char *path; /* of the tensors */
    int fd;
    void *bytes; /* NULL: not mapped */
};

static enum octet_status open_tensors(const char *directory, octet_arena *arena, struct opened *o,
                                      struct octet_error *err)
{
    o->path = octet_arena_format(arena, "%s/%s", directory, o->manifest.file);
    if (!o->path)
        return octet_arena_exhausted(arena, err);
    o->fd = open(o->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (o->fd >= 0)
        return OCTET_OK;
    if (errno == ENOENT)
        return octet_fail(err, OCTET_DATA_LOSS, NULL, "the checkpoint's tensor file '%s' is gone",
                          o->path);
    return oct_file_fail(o->path, "read", err);
}

static enum octet_status read_manifest(const char *directory, const char *name, octet_arena *arena,
                                       struct oct_manifest *out, struct octet_error *err)
{
    const char *path = octet_arena_format(arena, "%s/%s.json", directory, name), *text;
    size_t length;

    if (!path)
        return octet_arena_exhausted(arena, err);
    enum octet_status status =
        oct_file_read(path, OCT_MANIFEST_BYTES_MAX, arena, &text, &length, err);
    if (status == OCTET_NOT_FOUND)
        return octet_fail(err, status, "name", "there is no checkpoint '%.100s'", name);
    return status == OCTET_OK ? oct_manifest_read(path, text, length, arena, out, err) : status;
}

/* Both files under one lock, so that a save cannot come between. */
static enum octet_status open_both(const char *directory, const char *name, octet_arena *arena,
                                   struct opened *o, struct octet_error *err)
{
    int folder = oct_folder_lock(directory, false);
    enum octet_status status = read_manifest(directory, name, arena, &o->manifest, err);

    if (status == OCTET_OK)
        status = open_tensors(directory, arena, o, err);
    oct_folder_unlock(folder);
    return status;
}

static enum octet_status lose(const struct opened *o, struct octet_error *err, const char *what)
{
    return octet_fail(err, OCTET_DATA_LOSS, NULL, "the checkpoint's tensor file '%s' %s", o->path,
                      what);
}

static bool digest_fits(const struct opened *o)
{
    XXH128_canonical_t digest;
    char text[33];

    XXH128_canonicalFromHash(&digest, XXH3_128bits(o->bytes, o->manifest.bytes));
    for (size_t k = 0; k < sizeof digest.digest; k++)
        snprintf(text + 2 * k, 3, "%02x", digest.digest[k]);
    return strcmp(text, o->manifest.digest) == 0;
}

static enum octet_status map_tensors(struct opened *o, struct octet_error *err)
{
    struct stat about;

    if (fstat(o->fd, &about) != 0)
        return oct_file_fail(o->path, "read", err);
    if (!S_ISREG(about.st_mode) || (uint64_t)about.st_size != o->manifest.bytes || !about.st_size)
        return octet_fail(err, OCTET_DATA_LOSS, NULL,
                          "the checkpoint's tensor file '%s' has %lld bytes; its manifest says "
                          "%" PRIu64,
                          o->path, (long long)about.st_size, o->manifest.bytes);
    void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, o->fd, 0);
    if (bytes == MAP_FAILED)
        return oct_file_fail(o->path, "map", err);
    o->bytes = bytes;
    return digest_fits(o) ? OCTET_OK : lose(o, err, "does not fit its checksum");
}

static void close_both(struct opened *o)
{
    if (o->bytes)
        munmap(o->bytes, o->manifest.bytes);
    if (o->fd >= 0)
        close(o->fd);
}

/* ---- Into a session ---- */

static bool same_shape(const struct octet_array *a, const struct octet_array *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* What the session needs is there, and no parameter that it has not. */
static enum octet_status check_arrays(const octet_safetensors *file,
                                      const struct octet_named_array *arrays, size_t count,
                                      size_t parameters, struct octet_error *err)
{
    char one[128], other[128];

    for (size_t i = 0; i < count; i++) {
        const struct octet_named_array *saved = octet_safetensors_find(file, arrays[i].name);
        if (!saved)
            return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                              "the checkpoint is of another model: it has no '%s'", arrays[i].name);
        if (!same_shape(&saved->array, &arrays[i].array))
            return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                              "the checkpoint is of another model: '%s' is %s %s there and %s %s "
                              "here",
                              arrays[i].name, octet_dtype_name(saved->array.dtype),
                              octet_array_shape_text(&saved->array, one, sizeof one),
                              octet_dtype_name(arrays[i].array.dtype),
                              octet_array_shape_text(&arrays[i].array, other, sizeof other));
    }
    for (size_t i = 0; i < octet_safetensors_count(file); i++) {
        const char *name = octet_safetensors_get(file, i)->name;
        size_t k = 0;
        if (strncmp(name, "optimizer.", 10) == 0 || strncmp(name, "gradient/", 9) == 0 ||
            strncmp(name, "router_load/", 12) == 0)
            continue;
        while (k < parameters && strcmp(arrays[k].name, name) != 0)
            k++;
        if (k == parameters)
            return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                              "the checkpoint is of another model: it has '%s'", name);
    }
    return OCTET_OK;
}

/* Sizes have been checked, so a failure would be a fault of the program. */
static enum octet_status take_arrays(octet_session *session, const octet_safetensors *file,
                                     const struct octet_named_array *arrays,
                                     const struct oct_saved *saved, size_t count,
                                     struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < count && status == OCTET_OK; i++) {
        const struct octet_array *from = &octet_safetensors_find(file, arrays[i].name)->array;
        uint64_t bytes = (uint64_t)octet_array_bytes(from);
        if (saved[i].is_load)
            memcpy(session->loads[saved[i].index], from->data, bytes);
        else
            status = octet_parameters_write(oct_session_set(session, saved[i].set), saved[i].index,
                                            0, bytes, from->data, err);
    }
    return status;
}

static void clear_training(octet_session *s)
{
    octet_parameters_clear(s->mu);
    octet_parameters_clear(s->nu);
    for (size_t i = 0; i < s->parameters->count; i++)
        if (s->loads[i])
            memset(s->loads[i], 0, oct_parameters_elements(s->parameters, i) * sizeof *s->loads[i]);
}

static enum octet_status take(octet_session *session, const struct opened *o, octet_arena *arena,
                              struct octet_error *err)
{
    const octet_safetensors *file;
    struct octet_named_array *arrays;
    struct oct_saved *saved;
    size_t count;
    struct octet_error why;
    bool trains = session->options.mode == OCTET_SESSION_TRAIN;
    enum octet_status status =
        octet_safetensors_parse(arena, o->bytes, o->manifest.bytes, &file, &why);

    if (status == OCTET_RESOURCE_EXHAUSTED)
        return octet_fail(err, status, NULL, "%s", why.text);
    if (status != OCTET_OK)
        return lose(o, err, "is no safetensors file");
    bool moments = trains && strcmp(o->manifest.mode, "TRAIN") == 0;
    bool gradients = moments && o->manifest.accumulated > 0;
    status =
        oct_checkpoint_arrays(session, moments, gradients, arena, &arrays, &saved, &count, err);
    if (status == OCTET_OK)
        status = check_arrays(file, arrays, count, session->parameters->count, err);
    if (status == OCTET_OK && session->prepared)
        status = oct_session_release(session, true, err);
    if (status != OCTET_OK)
        return status;
    if (trains)
        clear_training(session);
    status = take_arrays(session, file, arrays, saved, count, err);
    session->grad_norm = (double)NAN;
    session->step = o->manifest.step;
    session->accumulated = gradients ? o->manifest.accumulated : 0;
    return status;
}

static enum octet_status copy_text(octet_arena *arena, const char *from, const char **to,
                                   struct octet_error *err)
{
    *to = from ? octet_arena_copy(arena, from, strlen(from)) : NULL;
    return from && !*to ? octet_arena_exhausted(arena, err) : OCTET_OK;
}

/* What the caller keeps of a manifest. */
static enum octet_status tell(const struct oct_manifest *m, const char *name, octet_arena *arena,
                              const char **note, struct octet_checkpoint *out,
                              struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (out) {
        *out =
            (struct octet_checkpoint){.step = m->step, .bytes = m->bytes, .saved_at = m->saved_at};
        memcpy(out->digest, m->digest, sizeof out->digest);
        if ((status = copy_text(arena, name, &out->name, err)) == OCTET_OK)
            status = copy_text(arena, m->model_name, &out->model, err);
    }
    return status == OCTET_OK && note ? copy_text(arena, m->note, note, err) : status;
}

/* The checkpoint, opened and verified, to be closed. */
static enum octet_status open_checkpoint(const char *directory, const char *name,
                                         octet_arena *scratch, struct opened *o,
                                         struct octet_error *err)
{
    *o = (struct opened){.fd = -1};
    enum octet_status status = oct_checkpoint_name_check(name, err);
    if (status == OCTET_OK)
        status = open_both(directory, name, scratch, o, err);
    if (status == OCTET_OK)
        status = map_tensors(o, err);
    return status;
}

enum octet_status octet_session_load(octet_session *session, const char *directory,
                                     const char *name, octet_arena *arena, const char **note,
                                     struct octet_checkpoint *out, struct octet_error *err)
{
    octet_arena *scratch = octet_arena_create_within(arena);
    struct opened o;

    if (!scratch)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = open_checkpoint(directory, name, scratch, &o, err);
    if (status == OCTET_OK)
        status = tell(&o.manifest, name, arena, note, out, err);
    if (status == OCTET_OK)
        status = take(session, &o, scratch, err);
    close_both(&o);
    octet_arena_destroy(scratch);
    return status;
}

/* A session for the manifest's model. */
static enum octet_status create_for(octet_context *context, const struct oct_manifest *m,
                                    const struct octet_session_options *options,
                                    octet_session **out, struct octet_error *err)
{
    octet_rules *rules = NULL;
    enum octet_status status =
        m->rules ? octet_rules_parse(context, m->rules, strlen(m->rules), &rules, err) : OCTET_OK;

    if (status == OCTET_OK)
        status = octet_session_create(context, &m->input, rules, options, out, err);
    octet_rules_unref(rules);
    return status;
}

enum octet_status octet_session_restore(octet_context *context, const char *directory,
                                        const char *name,
                                        const struct octet_session_options *options,
                                        octet_arena *arena, const char **note, octet_session **out,
                                        struct octet_error *err)
{
    octet_arena *scratch = octet_arena_create_within(arena);
    octet_session *session = NULL;
    struct opened o;

    if (!scratch)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = open_checkpoint(directory, name, scratch, &o, err);
    if (status == OCTET_OK)
        status = create_for(context, &o.manifest, options, &session, err);
    if (status == OCTET_OK)
        status = take(session, &o, scratch, err);
    if (status == OCTET_OK)
        status = tell(&o.manifest, name, arena, note, NULL, err);
    if (status == OCTET_OK)
        *out = session;
    else
        octet_session_destroy(session);
    close_both(&o);
    octet_arena_destroy(scratch);
    return status;
}

/* ---- Lists ---- */

/* The checkpoint's name when the entry is a manifest's. */
static bool name_of(const char *entry, char name[256])
{
    size_t length = strlen(entry);

    if (length <= 5 || length >= 256 || strcmp(entry + length - 5, ".json") != 0)
        return false;
    memcpy(name, entry, length - 5);
    name[length - 5] = '\0';
    return oct_checkpoint_name_check(name, NULL) == OCTET_OK;
}

static size_t count_manifests(DIR *entries)
{
    const struct dirent *entry;
    char name[256];
    size_t count = 0;

    while ((entry = readdir(entries)) != NULL)
        count += name_of(entry->d_name, name);
    rewinddir(entries);
    return count;
}

static int by_name(const void *a, const void *b)
{
    const struct octet_checkpoint *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Other programs' JSON, and what is damaged, is left out. */
static enum octet_status list_one(const char *directory, const char *name, octet_arena *arena,
                                  struct octet_checkpoint *out, bool *listed,
                                  struct octet_error *err)
{
    octet_arena *scratch = octet_arena_create_within(arena);
    struct oct_manifest manifest;

    *listed = false;
    if (!scratch)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = read_manifest(directory, name, scratch, &manifest, err);
    if (status == OCTET_OK) {
        status = tell(&manifest, name, arena, NULL, out, err);
        *listed = true;
    } else if (status != OCTET_RESOURCE_EXHAUSTED) {
        status = OCTET_OK;
    }
    octet_arena_destroy(scratch);
    return status;
}

static enum octet_status list_all(const char *directory, DIR *entries, octet_arena *arena,
                                  const struct octet_checkpoint **out, size_t *count,
                                  struct octet_error *err)
{
    size_t most = count_manifests(entries);
    struct octet_checkpoint *list = OCTET_NEW_ARRAY(arena, most, struct octet_checkpoint);
    const struct dirent *entry;
    enum octet_status status = OCTET_OK;
    char name[256];

    *count = 0;
    if (!list)
        return octet_arena_exhausted(arena, err);
    while (status == OCTET_OK && *count < most && (entry = readdir(entries)) != NULL) {
        bool listed = false;
        if (name_of(entry->d_name, name))
            status = list_one(directory, name, arena, &list[*count], &listed, err);
        *count += listed;
    }
    if (*count)
        qsort(list, *count, sizeof *list, by_name);
    *out = list;
    return status;
}

enum octet_status octet_checkpoint_list(const char *directory, octet_arena *arena,
                                        const struct octet_checkpoint **out, size_t *count,
                                        struct octet_error *err)
{
    DIR *entries = opendir(directory);

    if (!entries)
        return oct_file_fail(directory, "open folder", err);
    enum octet_status status = list_all(directory, entries, arena, out, count, err);
    closedir(entries);
    return status;
}
