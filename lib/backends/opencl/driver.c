/* OpenCL 1.2 as a driver (backends/driver.h).
 *
 * A queue has kernel objects of its own, since a kernel's arguments are state of the object. Copies
 * wait: the caller's memory is free, or full, when they return. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/plan.h"
#include "backends/cache.h"
#include "backends/opencl/opencl_private.h"

extern const unsigned char oct_opencl_text[];
extern const size_t oct_opencl_text_bytes;

static const char build_options[] = "-cl-std=CL1.2";
enum { DEVICES_MAX = 64, NAME_BYTES = 128, LOCAL_BYTES = 16 << 10, LOG_BYTES = 600 };

struct context {
    const struct oct_opencl *cl;
    cl_device_id device;
    cl_context context;
    cl_program program;
    char device_name[NAME_BYTES], driver_name[3 * NAME_BYTES + 16];
    uint64_t buffer_bytes_max;
    _Atomic bool is_lost; /* set once, read by all; only the text of an error depends on it */
};

struct queue {
    struct context *context;
    cl_command_queue queue;
    cl_kernel kernels[OCT_KERNEL_COUNT]; /* NULL: not used yet */
};

static const char *const kernel_names[OCT_KERNEL_COUNT] = {
#define NAME(name) #name,
    OCT_DEVICE_KERNELS(NAME)
#undef NAME
};

/* ---- errors ---- */

static enum octet_status status_of(cl_int error)
{
    switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return OCTET_RESOURCE_EXHAUSTED;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_CONTEXT:
    case CL_INVALID_COMMAND_QUEUE:
        return OCTET_UNAVAILABLE;
    default:
        /* Beyond the standard's numbers are the vendors': a fault, a reset. */
        return error <= -1000 ? OCTET_UNAVAILABLE : OCTET_INTERNAL;
    }
}

static enum octet_status failed(struct context *context, const char *what, cl_int error,
                                struct octet_error *err)
{
    enum octet_status status = status_of(error);
    char buffer[32];

    if (status == OCTET_UNAVAILABLE)
        atomic_store_explicit(&context->is_lost, true, memory_order_relaxed);
    return octet_fail(err, status, NULL, "opencl: %s on %s: %s%s", what, context->device_name,
                      oct_opencl_error_name(error, buffer, sizeof buffer),
                      status == OCTET_UNAVAILABLE ? "; the device is lost" : "");
}

static enum octet_status check_lost(struct context *context, struct octet_error *err)
{
    if (!atomic_load_explicit(&context->is_lost, memory_order_relaxed))
        return OCTET_OK;
    return octet_fail(err, OCTET_UNAVAILABLE, NULL, "opencl: %s was lost before",
                      context->device_name);
}

/* ---- which device ---- */

static void info(const struct oct_opencl *cl, cl_device_id device, cl_device_info what, char *text,
                 size_t size)
{
    text[0] = 0;
    if (cl->clGetDeviceInfo(device, what, size, text, NULL) != CL_SUCCESS)
        text[0] = 0;
    text[size - 1] = 0;
}

/* All devices of all platforms; those that are no CPU first. */
static int32_t list_devices(const struct oct_opencl *cl, cl_device_id *out)
{
    static const cl_device_type kinds[] = {CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR,
                                           CL_DEVICE_TYPE_CPU};
    cl_platform_id platforms[16];
    cl_uint platform_count = 0, count, total = 0;

    if (cl->clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    platform_count = platform_count < 16 ? platform_count : 16;
    for (int kind = 0; kind < 2; kind++)
        for (cl_uint p = 0; p < platform_count && total < DEVICES_MAX; p++) {
            cl_uint room = DEVICES_MAX - total;
            if (cl->clGetDeviceIDs(platforms[p], kinds[kind], room, out + total, &count) ==
                CL_SUCCESS)
                total += count < room ? count : room;
        }
    return (int32_t)total;
}

static enum octet_status choose_device(struct context *context, const char *wanted,
                                       int32_t *devices, struct octet_error *err)
{
    cl_device_id list[DEVICES_MAX];
    char names[512] = "", name[NAME_BYTES], *end;
    int32_t count = list_devices(context->cl, list);

    if (!count)
        return octet_fail(err, OCTET_UNAVAILABLE, "backend",
                          "opencl: libOpenCL.so.1 is there, but no device (no ICD in "
                          "/etc/OpenCL/vendors, or none that works)");
    *devices = count;
    long index = wanted && wanted[0] ? strtol(wanted, &end, 10) : 0;
    if (!(wanted && wanted[0]) || (!*end && index >= 0 && index < count)) {
        context->device = list[index];
        return OCTET_OK;
    }
    for (int32_t i = 0; i < count; i++) {
        size_t at = strlen(names);
        info(context->cl, list[i], CL_DEVICE_NAME, name, sizeof name);
        snprintf(names + at, sizeof names - at, "%s%d (%s)", i ? ", " : "", i, name);
    }
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "device",
                      "there is no device '%s'; opencl has %s", wanted, names);
}

