/* The floating-point environment of all computations: round to nearest even, subnormals are zero
 * (inputs and results), no traps; as XLA's on the CPU (openxla/xla, xla/pjrt/cpu/cpu_client.cc).
 * It is part of the numerics: every entry into lib/quant enters it and leaves it again. */
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
#else
#error "the floating-point environment of this architecture is not known"
#endif

#endif
