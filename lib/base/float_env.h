/* The floating-point environment of all computations: round to nearest even, subnormals are zero
 * (inputs and results), no traps; as XLA's on the CPU (openxla/xla, xla/pjrt/cpu/cpu_client.cc).
 * It is part of the numerics: every entry into lib/quant enters it and leaves it again.
 *
 * Which results are subnormal is decided after rounding, as x86 does it. ARM decides before (Arm
 * Architecture Reference Manual, FPRoundBase): what lies in [2^-126 - 2^-151, 2^-126) is rounded up
 * to the smallest normal number by x86 and becomes zero on ARM. Sums, quotients and square roots of
 * two f32 are never there (a sum is a multiple of 2^-149; a quotient below 1 is at least 2^-24
 * below it); products and fused additions are, about once in 2^24 products of that size. For these
 * there are oct_mul and oct_fma; the kernel sets' words do the same. */
#ifndef OCTET_BASE_FLOAT_ENV_H
#define OCTET_BASE_FLOAT_ENV_H

#include <stdint.h>

struct oct_float_env {
    uint32_t saved;
};

#if defined(__SSE__)
enum { OCT_FLOAT_ENV = 0x9fc0 }; /* all exceptions masked, FTZ and DAZ, nearest even */
static inline struct oct_float_env oct_float_env_enter(void)
{
    struct oct_float_env env = {__builtin_ia32_stmxcsr()};
    __builtin_ia32_ldmxcsr(OCT_FLOAT_ENV);
    return env;
}
static inline void oct_float_env_leave(struct oct_float_env env)
{
    __builtin_ia32_ldmxcsr(env.saved);
}
#elif defined(__aarch64__)
/* Flush to zero, for f32 and f64, inputs and results; NaNs keep their payload (DN is 0), nearest
 * even, no traps. The bit for f16 (FZ16) is 0: conversions from F16 take its subnormals. */
enum { OCT_FLOAT_ENV = 1 << 24 };
static inline struct oct_float_env oct_float_env_enter(void)
{
    uint64_t saved, ours = OCT_FLOAT_ENV;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"(ours) : "memory");
    return (struct oct_float_env){(uint32_t)saved};
}
static inline void oct_float_env_leave(struct oct_float_env env)
{
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)env.saved) : "memory");
}
#else
#error "the floating-point environment of this architecture is not known"
#endif

#if defined(__aarch64__)
/* Where the result is zero it is computed again 2^64 times as large, far from the subnormals. What
 * is large enough to overflow there has a product that is not tiny, or a factor 0. */
static inline float oct_mul(float a, float b)
{
    float product = a * b;

    if (__builtin_expect(product == 0, 0)) {
        float scaled = a * 0x1p64f * b;
        if (__builtin_fabsf(scaled) == 0x1p-62f)
            return __builtin_copysignf(0x1p-126f, scaled);
    }
    return product;
}
static inline float oct_fma(float a, float b, float c)
{
    float sum = __builtin_fmaf(a, b, c);

    if (__builtin_expect(sum == 0, 0)) {
        float scaled = __builtin_fmaf(a * 0x1p64f, b, c * 0x1p64f);
        if (__builtin_fabsf(scaled) == 0x1p-62f)
            return __builtin_copysignf(0x1p-126f, scaled);
    }
    return sum;
}
#else
static inline float oct_mul(float a, float b)
{
    return a * b;
}
static inline float oct_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
#endif

#endif
