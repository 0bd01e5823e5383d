/* Losses beside the formulas in double.
 * What could break: a target that leaves its document, a segment id that becomes a weight, a row
 * without weight that poisons the sum, a piece's edge, a gradient that needs the logits after it
 * has overwritten them. */
#include <math.h>
#include <string.h>

#include "exec/loss.h"
#include "op_case.h"
#include "suite.h"

/* ---- shift_left ---- */

static void expect_shifted(const int32_t *x, const int32_t *segment, const int32_t *expected,
                           int64_t b, int64_t s, enum octet_dtype dtype)
{
    struct op_case c;
    struct octet_array *in, *ids;

    op_case_begin(&c);
    in = op_case_input(&c, dtype, 2, (int64_t[]){b, s});
    for (int64_t i = 0; i < b * s; i++)
        op_case_set(in, i, x[i]);
    if (segment) {
        ids = op_case_input(&c, OCTET_DTYPE_S32, 2, (int64_t[]){b, s});
        memcpy(ids->data, segment, (size_t)(b * s) * sizeof *segment);
    }
    oct_add_node(&c.b, OCT_OP_shift_left, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                 c.inputs, c.x, NULL);
    op_case_made(&c);
    op_case_forward(&c);
    for (int64_t i = 0; i < b * s; i++)
        op_case_near(op_case_get(&c.out[0], i), expected[i], 0, "shifted", i);
    op_case_end(&c);
}

/* The trial of row 26 of the list of reported bugs. */
START_TEST(a_shift_stays_inside_of_documents)
{
    static const int32_t ids[] = {11, 12, 13, 21, 22, 0}, segment[] = {1, 1, 1, 2, 2, 0};
    static const int32_t mask[] = {1, 1, 1, 1, 1, 0};
    static const enum octet_dtype dtypes[] = {OCTET_DTYPE_S32, OCTET_DTYPE_F32};

    for (int i = 0; i < 2; i++) {
        expect_shifted(ids, segment, (int32_t[]){12, 13, 0, 22, 0, 0}, 1, 6, dtypes[i]);
        expect_shifted(mask, segment, (int32_t[]){1, 1, 0, 1, 0, 0}, 1, 6, dtypes[i]);
        expect_shifted(segment, NULL, (int32_t[]){1, 1, 2, 2, 0, 0}, 1, 6, dtypes[i]);
        /* Neither into the next row, nor within padding. */
        expect_shifted(ids, (int32_t[]){1, 1, 1, 1, 1, 1}, (int32_t[]){12, 13, 0, 22, 0, 0}, 2, 3,
                       dtypes[i]);
        expect_shifted(ids, (int32_t[]){0, 0, 0, 0, 0, 0}, (int32_t[]){0, 0, 0, 0, 0, 0}, 1, 6,
                       dtypes[i]);
    }
}
END_TEST

/* ---- cross_entropy ---- */

struct entropy {
    struct op_case c;
    int64_t rows, classes;
};

/* Logits [1, rows, classes]; about a third of the targets has no weight, one has a negative one. */
static void entropy_begin(struct entropy *e, enum octet_dtype dtype, int64_t rows, int64_t classes,
                          double z_loss)
{
    struct op_case *c = &e->c;
    struct octet_array *targets, *weights;

    op_case_begin(c);
    e->rows = rows;
    e->classes = classes;
    op_case_random(c, dtype, 3, (int64_t[]){1, rows, classes}, 3);
    targets = op_case_input(c, OCTET_DTYPE_S32, 2, (int64_t[]){1, rows});
    weights = op_case_input(c, OCTET_DTYPE_F32, 2, (int64_t[]){1, rows});
    for (int64_t i = 0; i < rows; i++) {
        op_case_set(targets, i, (double)(op_case_roll(c) % (uint64_t)classes));
        op_case_set(weights, i, i == 1 ? -0.5 : op_case_roll(c) % 3 ? 1 + (double)(i % 2) : 0);
    }
    oct_add_node(&c->b, OCT_OP_cross_entropy, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.factor = (float)z_loss}, 3, c->x, NULL);
    op_case_made(c);
    c->wanted = 1;
    op_case_set(&c->cotangent[0], 0, 0.75);
}

static double log_z(const struct entropy *e, int64_t row)
{
    double most = -INFINITY, sum = 0;

    for (int64_t v = 0; v < e->classes; v++)
        most = fmax(most, op_case_get(&e->c.in[0], row * e->classes + v));
    for (int64_t v = 0; v < e->classes; v++)
        sum += exp(op_case_get(&e->c.in[0], row * e->classes + v) - most);
    return most + log(sum);
}

