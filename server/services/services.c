/* See services.h. */
#include "services/services.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/reflection.h"
#include "wire/methods.h"

/* Health and reflection: a question is a name, an answer some descriptors. */
enum { CONTROL_REQUEST_BYTES = 64 << 10, CONTROL_MEMORY_BYTES = 1 << 20 };
/* A config's graph and plan have a budget of their own; this is for its texts, and the trace. */
enum { CONFIG_MEMORY_BYTES = 256 << 20 };

static const struct method fixed[] = {
    {.path = "/grpc.health.v1.Health/Check",
     .shape = CALL_UNARY,
     .is_public = true,
     .run = health_service_check},
    {.path = "/grpc.health.v1.Health/Watch",
     .shape = CALL_WATCH,
     .is_public = true,
     .run = health_service_watch},
    {.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
     .shape = CALL_DIALOGUE,
     .run = reflection_service_run},
    {.path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     .shape = CALL_DIALOGUE,
     .run = reflection_service_run},
};
enum { FIXED_COUNT = sizeof fixed / sizeof fixed[0] };

static void add_fixed(struct services *services, const struct health *health)
{
    for (size_t i = 0; i < FIXED_COUNT; i++) {
        struct method *method = &services->methods[services->count++];
        *method = fixed[i];
        method->pool = POOL_CONTROL;
        method->request_bytes_max = CONTROL_REQUEST_BYTES;
        method->limit_name = "what health and reflection need";
        method->memory_bytes = CONTROL_MEMORY_BYTES;
        method->data = method->shape == CALL_DIALOGUE ? (const void *)services->reflection
                                                      : (const void *)health;
    }
}

static enum call_shape shape_of(enum octet_method_shape shape)
{
    switch (shape) {
    case OCTET_METHOD_UPLOAD:
        return CALL_UPLOAD;
    case OCTET_METHOD_DOWNLOAD:
        return CALL_DOWNLOAD;
    case OCTET_METHOD_UNARY:
        break;
    }
    return CALL_UNARY;
}

/* Some compute with workers, and have small messages. */
static bool has_tensors(const struct octet_method *octet)
{
    return octet->shape == OCTET_METHOD_UPLOAD ||
           protobuf_c_message_descriptor_get_field_by_name(octet->request, "buffers");
}

static bool add_octet(struct services *services, const struct config *config,
                      const struct octet_method *octet)
{
    static const char prefix[] = "/octet.v1.Octet/";
    size_t size = sizeof prefix + strlen(octet->name);
    char *path = malloc(size);

    if (!path)
        return false;
    snprintf(path, size, "%s%s", prefix, octet->name);
    struct method *method = &services->methods[services->count++];
    *method = (struct method){
        .path = path,
        .shape = shape_of(octet->shape),
        .pool = octet->is_light ? POOL_CONTROL : POOL_COMPUTE,
        .request_bytes_max = config->limits.config_request_bytes,
        .limit_name = "limits.config_request_bytes",
        .takes_tensors = has_tensors(octet),
        .is_step = octet->takes_tensors && octet->shape == OCTET_METHOD_UNARY &&
                   (octet->access != OCTET_ACCESS_NONE || !has_tensors(octet)),
        .memory_bytes = (uint64_t)config->limits.request_memory_bytes,
        .run = octet_service_run,
        .method = octet,
    };
    if (method->takes_tensors) {
        method->request_bytes_max = config->limits.max_message_bytes;
        method->limit_name = "limits.max_message_bytes";
    } else if (method->memory_bytes > CONFIG_MEMORY_BYTES) {
        method->memory_bytes = CONFIG_MEMORY_BYTES;
    }
    return true;
}

enum octet_status services_create(const struct config *config, const struct octet_method *methods,
                                  size_t method_count, const struct health *health,
                                  struct services *out, struct octet_error *err)
{
    enum octet_status status;

    *out = (struct services){.methods = calloc(FIXED_COUNT + method_count, sizeof *out->methods)};
    if (!out->methods)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    status = reflection_create(&out->reflection, err);
    if (status != OCTET_OK)
        return status;
    add_fixed(out, health);
    for (size_t i = 0; i < method_count; i++)
        if (!add_octet(out, config, &methods[i]))
            return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    return OCTET_OK;
}

enum octet_status services_prepare(struct services *services, const struct job_settings *settings,
                                   struct octet_error *err)
{
    for (size_t i = FIXED_COUNT; i < services->count; i++) {
        enum octet_status status = octet_service_prepare(&services->methods[i], settings, err);
        if (status != OCTET_OK)
            return status;
    }
    return OCTET_OK;
}

const struct method *services_find(const struct services *services, const char *path, size_t length)
{
    for (size_t i = 0; i < services->count; i++)
        if (strlen(services->methods[i].path) == length &&
            memcmp(services->methods[i].path, path, length) == 0)
            return &services->methods[i];
    return NULL;
}

void services_free(struct services *services)
{
    for (size_t i = FIXED_COUNT; i < services->count; i++) {
        free((char *)(uintptr_t)services->methods[i].path);
        free(services->methods[i].constant);
    }
    free(services->methods);
    reflection_free(services->reflection);
    *services = (struct services){.count = 0};
}
