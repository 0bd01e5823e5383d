/* Reading safetensors: spans, views, mapped files; the header's grammar is in safetensors_header.c.
 *
 * Decision: a file with one tensor of a type that Octet does not know is refused as a whole. To
 * accept it would need an array without a type, which every user of arrays had to look out for. */
#include "octet/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors_private.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "arrays are views of little-endian files");

struct octet_safetensors {
    struct oct_safetensors_header header; /* its lists sorted */
    void *mapped;                         /* NULL: parsed from the caller's bytes */
    size_t mapped_bytes;
};

static int by_span(const void *a, const void *b)
{
    const struct oct_safetensors_entry *x = a, *y = b;

    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->end > y->end) - (x->end < y->end);
}

/* Sorted by span, each begins where the one before it ended, and the last ends with the file. */
static enum octet_status check_spans(struct oct_safetensors_header *header, int64_t data_bytes,
                                     struct octet_error *err)
{
    int64_t reached = 0;

    qsort(header->entries, header->count, sizeof *header->entries, by_span);
    for (size_t i = 0; i < header->count; i++) {
        const struct oct_safetensors_entry *entry = &header->entries[i];
        if (entry->end > data_bytes)
            return oct_safetensors_fail(err, entry->named.name, "data_offsets",
                                        "[%" PRId64 ", %" PRId64
                                        "] ends behind the file's data, which has %" PRId64
                                        " bytes",
                                        entry->begin, entry->end, data_bytes);
        if (entry->begin != reached)
            return oct_safetensors_fail(
                err, entry->named.name, "data_offsets",
                "[%" PRId64 ", %" PRId64 "] %s %" PRId64 ", where the tensor before it ends",
                entry->begin, entry->end,
                entry->begin < reached ? "begins before byte" : "leaves a hole behind byte",
                reached);
        reached = entry->end;
    }
    if (reached != data_bytes)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "header",
                          "the tensors end at byte %" PRId64 " of the data, which has %" PRId64
                          " bytes",
                          reached, data_bytes);
    return OCTET_OK;
}

static enum octet_status sort_names(struct oct_safetensors_header *header, struct octet_error *err)
{
    struct octet_pair *pairs = header->metadata;
    struct oct_safetensors_entry *entries = header->entries;

    qsort(entries, header->count, sizeof *entries, oct_safetensors_by_name);
    for (size_t i = 1; i < header->count; i++)
        if (strcmp(entries[i - 1].named.name, entries[i].named.name) == 0)
            return oct_safetensors_fail(err, entries[i].named.name, "", "is there twice");
    qsort(pairs, header->metadata_count, sizeof *pairs, oct_safetensors_by_key);
    for (size_t i = 1; i < header->metadata_count; i++)
        if (strcmp(pairs[i - 1].key, pairs[i].key) == 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "metadata",
                              "the key '%.100s' is there twice", pairs[i].key);
    return OCTET_OK;
}

/* Two values a byte, the low half first, into one a byte. */
static void unpack_nibbles(const uint8_t *from, size_t bytes, uint8_t *to)
{
    for (size_t i = 0; i < bytes; i++) {
        to[2 * i] = from[i] & 0x0f;
        to[2 * i + 1] = from[i] >> 4;
    }
}

/* A view where the file's bytes can be used as they are, else a copy. */
static enum octet_status set_data(octet_arena *arena, struct oct_safetensors_entry *entry,
                                  const uint8_t *data, struct octet_error *err)
{
    struct octet_array *array = &entry->named.array;
    const uint8_t *from = data + entry->begin;
    size_t bytes = (size_t)(entry->end - entry->begin);
    bool packed = array->dtype == OCTET_DTYPE_F4_E2M1FN;

    if (!packed && (uintptr_t)from % octet_dtype_bytes(array->dtype) == 0) {
        array->data = (void *)(uintptr_t)from; /* read-only by agreement */
        return OCTET_OK;
    }
    array->data = octet_arena_array(arena, bytes, packed ? 2 : 1);
    if (!array->data)
        return octet_arena_exhausted(arena, err);
    if (packed)
        unpack_nibbles(from, bytes, array->data);
    else if (bytes)
        memcpy(array->data, from, bytes);
    return OCTET_OK;
}