static int64_t target_of(const struct entropy *e, int64_t row)
{
    return (int64_t)op_case_get(&e->c.in[1], row);
}

static double weight_of(const struct entropy *e, int64_t row)
{
    return op_case_get(&e->c.in[2], row);
}

static void expect_losses(struct entropy *e, double z_loss)
{
    double loss = 0, weights = 0;

    for (int64_t i = 0; i < e->rows; i++) {
        double z = log_z(e, i), x = op_case_get(&e->c.in[0], i * e->classes + target_of(e, i));
        loss += weight_of(e, i) * (z - x + z_loss * z * z);
        weights += weight_of(e, i);
    }
    op_case_near(op_case_get(&e->c.out[0], 0), loss, 3e-7, "loss", 0);
    op_case_near(op_case_get(&e->c.out[1], 0), weights, 1e-7, "weights", 0);
}

static void expect_gradient(struct entropy *e, double z_loss, double tolerance)
{
    for (int64_t i = 0; i < e->rows; i++) {
        double z = log_z(e, i), w = weight_of(e, i) * 0.75;
        for (int64_t v = 0; v < e->classes; v++) {
            double p = exp(op_case_get(&e->c.in[0], i * e->classes + v) - z);
            double expected = w * ((1 + 2 * z_loss * z) * p - (v == target_of(e, i)));
            op_case_near(op_case_get(&e->c.gradient[0], i * e->classes + v), expected, tolerance,
                         "gradient", i * e->classes + v);
        }
    }
}

START_TEST(cross_entropy_is_the_formula)
{
    static const struct {
        enum octet_dtype dtype;
        int64_t rows, classes;
        double z_loss;
    } cases[] = {
        {OCTET_DTYPE_F32, 1, 1, 0},      {OCTET_DTYPE_F32, 7, 5, 0},
        {OCTET_DTYPE_F32, 40, 2048, 0},  {OCTET_DTYPE_F32, 9, 2049, 1e-2},
        {OCTET_DTYPE_F32, 33, 5000, 0},  {OCTET_DTYPE_BF16, 7, 5, 1e-3},
        {OCTET_DTYPE_BF16, 12, 4097, 0},
    };
    struct entropy e;
    double z = (double)(float)cases[_i].z_loss;

    entropy_begin(&e, cases[_i].dtype, cases[_i].rows, cases[_i].classes, cases[_i].z_loss);
    op_case_forward(&e.c);
    op_case_backward(&e.c);
    expect_losses(&e, z);
    expect_gradient(&e, z, cases[_i].dtype == OCTET_DTYPE_F32 ? 3e-7 : 4e-3);
    op_case_check_bits(&e.c);
    op_case_end(&e.c);
}
END_TEST
enum { ENTROPY_CASES = 7 };

START_TEST(its_gradient_is_that_of_differences)
{
    struct entropy e;

    entropy_begin(&e, OCTET_DTYPE_F32, 6, 11, 0.05);
    op_case_check_gradients(&e.c, 2e-2, 2e-3);
    op_case_end(&e.c);
}
END_TEST

START_TEST(a_gradient_may_lie_where_the_logits_do)
{
    struct entropy e;
    const int64_t n = 9 * 2049;

    entropy_begin(&e, OCTET_DTYPE_F32, 9, 2049, 1e-3);
    op_case_forward(&e.c);
    op_case_backward(&e.c);
    struct octet_array apart = e.c.gradient[0];
    struct oct_op_call call = {.execution = &e.c.execution,
                               .node = e.c.node,
                               .saved = e.c.saved,
                               .saved_bytes = e.c.saved_bytes};
    memcpy(call.in, e.c.in, sizeof call.in);
    memcpy(call.out, e.c.out, sizeof call.out);
    struct octet_array gradient[3] = {e.c.in[0]};
    ck_assert_int_eq(oct_cross_entropy_vjp(&call, e.c.cotangent, gradient, &e.c.err), OCTET_OK);
    ck_assert_mem_eq(e.c.in[0].data, apart.data, (size_t)n * sizeof(float));
    op_case_end(&e.c);
}
END_TEST

/* Row 29: no valid target gives 0 over 0; also rows that are not finite must not come through. */
START_TEST(without_a_weighted_target_nothing_flows)
{
    struct entropy e;

    entropy_begin(&e, OCTET_DTYPE_F32, 5, 7, 0);
    for (int64_t i = 0; i < 5; i++)
        op_case_set(&e.c.in[2], i, 0);
    for (int64_t i = 0; i < 7; i++)
        op_case_set(&e.c.in[0], i, i % 2 ? NAN : INFINITY);
    op_case_set(&e.c.cotangent[0], 0, 1e8); /* 1 / (0 + 1e-8) */
    op_case_forward(&e.c);
    op_case_backward(&e.c);
    ck_assert(op_case_get(&e.c.out[0], 0) == 0);
    ck_assert(op_case_get(&e.c.out[1], 0) == 0);
    for (int64_t i = 0; i < 5 * 7; i++)
        ck_assert(op_case_get(&e.c.gradient[0], i) == 0);
    op_case_end(&e.c);
}
END_TEST

