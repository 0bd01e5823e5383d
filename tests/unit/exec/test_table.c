/* Every op of the table against finite differences.
 * What could break: a row that is added with a VJP that nobody looked at. An op that has a VJP and
 * no case here fails the suite. Formulas, edges and bits are the business of the family's own
 * tests. */
#include "op_case.h"
#include "suite.h"

#define F32 OCTET_DTYPE_F32
#define S32 OCTET_DTYPE_S32
#define DIMS(...)                                                                                  \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define RANDOM(...) op_case_random(c, F32, DIMS(__VA_ARGS__), 1)
#define IDS(values, ...) op_case_values(c, S32, DIMS(__VA_ARGS__), (double[]){values})
#define LIST(...) __VA_ARGS__

static void node(struct op_case *c, enum oct_op op, union oct_attributes attributes)
{
    oct_tensor second;

    oct_add_node(&c->b, op, OCTET_LOOKUP_NONE, attributes, c->inputs, c->x,
                 oct_op_rows[op].outputs > 1 ? &second : NULL);
}
static const union oct_attributes none;

static void make_embed(struct op_case *c)
{
    IDS(LIST(2, 0, 2, 4), 2, 2);
    op_case_parameter(c, F32, DIMS(5, 3), 1);
    node(c, OCT_OP_embed, none);
}
static void make_dot_general(struct op_case *c)
{
    RANDOM(2, 3, 4);
    op_case_parameter(c, F32, DIMS(4, 5), 1);
    node(c, OCT_OP_dot_general,
         (union oct_attributes){
             .dot = {.contracting_count = 1, .lhs_contracting = {2}, .rhs_contracting = {0}}});
}
static void make_einsum(struct op_case *c)
{
    RANDOM(2, 3, 4);
    RANDOM(5, 4, 3);
    node(c, OCT_OP_einsum, (union oct_attributes){.equation = "BSM,EMH -> BSEH"});
}
static void make_grouped_matmul(struct op_case *c)
{
    RANDOM(6, 4);
    op_case_parameter(c, F32, DIMS(3, 4, 5), 1);
    IDS(LIST(2, 0, 4), 3);
    node(c, OCT_OP_grouped_matmul, none);
}
static void make_rms_norm(struct op_case *c)
{
    RANDOM(3, 5);
    op_case_parameter(c, F32, DIMS(5), 1);
    node(c, OCT_OP_rms_norm, (union oct_attributes){.norm = {1e-5f, 0}});
}
static void make_layer_norm(struct op_case *c)
{
    RANDOM(3, 5);
    op_case_parameter(c, F32, DIMS(5), 1);
    op_case_parameter(c, F32, DIMS(5), 1);
    node(c, OCT_OP_layer_norm, (union oct_attributes){.norm = {1e-5f, 0}});
}
static void make_rope(struct op_case *c)
{
    RANDOM(1, 3, 2, 8);
    IDS(LIST(0, 1, 7), 1, 3);
    node(c, OCT_OP_rope,
         (union oct_attributes){.rope = {.kind = OCT_ROPE_default,
                                         .min_timescale = 1,
                                         .max_timescale = 10000,
                                         .linear_scaling = 1}});
}
static void make_add(struct op_case *c)
{
    RANDOM(2, 3, 4);
    RANDOM(1, 4);
    node(c, OCT_OP_add, none);
}
static void make_multiply(struct op_case *c)
{
    RANDOM(2, 3, 4);
    RANDOM(3, 1);
    node(c, OCT_OP_multiply, none);
}
static void make_scale(struct op_case *c)
{
    RANDOM(2, 3);
    node(c, OCT_OP_scale, (union oct_attributes){.factor = -0.75f});
}
static void make_activation(struct op_case *c)
{
    RANDOM(4, 6);
    node(c, OCT_OP_activation,
         (union oct_attributes){.activation = {.function = OCT_ACTIVATION_silu}});
}
static void make_slice(struct op_case *c)
{
    RANDOM(2, 5, 3);
    node(c, OCT_OP_slice, (union oct_attributes){.slice = {.axis = 1, .start = 1, .size = 3}});
}
static void make_concat(struct op_case *c)
{
    RANDOM(2, 3);
    RANDOM(2, 2);
    node(c, OCT_OP_concat, none);
}
static void make_reshape(struct op_case *c)
{
    RANDOM(2, 6);
    oct_reshape(&c->b, c->x[0], 3,
                (struct oct_dim[]){OCT_DIM(2, none), OCT_DIM(3, none), OCT_DIM(2, none)});
}
static void make_transpose(struct op_case *c)
{
    RANDOM(2, 3, 4);
    node(c, OCT_OP_transpose, none);
}
static void make_broadcast(struct op_case *c)
{
    RANDOM(2, 1, 3);
    node(c, OCT_OP_broadcast, (union oct_attributes){.broadcast = {.axis = 1, .size = 4}});
}
static void make_cast(struct op_case *c)
{
    RANDOM(4, 5);
    node(c, OCT_OP_cast, (union oct_attributes){.dtype = F32});
}
/* A sink is each row's maximum, by which the exponentials are shifted: that is no part of the
 * slope, as the division takes it out again. */
