/* A driver around another one: counts calls, fails at one of them. Calls may come from several
 * threads. */
#include <pthread.h>

#include "device.h"

struct counts counts;

static const struct oct_driver *inner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards counts and what follows */
static int64_t fail_in, fail_more;
static enum octet_status fail_status;

void counting_reset(void)
{
    pthread_mutex_lock(&lock);
    counts =
        (struct counts){.live_buffers = counts.live_buffers, .live_queues = counts.live_queues};
    pthread_mutex_unlock(&lock);
}

void counting_fail(int64_t n, int64_t calls_after, enum octet_status status)
{
    pthread_mutex_lock(&lock);
    fail_in = n;
    fail_more = calls_after;
    fail_status = status;
    pthread_mutex_unlock(&lock);
}

/* Counts a call; not OK: it shall fail. */
static enum octet_status count(int64_t *kind, int64_t by, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    pthread_mutex_lock(&lock);
    counts.calls++;
    if (kind)
        *kind += by;
    if (fail_in == 1) {
        status = fail_status;
        fail_in = fail_more-- > 0 ? 1 : 0;
    } else if (fail_in > 1) {
        fail_in--;
    }
    pthread_mutex_unlock(&lock);
    return status == OCTET_OK ? OCTET_OK : octet_fail(err, status, NULL, "the test makes it fail");
}

static void live(int64_t *kind, int64_t by)
{
    pthread_mutex_lock(&lock);
    *kind += by;
    pthread_mutex_unlock(&lock);
}

static enum octet_status open_context(const struct octet_backend_options *options, void **context,
                                      struct octet_backend_facts *facts, struct octet_error *err)
{
    return inner->open(options, context, facts, err);
}

static void close_context(void *context)
{
    inner->close(context);
}

static enum octet_status queue_create(void *context, void **queue, struct octet_error *err)
{
    enum octet_status status = count(NULL, 0, err);

    if (status == OCTET_OK)
        status = inner->queue_create(context, queue, err);
    if (status == OCTET_OK)
        live(&counts.live_queues, 1);
    return status;
}

static void queue_destroy(void *queue)
{
    inner->queue_destroy(queue);
    live(&counts.live_queues, -1);
}

static enum octet_status alloc(void *context, size_t bytes, oct_device_buffer *out,
                               struct octet_error *err)
{
    enum octet_status status = count(&counts.allocs, 1, err);

    if (status == OCTET_OK)
        status = inner->alloc(context, bytes, out, err);
    if (status == OCTET_OK)
        live(&counts.live_buffers, 1);
    return status;
}

static void release(void *context, oct_device_buffer buffer)
{
    inner->release(context, buffer);
    live(&counts.live_buffers, -1);
}

static enum octet_status write_buffer(void *queue, oct_device_buffer to, size_t offset,
                                      const void *from, size_t bytes, struct octet_error *err)
{
    enum octet_status status = count(&counts.writes, 1, err);

    live(&counts.written_bytes, (int64_t)bytes);
    return status == OCTET_OK ? inner->write(queue, to, offset, from, bytes, err) : status;
}

static enum octet_status read_buffer(void *queue, oct_device_buffer from, size_t offset, void *to,
                                     size_t bytes, struct octet_error *err)
{
    enum octet_status status = count(&counts.reads, 1, err);

    return status == OCTET_OK ? inner->read(queue, from, offset, to, bytes, err) : status;
}

static enum octet_status fill(void *queue, oct_device_buffer to, size_t offset, size_t bytes,
                              unsigned char value, struct octet_error *err)
{
    enum octet_status status = count(NULL, 0, err);

    return status == OCTET_OK ? inner->fill(queue, to, offset, bytes, value, err) : status;
}

static enum octet_status launch(void *queue, enum oct_device_kernel kernel,
                                const struct oct_device_grid *grid,
                                const struct oct_device_argument *arguments, size_t n,
                                struct octet_error *err)
{
    enum octet_status status = count(&counts.launches, 1, err);

    return status == OCTET_OK ? inner->launch(queue, kernel, grid, arguments, n, err) : status;
}

static enum octet_status wait_for(void *queue, struct octet_error *err)
{
    enum octet_status status = count(NULL, 0, err);

    return status == OCTET_OK ? inner->wait(queue, err) : status;
}

static enum octet_status fast_product(void *queue, const struct oct_fast_product *product,
                                      struct octet_error *err)
{
    return inner->fast_product(queue, product, err);
}

const struct oct_driver *counting_driver(const struct oct_driver *driver)
{
    static struct oct_driver counting;

    inner = driver;
    counting = *driver;
    counting.open = open_context;
    counting.close = close_context;
    counting.queue_create = queue_create;
    counting.queue_destroy = queue_destroy;
    counting.alloc = alloc;
    counting.release = release;
    counting.write = write_buffer;
    counting.read = read_buffer;
    counting.fill = fill;
    counting.launch = launch;
    counting.wait = wait_for;
    counting.fast_product = driver->fast_product ? fast_product : NULL;
    return &counting;
}
