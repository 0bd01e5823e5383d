/* The cuda driver: a device opened through libcuda, its memory and its launches.
 *
 * For: lib/backends, through driver.h. Not for: products on the device's matrix units (fast.c),
 * copies (copy.c). Any device with compute capability 7.0 or newer does: the kernels decode 8-bit
 * floats in integer arithmetic. */
#include "backends/cuda/cuda_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CAPABILITY_MIN = 70,
    CAPABILITY_MATRIX_UNITS = 80,
    ARGUMENTS_MAX = 32,
    ITEMS_MAX = 256, /* kernels/cuda.h: for more there are not enough registers */
};

/* "0", "12": the device's number. */
static enum octet_status choose(struct oct_cuda *cuda, const char *device, int count,
                                struct octet_error *err)
{
    char *end = NULL;

    if (!device || !*device) {
        cuda->device = 0;
        return OCTET_OK;
    }
    errno = 0;
    long number = strtol(device, &end, 10);
    if (errno || *end || end == device || number < 0 || number >= count)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "device",
                          "'%s' is no CUDA device: there are %d, numbered from 0", device, count);
    cuda->device = (int)number;
    return OCTET_OK;
}

/* Device number, name, memory, capability and the driver's version. */
static enum octet_status look(struct oct_cuda *cuda, const char *device,
                              struct octet_backend_facts *facts, struct octet_error *err)
{
    int count = 0, version = 0, major = 0, minor = 0;
    size_t memory = 0;
    unsigned result = cuda->api.cuInit(0);

    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDeviceGetCount(&count);
    if (result == OCT_CUDA_SUCCESS && count < 1)
        result = OCT_CUDA_NO_DEVICE;
    if (result != OCT_CUDA_SUCCESS)
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                          "the NVIDIA driver (libcuda.so.1) gives no device: %s (%u)",
                          oct_cuda_result_name(&cuda->api, result), result);
    enum octet_status status = choose(cuda, device, count, err);
    if (status != OCTET_OK)
        return status;
    snprintf(cuda->device_name, sizeof cuda->device_name, "no name yet");
    result = cuda->api.cuDeviceGet(&cuda->device, cuda->device);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDeviceGetName(cuda->device_name, (int)sizeof cuda->device_name,
                                           cuda->device);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDeviceTotalMem(&memory, cuda->device);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDeviceGetAttribute(&major, OCT_CUDA_ATTRIBUTE_CAPABILITY_MAJOR,
                                                cuda->device);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDeviceGetAttribute(&minor, OCT_CUDA_ATTRIBUTE_CAPABILITY_MINOR,
                                                cuda->device);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuDriverGetVersion(&version);
    cuda->capability = 10 * major + minor;
    snprintf(cuda->driver_text, sizeof cuda->driver_text, "CUDA %d.%d, compute capability %d.%d",
             version / 1000, version % 1000 / 10, major, minor);
    facts->devices = count;
    facts->memory_bytes = memory;
    return oct_cuda_status(cuda, result, err, "asking what it is");
}

static void cuda_close(void *context)
{
    struct oct_cuda *cuda = context;

    if (!cuda)
        return;
    if (cuda->primary) {
        if (cuda->api.cuCtxPushCurrent(cuda->primary) == OCT_CUDA_SUCCESS) {
            oct_cublaslt_close(cuda);
            if (cuda->module)
                (void)cuda->api.cuModuleUnload(cuda->module);
            oct_cuda_leave(cuda);
        }
        (void)cuda->api.cuDevicePrimaryCtxRelease(cuda->device);
    }
    pthread_mutex_destroy(&cuda->lock);
    free(cuda);
}

/* With what look() found: the context and the kernels. */
static enum octet_status start(struct oct_cuda *cuda, const char *cache_directory,
                               struct octet_error *err)
{
    if (cuda->capability < CAPABILITY_MIN)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "device",
                          "%d (%s) has compute capability %d.%d; 7.0 or newer is needed",
                          cuda->device, cuda->device_name, cuda->capability / 10,
                          cuda->capability % 10);
    enum octet_status status = oct_cuda_status(
        cuda, cuda->api.cuDevicePrimaryCtxRetain(&cuda->primary, cuda->device), err, "starting it");
    if (status == OCTET_OK)
        status = oct_cuda_enter(cuda, err);
    if (status == OCTET_OK) {
        status = oct_cuda_load(cuda, cache_directory, err);
        oct_cuda_leave(cuda);
    }
    return status;
}

