/* How far numbers are from MaxText's, and how far they may be. */
#ifndef OCTET_TESTS_MAXTEXT_COMPARE_H
#define OCTET_TESTS_MAXTEXT_COMPARE_H

#include "maxtext_case.h"

/* What kind of agreement can be had (the reference data's README, "Tolerances"). */
enum maxtext_kind {
    MAXTEXT_EXACT, /* float32, not quantized: only the order of sums differs */
    MAXTEXT_FP8,   /* float32, FP8: the same, but for values on a tie, which may flip, and backward
                      each flip moves what comes after it onto other ties */
    MAXTEXT_INT8,  /* every channel's largest value is on a tie */
    MAXTEXT_INT4,  /* and there a tie is a fourteenth of it */
    MAXTEXT_BRAIN, /* bfloat16: XLA keeps some fused intermediates in float32; a router's choice
                      among two near scores is another then */
    MAXTEXT_KINDS
};
enum maxtext_kind maxtext_kind_of(const struct maxtext_case *c);
const char *maxtext_kind_name(enum maxtext_kind kind);

/* Limits. logits: difference over the largest, of most tokens (token_share of them). gradients:
 * each tensor's largest difference over its largest number; l2: of all gradients together.
 * parameters: after optimizer steps, in learning rates, of all but parameter_share of them. A limit
 * that is not checked is infinite. */
struct maxtext_gates {
    double logits, token_share, losses, gradients, l2, grad_norm, parameters, parameter_share;
};
extern const struct maxtext_gates maxtext_gates[MAXTEXT_KINDS];

/* Differences of many numbers. */
struct maxtext_difference {
    double most, largest;   /* |got - want|, |want| */
    double square, squares; /* sums of their squares */
    size_t count, beyond;   /* beyond: further than the limit that maxtext_add had */
};
void maxtext_add(struct maxtext_difference *d, const float *got, const float *want, size_t count,
                 double limit);
/* Square root of the sums' ratio; 0 / 0 is 0. */
double maxtext_l2(const struct maxtext_difference *d);

/* Stored tensors "KIND/NAME" (whole), "KIND_sample/NAME" with "KIND_norm/NAME" against a session's.
 */
struct maxtext_tensors {
    struct maxtext_difference all;
    double worst;      /* the largest difference over its tensor's largest number */
    const char *which; /* there */
    double norm;       /* the largest relative difference of norms */
    size_t tensors, missing;
};
/* limit: for `beyond`, absolute. show: tensors with a larger relative difference are printed. */
void maxtext_compare_tensors(const struct maxtext_case *c, const octet_safetensors *file,
                             const octet_session *session, enum octet_tensor_set set,
                             const char *kind, double limit, double show,
                             struct maxtext_tensors *out);

#endif
