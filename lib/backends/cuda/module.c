/* The kernels on the device: from PTX, which the NVIDIA driver compiles for the device that is
 * there (a second or so), or from what an earlier run compiled and put by.
 *
 * Without a directory of ours the driver keeps what it compiles in its own, below the user's home,
 * which a daemon may not have. */
#include <stdlib.h>
#include <string.h>

#include "backends/cache.h"
#include "backends/cuda/cuda_private.h"

const char *const oct_cuda_kernel_names[OCT_KERNEL_COUNT] = {
#define OCT_DEVICE_KERNEL(name) [OCT_KERNEL_##name] = #name,
    OCT_DEVICE_KERNELS(OCT_DEVICE_KERNEL)
#undef OCT_DEVICE_KERNEL
};

/* What the compiler says of a text that it does not take. */
struct log {
    char text[1024];
    unsigned names[2];
    void *values[2];
};

static void log_begin(struct log *log)
{
    log->text[0] = '\0';
    log->names[0] = OCT_CUDA_JIT_ERROR_LOG_BUFFER;
    log->values[0] = log->text;
    log->names[1] = OCT_CUDA_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    log->values[1] = (void *)(uintptr_t)(sizeof log->text - 1);
}

static enum octet_status compile_status(struct oct_cuda *cuda, unsigned result, struct log *log,
                                        struct octet_error *err)
{
    switch (result) {
    case OCT_CUDA_NO_BINARY_FOR_GPU:
    case OCT_CUDA_INVALID_PTX:
    case OCT_CUDA_UNSUPPORTED_PTX_VERSION:
    case OCT_CUDA_JIT_COMPILER_NOT_FOUND:
    case OCT_CUDA_JIT_COMPILATION_DISABLED:
        log->text[strcspn(log->text, "\n")] = '\0';
        return octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                          "the driver (%s) does not take this build's kernels for %s: %s (%u)%s%s",
                          cuda->driver_text, cuda->device_name,
                          oct_cuda_result_name(&cuda->api, result), result, *log->text ? ": " : "",
                          log->text);
    }
    return oct_cuda_status(cuda, result, err, "compiling the kernels");
}

/* Compiles to a binary, loads that and puts it by. */
static unsigned link_and_keep(struct oct_cuda *cuda, const struct oct_program_key *key,
                              struct log *log)
{
    const char *text = oct_cuda_ptx();
    void *binary = NULL;
    size_t bytes = 0;
    oct_cuda_link link = NULL;
    unsigned result = cuda->api.cuLinkCreate(2, log->names, log->values, &link);

    if (result != OCT_CUDA_SUCCESS)
        return result;
    result = cuda->api.cuLinkAddData(link, OCT_CUDA_JIT_INPUT_PTX, (void *)(uintptr_t)text,
                                     strlen(text) + 1, "octet", 0, NULL, NULL);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuLinkComplete(link, &binary, &bytes);
    if (result == OCT_CUDA_SUCCESS)
        result = cuda->api.cuModuleLoadDataEx(&cuda->module, binary, 0, NULL, NULL);
    if (result == OCT_CUDA_SUCCESS)
        oct_program_write(key, binary, bytes);
    (void)cuda->api.cuLinkDestroy(link);
    return result;
}

static enum octet_status make_module(struct oct_cuda *cuda, const char *cache_directory,
                                     struct octet_error *err)
{
    const char *parts[] = {oct_cuda_ptx(), cuda->driver_text};
    struct oct_program_key key = oct_program_key("cuda", cache_directory, parts, 2);
    size_t bytes = 0;
    unsigned char *binary = oct_program_read(&key, &bytes);
    unsigned result = OCT_CUDA_INVALID_IMAGE;
    struct log log;

    log_begin(&log);
    if (binary)
        result = cuda->api.cuModuleLoadDataEx(&cuda->module, binary, 0, NULL, NULL);
    free(binary);
    if (result == OCT_CUDA_SUCCESS)
        return OCTET_OK;
    result = key.directory ? link_and_keep(cuda, &key, &log)
                           : cuda->api.cuModuleLoadDataEx(&cuda->module, oct_cuda_ptx(), 2,
                                                          log.names, log.values);
    return compile_status(cuda, result, &log, err);
}

enum octet_status oct_cuda_load(struct oct_cuda *cuda, const char *cache_directory,
                                struct octet_error *err)
{
    enum octet_status status = make_module(cuda, cache_directory, err);

    for (size_t i = 0; i < OCT_KERNEL_COUNT && status == OCTET_OK; i++)
        status = oct_cuda_status(cuda,
                                 cuda->api.cuModuleGetFunction(&cuda->kernels[i], cuda->module,
                                                               oct_cuda_kernel_names[i]),
                                 err, "finding the kernel %s", oct_cuda_kernel_names[i]);
    return status;
}
