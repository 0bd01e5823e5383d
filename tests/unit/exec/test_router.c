/* The router beside sorting in double: choices, ties, groups, weights; load balance; bias update.
 * What could break: a tie that goes to the later expert, a group that is rated by the wrong two, a
 * bias that gets into the weights, an index twice where scores are not numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/moe.h"
#include "op_case.h"
#include "suite.h"

struct router {
    int64_t rows, experts;
    int32_t k, groups, kept;
    bool softmax, normalize, steered; /* steered: the choice has scores of its own */
    double scaling;
    enum octet_dtype dtype;
};

static const struct router routers[] = {
    {5, 8, 2, 0, 0, false, true, true, 2.5, OCTET_DTYPE_F32},   /* deepseek3 */
    {9, 32, 4, 8, 4, false, true, true, 2.5, OCTET_DTYPE_F32},  /* with groups */
    {300, 64, 8, 4, 1, false, true, true, 1, OCTET_DTYPE_F32},  /* one group kept */
    {7, 6, 4, 3, 1, false, true, true, 1, OCTET_DTYPE_F32},     /* fewer than k remain */
    {6, 16, 3, 0, 0, false, false, false, 16, OCTET_DTYPE_F32}, /* deepseek2 */
    {6, 8, 2, 0, 0, true, false, false, 1, OCTET_DTYPE_F32},    /* mixtral */
    {6, 128, 8, 0, 0, true, true, false, 1, OCTET_DTYPE_F32},   /* qwen3 */
    {4, 3, 3, 0, 0, true, true, false, 1, OCTET_DTYPE_F32},     /* all of them */
    {5, 1, 1, 0, 0, true, false, false, 1, OCTET_DTYPE_F32},    /* one expert */
    {9, 32, 4, 8, 4, false, true, true, 2.5, OCTET_DTYPE_BF16}, /* */
    {40, 128, 8, 0, 0, true, true, false, 1, OCTET_DTYPE_BF16}, /* */
    {1500, 16, 2, 0, 0, false, true, true, 1, OCTET_DTYPE_F32}, /* many rows: threads */
};
enum { ROUTERS = sizeof routers / sizeof *routers };

static void router_begin(struct op_case *c, const struct router *r, double grid)
{
    const int64_t dims[] = {1, r->rows, r->experts};
    union oct_attributes attributes = {.top_k = {.k = r->k,
                                                 .groups = r->groups,
                                                 .groups_kept = r->kept,
                                                 .softmax_weights = r->softmax,
                                                 .normalize = r->normalize,
                                                 .scaling = (float)r->scaling}};

    op_case_begin(c);
    for (int i = 0; i <= r->steered; i++) {
        struct octet_array *x = op_case_random(c, r->dtype, 3, dims, 1);
        for (int64_t e = 0; e < r->rows * r->experts; e++) {
            double value = op_case_get(x, e);
            value = grid != 0 ? grid * round(value / grid) : value;
            op_case_set(x, e, r->softmax ? value : 1 / (1 + exp(-value)));
        }
    }
    oct_add_node(&c->b, OCT_OP_top_k, OCTET_LOOKUP_NONE, attributes, c->inputs, c->x, NULL);
    op_case_made(c);
}

/* ---- The reference ---- */

static const double *sort_scores;

static int by_score(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;

    if (sort_scores[i] != sort_scores[j])
        return sort_scores[i] > sort_scores[j] ? -1 : 1;
    /* XLA's order is total: -0 comes before 0. */
    if (signbit(sort_scores[i]) != signbit(sort_scores[j]))
        return signbit(sort_scores[i]) ? 1 : -1;
    return i < j ? -1 : 1;
}

static void sorted(const double *scores, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    sort_scores = scores;
    qsort(order, (size_t)n, sizeof *order, by_score);
}

enum { EXPERTS_MAX = 128 };

static void expected_choice(const struct router *r, const double *given, int64_t *order)
{
    double scores[EXPERTS_MAX], rating[EXPERTS_MAX];
    int64_t size = r->groups ? r->experts / r->groups : r->experts, best[EXPERTS_MAX];

    for (int64_t e = 0; e < r->experts; e++)
        scores[e] = r->groups ? -INFINITY : given[e];
    for (int64_t g = 0; g < r->groups; g++) {
        sorted(given + g * size, size, order);
        rating[g] = (double)((float)given[g * size + order[0]] + (float)given[g * size + order[1]]);
    }
    if (r->groups)
        sorted(rating, r->groups, best);
    for (int64_t i = 0; r->groups && i < r->kept; i++)
        for (int64_t e = best[i] * size; e < (best[i] + 1) * size; e++)
            scores[e] = given[e];
    sorted(scores, r->experts, order);
}

