/* The functions of models: every one of every set against double arithmetic, and every set against
 * the scalar one, bit for bit.
 * What could break: a set whose order of additions, rounding or NaN differs (results would depend
 * on the CPU), a range of arguments where a polynomial or an exponent is wrong, a remainder that is
 * skipped or runs over, a result that should be infinite, zero or NaN. */
#include "kernels/math.h"

#include "unit/kernels/fixture.h"

static const size_t lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 1000};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 1000 };

#define EACH_SET(kernels)                                                                          \
    for (size_t set_ = 0; octet_kernel_set_name(set_); set_++)                                     \
        for (const struct oct_kernels *kernels = set_at(set_); kernels; kernels = NULL)

static const float special[] = {0,
                                -0.0f,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                1,
                                -1,
                                0x1p-149f,
                                -0x1p-127f,
                                0x1p-126f,
                                -0x1p-126f,
                                0x1.fffffep127f,
                                -0x1.fffffep127f,
                                88.72283f,
                                88.72284f,
                                -87.33654f,
                                -87.33655f,
                                -104,
                                0.625f,
                                0x1.3ffffep-1f,
                                0.70710677f,
                                0.70710678f,
                                1.41421356f,
                                1e-30f,
                                1e30f};
enum { SPECIALS = sizeof special / sizeof special[0] };

static float random_float(uint64_t *state)
{
    uint32_t r = random_next(state), kind = random_next(state) % 16;

    if (kind == 0)
        return special[r % SPECIALS];
    if (kind == 1)
        return float_of(r);
    return float_of((r & 0x807fffff) | (117 + (r >> 23) % 16) << 23);
}

/* Every function of x, y, a factor and what is in out, as one. */
enum function {
    F_add,
    F_subtract,
    F_multiply,
    F_divide,
    F_scale,
    F_add_scaled,
    F_multiply_add,
    F_exp,
    F_log,
    F_tanh,
    F_gate,
    F_gate_vjp = F_gate + OCT_GATE_COUNT,
    F_COUNT = F_gate_vjp + OCT_GATE_COUNT
};
static const char *const function_names[F_COUNT] = {
    "add",          "subtract", "multiply", "divide", "scale", "add_scaled",
    "multiply_add", "exp",      "log",      "tanh",   "silu",  "gelu",
    "relu",         "sigmoid",  "silu'",    "gelu'",  "relu'", "sigmoid'"};

static void run(const struct oct_math *m, int f, size_t n, const float *x, const float *y,
                float factor, float *out)
{
    switch (f) {
    case F_add:
        m->add(n, x, y, out);
        break;
    case F_subtract:
        m->subtract(n, x, y, out);
        break;
    case F_multiply:
        m->multiply(n, x, y, out);
        break;
    case F_divide:
        m->divide(n, x, y, out);
        break;
    case F_scale:
        m->scale(n, x, factor, out);
        break;
    case F_add_scaled:
        m->add_scaled(n, x, factor, out);
        break;
    case F_multiply_add:
        m->multiply_add(n, x, y, out);
        break;
    case F_exp:
        m->exp(n, x, out);
        break;
    case F_log:
        m->log(n, x, out);
        break;
    case F_tanh:
        m->tanh(n, x, out);
        break;
    default:
        if (f < F_gate_vjp)
            m->gate((enum oct_gate)(f - F_gate), n, x, out);
        else
            m->gate_vjp((enum oct_gate)(f - F_gate_vjp), n, x, y, out);
    }
}

/* ---- Right values ---- */

static double flushed(double v)
{
    return fabs(v) < 0x1p-126 ? copysign(0, v) : v;
}

static double round_f32(double v)
{
    return flushed((float)v);
}

static double gelu_argument(double x)
{
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static double reference(int f, double x, double y, double factor, double out)
{
    double s = 1 / (1 + exp(-x)), u = gelu_argument(x), cdf = 1 / (1 + exp(-2 * u));

    switch (f) {
    case F_add:
        return x + y;
    case F_subtract:
        return x - y;
    case F_multiply:
        return x * y;
    case F_divide:
        return x / y;
    case F_scale:
        return x * factor;
    case F_add_scaled:
        return out + round_f32(x * factor);
    case F_multiply_add:
        return out + round_f32(x * y);
    case F_exp:
        return exp(x);
    case F_log:
        return log(x);
    case F_tanh:
        return tanh(x);
    case F_gate + OCT_GATE_silu:
        return x * s;
    case F_gate + OCT_GATE_gelu:
        return x * cdf;
    case F_gate + OCT_GATE_relu:
        return x < 0 ? 0 : x;
    case F_gate + OCT_GATE_sigmoid:
        return s;
    case F_gate_vjp + OCT_GATE_silu:
        return y * (s + x * s * (1 - s));
    case F_gate_vjp + OCT_GATE_gelu:
        return y * (cdf + x * 2 * cdf * (1 - cdf) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x));
    case F_gate_vjp + OCT_GATE_relu:
        return x > 0 ? y : 0;
    default:
        return y * s * (1 - s);
    }
}

