/* See memory.h. */
#include "backends/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- blocks; the lock is held ---- */

/* Sizes that blocks come in, so that a free one fits again: steps of an eighth. */
static size_t rounded(size_t bytes)
{
    size_t step = 256;

    while (step * 16 <= bytes)
        step *= 2;
    return bytes < step ? step : (bytes + step - 1) / step * step;
}

static void release(octet_backend *backend, struct oct_block *block)
{
    backend->driver->release(backend->context, block->buffer);
    backend->held -= block->bytes;
    free(block);
}

static void drop(octet_backend *backend, struct oct_block *block)
{
    if (!block || --block->references)
        return;
    if (backend->pool_blocks == OCT_POOL_BLOCKS) {
        release(backend, block);
        return;
    }
    block->next = backend->pool;
    backend->pool = block;
    backend->pool_blocks++;
}

static struct oct_block *take_from_pool(octet_backend *backend, size_t bytes)
{
    struct oct_block **at = &backend->pool, *found;

    while (*at && (*at)->bytes != bytes)
        at = &(*at)->next;
    found = *at;
    if (!found)
        return NULL;
    *at = found->next;
    backend->pool_blocks--;
    return found;
}

/* ---- entries; the lock is held ---- */

static size_t bucket_of(const oct_residence *residence, uint64_t key)
{
    uint64_t mixed = (key ^ (uint64_t)(uintptr_t)residence) * 0x9e3779b97f4a7c15u;

    return (size_t)(mixed >> 54);
}

static void drop_array(octet_backend *backend, struct oct_device_array *array)
{
    drop(backend, array->data);
    drop(backend, array->scales);
    drop(backend, array->upper);
    drop(backend, array->lower);
}

static void reference_array(const struct oct_device_array *array)
{
    struct oct_block *blocks[] = {array->data, array->scales, array->upper, array->lower};

    for (int i = 0; i < 4; i++)
        if (blocks[i])
            blocks[i]->references++;
}

static void remove_entry(octet_backend *backend, struct oct_entry **at)
{
    struct oct_entry *entry = *at;

    *at = entry->next;
    drop_array(backend, &entry->array);
    free(entry);
}

static struct oct_entry *find_entry(octet_backend *backend, const oct_residence *residence,
                                    uint64_t key, uint64_t form)
{
    struct oct_entry *entry = backend->bucket[bucket_of(residence, key)];

    while (entry && (entry->residence != residence || entry->key != key || entry->form != form))
        entry = entry->next;
    return entry;
}

static bool is_unused(const struct oct_device_array *array)
{
    struct oct_block *blocks[] = {array->data, array->scales, array->upper, array->lower};

    for (int i = 0; i < 4; i++)
        if (blocks[i] && blocks[i]->references > 1)
            return false;
    return true;
}

/* Frees some memory: the pool's latest, else the entry that was not used for the longest time. */
static bool give_way(octet_backend *backend)
{
    struct oct_entry **oldest = NULL;

    if (backend->pool) {
        release(backend, take_from_pool(backend, backend->pool->bytes));
        return true;
    }
    for (size_t i = 0; i < OCT_ENTRY_BUCKETS; i++)
        for (struct oct_entry **at = &backend->bucket[i]; *at; at = &(*at)->next)
            if (!(*at)->is_pinned && is_unused(&(*at)->array) &&
                (!oldest || (*at)->used < (*oldest)->used))
                oldest = at;
    if (!oldest)
        return false;
    remove_entry(backend, oldest);
    return true;
}

static enum octet_status no_room(const octet_backend *backend, size_t bytes,
                                 struct octet_error *err)
{
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "%s: %zu bytes more are needed on the device, where %" PRIu64 " of %" PRIu64
                      " are in use",
                      backend->facts.name, bytes, backend->held, backend->limit);
}

static enum octet_status make_block(octet_backend *backend, size_t bytes, struct oct_block **out,
                                    struct octet_error *err)
{
    struct oct_block *block = malloc(sizeof *block);
    struct octet_error why;
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;

    if (!block)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a block's record");
    while (status == OCTET_RESOURCE_EXHAUSTED) {
        if (backend->held + bytes > backend->limit)
            status = no_room(backend, bytes, &why);
        else
            status = backend->driver->alloc(backend->context, bytes, &block->buffer, &why);
        if (status == OCTET_RESOURCE_EXHAUSTED && !give_way(backend))
            break;
    }
    if (status != OCTET_OK) {
        free(block);
        return octet_fail(err, status, why.field, "%s", why.text);
    }
    block->bytes = bytes;
    backend->held += bytes;
    backend->peak = backend->held > backend->peak ? backend->held : backend->peak;
    *out = block;
    return OCTET_OK;
}

