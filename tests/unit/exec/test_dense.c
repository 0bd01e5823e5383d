/* Products of two operands: with and without a rule, of each equation that the models have.
 * What could break: an axis of an equation that goes astray in a gradient, a cast that is left out,
 * an operand that backward reads though it may be gone, codes prepared otherwise than forward makes
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/dense.h"
#include "octet/quant.h"
#include "op_case.h"
#include "quant/pack.h"
#include "suite.h"

static const char *const equations[] = {
    "BKE,BK -> BE",      "BSM,EMH -> BSEH",    "BSEH,EHM -> BSEM",  "BSEM,BSE -> BSM",
    "BSM,BSEC -> EBCM",  "EBCM,EMH -> EBCH",   "EBCH,EHM -> EBCM",  "EBCM,BSEC -> BSM",
    "btkgd,bskd->bkgts", "bkgts,bskd->btkgd",  "bskgd,bNkd->bkgsN", "bthd, bsd -> btsh",
    "btsh, bth -> bts",  "bthd, bshd -> bhts", "bsm,mn -> bsn",     "bsk,bskd->bsd",
    "bsn,nkm -> bskm",   "bskm,bskd->bsmd",
};
enum { EQUATIONS = sizeof equations / sizeof *equations };

static int64_t size_of(char axis)
{
    return 2 + axis * 7 % 4;
}

/* The axes' sizes of the operand at *text, which moves behind it. */
static int read_dims(const char **text, int64_t *dims)
{
    int rank = 0;

    for (; **text && **text != ',' && **text != '-'; (*text)++)
        if (**text != ' ')
            dims[rank++] = size_of(**text);
    *text += **text == ',';
    return rank;
}

static void make_einsum(struct op_case *c, const char *equation, enum octet_dtype dtype,
                        bool is_weight)
{
    const char *text = equation;
    int64_t dims[OCTET_RANK_MAX];
    int rank;

    op_case_begin(c);
    rank = read_dims(&text, dims);
    op_case_random(c, dtype, rank, dims, 1);
    rank = read_dims(&text, dims);
    if (is_weight)
        op_case_parameter(c, OCTET_DTYPE_F32, rank, dims, 1);
    else
        op_case_random(c, dtype, rank, dims, 1);
    oct_einsum(&c->b, equation, c->x[0], c->x[1]);
}

START_TEST(einsum_gradients)
{
    struct op_case c;

    make_einsum(&c, equations[_i], OCTET_DTYPE_F32, _i % 2);
    op_case_made(&c);
    op_case_check_gradients(&c, 0.5, 2e-5);
    op_case_end(&c);
}
END_TEST

/* lhs [b,m,k] with [k,n]; [b,m,h,d] with [h,d,n]; with a batch axis in two places. */
static void make_dot(struct op_case *c, int kind, enum octet_dtype dtype,
                     enum octet_dtype weight_dtype)
{
    union oct_attributes batch = {.dot = {.contracting_count = 1,
                                          .batch_count = 1,
                                          .lhs_contracting = {2},
                                          .rhs_contracting = {1},
                                          .lhs_batch = {1},
                                          .rhs_batch = {0}}};

    op_case_begin(c);
    if (kind == 0) {
        op_case_random(c, dtype, 3, (int64_t[]){2, 9, 32}, 1);
        op_case_parameter(c, weight_dtype, 2, (int64_t[]){32, 20}, 1);
        oct_dense(&c->b, c->x[0], c->x[1], 1);
    } else if (kind == 1) {
        op_case_random(c, dtype, 4, (int64_t[]){2, 5, 4, 16}, 1);
        op_case_parameter(c, weight_dtype, 3, (int64_t[]){4, 16, 24}, 1);
        oct_dense(&c->b, c->x[0], c->x[1], 2);
    } else {
        op_case_random(c, dtype, 3, (int64_t[]){7, 3, 32}, 1);
        op_case_parameter(c, weight_dtype, 3, (int64_t[]){3, 32, 5}, 1);
        oct_add_node(&c->b, OCT_OP_dot_general, OCTET_LOOKUP_DOT_GENERAL, batch, 2, c->x, NULL);
    }
}

START_TEST(dot_gradients)
{
    struct op_case c;

    make_dot(&c, _i, OCTET_DTYPE_F32, OCTET_DTYPE_F32);
    op_case_made(&c);
    op_case_check_gradients(&c, 0.5, 2e-5);
    op_case_end(&c);
}
END_TEST

/* Rows of four groups, one empty, some rows behind them. */
static void make_grouped(struct op_case *c, enum octet_lookup lookup, enum octet_dtype dtype)
{
    op_case_begin(c);
    op_case_random(c, dtype, 2, (int64_t[]){23, 32}, 1);
    op_case_parameter(c, OCTET_DTYPE_F32, 3, (int64_t[]){4, 32, 12}, 1);
    op_case_values(c, OCTET_DTYPE_S32, 1, (int64_t[]){4}, (double[]){9, 0, 1, 11});
    oct_grouped_matmul(&c->b, lookup, c->x[0], c->x[1], c->x[2]);
}

