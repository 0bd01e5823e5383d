/* See checkpoint_files.h. */
#include "train/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/safetensors_stream.h"

enum { HEX_DIGITS = 16 };

enum octet_status oct_checkpoint_name_check(const char *name, struct octet_error *err)
{
    enum { NAME_MAX_LENGTH = 128 };
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    size_t length = strlen(name);

    if (length && length <= NAME_MAX_LENGTH && name[0] != '.' && strspn(name, allowed) == length)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "name",
                      "'%.130s'; 1 to %d letters, digits, '.', '_' and '-' were expected, the "
                      "first no '.'",
                      name, NAME_MAX_LENGTH);
}

/* ---- Locks ---- */

static void lock(int fd, int operation)
{
    while (flock(fd, operation) != 0 && errno == EINTR)
        ;
}

int oct_folder_lock(const char *directory, bool exclusive)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0)
        lock(fd, exclusive ? LOCK_EX : LOCK_SH);
    return fd;
}

void oct_folder_unlock(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- Writing ---- */

static enum octet_status create_file(const char *directory, const char *name, octet_arena *arena,
                                     int *fd, const char **path, struct octet_error *err)
{
    enum { ATTEMPTS = 1000 };

    for (int i = 0; i < ATTEMPTS; i++) {
        *path = octet_arena_format(arena, "%s/%s.%ld-%d.tmp", directory, name, (long)getpid(), i);
        if (!*path)
            return octet_arena_exhausted(arena, err);
        *fd = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0 || errno != EEXIST)
            break;
    }
    return *fd >= 0 ? OCTET_OK : oct_file_fail(*path, "create", err);
}

enum octet_status oct_temporary_create(const char *directory, const char *name, octet_arena *arena,
                                       int *fd, const char **path, struct octet_error *err)
{
    int folder = oct_folder_lock(directory, true);

    if (folder < 0)
        return oct_file_fail(directory, "open folder", err);
    enum octet_status status = create_file(directory, name, arena, fd, path, err);
    if (status == OCTET_OK)
        lock(*fd, LOCK_EX);
    oct_folder_unlock(folder);
    return status;
}

static bool write_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

/* ---- What no manifest names ---- */

/* "NAME-0123456789abcdef.safetensors" */
static bool is_tensor_file(const char *entry, const char *name)
{
    size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '-' &&
           strspn(entry + length + 1, "0123456789abcdef") == HEX_DIGITS &&
           strcmp(entry + length + 1 + HEX_DIGITS, ".safetensors") == 0;
}

/* "NAME.123-4.tmp" */
static bool is_temporary(const char *entry, const char *name)
{
    size_t length = strlen(name), digits;

    if (strncmp(entry, name, length) != 0 || entry[length] != '.')
        return false;
    entry += length + 1;
    digits = strspn(entry, "0123456789");
    if (!digits || entry[digits] != '-')
        return false;
    entry += digits + 1;
    digits = strspn(entry, "0123456789");
    return digits && strcmp(entry + digits, ".tmp") == 0;
}

static bool is_in_use(int folder, const char *entry)
{
    int fd = openat(folder, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return false;
    bool used = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return used;
}

/* Files of this name but `keep`. Failure leaves them for the next save. */
static void remove_stale(int folder, const char *name, const char *keep)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (!entries) {
        if (copy >= 0)
            close(copy);
        return;
    }
    while ((entry = readdir(entries)) != NULL) {
        bool tensors = is_tensor_file(entry->d_name, name) && strcmp(entry->d_name, keep) != 0;
        if (tensors || (is_temporary(entry->d_name, name) && !is_in_use(folder, entry->d_name)))
            (void)!unlinkat(folder, entry->d_name, 0);
    }
    closedir(entries);
}

/* ---- Replacing ---- */

static enum octet_status put_manifest(const char *directory, const char *name, const char *manifest,
                                      size_t length, octet_arena *arena, struct octet_error *err)
{
    const char *path = octet_arena_format(arena, "%s/%s.json", directory, name), *temporary;
    int fd;

    if (!path)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = create_file(directory, name, arena, &fd, &temporary, err);
    if (status != OCTET_OK)
        return status;
    if (!write_all(fd, manifest, length) || fsync(fd) != 0)
        status = oct_file_fail(temporary, "write", err);
    close(fd);
    if (status == OCTET_OK && rename(temporary, path) != 0)
        status = oct_file_fail(path, "write", err);
    if (status != OCTET_OK)
        unlink(temporary);
    return status;
}

enum octet_status oct_checkpoint_replace(const char *directory, const char *name,
                                         const char *temporary, const char *file,
                                         const char *manifest, size_t length, octet_arena *arena,
                                         struct octet_error *err)
{
    const char *target = octet_arena_format(arena, "%s/%s", directory, file);
    enum octet_status status = OCTET_OK;

    if (!target)
        return octet_arena_exhausted(arena, err);
    int folder = oct_folder_lock(directory, true);
    if (folder < 0)
        return oct_file_fail(directory, "open folder", err);
    if (rename(temporary, target) != 0)
        status = oct_file_fail(target, "write", err);
    /* The tensors' name must be on disk before the manifest speaks of it. */
    if (status == OCTET_OK && fsync(folder) != 0 && errno != EINVAL)
        status = oct_file_fail(directory, "sync folder", err);
    if (status == OCTET_OK)
        status = put_manifest(directory, name, manifest, length, arena, err);
    if (status == OCTET_OK) {
        (void)!fsync(folder);
        remove_stale(folder, name, file);
    }
    oct_folder_unlock(folder);
    return status;
}

/* ---- Reading ---- */

static bool read_all(int fd, char *bytes, size_t length)
{
    while (length) {
        ssize_t n = read(fd, bytes, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

static enum octet_status read_open(int fd, const char *path, size_t bytes_max, octet_arena *arena,
                                   const char **text, size_t *length, struct octet_error *err)
{
    struct stat about;

    if (fstat(fd, &about) != 0)
        return oct_file_fail(path, "read", err);
    if (!S_ISREG(about.st_mode) || about.st_size < 0 || (uint64_t)about.st_size > bytes_max)
        return octet_fail(err, OCTET_DATA_LOSS, NULL,
                          "'%s' is no regular file of at most %zu bytes", path, bytes_max);
    char *bytes = octet_arena_alloc(arena, (size_t)about.st_size + 1);
    if (!bytes)
        return octet_arena_exhausted(arena, err);
    if (!read_all(fd, bytes, (size_t)about.st_size))
        return oct_file_fail(path, "read", err);
    *text = bytes;
    *length = (size_t)about.st_size;
    return OCTET_OK;
}

enum octet_status oct_file_read(const char *path, size_t bytes_max, octet_arena *arena,
                                const char **text, size_t *length, struct octet_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return octet_fail(err, OCTET_NOT_FOUND, "name", "there is no '%s'", path);
    if (fd < 0)
        return oct_file_fail(path, "read", err);
    enum octet_status status = read_open(fd, path, bytes_max, arena, text, length, err);
    close(fd);
    return status;
}
