/* Tensors between a session and a safetensors file, a chunk at a time.
 *
 * Decision: the file's header comes first and its length is not known before the last tensor has
 * come. So room for the names of all is left, which DescribeSession tells, the numbers go behind
 * it, and the header is written last, filled up with blanks as the format allows. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "octet/safetensors.h"
#include "progress.h"
#include "sessions.h"
#include "wire/convert.h"

enum { CHUNK_BYTES = 1024 * 1024 };

static enum octet_status put_array(struct stream *stream, Octet__V1__PutTensorsRequest *chunk,
                                   const struct octet_named_array *from, struct octet_error *err)
{
    uint64_t size = (uint64_t)octet_array_bytes(&from->array), at = 0;
    enum octet_status status;

    chunk->name = (char *)(uintptr_t)from->name;
    chunk->dtype = (Octet__V1__DataType)from->array.dtype;
    chunk->n_shape = (size_t)from->array.rank;
    chunk->shape = (int64_t *)(uintptr_t)from->array.dim;
    do {
        uint64_t part = size - at < CHUNK_BYTES ? size - at : CHUNK_BYTES;
        chunk->offset = (int64_t)at;
        chunk->data = (ProtobufCBinaryData){(size_t)part, (uint8_t *)from->array.data + (size_t)at};
        status = stream_send(stream, &chunk->base, err);
        at += part;
    } while (status == OCTET_OK && at < size);
    return status;
}

static enum octet_status put_all(struct stream *stream, Octet__V1__PutTensorsRequest *chunk,
                                 const octet_safetensors *file, Octet__V1__PutTensorsResponse **out,
                                 struct octet_error *err)
{
    ProtobufCMessage *message = NULL;
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < octet_safetensors_count(file) && status == OCTET_OK; i++)
        status = put_array(stream, chunk, octet_safetensors_get(file, i), err);
    if (status == OCTET_OK)
        status = stream_close_send(stream, err);
    if (status == OCTET_OK)
        status =
            stream_receive(stream, &octet__v1__put_tensors_response__descriptor, &message, err);
    if (status == OCTET_OK && !message)
        status = octet_fail(err, OCTET_INTERNAL, NULL, "the daemon sent no answer");
    *out = (Octet__V1__PutTensorsResponse *)message;
    return status;
}

enum octet_status transfer_put(struct session *session, const char *session_id,
                               Octet__V1__TensorKind kind, const char *path, int64_t *tensors,
                               int64_t *bytes, struct octet_error *err)
{
    Octet__V1__PutTensorsRequest chunk = OCTET__V1__PUT_TENSORS_REQUEST__INIT;
    Octet__V1__PutTensorsResponse *response;
    const octet_safetensors *file = NULL;
    struct stream *stream = NULL;
    enum octet_status status = octet_safetensors_open(session->arena, path, &file, err);

    if (status != OCTET_OK) {
        if (strcmp(err->field, "path") == 0)
            err->field[0] = '\0'; /* the sentence names it */
        return status;
    }
    chunk.session_id = oct_wire_text(session->arena, session_id);
    chunk.kind = kind;
    if (!chunk.session_id)
        status = octet_arena_exhausted(session->arena, err);
    progress_start("octet session put");
    if (status == OCTET_OK)
        status = stream_open(session, "PutTensors", &stream, err);
    if (status == OCTET_OK)
        status = put_all(stream, &chunk, file, &response, err);
    if (status == OCTET_OK) {
        *tensors = response->tensors;
        *bytes = response->bytes;
    }
    stream_end(stream);
    progress_end();
    octet_safetensors_close(file);
    return status;
}

/* A file that is being written. */
struct target {
    octet_arena *arena;
    const char *path;
    char *temporary;
    int fd;
    uint64_t header_bytes, data_bytes; /* room for the header; written so far */
    char *header;                      /* its JSON as it grows; header_bytes long */
    size_t used;
    char name[1024]; /* of the tensor that comes */
    uint64_t left;   /* of its bytes */
    int64_t tensors;
};

