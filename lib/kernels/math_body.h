/* The functions of math.h, written over a set's vector words. Included by each set's kernels.c
 * after elementwise_body.h.
 *
 * No function uses a fused multiply-add: the scalar set has none that is fast, and products that
 * are rounded on their own cost the vector sets little. A row's remainder takes the same way as the
 * rest, in a vector that is filled in part. NaN results are 0x7fc00000, since which of two NaNs a
 * CPU keeps depends on how a compiler orders them. */
#include "kernels/math.h"

/* ---- Functions of one vector. Their polynomials are fitted to the least relative error of the
 * whole function; the largest errors measured over all of f32 stand beside them, in ulp. ---- */

#define C(value) vf32_set1(value)

/* c[0] + c[1] x + ... */
static INLINE vf32 polynomial(vf32 x, const float *c, int count)
{
    vf32 sum = C(c[count - 1]);

#pragma GCC unroll 16
    for (int i = count - 2; i >= 0; i--)
        sum = vf32_add(vf32_mul_loose(sum, x), C(c[i]));
    return sum;
}

/* e^x = 2^n e^r, r = x - n ln 2, |r| <= ln 2 / 2; ln 2 in two parts, of which the first has so few
 * bits that its product with n is exact. Adding 1.5 * 2^23 rounds to a whole number and leaves it
 * in the low bits, from where it is shifted into the exponent. */
static INLINE vf32 exp_of(vf32 x)
{
    static const float c[] = {0x1.fffffcp-2f, 0x1.555490p-3f, 0x1.5558f6p-5f, 0x1.123a8ep-7f,
                              0x1.6a2318p-10f};
    const vf32 largest = C(0x1.62e42ep+6f), least = C(-0x1.5d589ep+6f), magic = C(0x1.8p23f);
    vf32 y = vf32_min(vf32_max(x, least), largest);
    vf32 turned = vf32_add(vf32_mul_loose(y, C(0x1.715476p0f)), magic), n = vf32_sub(turned, magic);
    vf32 r = vf32_sub(vf32_sub(y, vf32_mul_loose(n, C(0x1.63p-1f))),
                      vf32_mul_loose(n, C(-0x1.bd0106p-13f)));
    vf32 p = vf32_add(vf32_mul_loose(polynomial(r, c, 5), vf32_mul_loose(r, r)), r);
    vu32 bits = vu32_add(vf32_bits(vf32_add(p, C(1))), vu32_shl(vf32_bits(turned), 23));
    vf32 e = vf32_select(vf32_above(x, largest), vu32_float(vu32_set1(F32_INF)), vu32_float(bits));

    e = vf32_select(vf32_above(least, x), vf32_zero(), e);
    return vu32_float(vu32_select(is_nan(vf32_bits(x)), vu32_set1(OCT_F32_NAN), vf32_bits(e)));
}

/* x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): log x = e ln 2 + f - f^2/2 + f^3 p(f). */
static INLINE vf32 log_of(vf32 x)
{
    static const float c[] = {0x1.555548p-2f,  -0x1.000006p-2f, 0x1.99a4bcp-3f,
                              -0x1.555c5ap-3f, 0x1.2336e2p-3f,  -0x1.fc1f6cp-4f,
                              0x1.e6f606p-4f,  -0x1.de4fa0p-4f, 0x1.146316p-4f};
    const vu32 half = vu32_set1(0x3f3504f3); /* sqrt(1/2) */
    vu32 bits = vf32_bits(x), above = vu32_sub(bits, half);
    vu32 mantissa = vu32_add(vu32_and(above, vu32_set1(0x007fffff)), half);
    vu32 exponent = vu32_sub(vu32_shr(vu32_add(above, vu32_set1(0x40000000)), 23), vu32_set1(128));
    vf32 e = vf32_from_s32(exponent), f = vf32_sub(vu32_float(mantissa), C(1));
    vf32 square = vf32_mul_loose(f, f),
         p = vf32_mul_loose(polynomial(f, c, 9), vf32_mul_loose(square, f));
    vf32 y = vf32_add(p, vf32_mul_loose(e, C(-0x1.bd0106p-13f)));

    y = vf32_sub(y, vf32_mul_loose(square, C(0.5f)));
    y = vf32_add(vf32_add(f, y), vf32_mul_loose(e, C(0x1.63p-1f)));
    y = vf32_select(vf32_above(C(0x1p-126f), x), vu32_float(vu32_set1(0xff800000u)), y);
    y = vf32_select(vf32_above(C(-0x1p-127f), x), vu32_float(vu32_set1(OCT_F32_NAN)), y);
    y = vf32_select(vf32_above(x, C(0x1.fffffep127f)), x, y);
    return vu32_float(vu32_select(is_nan(bits), vu32_set1(OCT_F32_NAN), vf32_bits(y)));
}

