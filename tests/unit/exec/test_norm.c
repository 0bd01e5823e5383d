/* RMS norm and layer norm against double arithmetic.
 * What could break: rows wider than a piece, a scale's gradient that loses rows at the seams of its
 * parts, the offset, the rounding of bf16 between normalizing and scaling. */
#include <math.h>

#include "op_case.h"
#include "suite.h"

struct shape {
    int64_t rows, width;
    int inputs; /* 1: no scale; 2: scale; 3: layer norm */
    float offset;
};

static const struct shape shapes[] = {{3, 5, 2, 0},  {1, 1, 2, 0},    {40, 64, 2, 1},
                                      {7, 33, 1, 0}, {3, 5000, 2, 0}, {3, 2100, 1, 0},
                                      {5, 24, 3, 0}, {2, 4500, 3, 0}, {21, 16, 3, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void make(struct op_case *c, const struct shape *s, enum octet_dtype dtype)
{
    const union oct_attributes attributes = {.norm = {1e-5f, s->offset}};

    op_case_begin(c);
    op_case_random(c, dtype, 2, (int64_t[]){s->rows, s->width}, 1.5);
    for (int i = 1; i < s->inputs; i++)
        op_case_parameter(c, OCTET_DTYPE_F32, 1, (int64_t[]){s->width}, 1);
    oct_add_node(&c->b, s->inputs == 3 ? OCT_OP_layer_norm : OCT_OP_rms_norm, OCTET_LOOKUP_NONE,
                 attributes, s->inputs, c->x, NULL);
    op_case_made(c);
}

static void check_values(struct op_case *c, const struct shape *s, double tolerance)
{
    for (int64_t row = 0; row < s->rows; row++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < s->width; i++)
            mean += op_case_get(&c->in[0], row * s->width + i) / (double)s->width;
        mean = s->inputs == 3 ? mean : 0;
        for (int64_t i = 0; i < s->width; i++)
            square += pow(op_case_get(&c->in[0], row * s->width + i) - mean, 2) / (double)s->width;
        for (int64_t i = 0; i < s->width; i++) {
            double want = (op_case_get(&c->in[0], row * s->width + i) - mean) / sqrt(square + 1e-5);
            if (s->inputs > 1)
                want *= op_case_get(&c->in[1], i) + (double)s->offset;
            if (s->inputs > 2)
                want += op_case_get(&c->in[2], i);
            op_case_near(op_case_get(&c->out[0], row * s->width + i), want, tolerance, "norm",
                         row * s->width + i);
        }
    }
}

START_TEST(values_and_gradients)
{
    struct op_case c;

    make(&c, &shapes[_i], OCTET_DTYPE_F32);
    op_case_forward(&c);
    check_values(&c, &shapes[_i], 2e-6);
    if (shapes[_i].width == 1)
        c.wanted &= ~1u; /* a constant: its gradient is nothing but rounding */
    op_case_check_gradients(&c, 0x1p-7, 2e-3);
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

/* The normalized value is rounded before it meets the scale: 1.0078125 (0x3f81) times a scale of
 * the same is 1.015625 + 2^-14, which rounds to 1.015625; a single rounding of other values need
 * not. */
START_TEST(bf16_rounds_twice)
{
    struct op_case c;

    op_case_begin(&c);
    op_case_random(&c, OCTET_DTYPE_BF16, 2, (int64_t[]){8, 64}, 1);
    op_case_parameter(&c, OCTET_DTYPE_F32, 1, (int64_t[]){64}, 1);
    oct_add_node(&c.b, OCT_OP_rms_norm, OCTET_LOOKUP_NONE, (union oct_attributes){.norm = {0, 0}},
                 2, c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    for (int64_t row = 0; row < 8; row++) {
        double square = 0;
        struct octet_array one = op_case_zeros(&c, OCTET_DTYPE_BF16, 1, (int64_t[]){1});
        for (int64_t i = 0; i < 64; i++)
            square += pow(op_case_get(&c.in[0], row * 64 + i), 2) / 64;
        for (int64_t i = 0; i < 64; i++) {
            double exact = op_case_get(&c.in[0], row * 64 + i) / sqrt(square);
            op_case_set(&one, 0, exact);
            double normed = op_case_get(&one, 0);
            op_case_set(&one, 0, op_case_get(&c.in[1], i));
            double scale = op_case_get(&one, 0);
            op_case_set(&one, 0, normed * scale);
            if (fabs(fabs(exact - normed) * 512 / fabs(normed) - 1) > 1e-3) /* not on a tie */
                ck_assert_double_eq(op_case_get(&c.out[0], row * 64 + i), op_case_get(&one, 0));
        }
    }
    op_case_end(&c);
}
END_TEST

TCase *norm_tests(void)
{
    TCase *tests = tcase_create("norm");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, values_and_gradients, 0, SHAPES);
    tcase_add_loop_test(tests, bf16, 0, SHAPES);
    tcase_add_loop_test(tests, bits, 0, SHAPES);
    tcase_add_test(tests, bf16_rounds_twice);
    return tests;
}
