/* The kernels' dialect in OpenCL C 1.2. */
#pragma OPENCL FP_CONTRACT OFF

#define KERNEL(name) __kernel void name
#define FUNCTION static inline
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_POINTER __local
#define CONSTANT __constant
#define UNROLL
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

#define group_id(d) ((long)get_group_id(d))
#define item_id(d) ((int)get_local_id(d))
#define group_count(d) ((long)get_num_groups(d))
#define item_count(d) ((int)get_local_size(d))

#define fma_f32(a, b, c) fma(a, b, c)
#define bits_of(x) as_uint(x)
#define float_of(x) as_float(x)
#define atomic_max_u32(at, value) atomic_max((volatile __global uint *)(at), value)
