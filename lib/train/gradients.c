/* One set of gradients into another. */
#include "kernels/kernels.h"
#include "kernels/math.h"
#include "train/session_private.h"

struct adding {
    octet_parameters *addend, *sum;
    const struct oct_math *math;
    float factor;
};

static void add_piece(void *user, size_t item, size_t thread)
{
    const struct adding *d = user;
    struct oct_piece piece = oct_parameters_piece(d->sum, item);
    float *from = (float *)oct_parameters_data(d->addend, piece.parameter) + piece.begin;
    float *to = (float *)oct_parameters_data(d->sum, piece.parameter) + piece.begin;

    (void)thread;
    if (from == to)
        d->math->scale(piece.count, from, d->factor, to);
    else
        d->math->add_scaled(piece.count, from, d->factor, to);
}

void oct_parameters_add_scaled(octet_parameters *addend, float factor, octet_parameters *sum,
                               const octet_workers *workers)
{
    struct adding d = {addend, sum, workers->kernels->math, factor};

    if (addend == sum && factor == 1)
        return;
    if (oct_pool_run(workers->pool, sum->pieces, NULL, add_piece, &d, NULL) != OCTET_OK)
        return; /* cannot be: nothing cancels it */
}
