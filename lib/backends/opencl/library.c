/* libOpenCL, opened when a backend is: the same program runs where there is none. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl_private.h"

static const char library_name[] = "libOpenCL.so.1";

static struct oct_opencl functions;
static const char *missing; /* function; "": the library */
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "%s", why ? why : "");
        missing = "";
        return;
    }
    /* POSIX lets dlsym's result be stored through a pointer to an object. */
#define TAKE(name)                                                                                 \
    *(void **)(void *)&functions.name = dlsym(library, #name);                                     \
    if (!functions.name)                                                                           \
        missing = #name;
    OCT_OPENCL_FUNCTIONS(TAKE)
#undef TAKE
}

enum octet_status oct_opencl_load(const struct oct_opencl **out, struct octet_error *err)
{
    pthread_once(&once, load);
    if (missing && !missing[0])
        return octet_fail(err, OCTET_UNAVAILABLE, "backend", "opencl: no %s on this machine (%s)",
                          library_name, reason);
    if (missing)
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                          "opencl: %s lacks %s; OpenCL 1.2 or later is needed", library_name,
                          missing);
    *out = &functions;
    return OCTET_OK;
}

void oct_opencl_stay(cl_context context)
{
    static _Atomic bool stays; /* relaxed: it matters only that one thread sets it */

    if (!atomic_exchange_explicit(&stays, true, memory_order_relaxed))
        functions.clRetainContext(context);
}

const char *oct_opencl_error_name(cl_int error, char *buffer, size_t size)
{
    static const struct {
        cl_int error;
        const char *name;
    } names[] = {
#define NAME(error) {error, #error}
        NAME(CL_DEVICE_NOT_FOUND),       NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE), NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),       NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_BUILD_PROGRAM_FAILURE),  NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_CONTEXT),        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_MEM_OBJECT),     NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_KERNEL_ARGS),    NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_BUFFER_SIZE),
#undef NAME
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error)
            return names[i].name;
    snprintf(buffer, size, "error %d", (int)error);
    return buffer;
}
