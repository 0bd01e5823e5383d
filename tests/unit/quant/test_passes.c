/* Forward and backward as two calls. What could break: a number that differs from the one call's, a
 * block or working memory that is smaller than was said, an operand that is read though nobody said
 * so, a result that is not written whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "quant/passes.h"

static const struct octet_rule given_rules[] = {
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"},
    {.weight_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "int8", .act_qtype = "int8", .weight_calibration_method = "absmax,0.7"},
    {.weight_qtype = "int8", .act_qtype = "int8", .act_calibration_method = "minmax"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e5m2",
     .bwd_qtype = "float8_e5m2",
     .weight_calibration_method = "rms,2",
     .act_calibration_method = "fixed,-1,1",
     .disable_channelwise_axes = true},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .tile_size = "1/2"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .bwd_weight_grad_tile_size = "1/2"},
    {.act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .sparsity = {.n = 1, .m = 2}},
    {.weight_qtype = "float8_e4m3fn",
     .act_qtype = "float8_e4m3fn",
     .bwd_qtype = "float8_e5m2",
     .additional_qt_config = (const struct octet_pair[]){{"dlhs_residual_qtype", "float8_e4m3fn"},
                                                         {"use_original_residuals", "true"}},
     .additional_qt_config_count = 2},
    {.weight_qtype = "mxfp8", .act_qtype = "mxfp8", .tile_size = "32"},
    {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .act_static_scale = true},
};
enum { RULES = sizeof given_rules / sizeof *given_rules, NO_RULE = RULES };

/* One product, whatever its kind. */
struct deed {
    struct oct_matmul matmul;
    const char *equation; /* NULL: a dot or a grouped one */
    struct octet_array lhs, rhs, sizes;
    struct octet_product whole; /* what one call says */
    struct octet_array cotangent;
};

static void run_whole(struct deed *d)
{
    struct octet_product_options options = {
        .rule = d->matmul.rule, .weight_operand = d->matmul.weight_operand, .numerics = true};
    struct octet_operand lhs = plain(d->lhs), rhs = plain(d->rhs);
    struct dice dice = {7};

    for (int pass = 0; pass < 2; pass++) { /* the result's shape tells the cotangent's */
        if (d->matmul.kind == OCT_MATMUL_DOT)
            bench_ok(octet_dot_general(&bench.compute, &lhs, &rhs, &d->matmul.dims, &options,
                                       &d->whole, &bench.err));
        else
            bench_ok(
                octet_ragged_dot(&bench.compute, &lhs, &rhs, &d->sizes, d->matmul.transpose_rhs,
                                 d->matmul.kind == OCT_MATMUL_GMM ? OCTET_GMM : OCTET_RAGGED_DOT,
                                 &options, &d->whole, &bench.err));
        if (!pass)
            d->cotangent =
                array_random(&dice, d->whole.out.dtype, d->whole.out.rank, d->whole.out.dim);
        options.cotangent = &d->cotangent;
    }
}

static struct octet_array garbage(const struct octet_array *like, enum octet_dtype dtype)
{
    struct octet_array array = array_zero(dtype, like->rank, like->dim);

    if (octet_array_bytes(&array))
        memset(array.data, 0xa5, (size_t)octet_array_bytes(&array));
    return array;
}

/* `array`'s numbers are `wide`'s, which may be of F32 where array is BF16. */
static void check_same(const struct octet_array *wide, const struct octet_array *array,
                       const char *what)
{
    ck_assert_int_eq(octet_array_elements(wide), octet_array_elements(array));
    for (int64_t i = 0; i < octet_array_elements(array); i++) {
        float a = array_at(wide, i), b = array_at(array, i);
        ck_assert_msg(memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)),
                      "%s: %s[%lld] is %g, not %g", bench.label, what, (long long)i, (double)a,
                      (double)b);
    }
}

static void check_stats(const struct octet_operand_stats *a, const struct octet_operand_stats *b)
{
    ck_assert_int_eq(a->is_quantized, b->is_quantized);
    ck_assert_mem_eq(&a->amax, &b->amax, sizeof a->amax);
    ck_assert_mem_eq(&a->scale_min, &b->scale_min, sizeof a->scale_min);
    ck_assert_int_eq(a->underflowed, b->underflowed);
    ck_assert(a->sqnr_db == b->sqnr_db || (isnan(a->sqnr_db) && isnan(b->sqnr_db)));
}

/* Memory of exactly what was asked for, between canaries. */
static unsigned char *guarded(size_t bytes)
{
    unsigned char *block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 128);

    ck_assert_ptr_nonnull(block);
    memset(block, 0x3c, (bytes + 63) / 64 * 64 + 128);
    return block;
}