START_TEST(grouped_gradients)
{
    struct op_case c;

    make_grouped(&c, _i ? OCTET_LOOKUP_GMM : OCTET_LOOKUP_RAGGED_DOT, OCTET_DTYPE_F32);
    op_case_made(&c);
    op_case_check_gradients(&c, 0.5, 2e-5);
    op_case_end(&c);
}
END_TEST

/* ---- with a rule: as the public functions have it ---- */

static const struct octet_rule given_rules[] = {
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "int8", .act_qtype = "int8", .act_calibration_method = "absmax,0.8"},
    {.act_qtype = "int8"}, /* no rule at all */
};
enum { RULES = sizeof given_rules / sizeof *given_rules };

static const struct octet_rule *rule_of(struct op_case *c, int i, octet_rules **rules)
{
    ck_assert_int_eq(octet_rules_create(c->context, &given_rules[i], 1, rules, &c->err), OCTET_OK);
    return octet_rules_get(*rules, 0);
}

static struct octet_operand cast_operand(const struct op_case *c, int i)
{
    struct octet_array array = c->in[i];

    array.dtype = c->out[0].dtype;
    if (array.dtype == c->in[i].dtype)
        return (struct octet_operand){.array = array};
    array.data = octet_arena_alloc(c->arena, (size_t)octet_array_bytes(&array));
    for (int64_t j = 0; j < octet_array_elements(&array); j++)
        op_case_set(&array, j, op_case_get(&c->in[i], j));
    return (struct octet_operand){.array = array};
}

static void check_same(const struct octet_array *got, const struct octet_array *want,
                       const char *what)
{
    ck_assert_int_eq(octet_array_elements(got), octet_array_elements(want));
    for (int64_t i = 0; i < octet_array_elements(got); i++)
        ck_assert_msg(op_case_get(got, i) == op_case_get(want, i), "%s[%lld] is %g, not %g", what,
                      (long long)i, op_case_get(got, i), op_case_get(want, i));
}

/* Runs the case; operands that backward is said not to read are spoiled between the passes. */
static void run_case(struct op_case *c)
{
    int reads = oct_dense_reads(&c->b.graph, c->node, c->rule);
    struct octet_array kept[2] = {c->in[0], c->in[1]};

    op_case_forward(c);
    for (int i = 0; i < 2; i++)
        if (!(reads >> i & 1))
            c->in[i].data = NULL;
    op_case_backward(c);
    memcpy(c->in, kept, sizeof kept);
}

static void check_ruled(struct op_case *c, const struct octet_product *want)
{
    check_same(&c->out[0], &want->out, "out");
    check_same(&c->gradient[0], &want->lhs_grad, "gradient of the first");
    check_same(&c->gradient[1], &want->rhs_grad, "gradient of the second");
}

static struct octet_product_options options_of(const struct op_case *c,
                                               enum octet_weight_operand weight)
{
    return (struct octet_product_options){
        .rule = c->rule, .weight_operand = weight, .cotangent = &c->cotangent[0]};
}

/* Packed codes are the codes, in another order; told beforehand. */
static void check_packed(struct op_case *c, const struct octet_quantized *plain,
                         struct octet_quantized packed)
{
    size_t bytes = (size_t)octet_array_bytes(&plain->qvalue);
    size_t told = oct_dense_prepared_bytes(&c->b.graph, c->node, c->rule, true);

    ck_assert_uint_eq(oct_dense_prepared_bytes(&c->b.graph, c->node, c->rule, false), bytes);
    ck_assert_uint_eq(packed.qvalue.data ? bytes : told, told);
    ck_assert_int_eq(oct_unpack(&c->compute, &packed, &c->err), OCTET_OK);
    check_same(&packed.qvalue, &plain->qvalue, "unpacked codes");
    check_same(&packed.scale, &plain->scale, "scale");
}

static struct octet_quantized run_prepared_as(struct op_case *c, bool packs)
{
    struct octet_quantized weight;
    struct octet_compute keep = c->compute;
    struct octet_array out = op_case_zeros(c, c->out[0].dtype, c->out[0].rank, c->out[0].dim);
    struct oct_op_call call = {.execution = &c->execution,
                               .node = c->node,
                               .rule = c->rule,
                               .out = {out},
                               .scratch = octet_arena_create(1 << 22),
                               .prepared = &weight};

    ck_assert_int_eq(
        oct_dense_prepare(&keep, &c->b.graph, c->node, c->rule, &c->in[1], packs, &weight, &c->err),
        OCTET_OK);
    memcpy(call.in, c->in, sizeof call.in);
    call.in[1].data = NULL;
    if (weight.scale.data) {
        ck_assert_int_eq(oct_dense_forward(&call, &c->err), OCTET_OK);
        check_same(&out, &c->out[0], packs ? "out from packed codes" : "out from codes");
    }
    octet_arena_destroy(call.scratch);
    return weight;
}

static void run_prepared(struct op_case *c)
{
    struct octet_quantized plain = run_prepared_as(c, false), packed = run_prepared_as(c, true);

    if (plain.scale.data)
        check_packed(c, &plain, packed);
}