START_TEST(the_report_has_log_probabilities_and_the_first_of_the_likeliest)
{
    struct entropy e;
    struct oct_report report;

    entropy_begin(&e, OCTET_DTYPE_F32, 6, 4100, 0);
    /* Equals across the edge of a piece: the first counts. */
    op_case_set(&e.c.in[0], 5, 50);
    op_case_set(&e.c.in[0], 4099, 50);
    op_case_set(&e.c.in[0], 4100 + 4099, 50);
    report.logprobs = op_case_zeros(&e.c, OCTET_DTYPE_F32, 2, (int64_t[]){1, 6});
    report.argmax = op_case_zeros(&e.c, OCTET_DTYPE_S32, 2, (int64_t[]){1, 6});
    e.c.report = &report;
    op_case_forward(&e.c);
    ck_assert(op_case_get(&report.argmax, 0) == 5);
    ck_assert(op_case_get(&report.argmax, 1) == 4099);
    for (int64_t i = 0; i < 6; i++) {
        double x = op_case_get(&e.c.in[0], i * 4100 + target_of(&e, i));
        op_case_near(op_case_get(&report.logprobs, i), x - log_z(&e, i), 3e-7, "logprob", i);
    }
    expect_losses(&e, 0);
    op_case_end(&e.c);
}
END_TEST

/* ---- loss_ratio ---- */

static void ratio(struct op_case *c, double sum, double weights)
{
    op_case_begin(c);
    op_case_values(c, OCTET_DTYPE_F32, 0, (int64_t[]){0}, &sum);
    op_case_values(c, OCTET_DTYPE_F32, 0, (int64_t[]){0}, &weights);
    oct_add_node(&c->b, OCT_OP_loss_ratio, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.factor = 1e-8f}, 2, c->x, NULL);
    op_case_made(c);
    op_case_set(&c->cotangent[0], 0, 3);
}

static void expect_ratio(struct op_case *c, double loss, double gradient)
{
    op_case_forward(c);
    op_case_backward(c);
    op_case_near(op_case_get(&c->out[0], 0), loss, 1e-7, "loss", 0);
    op_case_near(op_case_get(&c->gradient[0], 0), gradient, 1e-7, "gradient", 0);
    ck_assert(op_case_get(&c->gradient[1], 0) == 0);
    op_case_end(c);
}

START_TEST(a_loss_is_a_mean_or_a_sum_over_what_the_caller_says)
{
    struct op_case c;

    ratio(&c, 12, 8);
    expect_ratio(&c, 1.5, 0.375);
    ratio(&c, 0, 0);
    expect_ratio(&c, 0, 3 / (double)1e-8f);
    ratio(&c, 12, 8);
    c.execution.reduction = OCT_REDUCE_SUM;
    c.execution.denominator = 24;
    expect_ratio(&c, 0.5, 0.125);
    /* MaxText's gradient accumulation: only the main loss is a sum. */
    ratio(&c, 12, 8);
    c.execution.reduction = OCT_REDUCE_MAIN_SUM;
    c.execution.denominator = 24;
    c.b.graph.main_loss = c.node->outputs[0];
    expect_ratio(&c, 0.5, 0.125);
    ratio(&c, 12, 8);
    c.execution.reduction = OCT_REDUCE_MAIN_SUM;
    c.execution.denominator = 24;
    c.b.graph.mtp_loss = c.node->outputs[0];
    expect_ratio(&c, 1.5, 0.375);
}
END_TEST

TCase *loss_tests(void)
{
    TCase *tests = tcase_create("loss");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_shift_stays_inside_of_documents);
    tcase_add_loop_test(tests, cross_entropy_is_the_formula, 0, ENTROPY_CASES);
    tcase_add_test(tests, its_gradient_is_that_of_differences);
    tcase_add_test(tests, a_gradient_may_lie_where_the_logits_do);
    tcase_add_test(tests, without_a_weighted_target_nothing_flows);
    tcase_add_test(tests, the_report_has_log_probabilities_and_the_first_of_the_likeliest);
    tcase_add_test(tests, a_loss_is_a_mean_or_a_sum_over_what_the_caller_says);
    return tests;
}
