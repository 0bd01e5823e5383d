/* See pages.h. */
#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The largest that the system's pages can be: what is a multiple of it can be given back. */
#if defined(__aarch64__)
enum { PAGE_BYTES = 64 * 1024 };
#else
enum { PAGE_BYTES = 4096 };
#endif
enum { HUGE_PAGE_BYTES = 2 * 1024 * 1024 };

/* Sanitizers watch what malloc gives, and not what is mapped. */
#if defined(__SANITIZE_ADDRESS__)
#define MAPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MAPS 0
#endif
#endif
#ifndef MAPS
#define MAPS 1
#endif

static size_t whole_pages(size_t bytes)
{
    return bytes / PAGE_BYTES * PAGE_BYTES + (bytes % PAGE_BYTES ? PAGE_BYTES : 0);
}

static void *from_malloc(size_t bytes)
{
    void *block;

    return posix_memalign(&block, PAGE_BYTES, bytes) == 0 ? memset(block, 0, bytes) : NULL;
}

void *oct_pages_map(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE_BYTES - PAGE_BYTES)
        return NULL;
    if (!MAPS)
        return from_malloc(bytes);
    bytes = whole_pages(bytes);
    size_t room = bytes + HUGE_PAGE_BYTES;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % HUGE_PAGE_BYTES, after = room - before - bytes;
    if (before)
        munmap(start, before);
    if (after)
        munmap(start + before + bytes, after);
    (void)madvise(start + before, bytes, MADV_HUGEPAGE); /* a wish */
    return start + before;
}

void oct_pages_unmap(void *block, size_t bytes)
{
    if (!MAPS)
        free(block);
    else if (block)
        munmap(block, whole_pages(bytes));
}

void oct_pages_drop(void *start, size_t bytes)
{
    uintptr_t first = ((uintptr_t)start + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uintptr_t end = ((uintptr_t)start + bytes) / PAGE_BYTES * PAGE_BYTES;

    if (end <= first)
        return;
    if (MAPS)
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
    else
        memset((void *)first, 0, end - first);
}