/* How far got may be from want, in ulp of want or, where terms cancel, of those. */
static double allowed(int f, double x, double y, double want)
{
    const double ulp = fmax(ldexp(1, ilogb(want == 0 ? 0x1p-126 : want) - 23), 0x1p-149);

    switch (f) {
    case F_exp:
    case F_log:
        return 1.05 * ulp;
    case F_tanh:
        return 1.5 * ulp;
    case F_gate + OCT_GATE_sigmoid:
        return 2.1 * ulp;
    case F_gate + OCT_GATE_silu:
        return 3 * ulp + 0x1p-119; /* the sigmoid underflows first */
    case F_gate + OCT_GATE_gelu:   /* an error of the exponent is relative to it */
        return (4 + 8 * fabs(gelu_argument(x))) * ulp + 0x1p-119;
    case F_gate_vjp + OCT_GATE_silu:
    case F_gate_vjp + OCT_GATE_gelu:
    case F_gate_vjp + OCT_GATE_sigmoid:
        return 0x1p-21 * fabs(y);
    case F_gate + OCT_GATE_relu:
    case F_gate_vjp + OCT_GATE_relu: /* no arithmetic: subnormals stay */
        return 0x1p-126;
    default:
        return 0.5 * ulp;
    }
}

static void check_value(const char *set, int f, float x, float y, float factor, float old,
                        float got)
{
    double a = flushed(exact(x)), want = flushed(reference(f, a, flushed(exact(y)), factor, old));

    if (isnan(want)) {
        ck_assert_msg(bits_of(got) == 0x7fc00000, "%s: %s(%a) is %a, not NaN", set,
                      function_names[f], x, got);
        return;
    }
    bool near = isinf(want)                   ? got == (float)want
                : fabs(want) > 0x1.fffffep127 ? got / copysign(1, want) >= 0x1.fffffep127
                                              : fabs(got - want) <= allowed(f, a, y, want);
    near |= fabs(want) < 0x1.00001p-126 && got == 0; /* rounds to the smallest normal number */
    ck_assert_msg(near, "%s: %s(%a, %a; %a) is %a, expected %a", set, function_names[f], x, y, old,
                  got, want);
}

/* Of gates' slopes only where exponents do not overflow on the way; elsewhere sets need only agree.
 */
static bool has_reference(int f, float x)
{
    return f < F_gate_vjp + OCT_GATE_silu || f == F_gate_vjp + OCT_GATE_relu || fabsf(x) < 20;
}

static void check_values(int f, size_t n, const float *x, const float *y, float factor)
{
    float *out = malloc(n * sizeof(float)), old = 0.75f;

    EACH_SET(k)
    {
        for (size_t i = 0; i < n; i++)
            out[i] = old;
        struct oct_float_env env = oct_float_env_enter();
        run(k->math, f, n, x, y, factor, out);
        oct_float_env_leave(env);
        for (size_t i = 0; i < n; i++)
            if (has_reference(f, x[i]))
                check_value(k->name, f, x[i], y[i], factor, old, out[i]);
    }
    free(out);
}

START_TEST(samples_of_all_patterns)
{
    enum { STEP = 100003, COUNT = (1ull << 32) / STEP };
    float *x = malloc(COUNT * sizeof(float)), *y = malloc(COUNT * sizeof(float));
    uint64_t state = 3;

    for (size_t i = 0; i < COUNT; i++) {
        x[i] = float_of((uint32_t)(i * STEP));
        y[i] = float_of((random_next(&state) & 0x807fffff) | 0x3f800000);
    }
    check_values(_i, COUNT, x, y, -1.7f);
    free(x);
    free(y);
}
END_TEST

START_TEST(usual_and_special_values)
{
    enum { COUNT = 20000 };
    static float x[COUNT], y[COUNT];
    uint64_t state = 5;

    for (size_t i = 0; i < COUNT; i++) {
        x[i] = i < SPECIALS * SPECIALS ? special[i / SPECIALS]
                                       : (float)(random_next(&state) % 40001) * 0x1p-11f - 9.7f;
        y[i] = i < SPECIALS * SPECIALS ? special[i % SPECIALS] : random_float(&state);
    }
    check_values(_i, COUNT, x, y, 0x1.234568p-3f);
}
END_TEST