/* What the kernels need. */
static enum octet_status check_device(struct context *context, uint64_t *memory_bytes,
                                      struct octet_error *err)
{
    const struct oct_opencl *cl = context->cl;
    const cl_device_fp_config needed = CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN;
    cl_device_fp_config floats = 0;
    cl_ulong memory = 0, local = 0, largest = 0;
    size_t items = 0;
    cl_bool is_little = CL_FALSE, has_compiler = CL_FALSE;

    cl->clGetDeviceInfo(context->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof floats, &floats, NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest,
                        NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof items, &items, NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_ENDIAN_LITTLE, sizeof is_little, &is_little,
                        NULL);
    cl->clGetDeviceInfo(context->device, CL_DEVICE_COMPILER_AVAILABLE, sizeof has_compiler,
                        &has_compiler, NULL);
    *memory_bytes = memory;
    context->buffer_bytes_max = largest;
    const char *lacks = (floats & needed) != needed ? "rounding to nearest, Inf and NaN"
                        : local < LOCAL_BYTES       ? "16 KiB of local memory"
                        : items < PRODUCT_ITEMS     ? "work-groups of 256 items"
                        : !is_little                ? "little-endian numbers"
                        : !has_compiler             ? "a compiler"
                                                    : NULL;
    return lacks ? octet_fail(err, OCTET_UNIMPLEMENTED, "device", "opencl: %s lacks %s",
                              context->device_name, lacks)
                 : OCTET_OK;
}

/* ---- the program ---- */

static cl_program from_binary(struct context *context, const struct oct_program_key *key)
{
    const struct oct_opencl *cl = context->cl;
    size_t bytes;
    unsigned char *binary = oct_program_read(key, &bytes);
    const unsigned char *pointer = binary;
    cl_program program = NULL;
    cl_int error, loaded = CL_INVALID_BINARY;

    if (!binary)
        return NULL;
    program = cl->clCreateProgramWithBinary(context->context, 1, &context->device, &bytes, &pointer,
                                            &loaded, &error);
    free(binary);
    if (error != CL_SUCCESS)
        return NULL;
    if (loaded == CL_SUCCESS &&
        cl->clBuildProgram(program, 1, &context->device, build_options, NULL, NULL) == CL_SUCCESS)
        return program;
    cl->clReleaseProgram(program);
    return NULL;
}

static void keep_binary(struct context *context, const struct oct_program_key *key)
{
    const struct oct_opencl *cl = context->cl;
    size_t bytes = 0;

    if (!key->directory ||
        cl->clGetProgramInfo(context->program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes,
                             NULL) != CL_SUCCESS ||
        !bytes)
        return;
    unsigned char *binary = malloc(bytes);
    if (binary && cl->clGetProgramInfo(context->program, CL_PROGRAM_BINARIES, sizeof binary,
                                       &binary, NULL) == CL_SUCCESS)
        oct_program_write(key, binary, bytes);
    free(binary);
}

static enum octet_status from_text(struct context *context, struct octet_error *err)
{
    const struct oct_opencl *cl = context->cl;
    const char *text = (const char *)oct_opencl_text;
    char log[LOG_BYTES] = "", buffer[32];
    cl_int error;

    context->program =
        cl->clCreateProgramWithSource(context->context, 1, &text, &oct_opencl_text_bytes, &error);
    if (error != CL_SUCCESS)
        return failed(context, "creating the program", error, err);
    error = cl->clBuildProgram(context->program, 1, &context->device, build_options, NULL, NULL);
    if (error == CL_SUCCESS)
        return OCTET_OK;
    cl->clGetProgramBuildInfo(context->program, context->device, CL_PROGRAM_BUILD_LOG, sizeof log,
                              log, NULL);
    log[sizeof log - 1] = 0;
    return octet_fail(err, OCTET_UNIMPLEMENTED, "device",
                      "opencl: %s does not compile the kernels (%s): %s", context->device_name,
                      oct_opencl_error_name(error, buffer, sizeof buffer), log);
}

static enum octet_status build(struct context *context, const char *cache_directory,
                               struct octet_error *err)
{
    char *text = strndup((const char *)oct_opencl_text, oct_opencl_text_bytes);
    const char *parts[] = {context->device_name, context->driver_name, build_options, text};
    struct oct_program_key key = {0};

