/* Ops that move numbers: each output element comes from where an index formula says, and a gradient
 * goes back the same way.
 * What could break: an axis taken for its neighbour, a gradient's rest that is not 0, the edge of a
 * tile, a gradient that has another type. */
#include <string.h>

#include "op_case.h"
#include "suite.h"

static const enum octet_dtype dtypes[] = {OCTET_DTYPE_F32, OCTET_DTYPE_BF16};

/* out[i] must be input `which`'s element from[i]; gradients then are sums over equal from[i]. */
static void expect_moved(struct op_case *c, const int64_t *from, const int *which)
{
    const int64_t count = octet_array_elements(&c->out[0]);
    double *sums[2];

    op_case_forward(c);
    op_case_backward(c);
    for (int k = 0; k < c->inputs; k++)
        sums[k] = OCTET_NEW_ARRAY(c->arena, octet_array_elements(&c->in[k]), double);
    for (int64_t i = 0; i < count; i++) {
        int k = which ? which[i] : 0;
        op_case_near(op_case_get(&c->out[0], i), op_case_get(&c->in[k], from[i]), 0, "out", i);
        sums[k][from[i]] += op_case_get(&c->cotangent[0], i);
    }
    for (int k = 0; k < c->inputs; k++)
        for (int64_t i = 0; i < octet_array_elements(&c->in[k]); i++)
            op_case_near(op_case_get(&c->gradient[k], i), sums[k][i],
                         c->gradient[k].dtype == OCTET_DTYPE_F32 ? 2e-7 : 0x1p-8, "gradient", i);
    op_case_check_bits(c);
    op_case_end(c);
}

static int64_t *indices(struct op_case *c, int64_t count)
{
    return OCTET_NEW_ARRAY(c->arena, count, int64_t);
}

/* One input, which is a parameter in every other case. */
static void begin(struct op_case *c, int i, int rank, const int64_t *dims)
{
    op_case_begin(c);
    c->b.dtype = dtypes[i % 2];
    if (i & 2)
        op_case_parameter(c, dtypes[i % 2], rank, dims, 1);
    else
        op_case_random(c, dtypes[i % 2], rank, dims, 1);
}

START_TEST(a_slice_takes_a_part_of_one_axis)
{
    static const struct {
        int64_t dims[3];
        int axis;
        int64_t start, size;
    } cases[] = {{{3, 4, 5}, 0, 1, 2}, {{3, 4, 5}, 1, 0, 3},       {{3, 4, 5}, 2, 4, 1},
                 {{3, 4, 5}, 2, 0, 5}, {{2, 3, 4100}, 2, 1, 4098}, {{50, 40, 30}, 2, 10, 20}};

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t *d = cases[k].dims, start = cases[k].start, size = cases[k].size;
        const int axis = cases[k].axis;
        struct op_case c;
        begin(&c, _i, 3, d);
        oct_slice(&c.b, c.x[0], axis, start, size);
        op_case_made(&c);
        int64_t *from = indices(&c, d[0] * d[1] * d[2]), n = 0;
        for (int64_t i = 0; i < d[0] * d[1] * d[2]; i++) {
            int64_t at[] = {i / d[2] / d[1], i / d[2] % d[1], i % d[2]};
            if (at[axis] >= start && at[axis] < start + size)
                from[n++] = i;
        }
        ck_assert_int_eq(n, octet_array_elements(&c.out[0]));
        expect_moved(&c, from, NULL);
    }
}
END_TEST

START_TEST(concat_joins_rows)
{
    static const int64_t cases[][3] = {{3, 2, 5}, {1, 1, 1}, {300, 64, 64}, {2, 3000, 1}};

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t rows = cases[k][0], a = cases[k][1], b = cases[k][2];
        struct op_case c;
        begin(&c, _i, 2, (int64_t[]){rows, a});
        op_case_random(&c, dtypes[_i % 2], 2, (int64_t[]){rows, b}, 1);
        oct_concat(&c.b, c.x[0], c.x[1]);
        op_case_made(&c);
        int64_t *from = indices(&c, rows * (a + b));
        int *which = OCTET_NEW_ARRAY(c.arena, rows * (a + b), int);
        for (int64_t i = 0; i < rows * (a + b); i++) {
            int64_t row = i / (a + b), column = i % (a + b);
            which[i] = column >= a;
            from[i] = which[i] ? row * b + column - a : row * a + column;
        }
        expect_moved(&c, from, which);
    }
}
END_TEST

