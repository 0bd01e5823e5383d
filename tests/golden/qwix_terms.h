/* The products that a result is a sum of, by index, and their exact sums: what tolerances are
 * measured against. */
#ifndef OCTET_TESTS_QWIX_TERMS_H
#define OCTET_TESTS_QWIX_TERMS_H

#include "octet/quant.h"

/* out[o[i]] += lhs[l[i]] * rhs[r[i]] for every i; the gradients are sums over the same triples. */
struct qwix_terms {
    size_t count;
    uint32_t *l, *r, *o;
};

struct qwix_terms qwix_terms_of_dot(octet_arena *arena, const struct octet_array *lhs,
                                    const struct octet_array *rhs,
                                    const struct octet_dot_dims *dims);
struct qwix_terms qwix_terms_of_groups(octet_arena *arena, const struct octet_array *lhs,
                                       const struct octet_array *rhs, const int32_t *group_sizes,
                                       bool transpose_rhs);
struct qwix_terms qwix_terms_of_einsum(octet_arena *arena, const struct octet_array *lhs,
                                       const struct octet_array *rhs, const char *equation);
struct qwix_terms qwix_terms_of_conv(octet_arena *arena, const struct octet_array *lhs,
                                     const struct octet_array *rhs,
                                     const struct octet_conv_options *conv, int64_t *out_dim);

/* value[target[i]] += a[ia[i]] * b[ib[i]], size[...] the same of absolute values; both have n
 * elements. */
void qwix_terms_sum(const struct qwix_terms *terms, const uint32_t *target, const uint32_t *ia,
                    const double *a, const uint32_t *ib, const double *b, size_t n, double *value,
                    double *size);

#endif
