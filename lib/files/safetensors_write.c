/* Writing safetensors: layout, header, and a file that replaces another in one step.
 *
 * Decision: wide types first and a header padded to 8 bytes, so that every array is aligned where
 * the file is mapped; names in order within a type, so that equal arrays give equal files. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/safetensors_stream.h"
#include "safetensors_private.h"

/* An array and where it goes. */
struct place {
    struct octet_named_array named;
    size_t index; /* as it was given */
    int64_t begin, bytes;
};

struct plan {
    struct place *places; /* in order of the file */
    size_t count;
    struct octet_pair *metadata;
    size_t metadata_count;
};

/* Text that is counted first, then written. */
struct text {
    char *begin; /* NULL: counting */
    size_t used;
};

static int width(const struct octet_array *array)
{
    return array->dtype == OCTET_DTYPE_S4 ? 8 : octet_dtype_bits(array->dtype);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int difference = width(&y->named.array) - width(&x->named.array);

    return difference ? difference : strcmp(x->named.name, y->named.name);
}

static bool is_utf8(const char *text)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text);
    size_t length;

    while ((length = oct_safetensors_utf8(at, end)))
        at += length;
    return at == end;
}

static enum octet_status place_one(const struct octet_named_array *from, size_t index, bool streams,
                                   struct place *out, struct octet_error *err)
{
    const struct octet_array *array = &from->array;

    out->named = *from;
    out->index = index;
    out->bytes = oct_safetensors_bytes(array);
    if (!is_utf8(from->name))
        return oct_safetensors_fail(err, from->name, "", "the name is not UTF-8");
    if (strcmp(from->name, OCT_SAFETENSORS_METADATA) == 0)
        return oct_safetensors_fail(err, from->name, "", "the format keeps this name for itself");
    if (!oct_safetensors_dtype_name(array->dtype))
        return oct_safetensors_fail(err, from->name, "dtype", "the format has no such type");
    if (out->bytes < 0)
        return oct_safetensors_fail(err, from->name, "shape",
                                    "is an odd number of 4-bit elements, which the format cannot "
                                    "hold");
    if (out->bytes == INT64_MAX)
        return oct_safetensors_fail(err, from->name, "shape", "has more bytes than 63 bits count");
    assert(array->data || out->bytes == 0 || streams);
    return OCTET_OK;
}

static enum octet_status set_offsets(struct plan *plan, struct octet_error *err)
{
    int64_t used = 0;

    qsort(plan->places, plan->count, sizeof *plan->places, by_place);
    for (size_t i = 0; i < plan->count; i++) {
        plan->places[i].begin = used;
        if (__builtin_add_overflow(used, plan->places[i].bytes, &used))
            return oct_safetensors_fail(err, plan->places[i].named.name, "shape",
                                        "all arrays together have more bytes than 63 bits count");
    }
    return OCTET_OK;
}

static enum octet_status plan_make(octet_arena *arena, const struct octet_named_array *arrays,
                                   size_t count, const struct octet_pair *metadata,
                                   size_t metadata_count, bool streams, struct plan *out,
                                   struct octet_error *err)
{
    *out = (struct plan){OCTET_NEW_ARRAY(arena, count, struct place), count,
                         OCTET_NEW_ARRAY(arena, metadata_count, struct octet_pair), metadata_count};
    if (!out->places || !out->metadata)
        return octet_arena_exhausted(arena, err);
    for (size_t i = 0; i < count; i++) {
        enum octet_status status = place_one(&arrays[i], i, streams, &out->places[i], err);
        if (status != OCTET_OK)
            return status;
    }
    qsort(out->places, count, sizeof *out->places, oct_safetensors_by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(out->places[i - 1].named.name, out->places[i].named.name) == 0)
            return oct_safetensors_fail(err, out->places[i].named.name, "", "is there twice");
    for (size_t i = 0; i < metadata_count; i++) {
        out->metadata[i] = metadata[i];
        if (!is_utf8(metadata[i].key) || !is_utf8(metadata[i].value))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "metadata",
                              "the %zu-th pair is not UTF-8", i + 1);
    }
    qsort(out->metadata, metadata_count, sizeof *out->metadata, oct_safetensors_by_key);
    for (size_t i = 1; i < metadata_count; i++)
        if (strcmp(out->metadata[i - 1].key, out->metadata[i].key) == 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "metadata",
                              "the key '%.100s' is there twice", out->metadata[i].key);
    return set_offsets(out, err);
}

static void put(struct text *to, const char *text, size_t length)
{
    if (to->begin)
        memcpy(to->begin + to->used, text, length);
    to->used += length;
}

