/* The kernels that run on devices: their names. The text is in kernels/, one for all drivers, in a
 * dialect that kernels/opencl.h and kernels/cuda.h translate. */
#ifndef OCTET_BACKENDS_KERNELS_H
#define OCTET_BACKENDS_KERNELS_H

/* name */
#define OCT_DEVICE_KERNELS(X)                                                                      \
    X(amax)                                                                                        \
    X(quantize)                                                                                    \
    X(gemm)

enum oct_device_kernel {
#define OCT_DEVICE_KERNEL(name) OCT_KERNEL_##name,
    OCT_DEVICE_KERNELS(OCT_DEVICE_KERNEL)
#undef OCT_DEVICE_KERNEL
        OCT_KERNEL_COUNT
};

#endif