static enum octet_status cuda_open(const struct octet_backend_options *options, void **context,
                                   struct octet_backend_facts *facts, struct octet_error *err)
{
    if (!oct_cuda_ptx())
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                          "this program was built without CUDA kernels: its build found neither a "
                          "clang that writes PTX nor nvcc");
    struct oct_cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a backend");
    pthread_mutex_init(&cuda->lock, NULL);
    enum octet_status status = oct_cuda_library(&cuda->api, err);
    if (status == OCTET_OK)
        status = look(cuda, options ? options->device : NULL, facts, err);
    if (status == OCTET_OK)
        status = start(cuda, options ? options->cache_directory : NULL, err);
    if (status != OCTET_OK) {
        cuda_close(cuda);
        return status;
    }
    facts->name = "cuda";
    facts->device = cuda->device_name;
    facts->driver = cuda->driver_text;
    facts->capabilities.name = "cuda";
    facts->capabilities.fast = cuda->capability >= CAPABILITY_MATRIX_UNITS;
    *context = cuda;
    return OCTET_OK;
}

static void cuda_queue_destroy(void *opaque)
{
    struct oct_cuda_queue *queue = opaque;

    if (!queue)
        return;
    struct oct_cuda *cuda = queue->cuda;
    /* A device that was lost gives nothing back by itself: its context takes all along. */
    if (cuda->api.cuCtxPushCurrent(cuda->primary) == OCT_CUDA_SUCCESS) {
        if (queue->stream) {
            (void)cuda->api.cuStreamSynchronize(queue->stream);
            (void)cuda->api.cuStreamDestroy(queue->stream);
        }
        oct_cuda_stages_free(queue);
        if (queue->workspace)
            (void)cuda->api.cuMemFree(queue->workspace);
        if (queue->sums)
            (void)cuda->api.cuMemFree(queue->sums);
        oct_cuda_leave(cuda);
    }
    free(queue);
}

static enum octet_status cuda_queue_create(void *context, void **out, struct octet_error *err)
{
    struct oct_cuda *cuda = context;
    struct oct_cuda_queue *queue = calloc(1, sizeof *queue);

    if (!queue)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a queue");
    queue->cuda = cuda;
    enum octet_status status = oct_cuda_enter(cuda, err);
    if (status == OCTET_OK) {
        status = oct_cuda_status(
            cuda, cuda->api.cuStreamCreate(&queue->stream, OCT_CUDA_STREAM_NON_BLOCKING), err,
            "making a stream");
        oct_cuda_leave(cuda);
    }
    if (status != OCTET_OK) {
        cuda_queue_destroy(queue);
        return status;
    }
    *out = queue;
    return OCTET_OK;
}

static enum octet_status cuda_alloc(void *context, size_t bytes, oct_device_buffer *out,
                                    struct octet_error *err)
{
    struct oct_cuda *cuda = context;
    oct_cuda_pointer pointer = 0;
    enum octet_status status = oct_cuda_enter(cuda, err);

    if (status != OCTET_OK)
        return status;
    /* Nothing is not a size that the library takes. */
    status = oct_cuda_status(cuda, cuda->api.cuMemAlloc(&pointer, bytes ? bytes : 1), err,
                             "taking %zu bytes of memory", bytes);
    oct_cuda_leave(cuda);
    if (status == OCTET_OK)
        *out = pointer;
    return status;
}

/* Waits for the device, as the library does. */
static void cuda_release(void *context, oct_device_buffer buffer)
{
    struct oct_cuda *cuda = context;

    if (!buffer || cuda->api.cuCtxPushCurrent(cuda->primary) != OCT_CUDA_SUCCESS)
        return;
    (void)cuda->api.cuMemFree(buffer);
    oct_cuda_leave(cuda);
}