/* Small x: x + x^3 p(x^2); else 1 - 2 / (e^2|x| + 1), with x's sign. */
static INLINE vf32 tanh_of(vf32 x)
{
    static const float c[] = {-0x1.555532p-2f, 0x1.110726p-3f, -0x1.b83c5ap-5f, 0x1.52269ap-6f,
                              -0x1.75e1ccp-8f};
    vu32 sign = vu32_and(vf32_bits(x), vu32_set1(0x80000000u));
    vf32 size = vu32_float(vu32_and(vf32_bits(x), vu32_set1(F32_ABS))),
         square = vf32_mul_loose(x, x);
    vf32 small = vf32_add(vf32_mul_loose(polynomial(square, c, 5), vf32_mul_loose(square, x)), x);
    vf32 e = exp_of(vf32_add(size, size));
    vf32 large = vf32_sub(C(1), vf32_div(C(2), vf32_add(e, C(1))));

    return vf32_select(vf32_above(C(0.625f), size), small,
                       vu32_float(vu32_or(vf32_bits(large), sign)));
}

/* s = 1 / (1 + e^-x) and 1 - s = e^-x s, both without cancellation. Where e^-x overflows s is 0. */
struct sigmoid {
    vf32 s, rest;
};

static INLINE struct sigmoid sigmoid_pair(vf32 x)
{
    vf32 e = exp_of(vf32_sub(vf32_zero(), x)), s = vf32_div(C(1), vf32_add(C(1), e));
    return (struct sigmoid){s, vf32_mul(vf32_min(C(0x1p126f), e), s)};
}

static INLINE vf32 sigmoid_of(vf32 x)
{
    return sigmoid_pair(x).s;
}

/* jax.nn.gelu's default: x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), and (1 + tanh
 * u) / 2 = sigmoid(2 u). These are the factors of 2 u. */
#define GELU_LINEAR 0x1.988454p0f
#define GELU_CUBIC 0x1.2444f2p-4f

static INLINE vf32 gelu_argument(vf32 x)
{
    vf32 slope = vf32_add(C(GELU_LINEAR), vf32_mul_loose(C(GELU_CUBIC), vf32_mul_loose(x, x)));
    return vf32_mul(x, slope);
}

static INLINE vf32 gate_of(enum oct_gate gate, vf32 x)
{
    switch (gate) {
    case OCT_GATE_silu:
        return vf32_mul(x, sigmoid_of(x));
    case OCT_GATE_gelu:
        return vf32_mul(x, sigmoid_of(gelu_argument(x)));
    case OCT_GATE_relu: /* a NaN stays */
        return vf32_select(vf32_above(vf32_zero(), x), vf32_zero(), x);
    default:
        return sigmoid_of(x);
    }
}

/* y * d gate(x) / dx */
static INLINE vf32 gate_backward(enum oct_gate gate, vf32 x, vf32 y)
{
    struct sigmoid g;
    vf32 slope;

    switch (gate) {
    case OCT_GATE_silu: /* s + x s (1 - s) */
        g = sigmoid_pair(x);
        return vf32_mul(y, vf32_add(g.s, vf32_mul(vf32_mul(x, g.s), g.rest)));
    case OCT_GATE_gelu: /* s + x s (1 - s) d(2u)/dx */
        g = sigmoid_pair(gelu_argument(x));
        slope = vf32_add(C(GELU_LINEAR), vf32_mul_loose(C(3 * GELU_CUBIC), vf32_mul_loose(x, x)));
        slope = vf32_mul(vf32_mul(vf32_mul(x, g.s), g.rest), slope);
        return vf32_mul(y, vf32_add(g.s, slope));
    case OCT_GATE_relu: /* 0 at 0, as jax.nn.relu's */
        return vf32_select(vf32_above(x, vf32_zero()), y, vf32_zero());
    default:
        g = sigmoid_pair(x);
        return vf32_mul(y, vf32_mul(g.s, g.rest));
    }
}

