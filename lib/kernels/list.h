/* The kernel sets, from the slowest to the best: name, features it needs. The only list; dispatch,
 * tests and benches read it. A feature is named as cpuinfo names it. */
#ifndef OCTET_KERNELS_LIST_H
#define OCTET_KERNELS_LIST_H

#include <stdbool.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
#define OCT_CPU_HAS(name) cpuinfo_has_x86_##name()
#define OCT_CPU_FEATURES(X)                                                                        \
    X(avx2)                                                                                        \
    X(fma3)                                                                                        \
    X(f16c)                                                                                        \
    X(avx512f)                                                                                     \
    X(avx512bw)                                                                                    \
    X(avx512vl)                                                                                    \
    X(avx512dq)                                                                                    \
    X(avx512vbmi)                                                                                  \
    X(avx512bf16)
#elif defined(__aarch64__)
#define OCT_CPU_HAS(name) cpuinfo_has_arm_##name()
#define OCT_CPU_FEATURES(X) X(neon)
#else
#error "the kernel sets of this architecture are not known"
#endif

enum oct_cpu_feature {
#define OCT_CPU_ENUM(name) OCT_CPU_##name,
    OCT_CPU_FEATURES(OCT_CPU_ENUM)
#undef OCT_CPU_ENUM
        OCT_CPU_FEATURE_COUNT
};

#define OCT_CPU_BIT(name) (1u << OCT_CPU_##name)
#if defined(__x86_64__)
#define OCT_CPU_AVX2 (OCT_CPU_BIT(avx2) | OCT_CPU_BIT(fma3) | OCT_CPU_BIT(f16c))
#define OCT_CPU_AVX512                                                                             \
    (OCT_CPU_AVX2 | OCT_CPU_BIT(avx512f) | OCT_CPU_BIT(avx512bw) | OCT_CPU_BIT(avx512vl) |         \
     OCT_CPU_BIT(avx512dq))

#define OCT_KERNEL_SETS(X)                                                                         \
    X(scalar, 0u)                                                                                  \
    X(avx2, OCT_CPU_AVX2)                                                                          \
    X(avx512, OCT_CPU_AVX512)                                                                      \
    X(avx512bf16, OCT_CPU_AVX512 | OCT_CPU_BIT(avx512vbmi) | OCT_CPU_BIT(avx512bf16))
#else
#define OCT_KERNEL_SETS(X)                                                                         \
    X(scalar, 0u)                                                                                  \
    X(neon, OCT_CPU_BIT(neon))
#endif

#define OCT_KERNELS_DECLARE(name, needs) extern const struct oct_kernels oct_kernels_##name;
OCT_KERNEL_SETS(OCT_KERNELS_DECLARE)
#undef OCT_KERNELS_DECLARE

/* Whether the pairs of BF16 are added in the order of gemm.h on this CPU; true where there is no
 * path for them. A set that fails here serves FAST only. */
bool oct_kernels_add_in_order(const struct oct_kernels *kernels);

/* The set at that place of the list, whether the CPU can run it or not; NULL from the count on. */
const struct oct_kernels *oct_kernels_at(size_t index);

#endif
