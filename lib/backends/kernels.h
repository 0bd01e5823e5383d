/* The kernels that run on devices: their names. The text is in kernels/, one for all drivers:
 * plan.h, numbers.h, elements.h, product.h, in that order, behind the driver's own dialect
 * (kernels/opencl.h, kernels/cuda.h). */
#ifndef OCTET_BACKENDS_KERNELS_H
#define OCTET_BACKENDS_KERNELS_H

/* name */
#define OCT_DEVICE_KERNELS(X)                                                                      \
    X(amax_rows)                                                                                   \
    X(amax_columns)                                                                                \
    X(scales)                                                                                      \
    X(quantize)                                                                                    \
    X(scale)                                                                                       \
    X(cast)                                                                                        \
    X(mask)                                                                                        \
    X(rescale)                                                                                     \
    X(turn)                                                                                        \
    X(gemm_codes)                                                                                  \
    X(gemm_numbers)

enum oct_device_kernel {
#define OCT_DEVICE_KERNEL(name) OCT_KERNEL_##name,
    OCT_DEVICE_KERNELS(OCT_DEVICE_KERNEL)
#undef OCT_DEVICE_KERNEL
        OCT_KERNEL_COUNT
};

#endif
