/* How far two arrays are apart.
 *
 * For: numbers. What a quantization lost, the library tells. Not for: printing them. All sums are
 * in f64. */
#ifndef OCTET_CLI_FIGURES_H
#define OCTET_CLI_FIGURES_H

#include "octet/array.h"

struct difference {
    int64_t elements, equal_bits; /* equal_bits: -1 when the types differ */
    int64_t nonfinite;            /* a NaN or Inf in one of them, not the same in the other */
    double absolute_max, reference_max, relative; /* relative = absolute_max / reference_max */
    double sqnr_db; /* the reference is the signal; Infinity: no difference */
};

/* Arrays of one shape and of types that figures_reads. */
void difference_measure(const struct octet_array *array, const struct octet_array *reference,
                        struct difference *out);
bool figures_reads(enum octet_dtype dtype);
double figures_number(const struct octet_array *array, int64_t i); /* element i, of such a type */

#endif
