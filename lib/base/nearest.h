/* The nearest name in a list, for "did you mean". */
#ifndef OCTET_BASE_NEAREST_H
#define OCTET_BASE_NEAREST_H

#include <stddef.h>

/* Index of the name with the smallest edit distance (insert, delete, replace, swap of neighbours)
 * to `text`; ties go to the first. count > 0. name(user, i) gives name i. Texts count up to 64
 * bytes. */
size_t oct_nearest(const char *text, size_t count, const char *(*name)(const void *user, size_t i),
                   const void *user);

#endif
