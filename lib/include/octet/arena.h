/* Arena: memory that is asked for piece by piece and given back at once, with a budget.
 *
 * For: everything that lives as long as one request, config, graph or plan.
 * Not for: memory shared by threads; an arena has one owner at a time and no lock.
 *
 * Life: 1. A piece lives until octet_arena_reset or _destroy. 2. A failed allocation returns NULL
 * and leaves the arena usable. 3. No allocation takes the arena above its budget: the budget counts
 * the blocks that the arena holds, not only the bytes handed out. */
#ifndef OCTET_ARENA_H
#define OCTET_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

typedef struct octet_arena octet_arena;

/* budget_bytes: the most memory the arena may hold. Returns NULL when there is no memory. */
OCTET_API octet_arena *octet_arena_create(size_t budget_bytes);
/* Takes its blocks from `memory`, [bytes], 16-aligned, which stays the caller's, and only when that
 * is full from elsewhere; arenas within it too. For working memory that is used again and again. */
OCTET_API octet_arena *octet_arena_create_over(void *memory, size_t bytes, size_t budget_bytes);
/* A second arena whose blocks count against the parent's budget too: for what an operation needs
 * only while it runs. The parent outlives it; both have one owner. */
OCTET_API octet_arena *octet_arena_create_within(octet_arena *parent);
OCTET_API void octet_arena_destroy(octet_arena *arena); /* NULL is fine */
OCTET_API void octet_arena_reset(octet_arena *arena);   /* frees all pieces, keeps the budget */

/* Zeroed, aligned to 16 bytes. size 0 gives a unique, valid pointer. NULL when over the budget. */
OCTET_API void *octet_arena_alloc(octet_arena *arena, size_t size);
/* The same, but the piece holds anything: for large pieces that are written whole. */
OCTET_API void *octet_arena_alloc_unset(octet_arena *arena, size_t size);
/* count * size, checked for overflow. */
OCTET_API void *octet_arena_array(octet_arena *arena, size_t count, size_t size);
OCTET_API char *octet_arena_copy(octet_arena *arena, const char *text, size_t length); /* + NUL */
OCTET_API char *octet_arena_format(octet_arena *arena, const char *format, ...) OCTET_PRINTF(2, 3);

OCTET_API size_t octet_arena_held(const octet_arena *arena);   /* bytes of blocks held */
OCTET_API size_t octet_arena_budget(const octet_arena *arena); /* as created */

/* Makes the n-th allocation from now fail (1 = the next), once. 0 switches it off. For tests of the
 * error paths; the server and the command line set it from OCTET_FAIL_ALLOC. */
OCTET_API void octet_arena_fail_at(octet_arena *arena, uint64_t n);

/* OCTET_RESOURCE_EXHAUSTED with a sentence that names the budget; what callers return on a NULL. */
OCTET_API enum octet_status octet_arena_exhausted(const octet_arena *arena,
                                                  struct octet_error *err);

#define OCTET_NEW(arena, type) ((type *)octet_arena_alloc((arena), sizeof(type)))
#define OCTET_NEW_ARRAY(arena, count, type)                                                        \
    ((type *)octet_arena_array((arena), (size_t)(count), sizeof(type)))

#endif