struct case_of_value {
    int f;
    float x, want;
};

START_TEST(limits_are_exact)
{
    static const struct case_of_value cases[] = {{F_exp, 0, 1},
                                                 {F_exp, -0.0f, 1},
                                                 {F_exp, 88.72284f, INFINITY},
                                                 {F_exp, -88, 0},
                                                 {F_exp, -INFINITY, 0},
                                                 {F_log, 1, 0},
                                                 {F_log, 0, -INFINITY},
                                                 {F_log, -0.0f, -INFINITY},
                                                 {F_log, 0x1p-149f, -INFINITY},
                                                 {F_log, INFINITY, INFINITY},
                                                 {F_tanh, INFINITY, 1},
                                                 {F_tanh, -INFINITY, -1},
                                                 {F_tanh, 20, 1},
                                                 {F_gate + OCT_GATE_silu, INFINITY, INFINITY},
                                                 {F_gate + OCT_GATE_gelu, 1e30f, 1e30f},
                                                 {F_gate + OCT_GATE_sigmoid, 0, 0.5f},
                                                 {F_gate + OCT_GATE_sigmoid, INFINITY, 1},
                                                 {F_gate + OCT_GATE_sigmoid, -INFINITY, 0},
                                                 {F_gate_vjp + OCT_GATE_relu, 0, 0},
                                                 {F_gate_vjp + OCT_GATE_silu, 0, 0.5f}};

    EACH_SET(k)
    {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            const float one = 1;
            float got;
            struct oct_float_env env = oct_float_env_enter();
            run(k->math, cases[i].f, 1, &cases[i].x, &one, 0, &got);
            oct_float_env_leave(env);
            ck_assert_msg(got == cases[i].want, "%s: %s(%a) is %a", k->name,
                          function_names[cases[i].f], cases[i].x, got);
        }
    }
}
END_TEST

/* ---- Sets agree, at every length, in place too, and nothing outside is written ---- */

START_TEST(sets_agree)
{
    const struct oct_math *scalar = oct_kernels_at(0)->math;
    uint64_t state = 7;

    EACH_SET(k)
    {
        for (int l = 0; l < LENGTHS; l++) {
            const size_t n = lengths[l], bytes = n * sizeof(float);
            float a[LONGEST], b[LONGEST], c[LONGEST], want[LONGEST];
            for (size_t i = 0; i < n; i++) {
                a[i] = random_float(&state);
                b[i] = random_float(&state);
                want[i] = c[i] = random_float(&state);
            }
            float *x = tight_copy(a, bytes), *y = tight_copy(b, bytes);
            struct fenced out = fenced_create(bytes, 4);
            memcpy(out.data, c, bytes);
            struct oct_float_env env = oct_float_env_enter();
            run(scalar, _i, n, x, y, 0.3f, want);
            run(k->math, _i, n, x, y, 0.3f, (float *)out.data);
            ck_assert_msg(memcmp(want, out.data, bytes) == 0, "%s: %s, length %zu", k->name,
                          function_names[_i], n);
            memcpy(c, x, bytes);
            run(scalar, _i, n, c, y, 0.3f, c);
            run(k->math, _i, n, x, y, 0.3f, x);
            oct_float_env_leave(env);
            ck_assert_msg(memcmp(c, x, bytes) == 0, "%s: %s in place", k->name, function_names[_i]);
            free(x);
            free(y);
            ck_assert(fenced_destroy(&out));
        }
    }
}
END_TEST

/* ---- rotate ---- */

START_TEST(rotation)
{
    uint64_t state = 11;

    EACH_SET(k)
    {
        for (int l = 0; l < LENGTHS; l++) {
            const size_t n = lengths[l];
            float a[LONGEST], b[LONGEST], c[LONGEST], s[LONGEST];
            struct fenced re = fenced_create(n * sizeof(float), 4);
            for (size_t i = 0; i < n; i++) {
                a[i] = random_float(&state);
                b[i] = random_float(&state);
                c[i] = random_float(&state);
                s[i] = random_float(&state);
            }
            struct oct_float_env env = oct_float_env_enter();
            float want_re[LONGEST], want_im[LONGEST];
            for (size_t i = 0; i < n; i++) {
                want_re[i] = a[i] * c[i] - b[i] * s[i];
                want_im[i] = a[i] * s[i] + b[i] * c[i];
            }
            k->math->rotate(n, a, b, c, s, (float *)re.data, b);
            oct_float_env_leave(env);
            for (size_t i = 0; i < n; i++) {
                float got = ((float *)re.data)[i];
                ck_assert(bits_of(got) == (isnan(want_re[i]) ? 0x7fc00000 : bits_of(want_re[i])));
                ck_assert(bits_of(b[i]) == (isnan(want_im[i]) ? 0x7fc00000 : bits_of(want_im[i])));
            }
            ck_assert(fenced_destroy(&re));
        }
    }
}
END_TEST

