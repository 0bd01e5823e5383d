/* OpenBLAS as the peer of octet bench: opened there, linked nowhere.
 *
 * Decision: OpenBLAS chooses its kernels once, from OPENBLAS_CORETYPE, when it is loaded. So that
 * several choices run in turns in one process, each is a copy of the library in a namespace of its
 * own (dlmopen), with one thread.
 *
 * Life: a copy stays loaded until the process ends. */
#ifndef OCTET_CLI_BLAS_H
#define OCTET_CLI_BLAS_H

#include <stdbool.h>
#include <stddef.h>

struct blas {
    void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*sgemv)(int order, int transpose, int m, int n, float alpha, const float *a, int lda,
                  const float *x, int incx, float beta, float *y, int incy);
    char name[48];    /* "openblas-haswell" */
    char version[24]; /* "0.3.21" */
};

/* Is each blas_open a copy of its own? Else the first one's core is that of all. */
bool blas_has_copies(void);
/* core: "Haswell", "SkylakeX", ... or NULL for its own choice. false: reason says why there is no
 * such peer. */
bool blas_open(const char *core, struct blas *out, char *reason, size_t size);
/* c[m,n] = a[m,k] b, row-major and dense, with one thread; b is [k,n], or [n,k] with transposed.
 * One row goes to sgemv. */
void blas_multiply(const struct blas *blas, int m, int n, int k, const float *a, const float *b,
                   bool transposed, float *c);
/* c[k,n] = a[m,k]^T b[m,n]. */
void blas_multiply_lhs_transposed(const struct blas *blas, int m, int n, int k, const float *a,
                                  const float *b, float *c);

#endif
