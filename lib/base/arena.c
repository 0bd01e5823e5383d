/* Bump allocation in blocks; see octet/arena.h.
 *
 * Decision: blocks double from 16 KiB, so a request of a few hundred bytes costs one small block
 * and a plan of a megabyte some seven; what is larger than a quarter of the next block gets a block
 * of its own behind the current one, which stays open for small pieces. Blocks from 4 MiB on are
 * mapped, not malloc'ed: the kernel hands them out zeroed, in huge pages where it can (a fault for
 * each 2 MiB and not for each 4 KiB), and takes them back the moment the arena ends. */
#include "octet/arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 16 * 1024, LARGEST_BLOCK_BYTES = 1024 * 1024 };
enum { MAPPED_BLOCK_BYTES = 4 * 1024 * 1024 };

struct block {
    struct block *next;
    size_t size, used;   /* of data[] */
    size_t mapped_bytes; /* 0: malloc'ed. What is mapped and not used yet is zero */
    bool is_of_region;   /* part of the region of the outermost arena */
    _Alignas(ALIGNMENT) unsigned char data[];
};

struct octet_arena {
    octet_arena *parent;  /* whose budget this one's blocks count against too; NULL: none */
    struct block *blocks; /* the open one first */
    size_t budget, held;
    size_t next_block_bytes;
    uint64_t fail_at; /* 0: off */
    size_t refused;   /* bytes of the last piece that there was no room for */
    /* Memory of the caller's, handed out as a stack: blocks come back in the reverse order, or all
     * at once when the arena is reset. */
    unsigned char *region;
    size_t region_bytes, region_used;
};

octet_arena *octet_arena_create(size_t budget_bytes)
{
    octet_arena *arena = calloc(1, sizeof *arena);

    if (arena) {
        arena->budget = budget_bytes;
        arena->next_block_bytes = FIRST_BLOCK_BYTES;
    }
    return arena;
}

octet_arena *octet_arena_create_over(void *memory, size_t bytes, size_t budget_bytes)
{
    octet_arena *arena = octet_arena_create(budget_bytes);

    if (arena) {
        arena->region = memory;
        arena->region_bytes = bytes;
    }
    return arena;
}

octet_arena *octet_arena_create_within(octet_arena *parent)
{
    octet_arena *arena = octet_arena_create(parent->budget);

    if (arena)
        arena->parent = parent;
    return arena;
}

/* A block of the outermost arena's region; NULL when it has none, or no room. */
static struct block *region_take(octet_arena *arena, size_t bytes)
{
    while (arena->parent)
        arena = arena->parent;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > arena->region_bytes - arena->region_used)
        return NULL;
    struct block *block = (void *)(arena->region + arena->region_used);
    arena->region_used += bytes;
    return block;
}

