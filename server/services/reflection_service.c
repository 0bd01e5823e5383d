/* grpc.reflection on a lane: one question, one answer. v1 and v1alpha differ in their package's
 * name only, so v1's messages read and write both. What is not found is an answer (error_response),
 * not a failed call: the dialogue goes on. */
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "job.h"
#include "services/reflection.h"
#include "services/services.h"
#include "wire/methods.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest question;
typedef Grpc__Reflection__V1__ServerReflectionResponse answer;
typedef Grpc__Reflection__V1__ServiceResponse service_name;

static enum octet_status reply(struct job *job, question *asked, answer *a, struct octet_error *err)
{
    a->valid_host = asked->host;
    a->original_request = asked;
    return job_reply(job, &a->base, err);
}

static enum octet_status reply_not_found(struct job *job, question *asked, const char *what,
                                         const char *name, struct octet_error *err)
{
    Grpc__Reflection__V1__ErrorResponse failure = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    failure.error_code = OCTET_NOT_FOUND;
    failure.error_message =
        octet_arena_format(job->arena, "%s '%.200s' is not known here", what, name);
    if (!failure.error_message)
        return octet_arena_exhausted(job->arena, err);
    a.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    a.error_response = &failure;
    return reply(job, asked, &a, err);
}

static enum octet_status reply_files(struct job *job, question *asked, int file,
                                     struct octet_error *err)
{
    const struct reflection *r = job->method->data;
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    ProtobufCBinaryData list[REFLECTION_FILES_MAX];
    int indices[REFLECTION_FILES_MAX];

    files.n_file_descriptor_proto = reflection_closure(r, file, indices);
    for (size_t i = 0; i < files.n_file_descriptor_proto; i++) {
        const struct reflection_file *f = reflection_file(r, indices[i]);
        list[i] = (ProtobufCBinaryData){.len = f->length, .data = (uint8_t *)(uintptr_t)f->bytes};
    }
    files.file_descriptor_proto = list;
    a.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    a.file_descriptor_response = &files;
    return reply(job, asked, &a, err);
}

static enum octet_status reply_services(struct job *job, question *asked, struct octet_error *err)
{
    enum { SERVICES_MAX = 32 };
    const struct reflection *r = job->method->data;
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    service_name services[SERVICES_MAX], *pointers[SERVICES_MAX];

    for (const char *name;
         list.n_service < SERVICES_MAX && (name = reflection_service(r, list.n_service)) != NULL;) {
        service_name *service = &services[list.n_service];
        grpc__reflection__v1__service_response__init(service);
        service->name = (char *)(uintptr_t)name;
        pointers[list.n_service++] = service;
    }
    list.service = pointers;
    a.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    a.list_services_response = &list;
    return reply(job, asked, &a, err);
}

/* No file of ours extends anything: a known message has no extension numbers. */
static enum octet_status reply_numbers(struct job *job, question *asked, struct octet_error *err)
{
    Grpc__Reflection__V1__ExtensionNumberResponse numbers =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    numbers.base_type_name = asked->all_extension_numbers_of_type;
    a.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    a.all_extension_numbers_response = &numbers;
    return reply(job, asked, &a, err);
}

#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what

static enum octet_status answer_question(struct job *job, question *asked, struct octet_error *err)
{
    const struct reflection *r = job->method->data;
    int file;

    switch (asked->message_request_case) {
    case ASKS(LIST_SERVICES):
        return reply_services(job, asked, err);
    case ASKS(FILE_BY_FILENAME):
        file = reflection_file_named(r, asked->file_by_filename);
        return file < 0 ? reply_not_found(job, asked, "file", asked->file_by_filename, err)
                        : reply_files(job, asked, file, err);
    case ASKS(FILE_CONTAINING_SYMBOL):
        file = reflection_file_with(r, asked->file_containing_symbol);
        return file < 0 ? reply_not_found(job, asked, "symbol", asked->file_containing_symbol, err)
                        : reply_files(job, asked, file, err);
    case ASKS(FILE_CONTAINING_EXTENSION):
        return reply_not_found(job, asked, "an extension of",
                               asked->file_containing_extension->containing_type, err);
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        if (!reflection_is_message(r, asked->all_extension_numbers_of_type))
            return reply_not_found(job, asked, "message", asked->all_extension_numbers_of_type,
                                   err);
        return reply_numbers(job, asked, err);
    default:
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "message_request", "is not set");
    }
}

enum octet_status reflection_service_run(struct job *job, struct octet_error *err)
{
    ProtobufCMessage *message;
    enum octet_status status =
        octet_wire_decode(&grpc__reflection__v1__server_reflection_request__descriptor, job->arena,
                          job->bytes, job->length, &message, err);

    return status == OCTET_OK ? answer_question(job, (question *)message, err) : status;
}
