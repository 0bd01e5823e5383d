/* See optimizer.h.
 *
 * Decision: parameters, gradients and moments are walked together, piece by piece, so that each
 * number is read and written once. */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

#include "exec/parameters_private.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

/* ---- Norm ---- */

struct summing {
    const octet_parameters *gradients;
    double *sums; /* [pieces] */
};

static void sum_piece(void *user, size_t item, size_t thread)
{
    enum { LANES = 8 };
    const struct summing *s = user;
    struct oct_piece piece = oct_parameters_piece(s->gradients, item);
    const float *x = (const float *)oct_parameters_data(s->gradients, piece.parameter);
    double lanes[LANES] = {0}, sum = 0;

    (void)thread;
    x += piece.begin;
    for (size_t e = 0; e + LANES <= piece.count; e += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += (double)x[e + lane] * (double)x[e + lane];
    for (size_t e = piece.count / LANES * LANES; e < piece.count; e++)
        lanes[e % LANES] += (double)x[e] * (double)x[e];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    s->sums[item] = sum;
}

double oct_global_norm(const octet_parameters *gradients, const octet_workers *workers,
                       double *sums)
{
    struct summing s = {gradients, sums};
    double sum = 0;

    if (oct_pool_run(workers->pool, gradients->pieces, NULL, sum_piece, &s, NULL) != OCTET_OK)
        return NAN; /* cannot be: nothing cancels it */
    for (size_t item = 0; item < gradients->pieces; item++)
        sum += sums[item];
    return sqrt(sum);
}

/* ---- Step ---- */

struct stepping {
    const struct oct_optimizer_sets *sets;
    const bool *decayed;
    const struct oct_kernels *kernels;
    bool is_sgd;
    struct oct_adamw adamw; /* of a parameter that decays */
};

enum { CHUNK = 1024 };

/* A chunk of a set as f32: in place, or through the buffer. */
static float *open_chunk(const struct stepping *s, const octet_parameters *set,
                         const struct oct_piece *at, float *buffer)
{
    const struct oct_parameter *p = &set->entries[at->parameter];
    char *data = (char *)oct_parameters_data(set, at->parameter) + at->begin * p->element_bytes;

    if (p->dtype == OCTET_DTYPE_F32)
        return (float *)(void *)data;
    s->kernels->decode(p->dtype, at->count, data, buffer);
    return buffer;
}

static void close_chunk(const struct stepping *s, const octet_parameters *set,
                        const struct oct_piece *at, const float *values)
{
    const struct oct_parameter *p = &set->entries[at->parameter];

    if (p->dtype != OCTET_DTYPE_F32)
        s->kernels->cast(p->dtype, at->count, values,
                         (char *)oct_parameters_data(set, at->parameter) +
                             at->begin * p->element_bytes);
}

static void adamw_chunk(const struct stepping *s, const struct oct_piece *at, const float *gradient,
                        float *parameter)
{
    float mu_buffer[CHUNK], nu_buffer[CHUNK];
    float *mu = open_chunk(s, s->sets->mu, at, mu_buffer);
    float *nu = open_chunk(s, s->sets->nu, at, nu_buffer);
    struct oct_adamw settings = s->adamw;

    if (!s->decayed[at->parameter])
        settings.decay = 0;
    s->kernels->math->adamw(&settings, at->count, gradient, mu, nu, parameter);
    close_chunk(s, s->sets->mu, at, mu);
    close_chunk(s, s->sets->nu, at, nu);
}

static void sgd_chunk(const struct stepping *s, const struct oct_piece *at, float *gradient,
                      float *parameter)
{
    s->kernels->math->scale(at->count, gradient, s->adamw.gradient_scale, gradient);
    s->kernels->math->add_scaled(at->count, gradient, -s->adamw.rate, parameter);
}

static void step_piece(void *user, size_t item, size_t thread)
{
    const struct stepping *s = user;
    struct oct_piece piece = oct_parameters_piece(s->sets->parameters, item);
    float buffer[CHUNK];

    (void)thread;
    for (size_t done = 0; done < piece.count; done += CHUNK) {
        size_t left = piece.count - done;
        struct oct_piece at = {piece.parameter, piece.begin + done, left < CHUNK ? left : CHUNK};
        float *gradient = open_chunk(s, s->sets->gradients, &at, NULL); /* always f32 */
        float *parameter = open_chunk(s, s->sets->parameters, &at, buffer);
        if (s->is_sgd)
            sgd_chunk(s, &at, gradient, parameter);
        else
            adamw_chunk(s, &at, gradient, parameter);
        close_chunk(s, s->sets->parameters, &at, parameter);
    }
}

/* 1 - b^t as optax has it: b and the power in f32. */
static float bias_correction(double b, int64_t t)
{
    return b > 0 ? 1 - (float)oct_exact_pow((double)(float)b, (double)t) : 1;
}

void oct_optimizer_step(const struct oct_optimizer_sets *sets,
                        const struct octet_optimizer *optimizer, const bool *decayed, int64_t step,
                        double rate, double norm, const octet_workers *workers)
{
    double threshold = optimizer->gradient_clipping_threshold;
    bool clips = threshold > 0 && !(norm < threshold);
    struct stepping s = {
        .sets = sets,
        .decayed = decayed,
        .kernels = workers->kernels,
        .is_sgd = strcmp(optimizer->opt_type, "sgd") == 0,
        .adamw = {.b1 = optimizer->adam_b1,
                  .b2 = optimizer->adam_b2,
                  .gradient_scale = clips ? (float)(threshold / norm) : 1,
                  .epsilon = (float)optimizer->adam_eps,
                  .epsilon_root = (float)optimizer->adam_eps_root,
                  .decay = (float)optimizer->adam_weight_decay,
                  .rate = (float)rate,
                  .c1 = bias_correction(optimizer->adam_b1, step + 1),
                  .c2 = bias_correction(optimizer->adam_b2, step + 1)},
    };
    if (oct_pool_run(workers->pool, sets->parameters->pieces, NULL, step_piece, &s, NULL) !=
        OCTET_OK)
        return; /* cannot be: nothing cancels it */
}
