/* Figures about arrays: what a quantization lost, how far two results are apart.
 *
 * For: numbers. Not for: printing them. All sums are in f64. */
#ifndef OCTET_CLI_FIGURES_H
#define OCTET_CLI_FIGURES_H

#include "octet/array.h"

/* As struct octet_operand_stats (quant.h) defines them. */
struct loss {
    int64_t elements, saturated, underflowed, nonfinite, destroyed;
    float amax, scale_min, scale_max;
    double sqnr_db;
    double error_max; /* |x - x'|, both finite */
};

/* dequantized: F32, of the array's shape. scale: F32 or BF16, sizes that divide the array's.
 * largest: |x / scale| above it is saturated; 0: not counted (codes that are not symmetric). */
void loss_measure(const struct octet_array *array, const struct octet_array *scale,
                  const struct octet_array *dequantized, float largest, struct loss *out);
/* The largest |x / scale| that does not saturate; 0 for a type that is not known. */
float largest_of_qtype(const char *qtype);

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
