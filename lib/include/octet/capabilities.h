/* Capabilities: what a backend takes, as data.
 *
 * For: the plan, which writes on each op where it runs: what a backend does not take runs on the
 * CPU. Not for: opening a backend (backend.h). */
#ifndef OCTET_CAPABILITIES_H
#define OCTET_CAPABILITIES_H

#include <stdbool.h>
#include <stdint.h>

struct octet_capabilities {
    const char *name;       /* "opencl"; lives as long as the program */
    uint32_t code_dtypes;   /* bit 1 << dtype: of quantized operands */
    uint32_t number_dtypes; /* F32, BF16: of arrays before quantization, and of results */
    bool dot_general, einsum, grouped;
    bool mixed;        /* one operand quantized, the other not */
    bool tiles;        /* tile_size, bwd_weight_grad_tile_size */
    bool zero_points;  /* asymmetric calibration */
    bool fixed;        /* fixed,a,b calibration; absmax is a matter of course */
    bool static_scale; /* act_static_scale */
    bool sparsity, stochastic_rounding;
    bool fast; /* accumulation FAST is a path of its own */
};

#endif
