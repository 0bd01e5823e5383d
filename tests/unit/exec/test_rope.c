/* Rotations and sinusoids against the formulas in double.
 * What could break: which elements are a pair, a layout on the way back, Llama 3.1's and YaRN's
 * frequencies, a table row that two positions share. Gradients are checked by differences, and by
 * rotating back: a rotation without gain keeps lengths. */
#include <math.h>
#include <string.h>

#include "op_case.h"
#include "suite.h"

enum positions { PLAIN, RESTARTING, FAR };

struct shape {
    enum oct_rope_kind kind;
    bool interleave, pairwise, truncate, scales;
    int64_t batch, length, heads, width;
    float max_timescale, factor;
    enum positions positions;
};

static const struct shape shapes[] = {
    {OCT_ROPE_default, false, false, false, false, 2, 9, 3, 8, 10000, 1, PLAIN},
    {OCT_ROPE_default, false, false, false, false, 2, 9, 1, 64, 500000, 1, RESTARTING},
    {OCT_ROPE_default, false, false, false, false, 1, 5, 2, 6, 100, 1, FAR},
    {OCT_ROPE_llama31, false, false, false, true, 1, 12, 2, 128, 500000, 1, FAR},
    {OCT_ROPE_llama31, false, false, false, false, 2, 3, 2, 16, 500000, 1, PLAIN},
    {OCT_ROPE_yarn, true, false, true, false, 2, 16, 2, 64, 10000, 40, RESTARTING},
    {OCT_ROPE_yarn, true, true, true, false, 1, 8, 3, 32, 10000, 40, PLAIN},
    {OCT_ROPE_yarn, false, false, false, true, 1, 8, 3, 64, 150000, 32, FAR},
    {OCT_ROPE_default, false, false, false, false, 1, 1, 1, 2, 10000, 1, PLAIN},
    {OCT_ROPE_yarn, true, false, true, false, 4, 300, 8, 64, 10000, 40, RESTARTING}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static int32_t position(const struct shape *s, int64_t token)
{
    const int64_t i = token % s->length;
    return (int32_t)(s->positions == PLAIN ? i : s->positions == FAR ? i * 517 + 3 : i % 7);
}

static void make(struct op_case *c, const struct shape *s, enum octet_dtype dtype)
{
    const union oct_attributes attributes = {.rope = {.kind = s->kind,
                                                      .interleave = s->interleave,
                                                      .pairwise = s->pairwise,
                                                      .truncate = s->truncate,
                                                      .scales = s->scales,
                                                      .min_timescale = 1,
                                                      .max_timescale = s->max_timescale,
                                                      .linear_scaling = 2,
                                                      .beta_fast = 32,
                                                      .beta_slow = 1,
                                                      .factor = s->factor,
                                                      .original_positions = 4096}};

    op_case_begin(c);
    op_case_random(c, dtype, 4, (int64_t[]){s->batch, s->length, s->heads, s->width}, 1);
    struct octet_array *positions =
        op_case_input(c, OCTET_DTYPE_S32, 2, (int64_t[]){s->batch, s->length});
    for (int64_t i = 0; i < s->batch * s->length; i++)
        op_case_set(positions, i, position(s, i));
    oct_add_node(&c->b, OCT_OP_rope, OCTET_LOOKUP_NONE, attributes, 2, c->x, NULL);
    op_case_made(c);
}

/* ---- The formulas ---- */

static double frequency(const struct shape *s, int64_t i)
{
    const double d = (double)s->width, f = pow((double)s->max_timescale, -2.0 * (double)i / d);
    const double wave = 2 * M_PI / f, factor = (double)s->factor;

    if (s->kind == OCT_ROPE_default)
        return f / 2;
    if (s->kind == OCT_ROPE_llama31) {
        double smooth = (8192 / wave - 1) / 3;
        if (!s->scales || wave < 2048)
            return f;
        return wave > 8192 ? f / 8 : (1 - smooth) * f / 8 + smooth * f;
    }
    double low = d * log(4096 / (32 * 2 * M_PI)) / (2 * log((double)s->max_timescale));
    double high = d * log(4096 / (2 * M_PI)) / (2 * log((double)s->max_timescale));
    low = fmax(s->truncate ? floor(low) : low, 0);
    high = fmin(s->truncate ? ceil(high) : high, d - 1);
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return f / factor * ramp + f * (1 - ramp);
}

static void expected_pair(const struct op_case *c, const struct shape *s, int64_t head, int64_t i,
                          double *re, double *im)
{
    const int64_t first = head * s->width, half = s->width / 2;
    const bool pairs = s->kind == OCT_ROPE_llama31 || s->interleave;
    double a = op_case_get(&c->in[0], first + (pairs ? 2 * i : i));
    double b = op_case_get(&c->in[0], first + (pairs ? 2 * i + 1 : half + i));
    double angle = position(s, head / s->heads) * frequency(s, i);
    double gain = s->kind == OCT_ROPE_yarn && s->scales ? 0.1 * log((double)s->factor) + 1 : 1;

    *re = gain * (a * cos(angle) - b * sin(angle));
    *im = gain * (a * sin(angle) + b * cos(angle));
}

static void check_values(const struct op_case *c, const struct shape *s, double tolerance)
{
    const int64_t half = s->width / 2;
    const bool pairs = s->kind == OCT_ROPE_llama31 || s->pairwise;

    for (int64_t head = 0; head < s->batch * s->length * s->heads; head++)
        for (int64_t i = 0; i < half; i++) {
            const int64_t at = head * s->width;
            double re, im, angle = position(s, head / s->heads) * frequency(s, i);
            double within = tolerance + angle * 0x1p-20; /* angles and exponents are f32 */
            expected_pair(c, s, head, i, &re, &im);
            op_case_near(op_case_get(&c->out[0], at + (pairs ? 2 * i : i)), re, within, "re",
                         at + i);
            op_case_near(op_case_get(&c->out[0], at + (pairs ? 2 * i + 1 : half + i)), im, within,
                         "im", at + i);
        }
}

START_TEST(values_and_gradients)
{
    struct op_case c;

    make(&c, &shapes[_i], OCTET_DTYPE_F32);
    op_case_forward(&c);
    check_values(&c, &shapes[_i], 1e-6);
    if (octet_array_elements(&c.in[0]) < 10000)
        op_case_check_gradients(&c, 0.5, 2e-4); /* it is linear */
    op_case_end(&c);
}
END_TEST

START_TEST(bf16)
{
    struct op_case c;

    make(&c, &shapes[_i], OCTET_DTYPE_BF16);
    op_case_forward(&c);
    check_values(&c, &shapes[_i], 0x1p-6);
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(bits)
{
    struct op_case c;

    make(&c, &shapes[_i], OCTET_DTYPE_F32);
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

/* Backward of a result gives the input again, as turning there and back does. */
START_TEST(backward_turns_back)
{
    struct op_case c;
    const struct shape *s = &shapes[_i];
    const double gain =
        s->kind == OCT_ROPE_yarn && s->scales ? 0.1 * log((double)s->factor) + 1 : 1;

    make(&c, s, OCTET_DTYPE_F32);
    op_case_forward(&c);
    memcpy(c.cotangent[0].data, c.out[0].data, (size_t)octet_array_bytes(&c.out[0]));
    op_case_backward(&c);
    for (int64_t i = 0; i < octet_array_elements(&c.in[0]); i++)
        op_case_near(op_case_get(&c.gradient[0], i), gain * gain * op_case_get(&c.in[0], i), 2e-6,
                     "turned back", i);
    op_case_end(&c);
}
END_TEST

START_TEST(sinusoids)
{
    struct op_case c;

    for (int64_t width = 2; width <= 66; width += 32) {
        op_case_begin(&c);
        struct octet_array *positions = op_case_input(&c, OCTET_DTYPE_S32, 2, (int64_t[]){2, 30});
        for (int64_t i = 0; i < 60; i++)
            op_case_set(positions, i, (double)(i * i));
        oct_add_node(&c.b, OCT_OP_sinusoid, OCTET_LOOKUP_NONE, (union oct_attributes){.k = width},
                     1, c.x, NULL);
        op_case_made(&c);
        op_case_forward(&c);
        for (int64_t i = 0; i < 60 * width; i++) {
            const int64_t half = width / 2, feature = i % width % half;
            double rate = pow(10000, -(double)feature / fmax((double)half - 1, 1));
            double angle = (double)((i / width) * (i / width)) * rate;
            double want = i % width < half ? sin(angle) : cos(angle);
            op_case_near(op_case_get(&c.out[0], i), want, 1e-6 + angle * 0x1p-20, "sinusoid", i);
        }
        op_case_check_bits(&c);
        op_case_end(&c);
    }
}
END_TEST

TCase *rope_tests(void)
{
    TCase *tests = tcase_create("rope");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, values_and_gradients, 0, SHAPES);
    tcase_add_loop_test(tests, bf16, 0, SHAPES);
    tcase_add_loop_test(tests, bits, 0, SHAPES);
    tcase_add_loop_test(tests, backward_turns_back, 0, SHAPES);
    tcase_add_test(tests, sinusoids);
    return tests;
}
