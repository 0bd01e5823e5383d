/* Backends: the list of drivers, what an open one is, and what all of them take. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/plan.h"
#include "backends/memory.h"

static const struct oct_driver *const drivers[] = {
#ifdef OCTET_HAVE_OPENCL
    &oct_driver_opencl,
#endif
    &oct_driver_cuda, NULL};
enum { DRIVERS = sizeof drivers / sizeof *drivers - 1 };

const char *octet_backend_name(size_t index)
{
    return index < DRIVERS ? drivers[index]->name : NULL;
}

static enum octet_status find_driver(const char *name, const struct oct_driver **out,
                                     struct octet_error *err)
{
    char names[128] = "";

    for (size_t i = 0; i < DRIVERS; i++) {
        size_t at = strlen(names);
        if (name && strcmp(name, drivers[i]->name) == 0) {
            *out = drivers[i];
            return OCTET_OK;
        }
        snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", drivers[i]->name);
    }
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "backend",
                      "there is no backend '%s'; expected one of %s", name ? name : "", names);
}

/* What the ops take, whatever the driver. */
static void fill_capabilities(struct octet_capabilities *c)
{
    c->code_dtypes = 1u << OCTET_DTYPE_F8_E4M3FN | 1u << OCTET_DTYPE_F8_E5M2 |
                     1u << OCTET_DTYPE_F4_E2M1FN | 1u << OCTET_DTYPE_S8 | 1u << OCTET_DTYPE_S4;
    c->number_dtypes = 1u << OCTET_DTYPE_F32 | 1u << OCTET_DTYPE_BF16;
    c->dot_general = c->einsum = c->grouped = true;
    c->mixed = c->tiles = c->fixed = true;
    c->zero_points = c->static_scale = c->sparsity = c->stochastic_rounding = false;
}

/* ---- warm-up ---- */

/* Arguments of each kernel: b a buffer, i an integer, n a number. */
static const char *const signatures[OCT_KERNEL_COUNT] = {
    [OCT_KERNEL_amax_rows] = "bbiib",     [OCT_KERNEL_amax_columns] = "bbiib",
    [OCT_KERNEL_scales] = "iibnnnibbb",   [OCT_KERNEL_quantize] = "bbibbiinnb",
    [OCT_KERNEL_scale] = "bbibib",        [OCT_KERNEL_cast] = "ibiib",
    [OCT_KERNEL_mask] = "bbiibbib",       [OCT_KERNEL_gemm_codes] = "bbbbbb",
    [OCT_KERNEL_gemm_numbers] = "bbbbbb",
};
enum { ARGUMENTS = 10 };

static enum octet_status warm_kernel(octet_backend *backend, void *queue,
                                     enum oct_device_kernel kernel, oct_device_buffer zeros,
                                     struct octet_error *err)
{
    static const struct oct_device_grid line = {{1, 1}, {256, 1}};
    static const struct oct_device_grid planes[] = {{{1, 1}, {64, 4}}, {{1, 1}, {4, 64}}};
    struct oct_device_argument arguments[ARGUMENTS] = {0};
    const char *signature = signatures[kernel];
    size_t count = signature ? strlen(signature) : 0;
    bool is_plane =
        kernel == OCT_KERNEL_quantize || kernel == OCT_KERNEL_scale || kernel == OCT_KERNEL_mask;

    for (size_t i = 0; i < count; i++) {
        arguments[i].kind = signature[i] == 'b'   ? OCT_ARGUMENT_BUFFER
                            : signature[i] == 'i' ? OCT_ARGUMENT_INTEGER
                                                  : OCT_ARGUMENT_NUMBER;
        arguments[i].buffer = zeros;
    }
    if (!count)
        return OCTET_OK;
    enum octet_status status = backend->driver->launch(queue, kernel, is_plane ? &planes[0] : &line,
                                                       arguments, count, err);
    if (status == OCTET_OK && is_plane)
        status = backend->driver->launch(queue, kernel, &planes[1], arguments, count, err);
    return status;
}

/* Some devices finish a kernel's compilation at its first launch: here, and not in a request. Plans
 * of zeros leave nothing to compute. */