static enum octet_status write_at(struct target *to, uint64_t offset, const void *data,
                                  size_t length, struct octet_error *err)
{
    const char *from = data;

    while (length) {
        ssize_t n = pwrite(to->fd, from, length, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot write '%s': %s", to->path,
                              strerror(errno));
        from += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return OCTET_OK;
}

static const char *type_of(Octet__V1__DataType dtype)
{
    switch ((enum octet_dtype)dtype) {
    case OCTET_DTYPE_F32:
        return "F32";
    case OCTET_DTYPE_BF16:
        return "BF16";
    case OCTET_DTYPE_F16:
        return "F16";
    default:
        return NULL;
    }
}

OCTET_PRINTF(2, 3)
static bool append(struct target *to, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length =
        vsnprintf(to->header + to->used, (size_t)to->header_bytes - to->used, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= (size_t)to->header_bytes - to->used)
        return false;
    to->used += (size_t)length;
    return true;
}

/* Names are the daemon's, made of module paths; one that JSON would have to escape is none. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == '"' || *name == '\\')
            return false;
    return true;
}

static enum octet_status begin_tensor(struct target *to, const Octet__V1__GetTensorsResponse *chunk,
                                      struct octet_error *err)
{
    const char *type = type_of(chunk->dtype);
    uint64_t size = octet_dtype_bytes((enum octet_dtype)chunk->dtype);
    bool good = type && is_plain(chunk->name) && chunk->offset == 0 &&
                strlen(chunk->name) < sizeof to->name;

    for (size_t i = 0; good && i < chunk->n_shape; i++)
        good =
            chunk->shape[i] >= 0 && !__builtin_mul_overflow(size, (uint64_t)chunk->shape[i], &size);
    if (!good)
        return octet_fail(err, OCTET_DATA_LOSS, NULL,
                          "the daemon sent a tensor that cannot be written: '%.200s'", chunk->name);
    good = append(to, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", to->used > 1 ? "," : "",
                  chunk->name, type);
    for (size_t i = 0; good && i < chunk->n_shape; i++)
        good = append(to, "%s%" PRId64, i ? "," : "", chunk->shape[i]);
    good = good && append(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", to->data_bytes,
                          to->data_bytes + size);
    if (!good)
        return octet_fail(err, OCTET_DATA_LOSS, NULL,
                          "the daemon sent more tensors than the session has");
    snprintf(to->name, sizeof to->name, "%s", chunk->name);
    to->left = size;
    to->tensors++;
    return OCTET_OK;
}

static enum octet_status take_chunk(struct target *to, const Octet__V1__GetTensorsResponse *chunk,
                                    struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (!to->tensors || strcmp(to->name, chunk->name) != 0) {
        if (to->left)
            return octet_fail(err, OCTET_DATA_LOSS, NULL, "'%.200s' came without its end",
                              to->name);
        status = begin_tensor(to, chunk, err);
    }
    if (status != OCTET_OK)
        return status;
    if (chunk->data.len > to->left)
        return octet_fail(err, OCTET_DATA_LOSS, NULL, "'%.200s' came with too many bytes",
                          to->name);
    status =
        write_at(to, 8 + to->header_bytes + to->data_bytes, chunk->data.data, chunk->data.len, err);
    to->data_bytes += chunk->data.len;
    to->left -= chunk->data.len;
    return status;
}

/* Room for the names, types, shapes and offsets of all parameters, twice: moments have two. */
static enum octet_status make_room(struct session *session, const char *session_id,
                                   struct target *to, struct octet_error *err)
{
    Octet__V1__DescribeSessionRequest request = OCTET__V1__DESCRIBE_SESSION_REQUEST__INIT;
    ProtobufCMessage *message;
    enum { ENTRY_BYTES = 320 };

    request.session_id = oct_wire_text(session->arena, session_id);
    if (!request.session_id)
        return octet_arena_exhausted(session->arena, err);
    enum octet_status status = session_ask(session, "DescribeSession", &request.base,
                                           &octet__v1__session__descriptor, &message, err);
    if (status != OCTET_OK)
        return status;
    const Octet__V1__Session *s = (Octet__V1__Session *)message;
    to->header_bytes = 16;
    for (size_t i = 0; i < s->n_parameters; i++)
        to->header_bytes += 2 * (strlen(s->parameters[i]->name) + ENTRY_BYTES);
    to->header_bytes = (to->header_bytes + 7) / 8 * 8;
    to->header = octet_arena_alloc(session->arena, (size_t)to->header_bytes);
    return to->header ? OCTET_OK : octet_arena_exhausted(session->arena, err);
}

static enum octet_status open_target(struct target *to, struct octet_error *err)
{
    to->temporary = octet_arena_format(to->arena, "%s.XXXXXX", to->path);
    if (!to->temporary)
        return octet_arena_exhausted(to->arena, err);
    to->fd = mkostemp(to->temporary, O_CLOEXEC);
    if (to->fd < 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot write '%s': %s", to->path,
                          strerror(errno));
    return OCTET_OK;
}

static enum octet_status finish_target(struct target *to, struct octet_error *err)
{
    uint8_t length[8];

    if (to->left)
        return octet_fail(err, OCTET_DATA_LOSS, NULL, "'%.200s' came without its end", to->name);
    if (!append(to, "}"))
        return octet_fail(err, OCTET_INTERNAL, NULL, "no room for the header");
    memset(to->header + to->used, ' ', (size_t)to->header_bytes - to->used);
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(to->header_bytes >> (8 * i));
    enum octet_status status = write_at(to, 0, length, sizeof length, err);
    if (status == OCTET_OK)
        status = write_at(to, 8, to->header, (size_t)to->header_bytes, err);
    mode_t mask = umask(0);
    umask(mask);
    if (status == OCTET_OK && (fchmod(to->fd, 0666 & ~mask) != 0 || fsync(to->fd) != 0 ||
                               rename(to->temporary, to->path) != 0))
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot write '%s': %s", to->path,
                            strerror(errno));
    return status;
}

