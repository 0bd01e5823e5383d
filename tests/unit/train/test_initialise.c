/* Initialisers: MaxText's distributions, and the same bits whoever draws. A wrong fan-in shows in
 * the standard deviation; a missing cut in the largest number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/parameters_private.h"
#include "exec/philox.h"
#include "fixture.h"

static struct fixture f;

static void begin(void)
{
    fixture_begin(&f);
}

static void end(void)
{
    fixture_end(&f);
}

static octet_parameters *make(const char *model, const char *const *settings)
{
    octet_plan *plan = fixture_plan(&f, model, settings);
    octet_parameters *parameters;

    ck_assert_ok(&f, octet_parameters_create(plan, OCTET_DTYPE_UNSPECIFIED, &parameters, &f.err));
    octet_plan_unref(plan);
    ck_assert_ok(&f, octet_parameters_initialise(parameters, 7, &f.compute, &f.err));
    return parameters;
}

/* The paper's known answers. */
START_TEST(philox_gives_its_known_answers)
{
    static const struct {
        struct oct_philox counter, out;
        uint64_t key;
    } known[] = {
        {{{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}, 0},
        {{{~0u, ~0u, ~0u, ~0u}}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}, UINT64_MAX},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
         UINT64_C(0x299f31d0a4093822)},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct oct_philox out = oct_philox(known[i].counter, known[i].key);
        ck_assert_mem_eq(&out, &known[i].out, sizeof out);
    }
}
END_TEST

/* Mean 0 and the standard deviation, within five standard errors of each; largest: in multiples of
 * the underlying normal's deviation. */
static void check_draws(const octet_parameters *parameters, const char *name, double deviation,
                        bool cut)
{
    size_t i = octet_parameters_find(parameters, name);
    ck_assert_msg(i != SIZE_MAX, "%s is not there", name);
    const float *x = oct_parameters_data(parameters, i);
    double n = (double)oct_parameters_elements(parameters, i), sum = 0, squares = 0, largest = 0;

    for (size_t e = 0; e < (size_t)n; e++) {
        sum += (double)x[e];
        squares += (double)x[e] * (double)x[e];
        largest = fmax(largest, fabs((double)x[e]));
    }
    double got = sqrt(squares / n);
    ck_assert_msg(fabs(sum / n) < 5 * deviation / sqrt(n), "%s: mean %g", name, sum / n);
    ck_assert_msg(fabs(got / deviation - 1) < 5 / sqrt(2 * n), "%s: deviation %g, expected %g",
                  name, got, deviation);
    double bound = 2 * deviation / 0.87962566103423978;
    ck_assert_msg(cut ? largest <= bound * 1.000001 : largest > bound, "%s: largest %g", name,
                  largest);
}

static void check_all(const octet_parameters *parameters, const char *name, float value)
{
    size_t i = octet_parameters_find(parameters, name);
    ck_assert_msg(i != SIZE_MAX, "%s is not there", name);
    const float *x = oct_parameters_data(parameters, i);

    for (size_t e = 0; e < oct_parameters_elements(parameters, i); e++)
        ck_assert_float_eq(x[e], value);
}

START_TEST(deepseek_is_drawn_as_maxtext_draws_it)
{
    octet_parameters *p =
        make("deepseek3-tiny", SETTINGS(TINY_SETTINGS, "scan_layers=true", "q_lora_rank=24",
                                        "kv_lora_rank=16", "dense_init_scale=4.0"));
    check_draws(p, "token_embedder/embedding", 1, false);
    check_draws(p, "decoder/moe_layers/self_attention/wq_a/kernel", 1 / sqrt(32), false);
    check_draws(p, "decoder/moe_layers/self_attention/wq_b/kernel", 1 / sqrt(24), false);
    check_draws(p, "decoder/moe_layers/self_attention/wkv_b/kernel", 1 / sqrt(16), false);
    size_t out = octet_parameters_find(p, "decoder/moe_layers/self_attention/out/kernel");
    struct octet_array slice = oct_parameters_slice(p, out, 0);
    check_draws(p, "decoder/moe_layers/self_attention/out/kernel",
                1 / sqrt((double)(slice.dim[0] * slice.dim[1])), false);
    check_draws(p, "decoder/dense_layers/mlp/wi_0/kernel", 1 / sqrt(32), true);
    check_draws(p, "decoder/dense_layers/mlp/wo/kernel", 1 / sqrt(48), true);
    const char *moe = "decoder/moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/";
    char name[128];
    snprintf(name, sizeof name, "%swi_0", moe);
    check_draws(p, name, 2 / sqrt(4 * 24), true);
    snprintf(name, sizeof name, "%swo", moe);
    check_draws(p, name, 2 / sqrt(4 * 32), true);
    snprintf(name, sizeof name, "%sgate/kernel", moe);
    check_draws(p, name, 2 / sqrt(32), true);
    snprintf(name, sizeof name, "%sgate/bias", moe);
    check_all(p, name, 0);
    check_draws(p, "mtp_block/mtp_layer_1/mtp_1_projection/kernel", 1 / sqrt(64), true);
    check_draws(p, "decoder/logits_dense/kernel", 1 / sqrt(32), true);
    check_all(p, "decoder/decoder_norm/scale", 1);
    octet_parameters_destroy(p);
}
END_TEST