    if (!text)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for the kernels' text");
    key = oct_program_key("opencl", cache_directory, parts, 4);
    free(text);
    context->program = from_binary(context, &key);
    if (context->program)
        return OCTET_OK;
    enum octet_status status = from_text(context, err);
    if (status == OCTET_OK)
        keep_binary(context, &key);
    return status;
}

/* ---- open, close ---- */

static void close_context(void *user)
{
    struct context *context = user;

    if (context->program)
        context->cl->clReleaseProgram(context->program);
    if (context->context)
        context->cl->clReleaseContext(context->context);
    free(context);
}

static void name_device(struct context *context)
{
    char vendor[NAME_BYTES], version[NAME_BYTES], driver[NAME_BYTES];

    info(context->cl, context->device, CL_DEVICE_NAME, context->device_name, NAME_BYTES);
    info(context->cl, context->device, CL_DEVICE_VENDOR, vendor, sizeof vendor);
    info(context->cl, context->device, CL_DEVICE_VERSION, version, sizeof version);
    info(context->cl, context->device, CL_DRIVER_VERSION, driver, sizeof driver);
    snprintf(context->driver_name, sizeof context->driver_name, "%s, driver %s (%s)", version,
             driver, vendor);
}

static enum octet_status open_context(const struct octet_backend_options *options, void **out,
                                      struct octet_backend_facts *facts, struct octet_error *err)
{
    struct context *context = calloc(1, sizeof *context);
    cl_int error;

    if (!context)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a context");
    enum octet_status status = oct_opencl_load(&context->cl, err);
    if (status == OCTET_OK)
        status = choose_device(context, options->device, &facts->devices, err);
    if (status == OCTET_OK) {
        name_device(context);
        status = check_device(context, &facts->memory_bytes, err);
    }
    if (status == OCTET_OK) {
        context->context =
            context->cl->clCreateContext(NULL, 1, &context->device, NULL, NULL, &error);
        if (error != CL_SUCCESS)
            status = failed(context, "creating a context", error, err);
        else
            oct_opencl_stay(context->context);
    }
    if (status == OCTET_OK)
        status = build(context, options->cache_directory, err);
    if (status != OCTET_OK) {
        close_context(context);
        return status;
    }
    facts->name = oct_driver_opencl.name;
    facts->device = context->device_name;
    facts->driver = context->driver_name;
    facts->capabilities.name = oct_driver_opencl.name;
    *out = context;
    return OCTET_OK;
}

/* ---- queues and memory ---- */

static enum octet_status queue_create(void *user, void **out, struct octet_error *err)
{
    struct context *context = user;
    struct queue *queue = calloc(1, sizeof *queue);
    enum octet_status status = check_lost(context, err);
    cl_int error;

    if (status == OCTET_OK && !queue)
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a queue");
    if (status == OCTET_OK) {
        queue->context = context;
        queue->queue =
            context->cl->clCreateCommandQueue(context->context, context->device, 0, &error);
        if (error != CL_SUCCESS)
            status = failed(context, "creating a queue", error, err);
    }
    if (status != OCTET_OK) {
        free(queue);
        return status;
    }
    *out = queue;
    return OCTET_OK;
}

static void queue_destroy(void *user)
{
    struct queue *queue = user;
    const struct oct_opencl *cl = queue->context->cl;

    cl->clFinish(queue->queue);
    for (int i = 0; i < OCT_KERNEL_COUNT; i++)
        if (queue->kernels[i])
            cl->clReleaseKernel(queue->kernels[i]);
    cl->clReleaseCommandQueue(queue->queue);
    free(queue);
}

static cl_mem memory_of(oct_device_buffer buffer)
{
    return (cl_mem)(uintptr_t)buffer;
}

static enum octet_status alloc(void *user, size_t bytes, oct_device_buffer *out,
                               struct octet_error *err)
{
    struct context *context = user;
    enum octet_status status = check_lost(context, err);
    cl_int error = CL_SUCCESS;
    cl_mem memory;

    if (status != OCTET_OK)
        return status;
    if (bytes > context->buffer_bytes_max)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "opencl: %zu bytes in one buffer; %s has up to %" PRIu64, bytes,
                          context->device_name, context->buffer_bytes_max);
    memory = context->cl->clCreateBuffer(context->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (error != CL_SUCCESS) {
        char what[64];
        snprintf(what, sizeof what, "a buffer of %zu bytes", bytes);
        return failed(context, what, error, err);
    }
    *out = (oct_device_buffer)(uintptr_t)memory;
    return OCTET_OK;
}

static void release(void *user, oct_device_buffer buffer)
{
    struct context *context = user;

    context->cl->clReleaseMemObject(memory_of(buffer));
}