/* ---- adamw ---- */

static const struct oct_adamw adamw_settings = {.gradient_scale = 0.25f,
                                                .b1 = 0.9,
                                                .b2 = 0.95,
                                                .epsilon = 1e-8f,
                                                .epsilon_root = 1e-12f,
                                                .decay = 0.1f,
                                                .rate = 3e-3f,
                                                .c1 = 0.19f,
                                                .c2 = 0.0975f};

START_TEST(adamw_follows_its_formula)
{
    const struct oct_adamw *a = &adamw_settings;
    uint64_t state = 13;

    EACH_SET(k)
    {
        for (int l = 0; l < LENGTHS; l++) {
            const size_t n = lengths[l];
            float g[LONGEST], first[3][LONGEST], want[3][LONGEST];
            struct fenced p = fenced_create(n * sizeof(float), 4);
            for (size_t i = 0; i < n; i++) {
                g[i] = (float)(int32_t)random_next(&state) * 0x1p-31f;
                first[0][i] = (float)(int32_t)random_next(&state) * 0x1p-33f;
                first[1][i] = (float)random_next(&state) * 0x1p-36f;
                first[2][i] = (float)(int32_t)random_next(&state) * 0x1p-31f;
            }
            memcpy(want, first, sizeof want);
            memcpy(p.data, first[2], n * sizeof(float));
            struct oct_float_env env = oct_float_env_enter();
            oct_kernels_at(0)->math->adamw(a, n, g, want[0], want[1], want[2]);
            float mu[LONGEST], nu[LONGEST];
            memcpy(mu, first[0], sizeof mu);
            memcpy(nu, first[1], sizeof nu);
            k->math->adamw(a, n, g, mu, nu, (float *)p.data);
            oct_float_env_leave(env);
            ck_assert(memcmp(mu, want[0], n * sizeof(float)) == 0);
            ck_assert(memcmp(nu, want[1], n * sizeof(float)) == 0);
            ck_assert(memcmp(p.data, want[2], n * sizeof(float)) == 0);
            for (size_t i = 0; i < n; i++) {
                double gradient = g[i] * 0.25, m = 0.9 * first[0][i] + 0.1 * gradient;
                double v = 0.95 * first[1][i] + 0.05 * gradient * gradient, q = first[2][i];
                q -= a->rate * (m / a->c1 / (sqrt(v / a->c2 + 1e-12) + 1e-8) + 0.1 * q);
                ck_assert_double_eq_tol(mu[i], m, 2e-7 * (fabs(gradient) + fabs(first[0][i])));
                ck_assert_double_eq_tol(nu[i], v, 1e-6 * v);
                ck_assert_double_eq_tol(want[2][i], q, 1e-7);
            }
            ck_assert(fenced_destroy(&p));
        }
    }
}
END_TEST

/* ---- Rows ---- */

