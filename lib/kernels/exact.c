/* The scalar functions of math.h: exp, log, pow, sin, cos of doubles, from the four operations
 * alone, each of which IEEE 754 rounds in one way only. Not for speed: a table of angles, a
 * schedule.
 *
 * Series are Taylor's, long enough that what is cut off is below 2^-60 of the sum. Results below
 * the normal range are 0, as the environment of computations (base/float_env.h) would have them. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/math.h"

/* ln 2 and pi / 2 in parts; products of all but the last with the whole numbers below are exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define PI2_HIGH 0x1.921fb544p+0
#define PI2_MIDDLE 0x1.0b4611a6p-34
#define PI2_LOW 0x1.3198a2e037073p-69

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double power_of_2(int n) /* -1022 <= n <= 1023 */
{
    return from_bits((uint64_t)(n + 1023) << 52);
}

static int nearest(double x)
{
    return (int)(x < 0 ? x - 0.5 : x + 0.5);
}

/* ---- Sums and products of two doubles without loss: high + low (Dekker, Knuth) ---- */

struct pair {
    double high, low;
};

static struct pair add_exactly(double a, double b)
{
    double sum = a + b, part = sum - a;
    return (struct pair){sum, (a - (sum - part)) + (b - part)};
}

static struct pair halves(double a)
{
    double t = a * 134217729.0, high = t - (t - a); /* 2^27 + 1 */
    return (struct pair){high, a - high};
}

static struct pair multiply_exactly(double a, double b)
{
    double product = a * b;
    struct pair x = halves(a), y = halves(b);
    double low = ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low;
    return (struct pair){product, low};
}

/* ---- exp, log, pow ---- */

/* e^(high + low), |low| far below 1. */
static double exp_of_pair(struct pair x)
{
    double sum = 1;

    if (x.high != x.high)
        return x.high;
    if (x.high > 709.782712893384)
        return INFINITY;
    if (x.high < -708.396418532264)
        return 0;
    int n = nearest(x.high * 1.4426950408889634);
    double r = ((x.high - n * LN2_HIGH) - n * LN2_LOW) + x.low;
    for (int k = 17; k > 2; k--)
        sum = 1 + sum * r / k;
    sum = 1 + (r + r * r / 2 * sum);
    int half = n / 2;
    return sum * power_of_2(half) * power_of_2(n - half);
}

/* x = 2^n m, m in [sqrt(1/2), sqrt(2)]: n ln 2 + 2 atanh(s), s = (m - 1) / (m + 1). */
static struct pair log_of(double x)
{
    const uint64_t root = 0x3fe6a09e667f3bcd, above = bits_of(x) - root;
    const int n = (int)((above + (1ull << 62)) >> 52) - 1024;
    const double m = from_bits((above & 0x000fffffffffffff) + root), f = m - 1;
    struct pair over = add_exactly(m, 1);
    double s = f / over.high;
    struct pair back = multiply_exactly(s, over.high);
    double s_low = (((f - back.high) - back.low) - s * over.low) / over.high;
    double square = s * s, series = 0;

    for (int k = 25; k > 1; k -= 2)
        series = series * square + 2.0 / k;
    series *= square * s;
    struct pair sum = add_exactly(n * LN2_HIGH, 2 * s);
    sum.low += n * LN2_LOW + 2 * s_low + series;
    return add_exactly(sum.high, sum.low);
}

double oct_exact_exp(double x)
{
    return exp_of_pair((struct pair){x, 0});
}

double oct_exact_log(double x)
{
    if (x != x || x == INFINITY)
        return x;
    if (x < 0x1p-1022)
        return x <= -0x1p-1022 ? NAN : -INFINITY;
    return log_of(x).high;
}

double oct_exact_pow(double x, double y)
{
    struct pair log = log_of(x), product = multiply_exactly(log.high, y);

    return exp_of_pair((struct pair){product.high, product.low + log.low * y});
}

/* ---- sin, cos ---- */

/* 1 / 3!, 1 / 5!, ... and 1 / 2!, 1 / 4!, ... with alternating signs. */
static const double sine_series[] = {-1.0 / 6,
                                     1.0 / 120,
                                     -1.0 / 5040,
                                     1.0 / 362880,
                                     -1.0 / 39916800,
                                     1.0 / 6227020800.0,
                                     -1.0 / 1307674368000.0,
                                     1.0 / 355687428096000.0};
static const double cosine_series[] = {-1.0 / 2,
                                       1.0 / 24,
                                       -1.0 / 720,
                                       1.0 / 40320,
                                       -1.0 / 3628800,
                                       1.0 / 479001600,
                                       -1.0 / 87178291200.0,
                                       1.0 / 20922789888000.0,
                                       -1.0 / 6402373705728000.0};

static double series(double x, const double *c, int count)
{
    double sum = c[count - 1];

    for (int i = count - 2; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

void oct_exact_sin_cos(double x, double *sine, double *cosine)
{
    const int n = nearest(x * 0.63661977236758134);
    const double r = ((x - n * PI2_HIGH) - n * PI2_MIDDLE) - n * PI2_LOW, square = r * r;
    double s = r + r * square * series(square, sine_series, 8);
    double c = 1 + square * series(square, cosine_series, 9);

    if (n & 1) {
        double t = s;
        s = c;
        c = -t;
    }
    *sine = n & 2 ? -s : s;
    *cosine = n & 2 ? -c : c;
}

double oct_exact_sin(double x)
{
    double sine, cosine;
    oct_exact_sin_cos(x, &sine, &cosine);
    return sine;
}

double oct_exact_cos(double x)
{
    double sine, cosine;
    oct_exact_sin_cos(x, &sine, &cosine);
    return cosine;
}
