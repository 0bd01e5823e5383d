/* Activations and soft caps against double arithmetic.
 * What could break: a function mixed up with another, a limit on the wrong side, half a cotangent
 * at a limit, softmax rows at the seams of ranges. */
#include <math.h>

#include "op_case.h"
#include "suite.h"

static const enum oct_activation functions[] = {
    OCT_ACTIVATION_silu,    OCT_ACTIVATION_gelu,          OCT_ACTIVATION_relu,
    OCT_ACTIVATION_sigmoid, OCT_ACTIVATION_softmax,       OCT_ACTIVATION_swiglu_oai,
    OCT_ACTIVATION_linear,  OCT_ACTIVATION_clip_plus_one, OCT_ACTIVATION_clip};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };
static const float limit = 1.25f;

static void make(struct op_case *c, enum oct_activation function, enum octet_dtype dtype,
                 int64_t rows, int64_t width, bool clips)
{
    op_case_begin(c);
    op_case_random(c, dtype, 2, (int64_t[]){rows, width}, 2);
    oct_add_node(&c->b, OCT_OP_activation, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.activation = {function, clips ? limit : 0}}, 1, c->x,
                 NULL);
    op_case_made(c);
}

/* Whose limit may be absent. */
static bool is_gate(enum oct_activation function)
{
    return function == OCT_ACTIVATION_silu || function == OCT_ACTIVATION_gelu ||
           function == OCT_ACTIVATION_relu || function == OCT_ACTIVATION_sigmoid;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double expected(const struct op_case *c, enum oct_activation function, int64_t i)
{
    const int64_t width = c->in[0].dim[1];
    double x = op_case_get(&c->in[0], i), sum = 0;

    if (c->node->attributes.activation.limit > 0 && function < OCT_ACTIVATION_softmax &&
        function != OCT_ACTIVATION_linear)
        x = fmin(x, (double)limit);

    switch (function) {
    case OCT_ACTIVATION_silu:
        return x * sigmoid(x);
    case OCT_ACTIVATION_gelu:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case OCT_ACTIVATION_relu:
        return fmax(x, 0);
    case OCT_ACTIVATION_sigmoid:
        return sigmoid(x);
    case OCT_ACTIVATION_softmax:
        for (int64_t j = i / width * width; j < (i / width + 1) * width; j++)
            sum += exp(op_case_get(&c->in[0], j) - x);
        return 1 / sum;
    case OCT_ACTIVATION_swiglu_oai:
        return fmin(x, (double)limit) * sigmoid(1.702 * fmin(x, (double)limit));
    case OCT_ACTIVATION_clip:
        return fmin(fmax(x, -(double)limit), (double)limit);
    case OCT_ACTIVATION_clip_plus_one:
        return fmin(fmax(x, -(double)limit), (double)limit) + 1;
    default:
        return x;
    }
}

static void check_values(const struct op_case *c, enum oct_activation function, double tolerance)
{
    for (int64_t i = 0; i < octet_array_elements(&c->in[0]); i++)
        op_case_near(op_case_get(&c->out[0], i), expected(c, function, i), tolerance, "activation",
                     i);
}

START_TEST(values)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {70, 130}, {2, 4100}};

    for (int dtype = 0; dtype < 2; dtype++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct op_case c;
            make(&c, functions[_i], dtype ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32, sizes[s][0],
                 sizes[s][1], s != 1 || !is_gate(functions[_i]));
            op_case_forward(&c);
            check_values(&c, functions[_i], dtype ? 0x1p-8 : 1e-6);
            op_case_check_bits(&c);
            op_case_end(&c);
        }
}
END_TEST

/* Numbers stay clear of limits and of 0, where the slope jumps. */
START_TEST(gradients)
{
    struct op_case c;

    make(&c, functions[_i], OCTET_DTYPE_F32, 5, 37, true);
    for (int64_t i = 0; i < 5 * 37; i++) {
        double x = op_case_get(&c.in[0], i);
        if (fabs(x) < 0.02 || fabs(fabs(x) - (double)limit) < 0.02)
            op_case_set(&c.in[0], i, x + 0.05);
    }
    op_case_check_gradients(&c, 0x1p-7, 1e-3);
    op_case_end(&c);
}
END_TEST

START_TEST(half_passes_at_a_limit)
{
    struct op_case c;

    op_case_begin(&c);
    op_case_values(&c, OCTET_DTYPE_F32, 2, (int64_t[]){1, 2}, (double[]){1.25, -1.25});
    oct_add_node(&c.b, OCT_OP_activation, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.activation = {OCT_ACTIVATION_clip_plus_one, limit}}, 1,
                 c.x, NULL);
    op_case_made(&c);
    op_case_set(&c.cotangent[0], 0, 3);
    op_case_set(&c.cotangent[0], 1, 5);
    op_case_forward(&c);
    op_case_backward(&c);
    ck_assert_double_eq(op_case_get(&c.gradient[0], 0), 1.5);
    ck_assert_double_eq(op_case_get(&c.gradient[0], 1), 2.5);
    op_case_end(&c);
}
END_TEST

START_TEST(soft_caps)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        struct op_case c;
        op_case_begin(&c);
        op_case_random(&c, dtype ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32, 2, (int64_t[]){5, 41}, 20);
        oct_add_node(&c.b, OCT_OP_soft_cap, OCTET_LOOKUP_NONE, (union oct_attributes){.cap = 30}, 1,
                     c.x, NULL);
        op_case_made(&c);
        op_case_forward(&c);
        for (int64_t i = 0; i < 5 * 41; i++)
            op_case_near(op_case_get(&c.out[0], i), 30 * tanh(op_case_get(&c.in[0], i) / 30),
                         dtype ? 0x1p-8 : 1e-6, "capped", i);
        if (!dtype)
            op_case_check_gradients(&c, 0.125, 1e-3);
        op_case_check_bits(&c);
        op_case_end(&c);
    }
}
END_TEST

TCase *activation_tests(void)
{
    TCase *tests = tcase_create("activation");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, values, 0, FUNCTIONS);
    tcase_add_loop_test(tests, gradients, 0, FUNCTIONS);
    tcase_add_test(tests, half_passes_at_a_limit);
    tcase_add_test(tests, soft_caps);
    return tests;
}