START_TEST(reshape_keeps_the_order)
{
    static const int64_t sizes[] = {12, 40000, 16384};

    for (int k = 0; k < 3; k++) {
        struct op_case c;
        begin(&c, _i, 2, (int64_t[]){sizes[k] / 4, 4});
        oct_reshape(
            &c.b, c.x[0], 3,
            (struct oct_dim[]){OCT_DIM(2, none), OCT_DIM(sizes[k] / 4, none), OCT_DIM(2, none)});
        op_case_made(&c);
        int64_t *from = indices(&c, sizes[k]);
        for (int64_t i = 0; i < sizes[k]; i++)
            from[i] = i;
        expect_moved(&c, from, NULL);
    }
}
END_TEST

START_TEST(transpose_swaps_the_last_two_axes)
{
    static const int64_t cases[][3] = {
        {1, 1, 1}, {2, 3, 5}, {1, 33, 64}, {3, 31, 100}, {1, 200, 170}};

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t *d = cases[k], n = d[0] * d[1] * d[2];
        struct op_case c;
        begin(&c, _i, 3, d);
        oct_add_node(&c.b, OCT_OP_transpose, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 1,
                     c.x, NULL);
        op_case_made(&c);
        int64_t *from = indices(&c, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t matrix = i / (d[1] * d[2]), column = i / d[1] % d[2], row = i % d[1];
            from[i] = matrix * d[1] * d[2] + row * d[2] + column;
        }
        expect_moved(&c, from, NULL);
    }
}
END_TEST

START_TEST(broadcast_repeats_an_axis)
{
    static const struct {
        int64_t dims[3];
        int axis;
        int64_t size;
    } cases[] = {{{2, 1, 3}, 1, 4}, {{1, 2, 3}, 0, 5}, {{2, 3, 1}, 2, 7}, {{20, 1, 700}, 1, 3}};

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int axis = cases[k].axis;
        int64_t out[3], n = 1;
        struct op_case c;
        begin(&c, _i, 3, cases[k].dims);
        oct_broadcast(&c.b, c.x[0], axis, OCT_DIM(cases[k].size, none));
        op_case_made(&c);
        for (int a = 0; a < 3; a++)
            n *= out[a] = a == axis ? cases[k].size : cases[k].dims[a];
        int64_t *from = indices(&c, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t at[] = {i / out[2] / out[1], i / out[2] % out[1], i % out[2]};
            at[axis] = 0;
            from[i] = (at[0] * cases[k].dims[1] + at[1]) * cases[k].dims[2] + at[2];
        }
        expect_moved(&c, from, NULL);
    }
}
END_TEST

START_TEST(one_hot_has_a_one_at_the_id)
{
    static const double ids[] = {0, 4, 2, 4, -1, 5};
    struct op_case c;

    op_case_begin(&c);
    c.b.dtype = dtypes[_i];
    op_case_values(&c, OCTET_DTYPE_S32, 2, (int64_t[]){2, 3}, ids);
    oct_add_node(&c.b, OCT_OP_one_hot, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 5}, 1, c.x,
                 NULL);
    op_case_made(&c);
    op_case_forward(&c);
    for (int64_t i = 0; i < 30; i++)
        op_case_near(op_case_get(&c.out[0], i), (double)i - (double)(i / 5 * 5) == ids[i / 5], 0,
                     "out", i);
    op_case_end(&c);
}
END_TEST

TCase *layout_tests(void)
{
    TCase *tests = tcase_create("layout");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_slice_takes_a_part_of_one_axis, 0, 4);
    tcase_add_loop_test(tests, concat_joins_rows, 0, 4);
    tcase_add_loop_test(tests, reshape_keeps_the_order, 0, 4);
    tcase_add_loop_test(tests, transpose_swaps_the_last_two_axes, 0, 4);
    tcase_add_loop_test(tests, broadcast_repeats_an_axis, 0, 4);
    tcase_add_loop_test(tests, one_hot_has_a_one_at_the_id, 0, 2);
    return tests;
}
