/* Rows by id, and the scatter of their gradients, beside loops in double.
 * What could break: a row that is added to by two, one that keeps its old numbers, an id outside of
 * the table that reaches other memory. Row 32 of the list of reported bugs: the first token counts.
 */
#include <string.h>

#include "exec/embed.h"
#include "op_case.h"
#include "suite.h"

struct table {
    int64_t ids, size, width;
    enum octet_dtype stored, seen;
};
static const struct table tables[] = {
    {6, 4, 3, OCTET_DTYPE_F32, OCTET_DTYPE_F32},
    {6, 4, 3, OCTET_DTYPE_F32, OCTET_DTYPE_BF16},
    {6, 4, 3, OCTET_DTYPE_BF16, OCTET_DTYPE_BF16},
    {1, 1, 1, OCTET_DTYPE_F32, OCTET_DTYPE_F32},
    {300, 50, 513, OCTET_DTYPE_F32, OCTET_DTYPE_F32},
    {64, 20000, 16, OCTET_DTYPE_F32, OCTET_DTYPE_BF16},
};
enum { TABLES = sizeof tables / sizeof *tables };

/* A third of the ids is 0, as at the ends of documents. */
static void begin(struct op_case *c, const struct table *t)
{
    struct octet_array *ids;

    op_case_begin(c);
    c->b.dtype = t->seen;
    ids = op_case_input(c, OCTET_DTYPE_S32, 2, (int64_t[]){1, t->ids});
    for (int64_t i = 0; i < t->ids; i++)
        op_case_set(ids, i, i % 3 ? (double)(op_case_roll(c) % (uint64_t)t->size) : 0);
    op_case_parameter(c, t->stored, 2, (int64_t[]){t->size, t->width}, 1);
    oct_add_node(&c->b, OCT_OP_embed, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 2, c->x,
                 NULL);
    op_case_made(c);
    ck_assert_int_eq(c->out[0].dtype, t->seen);
}

static double *expected_gradient(struct op_case *c, const struct table *t)
{
    double *sums = OCTET_NEW_ARRAY(c->arena, t->size * t->width, double);

    for (int64_t i = 0; i < t->ids; i++)
        for (int64_t w = 0; w < t->width; w++)
            sums[(int64_t)op_case_get(&c->in[0], i) * t->width + w] +=
                op_case_get(&c->cotangent[0], i * t->width + w);
    return sums;
}

START_TEST(rows_are_gathered_and_their_gradients_scattered)
{
    const struct table *t = &tables[_i];
    struct op_case c;

    begin(&c, t);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t i = 0; i < t->ids * t->width; i++) {
        int64_t id = (int64_t)op_case_get(&c.in[0], i / t->width);
        op_case_near(op_case_get(&c.out[0], i), op_case_get(&c.in[1], id * t->width + i % t->width),
                     t->seen == t->stored ? 0 : 0x1p-8, "row", i);
    }
    double *sums = expected_gradient(&c, t);
    for (int64_t i = 0; i < t->size * t->width; i++)
        op_case_near(op_case_get(&c.gradient[1], i), sums[i], 2e-7, "gradient", i);
    op_case_check_bits(&c);
    op_case_end(&c);
}
END_TEST

START_TEST(a_gradient_that_is_there_is_added_to)
{
    const struct table *t = &tables[4];
    struct op_case c;
    struct octet_array gradient[2] = {{0}};

    begin(&c, t);
    op_case_forward(&c);
    op_case_backward(&c);
    gradient[1] = op_case_zeros(&c, OCTET_DTYPE_F32, 2, (int64_t[]){t->size, t->width});
    for (int64_t i = 0; i < t->size * t->width; i++)
        op_case_set(&gradient[1], i, op_case_normal(&c));
    float *before = OCTET_NEW_ARRAY(c.arena, t->size * t->width, float);
    memcpy(before, gradient[1].data, (size_t)(t->size * t->width) * sizeof *before);
    struct oct_op_call call = {.execution = &c.execution, .node = c.node, .scratch = c.arena};
    memcpy(call.in, c.in, sizeof call.in);
    ck_assert_int_eq(oct_embed_vjp_add(&call, c.cotangent, gradient, &c.err), OCTET_OK);
    for (int64_t i = 0; i < t->size * t->width; i++)
        ck_assert(((float *)gradient[1].data)[i] == before[i] + ((float *)c.gradient[1].data)[i]);
    op_case_end(&c);
}
END_TEST

START_TEST(ids_outside_of_the_table_are_the_nearest_in_it)
{
    const struct table *t = &tables[0];
    static const double ids[] = {-1, 4, 2147483647, -2147483648.0, 3, 0};
    static const int rows[] = {0, 3, 3, 0, 3, 0};
    struct op_case c;

    begin(&c, t);
    for (int64_t i = 0; i < t->ids; i++)
        op_case_set(&c.in[0], i, ids[i]);
    op_case_forward(&c);
    op_case_backward(&c);
    for (int64_t i = 0; i < t->ids * t->width; i++)
        op_case_near(op_case_get(&c.out[0], i),
                     op_case_get(&c.in[1], rows[i / t->width] * t->width + i % t->width), 0, "row",
                     i);
    for (int64_t w = 0; w < t->width; w++) {
        double first = 0;
        for (int64_t i = 0; i < t->ids; i++)
            first += rows[i] ? 0 : op_case_get(&c.cotangent[0], i * t->width + w);
        op_case_near(op_case_get(&c.gradient[1], w), first, 2e-7, "gradient", w);
        ck_assert(op_case_get(&c.gradient[1], t->width + w) == 0);
    }
    op_case_end(&c);
}
END_TEST

TCase *embed_tests(void)
{
    TCase *tests = tcase_create("embed");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, rows_are_gathered_and_their_gradients_scattered, 0, TABLES);
    tcase_add_test(tests, a_gradient_that_is_there_is_added_to);
    tcase_add_test(tests, ids_outside_of_the_table_are_the_nearest_in_it);
    return tests;
}
