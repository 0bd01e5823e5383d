/* The kernels' dialect in CUDA C++, for nvcc and for a clang that has no CUDA toolkit beside it:
 * there the compiler's own words stand for the toolkit's. Contraction of a * b + c is switched off
 * on the command line (cmake/octet_ptx.cmake). */
#ifndef OCTET_BACKENDS_KERNELS_CUDA_H
#define OCTET_BACKENDS_KERNELS_CUDA_H

#if defined(__clang__)
#define CUDA_WORD(word) __attribute__((word))
#define LAUNCH_BOUNDS __attribute__((launch_bounds(256, 2)))
#define FUNCTION static CUDA_WORD(device) CUDA_WORD(always_inline) inline
#define sreg_of(name, d)                                                                           \
    ((d) ? __nvvm_read_ptx_sreg_##name##_y() : __nvvm_read_ptx_sreg_##name##_x())
#define group_id(d) ((long)sreg_of(ctaid, d))
#define item_id(d) ((int)sreg_of(tid, d))
#define group_count(d) ((long)sreg_of(nctaid, d))
#define item_count(d) ((int)sreg_of(ntid, d))
#define fma_f32(a, b, c) __nvvm_fma_rn_f(a, b, c)
#define bits_of(x) __builtin_bit_cast(uint, (float)(x))
#define float_of(x) __builtin_bit_cast(float, (uint)(x))
#define atomic_max_u32(at, value) (void)__atomic_fetch_max(at, value, __ATOMIC_RELAXED)
#else
#define CUDA_WORD(word) __##word##__
#define LAUNCH_BOUNDS __launch_bounds__(256)
#define FUNCTION static __device__ __forceinline__
#define group_id(d) ((long)((d) ? blockIdx.y : blockIdx.x))
#define item_id(d) ((int)((d) ? threadIdx.y : threadIdx.x))
#define group_count(d) ((long)((d) ? gridDim.y : gridDim.x))
#define item_count(d) ((int)((d) ? blockDim.y : blockDim.x))
#define fma_f32(a, b, c) __fmaf_rn(a, b, c)
#define bits_of(x) __float_as_uint(x)
#define float_of(x) __uint_as_float(x)
#define atomic_max_u32(at, value) (void)atomicMax(at, value)
#endif

/* A work-group has at most 256 items. As clang writes the products, two groups share a
 * multiprocessor (128 registers an item) without spilling; nvcc's would spill, and are left 255.
 * ptxas, sm_90. */
#define KERNEL(name) extern "C" CUDA_WORD(global) LAUNCH_BOUNDS void name
#define GLOBAL
#define LOCAL CUDA_WORD(shared)
#define LOCAL_POINTER
#define CONSTANT static CUDA_WORD(constant) const
/* Loops over a work-item's own numbers: unrolled, these are registers; else they lie in memory. */
#define UNROLL _Pragma("unroll")
#define BARRIER() __syncthreads()

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#endif
