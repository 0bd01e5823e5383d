/* Compiled programs between runs: files in a directory, one for each driver, device and text. A
 * file that is not whole, or not ours, is as good as none. */
#ifndef OCTET_BACKENDS_CACHE_H
#define OCTET_BACKENDS_CACHE_H

#include <stddef.h>

struct oct_program_key {
    const char *directory; /* NULL: no cache */
    char name[80];
};

/* driver: "opencl". parts: all that a program depends on: its text, options, the device. directory:
 * NULL, "": none. */
struct oct_program_key oct_program_key(const char *driver, const char *directory,
                                       const char *const *parts, size_t count);
/* malloc'ed; NULL: none. */
unsigned char *oct_program_read(const struct oct_program_key *key, size_t *bytes);
/* Best effort: written beside and renamed, so that readers see all of it or nothing. */
void oct_program_write(const struct oct_program_key *key, const unsigned char *binary,
                       size_t bytes);

#endif
