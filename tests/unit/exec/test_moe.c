/* Rows to experts and back, beside a stable sort written out.
 * What could break: rows of one expert that change their order, an expert without rows, a dropped
 * choice that keeps a slot, a gradient that misses one of a token's k rows. */
#include <math.h>
#include <string.h>

#include "exec/moe.h"
#include "op_case.h"
#include "suite.h"

struct shape {
    int64_t b, s, k, experts, width;
};
static const struct shape shapes[] = {
    {1, 1, 1, 1, 1},
    {2, 5, 2, 4, 3},
    {1, 9, 3, 32, 600},
    {2, 300, 2, 8, 70},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct octet_array *add_indices(struct op_case *c, const struct shape *d)
{
    struct octet_array *x = op_case_input(c, OCTET_DTYPE_S32, 3, (int64_t[]){d->b, d->s, d->k});

    for (int64_t t = 0; t < d->b * d->s; t++) {
        /* Distinct for a token; the last expert is left without rows where there are many. */
        uint64_t range = (uint64_t)(d->experts > d->k ? d->experts - 1 : d->experts);
        uint64_t first = op_case_roll(c) % range;
        for (int64_t j = 0; j < d->k; j++)
            op_case_set(x, t * d->k + j, (double)((first + (uint64_t)j) % range));
    }
    return x;
}

static int64_t expert_at(const struct op_case *c, int64_t row)
{
    return (int64_t)op_case_get(&c->in[1], row);
}

/* Where flat row i lies by expert. */
static int64_t place_of(const struct op_case *c, int64_t i)
{
    int64_t place = 0, rows = octet_array_elements(&c->in[1]);

    for (int64_t j = 0; j < rows; j++)
        place += expert_at(c, j) < expert_at(c, i) || (expert_at(c, j) == expert_at(c, i) && j < i);
    return place;
}

static double tolerance(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_F32 ? 2e-7 : 0x1p-8;
}

static enum octet_dtype dtype_at(int i)
{
    return i % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
}

START_TEST(dispatch_sorts_and_its_gradient_adds_up)
{
    const struct shape *d = &shapes[_i / 2];
    struct op_case c;

    op_case_begin(&c);
    c.b.dtype = dtype_at(_i);
    op_case_random(&c, dtype_at(_i), 3, (int64_t[]){d->b, d->s, d->width}, 1);
    add_indices(&c, d);
    oct_add_node(&c.b, OCT_OP_dispatch, OCTET_LOOKUP_NONE, (union oct_attributes){.k = d->experts},
                 2, c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    double sizes[64] = {0};
    for (int64_t t = 0; t < d->b * d->s; t++) {
        int64_t places[8];
        for (int64_t j = 0; j < d->k; j++) {
            places[j] = place_of(&c, t * d->k + j);
            sizes[expert_at(&c, t * d->k + j)]++;
        }
        for (int64_t w = 0; w < d->width; w++) {
            double sum = 0;
            for (int64_t j = 0; j < d->k; j++) {
                op_case_near(op_case_get(&c.out[0], places[j] * d->width + w),
                             op_case_get(&c.in[0], t * d->width + w), 0, "row", places[j]);
                sum += op_case_get(&c.cotangent[0], places[j] * d->width + w);
            }
            op_case_near(op_case_get(&c.gradient[0], t * d->width + w), sum,
                         tolerance(dtype_at(_i)), "gradient", t * d->width + w);
        }
    }
    for (int64_t e = 0; e < d->experts; e++)
        op_case_near(op_case_get(&c.out[1], e), sizes[e], 0, "size", e);
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(undispatch_puts_rows_back)
{
    const struct shape *d = &shapes[_i / 2];
    const int64_t rows = d->b * d->s * d->k;
    struct op_case c;

    op_case_begin(&c);
    op_case_random(&c, dtype_at(_i), 2, (int64_t[]){rows, d->width}, 1);
    add_indices(&c, d);
    oct_add_node(&c.b, OCT_OP_undispatch, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 2, c.x,
                 NULL);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t i = 0; i < rows; i++) {
        int64_t place = place_of(&c, i);
        for (int64_t w = 0; w < d->width; w++) {
            op_case_near(op_case_get(&c.out[0], i * d->width + w),
                         op_case_get(&c.in[0], place * d->width + w), 0, "row", i);
            op_case_near(op_case_get(&c.gradient[0], place * d->width + w),
                         op_case_get(&c.cotangent[0], i * d->width + w), 0, "gradient", place);
        }
    }
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(a_bias_is_that_of_the_rows_expert)
{
    const struct shape *d = &shapes[_i / 2];
    const int64_t rows = d->b * d->s * d->k;
    struct op_case c;

    op_case_begin(&c);
    c.b.dtype = dtype_at(_i);
    op_case_parameter(&c, OCTET_DTYPE_F32, 2, (int64_t[]){d->experts, d->width}, 1);
    add_indices(&c, d);
    oct_add_node(&c.b, OCT_OP_expert_bias, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 2,
                 c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t w = 0; w < d->width; w++) {
        double sums[64] = {0};
        for (int64_t i = 0; i < rows; i++) {
            int64_t place = w ? 0 : place_of(&c, i), e = expert_at(&c, i);
            if (w == 0)
                op_case_near(op_case_get(&c.out[0], place * d->width + w),
                             op_case_get(&c.in[0], e * d->width + w), tolerance(dtype_at(_i)),
                             "bias", i);
        }
        int64_t row = 0;
        for (int64_t e = 0; e < d->experts; e++)
            for (int64_t i = 0; i < rows; i++)
                if (expert_at(&c, i) == e)
                    sums[e] += op_case_get(&c.cotangent[0], row++ * d->width + w);
        for (int64_t e = 0; e < d->experts; e++)
            op_case_near(op_case_get(&c.gradient[0], e * d->width + w), sums[e], 2e-7, "gradient",
                         e * d->width + w);
    }
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(weights_stand_at_their_experts)
{
    const struct shape *d = &shapes[_i / 2];
    struct op_case c;

    op_case_begin(&c);
    op_case_random(&c, dtype_at(_i), 3, (int64_t[]){d->b, d->s, d->k}, 1);
    add_indices(&c, d);
    oct_add_node(&c.b, OCT_OP_expert_weights, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.k = d->experts}, 2, c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t t = 0; t < d->b * d->s; t++)
        for (int64_t e = 0; e < d->experts; e++) {
            double expected = 0;
            for (int64_t i = t * d->k; i < (t + 1) * d->k; i++)
                if (expert_at(&c, i) == e) {
                    expected = op_case_get(&c.in[0], i);
                    op_case_near(op_case_get(&c.gradient[0], i),
                                 op_case_get(&c.cotangent[0], t * d->experts + e), 0, "gradient",
                                 i);
                }
            op_case_near(op_case_get(&c.out[0], t * d->experts + e), expected, 0, "weight", e);
        }
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

static void capacity_begin(struct op_case *c, const struct shape *d, int64_t capacity,
                           enum octet_dtype dtype)
{
    op_case_begin(c);
    op_case_random(c, dtype, 3, (int64_t[]){d->b, d->s, d->experts}, 1);
    add_indices(c, d);
    oct_add_node(&c->b, OCT_OP_capacity_masks, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.capacity = capacity}, 2, c->x, NULL);
    op_case_made(c);
}

/* The slot that token t takes of expert e, -1: none. */
static int64_t slot_of(const struct op_case *c, const struct shape *d, int64_t t, int64_t e,
                       int64_t capacity)
{
    int64_t before = 0, chosen = 0;

    for (int64_t i = t / d->s * d->s * d->k; i < (t + 1) * d->k; i++) {
        if (i < t * d->k)
            before += expert_at(c, i) == e;
        else
            chosen += expert_at(c, i) == e;
    }
    return chosen && before < capacity ? before : -1;
}

START_TEST(what_comes_after_capacity_is_dropped)
{
    const struct shape *d = &shapes[1 + _i / 2 % 3];
    const int64_t capacity = 1 + _i;
    struct op_case c;

    capacity_begin(&c, d, capacity, dtype_at(_i));
    op_case_set(&c.in[0], 0, 0); /* a weight of 0 dispatches nothing */
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t i = 0; i < d->b * d->s * d->experts; i++) {
        int64_t slot = slot_of(&c, d, i / d->experts, i % d->experts, capacity);
        for (int64_t s = 0; s < capacity; s++) {
            double expected = s == slot ? op_case_get(&c.in[0], i) : 0;
            op_case_near(op_case_get(&c.out[1], i * capacity + s), expected, 0, "combine", i);
            op_case_near(op_case_get(&c.out[0], i * capacity + s), expected != 0, 0, "dispatch", i);
        }
        op_case_near(op_case_get(&c.gradient[0], i),
                     slot < 0 ? 0 : op_case_get(&c.cotangent[1], i * capacity + slot), 0,
                     "gradient", i);
    }
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

/* MaxText's own example, beside generate_masks: two tokens, experts [0,1] and [1,3], capacity 1. */
START_TEST(the_second_token_of_a_full_expert_is_dropped)
{
    static const double weights[] = {0.5, 0.25, 0, 0, 0, 0.75, 0, 1}, indices[] = {0, 1, 1, 3};
    static const double expected[] = {0.5, 0.25, 0, 0, 0, 0, 0, 1};
    struct op_case c;

    op_case_begin(&c);
    op_case_values(&c, OCTET_DTYPE_F32, 3, (int64_t[]){1, 2, 4}, weights);
    op_case_values(&c, OCTET_DTYPE_S32, 3, (int64_t[]){1, 2, 2}, indices);
    oct_add_node(&c.b, OCT_OP_capacity_masks, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.capacity = 1}, 2, c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    for (int64_t i = 0; i < 8; i++)
        op_case_near(op_case_get(&c.out[1], i), expected[i], 0, "combine", i);
    op_case_end(&c);
}
END_TEST

TCase *moe_tests(void)
{
    TCase *tests = tcase_create("moe");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, dispatch_sorts_and_its_gradient_adds_up, 0, 2 * SHAPES);
    tcase_add_loop_test(tests, undispatch_puts_rows_back, 0, 2 * SHAPES);
    tcase_add_loop_test(tests, a_bias_is_that_of_the_rows_expert, 0, 2 * SHAPES);
    tcase_add_loop_test(tests, weights_stand_at_their_experts, 0, 2 * SHAPES);
    tcase_add_loop_test(tests, what_comes_after_capacity_is_dropped, 0, 6);
    tcase_add_test(tests, the_second_token_of_a_full_expert_is_dropped);
    return tests;
}
