/* OpenBLAS as the peer of octet bench: opened there, linked nowhere. */
#ifndef OCTET_CLI_BLAS_H
#define OCTET_CLI_BLAS_H

#include <stdbool.h>
#include <stddef.h>

struct blas {
    void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    char name[48]; /* "openblas-haswell" */
};

/* core: "Haswell", "SkylakeX", ... or NULL for its own choice. OpenBLAS chooses once a process,
 * when it is opened, so another core takes another process. false: reason says why there is no
 * peer. */
bool blas_open(const char *core, struct blas *out, char *reason, size_t size);
/* c[m,n] = a[m,k] b[k,n], row-major and dense, with one thread. */
void blas_multiply(const struct blas *blas, int m, int n, int k, const float *a, const float *b,
                   float *c);

#endif