static enum octet_status warm_up(octet_backend *backend, struct octet_error *err)
{
    const struct oct_driver *driver = backend->driver;
    size_t bytes = PRODUCT_HEAD * sizeof(int64_t) + PANEL_SIZE * sizeof(int64_t);
    oct_device_buffer zeros = 0;
    void *queue = NULL;
    enum octet_status status = driver->queue_create(backend->context, &queue, err);

    if (status != OCTET_OK)
        return status;
    status = driver->alloc(backend->context, bytes, &zeros, err);
    if (status == OCTET_OK)
        status = driver->fill(queue, zeros, 0, bytes, 0, err);
    for (int kernel = 0; kernel < OCT_KERNEL_COUNT && status == OCTET_OK; kernel++)
        status = warm_kernel(backend, queue, (enum oct_device_kernel)kernel, zeros, err);
    if (status == OCTET_OK)
        status = driver->wait(queue, err);
    if (zeros)
        driver->release(backend->context, zeros);
    driver->queue_destroy(queue);
    return status;
}

/* ---- open, close ---- */

enum octet_status oct_backend_open_driver(const struct oct_driver *driver,
                                          const struct octet_backend_options *options,
                                          octet_backend **out, struct octet_error *err)
{
    static const struct octet_backend_options none = {0};
    octet_backend *backend = calloc(1, sizeof *backend);
    enum octet_status status;

    if (!backend)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a backend");
    backend->driver = driver;
    options = options ? options : &none;
    pthread_mutex_init(&backend->lock, NULL);
    status = driver->open(options, &backend->context, &backend->facts, err);
    if (status == OCTET_OK) {
        fill_capabilities(&backend->facts.capabilities);
        backend->limit = backend->facts.memory_bytes;
        if (options->memory_limit_bytes && options->memory_limit_bytes < backend->limit)
            backend->limit = options->memory_limit_bytes;
        status = warm_up(backend, err);
        if (status != OCTET_OK)
            driver->close(backend->context);
    }
    if (status != OCTET_OK) {
        pthread_mutex_destroy(&backend->lock);
        free(backend);
        return status;
    }
    *out = backend;
    return OCTET_OK;
}

enum octet_status octet_backend_open(const char *name, const struct octet_backend_options *options,
                                     octet_backend **out, struct octet_error *err)
{
    const struct oct_driver *driver = NULL;
    enum octet_status status = find_driver(name, &driver, err);

    return status == OCTET_OK ? oct_backend_open_driver(driver, options, out, err) : status;
}

void octet_backend_close(octet_backend *backend)
{
    if (!backend)
        return;
    oct_memory_end(backend);
    while (backend->idle_queues)
        backend->driver->queue_destroy(backend->idle[--backend->idle_queues]);
    backend->driver->close(backend->context);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

const struct octet_backend_facts *octet_backend_facts(const octet_backend *backend)
{
    return &backend->facts;
}

void octet_backend_memory(const octet_backend *backend, uint64_t *held, uint64_t *peak)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&backend->lock;

    pthread_mutex_lock(lock);
    if (held)
        *held = backend->held;
    if (peak)
        *peak = backend->peak;
    pthread_mutex_unlock(lock);
}

static enum octet_status check_extent(const char *field, int64_t value, struct octet_error *err)
{
    if (value >= 1 && value <= INT32_MAX)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "%" PRId64 " is not in 1 to %" PRId32,
                      value, INT32_MAX);
}

enum octet_status octet_backend_peer(octet_backend *backend, int64_t m, int64_t n, int64_t k,
                                     int32_t repeats, struct octet_backend_peer *out,
                                     struct octet_error *err)
{
    enum octet_status status = check_extent("m", m, err);
    void *queue = NULL;

    if (status == OCTET_OK)
        status = check_extent("n", n, err);
    if (status == OCTET_OK)
        status = check_extent("k", k, err);
    if (status == OCTET_OK)
        status = check_extent("repeats", repeats, err);
    if (status == OCTET_OK && !backend->driver->peer)
        status = octet_fail(err, OCTET_UNIMPLEMENTED, "backend",
                            "%s has no library of a vendor's to compare with", backend->facts.name);
    if (status == OCTET_OK)
        status = backend->driver->queue_create(backend->context, &queue, err);
    if (status != OCTET_OK)
        return status;
    status = backend->driver->peer(queue, m, n, k, repeats, out, err);
    backend->driver->queue_destroy(queue);
    return status;
}