static void expected_weights(const struct router *r, const double *values, const int64_t *order,
                             double *w)
{
    double sum = 0, most = -INFINITY;

    for (int i = 0; i < r->k; i++)
        most = fmax(most, values[order[i]]);
    for (int i = 0; i < r->k; i++) {
        w[i] = r->softmax ? exp(values[order[i]] - most) : values[order[i]];
        sum += w[i];
    }
    for (int i = 0; i < r->k; i++)
        w[i] = (r->softmax || r->normalize ? w[i] / sum : w[i]) * r->scaling;
}

static void expect_routes(const struct op_case *c, const struct router *r)
{
    double given[EXPERTS_MAX], values[EXPERTS_MAX], w[EXPERTS_MAX];
    int64_t order[EXPERTS_MAX];

    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t e = 0; e < r->experts; e++) {
            given[e] = op_case_get(&c->in[0], row * r->experts + e);
            values[e] = op_case_get(&c->in[r->steered], row * r->experts + e);
        }
        expected_choice(r, given, order);
        expected_weights(r, values, order, w);
        for (int i = 0; i < r->k; i++) {
            op_case_near(op_case_get(&c->out[1], row * r->k + i), (double)order[i], 0, "expert",
                         row * r->k + i);
            op_case_near(op_case_get(&c->out[0], row * r->k + i), w[i],
                         r->dtype == OCTET_DTYPE_F32 ? 2e-7 : 0x1p-8, "weight", row * r->k + i);
        }
    }
}

START_TEST(choices_and_weights_are_those_of_a_stable_sort)
{
    struct op_case c;
    static const double grids[] = {0, 0.5, 4}; /* the last makes almost all scores equal */

    for (int g = 0; g < 3; g++) {
        router_begin(&c, &routers[_i], grids[g]);
        op_case_forward(&c);
        expect_routes(&c, &routers[_i]);
        op_case_check_bits(&c);
        op_case_end(&c);
    }
}
END_TEST

/* Distinct scores, further apart than the step of the differences. */
static void spread_scores(struct op_case *c, const struct router *r)
{
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t e = 0; e < r->experts; e++) {
            double at = (double)((e * 7 + row * 3) % r->experts) / (double)r->experts;
            op_case_set(&c->in[0], row * r->experts + e, at);
            op_case_set(&c->in[r->steered], row * r->experts + e, 0.3 + at / 2);
        }
}

START_TEST(gradients_are_those_of_differences)
{
    static const struct router small[] = {
        {4, 5, 3, 0, 0, false, true, true, 2.5, OCTET_DTYPE_F32},
        {4, 5, 3, 0, 0, false, false, false, 4, OCTET_DTYPE_F32},
        {4, 5, 3, 0, 0, true, false, false, 1, OCTET_DTYPE_F32},
        {4, 5, 3, 0, 0, true, true, false, 1, OCTET_DTYPE_F32},
    };
    struct op_case c;

    router_begin(&c, &small[_i], 0);
    spread_scores(&c, &small[_i]);
    if (small[_i].steered)
        c.wanted = 2;
    op_case_check_gradients(&c, 1e-2, 2e-3);
    if (small[_i].steered) {
        c.wanted = 3;
        op_case_backward(&c);
        for (int64_t i = 0; i < 20; i++)
            ck_assert(op_case_get(&c.gradient[0], i) == 0);
    }
    op_case_end(&c);
}
END_TEST

START_TEST(scores_that_are_no_numbers_give_distinct_experts)
{
    const struct router *r = &routers[1];
    static const double bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0};
    struct op_case c;

    router_begin(&c, r, 0);
    for (int64_t i = 0; i < r->rows * r->experts; i++)
        if (op_case_roll(&c) % 2)
            op_case_set(&c.in[0], i, bad[op_case_roll(&c) % 6]);
    op_case_forward(&c);
    for (int64_t row = 0; row < r->rows; row++) {
        bool taken[EXPERTS_MAX] = {0};
        for (int i = 0; i < r->k; i++) {
            int64_t e = (int64_t)op_case_get(&c.out[1], row * r->k + i);
            ck_assert(e >= 0 && e < r->experts && !taken[e]);
            taken[e] = true;
        }
    }
    op_case_end(&c);
}
END_TEST