/* ---- Loops ---- */

enum word {
    WORD_add,
    WORD_subtract,
    WORD_multiply,
    WORD_divide,
    WORD_scale,
    WORD_add_scaled,
    WORD_multiply_add,
    WORD_exp,
    WORD_log,
    WORD_tanh,
    WORD_gate,                              /* + enum oct_gate */
    WORD_slope = WORD_gate + OCT_GATE_COUNT /* + enum oct_gate */
};

static INLINE vf32 word_of(int word, vf32 x, vf32 y, vf32 k, vf32 out)
{
    switch (word) {
    case WORD_add:
        return vf32_add(x, y);
    case WORD_subtract:
        return vf32_sub(x, y);
    case WORD_multiply:
        return vf32_mul(x, y);
    case WORD_divide:
        return vf32_div(x, y);
    case WORD_scale:
        return vf32_mul(x, k);
    case WORD_add_scaled:
        return vf32_add(out, vf32_mul(x, k));
    case WORD_multiply_add:
        return vf32_add(out, vf32_mul(x, y));
    case WORD_exp:
        return exp_of(x);
    case WORD_log:
        return log_of(x);
    case WORD_tanh:
        return tanh_of(x);
    default:
        if (word < WORD_slope)
            return gate_of((enum oct_gate)(word - WORD_gate), x);
        return gate_backward((enum oct_gate)(word - WORD_slope), x, y);
    }
}

/* out[i] = word(x[i], y[i], factor, out[i]); y NULL: none. What a word does not use costs nothing.
 */
static INLINE void each(int word, size_t n, const float *x, const float *y, float factor,
                        float *out)
{
    const vf32 k = vf32_set1(factor);
    const bool reads_out = word == WORD_add_scaled || word == WORD_multiply_add;
    vf32 b = vf32_zero(), old = vf32_zero();
    size_t i = 0;

    for (; i + VL <= n; i += VL) {
        if (y)
            b = vf32_load(y + i);
        if (reads_out)
            old = vf32_load(out + i);
        vf32_store(out + i, canonical(word_of(word, vf32_load(x + i), b, k, old)));
    }
    if (i < n) {
        if (y)
            b = vf32_load_part(y + i, n - i);
        if (reads_out)
            old = vf32_load_part(out + i, n - i);
        vf32_store_part(out + i, n - i,
                        canonical(word_of(word, vf32_load_part(x + i, n - i), b, k, old)));
    }
}

