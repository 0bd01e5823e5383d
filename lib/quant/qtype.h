/* Quantized types: what a rule's qtype means for codes and scales.
 *
 * For: bounds and code types by name. Not for: the bits of a code (lib/dtypes).
 * Source: Qwix 0.1.8, numerics.get_symmetric_bound, get_asymmetric_bound, convert_to. */
#ifndef OCTET_QUANT_QTYPE_H
#define OCTET_QUANT_QTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "octet/dtype.h"

enum oct_scale_rule {
    OCT_SCALE_PLAIN,
    OCT_SCALE_POWER_OF_TWO, /* mxfp8, mxfp4: rounded up to a power of two */
    OCT_SCALE_E4M3          /* nvfp4: rounded to E4M3FN */
};

struct oct_qtype {
    const char *name;
    enum octet_dtype dtype; /* of the codes */
    float bound;            /* scale = absmax / bound; integers get half a step more */
    float largest;          /* |x / scale| above this is cut off: what rounds to the largest code */
    int32_t code_min, code_max; /* of integers; else 0 */
    enum oct_scale_rule scale_rule;
    int32_t block; /* the one tile size it takes; 0: any */
};

/* name: in normal form, or NULL or "". NULL when there is none of that name. */
const struct oct_qtype *oct_qtype_find(const char *name);
/* Has codes for a range that is not symmetric: int8, int4. */
bool oct_qtype_is_asymmetric(const struct oct_qtype *qtype);

#endif
