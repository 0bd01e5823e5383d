/* What the library computed against what Qwix computed. */
#ifndef OCTET_TESTS_QWIX_COMPARE_H
#define OCTET_TESTS_QWIX_COMPARE_H

#include "golden/qwix_run.h"

/* What was found in all files together. */
struct qwix_tally {
    int64_t codes, scales, outputs; /* elements compared */
    int64_t brains, brains_same;    /* outputs in bfloat16, and those equal to Qwix's bits */
    int64_t codes_excused;          /* exceptions 1 and 2 below */
    int64_t scales_excused;
    int64_t lost; /* cases that count as not run: exception 3, and differences on purpose */
    bool show;    /* print where a bfloat16 output has other bits than Qwix's */
};

/* Prints "FAIL file: tensor[index]: expected ..., found ..." for each tensor that differs and
 * returns how many. Codes, scales, zero points, gradients before their quantization and masked
 * weights are compared bit for bit (NaN as NaN), but for:
 * 1. A single-element float32 scale of a method other than fixed: one ulp, since Qwix, run op by
 * op, divides where the library multiplies by the reciprocal (as Qwix under jit). Codes are then
 * judged with the scale of their own side: Qwix's must be cast(x / scale), ours cast(x * (1 /
 * scale)).
 * 2. A float32 rms scale: 4e-7 relative, the order of its sum is XLA's own. Codes as in 1.
 * 3. A NaN in float32 that XLA's CPU backend lost: its maximum over larger arrays drops NaN, which
 * ones depends on the CPU. The case then counts as not run (tally->lost). What follows from an
 * excused scale (a residual's scale moved onto the gradient) is compared with 4e-6 relative, and
 * codes may be one step off in one of 50 places. Outputs and gradients: |x - out| <= t * sum
 * |a||b|, t = 1e-6 (float32) and 2^-7 (bfloat16) with the operands as they were multiplied; in
 * bfloat16 also a result within half an ulp of the exact one. NaN and Inf where Qwix has them. Rows
 * past the groups of a gmm: Qwix leaves them uninitialized, ours are zero. */
int qwix_compare(const struct qwix_case *c, octet_arena *arena, const struct qwix_tensors *ours,
                 struct qwix_tally *tally);
int qwix_compare_combo(const struct qwix_case *c, octet_arena *arena, const char *name,
                       json_t *combo, const struct qwix_tensors *ours, struct qwix_tally *tally);
/* Files of casts. */
int qwix_compare_casts(const struct qwix_case *c, octet_arena *arena, const char *kernels,
                       struct qwix_tally *tally);

/* The same elements, NaN as NaN; *index: the first that differs (or -1: another shape or type). */
bool qwix_same(const struct octet_array *a, const struct octet_array *b, int64_t *index);

#endif
