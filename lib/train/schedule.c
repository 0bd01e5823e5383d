/* See schedule.h. */
#include "train/schedule.h"

#include <string.h>

#include "kernels/math.h"

static double linear(double from, double to, double part)
{
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return from + (to - from) * part;
}

/* `steps` rates, the first `from`, the last `to`. */
static double cosine(double from, double to, int64_t step, int64_t steps)
{
    const double pi = 3.14159265358979323846;
    double part = steps > 1 ? (double)step / (double)(steps - 1) : 1;
    double weight = 0.5 * (oct_exact_cos(pi * part) + 1);

    return from * weight + to * (1 - weight);
}

static bool is_wsd(const struct octet_optimizer *o)
{
    return o->lr_schedule_type && strcmp(o->lr_schedule_type, "wsd") == 0;
}

double oct_learning_rate(const struct octet_optimizer *o, int64_t step)
{
    int64_t all = o->learning_rate_schedule_steps < 0 ? o->steps : o->learning_rate_schedule_steps;
    int64_t warm = (int64_t)((double)all * o->warmup_steps_fraction);
    int64_t decay = is_wsd(o) ? (int64_t)((double)all * o->wsd_decay_steps_fraction) : all - warm;
    int64_t stable = all - warm - decay;
    double rate = o->learning_rate, last = rate * o->cosine_learning_rate_final_fraction;

    if (stable < 0)
        stable = 0;
    if (step >= all)
        rate = 0;
    else if (step < warm)
        rate = linear(0, rate, (double)step / (double)warm);
    else if (step < warm + stable)
        ;
    else if (is_wsd(o) && (!o->wsd_decay_style || strcmp(o->wsd_decay_style, "cosine") != 0))
        rate = decay > 1 ? linear(rate, last, (double)(step - warm - stable) / (double)(decay - 1))
                         : rate;
    else
        rate = cosine(rate, last, step - warm - stable, decay);
    return (double)(float)rate;
}
