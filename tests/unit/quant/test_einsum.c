/* octet_einsum beside the reference and beside plain sums in double. What could break: which names
 * are contracted, the order of the operands, the order of the result's axes, which operand the
 * gradient belongs to. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const char *const equations[] = {
    "bsd,df->bsf",     "bsd,edf->bsef",   "ab,bc->ac",     "ab,bc->ca",    "ab,cb->ac",
    "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "i,i->",         "i,j->ij",      "i,j->ji",
    "ab,ab->ab",       "abc,acb->ba",     "bsnd,ndk->bsk", "a b , b -> a", "zA,Az->",
    "ijk,kl->lij",     "ebcm,emh->ebch",  "b,ab->a"};
enum { EQUATIONS = sizeof equations / sizeof *equations };

/* lhs, rhs, result of an equation without blanks. */
static void split(const char *equation, char names[3][16])
{
    int part = 0;
    size_t n = 0;

    for (const char *p = equation;; p++) {
        if (*p == ' ' || *p == '>')
            continue;
        if (*p == ',' || *p == '-' || !*p) {
            names[part++][n] = '\0';
            n = 0;
            if (!*p)
                return;
            continue;
        }
        names[part][n++] = *p;
    }
}

/* Every name has its size. */
static int64_t size_of(char name)
{
    return 2 + name % 5;
}

static void dims_of(const char *names, int64_t *dim)
{
    for (; *names; names++)
        *dim++ = size_of(*names);
}

/* sum over all indices, in double; 'name' counts in at[]. */
static struct ref naive(char names[3][16], const struct ref *l, const struct ref *r)
{
    char all[32] = "";
    int64_t dim[32], index[32] = {0}, at[3][8];
    int32_t rank = 0;
    int64_t out_dim[8];

    for (int part = 0; part < 3; part++)
        for (const char *p = names[part]; *p; p++)
            if (!strchr(all, *p)) {
                dim[rank] = size_of(*p);
                all[rank++] = *p;
                all[rank] = '\0';
            }
    dims_of(names[2], out_dim);
    struct ref out = ref_make(OCTET_DTYPE_F32, (int32_t)strlen(names[2]), out_dim);
    do {
        for (int part = 0; part < 3; part++)
            for (int i = 0; names[part][i]; i++)
                at[part][i] = index[strchr(all, names[part][i]) - all];
        *ref_at(&out, at[2]) += *ref_at(l, at[0]) * *ref_at(r, at[1]);
    } while (ref_next(rank, dim, index));
    return out;
}

struct trial {
    struct octet_operand lhs, rhs;
    struct octet_array cotangent;
    char names[3][16];
};

static struct trial choose(struct dice *dice, const char *equation, enum octet_dtype dtype)
{
    struct trial t;
    int64_t dim[3][8];

    split(equation, t.names);
    for (int part = 0; part < 3; part++)
        dims_of(t.names[part], dim[part]);
    t.lhs = plain(array_random(dice, dtype, (int32_t)strlen(t.names[0]), dim[0]));
    t.rhs = plain(array_random(dice, dtype, (int32_t)strlen(t.names[1]), dim[1]));
    t.cotangent = array_random(dice, dtype, (int32_t)strlen(t.names[2]), dim[2]);
    return t;
}

START_TEST(einsums_are_sums)
{
    struct dice dice = {(uint64_t)_i};
    struct trial t = choose(&dice, equations[_i], OCTET_DTYPE_F32);
    struct octet_product_options options = {.cotangent = &t.cotangent};
    struct octet_product out;
    char turned[3][16];

    snprintf(bench.label, sizeof bench.label, "%s", equations[_i]);
    bench_ok(
        octet_einsum(&bench.compute, equations[_i], &t.lhs, &t.rhs, &options, &out, &bench.err));
    struct ref l = ref_of(&t.lhs.array), r = ref_of(&t.rhs.array), g = ref_of(&t.cotangent);
    struct ref expected = naive(t.names, &l, &r);
    ck_assert_int_eq(octet_array_elements(&out.out), expected.count);
    for (int64_t i = 0; i < expected.count; i++)
        ck_assert_float_eq_tol(array_at(&out.out, i), expected.v[i], 1e-4f);
    memcpy(turned, t.names, sizeof turned); /* dl = g, r -> l */
    memcpy(turned[0], t.names[2], 16);
    memcpy(turned[2], t.names[0], 16);
    expected = naive(turned, &g, &r);
    for (int64_t i = 0; i < expected.count; i++)
        ck_assert_float_eq_tol(array_at(&out.lhs_grad, i), expected.v[i], 1e-4f);
    memcpy(turned[1], t.names[0], 16); /* dr = g, l -> r */
    memcpy(turned[2], t.names[1], 16);
    expected = naive(turned, &g, &l);
    for (int64_t i = 0; i < expected.count; i++)
        ck_assert_float_eq_tol(array_at(&out.rhs_grad, i), expected.v[i], 1e-4f);
}
END_TEST

START_TEST(einsums_have_the_references_bits)
{
    static const struct octet_rule rules[] = {
        {.weight_qtype = ""},
        {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
        {.weight_qtype = "int8", .act_qtype = "float8_e5m2", .act_calibration_method = "rms,2"},
        {.weight_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"}};

    for (int variant = 0; variant < 4 * 3 * 2; variant++) {
        struct dice dice = {(uint64_t)(_i * 100 + variant)};
        struct trial t =
            choose(&dice, equations[_i], variant % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32);
        const struct octet_rule *rule = &rules[variant / 6];
        enum octet_weight_operand weight = (enum octet_weight_operand)(variant / 2 % 3);
        struct octet_product_options options = {.rule = bench_rule(rule),
                                                .weight_operand = weight,
                                                .cotangent = &t.cotangent,
                                                .numerics = true};
        struct octet_product out;
        struct ref_value l = ref_value_of(&t.lhs), r = ref_value_of(&t.rhs);
        struct ref_op op = {.rule = rule, .weight = weight, .cotangent = ref_of(&t.cotangent)};
        struct ref_result expected = ref_einsum(equations[_i], &l, &r, &op);
        snprintf(bench.label, sizeof bench.label, "%s, variant %d", equations[_i], variant);
        bench_use_any((uint64_t)variant);
        bench_ok(octet_einsum(&bench.compute, equations[_i], &t.lhs, &t.rhs, &options, &out,
                              &bench.err));
        ref_same(&out.out, &expected.out, "out");
        ref_same(&out.lhs_grad, &expected.lhs_grad, "lhs_grad");
        ref_same(&out.rhs_grad, &expected.rhs_grad, "rhs_grad");
        ck_assert_int_eq(out.lhs.is_quantized, expected.lhs.scale.v != NULL);
        ck_assert_int_eq(out.rhs.is_quantized, expected.rhs.scale.v != NULL);
    }
}
END_TEST

TCase *einsum_tests(void)
{
    TCase *tests = tcase_create("einsum");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_loop_test(tests, einsums_are_sums, 0, EQUATIONS);
    tcase_add_loop_test(tests, einsums_have_the_references_bits, 0, EQUATIONS);
    return tests;
}