enum octet_status octet_safetensors_parse(octet_arena *arena, const void *bytes, size_t length,
                                          const octet_safetensors **out, struct octet_error *err)
{
    const uint8_t *begin = bytes;
    uint64_t header_bytes;

    if (length < OCT_SAFETENSORS_PREFIX_BYTES)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "header",
                          "%zu bytes are no safetensors file, which begins with its header's "
                          "length in 8 bytes",
                          length);
    memcpy(&header_bytes, begin, sizeof header_bytes);
    if (header_bytes > OCT_SAFETENSORS_HEADER_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "header",
                          "its length of %" PRIu64
                          " bytes is above the format's limit of %d; is this a "
                          "safetensors file?",
                          header_bytes, OCT_SAFETENSORS_HEADER_MAX);
    if (header_bytes > length - OCT_SAFETENSORS_PREFIX_BYTES)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "header",
                          "its length of %" PRIu64
                          " bytes is more than the %zu that follow; the file is "
                          "cut, or no safetensors file",
                          header_bytes, length - OCT_SAFETENSORS_PREFIX_BYTES);
    octet_safetensors *file = OCTET_NEW(arena, octet_safetensors);
    if (!file)
        return octet_arena_exhausted(arena, err);
    const uint8_t *data = begin + OCT_SAFETENSORS_PREFIX_BYTES + header_bytes;
    enum octet_status status = oct_safetensors_header_read(
        arena, begin + OCT_SAFETENSORS_PREFIX_BYTES, (size_t)header_bytes, &file->header, err);
    if (status == OCTET_OK)
        status = check_spans(&file->header, begin + length - data, err);
    if (status == OCTET_OK)
        status = sort_names(&file->header, err);
    for (size_t i = 0; status == OCTET_OK && i < file->header.count; i++)
        status = set_data(arena, &file->header.entries[i], data, err);
    if (status == OCTET_OK)
        *out = file;
    return status;
}

static enum octet_status fail_path(const char *path, int error, struct octet_error *err)
{
    enum octet_status status = error == ENOENT || error == ENOTDIR ? OCTET_NOT_FOUND
                               : error == EACCES || error == EPERM ? OCTET_PERMISSION_DENIED
                               : error == ENOMEM                   ? OCTET_RESOURCE_EXHAUSTED
                                                                   : OCTET_INVALID_ARGUMENT;

    return octet_fail(err, status, "path", "cannot read '%s': %s", path, strerror(error));
}

enum octet_status octet_safetensors_open(octet_arena *arena, const char *path,
                                         const octet_safetensors **out, struct octet_error *err)
{
    enum octet_status status;
    const octet_safetensors *file;
    void *mapped = MAP_FAILED;
    struct stat about = {0};

    /* Not blocking: a pipe is no such file, and must not hold the caller until it is one. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &about) != 0) {
        status = fail_path(path, errno, err);
        goto done;
    }
    if (!S_ISREG(about.st_mode)) {
        status =
            octet_fail(err, OCTET_INVALID_ARGUMENT, "path", "'%s' is not a regular file", path);
        goto done;
    }
    if (about.st_size == 0) { /* cannot be mapped */
        status = octet_safetensors_parse(arena, "", 0, &file, err);
        goto done;
    }
    mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
        status = fail_path(path, errno, err);
        goto done;
    }
    status = octet_safetensors_parse(arena, mapped, (size_t)about.st_size, &file, err);
    if (status != OCTET_OK) {
        munmap(mapped, (size_t)about.st_size);
        goto done;
    }
    octet_safetensors *own =
        (octet_safetensors *)(uintptr_t)file; /* made above, shared by nobody */
    own->mapped = mapped;
    own->mapped_bytes = (size_t)about.st_size;
    *out = own;
done:
    if (fd >= 0)
        close(fd);
    return status;
}

void octet_safetensors_close(const octet_safetensors *file)
{
    if (file && file->mapped)
        munmap(file->mapped, file->mapped_bytes);
}

size_t octet_safetensors_count(const octet_safetensors *file)
{
    return file->header.count;
}

const struct octet_named_array *octet_safetensors_get(const octet_safetensors *file, size_t i)
{
    return i < file->header.count ? &file->header.entries[i].named : NULL;
}

const struct octet_named_array *octet_safetensors_find(const octet_safetensors *file,
                                                       const char *name)
{
    const struct octet_named_array key = {.name = name};
    const struct oct_safetensors_entry *found =
        bsearch(&key, file->header.entries, file->header.count, sizeof *file->header.entries,
                oct_safetensors_by_name);

    return found ? &found->named : NULL;
}

size_t octet_safetensors_metadata(const octet_safetensors *file, const struct octet_pair **out)
{
    *out = file->header.metadata;
    return file->header.metadata_count;
}