/* 16 partial sums and their tree, as math.h says. */
static float reference_sum(size_t n, const float *x)
{
    float part[16] = {0};

    for (size_t i = 0; i < n; i++)
        part[i % 16] += x[i];
    for (size_t half = 8; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            part[i] += part[i + half];
    return isnan(part[0]) ? float_of(0x7fc00000) : part[0];
}

START_TEST(sums_of_rows)
{
    uint64_t state = 17;

    EACH_SET(k)
    {
        for (int l = 0; l < LENGTHS; l++)
            for (int turn = 0; turn < 8; turn++) {
                const size_t n = lengths[l];
                float a[LONGEST], b[LONGEST], e[LONGEST];
                for (size_t i = 0; i < n; i++) {
                    a[i] = turn ? (float)(int32_t)random_next(&state) * 0x1p-29f
                                : random_float(&state);
                    b[i] = (float)(int32_t)random_next(&state) * 0x1p-30f;
                }
                float *x = tight_copy(a, n * sizeof(float)), *y = tight_copy(b, n * sizeof(float));
                struct fenced out = fenced_create(n * sizeof(float), 4);
                struct oct_float_env env = oct_float_env_enter();
                float shift = k->math->maximum(n, x);
                float sum = k->math->sum(n, x), want_sum = reference_sum(n, x);
                float exps = k->math->exp_sum(n, x, shift, (float *)out.data);
                float product = k->math->sum_product(n, x, y);
                for (size_t i = 0; i < n; i++) {
                    e[i] = a[i] - shift;
                    b[i] = a[i] * b[i];
                }
                k->math->exp(n, e, e);
                float want_exps = reference_sum(n, e), want_product = reference_sum(n, b);
                oct_float_env_leave(env);
                ck_assert(bits_of(sum) == bits_of(want_sum));
                ck_assert(bits_of(product) == bits_of(want_product));
                ck_assert(bits_of(exps) == bits_of(want_exps));
                ck_assert(memcmp(out.data, e, n * sizeof(float)) == 0);
                free(x);
                free(y);
                ck_assert(fenced_destroy(&out));
            }
    }
}
END_TEST

START_TEST(largest_of_rows)
{
    uint64_t state = 19;

    EACH_SET(k)
    {
        for (int l = 0; l < LENGTHS; l++)
            for (int turn = 0; turn < 20; turn++) {
                const size_t n = lengths[l];
                float a[LONGEST], most = -INFINITY;
                size_t at = 0;
                for (size_t i = 0; i < n; i++) {
                    a[i] = -(float)(random_next(&state) % 97) - 1;
                    if (turn == 0 && i == n / 2)
                        a[i] = INFINITY;
                    if (turn == 1)
                        a[i] = i % 3 ? -0.0f : 0.0f;
                    if (i == 0 || a[i] > most) {
                        most = a[i];
                        at = i;
                    }
                }
                float *x = tight_copy(a, n * sizeof(float));
                ck_assert(bits_of(k->math->maximum(n, x)) == bits_of(most + 0.0f));
                ck_assert_uint_eq(k->math->argmax(n, x), at);
                if (n) {
                    x[at = random_next(&state) % n] = NAN;
                    ck_assert(bits_of(k->math->maximum(n, x)) == 0x7fc00000);
                    ck_assert_uint_eq(k->math->argmax(n, x), at);
                }
                free(x);
            }
    }
}
END_TEST

/* ---- Exact functions ---- */

static void check_exact(const char *name, double x, double got, long double want, long double scale)
{
    ck_assert_msg(fabsl(got - want) <= scale, "%s(%a) is %a, expected %La", name, x, got, want);
}

START_TEST(exact_functions)
{
    uint64_t state = 23;

    for (int i = 0; i < 100000; i++) {
        double u = random_next(&state) * 0x1p-32, x = (u - 0.5) * 1400, a = (u - 0.5) * 2e6;
        if (i % 3 == 0) {
            x /= 1000;
            a /= 1e5;
        }
        double power = exp(x / 2), y = (random_next(&state) * 0x1p-32 - 0.5) * 1000 / fabs(x);
        check_exact("exp", x, oct_exact_exp(x), x < -708.39 ? 0 : expl(x), 1e-15L * expl(x));
        check_exact("log", power, oct_exact_log(power), logl(power), 1e-15L * fabsl(logl(power)));
        check_exact("sin", a, oct_exact_sin(a), sinl(a), 1e-15L);
        check_exact("cos", a, oct_exact_cos(a), cosl(a), 1e-15L);
        check_exact("pow", power, oct_exact_pow(power, y), powl(power, y), 4e-15L * powl(power, y));
    }
    ck_assert(oct_exact_exp(0) == 1 && oct_exact_log(1) == 0 && oct_exact_cos(0) == 1);
    ck_assert(oct_exact_pow(2, -10) == 0x1p-10 && oct_exact_pow(10000, 0) == 1);
    ck_assert(oct_exact_exp(710) == INFINITY && oct_exact_exp(-710) == 0);
    ck_assert(oct_exact_log(0) == -INFINITY && isnan(oct_exact_log(-1)));
    ck_assert(isnan(oct_exact_exp(NAN)) && isnan(oct_exact_log(NAN)));
}
END_TEST

void add_math_tests(Suite *suite)
{
    TCase *tests = tcase_create("math");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, samples_of_all_patterns, 0, F_COUNT);
    tcase_add_loop_test(tests, usual_and_special_values, 0, F_COUNT);
    tcase_add_test(tests, limits_are_exact);
    tcase_add_loop_test(tests, sets_agree, 0, F_COUNT);
    tcase_add_test(tests, rotation);
    tcase_add_test(tests, adamw_follows_its_formula);
    tcase_add_test(tests, sums_of_rows);
    tcase_add_test(tests, largest_of_rows);
    tcase_add_test(tests, exact_functions);
    suite_add_tcase(suite, tests);
}