#define SMALL                                                                                      \
    "base_emb_dim=64", "base_num_query_heads=4", "base_num_kv_heads=2", "base_mlp_dim=96",         \
        "head_dim=16", "base_num_decoder_layers=2", "vocab_size=128", "max_target_length=16"

START_TEST(a_query_that_nothing_scales_is_drawn_smaller)
{
    octet_parameters *p = make("llama3-8b", SETTINGS(SMALL));
    check_draws(p, "decoder/layers/self_attention/query/kernel", 1 / sqrt(64) / 4, false);
    check_draws(p, "decoder/layers/self_attention/key/kernel", 1 / sqrt(64), false);
    check_draws(p, "decoder/layers/self_attention/out/kernel", 1 / sqrt(64), false);
    octet_parameters_destroy(p);

    p = make("qwen3-0.6b", SETTINGS(SMALL));
    check_draws(p, "decoder/layers/self_attention/query/kernel", 1 / sqrt(64), false);
    check_all(p, "decoder/layers/self_attention/query_norm/scale", 1);
    octet_parameters_destroy(p);
}
END_TEST

START_TEST(draws_depend_on_seed_and_name_alone)
{
    octet_parameters *one = make("deepseek3-tiny", SETTINGS(TINY_SETTINGS));
    octet_parameters *other = make("deepseek3-tiny", SETTINGS(TINY_SETTINGS));
    char a[33], b[33];

    octet_parameters_digest(one, a);
    octet_parameters_digest(other, b);
    ck_assert_str_eq(a, b);
    for (size_t set = 0; octet_kernel_set_name(set); set++) {
        struct octet_compute compute = f.compute;
        if (octet_kernel_set_obstacle(set))
            continue;
        ck_assert_ok(&f, octet_workers_create(octet_kernel_set_name(set), 1 + (int32_t)set % 3,
                                              &compute.workers, &f.err));
        octet_parameters_clear(other);
        ck_assert_ok(&f, octet_parameters_initialise(other, 7, &compute, &f.err));
        octet_workers_destroy(compute.workers);
        octet_parameters_digest(other, b);
        ck_assert_str_eq(a, b);
    }
    ck_assert_ok(&f, octet_parameters_initialise(other, 8, &f.compute, &f.err));
    octet_parameters_digest(other, b);
    ck_assert_str_ne(a, b);
    /* Layers of a stack, and equal kernels of other names, are drawn apart. */
    size_t w0 = octet_parameters_find(one, "decoder/dense_layers_0/mlp/wi_0/kernel");
    size_t w1 = octet_parameters_find(one, "decoder/dense_layers_0/mlp/wi_1/kernel");
    if (w0 == SIZE_MAX) {
        w0 = octet_parameters_find(one, "decoder/dense_layers/mlp/wi_0/kernel");
        w1 = octet_parameters_find(one, "decoder/dense_layers/mlp/wi_1/kernel");
    }
    ck_assert_mem_ne(oct_parameters_data(one, w0), oct_parameters_data(one, w1), 64);
    octet_parameters_destroy(one);
    octet_parameters_destroy(other);
}
END_TEST

TCase *initialise_tests(void)
{
    TCase *tests = tcase_create("initialise");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, philox_gives_its_known_answers);
    tcase_add_test(tests, deepseek_is_drawn_as_maxtext_draws_it);
    tcase_add_test(tests, a_query_that_nothing_scales_is_drawn_smaller);
    tcase_add_test(tests, draws_depend_on_seed_and_name_alone);
    return tests;
}