static void check_guards(const unsigned char *block, size_t bytes)
{
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(block[i], 0x3c);
        ck_assert_int_eq(block[64 + bytes + (size_t)i], 0x3c);
    }
}

/* Working memory of no more than was said; figures take more. */
static struct octet_compute bounded(const struct deed *d, bool backward)
{
    struct octet_compute work = bench.compute;
    size_t bytes = oct_matmul_scratch_bytes(&d->matmul, &d->lhs, &d->rhs, backward);

    work.arena = octet_arena_create(d->matmul.numerics ? 4 * bytes : bytes);
    ck_assert_ptr_nonnull(work.arena);
    return work;
}

static struct octet_array known(const struct octet_array *array, bool is_read)
{
    struct octet_array known = *array;

    known.data = is_read ? known.data : NULL;
    return known;
}

static void run_passes(struct deed *d, enum octet_dtype gradient_dtype)
{
    struct octet_operand lhs = plain(d->lhs), rhs = plain(d->rhs);
    struct oct_pass_figures figures;
    struct octet_array out = garbage(&d->whole.out, d->whole.out.dtype);
    struct octet_array lhs_grad = garbage(&d->lhs, d->whole.lhs_grad.dtype);
    struct octet_array rhs_grad = garbage(&d->rhs, gradient_dtype);
    int reads = oct_matmul_reads(&d->matmul, &d->lhs, &d->rhs);
    size_t bytes = oct_matmul_saved_bytes(&d->matmul, &d->lhs, &d->rhs);
    unsigned char *block = guarded(bytes);
    struct octet_compute work = bounded(d, false);

    bench_ok(oct_matmul_forward(&work, &d->matmul, &lhs, &rhs, &d->sizes, &out, block + 64, bytes,
                                &figures, &bench.err));
    octet_arena_destroy(work.arena);
    check_guards(block, bytes);
    check_same(&out, &d->whole.out, "out");
    if (d->matmul.numerics) {
        ck_assert_str_eq(figures.digest, d->whole.digest);
        check_stats(&figures.lhs, &d->whole.lhs);
        check_stats(&figures.rhs, &d->whole.rhs);
    }

    struct octet_array l = known(&d->lhs, reads & 1), r = known(&d->rhs, reads & 2);
    work = bounded(d, true);
    bench_ok(oct_matmul_backward(&work, &d->matmul, &l, &r, &d->sizes, bytes ? block + 64 : NULL,
                                 &d->cotangent, &lhs_grad, &rhs_grad, &figures, &bench.err));
    octet_arena_destroy(work.arena);
    check_guards(block, bytes);
    check_same(&lhs_grad, &d->whole.lhs_grad, "lhs_grad");
    check_same(&rhs_grad, &d->whole.rhs_grad, "rhs_grad");
    if (d->matmul.numerics)
        check_stats(&figures.cotangent, &d->whole.cotangent);
    free(block);
}

/* From codes made beforehand the same result; and without a block, as who only infers runs it. */
static void run_prepared(struct deed *d)
{
    struct octet_operand lhs = plain(d->lhs), rhs = plain(d->rhs);
    struct octet_array out = garbage(&d->whole.out, d->whole.out.dtype);
    struct octet_array shape = known(&d->lhs, false);
    struct octet_quantized q;

    bench_ok(oct_matmul_prepare(&bench.compute, &d->matmul, &shape, &d->rhs, false, bench.arena, &q,
                                &bench.err));
    if (q.qvalue.data) {
        rhs = quantized(q);
        rhs.array = known(&d->rhs, false);
    }
    bench_ok(oct_matmul_forward(&bench.compute, &d->matmul, &lhs, &rhs, &d->sizes, &out, NULL, 0,
                                NULL, &bench.err));
    check_same(&out, &d->whole.out, "out from prepared");
}

static void run_deed(struct deed *d)
{
    d->matmul.has_backward = true;
    d->matmul.step = INT64_MAX;
    run_whole(d);
    run_passes(d, d->whole.rhs_grad.dtype);
    d->matmul.numerics = true;
    run_passes(d, OCTET_DTYPE_F32);
    d->matmul.has_backward = d->matmul.numerics = false;
    run_prepared(d);
}

static const struct octet_rule *rule_of(int i)
{
    return i % (RULES + 1) == NO_RULE ? NULL : bench_rule(&given_rules[i % (RULES + 1)]);
}