static struct octet_dot_dims dims_of(const struct oct_dot_dims *from)
{
    struct octet_dot_dims dims = {.contracting_count = from->contracting_count,
                                  .batch_count = from->batch_count};

    for (int i = 0; i < 2; i++) {
        dims.lhs_contracting[i] = from->lhs_contracting[i];
        dims.rhs_contracting[i] = from->rhs_contracting[i];
        dims.lhs_batch[i] = from->lhs_batch[i];
        dims.rhs_batch[i] = from->rhs_batch[i];
    }
    return dims;
}

START_TEST(ruled_dots)
{
    enum octet_dtype dtype = _i / RULES % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    struct octet_product want;
    struct op_case c;
    octet_rules *rules;

    make_dot(&c, _i / RULES / 2, dtype, OCTET_DTYPE_F32);
    c.rule = rule_of(&c, _i % RULES, &rules);
    op_case_made(&c);
    run_case(&c);
    struct octet_operand lhs = cast_operand(&c, 0), rhs = cast_operand(&c, 1);
    struct octet_dot_dims dims = dims_of(&c.node->attributes.dot);
    struct octet_product_options options = options_of(&c, OCTET_WEIGHT_RHS);
    ck_assert_int_eq(octet_dot_general(&c.compute, &lhs, &rhs, &dims, &options, &want, &c.err),
                     OCTET_OK);
    check_ruled(&c, &want);
    run_prepared(&c);
    op_case_check_bits(&c);
    octet_rules_unref(rules);
    op_case_end(&c);
}
END_TEST

START_TEST(ruled_einsums)
{
    enum octet_dtype dtype = _i / EQUATIONS % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    const char *equation = equations[_i % EQUATIONS];
    bool is_weight = _i % 2;
    struct octet_product want;
    struct op_case c;
    octet_rules *rules;

    make_einsum(&c, equation, dtype, is_weight);
    c.rule = rule_of(&c, _i % 3, &rules);
    op_case_made(&c);
    run_case(&c);
    struct octet_operand lhs = cast_operand(&c, 0), rhs = cast_operand(&c, 1);
    struct octet_product_options options =
        options_of(&c, is_weight ? OCTET_WEIGHT_RHS : OCTET_WEIGHT_NONE);
    ck_assert_int_eq(octet_einsum(&c.compute, equation, &lhs, &rhs, &options, &want, &c.err),
                     OCTET_OK);
    check_ruled(&c, &want);
    if (is_weight)
        run_prepared(&c);
    octet_rules_unref(rules);
    op_case_end(&c);
}
END_TEST

START_TEST(ruled_groups)
{
    enum octet_dtype dtype = _i / RULES % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    bool is_gmm = _i / RULES / 2;
    struct octet_product want;
    struct op_case c;
    octet_rules *rules;

    make_grouped(&c, is_gmm ? OCTET_LOOKUP_GMM : OCTET_LOOKUP_RAGGED_DOT, dtype);
    c.rule = rule_of(&c, _i % RULES, &rules);
    op_case_made(&c);
    run_case(&c);
    struct octet_operand lhs = cast_operand(&c, 0), rhs = cast_operand(&c, 1);
    struct octet_product_options options = options_of(&c, OCTET_WEIGHT_RHS);
    ck_assert_int_eq(octet_ragged_dot(&c.compute, &lhs, &rhs, &c.in[2], false,
                                      is_gmm ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &want,
                                      &c.err),
                     OCTET_OK);
    check_ruled(&c, &want);
    run_prepared(&c);
    op_case_check_bits(&c);
    octet_rules_unref(rules);
    op_case_end(&c);
}
END_TEST

/* A bfloat16 parameter under float32 activations: its gradient has bfloat16's numbers. */
START_TEST(gradients_pass_casts)
{
    struct op_case c;

    make_dot(&c, 0, OCTET_DTYPE_F32, OCTET_DTYPE_BF16);
    op_case_made(&c);
    op_case_forward(&c);
    op_case_backward(&c);
    ck_assert_int_eq(c.gradient[1].dtype, OCTET_DTYPE_F32);
    for (int64_t i = 0; i < octet_array_elements(&c.gradient[1]); i++)
        ck_assert_uint_eq(((const uint32_t *)c.gradient[1].data)[i] & 0xffff, 0);
    op_case_end(&c);
}
END_TEST

TCase *dense_tests(void)
{
    TCase *tests = tcase_create("dense");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, einsum_gradients, 0, EQUATIONS);
    tcase_add_loop_test(tests, dot_gradients, 0, 3);
    tcase_add_loop_test(tests, grouped_gradients, 0, 2);
    tcase_add_loop_test(tests, ruled_dots, 0, 3 * 2 * RULES);
    tcase_add_loop_test(tests, ruled_einsums, 0, 2 * EQUATIONS);
    tcase_add_loop_test(tests, ruled_groups, 0, 2 * 2 * RULES);
    tcase_add_test(tests, gradients_pass_casts);
    return tests;
}
