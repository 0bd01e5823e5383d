/* See blas.h. */
#include "blas.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

bool blas_open(const char *core, struct blas *out, char *reason, size_t size)
{
    void (*set_threads)(int) = NULL;
    char *(*core_name)(void) = NULL;

    if (core)
        setenv("OPENBLAS_CORETYPE", core, 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(reason, size, "%s", dlerror());
        return false;
    }
    *(void **)(void *)&out->sgemm = dlsym(library, "cblas_sgemm");
    *(void **)(void *)&set_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)(void *)&core_name = dlsym(library, "openblas_get_corename");
    if (!out->sgemm || !set_threads || !core_name) {
        snprintf(reason, size, "libopenblas.so.0 is not OpenBLAS as it is known here");
        return false;
    }
    set_threads(1);
    snprintf(out->name, sizeof out->name, "openblas-%s", core_name());
    for (char *c = out->name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return true; /* stays open: its constructor has set up the process */
}

void blas_multiply(const struct blas *blas, int m, int n, int k, const float *a, const float *b,
                   float *c)
{
    enum { ROW_MAJOR = 101, AS_IT_IS = 111 };

    blas->sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n);
}
