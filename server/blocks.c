/* See blocks.h. */
#include "blocks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Smaller ones are malloc's: it keeps those well enough. */
enum { MAPPED_BYTES = 1 << 20, HUGE_PAGE_BYTES = 2 << 20, IDLE_MAX = 16 };

struct blocks {
    _Atomic int references;
    uv_mutex_t lock; /* guards the rest */
    struct block idle[IDLE_MAX];
    size_t idle_count;
};

static struct block create(size_t bytes)
{
    struct block block = {.bytes = bytes};

    if (bytes < MAPPED_BYTES) {
        block.start = malloc(bytes + (bytes == 0));
        return block;
    }
    if (bytes > SIZE_MAX / 2)
        return block;
    block.bytes = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *start =
        mmap(NULL, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return block;
    (void)madvise(start, block.bytes, MADV_HUGEPAGE); /* a wish */
    block.start = start;
    return block;
}

static void destroy(struct block block)
{
    if (block.bytes < MAPPED_BYTES)
        free(block.start);
    else
        munmap(block.start, block.bytes);
}

struct blocks *blocks_create(void)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);

    if (blocks && uv_mutex_init(&blocks->lock) != 0) {
        free(blocks);
        return NULL;
    }
    if (blocks)
        blocks->references = 1;
    return blocks;
}

void blocks_unref(struct blocks *blocks)
{
    /* The last one sees all that the others did to it. */
    if (!blocks || atomic_fetch_sub_explicit(&blocks->references, 1, memory_order_acq_rel) > 1)
        return;
    blocks_tidy(blocks);
    uv_mutex_destroy(&blocks->lock);
    free(blocks);
}

/* The smallest that fits, but none that would be mostly empty. The lock is held. */
static size_t find(const struct blocks *blocks, size_t bytes)
{
    size_t best = blocks->idle_count;

    for (size_t i = 0; i < blocks->idle_count; i++) {
        size_t has = blocks->idle[i].bytes;
        if (has >= bytes && has / 4 <= bytes &&
            (best == blocks->idle_count || has < blocks->idle[best].bytes))
            best = i;
    }
    return best;
}

struct block blocks_take(struct blocks *blocks, size_t bytes)
{
    struct block block = {.start = NULL};

    if (bytes >= MAPPED_BYTES) {
        uv_mutex_lock(&blocks->lock);
        size_t i = find(blocks, bytes);
        if (i < blocks->idle_count) {
            block = blocks->idle[i];
            blocks->idle[i] = blocks->idle[--blocks->idle_count];
        }
        uv_mutex_unlock(&blocks->lock);
    }
    return block.start ? block : create(bytes);
}

void blocks_give(struct blocks *blocks, struct block block)
{
    bool is_kept = false;

    if (!block.start)
        return;
    if (block.bytes >= MAPPED_BYTES) {
        uv_mutex_lock(&blocks->lock);
        is_kept = blocks->idle_count < IDLE_MAX;
        if (is_kept)
            blocks->idle[blocks->idle_count++] = block;
        uv_mutex_unlock(&blocks->lock);
    }
    if (!is_kept)
        destroy(block);
}

struct lent {
    struct blocks *blocks;
    struct block block;
};

static void on_slice_end(void *user)
{
    struct lent *lent = user;

    blocks_give(lent->blocks, lent->block);
    blocks_unref(lent->blocks);
    free(lent);
}

bool blocks_slice(struct blocks *blocks, struct block block, size_t length, grpc_slice *out)
{
    struct lent *lent = malloc(sizeof *lent);

    if (!lent) {
        blocks_give(blocks, block);
        return false;
    }
    /* Relaxed: who holds one reference may make another. */
    atomic_fetch_add_explicit(&blocks->references, 1, memory_order_relaxed);
    *lent = (struct lent){blocks, block};
    *out = grpc_slice_new_with_user_data(block.start, length, on_slice_end, lent);
    return true;
}

void blocks_tidy(struct blocks *blocks)
{
    struct block old[IDLE_MAX];

    uv_mutex_lock(&blocks->lock);
    size_t count = blocks->idle_count;
    memcpy(old, blocks->idle, count * sizeof *old);
    blocks->idle_count = 0;
    uv_mutex_unlock(&blocks->lock);
    for (size_t i = 0; i < count; i++)
        destroy(old[i]);
}
