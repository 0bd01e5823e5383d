/* Optimizer steps of a session against MaxText's own train_step. */
#ifndef OCTET_TESTS_MAXTEXT_TRAIN_H
#define OCTET_TESTS_MAXTEXT_TRAIN_H

#include "maxtext_compare.h"

struct maxtext_training {
    int steps;
    double losses, grad_norm, learning_rate; /* relative differences, the largest of all steps */
    struct maxtext_difference parameters;    /* of those steps that have a stepN file */
    double most_rates;                       /* the largest difference, in learning rates so far */
};

/* Each row of per_step: one step on the case's batch. */
enum octet_status maxtext_train(const struct maxtext_case *c, const json_t *per_step,
                                octet_context *context, octet_workers *workers,
                                struct maxtext_training *out,
                                struct octet_error *err) OCTET_MUST_CHECK;
bool maxtext_training_within(const struct maxtext_training *t, const struct maxtext_gates *gates);

#endif