static void put_text(struct text *to, const char *text)
{
    put(to, text, strlen(text));
}

static void put_number(struct text *to, int64_t value)
{
    char digits[24];

    put(to, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, value));
}

static void put_quoted(struct text *to, const char *text)
{
    char escape[8];

    put_text(to, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\')
            put(to, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        else
            put(to, text, 1);
    }
    put_text(to, "\"");
}

static void put_place(struct text *to, const struct place *place)
{
    const struct octet_array *array = &place->named.array;

    put_quoted(to, place->named.name);
    put_text(to, ":{\"dtype\":\"");
    put_text(to, oct_safetensors_dtype_name(array->dtype));
    put_text(to, "\",\"shape\":[");
    for (int32_t i = 0; i < array->rank; i++) {
        put_text(to, i ? "," : "");
        put_number(to, array->dim[i]);
    }
    put_text(to, "],\"data_offsets\":[");
    put_number(to, place->begin);
    put_text(to, ",");
    put_number(to, place->begin + place->bytes);
    put_text(to, "]}");
}

static void put_header(struct text *to, const struct plan *plan)
{
    const char *joint = "{";

    if (plan->metadata_count) {
        put_text(to, "{\"" OCT_SAFETENSORS_METADATA "\":");
        for (size_t i = 0; i < plan->metadata_count; i++) {
            put_text(to, i ? "," : "{");
            put_quoted(to, plan->metadata[i].key);
            put_text(to, ":");
            put_quoted(to, plan->metadata[i].value);
        }
        put_text(to, "}");
        joint = ",";
    }
    for (size_t i = 0; i < plan->count; i++, joint = ",") {
        put_text(to, joint);
        put_place(to, &plan->places[i]);
    }
    put_text(to, *joint == '{' ? "{}" : "}");
    while (to->used % 8)
        put_text(to, " ");
}

/* Length and header: all that stands before the data. */
static enum octet_status make_header(octet_arena *arena, const struct plan *plan, struct text *out,
                                     struct octet_error *err)
{
    struct text count = {0};

    put_header(&count, plan);
    if (count.used > OCT_SAFETENSORS_HEADER_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "header",
                          "would have %zu bytes; the format's limit is %d", count.used,
                          OCT_SAFETENSORS_HEADER_MAX);
    uint64_t length = count.used;
    *out = (struct text){octet_arena_alloc(arena, sizeof length + count.used), 0};
    if (!out->begin)
        return octet_arena_exhausted(arena, err);
    put(out, (const char *)&length, sizeof length);
    put_header(out, plan);
    return OCTET_OK;
}

static bool write_all(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length) {
        ssize_t n = write(fd, at, length < SSIZE_MAX ? length : SSIZE_MAX);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* One value a byte into two a byte, the low half first. */
static void pack_halves(const uint8_t *values, size_t bytes, uint8_t *to)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)((values[2 * i] & 0x0f) | (values[2 * i + 1] & 0x0f) << 4);
}

/* As I8 the sign fills the byte, whatever stood in its upper half. */
static void extend_signs(const uint8_t *values, size_t bytes, uint8_t *to)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(((values[i] & 0x0f) ^ 8) - 8);
}

/* Through a buffer, `each` values a byte of the file. */
static bool write_made(int fd, const uint8_t *values, size_t bytes, size_t each,
                       void (*make)(const uint8_t *values, size_t bytes, uint8_t *to))
{
    uint8_t buffer[16 * 1024];

    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < sizeof buffer ? bytes - done : sizeof buffer;
        make(values + each * done, n, buffer);
        if (!write_all(fd, buffer, n))
            return false;
        done += n;
    }
    return true;
}

static bool write_array(int fd, const struct octet_array *array, size_t bytes)
{
    switch (array->dtype) {
    case OCTET_DTYPE_F4_E2M1FN:
        return write_made(fd, array->data, bytes, 2, pack_halves);
    case OCTET_DTYPE_S4:
        return write_made(fd, array->data, bytes, 1, extend_signs);
    default:
        return write_all(fd, array->data, bytes);
    }
}

static bool write_file(int fd, const struct text *header, const struct plan *plan)
{
    bool good = write_all(fd, header->begin, header->used);

    for (size_t i = 0; good && i < plan->count; i++)
        good = write_array(fd, &plan->places[i].named.array, (size_t)plan->places[i].bytes);
    return good && fsync(fd) == 0;
}

/* ---- Streams ---- */

static bool stream_bytes(int fd, const struct oct_safetensors_stream *stream, const void *bytes,
                         size_t length)
{
    stream->on_bytes(stream->user, bytes, length);
    return write_all(fd, bytes, length);
}