/* ---- load balance ---- */

static void balance_begin(struct op_case *c, int64_t b, int64_t s, int64_t n, int64_t k)
{
    struct octet_array *indices;

    op_case_begin(c);
    op_case_random(c, OCTET_DTYPE_F32, 3, (int64_t[]){b, s, n}, 1);
    indices = op_case_input(c, OCTET_DTYPE_S32, 3, (int64_t[]){b, s, k});
    for (int64_t i = 0; i < b * s; i++) {
        uint64_t first = op_case_roll(c) % (uint64_t)n;
        for (int64_t j = 0; j < k; j++)
            op_case_set(indices, i * k + j, (double)((first + (uint64_t)(j * j)) % (uint64_t)n));
    }
    oct_add_node(&c->b, OCT_OP_load_balance_loss, OCTET_LOOKUP_NONE,
                 (union oct_attributes){.factor = 0.01f}, 2, c->x, NULL);
    op_case_made(c);
}

/* mean over b, e of (choices / s) * (mean of softmax), times n^2 and the factor. */
static double expected_balance(const struct op_case *c, int64_t b, int64_t s, int64_t n, int64_t k)
{
    double loss = 0;

    for (int64_t i = 0; i < b; i++) {
        double choices[EXPERTS_MAX] = {0}, p[EXPERTS_MAX] = {0};
        for (int64_t t = i * s; t < (i + 1) * s; t++) {
            double sum = 0;
            for (int64_t e = 0; e < n; e++)
                sum += exp(op_case_get(&c->in[0], t * n + e));
            for (int64_t e = 0; e < n; e++)
                p[e] += exp(op_case_get(&c->in[0], t * n + e)) / sum;
            for (int64_t j = 0; j < k; j++)
                choices[(int64_t)op_case_get(&c->in[1], t * k + j)]++;
        }
        for (int64_t e = 0; e < n; e++)
            loss += choices[e] / (double)s * p[e] / (double)s;
    }
    return loss / (double)(b * n) * (double)(n * n) * (double)0.01f;
}

START_TEST(load_balance_is_the_formula)
{
    static const int64_t cases[][4] = {{1, 5, 4, 1}, {3, 7, 8, 2}, {2, 300, 16, 4}};
    const int64_t *d = cases[_i];
    struct op_case c;

    balance_begin(&c, d[0], d[1], d[2], d[3]);
    op_case_forward(&c);
    op_case_near(op_case_get(&c.out[0], 0), expected_balance(&c, d[0], d[1], d[2], d[3]), 1e-7,
                 "loss", 0);
    op_case_set(&c.cotangent[0], 0, 1000);
    if (_i < 2)
        op_case_check_gradients(&c, 3e-2, 2e-3);
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

/* ---- counts, bias ---- */

START_TEST(the_bias_moves_toward_the_mean_load)
{
    int32_t index[] = {0, 1, 0, 2, 0, 1, 0, 3, 3, 3, 4, 4, 0, 0, 1};
    const struct octet_array indices = {
        .dtype = OCTET_DTYPE_S32, .rank = 3, .dim = {1, 5, 3}, .data = index};
    float bias[5] = {0.5f, 0, -1, 2, 3};
    int64_t count[5];

    oct_expert_counts(&indices, 5, count);
    ck_assert_mem_eq(count, ((int64_t[]){6, 3, 1, 3, 2}), sizeof count);
    /* The mean is 3: the first has too many, the second as many as it should. */
    oct_router_bias_update(5, count, 0.001, bias);
    ck_assert(bias[0] == 0.5f - 0.001f && bias[1] == 0 && bias[2] == -1 + 0.001f && bias[3] == 2 &&
              bias[4] == 3 + 0.001f);
}
END_TEST

TCase *router_tests(void)
{
    TCase *tests = tcase_create("router");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, choices_and_weights_are_those_of_a_stable_sort, 0, ROUTERS);
    tcase_add_loop_test(tests, gradients_are_those_of_differences, 0, 4);
    tcase_add_test(tests, scores_that_are_no_numbers_give_distinct_experts);
    tcase_add_loop_test(tests, load_balance_is_the_formula, 0, 3);
    tcase_add_test(tests, the_bias_moves_toward_the_mean_load);
    return tests;
}
