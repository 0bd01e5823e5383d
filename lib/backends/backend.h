/* What exec asks of a backend: products as two passes, with buffers that stay on the device between
 * them.
 *
 * For: lib/exec. Residence: the device's copies of host arrays during a run. An array has a key
 * (not 0) that says which numbers it holds: a second product of the same key finds them there,
 * quantized too where its settings are the same. What forward leaves for backward (codes, scales,
 * bounds of a mask) stays under `saved` and never comes to the host. */
#ifndef OCTET_BACKENDS_BACKEND_H
#define OCTET_BACKENDS_BACKEND_H

#include "octet/backend.h"
#include "quant/passes.h"

typedef struct oct_residence oct_residence;

enum { OCT_RESIDENCE_SHARED_SHIFT = 63 };
/* Keys with this bit live in the parent: weights that many runs read. */
#define OCT_RESIDENCE_SHARED ((uint64_t)1 << OCT_RESIDENCE_SHARED_SHIFT)

/* One queue on the device and the buffers behind its keys. A residence is used by one thread at a
 * time; a parent (its buffers written once, then read) by all its children. parent may be NULL.
 * Copies that nobody uses go, the least recently used first, when the device's memory ends. */
enum octet_status oct_residence_create(octet_backend *backend, oct_residence *parent,
                                       oct_residence **out,
                                       struct octet_error *err) OCTET_MUST_CHECK;
void oct_residence_destroy(oct_residence *residence); /* NULL is fine; waits for the device */
/* The numbers behind a key are others now, or will not be asked for again. */
void oct_residence_forget(oct_residence *residence, uint64_t key);

struct oct_backend_product {
    const struct octet_compute *compute; /* its arena takes working memory of the host */
    const struct oct_matmul *matmul;
    enum octet_accumulation accumulation;
    oct_residence *residence;
    uint64_t lhs, rhs, cotangent; /* keys; 0: copied and forgotten */
    uint64_t saved;               /* 0: no backward */
};

/* As oct_matmul_forward and oct_matmul_backward (quant/passes.h), but for the block. Arrays lie in
 * host memory; results have come back when the call returns. */
enum octet_status
oct_backend_forward(const struct oct_backend_product *product, const struct octet_operand *lhs,
                    const struct octet_operand *rhs, const struct octet_array *group_sizes,
                    const struct octet_array *out, struct oct_pass_figures *figures,
                    struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status
oct_backend_backward(const struct oct_backend_product *product, const struct octet_array *lhs,
                     const struct octet_array *rhs, const struct octet_array *group_sizes,
                     const struct octet_array *cotangent, const struct octet_array *lhs_grad,
                     const struct octet_array *rhs_grad, struct oct_pass_figures *figures,
                     struct octet_error *err) OCTET_MUST_CHECK;

#endif