static enum octet_status cuda_fill(void *opaque, oct_device_buffer to, size_t offset, size_t bytes,
                                   unsigned char value, struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    struct oct_cuda *cuda = queue->cuda;
    enum octet_status status = bytes ? oct_cuda_enter(cuda, err) : OCTET_OK;

    if (status != OCTET_OK || !bytes)
        return status;
    status =
        oct_cuda_status(cuda, cuda->api.cuMemsetD8Async(to + offset, value, bytes, queue->stream),
                        err, "filling %zu bytes", bytes);
    oct_cuda_leave(cuda);
    return status;
}

static enum octet_status check_grid(const struct oct_device_grid *grid, const char *kernel,
                                    struct octet_error *err)
{
    if (grid->groups[0] > OCT_CUDA_GROUPS_MAX_X || grid->groups[1] > OCT_CUDA_GROUPS_MAX_Y ||
        grid->items[0] > ITEMS_MAX || grid->items[1] > ITEMS_MAX ||
        grid->items[0] * grid->items[1] > ITEMS_MAX)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                          "%s on %zu x %zu groups of %zu x %zu: there can be at most %d x %d of %d",
                          kernel, grid->groups[0], grid->groups[1], grid->items[0], grid->items[1],
                          OCT_CUDA_GROUPS_MAX_X, OCT_CUDA_GROUPS_MAX_Y, ITEMS_MAX);
    return OCTET_OK;
}

static enum octet_status cuda_launch(void *opaque, enum oct_device_kernel kernel,
                                     const struct oct_device_grid *grid,
                                     const struct oct_device_argument *arguments, size_t count,
                                     struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    struct oct_cuda *cuda = queue->cuda;
    struct oct_device_argument values[ARGUMENTS_MAX];
    void *places[ARGUMENTS_MAX];

    if (count > ARGUMENTS_MAX)
        return octet_fail(err, OCTET_INTERNAL, "backend", "%s with %zu arguments, above %d",
                          oct_cuda_kernel_names[kernel], count, ARGUMENTS_MAX);
    if (!grid->groups[0] || !grid->groups[1] || !grid->items[0] || !grid->items[1])
        return OCTET_OK;
    enum octet_status status = check_grid(grid, oct_cuda_kernel_names[kernel], err);
    if (status == OCTET_OK)
        status = oct_cuda_enter(cuda, err);
    if (status != OCTET_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        values[i] = arguments[i];
        places[i] = arguments[i].kind == OCT_ARGUMENT_BUFFER    ? (void *)&values[i].buffer
                    : arguments[i].kind == OCT_ARGUMENT_INTEGER ? (void *)&values[i].integer
                                                                : (void *)&values[i].number;
    }
    status = oct_cuda_status(
        cuda,
        cuda->api.cuLaunchKernel(cuda->kernels[kernel], (unsigned)grid->groups[0],
                                 (unsigned)grid->groups[1], 1, (unsigned)grid->items[0],
                                 (unsigned)grid->items[1], 1, 0, queue->stream, places, NULL),
        err, "starting %s", oct_cuda_kernel_names[kernel]);
    oct_cuda_leave(cuda);
    return status;
}

static enum octet_status cuda_wait(void *opaque, struct octet_error *err)
{
    struct oct_cuda_queue *queue = opaque;
    struct oct_cuda *cuda = queue->cuda;
    enum octet_status status = oct_cuda_enter(cuda, err);

    if (status != OCTET_OK)
        return status;
    status =
        oct_cuda_status(cuda, cuda->api.cuStreamSynchronize(queue->stream), err, "waiting for it");
    oct_cuda_leave(cuda);
    return status;
}

const struct oct_driver oct_driver_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .queue_create = cuda_queue_create,
    .queue_destroy = cuda_queue_destroy,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .write = oct_cuda_write,
    .read = oct_cuda_read,
    .fill = cuda_fill,
    .launch = cuda_launch,
    .wait = cuda_wait,
    .fast_product = oct_cuda_fast_product,
    .peer = oct_cuda_peer,
};
