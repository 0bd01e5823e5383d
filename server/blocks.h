/* Blocks: memory that large requests and replies lie in, kept warm between them.
 *
 * For: a request of 64 MiB costs more page faults than copying, so the memory of the last ones is
 * used again; what nobody has used for a while goes back to the system.
 * Not for: working memory of methods (arenas).
 *
 * Life: create -> take and give, from any thread -> unref. Who gives a block back later than that
 * (gRPC frees what it sent in its own time) holds a reference. */
#ifndef OCTET_SERVER_BLOCKS_H
#define OCTET_SERVER_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <grpc/slice.h>

struct block {
    uint8_t *start; /* 16-aligned, or to a page where it is large; NULL: none */
    size_t bytes;   /* at least what was asked for */
};

struct blocks;

struct blocks *blocks_create(void); /* NULL: no memory */
void blocks_unref(struct blocks *blocks);
struct block blocks_take(struct blocks *blocks, size_t bytes); /* start NULL: no memory */
void blocks_give(struct blocks *blocks, struct block block);   /* start NULL is fine */
/* The block's first `length` bytes as a slice, whose end gives it back. Takes the block. Returns
 * false, and gives it back at once, when there is no memory. */
bool blocks_slice(struct blocks *blocks, struct block block, size_t length, grpc_slice *out);
void blocks_tidy(struct blocks *blocks); /* frees all that are idle */

#endif
