/* The kernels' PTX, put into the library as it was compiled (OCT_CUDA_PTX: its path). */
#include "backends/cuda/cuda_private.h"

#ifdef OCT_CUDA_PTX
extern const char oct_cuda_ptx_text[];
__asm__(".pushsection .rodata\n"
        ".hidden oct_cuda_ptx_text\n"
        ".global oct_cuda_ptx_text\n"
        "oct_cuda_ptx_text:\n"
        ".incbin \"" OCT_CUDA_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");

const char *oct_cuda_ptx(void)
{
    return oct_cuda_ptx_text;
}
#else
const char *oct_cuda_ptx(void)
{
    return NULL;
}
#endif
