/* The nearest name in a list, for "did you mean". */
#ifndef OCTET_NEAREST_H
#define OCTET_NEAREST_H

#include <stddef.h>

#include "octet/status.h"

/* Index of the name with the smallest edit distance (insert, delete, replace, swap of neighbours)
 * to `text`; ties go to the first. count > 0. name(user, i) gives name i. Texts count up to 64
 * bytes. */
OCTET_API size_t octet_nearest(const char *text, size_t count,
                               const char *(*name)(const void *user, size_t i), const void *user);

#endif
