/* Whole files, read and replaced. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"

static enum octet_status fail_errno(const char *doing, const char *path, struct octet_error *err)
{
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot %s '%s': %s", doing, path,
                      strerror(errno));
}

/* Reads to the end or to bytes_max + 1 bytes, in pieces that double: the size of a pipe is not
 * known. */
static enum octet_status read_all(octet_arena *arena, int fd, const char *path, size_t bytes_max,
                                  char **text, size_t *length, struct octet_error *err)
{
    size_t room = 16 * 1024, used = 0;
    char *buffer = octet_arena_alloc(arena, room + 1);

    for (;;) {
        if (!buffer)
            return octet_arena_exhausted(arena, err);
        ssize_t n = read(fd, buffer + used, room - used);
        if (n < 0 && errno == EINTR) /* by our own SIGINT handler: nobody else catches signals */
            return octet_fail(err, OCTET_CANCELLED, NULL, "interrupted");
        if (n < 0)
            return fail_errno("read", path, err);
        used += (size_t)n;
        if (used > bytes_max)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' is larger than %zu bytes",
                              path, bytes_max);
        if (n == 0)
            break;
        if (used == room) {
            char *larger = octet_arena_alloc(arena, 2 * room + 1);
            if (larger)
                memcpy(larger, buffer, used);
            buffer = larger;
            room *= 2;
        }
    }
    *text = buffer;
    *length = used;
    return OCTET_OK;
}

enum octet_status file_read(octet_arena *arena, const char *path, size_t bytes_max, char **text,
                            size_t *length, struct octet_error *err)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fail_errno("open", path, err);
    enum octet_status status = read_all(arena, fd, path, bytes_max, text, length, err);
    if (!standard)
        close(fd);
    if (status != OCTET_OK)
        return status;
    const char *nul = memchr(*text, 0, *length);
    if (nul)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' is not text: byte %td is NUL",
                          path, nul - *text);
    return OCTET_OK;
}

static bool write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

enum octet_status file_replace(const char *path, const char *text, size_t length,
                               struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    char *temporary = NULL;

    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        status = fail_errno("write", path, err);
        goto done;
    }
    mode_t mask = umask(0);
    umask(mask);
    bool written = write_all(fd, text, length) && fchmod(fd, 0666 & ~mask) == 0 && fsync(fd) == 0;
    if (!written)
        status = fail_errno("write", path, err);
    if (close(fd) != 0 && written)
        status = fail_errno("write", path, err);
    if (status == OCTET_OK && rename(temporary, path) != 0)
        status = fail_errno("write", path, err);
    if (status != OCTET_OK)
        unlink(temporary);
done:
    free(temporary);
    return status;
}