static enum octet_status get_all(struct stream *stream, const Octet__V1__GetTensorsRequest *request,
                                 struct target *to, struct octet_error *err)
{
    ProtobufCMessage *message;
    enum octet_status status = stream_send(stream, &request->base, err);

    if (status == OCTET_OK)
        status = stream_close_send(stream, err);
    while (status == OCTET_OK) {
        status =
            stream_receive(stream, &octet__v1__get_tensors_response__descriptor, &message, err);
        if (status != OCTET_OK || !message)
            break;
        status = take_chunk(to, (Octet__V1__GetTensorsResponse *)message, err);
    }
    return status;
}

enum octet_status transfer_get(struct session *session, const char *session_id,
                               Octet__V1__TensorKind kind, char **names, size_t name_count,
                               const char *path, int64_t *tensors, int64_t *bytes,
                               struct octet_error *err)
{
    Octet__V1__GetTensorsRequest request = OCTET__V1__GET_TENSORS_REQUEST__INIT;
    struct target to = {.arena = session->arena, .path = path, .fd = -1};
    struct stream *stream = NULL;
    enum octet_status status = make_room(session, session_id, &to, err);

    request.session_id = oct_wire_text(session->arena, session_id);
    request.kind = kind;
    request.names = names;
    request.n_names = name_count;
    request.chunk_bytes = CHUNK_BYTES;
    if (status == OCTET_OK && !request.session_id)
        status = octet_arena_exhausted(session->arena, err);
    if (status == OCTET_OK)
        status = open_target(&to, err);
    if (status != OCTET_OK)
        return status;
    (void)append(&to, "{");
    progress_start("octet session get");
    status = stream_open(session, "GetTensors", &stream, err);
    if (status == OCTET_OK)
        status = get_all(stream, &request, &to, err);
    stream_end(stream);
    progress_end();
    if (status == OCTET_OK)
        status = finish_target(&to, err);
    close(to.fd);
    if (status != OCTET_OK)
        unlink(to.temporary);
    *tensors = to.tensors;
    *bytes = (int64_t)to.data_bytes;
    return status;
}
