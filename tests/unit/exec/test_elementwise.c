/* Elementwise ops beside indices written out.
 * What could break: an axis that broadcasts along another, a sum over too few of what was repeated,
 * a parameter that is not rounded first, the edge of a piece. */
#include <math.h>
#include <string.h>

#include "op_case.h"
#include "suite.h"

struct shapes {
    int x_rank, y_rank;
    int64_t x[5], y[5];
};
static const struct shapes shapes[] = {
    {2, 2, {3, 5}, {3, 5}},
    {0, 0, {0}, {0}},
    {1, 1, {2}, {1}},
    {3, 1, {2, 3, 5}, {5}},
    {3, 2, {2, 3, 5}, {3, 5}},
    {4, 4, {2, 3, 4, 5}, {2, 3, 4, 1}},
    {4, 4, {4, 2, 3, 5}, {4, 1, 1, 5}},
    {5, 5, {2, 3, 2, 3, 2}, {1, 3, 1, 3, 1}},
    {3, 1, {2, 3, 4}, {1}},
    {2, 1, {3, 2049}, {2049}},
    {2, 2, {5, 4100}, {5, 1}},
    {3, 1, {2, 60, 300}, {300}},
    {2, 2, {50, 700}, {50, 700}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The second operand's element beside x's element i. */
static int64_t beside(const struct shapes *s, int64_t i)
{
    int64_t at = 0, step = 1;

    for (int a = 1; a <= s->x_rank; a++) {
        int64_t dim = s->x[s->x_rank - a], index = i % dim;
        i /= dim;
        if (a <= s->y_rank) {
            at += s->y[s->y_rank - a] == 1 ? 0 : index * step;
            step *= s->y[s->y_rank - a];
        }
    }
    return at;
}

/* What a parameter's number is in the type of the computation. */
static double seen(double value, enum octet_dtype dtype)
{
    uint16_t code;
    struct octet_array one = {.dtype = OCTET_DTYPE_BF16, .rank = 0, .data = &code};

    if (dtype == OCTET_DTYPE_F32)
        return value;
    op_case_set(&one, 0, value);
    return op_case_get(&one, 0);
}

static void begin(struct op_case *c, const struct shapes *s, enum oct_op op, enum octet_dtype dtype,
                  bool parameter)
{
    op_case_begin(c);
    c->b.dtype = dtype;
    op_case_random(c, dtype, s->x_rank, s->x, 1);
    if (parameter)
        op_case_parameter(c, OCTET_DTYPE_F32, s->y_rank, s->y, 1);
    else
        op_case_random(c, dtype, s->y_rank, s->y, 1);
    if (op == OCT_OP_add)
        oct_plus(&c->b, c->x[0], c->x[1]);
    else
        oct_times(&c->b, c->x[0], c->x[1]);
    op_case_made(c);
    op_case_forward(c);
    op_case_backward(c);
}

static void expect(struct op_case *c, const struct shapes *s, bool product, enum octet_dtype dtype,
                   bool parameter)
{
    static double sums[2 * 60 * 300];
    const double close = dtype == OCTET_DTYPE_F32 ? 2e-7 : 0x1p-8;
    const double sum_close = dtype == OCTET_DTYPE_F32 || parameter ? 2e-7 : 0x1p-8;

    memset(sums, 0, sizeof sums);
    for (int64_t i = 0, n = octet_array_elements(&c->in[0]); i < n; i++) {
        double x = op_case_get(&c->in[0], i), y = seen(op_case_get(&c->in[1], beside(s, i)), dtype);
        double g = op_case_get(&c->cotangent[0], i);
        op_case_near(op_case_get(&c->out[0], i), product ? x * y : x + y, close, "out", i);
        op_case_near(op_case_get(&c->gradient[0], i), product ? g * y : g, close, "gradient", i);
        sums[beside(s, i)] += product ? g * x : g;
    }
    for (int64_t i = 0, n = octet_array_elements(&c->in[1]); i < n; i++)
        op_case_near(op_case_get(&c->gradient[1], i), sums[i], sum_close, "second gradient", i);
}

START_TEST(the_second_operand_is_repeated_and_its_gradient_summed)
{
    static const enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};
    struct op_case c;

    for (int i = 0; i < 8; i++) {
        bool product = i & 1, parameter = i & 4;
        enum octet_dtype dtype = dtypes[i >> 1 & 1];
        begin(&c, &shapes[_i], product ? OCT_OP_multiply : OCT_OP_add, dtype, parameter);
        expect(&c, &shapes[_i], product, dtype, parameter);
        op_case_check_bits(&c);
        op_case_end(&c);
    }
}
END_TEST

/* A factor is rounded to the array's type, as JAX does with a Python number. */
START_TEST(scale_multiplies_by_a_number_of_the_arrays_type)
{
    static const enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};
    const double close = _i ? 0x1p-8 : 1e-7, factor = seen((double)0.1f, dtypes[_i]);
    struct op_case c;

    op_case_begin(&c);
    c.b.dtype = dtypes[_i];
    op_case_random(&c, dtypes[_i], 2, (int64_t[]){7, 5001}, 1);
    oct_scale(&c.b, c.x[0], 0.1);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t i = 0; i < 7 * 5001; i++) {
        double x = op_case_get(&c.in[0], i) * factor, g = op_case_get(&c.cotangent[0], i) * factor;
        op_case_near(op_case_get(&c.out[0], i), _i ? seen(x, OCTET_DTYPE_BF16) : x, _i ? 0 : close,
                     "out", i);
        op_case_near(op_case_get(&c.gradient[0], i), g, close, "gradient", i);
    }
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(casts_round_and_pass_gradients_back)
{
    static const enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};
    struct op_case c;

    for (int i = 0; i < 2; i++) {
        op_case_begin(&c);
        op_case_random(&c, dtypes[i], 2, (int64_t[]){3, 30011}, 1);
        oct_cast(&c.b, c.x[0], dtypes[!i]);
        op_case_made(&c);
        op_case_forward(&c);
        op_case_backward(&c);
        for (int64_t k = 0; k < 3 * 30011; k++) {
            op_case_near(op_case_get(&c.out[0], k), seen(op_case_get(&c.in[0], k), dtypes[!i]), 0,
                         "out", k);
            op_case_near(op_case_get(&c.gradient[0], k),
                         seen(op_case_get(&c.cotangent[0], k), dtypes[i]), 0, "gradient", k);
        }
        op_case_check_bits(&c);
        op_case_end(&c);
    }
}
END_TEST

START_TEST(a_stopped_gradient_has_no_way_back)
{
    struct op_case c;

    op_case_begin(&c);
    op_case_random(&c, OCTET_DTYPE_F32, 1, (int64_t[]){9}, 1);
    oct_add_node(&c.b, OCT_OP_stop_gradient, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 1,
                 c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    ck_assert_mem_eq(c.out[0].data, c.in[0].data, 9 * sizeof(float));
    ck_assert_ptr_null(oct_op_codes[OCT_OP_stop_gradient].vjp);
    op_case_end(&c);
}
END_TEST

TCase *elementwise_tests(void)
{
    TCase *tests = tcase_create("elementwise");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, the_second_operand_is_repeated_and_its_gradient_summed, 0, SHAPES);
    tcase_add_loop_test(tests, scale_multiplies_by_a_number_of_the_arrays_type, 0, 2);
    tcase_add_test(tests, casts_round_and_pass_gradients_back);
    tcase_add_test(tests, a_stopped_gradient_has_no_way_back);
    return tests;
}
