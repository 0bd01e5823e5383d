/* See job.h. */
#include "job.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>

struct job *job_create(struct call *call, const struct method *method,
                       const struct job_settings *settings, grpc_byte_buffer *body)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job) {
        grpc_byte_buffer_destroy(body);
        return NULL;
    }
    job->call = call;
    job->method = method;
    job->settings = settings;
    job->body = body;
    job->body_bytes = grpc_byte_buffer_length(body);
    return job;
}

static void body_free(struct job *job)
{
    if (job->body)
        grpc_byte_buffer_destroy(job->body);
    job->body = NULL;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    body_free(job);
    if (job->has_reply)
        grpc_slice_unref(job->reply);
    free(job);
}

/* A message of one slice is read where it lies; one of several is put together in the arena, where
 * the copy counts against the request's budget. */
static enum octet_status gather(struct job *job, grpc_byte_buffer_reader *reader,
                                struct octet_error *err)
{
    grpc_slice *slice;
    size_t at = 0;

    job->length = job->body_bytes;
    if (job->length == 0)
        return OCTET_OK;
    if (!grpc_byte_buffer_reader_peek(reader, &slice))
        return octet_fail(err, OCTET_INTERNAL, NULL, "the request cannot be read");
    if (GRPC_SLICE_LENGTH(*slice) == job->length) {
        job->bytes = GRPC_SLICE_START_PTR(*slice);
        return OCTET_OK;
    }
    uint8_t *copy = octet_arena_alloc(job->arena, job->length);
    if (!copy)
        return octet_arena_exhausted(job->arena, err);
    do {
        memcpy(copy + at, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        at += GRPC_SLICE_LENGTH(*slice);
    } while (at < job->length && grpc_byte_buffer_reader_peek(reader, &slice));
    job->bytes = copy;
    return at == job->length ? OCTET_OK
                             : octet_fail(err, OCTET_INTERNAL, NULL, "the request cannot be read");
}

/* glibc keeps what threads free, for each thread; after a large request that would be kept for
 * ever. */
static void arena_free(struct job *job)
{
    enum { LARGE_BYTES = 16 << 20 };
    size_t held = octet_arena_held(job->arena);

    octet_arena_destroy(job->arena);
    job->arena = NULL;
    if (held > LARGE_BYTES)
        malloc_trim(0);
}

static enum octet_status run(struct job *job, struct octet_error *err)
{
    grpc_byte_buffer_reader reader;
    enum octet_status status = octet_cancel_check(&job->cancel, err);

    if (status != OCTET_OK)
        return status;
    job->arena = octet_arena_create(job->method->memory_bytes);
    if (!job->arena)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    octet_arena_fail_at(job->arena, job->settings->fail_alloc);
    if (grpc_byte_buffer_reader_init(&reader, job->body)) {
        status = gather(job, &reader, err);
        if (status == OCTET_OK)
            status = job->method->run(job, err);
        grpc_byte_buffer_reader_destroy(&reader);
    } else {
        status = octet_fail(err, OCTET_INTERNAL, NULL, "the request cannot be read");
    }
    arena_free(job);
    return status;
}

void job_run(struct job *job)
{
    job->status = run(job, &job->error);
    job->bytes = NULL;
    body_free(job);
}

enum octet_status job_reply(struct job *job, const ProtobufCMessage *message,
                            struct octet_error *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    size_t left = octet_arena_budget(job->arena) - octet_arena_held(job->arena);

    if (size > (size_t)job->settings->reply_bytes_max)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the reply has %zu bytes, more than limits.max_message_bytes, %" PRId64,
                          size, job->settings->reply_bytes_max);
    if (size > left)
        return octet_fail(
            err, OCTET_RESOURCE_EXHAUSTED, NULL,
            "the reply has %zu bytes, but only %zu of limits.request_memory_bytes are left", size,
            left);
    uint8_t *bytes = malloc(size + (size == 0));
    if (!bytes)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    protobuf_c_message_pack(message, bytes);
    job->reply = grpc_slice_new(bytes, size, free);
    job->has_reply = true;
    return OCTET_OK;
}