static enum octet_status write_buffer(void *user, oct_device_buffer to, size_t offset,
                                      const void *from, size_t bytes, struct octet_error *err)
{
    struct queue *queue = user;
    enum octet_status status = check_lost(queue->context, err);

    if (status != OCTET_OK)
        return status;
    cl_int error = queue->context->cl->clEnqueueWriteBuffer(queue->queue, memory_of(to), CL_TRUE,
                                                            offset, bytes, from, 0, NULL, NULL);
    return error == CL_SUCCESS ? OCTET_OK : failed(queue->context, "writing a buffer", error, err);
}

static enum octet_status read_buffer(void *user, oct_device_buffer from, size_t offset, void *to,
                                     size_t bytes, struct octet_error *err)
{
    struct queue *queue = user;
    enum octet_status status = check_lost(queue->context, err);

    if (status != OCTET_OK)
        return status;
    cl_int error = queue->context->cl->clEnqueueReadBuffer(queue->queue, memory_of(from), CL_TRUE,
                                                           offset, bytes, to, 0, NULL, NULL);
    return error == CL_SUCCESS ? OCTET_OK : failed(queue->context, "reading a buffer", error, err);
}

static enum octet_status fill(void *user, oct_device_buffer to, size_t offset, size_t bytes,
                              unsigned char value, struct octet_error *err)
{
    struct queue *queue = user;
    enum octet_status status = check_lost(queue->context, err);

    if (status != OCTET_OK)
        return status;
    cl_int error = queue->context->cl->clEnqueueFillBuffer(
        queue->queue, memory_of(to), &value, sizeof value, offset, bytes, 0, NULL, NULL);
    return error == CL_SUCCESS ? OCTET_OK : failed(queue->context, "filling a buffer", error, err);
}

/* ---- kernels ---- */

static enum octet_status kernel_of(struct queue *queue, enum oct_device_kernel kernel,
                                   cl_kernel *out, struct octet_error *err)
{
    const struct oct_opencl *cl = queue->context->cl;
    cl_int error = CL_SUCCESS;

    if (!queue->kernels[kernel]) {
        cl_kernel made = cl->clCreateKernel(queue->context->program, kernel_names[kernel], &error);
        if (error != CL_SUCCESS)
            return failed(queue->context, kernel_names[kernel], error, err);
        queue->kernels[kernel] = made;
    }
    *out = queue->kernels[kernel];
    return OCTET_OK;
}

static cl_int set_argument(const struct oct_opencl *cl, cl_kernel kernel, cl_uint index,
                           const struct oct_device_argument *argument)
{
    cl_mem memory = memory_of(argument->buffer);
    cl_long integer = argument->integer;
    cl_float number = argument->number;

    switch (argument->kind) {
    case OCT_ARGUMENT_BUFFER:
        return cl->clSetKernelArg(kernel, index, sizeof memory, &memory);
    case OCT_ARGUMENT_INTEGER:
        return cl->clSetKernelArg(kernel, index, sizeof integer, &integer);
    case OCT_ARGUMENT_NUMBER:
        break;
    }
    return cl->clSetKernelArg(kernel, index, sizeof number, &number);
}

static enum octet_status launch(void *user, enum oct_device_kernel kernel,
                                const struct oct_device_grid *grid,
                                const struct oct_device_argument *arguments, size_t count,
                                struct octet_error *err)
{
    struct queue *queue = user;
    const struct oct_opencl *cl = queue->context->cl;
    size_t all[] = {grid->groups[0] * grid->items[0], grid->groups[1] * grid->items[1]};
    cl_int error = CL_SUCCESS;
    cl_kernel object = NULL;
    enum octet_status status = check_lost(queue->context, err);

    if (status == OCTET_OK)
        status = kernel_of(queue, kernel, &object, err);
    if (status != OCTET_OK)
        return status;
    for (size_t i = 0; i < count && error == CL_SUCCESS; i++)
        error = set_argument(cl, object, (cl_uint)i, &arguments[i]);
    if (error == CL_SUCCESS)
        error = cl->clEnqueueNDRangeKernel(queue->queue, object, 2, NULL, all, grid->items, 0, NULL,
                                           NULL);
    return error == CL_SUCCESS ? OCTET_OK
                               : failed(queue->context, kernel_names[kernel], error, err);
}

static enum octet_status wait(void *user, struct octet_error *err)
{
    struct queue *queue = user;
    enum octet_status status = check_lost(queue->context, err);

    if (status != OCTET_OK)
        return status;
    cl_int error = queue->context->cl->clFinish(queue->queue);
    return error == CL_SUCCESS ? OCTET_OK : failed(queue->context, "a queue", error, err);
}

const struct oct_driver oct_driver_opencl = {
    .name = "opencl",
    .open = open_context,
    .close = close_context,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .alloc = alloc,
    .release = release,
    .write = write_buffer,
    .read = read_buffer,
    .fill = fill,
    .launch = launch,
    .wait = wait,
};
