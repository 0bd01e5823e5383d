/* See fake.h. The functions have the names and types of libcuda's own. */
#include "fake.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/facts.h"

#define API __attribute__((visibility("default")))

API struct fake_cuda fake_cuda = {
    .devices = 1, .capability = 90, .memory_bytes = (size_t)1 << 30, .knows_vectors = 1};

#define DECLARE(name, symbol, arguments) API unsigned fake_##name arguments __asm__(symbol);
OCT_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

struct work {
    struct work *next;
    fake_work run;
    void *argument;
};

struct CUstream_st {
    struct CUstream_st *next;
    struct work *first, **last;
};

struct CUevent_st {
    struct CUstream_st *stream;
};

struct CUctx_st {
    int references;
    unsigned death;
};

struct CUmod_st {
    char *text;
};

/* A compiled program: which device it is for, then its text. */
struct CUlinkState_st {
    char *binary;
    size_t bytes;
};
static const char binary_head[] = "\177fake sm_";

/* A piece of memory, on the device or pinned. */
struct piece {
    struct piece *next;
    char *data;
    size_t bytes;
    bool is_pinned;
};

enum { JUNK = 0xa7, STACK_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below and fake_cuda */
static struct CUctx_st context;
static struct CUstream_st *streams;
static struct piece *pieces;
static _Thread_local struct CUctx_st *stack[STACK_MAX];
static _Thread_local int depth;

/* Takes the lock; what a call with a context answers before it does anything. */
static unsigned begin(void)
{
    pthread_mutex_lock(&lock);
    if (!depth || !context.references)
        return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    return context.death;
}

static unsigned end(unsigned result)
{
    if (!result)
        result = context.death;
    pthread_mutex_unlock(&lock);
    return result;
}

static struct piece *piece_of(const void *data, size_t bytes)
{
    const char *at = data;

    for (struct piece *p = pieces; p; p = p->next)
        if (at >= p->data && at + bytes <= p->data + p->bytes)
            return p;
    return NULL;
}

/* ---- work ---- */

static void run_stream(struct CUstream_st *stream)
{
    while (stream->first) {
        struct work *work = stream->first;

        stream->first = work->next;
        if (!stream->first)
            stream->last = &stream->first;
        if (!context.death)
            work->run(work->argument);
        free(work->argument);
        free(work);
    }
}

static void run_all(void)
{
    for (struct CUstream_st *s = streams; s; s = s->next)
        run_stream(s);
}

static void enqueue(struct CUstream_st *stream, fake_work run, void *argument)
{
    struct work *work = calloc(1, sizeof *work);

    if (!work)
        abort();
    work->run = run;
    work->argument = argument;
    *stream->last = work;
    stream->last = &work->next;
}

API void fake_cuda_enqueue(void *stream, fake_work run, void *argument)
{
    pthread_mutex_lock(&lock);
    enqueue(stream, run, argument);
    pthread_mutex_unlock(&lock);
}

struct copy {
    char *to;
    const char *from;
    size_t bytes;
    char staged[];
};

static void run_copy(void *argument)
{
    struct copy *copy = argument;

    memcpy(copy->to, copy->from ? copy->from : copy->staged, copy->bytes);
}

static unsigned enqueue_copy(void *to, const void *from, size_t bytes, bool is_staged,
                             struct CUstream_st *stream)
{
    struct copy *copy = calloc(1, sizeof *copy + (is_staged ? bytes : 0));

