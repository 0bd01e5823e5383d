/* libcuda by dlopen, and what its results mean.
 *
 * Decision: the library stays open until the process ends: it has threads and exit handlers of its
 * own, and closing it under them is known to crash. */
#include "backends/cuda/cuda_private.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

enum octet_status oct_cuda_library(struct oct_cuda_api *api, struct octet_error *err)
{
    static const char name[] = "libcuda.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                          "no NVIDIA driver: %s could not be opened (%s)", name, dlerror());
#define OCT_CUDA_FIND(function, symbol, arguments)                                                 \
    *(void **)(void *)&api->function = dlsym(library, symbol);                                     \
    if (!api->function)                                                                            \
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",                                       \
                          "%s has no %s: a driver for CUDA 11 or newer is needed", name, symbol);
    OCT_CUDA_FUNCTIONS(OCT_CUDA_FIND)
#undef OCT_CUDA_FIND
    return OCTET_OK;
}

static bool is_death(unsigned result)
{
    switch (result) {
#define OCT_CUDA_DEATH(name, number, death)                                                        \
    case number:                                                                                   \
        return death;
        OCT_CUDA_RESULTS(OCT_CUDA_DEATH)
#undef OCT_CUDA_DEATH
    }
    return false;
}

const char *oct_cuda_result_name(const struct oct_cuda_api *api, unsigned result)
{
    const char *name = NULL;

    if (api->cuGetErrorName(result, &name) == OCT_CUDA_SUCCESS && name)
        return name;
    switch (result) {
#define OCT_CUDA_NAME(word, number, death)                                                         \
    case number:                                                                                   \
        return "CUDA_ERROR_" #word;
        OCT_CUDA_RESULTS(OCT_CUDA_NAME)
#undef OCT_CUDA_NAME
    }
    return "a result without a name";
}

static enum octet_status refuse_dead(const struct oct_cuda *cuda, unsigned result,
                                     const char *doing, struct octet_error *err)
{
    return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                      "%s: the CUDA device %d (%s) was lost (%s, %u); the CPU and other backends "
                      "go on, and this one can be opened again",
                      doing, cuda->device, cuda->device_name,
                      oct_cuda_result_name(&cuda->api, result), result);
}

enum octet_status oct_cuda_status(struct oct_cuda *cuda, unsigned result, struct octet_error *err,
                                  const char *format, ...)
{
    char doing[128];
    va_list arguments;

    if (result == OCT_CUDA_SUCCESS)
        return OCTET_OK;
    va_start(arguments, format);
    vsnprintf(doing, sizeof doing, format, arguments);
    va_end(arguments);
    if (is_death(result)) {
        atomic_store_explicit(&cuda->death, result, memory_order_relaxed);
        return refuse_dead(cuda, result, doing, err);
    }
    return octet_fail(
        err, result == OCT_CUDA_OUT_OF_MEMORY ? OCTET_RESOURCE_EXHAUSTED : OCTET_INTERNAL,
        "backend", "%s on the CUDA device %d (%s) failed: %s (%u)", doing, cuda->device,
        cuda->device_name, oct_cuda_result_name(&cuda->api, result), result);
}

enum octet_status oct_cuda_enter(struct oct_cuda *cuda, struct octet_error *err)
{
    unsigned death = atomic_load_explicit(&cuda->death, memory_order_relaxed);

    if (death)
        return refuse_dead(cuda, death, "no call is taken", err);
    return oct_cuda_status(cuda, cuda->api.cuCtxPushCurrent(cuda->primary), err,
                           "making it the thread's own");
}

void oct_cuda_leave(struct oct_cuda *cuda)
{
    oct_cuda_context context;

    (void)cuda->api.cuCtxPopCurrent(&context);
}
