/* See blas.h. */
#include "blas.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Sanitizers know one namespace: there the first core is the only one. */
#if defined(LM_ID_NEWLM) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COPIES 1
#else
#define COPIES 0
#endif

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

/* A library that is loaded reads the environment of who loads it. */
static void *load_copy(const char *core)
{
    static const char file[] = "libopenblas.so.0";

    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    if (core)
        setenv("OPENBLAS_CORETYPE", core, 1);
#if COPIES
    return dlmopen(LM_ID_NEWLM, file, RTLD_NOW | RTLD_LOCAL);
#else
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
#endif
}

/* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
static void read_version(const char *config, char *out, size_t size)
{
    const char *blank = strchr(config, ' ');

    snprintf(out, size, "%.*s", blank ? (int)strcspn(blank + 1, " ") : 0, blank ? blank + 1 : "");
}

bool blas_has_copies(void)
{
    return COPIES;
}

bool blas_open(const char *core, struct blas *out, char *reason, size_t size)
{
    void (*set_threads)(int) = NULL;
    char *(*core_name)(void) = NULL, *(*config)(void) = NULL;
    void *library = load_copy(core);

    if (!library) {
        snprintf(reason, size, "%s", dlerror());
        return false;
    }
    *(void **)(void *)&out->sgemm = dlsym(library, "cblas_sgemm");
    *(void **)(void *)&out->sgemv = dlsym(library, "cblas_sgemv");
    *(void **)(void *)&set_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)(void *)&core_name = dlsym(library, "openblas_get_corename");
    *(void **)(void *)&config = dlsym(library, "openblas_get_config");
    if (!out->sgemm || !out->sgemv || !set_threads || !core_name || !config) {
        snprintf(reason, size, "libopenblas.so.0 is not OpenBLAS as it is known here");
        return false;
    }
    set_threads(1);
    if (core && strcasecmp(core, core_name()) != 0) {
        snprintf(reason, size, "asked for its kernels for '%s', OpenBLAS took those for '%s'", core,
                 core_name());
        return false;
    }
    read_version(config(), out->version, sizeof out->version);
    snprintf(out->name, sizeof out->name, "openblas-%s", core_name());
    for (char *c = out->name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return true;
}

void blas_multiply(const struct blas *blas, int m, int n, int k, const float *a, const float *b,
                   bool transposed, float *c)
{
    if (m == 1) /* y = B^T x, or B x */
        blas->sgemv(ROW_MAJOR, transposed ? AS_IT_IS : TRANSPOSED, transposed ? n : k,
                    transposed ? k : n, 1.0f, b, transposed ? k : n, a, 1, 0.0f, c, 1);
    else
        blas->sgemm(ROW_MAJOR, AS_IT_IS, transposed ? TRANSPOSED : AS_IT_IS, m, n, k, 1.0f, a, k, b,
                    transposed ? k : n, 0.0f, c, n);
}

void blas_multiply_lhs_transposed(const struct blas *blas, int m, int n, int k, const float *a,
                                  const float *b, float *c)
{
    blas->sgemm(ROW_MAJOR, TRANSPOSED, AS_IT_IS, k, n, m, 1.0f, a, k, b, n, 0.0f, c, n);
}
