/* Memory on the device: blocks counted by references, a pool of those that are free, and what
 * residences keep under their keys.
 *
 * For: the ops of this room. All of it is guarded by one lock of the backend: an op takes it some
 * dozen times, for moments.
 *
 * Life: 1. A block has references: of calls under way (oct_work) and of entries. 2. A call ends
 * when the device has done its work, so a block without references is free for whoever comes
 * next. 3. An entry that no call uses goes when memory ends, the least recently used first, unless
 * it is pinned: what forward left for backward is nowhere else. */
#ifndef OCTET_BACKENDS_MEMORY_H
#define OCTET_BACKENDS_MEMORY_H

#include <pthread.h>

#include "backends/backend.h"
#include "backends/driver.h"

struct oct_block {
    oct_device_buffer buffer;
    size_t bytes;
    int32_t references;
    struct oct_block *next; /* in the pool */
};

/* An array on the device: numbers, codes with their scales, or bare codes. Shapes are as on the
 * host, with data NULL. */
struct oct_device_array {
    bool is_quantized;
    struct octet_array array;        /* numbers, or codes */
    struct octet_array scale;        /* shape and dtype; on the device f32 whatever that is */
    struct oct_block *data, *scales; /* scales NULL: not quantized */
    struct oct_block *upper,
        *lower; /* the calibration's range, f32, of the scale's shape; or NULL */
};

enum { OCT_ENTRY_BUCKETS = 1024, OCT_POOL_BLOCKS = 64, OCT_IDLE_QUEUES = 8 };

/* What a residence has under a key, in one of its forms. Of the backend itself (residence NULL):
 * plans of kernels, by the hash of their contents. */
struct oct_entry {
    struct oct_entry *next;
    const oct_residence *residence;
    uint64_t key, form;
    struct oct_device_array array;
    bool is_pinned;
    uint64_t used; /* the backend's clock then */
};

struct octet_backend {
    const struct oct_driver *driver;
    void *context;
    struct octet_backend_facts facts;
    pthread_mutex_t lock; /* guards what follows, and blocks */
    uint64_t limit, held, peak, clock;
    struct oct_block *pool; /* the latest first */
    size_t pool_blocks;
    struct oct_entry *bucket[OCT_ENTRY_BUCKETS];
    void *idle[OCT_IDLE_QUEUES];
    size_t idle_queues;
};

struct oct_residence {
    octet_backend *backend;
    oct_residence *parent;
    void *queue;
};

/* octet_backend_open, of a driver that need not be in the list (tests). */
enum octet_status oct_backend_open_driver(const struct oct_driver *driver,
                                          const struct octet_backend_options *options,
                                          octet_backend **out,
                                          struct octet_error *err) OCTET_MUST_CHECK;

/* Frees all entries and the pool; there are no calls and no residences. */
void oct_memory_end(octet_backend *backend);

/* One call under way: its queue, its blocks, working memory on the host. */
enum { OCT_WORK_BLOCKS = 128 };
struct oct_work {
    octet_backend *backend;
    oct_residence *residence;
    struct octet_compute compute; /* its arena ends with the call */
    struct oct_block *block[OCT_WORK_BLOCKS];
    size_t blocks;
    bool is_busy; /* the device may be at work */
    bool is_fast; /* a product ran in another order than EXACT_ORDER */
};

enum octet_status oct_work_begin(struct oct_work *work, oct_residence *residence,
                                 const struct octet_compute *compute,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* Waits for the device if need be; drops all references. */
void oct_work_end(struct oct_work *work);

/* A block of the call's that holds anything. Errors: RESOURCE_EXHAUSTED with what there is. */
enum octet_status oct_work_block(struct oct_work *work, size_t bytes, struct oct_block **out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* The array under a key, kept from now on until the call ends; false: there is none. */
bool oct_work_find(struct oct_work *work, uint64_t key, uint64_t form,
                   struct oct_device_array *out);
/* Keeps an array of this call under a key (0: not at all). What others may read (shared keys,
 * plans) is complete by then. */
enum octet_status oct_work_keep(struct oct_work *work, uint64_t key, uint64_t form,
                                const struct oct_device_array *array, bool is_pinned,
                                struct octet_error *err) OCTET_MUST_CHECK;
/* A plan's contents on the device: found, or uploaded. */
enum octet_status oct_work_plan(struct oct_work *work, const int64_t *values, size_t count,
                                struct oct_block **out, struct octet_error *err) OCTET_MUST_CHECK;

/* To and from the host. */
enum octet_status oct_work_upload(struct oct_work *work, const void *from, size_t bytes,
                                  struct oct_block **out, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_work_download(struct oct_work *work, const struct oct_block *from, void *to,
                                    size_t bytes, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_work_fill(struct oct_work *work, struct oct_block *block, size_t bytes,
                                struct octet_error *err) OCTET_MUST_CHECK; /* with zeros */
enum octet_status oct_work_launch(struct oct_work *work, enum oct_device_kernel kernel,
                                  const struct oct_device_grid *grid,
                                  const struct oct_device_argument *arguments, size_t count,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
