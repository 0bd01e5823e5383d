/* Pages: large blocks of memory, straight from the system.
 *
 * For: blocks of megabytes: parameters, a run's activations, an arena's large pieces.
 * Not for: anything small. */
#ifndef OCTET_BASE_PAGES_H
#define OCTET_BASE_PAGES_H

#include <stddef.h>

/* Zeroed, from a page's start; in huge pages where the system has them (a fault for each 2 MiB and
 * not for each 4 KiB). bytes above 0. NULL when there is no memory. */
void *oct_pages_map(size_t bytes);
void oct_pages_unmap(void *block, size_t bytes); /* NULL is fine */
/* Gives whole pages within [start, start + bytes) of a block back; read again, they are zero. What
 * shares a page with something else keeps its place and is not changed. */
void oct_pages_drop(void *start, size_t bytes);

#endif