#define MATH_BINARY(name)                                                                          \
    static void math_##name(size_t n, const float *x, const float *y, float *out)                  \
    {                                                                                              \
        each(WORD_##name, n, x, y, 0, out);                                                        \
    }
MATH_BINARY(add)
MATH_BINARY(subtract)
MATH_BINARY(multiply)
MATH_BINARY(divide)
MATH_BINARY(multiply_add)
#undef MATH_BINARY

#define MATH_SCALED(name)                                                                          \
    static void math_##name(size_t n, const float *x, float factor, float *out)                    \
    {                                                                                              \
        each(WORD_##name, n, x, NULL, factor, out);                                                \
    }
MATH_SCALED(scale)
MATH_SCALED(add_scaled)
#undef MATH_SCALED

#define MATH_UNARY(name)                                                                           \
    static void math_##name(size_t n, const float *x, float *out)                                  \
    {                                                                                              \
        each(WORD_##name, n, x, NULL, 0, out);                                                     \
    }
MATH_UNARY(exp)
MATH_UNARY(log)
MATH_UNARY(tanh)
#undef MATH_UNARY

static void math_gate(enum oct_gate gate, size_t n, const float *x, float *out)
{
    switch (gate) {
    case OCT_GATE_silu:
        each(WORD_gate + OCT_GATE_silu, n, x, NULL, 0, out);
        break;
    case OCT_GATE_gelu:
        each(WORD_gate + OCT_GATE_gelu, n, x, NULL, 0, out);
        break;
    case OCT_GATE_relu:
        each(WORD_gate + OCT_GATE_relu, n, x, NULL, 0, out);
        break;
    default:
        each(WORD_gate + OCT_GATE_sigmoid, n, x, NULL, 0, out);
    }
}

static void math_gate_vjp(enum oct_gate gate, size_t n, const float *x, const float *cotangent,
                          float *out)
{
    switch (gate) {
    case OCT_GATE_silu:
        each(WORD_slope + OCT_GATE_silu, n, x, cotangent, 0, out);
        break;
    case OCT_GATE_gelu:
        each(WORD_slope + OCT_GATE_gelu, n, x, cotangent, 0, out);
        break;
    case OCT_GATE_relu:
        each(WORD_slope + OCT_GATE_relu, n, x, cotangent, 0, out);
        break;
    default:
        each(WORD_slope + OCT_GATE_sigmoid, n, x, cotangent, 0, out);
    }
}

/* The compiler takes a gate and its slope together. */
static INLINE vf32 gated(enum oct_gate gate, bool rounds, vf32 x, vf32 up)
{
    vf32 value = canonical(gate_of(gate, x));

    return canonical(vf32_mul(rounds ? round_bf16(value) : value, up));
}

static INLINE vf32 gated_slope(enum oct_gate gate, bool rounds, vf32 x, vf32 up, vf32 c)
{
    vf32 y = canonical(vf32_mul(c, up));

    return canonical(gate_backward(gate, x, rounds ? round_bf16(y) : y));
}

static INLINE void gated_as(enum oct_gate gate, bool rounds, size_t n, const float *x,
                            const float *up, float *out)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf32_store(out + i, gated(gate, rounds, vf32_load(x + i), vf32_load(up + i)));
    if (i < n)
        vf32_store_part(
            out + i, n - i,
            gated(gate, rounds, vf32_load_part(x + i, n - i), vf32_load_part(up + i, n - i)));
}

static INLINE void gated_back_as(enum oct_gate gate, bool rounds, size_t n, const float *x,
                                 const float *up, const float *cotangent, float *d_x, float *d_up)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL) {
        const vf32 at = vf32_load(x + i), c = vf32_load(cotangent + i), u = vf32_load(up + i);
        vf32_store(d_up + i, gated(gate, rounds, at, c));
        vf32_store(d_x + i, gated_slope(gate, rounds, at, u, c));
    }
    if (i < n) {
        const vf32 at = vf32_load_part(x + i, n - i), c = vf32_load_part(cotangent + i, n - i);
        const vf32 u = vf32_load_part(up + i, n - i);
        vf32_store_part(d_up + i, n - i, gated(gate, rounds, at, c));
        vf32_store_part(d_x + i, n - i, gated_slope(gate, rounds, at, u, c));
    }
}

#define GATES(X) X(silu) X(gelu) X(relu) X(sigmoid)

