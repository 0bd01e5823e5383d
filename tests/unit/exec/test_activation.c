/* Activations and soft caps against double arithmetic.
 * What could break: a function mixed up with another, a limit on the wrong side, half a cotangent
 * at a limit, softmax rows at the seams of ranges. */
#include <math.h>

#include "exec/activation.h"
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

/* ---- Fused ---- */

static void same_bits(const struct octet_array *got, const void *want, const char *what, int i)
{
    ck_assert_msg(memcmp(got->data, want, (size_t)octet_array_bytes(got)) == 0, "%s of case %d",
                  what, i);
}

/* activation(gate) * up in one pass, beside the two ops: the same bits forward and back. */
START_TEST(gate_gives_the_bits_of_its_parts)
{
    const enum oct_activation function = _i % 2 ? OCT_ACTIVATION_gelu : OCT_ACTIVATION_silu;
    const enum octet_dtype dtype = _i / 2 % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    const float least = _i >= 4 ? limit : 0;
    const int64_t dims[] = {3, 1501};
    struct op_case parts, whole;

    op_case_begin(&parts);
    op_case_random(&parts, dtype, 2, dims, 1.5);
    oct_activate(&parts.b, parts.x[0], function, least);
    op_case_made(&parts);
    op_case_forward(&parts);
    struct octet_array gate = parts.in[0], active = parts.out[0];
    op_case_begin(&whole);
    struct octet_array up = *op_case_random(&whole, dtype, 2, dims, 1);
    struct octet_array c = *op_case_random(&whole, dtype, 2, dims, 1);
    struct octet_array out = op_case_zeros(&whole, dtype, 2, dims);
    struct octet_array d_up = op_case_zeros(&whole, dtype, 2, dims);
    struct octet_array d_gate = op_case_zeros(&whole, dtype, 2, dims), seen = out;
    struct octet_array want[3];
    for (int i = 0; i < 3; i++)
        want[i] = op_case_zeros(&whole, dtype, 2, dims);
    for (int64_t i = 0; i < octet_array_elements(&up); i++) {
        const float u = (float)op_case_get(&up, i), x = (float)op_case_get(&active, i);
        op_case_set(&want[0], i, (double)(x * u));
        op_case_set(&want[1], i, (double)((float)op_case_get(&c, i) * x));
        op_case_set(&parts.cotangent[0], i, (double)((float)op_case_get(&c, i) * u));
    }
    op_case_backward(&parts);
    struct oct_op_call call = {
        .execution = &parts.execution, .node = parts.node, .in = {gate, up}, .out = {out}};
    ck_assert_int_eq(oct_gate_forward(&call, &whole.err), OCTET_OK);
    ck_assert_int_eq(oct_gate_vjp(&call, &c, (struct octet_array[]){d_gate, d_up}, &whole.err),
                     OCTET_OK);
    same_bits(&seen, want[0].data, "output", _i);
    same_bits(&d_up, want[1].data, "up's gradient", _i);
    same_bits(&d_gate, parts.gradient[0].data, "gate's gradient", _i);
    op_case_end(&whole);
    op_case_end(&parts);
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
    tcase_add_loop_test(tests, gate_gives_the_bits_of_its_parts, 0, 6);
    return tests;
}