    if (!copy)
        abort();
    copy->to = to;
    copy->bytes = bytes;
    if (is_staged)
        memcpy(copy->staged, from, bytes);
    else
        copy->from = from;
    enqueue(stream, run_copy, copy);
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuMemcpyHtoDAsync(oct_cuda_pointer to, const void *from, size_t bytes,
                                oct_cuda_stream stream)
{
    unsigned result = begin();
    struct piece *target = piece_of((void *)(uintptr_t)to, bytes), *source = piece_of(from, bytes);

    if (!result && (!target || target->is_pinned || !bytes))
        result = OCT_CUDA_INVALID_VALUE;
    return end(result ? result
                      : enqueue_copy((void *)(uintptr_t)to, from, bytes,
                                     !source || !source->is_pinned, stream));
}

unsigned fake_cuMemcpyDtoHAsync(void *to, oct_cuda_pointer from, size_t bytes,
                                oct_cuda_stream stream)
{
    unsigned result = begin();
    struct piece *source = piece_of((void *)(uintptr_t)from, bytes), *target = piece_of(to, bytes);

    if (!result && (!source || source->is_pinned || !bytes))
        result = OCT_CUDA_INVALID_VALUE;
    if (!result)
        result = enqueue_copy(to, (void *)(uintptr_t)from, bytes, false, stream);
    if (!result && (!target || !target->is_pinned))
        run_stream(stream); /* to ordinary memory: has come when the call returns */
    return end(result);
}

struct fill {
    char *to;
    size_t bytes;
    unsigned char value;
};

static void run_fill(void *argument)
{
    struct fill *fill = argument;

    memset(fill->to, fill->value, fill->bytes);
}

unsigned fake_cuMemsetD8Async(oct_cuda_pointer to, unsigned char value, size_t bytes,
                              oct_cuda_stream stream)
{
    unsigned result = begin();
    struct piece *target = piece_of((void *)(uintptr_t)to, bytes);
    struct fill *fill = calloc(1, sizeof *fill);

    if (!fill)
        abort();
    if (!result && (!target || target->is_pinned))
        result = OCT_CUDA_INVALID_VALUE;
    *fill = (struct fill){(void *)(uintptr_t)to, bytes, value};
    if (result)
        free(fill);
    else
        enqueue(stream, run_fill, fill);
    return end(result);
}

struct launch {
    fake_kernel kernel;
    unsigned groups[2], items[2];
    void *places[32];
    uint64_t values[32];
};

static void run_launch(void *argument)
{
    struct launch *launch = argument;

    fake_cuda.launches++;
    if (fake_cuda.lose_launch && --fake_cuda.lose_launch == 0) {
        context.death = OCT_CUDA_LAUNCH_FAILED;
        return;
    }
    fake_kernel_run(launch->kernel, launch->places, launch->groups, launch->items);
}

/* How many parameters, and of how many bytes each, by the PTX of the kernel. */
static int parameters_of(const char *text, const char *name, size_t *bytes)
{
    char head[128];
    int count = 0;

    snprintf(head, sizeof head, ".entry %s(", name);
    const char *at = strstr(text, head), *stop = at ? strchr(at, ')') : NULL;
    while (at && stop && (at = strstr(at, ".param .")) && at < stop && count < 32) {
        at += strlen(".param .");
        bytes[count++] = strncmp(at, "u64", 3) == 0 || strncmp(at, "b64", 3) == 0 ? 8 : 4;
    }
    return stop ? count : -1;
}

struct CUfunc_st {
    struct CUfunc_st *next;
    fake_kernel kernel;
    int parameters;
    size_t bytes[32];
};
static struct CUfunc_st *functions;

unsigned fake_cuLaunchKernel(oct_cuda_function function, unsigned groups_x, unsigned groups_y,
                             unsigned groups_z, unsigned items_x, unsigned items_y,
                             unsigned items_z, unsigned shared_bytes, oct_cuda_stream stream,
                             void **arguments, void **extra)
{
    unsigned result = begin();
    struct launch *launch = calloc(1, sizeof *launch);

    if (!launch)
        abort();
    if (!result && (!groups_x || !groups_y || groups_z != 1 || groups_y > 65535 || items_z != 1 ||
                    items_x * items_y > 1024 || shared_bytes || extra))
        result = OCT_CUDA_INVALID_VALUE;
    for (int i = 0; !result && i < function->parameters; i++) {
        memcpy(&launch->values[i], arguments[i], function->bytes[i]);
        launch->places[i] = &launch->values[i];
    }
    launch->kernel = function->kernel;
    launch->groups[0] = groups_x;
    launch->groups[1] = groups_y;
    launch->items[0] = items_x;
    launch->items[1] = items_y;
    if (result)
        free(launch);
    else
        enqueue(stream, run_launch, launch);
    return end(result);
}

/* ---- memory ---- */

static unsigned take(size_t bytes, bool is_pinned, char **data)
{
    struct piece *piece = calloc(1, sizeof *piece);

    *data = malloc(bytes ? bytes : 1);
    if (!piece || !*data)
        abort();
    memset(*data, JUNK, bytes);
    *piece = (struct piece){pieces, *data, bytes, is_pinned};
    pieces = piece;
    if (is_pinned) {
        fake_cuda.live_pinned++;
    } else {
        fake_cuda.live_buffers++;
        fake_cuda.live_bytes += bytes;
    }
    return OCT_CUDA_SUCCESS;
}

static unsigned give(const void *data, bool is_pinned)
{
    for (struct piece **p = &pieces; *p; p = &(*p)->next) {
        struct piece *piece = *p;

        if (piece->data != data || piece->is_pinned != is_pinned)
            continue;
        *p = piece->next;
        if (is_pinned) {
            fake_cuda.live_pinned--;
        } else {
            fake_cuda.live_buffers--;
            fake_cuda.live_bytes -= piece->bytes;
        }
        memset(piece->data, JUNK, piece->bytes);
        free(piece->data);
        free(piece);
        return OCT_CUDA_SUCCESS;
    }
    return OCT_CUDA_INVALID_VALUE;
}

unsigned fake_cuMemAlloc(oct_cuda_pointer *pointer, size_t bytes)
{
    unsigned result = begin();
    char *data = NULL;

    fake_cuda.allocs++;
    if (!result && !bytes)
        result = OCT_CUDA_INVALID_VALUE;
    if (!result && fake_cuda.fail_alloc && --fake_cuda.fail_alloc == 0)
        result = OCT_CUDA_OUT_OF_MEMORY;
    if (!result &&
        (bytes > fake_cuda.memory_bytes || fake_cuda.live_bytes > fake_cuda.memory_bytes - bytes))
        result = OCT_CUDA_OUT_OF_MEMORY;
    if (!result)
        result = take(bytes, false, &data);
    *pointer = (uintptr_t)data;
    return end(result);
}

unsigned fake_cuMemFree(oct_cuda_pointer pointer)
{
    unsigned result = begin();

    run_all();
    return end(result ? result : give((void *)(uintptr_t)pointer, false));
}

unsigned fake_cuMemAllocHost(void **pointer, size_t bytes)
{
    unsigned result = begin();
    char *data = NULL;

    if (!result && fake_cuda.fail_pinned && --fake_cuda.fail_pinned <= 0) {
        fake_cuda.fail_pinned = 1;
        result = OCT_CUDA_OUT_OF_MEMORY;
    }
    if (!result)
        result = take(bytes, true, &data);
    *pointer = data;
    return end(result);
}

unsigned fake_cuMemFreeHost(void *pointer)
{
    unsigned result = begin();

    run_all();
    return end(result ? result : give(pointer, true));
}

/* ---- streams and events ---- */

unsigned fake_cuStreamCreate(oct_cuda_stream *out, unsigned flags)
{
    unsigned result = begin();
    struct CUstream_st *stream = calloc(1, sizeof *stream);

    if (!stream)
        abort();
    if (!result && flags != OCT_CUDA_STREAM_NON_BLOCKING)
        result = OCT_CUDA_INVALID_VALUE;
    if (result) {
        free(stream);
        return end(result);
    }
    stream->last = &stream->first;
    stream->next = streams;
    streams = stream;
    fake_cuda.live_streams++;
    *out = stream;
    return end(result);
}

static void stream_free(struct CUstream_st *stream)
{
    run_stream(stream);
    for (struct CUstream_st **s = &streams; *s; s = &(*s)->next)
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    fake_cuda.live_streams--;
    free(stream);
}

unsigned fake_cuStreamDestroy(oct_cuda_stream stream)
{
    unsigned result = begin();

    if (result != 201)
        stream_free(stream);
    return end(result);
}

unsigned fake_cuStreamSynchronize(oct_cuda_stream stream)
{
    unsigned result = begin();

    run_stream(stream);
    return end(result);
}

unsigned fake_cuEventCreate(oct_cuda_event *event, unsigned flags)
{
    unsigned result = begin();

    (void)flags;
    *event = result ? NULL : calloc(1, sizeof **event);
    fake_cuda.live_events += *event != NULL;
    return end(result);
}

unsigned fake_cuEventDestroy(oct_cuda_event event)
{
    unsigned result = begin();

    fake_cuda.live_events--;
    free(event);
    return end(result);
}

unsigned fake_cuEventRecord(oct_cuda_event event, oct_cuda_stream stream)
{
    unsigned result = begin();

    event->stream = stream;
    return end(result);
}

/* Does more than is asked: the stream's later work too. */
unsigned fake_cuEventSynchronize(oct_cuda_event event)
{
    unsigned result = begin();

    if (event->stream)
        run_stream(event->stream);
    return end(result);
}

unsigned fake_cuEventElapsedTime(float *milliseconds, oct_cuda_event from, oct_cuda_event to)
{
    unsigned result = begin();

    *milliseconds = 0.5f;
    return end(!result && (!from->stream || from->stream != to->stream) ? OCT_CUDA_INVALID_VALUE
                                                                        : result);
}

/* ---- the driver, devices, contexts, modules ---- */

unsigned fake_cuInit(unsigned flags)
{
    return flags ? (unsigned)OCT_CUDA_INVALID_VALUE : fake_cuda.init_result;
}

unsigned fake_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuGetErrorName(unsigned result, const char **name)
{
    switch (result) {
#define NAME(word, number, death)                                                                  \
    case number:                                                                                   \
        *name = number ? "CUDA_ERROR_" #word : "CUDA_" #word;                                      \
        return OCT_CUDA_SUCCESS;
        OCT_CUDA_RESULTS(NAME)
#undef NAME
    }
    return OCT_CUDA_INVALID_VALUE;
}

unsigned fake_cuDeviceGetCount(int *count)
{
    *count = fake_cuda.devices;
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < fake_cuda.devices ? OCT_CUDA_SUCCESS : OCT_CUDA_INVALID_DEVICE;
}

unsigned fake_cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Fake device %d", device);
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuDeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    *bytes = fake_cuda.memory_bytes;
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    (void)device;
    *value = attribute == OCT_CUDA_ATTRIBUTE_CAPABILITY_MAJOR   ? fake_cuda.capability / 10
             : attribute == OCT_CUDA_ATTRIBUTE_CAPABILITY_MINOR ? fake_cuda.capability % 10
                                                                : -1;
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuDevicePrimaryCtxRetain(oct_cuda_context *out, int device)
{
    (void)device;
    pthread_mutex_lock(&lock);
    fake_cuda.live_contexts = ++context.references;
    *out = &context;
    pthread_mutex_unlock(&lock);
    return OCT_CUDA_SUCCESS;
}

/* With its last owner a context takes all along that is its own. */
unsigned fake_cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    pthread_mutex_lock(&lock);
    fake_cuda.live_contexts = --context.references;
    if (!context.references) {
        while (streams)
            stream_free(streams);
        while (pieces)
            (void)give(pieces->data, pieces->is_pinned);
        while (functions) {
            struct CUfunc_st *function = functions;
            functions = function->next;
            free(function);
        }
        context.death = 0;
    }
    pthread_mutex_unlock(&lock);
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuCtxPushCurrent(oct_cuda_context pushed)
{
    if (depth == STACK_MAX || !pushed)
        return OCT_CUDA_INVALID_VALUE;
    stack[depth++] = pushed;
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuCtxPopCurrent(oct_cuda_context *popped)
{
    if (!depth)
        return 201;
    *popped = stack[--depth];
    return OCT_CUDA_SUCCESS;
}

unsigned fake_cuModuleLoadDataEx(oct_cuda_module *module, const void *image, unsigned options,
                                 unsigned *names, void **values)
{
    unsigned result = begin();

    if (!result && fake_cuda.load_result) {
        result = fake_cuda.load_result;
        for (unsigned i = 0; i < options; i++)
            if (names[i] == OCT_CUDA_JIT_ERROR_LOG_BUFFER)
                memcpy(values[i], "ptxas fatal: a line\nanother", 28);
    }
    if (!result && strncmp(image, binary_head, strlen(binary_head)) == 0) {
        if (strtol((const char *)image + strlen(binary_head), NULL, 10) != fake_cuda.capability)
            result = OCT_CUDA_NO_BINARY_FOR_GPU;
    } else if (!result && strstr(image, ".target sm_")) {
        fake_cuda.compilations++;
    } else if (!result) {
        result = OCT_CUDA_INVALID_IMAGE;
    }
    *module = result ? NULL : calloc(1, sizeof **module);
    if (*module) {
        (*module)->text = strdup(image);
        fake_cuda.live_modules++;
    }
    return end(result);
}

unsigned fake_cuLinkCreate(unsigned options, unsigned *names, void **values, oct_cuda_link *link)
{
    unsigned result = begin();

    (void)options, (void)names, (void)values;
    *link = result ? NULL : calloc(1, sizeof **link);
    fake_cuda.live_links += *link != NULL;
    return end(result);
}

unsigned fake_cuLinkAddData(oct_cuda_link link, unsigned type, void *data, size_t bytes,
                            const char *name, unsigned options, unsigned *names, void **values)
{
    unsigned result = begin();

    (void)options, (void)names, (void)values;
    if (!result && fake_cuda.load_result)
        result = fake_cuda.load_result;
    if (!result && (type != OCT_CUDA_JIT_INPUT_PTX || !name || ((char *)data)[bytes - 1]))
        result = OCT_CUDA_INVALID_VALUE;
    if (!result) {
        link->bytes = bytes + 32;
        link->binary = calloc(1, link->bytes);
        snprintf(link->binary, link->bytes, "%s%d\n%s", binary_head, fake_cuda.capability,
                 (const char *)data);
        fake_cuda.compilations++;
    }
    return end(result);
}

unsigned fake_cuLinkComplete(oct_cuda_link link, void **binary, size_t *bytes)
{
    unsigned result = begin();

    *binary = link->binary;
    *bytes = link->bytes;
    return end(result);
}

unsigned fake_cuLinkDestroy(oct_cuda_link link)
{
    unsigned result = begin();

    fake_cuda.live_links--;
    free(link->binary);
    free(link);
    return end(result);
}

unsigned fake_cuModuleUnload(oct_cuda_module module)
{
    unsigned result = begin();

    fake_cuda.live_modules--;
    free(module->text);
    free(module);
    return end(result);
}

unsigned fake_cuModuleGetFunction(oct_cuda_function *out, oct_cuda_module module, const char *name)
{
    unsigned result = begin();
    struct CUfunc_st *function = calloc(1, sizeof *function);

    if (!function)
        abort();
    function->kernel = fake_kernel_find(name);
    function->parameters = parameters_of(module->text, name, function->bytes);
    if (!result && (!function->kernel || function->parameters < 0))
        result = OCT_CUDA_NOT_FOUND;
    if (result) {
        free(function);
    } else {
        function->next = functions;
        functions = function;
        *out = function;
    }
    return end(result);
}