static void make_attention_softmax(struct op_case *c)
{
    RANDOM(1, 1, 2, 3, 3);
    IDS(LIST(1, 1, 1), 1, 3);
    IDS(LIST(0, 1, 2), 1, 3);
    op_case_values(c, F32, DIMS(2), (double[]){5, 4});
    node(c, OCT_OP_attention_softmax, none);
}
static void want_first(struct op_case *c)
{
    c->wanted = 1;
}
static void make_attention_normalize(struct op_case *c)
{
    struct octet_array *sums;

    RANDOM(1, 3, 1, 2, 4);
    sums = RANDOM(1, 3, 1, 2, 1);
    for (int64_t i = 0; i < 6; i++)
        op_case_set(sums, i, 1 + 0.25 * (double)i);
    node(c, OCT_OP_attention_normalize, none);
}
static void make_top_k(struct op_case *c)
{
    op_case_values(c, F32, DIMS(1, 2, 4), (double[]){2, -1, 0.5, 1, -2, 3, 0, -0.5});
    node(c, OCT_OP_top_k,
         (union oct_attributes){
             .top_k = {.k = 2, .softmax_weights = true, .normalize = true, .scaling = 1}});
}
static void make_dispatch(struct op_case *c)
{
    RANDOM(1, 3, 4);
    IDS(LIST(2, 0, 1, 2, 0, 1), 1, 3, 2);
    node(c, OCT_OP_dispatch, (union oct_attributes){.k = 3});
}
static void make_undispatch(struct op_case *c)
{
    RANDOM(6, 4);
    IDS(LIST(2, 0, 1, 2, 0, 1), 1, 3, 2);
    node(c, OCT_OP_undispatch, none);
}
static void make_expert_bias(struct op_case *c)
{
    op_case_parameter(c, F32, DIMS(3, 4), 1);
    IDS(LIST(2, 0, 1, 2, 0, 1), 1, 3, 2);
    node(c, OCT_OP_expert_bias, none);
}
static void make_expert_weights(struct op_case *c)
{
    RANDOM(1, 3, 2);
    IDS(LIST(2, 0, 1, 2, 0, 1), 1, 3, 2);
    node(c, OCT_OP_expert_weights, (union oct_attributes){.k = 3});
}
static void make_capacity_masks(struct op_case *c)
{
    RANDOM(1, 3, 3);
    IDS(LIST(2, 0, 1, 2, 0, 1), 1, 3, 2);
    node(c, OCT_OP_capacity_masks, (union oct_attributes){.capacity = 2});
}
static void make_load_balance_loss(struct op_case *c)
{
    RANDOM(1, 3, 3);
    IDS(LIST(2, 0, 2, 1, 2, 0), 1, 3, 2);
    node(c, OCT_OP_load_balance_loss, (union oct_attributes){.factor = 0.5f});
}
static void make_soft_cap(struct op_case *c)
{
    RANDOM(3, 4);
    node(c, OCT_OP_soft_cap, (union oct_attributes){.cap = 2});
}
static void make_cross_entropy(struct op_case *c)
{
    RANDOM(1, 3, 5);
    IDS(LIST(4, 0, 2), 1, 3);
    op_case_values(c, F32, DIMS(1, 3), (double[]){1, 0, 0.5});
    node(c, OCT_OP_cross_entropy, (union oct_attributes){.factor = 0.01f});
}
static void make_loss_ratio(struct op_case *c)
{
    op_case_values(c, F32, 0, (int64_t[]){0}, (double[]){3});
    op_case_values(c, F32, 0, (int64_t[]){0}, (double[]){2}); /* weights are data */
    node(c, OCT_OP_loss_ratio, (union oct_attributes){.factor = 1e-8f});
}

struct row {
    void (*make)(struct op_case *c);
    void (*fix)(struct op_case *c); /* after the node is made; or NULL */
};
#define ROW(op) [OCT_OP_##op] = {make_##op, NULL}
static const struct row rows[OCT_OP_COUNT] = {
    ROW(embed),
    ROW(dot_general),
    ROW(einsum),
    ROW(grouped_matmul),
    ROW(rms_norm),
    ROW(layer_norm),
    ROW(rope),
    ROW(add),
    ROW(multiply),
    ROW(scale),
    ROW(activation),
    ROW(slice),
    ROW(concat),
    ROW(reshape),
    ROW(transpose),
    ROW(broadcast),
    ROW(cast),
    [OCT_OP_attention_softmax] = {make_attention_softmax, want_first},
    ROW(attention_normalize),
    ROW(top_k),
    ROW(dispatch),
    ROW(undispatch),
    ROW(expert_bias),
    ROW(expert_weights),
    ROW(capacity_masks),
    ROW(load_balance_loss),
    ROW(soft_cap),
    [OCT_OP_cross_entropy] = {make_cross_entropy, want_first},
    [OCT_OP_loss_ratio] = {make_loss_ratio, want_first},
};

START_TEST(a_vjp_is_the_slope)
{
    struct op_case c;

    if (!oct_op_codes[_i].vjp)
        return;
    ck_assert_msg(rows[_i].make != NULL, "op '%s' has a VJP and no case here",
                  oct_op_rows[_i].name);
    op_case_begin(&c);
    rows[_i].make(&c);
    op_case_made(&c);
    if (rows[_i].fix)
        rows[_i].fix(&c);
    op_case_check_gradients(&c, 1e-2, 2e-3);
    op_case_end(&c);
}
END_TEST

TCase *table_tests(void)
{
    TCase *tests = tcase_create("table");

    tcase_add_loop_test(tests, a_vjp_is_the_slope, 0, OCT_OP_COUNT);
    return tests;
}