static void region_give(octet_arena *arena, struct block *block)
{
    while (arena->parent)
        arena = arena->parent;
    size_t bytes = (sizeof *block + block->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if ((unsigned char *)block + bytes == arena->region + arena->region_used)
        arena->region_used -= bytes;
}

static void block_free(octet_arena *arena, struct block *block)
{
    if (block->is_of_region)
        region_give(arena, block);
    else if (block->mapped_bytes)
        oct_pages_unmap(block, block->mapped_bytes);
    else
        free(block);
}

void octet_arena_reset(octet_arena *arena)
{
    for (octet_arena *above = arena->parent; above; above = above->parent)
        above->held -= arena->held;
    while (arena->blocks) {
        struct block *next = arena->blocks->next;
        block_free(arena, arena->blocks);
        arena->blocks = next;
    }
    arena->held = 0;
    arena->region_used = 0;
    arena->next_block_bytes = FIRST_BLOCK_BYTES;
}

void octet_arena_destroy(octet_arena *arena)
{
    if (!arena)
        return;
    octet_arena_reset(arena);
    free(arena);
}

/* What may still be held, by the arena and by those above it. */
static size_t left_of(const octet_arena *arena)
{
    size_t left = SIZE_MAX;

    for (; arena; arena = arena->parent)
        left = arena->budget - arena->held < left ? arena->budget - arena->held : left;
    return left;
}

/* A block with room for `size` bytes, or NULL. The caller links it. */
static struct block *block_create(octet_arena *arena, size_t size)
{
    size_t left = left_of(arena);

    if (left < sizeof(struct block) || size > left - sizeof(struct block))
        return NULL;
    size_t mapped = 0;
    struct block *block = region_take(arena, sizeof *block + size);
    bool is_of_region = block != NULL;
    if (is_of_region) {
        ;
    } else if (size >= MAPPED_BLOCK_BYTES) {
        mapped = sizeof *block + size;
        block = oct_pages_map(mapped);
    } else {
        block = malloc(sizeof *block + size);
    }
    if (!block)
        return NULL;
    block->mapped_bytes = mapped;
    block->is_of_region = is_of_region;
    block->size = size;
    block->used = 0;
    block->next = NULL;
    for (; arena; arena = arena->parent)
        arena->held += sizeof *block + size;
    return block;
}

/* zeroed: the piece must be. */
static void *block_take(struct block *block, size_t size, bool zeroed)
{
    void *piece = block->data + block->used;

    block->used += size;
    return zeroed && !block->mapped_bytes ? memset(piece, 0, size) : piece;
}

static bool fails(octet_arena *arena)
{
    if (arena->parent)
        return fails(arena->parent);
    return arena->fail_at && --arena->fail_at == 0;
}

static void *place(octet_arena *arena, size_t size, bool zeroed)
{
    if (fails(arena))
        return NULL;
    if (size > SIZE_MAX - 2 * ALIGNMENT)
        return NULL;
    size = (size + (size == 0) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    struct block *open = arena->blocks;
    if (open && open->size - open->used >= size)
        return block_take(open, size, zeroed);

    if (open && size > arena->next_block_bytes / 4) {
        struct block *own = block_create(arena, size);
        if (!own)
            return NULL;
        own->next = open->next;
        open->next = own;
        return block_take(own, size, zeroed);
    }
    size_t wanted = size > arena->next_block_bytes ? size : arena->next_block_bytes;
    struct block *fresh = block_create(arena, wanted);
    if (!fresh && wanted > size)
        fresh = block_create(arena, size); /* near the budget's end: just what is asked */
    if (!fresh)
        return NULL;
    if (arena->next_block_bytes < LARGEST_BLOCK_BYTES)
        arena->next_block_bytes *= 2;
    fresh->next = open;
    arena->blocks = fresh;
    return block_take(fresh, size, zeroed);
}

static void *take(octet_arena *arena, size_t size, bool zeroed)
{
    void *piece = place(arena, size, zeroed);

    for (; arena && !piece; arena = arena->parent)
        arena->refused = size;
    return piece;
}

void *octet_arena_alloc(octet_arena *arena, size_t size)
{
    return take(arena, size, true);
}

void *octet_arena_alloc_unset(octet_arena *arena, size_t size)
{
    return take(arena, size, false);
}

void *octet_arena_array(octet_arena *arena, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return octet_arena_alloc(arena, bytes);
}

char *octet_arena_copy(octet_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? octet_arena_alloc(arena, length + 1) : NULL;

    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

char *octet_arena_format(octet_arena *arena, const char *format, ...)
{
    va_list arguments;
    char small[256];

    va_start(arguments, format);
    int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    if (length < 0)
        return NULL;
    if ((size_t)length < sizeof small)
        return octet_arena_copy(arena, small, (size_t)length);
    char *text = octet_arena_alloc(arena, (size_t)length + 1);
    if (text) {
        va_start(arguments, format);
        vsnprintf(text, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    return text;
}

size_t octet_arena_held(const octet_arena *arena)
{
    return arena->held;
}

size_t octet_arena_budget(const octet_arena *arena)
{
    return arena->budget;
}

void octet_arena_fail_at(octet_arena *arena, uint64_t n)
{
    arena->fail_at = n;
}

enum octet_status octet_arena_exhausted(const octet_arena *arena, struct octet_error *err)
{
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "out of memory: %zu more bytes are needed where %zu of at most %zu are held",
                      arena->refused, arena->held, arena->budget);
}