static void math_gated(enum oct_gate gate, bool rounds, size_t n, const float *x, const float *up,
                       float *out)
{
#define GATED(name)                                                                                \
    if (gate == OCT_GATE_##name)                                                                   \
        rounds ? gated_as(OCT_GATE_##name, true, n, x, up, out)                                    \
               : gated_as(OCT_GATE_##name, false, n, x, up, out);
    GATES(GATED)
#undef GATED
}

static void math_gated_vjp(enum oct_gate gate, bool rounds, size_t n, const float *x,
                           const float *up, const float *cotangent, float *d_x, float *d_up)
{
#define GATED(name)                                                                                \
    if (gate == OCT_GATE_##name)                                                                   \
        rounds ? gated_back_as(OCT_GATE_##name, true, n, x, up, cotangent, d_x, d_up)              \
               : gated_back_as(OCT_GATE_##name, false, n, x, up, cotangent, d_x, d_up);
    GATES(GATED)
#undef GATED
}
#undef GATES

static void math_rotate(size_t n, const float *a, const float *b, const float *cosine,
                        const float *sine, float *re, float *im)
{
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = n - i < VL ? n - i : VL;
        vf32 x = vf32_load_part(a + i, count), y = vf32_load_part(b + i, count);
        vf32 c = vf32_load_part(cosine + i, count), s = vf32_load_part(sine + i, count);
        vf32_store_part(re + i, count, canonical(vf32_sub(vf32_mul(x, c), vf32_mul(y, s))));
        vf32_store_part(im + i, count, canonical(vf32_add(vf32_mul(x, s), vf32_mul(y, c))));
    }
}

static void math_adamw(const struct oct_adamw *a, size_t n, const float *gradient, float *mu,
                       float *nu, float *parameter)
{
    const vf32 b1 = C((float)a->b1), b2 = C((float)a->b2), scale_by = C(a->gradient_scale);
    const vf32 rest1 = C((float)(1 - a->b1)), rest2 = C((float)(1 - a->b2));
    const vf32 c1 = C(a->c1), c2 = C(a->c2), root = C(a->epsilon_root), epsilon = C(a->epsilon);
    const vf32 rate = C(a->rate), decay = C(a->decay);

    for (size_t i = 0; i < n; i += VL) {
        const size_t count = n - i < VL ? n - i : VL;
        vf32 g = vf32_mul(vf32_load_part(gradient + i, count), scale_by);
        vf32 m = vf32_mul(b1, vf32_load_part(mu + i, count));
        vf32 v = vf32_mul(b2, vf32_load_part(nu + i, count));
        vf32 p = vf32_load_part(parameter + i, count);
        m = vf32_add(m, vf32_mul(rest1, g));
        v = vf32_add(v, vf32_mul(rest2, vf32_mul(g, g)));
        vf32 size = vf32_add(vf32_sqrt(vf32_add(vf32_div(v, c2), root)), epsilon);
        vf32 step = vf32_add(vf32_div(vf32_div(m, c1), size), vf32_mul(decay, p));
        vf32_store_part(mu + i, count, canonical(m));
        vf32_store_part(nu + i, count, canonical(v));
        vf32_store_part(parameter + i, count, canonical(vf32_sub(p, vf32_mul(rate, step))));
    }
}

/* ---- Of a row ---- */

enum { SUMS = 16 };

/* Lanes of the w-th vector of the 16 elements from i, where n are in all. */
static INLINE size_t lanes_left(size_t n, size_t i, size_t w)
{
    const size_t first = i + w * VL;
    return first >= n ? 0 : n - first < VL ? n - first : VL;
}

static INLINE float tree(const vf32 *sums)
{
    float t[SUMS];

    for (size_t w = 0; w < SUMS / VL; w++)
        vf32_store(t + w * VL, sums[w]);
    for (size_t half = SUMS / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            t[i] += t[i + half];
    return t[0] != t[0] ? oct_f32_from_bits(OCT_F32_NAN) : t[0];
}

/* Sum of x, or of x * y. A remainder's missing lanes are zeros, which change no sum that started
 * from zero. */
static INLINE float sum_loop(size_t n, const float *x, const float *y)
{
    vf32 sums[SUMS / VL];
    size_t i = 0;

    for (size_t w = 0; w < SUMS / VL; w++)
        sums[w] = vf32_zero();
    for (; i + SUMS <= n; i += SUMS)
        for (size_t w = 0; w < SUMS / VL; w++) {
            vf32 v = vf32_load(x + i + w * VL);
            sums[w] = vf32_add(sums[w], y ? vf32_mul(v, vf32_load(y + i + w * VL)) : v);
        }
    for (size_t w = 0; w < SUMS / VL; w++) {
        const size_t count = lanes_left(n, i, w);
        if (!count)
            break;
        vf32 v = vf32_load_part(x + i + w * VL, count);
        if (y)
            v = vf32_mul(v, vf32_load_part(y + i + w * VL, count));
        sums[w] = vf32_add(sums[w], v);
    }
    return tree(sums);
}

static float math_sum(size_t n, const float *x)
{
    return sum_loop(n, x, NULL);
}

static float math_sum_product(size_t n, const float *x, const float *y)
{
    return sum_loop(n, x, y);
}

static float math_exp_sum(size_t n, const float *x, float shift, float *out)
{
    const vf32 by = vf32_set1(shift);
    vf32 sums[SUMS / VL];
    size_t i = 0;

    for (size_t w = 0; w < SUMS / VL; w++)
        sums[w] = vf32_zero();
    for (; i + SUMS <= n; i += SUMS)
        for (size_t w = 0; w < SUMS / VL; w++) {
            vf32 e = exp_of(vf32_sub(vf32_load(x + i + w * VL), by));
            vf32_store(out + i + w * VL, e);
            sums[w] = vf32_add(sums[w], e);
        }
    for (size_t w = 0; w < SUMS / VL; w++) {
        const size_t count = lanes_left(n, i, w);
        float *to = out + i + w * VL;
        if (!count)
            break;
        vf32_store_part(to, count, exp_of(vf32_sub(vf32_load_part(x + i + w * VL, count), by)));
        sums[w] = vf32_add(sums[w], vf32_load_part(to, count));
    }
    return tree(sums);
}

/* Of n >= VL elements or of none past the last whole vector: the last vector may be read twice. */
static INLINE float maximum_of(size_t n, const float *x, bool *nan)
{
    float lanes[VL], most;
    vf32 largest = vu32_float(vu32_set1(0xff800000u));
    vu32 size = vu32_set1(0);

    for (size_t i = 0; i < n; i += VL) {
        vf32 v = vf32_load(x + (i + VL <= n ? i : n - VL));
        largest = vf32_max(v, largest);
        size = vu32_max(size, vu32_and(vf32_bits(v), vu32_set1(F32_ABS)));
    }
    vf32_store(lanes, vf32_select(is_nan(size), vu32_float(size), largest));
    most = lanes[0];
    *nan = false;
    for (size_t i = 0; i < VL; i++) {
        *nan |= lanes[i] != lanes[i];
        most = lanes[i] > most ? lanes[i] : most;
    }
    return most;
}

/* The sum with 0 makes one zero of both. */
static float math_maximum(size_t n, const float *x)
{
    const float infinity = oct_f32_from_bits(F32_INF);
    float most = -infinity;
    bool nan = false;

    if (n >= VL)
        most = maximum_of(n, x, &nan);
    else
        for (size_t i = 0; i < n; i++) {
            nan |= x[i] != x[i];
            most = x[i] > most ? x[i] : most;
        }
    return nan ? oct_f32_from_bits(OCT_F32_NAN) : most + 0.0f;
}

static size_t math_argmax(size_t n, const float *x)
{
    const float most = math_maximum(n, x);
    const vf32 all = vf32_set1(most);
    size_t i = 0;

    if (most != most) {
        while (i < n && x[i] == x[i])
            i++;
        return i;
    }
    while (i + VL <= n && vmask_all(vf32_above(all, vf32_load(x + i))))
        i += VL;
    while (i < n && x[i] < most)
        i++;
    return i < n ? i : 0;
}

#undef C

static const struct oct_math math_table = {.add = math_add,
                                           .subtract = math_subtract,
                                           .multiply = math_multiply,
                                           .divide = math_divide,
                                           .scale = math_scale,
                                           .add_scaled = math_add_scaled,
                                           .multiply_add = math_multiply_add,
                                           .exp = math_exp,
                                           .log = math_log,
                                           .tanh = math_tanh,
                                           .gate = math_gate,
                                           .gate_vjp = math_gate_vjp,
                                           .gated = math_gated,
                                           .gated_vjp = math_gated_vjp,
                                           .rotate = math_rotate,
                                           .adamw = math_adamw,
                                           .sum = math_sum,
                                           .sum_product = math_sum_product,
                                           .maximum = math_maximum,
                                           .exp_sum = math_exp_sum,
                                           .argmax = math_argmax};