void oct_memory_end(octet_backend *backend)
{
    for (size_t i = 0; i < OCT_ENTRY_BUCKETS; i++)
        while (backend->bucket[i])
            remove_entry(backend, &backend->bucket[i]);
    while (backend->pool)
        release(backend, take_from_pool(backend, backend->pool->bytes));
}

/* ---- residences ---- */

enum octet_status oct_residence_create(octet_backend *backend, oct_residence *parent,
                                       oct_residence **out, struct octet_error *err)
{
    oct_residence *residence = malloc(sizeof *residence);
    enum octet_status status = OCTET_OK;

    if (!residence)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a residence");
    *residence = (oct_residence){.backend = backend, .parent = parent};
    pthread_mutex_lock(&backend->lock);
    if (backend->idle_queues)
        residence->queue = backend->idle[--backend->idle_queues];
    pthread_mutex_unlock(&backend->lock);
    if (!residence->queue)
        status = backend->driver->queue_create(backend->context, &residence->queue, err);
    if (status != OCTET_OK) {
        free(residence);
        return status;
    }
    *out = residence;
    return OCTET_OK;
}

void oct_residence_destroy(oct_residence *residence)
{
    if (!residence)
        return;
    octet_backend *backend = residence->backend;
    bool is_idle = backend->driver->wait(residence->queue, NULL) == OCTET_OK;
    pthread_mutex_lock(&backend->lock);
    for (size_t i = 0; i < OCT_ENTRY_BUCKETS; i++)
        for (struct oct_entry **at = &backend->bucket[i]; *at;)
            if ((*at)->residence == residence)
                remove_entry(backend, at);
            else
                at = &(*at)->next;
    is_idle = is_idle && backend->idle_queues < OCT_IDLE_QUEUES;
    if (is_idle)
        backend->idle[backend->idle_queues++] = residence->queue;
    pthread_mutex_unlock(&backend->lock);
    if (!is_idle)
        backend->driver->queue_destroy(residence->queue);
    free(residence);
}

/* Whose entries a key's are. */
static const oct_residence *owner(const oct_residence *residence, uint64_t key)
{
    while (key & OCT_RESIDENCE_SHARED && residence->parent)
        residence = residence->parent;
    return residence;
}

void oct_residence_forget(oct_residence *residence, uint64_t key)
{
    octet_backend *backend = residence->backend;
    const oct_residence *whose = owner(residence, key);

    pthread_mutex_lock(&backend->lock);
    for (struct oct_entry **at = &backend->bucket[bucket_of(whose, key)]; *at;)
        if ((*at)->residence == whose && (*at)->key == key)
            remove_entry(backend, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&backend->lock);
}

/* ---- calls ---- */

enum octet_status oct_work_begin(struct oct_work *work, oct_residence *residence,
                                 const struct octet_compute *compute, struct octet_error *err)
{
    *work = (struct oct_work){
        .backend = residence->backend, .residence = residence, .compute = *compute};
    work->compute.arena = octet_arena_create_within(compute->arena);
    return work->compute.arena ? OCTET_OK : octet_arena_exhausted(compute->arena, err);
}

void oct_work_end(struct oct_work *work)
{
    octet_backend *backend = work->backend;

    /* A device that fails here has said so before, or will say so in the next call. */
    if (work->is_busy && backend->driver->wait(work->residence->queue, NULL) != OCTET_OK)
        work->is_busy = false;
    pthread_mutex_lock(&backend->lock);
    for (size_t i = 0; i < work->blocks; i++)
        drop(backend, work->block[i]);
    pthread_mutex_unlock(&backend->lock);
    octet_arena_destroy(work->compute.arena);
}

static void hold(struct oct_work *work, struct oct_block *block)
{
    assert(work->blocks < OCT_WORK_BLOCKS);
    work->block[work->blocks++] = block;
}

enum octet_status oct_work_block(struct oct_work *work, size_t bytes, struct oct_block **out,
                                 struct octet_error *err)
{
    octet_backend *backend = work->backend;
    size_t size = rounded(bytes);
    enum octet_status status = OCTET_OK;

    pthread_mutex_lock(&backend->lock);
    *out = take_from_pool(backend, size);
    if (!*out)
        status = make_block(backend, size, out, err);
    if (status == OCTET_OK) {
        (*out)->references = 1;
        hold(work, *out);
    }
    pthread_mutex_unlock(&backend->lock);
    return status;
}

static bool find(struct oct_work *work, const oct_residence *residence, uint64_t key, uint64_t form,
                 struct oct_device_array *out)
{
    octet_backend *backend = work->backend;