START_TEST(dot_passes_equal_one_call)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = _i / 2 % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    int64_t b = roll_between(&dice, 1, 3), m = roll_between(&dice, 1, 40) * 2;
    int64_t n = roll_between(&dice, 1, 40) * 2, k = (_i % 5 == 0 ? 128 : 32) * 2;
    struct deed d = {.matmul = {.rule = rule_of(_i), .weight_operand = OCTET_WEIGHT_RHS}};

    bench_use_any((uint64_t)_i);
    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    if (_i % 3 == 0) {
        d.matmul.dims = matmul_dims;
        d.lhs = array_random(&dice, dtype, 3, DIMS(b, m, k));
        d.matmul.dims.lhs_contracting[0] = 2;
        d.rhs = array_random(&dice, dtype, 2, DIMS(k, n));
    } else if (_i % 3 == 1) { /* a batch axis, contraction of the last axes */
        d.matmul.dims = (struct octet_dot_dims){.contracting_count = 1,
                                                .batch_count = 1,
                                                .lhs_contracting = {2},
                                                .rhs_contracting = {2},
                                                .lhs_batch = {1},
                                                .rhs_batch = {0}};
        d.lhs = array_random(&dice, dtype, 3, DIMS(m, b, k));
        d.rhs = array_random(&dice, dtype, 3, DIMS(b, n, k));
    } else { /* two contracted axes */
        d.matmul.dims = (struct octet_dot_dims){
            .contracting_count = 2, .lhs_contracting = {1, 2}, .rhs_contracting = {0, 1}};
        d.lhs = array_random(&dice, dtype, 3, DIMS(m, b, k));
        d.rhs = array_random(&dice, dtype, 3, DIMS(b, k, n));
    }
    run_deed(&d);
}
END_TEST

START_TEST(grouped_passes_equal_one_call)
{
    struct dice dice = {(uint64_t)_i};
    enum octet_dtype dtype = _i / 2 % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    int64_t k = (_i % 5 == 0 ? 128 : 32) * 2, n = roll_between(&dice, 1, 50) * 2;
    struct deed d = {.matmul = {.kind = _i % 3 ? OCT_MATMUL_GMM : OCT_MATMUL_RAGGED_DOT,
                                .transpose_rhs = _i % 4 == 1,
                                .rule = rule_of(_i / 2)}};
    int32_t sizes[4];
    int64_t m = roll_between(&dice, 0, 1) * 6;

    if (d.matmul.rule && d.matmul.rule->weight_qtype[0] == 'm')
        d.matmul.kind = OCT_MATMUL_RAGGED_DOT; /* a gmm has no tiles */
    for (int i = 0; i < 4; i++) {
        sizes[i] = roll_chance(&dice, 25) ? 0 : (int32_t)roll_between(&dice, 1, 30);
        m += sizes[i];
    }
    m += m % 2;
    bench_use_any((uint64_t)_i);
    snprintf(bench.label, sizeof bench.label, "case %d", _i);
    d.lhs = array_random(&dice, dtype, 2, DIMS(m, k));
    d.rhs = d.matmul.transpose_rhs ? array_random(&dice, dtype, 3, DIMS(4, n, k))
                                   : array_random(&dice, dtype, 3, DIMS(4, k, n));
    d.sizes = sizes_of(4, sizes);
    run_deed(&d);
}
END_TEST

/* Sparsity waits for its first step. */
START_TEST(sparsity_waits)
{
    struct octet_rule rule = {.weight_qtype = "float8_e4m3fn",
                              .act_qtype = "float8_e4m3fn",
                              .sparsity = {.n = 1, .m = 4, .start_step = 3, .update_step = 1}};
    struct octet_rule dense = {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"};
    struct dice dice = {1};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(5, 8)));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(8, 4)));

    for (int64_t step = 2; step <= 3; step++) {
        struct octet_product_options options = {.rule = bench_rule(step < 3 ? &dense : &rule)};
        struct oct_matmul matmul = {.dims = matmul_dims, .rule = bench_rule(&rule), .step = step};
        struct octet_array out = array_zero(OCTET_DTYPE_F32, 2, DIMS(5, 4));
        struct octet_product whole;
        bench_ok(octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &options, &whole,
                                   &bench.err));
        bench_ok(oct_matmul_forward(&bench.compute, &matmul, &lhs, &rhs, NULL, &out, NULL, 0, NULL,
                                    &bench.err));
        ck_assert(array_same(&out, &whole.out));
    }
}
END_TEST

TCase *pass_tests(void)
{
    TCase *tests = tcase_create("passes");

    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, dot_passes_equal_one_call, 0, SEEDS(140));
    tcase_add_loop_test(tests, grouped_passes_equal_one_call, 0, SEEDS(140));
    tcase_add_test(tests, sparsity_waits);
    return tests;
}
