/* See job.h. */
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>

#include "wire/methods.h"

/* A product's operands, their codes twice (as they are and packed), the result, the gradients and
 * all of it again as a reply come to some six times the request; small ones need room for what does
 * not depend on the size. */
enum { TENSOR_BASE_BYTES = 32 << 20, TENSOR_FACTOR = 8, STEP_BYTES = 32 << 20 };
/* Results are asked for before anything is computed, so a try that fails costs little, and a budget
 * that grows in steps does not keep all others from running. */
enum { BUDGET_GROWTH = 8, SLACK_BYTES = 2 << 20 };

static uint64_t first_budget(const struct method *method, size_t body_bytes)
{
    uint64_t guess = TENSOR_BASE_BYTES + TENSOR_FACTOR * (uint64_t)body_bytes;

    if (method->is_step) /* what it answers with does not follow the request's size */
        guess += STEP_BYTES;

    return method->takes_tensors && guess < method->memory_bytes ? guess : method->memory_bytes;
}

struct job *job_create(struct call *call, const struct method *method,
                       const struct job_settings *settings, grpc_byte_buffer *body)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job) {
        if (body)
            grpc_byte_buffer_destroy(body);
        return NULL;
    }
    job->call = call;
    job->method = method;
    job->settings = settings;
    job->body = body;
    job->has_body = body != NULL;
    job->body_bytes = body ? grpc_byte_buffer_length(body) : 0;
    job->memory_bytes = first_budget(method, job->body_bytes);
    return job;
}

static void request_free(struct job *job)
{
    if (job->body)
        grpc_byte_buffer_destroy(job->body);
    job->body = NULL;
    blocks_give(job->settings->blocks, job->message);
    job->message = (struct block){.start = NULL};
    job->bytes = NULL;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    request_free(job);
    if (job->has_reply)
        grpc_slice_unref(job->reply);
    free(job);
}

static enum octet_status unreadable(struct octet_error *err)
{
    return octet_fail(err, OCTET_INTERNAL, NULL, "the request cannot be read");
}

/* Puts the slices together: the one copy of a large request. */
static enum octet_status copy_slices(struct job *job, grpc_byte_buffer_reader *reader,
                                     grpc_slice *slice, struct octet_error *err)
{
    struct octet_wire_gather gather;
    size_t at = 0;

    job->message = blocks_take(job->settings->blocks, job->body_bytes + OCTET_GATHER_PADDING);
    if (!job->message.start)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    octet_wire_gather_init(&gather, job->method->method ? job->method->method->request : NULL,
                           job->message.start);
    do {
        octet_wire_gather_add(&gather, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        at += GRPC_SLICE_LENGTH(*slice);
    } while (at < job->body_bytes && grpc_byte_buffer_reader_peek(reader, &slice));
    job->bytes = job->message.start;
    job->length = octet_wire_gather_end(&gather);
    return at == job->body_bytes ? OCTET_OK : unreadable(err);
}

/* A message of one slice is read where it lies. */
static enum octet_status gather(struct job *job, struct octet_error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    enum octet_status status = OCTET_OK;

    if (job->body_bytes == 0 || job->bytes) /* nothing, or the job runs again */
        return OCTET_OK;
    job->length = job->body_bytes;
    if (!grpc_byte_buffer_reader_init(&reader, job->body))
        return unreadable(err);
    if (!grpc_byte_buffer_reader_peek(&reader, &slice))
        status = unreadable(err);
    else if (GRPC_SLICE_LENGTH(*slice) == job->length)
        job->bytes = GRPC_SLICE_START_PTR(*slice);
    else
        status = copy_slices(job, &reader, slice, err);
    grpc_byte_buffer_reader_destroy(&reader);
    if (job->message.start) {
        grpc_byte_buffer_destroy(job->body);
        job->body = NULL;
    }
    return status;
}

static void arena_free(struct job *job)
{
    enum { LARGE_BYTES = 256 << 10 };

    job->was_large |= octet_arena_held(job->arena) + job->body_bytes > LARGE_BYTES;
    octet_arena_destroy(job->arena);
    job->arena = NULL;
}

static enum octet_status run(struct job *job, struct octet_error *err)
{
    enum octet_status status = octet_cancel_check(&job->cancel, err);

    if (status != OCTET_OK)
        return status;
    if (job->memory_bytes < job->body_bytes)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the request has %zu bytes, more than limits.request_memory_bytes, "
                          "%" PRIu64,
                          job->body_bytes, job->memory_bytes);
    job->arena = octet_arena_create(job->memory_bytes - job->body_bytes);
    if (!job->arena)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    octet_arena_fail_at(job->arena, job->settings->fail_alloc);
    status = gather(job, err);
    if (status == OCTET_OK)
        status = job->method->run(job, err);
    arena_free(job);
    return status;
}

void job_run(struct job *job)
{
    bool may_grow = job->memory_bytes < job->method->memory_bytes;

    job->status = run(job, &job->error);
    job->wants_session =
        job->status == OCTET_UNAVAILABLE && job->exchange && job->exchange->wanted_session[0];
    /* What has changed a session must not be done again; its record answers the next try. */
    job->wants_memory = may_grow && job->status == OCTET_RESOURCE_EXHAUSTED &&
                        !job->is_reply_too_large && !(job->exchange && job->exchange->has_changed);
    if (!job->wants_memory && !job->wants_session)
        request_free(job);
    else if (job->wants_memory && job->memory_wanted <= job->memory_bytes)
        job->memory_wanted = job->memory_bytes * BUDGET_GROWTH;
}

enum octet_status job_reply(struct job *job, const ProtobufCMessage *message,
                            struct octet_error *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    size_t left = octet_arena_budget(job->arena) - octet_arena_held(job->arena);

    job->is_reply_too_large = size > (size_t)job->settings->reply_bytes_max;
    if (job->is_reply_too_large)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the reply has %zu bytes, more than limits.max_message_bytes, %" PRId64,
                          size, job->settings->reply_bytes_max);
    if (size > left) { /* after all the work; the next try knows how much it takes */
        job->memory_wanted = job->memory_bytes + (size - left) + SLACK_BYTES;
        return octet_fail(
            err, OCTET_RESOURCE_EXHAUSTED, NULL,
            "the reply has %zu bytes, but only %zu of limits.request_memory_bytes are left", size,
            left);
    }
    struct block block = blocks_take(job->settings->blocks, size);
    if (!block.start)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    protobuf_c_message_pack(message, block.start);
    if (!blocks_slice(job->settings->blocks, block, size, &job->reply))
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    job->has_reply = true;
    return OCTET_OK;
}