    pthread_mutex_lock(&backend->lock);
    struct oct_entry *entry = find_entry(backend, residence, key, form);
    if (entry) {
        struct oct_block *blocks[] = {entry->array.data, entry->array.scales, entry->array.upper,
                                      entry->array.lower};
        entry->used = ++backend->clock;
        *out = entry->array;
        reference_array(out);
        for (int i = 0; i < 4; i++)
            if (blocks[i])
                hold(work, blocks[i]);
    }
    pthread_mutex_unlock(&backend->lock);
    return entry != NULL;
}

bool oct_work_find(struct oct_work *work, uint64_t key, uint64_t form, struct oct_device_array *out)
{
    return key && find(work, owner(work->residence, key), key, form, out);
}

/* Two calls may have made the same: the first one's stays. */
static enum octet_status keep(struct oct_work *work, const oct_residence *residence, uint64_t key,
                              uint64_t form, const struct oct_device_array *array, bool is_pinned,
                              struct octet_error *err)
{
    octet_backend *backend = work->backend;
    struct oct_entry *entry = malloc(sizeof *entry);

    if (!entry)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a residence's entry");
    pthread_mutex_lock(&backend->lock);
    if (find_entry(backend, residence, key, form)) {
        free(entry);
    } else {
        struct oct_entry **bucket = &backend->bucket[bucket_of(residence, key)];
        *entry = (struct oct_entry){.next = *bucket,
                                    .residence = residence,
                                    .key = key,
                                    .form = form,
                                    .array = *array,
                                    .is_pinned = is_pinned,
                                    .used = ++backend->clock};
        reference_array(array);
        *bucket = entry;
    }
    pthread_mutex_unlock(&backend->lock);
    return OCTET_OK;
}

static enum octet_status wait(struct oct_work *work, struct octet_error *err)
{
    enum octet_status status = work->backend->driver->wait(work->residence->queue, err);

    if (status == OCTET_OK)
        work->is_busy = false;
    return status;
}

enum octet_status oct_work_keep(struct oct_work *work, uint64_t key, uint64_t form,
                                const struct oct_device_array *array, bool is_pinned,
                                struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (!key)
        return OCTET_OK;
    if (key & OCT_RESIDENCE_SHARED)
        status = wait(work, err);
    return status == OCTET_OK
               ? keep(work, owner(work->residence, key), key, form, array, is_pinned, err)
               : status;
}

enum octet_status oct_work_plan(struct oct_work *work, const int64_t *values, size_t count,
                                struct oct_block **out, struct octet_error *err)
{
    XXH128_hash_t hash = XXH3_128bits(values, count * sizeof *values);
    struct oct_device_array plan = {0};

    if (!find(work, NULL, hash.low64, hash.high64, &plan)) {
        enum octet_status status =
            oct_work_upload(work, values, count * sizeof *values, &plan.data, err);
        if (status == OCTET_OK)
            status = wait(work, err);
        if (status == OCTET_OK)
            status = keep(work, NULL, hash.low64, hash.high64, &plan, false, err);
        if (status != OCTET_OK)
            return status;
    }
    *out = plan.data;
    return OCTET_OK;
}

enum octet_status oct_work_upload(struct oct_work *work, const void *from, size_t bytes,
                                  struct oct_block **out, struct octet_error *err)
{
    enum octet_status status = oct_work_block(work, bytes, out, err);

    if (status != OCTET_OK || !bytes)
        return status;
    work->is_busy = true;
    return work->backend->driver->write(work->residence->queue, (*out)->buffer, 0, from, bytes,
                                        err);
}

enum octet_status oct_work_download(struct oct_work *work, const struct oct_block *from, void *to,
                                    size_t bytes, struct octet_error *err)
{
    if (!bytes)
        return OCTET_OK;
    enum octet_status status =
        work->backend->driver->read(work->residence->queue, from->buffer, 0, to, bytes, err);
    if (status == OCTET_OK)
        work->is_busy = false; /* a queue runs in order */
    return status;
}

enum octet_status oct_work_fill(struct oct_work *work, struct oct_block *block, size_t bytes,
                                struct octet_error *err)
{
    if (!bytes)
        return OCTET_OK;
    work->is_busy = true;
    return work->backend->driver->fill(work->residence->queue, block->buffer, 0, bytes, 0, err);
}

enum octet_status oct_work_launch(struct oct_work *work, enum oct_device_kernel kernel,
                                  const struct oct_device_grid *grid,
                                  const struct oct_device_argument *arguments, size_t count,
                                  struct octet_error *err)
{
    enum octet_status status = octet_cancel_check(work->compute.cancel, err);

    if (status != OCTET_OK)
        return status;
    work->is_busy = true;
    return work->backend->driver->launch(work->residence->queue, kernel, grid, arguments, count,
                                         err);
}