static bool stream_array(int fd, const struct place *place,
                         const struct oct_safetensors_stream *stream, char *buffer,
                         size_t buffer_bytes)
{
    for (size_t done = 0, all = (size_t)place->bytes; done < all;) {
        size_t n = all - done < buffer_bytes ? all - done : buffer_bytes;
        stream->fill(stream->user, place->index, done, n, buffer);
        if (!stream_bytes(fd, stream, buffer, n))
            return false;
        done += n;
    }
    return true;
}

enum octet_status oct_safetensors_stream(octet_arena *arena, int fd, const char *path,
                                         const struct octet_named_array *arrays, size_t count,
                                         const struct oct_safetensors_stream *stream,
                                         struct octet_error *err)
{
    enum { BUFFER_BYTES = 1 << 20 };
    struct plan plan;
    struct text header;
    char *buffer = octet_arena_alloc_unset(arena, BUFFER_BYTES);
    enum octet_status status;

    if (!buffer)
        return octet_arena_exhausted(arena, err);
    if ((status = plan_make(arena, arrays, count, NULL, 0, true, &plan, err)) ||
        (status = make_header(arena, &plan, &header, err)))
        return status;
    bool good = stream_bytes(fd, stream, header.begin, header.used);
    for (size_t i = 0; good && i < plan.count; i++)
        good = stream_array(fd, &plan.places[i], stream, buffer, BUFFER_BYTES);
    return good && fsync(fd) == 0 ? OCTET_OK : oct_file_fail(path, "write", err);
}

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EFBIG;
}

static enum octet_status fail_path(const char *path, struct octet_error *err)
{
    enum octet_status status = errno == EACCES || errno == EPERM || errno == EROFS
                                   ? OCTET_PERMISSION_DENIED
                               : is_full(errno) ? OCTET_RESOURCE_EXHAUSTED
                                                : OCTET_INVALID_ARGUMENT;

    return octet_fail(err, status, "path", "cannot write '%s': %s", path, strerror(errno));
}

enum octet_status oct_file_fail(const char *path, const char *verb, struct octet_error *err)
{
    int error = errno;

    return octet_fail(err, is_full(error) ? OCTET_RESOURCE_EXHAUSTED : OCTET_FAILED_PRECONDITION,
                      NULL, "cannot %s '%s' as user %ld: %s", verb, path, (long)geteuid(),
                      strerror(error));
}

/* The name's own durability; a file system that cannot promise it is no reason to fail. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 1;

    snprintf(folder, sizeof folder, "%.*s", length, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
}

/* A new file beside `path`. The umask decides on its mode, as for any file; mkstemp's would not. */
static int open_temporary(octet_arena *arena, const char *path, char **name)
{
    enum { ATTEMPTS = 100 };

    for (int i = 0; i < ATTEMPTS; i++) {
        *name = octet_arena_format(arena, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        if (!*name) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Through a symbolic link to the file that it means; a device or folder is left alone. */
static enum octet_status find_target(octet_arena *arena, const char **path, struct octet_error *err)
{
    char real[PATH_MAX];
    struct stat about;

    if (stat(*path, &about) != 0)
        return OCTET_OK;
    if (!S_ISREG(about.st_mode))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "path",
                          "cannot write '%s': it is there and not a regular file", *path);
    if (!realpath(*path, real))
        return fail_path(*path, err);
    const char *copy = octet_arena_copy(arena, real, strlen(real));
    if (!copy)
        return octet_arena_exhausted(arena, err);
    *path = copy;
    return OCTET_OK;
}

enum octet_status octet_safetensors_write(octet_arena *arena, const char *path,
                                          const struct octet_named_array *arrays, size_t count,
                                          const struct octet_pair *metadata, size_t metadata_count,
                                          struct octet_error *err)
{
    struct plan plan;
    struct text header;
    const char *target = path;
    char *temporary;
    enum octet_status status;

    if ((status = plan_make(arena, arrays, count, metadata, metadata_count, false, &plan, err)) ||
        (status = make_header(arena, &plan, &header, err)) ||
        (status = find_target(arena, &target, err)))
        return status;
    int fd = open_temporary(arena, target, &temporary);
    if (fd < 0)
        return fail_path(path, err);
    bool written = write_file(fd, &header, &plan);
    if (!written)
        status = fail_path(path, err);
    if (close(fd) != 0 && written)
        status = fail_path(path, err);
    if (status == OCTET_OK && rename(temporary, target) != 0)
        status = fail_path(path, err);
    if (status != OCTET_OK)
        unlink(temporary);
    else
        sync_folder(target);
    return status;
}
