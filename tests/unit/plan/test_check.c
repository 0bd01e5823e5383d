/* Findings: each risk and each refusal is told when it is there, and only then.
 * What could break: a warning that nobody can act on (every finding above a note must name a way
 * out), one that shows up on a sound config, or one that stays silent. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

struct found {
    const struct octet_finding *items;
    size_t count;
};

/* rules: YAML; NULL: the config's. */
static struct found check_rules(struct fixture *f, const char *model, const char *const *settings,
                                const char *text, const struct octet_check_options *options)
{
    octet_rules *rules = NULL;

    const octet_config *config = fixture_config(f, model, settings);
    struct octet_graph_options size = {.batch_size = 1, .sequence_length = 128};
    octet_plan *plan = NULL;
    struct octet_error plan_error = {.status = OCTET_OK};
    struct found found;

    if (text)
        ck_assert_int_eq(octet_rules_parse(f->context, text, strlen(text), &rules, &f->err),
                         OCTET_OK);
    if (octet_plan_create(f->context, config, rules, &size, NULL, &plan, &plan_error) != OCTET_OK)
        plan = NULL;
    octet_rules_unref(rules);
    enum octet_status status =
        octet_check(f->context, f->arena, config, plan, plan ? NULL : &plan_error, options,
                    &found.items, &found.count, &f->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    octet_plan_unref(plan);
    for (size_t i = 0; i < found.count; i++)
        ck_assert_msg(found.items[i].severity == OCTET_NOTE || found.items[i].remedy[0] ||
                          strcmp(found.items[i].id, "unknown-layer") == 0 ||
                          !found.items[i].subject[0],
                      "no way out of %s", found.items[i].id);
    return found;
}

static struct found check_with(struct fixture *f, const char *model, const char *const *settings,
                               const struct octet_check_options *options)
{
    return check_rules(f, model, settings, NULL, options);
}

static const struct octet_finding *finding(struct found found, const char *id)
{
    for (size_t i = 0; i < found.count; i++)
        if (strcmp(found.items[i].id, id) == 0)
            return &found.items[i];
    return NULL;
}

static size_t of_severity(struct found found, enum octet_severity severity)
{
    size_t count = 0;

    for (size_t i = 0; i < found.count; i++)
        count += found.items[i].severity == severity;
    return count;
}

START_TEST(a_sound_config_has_no_findings)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found = check_with(
        &f, "llama2-7b",
        SETTINGS("quantization=fp8_full", "use_qwix_quantization=true", "attention=flash"), NULL);
    ck_assert_uint_eq(found.count, 0);
    fixture_end(&f);
}
END_TEST

/* Defaults that are not MaxText's own. */
START_TEST(what_is_assumed_is_told)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found = check_with(&f, "llama2-7b", SETTINGS("quantization=fp8_full"), NULL);
    ck_assert_uint_eq(found.count, 2);
    ck_assert_int_eq(finding(found, "qwix-assumed")->severity, OCTET_NOTE);
    ck_assert_int_eq(finding(found, "attention-assumed")->severity, OCTET_NOTE);
    fixture_end(&f);
}
END_TEST

START_TEST(sensitive_matmuls_are_told)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found =
        check_rules(&f, "deepseek3-tiny", SETTINGS("quantization=fp8_full"),
                    "rules: [{module_path: '.*', weight_qtype: int8, act_qtype: int8}]", NULL);
    ck_assert_ptr_nonnull(finding(found, "router-quantized"));
    ck_assert_str_eq(finding(found, "head-quantized")->subject, "decoder/logits_dense");
    ck_assert_ptr_nonnull(finding(found, "attention-scores-quantized"));
    found = check_rules(
        &f, "deepseek3-tiny", SETTINGS("quantization=fp8_full"),
        "rules: [{module_path: 'decoder/.*/wo', weight_qtype: int8, act_qtype: int8}]", NULL);
    ck_assert_ptr_null(finding(found, "router-quantized"));
    ck_assert_ptr_null(finding(found, "head-quantized"));
    ck_assert_ptr_null(finding(found, "attention-scores-quantized"));
    fixture_end(&f);
}
END_TEST

START_TEST(risks_of_a_mixture_of_experts_are_told)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found = check_with(&f, "deepseek3-671b",
                                    SETTINGS("quantization=fp8_full", "mtp_num_layers=1"), NULL);
    ck_assert_int_eq(finding(found, "router-quantized")->severity, OCTET_WARNING);
    ck_assert_ptr_nonnull(strstr(finding(found, "router-quantized")->subject, "/gate"));
    ck_assert_ptr_nonnull(finding(found, "mtp-left-out"));
    ck_assert_ptr_null(finding(found, "experts-unquantized"));
    ck_assert_uint_eq(of_severity(found, OCTET_ERROR), 0);

    found = check_with(&f, "deepseek3-671b",
                       SETTINGS("quantization=fp8_full", "mtp_num_layers=1", "quantize_mtp=true",
                                "sparse_matmul=false", "megablox=false"),
                       NULL);
    ck_assert_ptr_null(finding(found, "mtp-left-out"));
    ck_assert_ptr_nonnull(strstr(finding(found, "experts-unquantized")->message, "einsum"));

    found = check_with(&f, "mixtral-8x7b", SETTINGS("quantization=int8"), NULL);
    ck_assert_ptr_nonnull(strstr(finding(found, "experts-unquantized")->message, "gmm"));
    found = check_with(
        &f, "deepseek3.2-671b",
        SETTINGS("quantization=fp8_full", "max_target_length=4096", "indexer_topk=64"), NULL);
    ck_assert_ptr_nonnull(finding(found, "indexer-quantized"));
    fixture_end(&f);
}
END_TEST

START_TEST(settings_that_ragged_dot_ignores_are_told)
{
    struct fixture f;
    const char *calibration = "weight_quantization_calibration_method=fixed,-224,224";

    fixture_begin(&f);
    struct found found = check_with(
        &f, "mixtral-8x7b", SETTINGS("quantization=fp8_full", "megablox=false", calibration), NULL);
    ck_assert_ptr_nonnull(finding(found, "ragged-dot-settings-ignored"));
    found =
        check_with(&f, "mixtral-8x7b", SETTINGS("quantization=fp8_full", "megablox=false"), NULL);
    ck_assert_ptr_null(finding(found, "ragged-dot-settings-ignored"));
    fixture_end(&f);
}
END_TEST

/* The tile sizes of golden/maxtext/traces/FAILED.json, and the way out that is named there. */
START_TEST(tiles_that_maxtext_asserts_on_are_predicted)
{
    struct fixture f;
    static const struct {
        const char *model, *assertion;
    } cases[] = {{"deepseek2-16b", "v=1408 bv=1024 s=1408"},
                 {"deepseek2-236b", "v=1536 bv=1024 s=1536"},
                 {"deepseek3-tiny", "v=64 bv=1024 s=64"},
                 {"qwen3-30b-a3b", "v=768 bv=1024 s=768"}};

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found =
            check_with(&f, cases[i].model, SETTINGS("quantization=fp8_full"), NULL);
        ck_assert_ptr_nonnull(
            strstr(finding(found, "maxtext-tile-size")->message, cases[i].assertion));
        ck_assert_int_eq(finding(found, "maxtext-tile-size")->severity, OCTET_ERROR);
    }
    struct found found = check_with(
        &f, "deepseek2-16b",
        SETTINGS("quantization=fp8_full", "wi_tile_fwd_mlp_dim=1408", "wi_tile_drhs_mlp_dim=1408",
                 "wo_tile_fwd_embed_dim=2048", "wo_tile_drhs_embed_dim=2048"),
        NULL);
    ck_assert_ptr_null(finding(found, "maxtext-tile-size"));
    found = check_with(&f, "deepseek3-671b", SETTINGS("quantization=fp8_full"), NULL);
    ck_assert_ptr_null(finding(found, "maxtext-tile-size"));
    fixture_end(&f);
}
END_TEST

START_TEST(crashes_of_maxtext_are_predicted)
{
    struct fixture f;
    static const struct {
        const char *model, *setting, *id;
    } cases[] = {
        {"qwen3-0.6b", "mtp_num_layers=1", "maxtext-crashes"},
        {"llama3-405b", "dtype=bfloat16", "maxtext-refuses"},
        {"olmo3-7b", "base_num_decoder_layers=2", "maxtext-crashes"},
        {"gpt-oss-20b", "base_num_decoder_layers=7", "layers-dropped"},
        {"llama2-7b", "param_scan_axis=2", "maxtext-crashes"},
    };

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found = check_with(&f, cases[i].model,
                                        SETTINGS("quantization=fp8_full", cases[i].setting), NULL);
        ck_assert_msg(finding(found, cases[i].id) != NULL, "%s %s", cases[i].model,
                      cases[i].setting);
    }
    fixture_end(&f);
}
END_TEST

START_TEST(required_and_forbidden_modules_are_held)
{
    struct fixture f;
    const char *require[] = {"mtp_block/.*", "decoder/.*attention/wq_b", "nowhere/.*"};
    const char *forbid[] = {".*/gate"};
    struct octet_check_options options = {require, 3, forbid, 1};

    fixture_begin(&f);
    struct found found = check_with(
        &f, "deepseek3-671b", SETTINGS("quantization=fp8_full", "mtp_num_layers=1"), &options);
    size_t unquantized = 0;
    for (size_t i = 0; i < found.count; i++)
        if (strcmp(found.items[i].id, "required-unquantized") == 0) {
            ck_assert_int_eq(strncmp(found.items[i].subject, "mtp_block/", 10), 0);
            unquantized++;
        }
    ck_assert_uint_eq(unquantized, 11);
    ck_assert_str_eq(finding(found, "required-missing")->subject, "nowhere/.*");
    ck_assert_ptr_nonnull(strstr(finding(found, "forbidden-quantized")->subject, "/gate"));
    fixture_end(&f);
}
END_TEST

START_TEST(a_bad_pattern_names_its_place)
{
    struct fixture f;
    const char *require[] = {".*", "("};
    struct octet_check_options options = {.require = require, .require_count = 2};
    const struct octet_finding *items;
    size_t count;

    fixture_begin(&f);
    const octet_config *config = fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full"));
    octet_plan *plan = fixture_plan(&f, config, NULL);
    ck_assert_int_eq(
        octet_check(f.context, f.arena, config, plan, NULL, &options, &items, &count, &f.err),
        OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "require[1]");
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

START_TEST(settings_without_effect_and_overrides_are_listed)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found =
        check_with(&f, "llama2-7b",
                   SETTINGS("quantization=fp8_full", "run_name=mine", "base_emb_dim=2048"), NULL);
    ck_assert_str_eq(finding(found, "no-effect")->subject, "run_name");
    ck_assert_str_eq(finding(found, "override-model-config")->subject, "base_emb_dim");
    found = check_with(
        &f, "llama2-7b",
        SETTINGS("quantization=fp8_full", "base_emb_dim=2048", "override_model_config=true"), NULL);
    ck_assert_ptr_null(finding(found, "override-model-config"));
    fixture_end(&f);
}
END_TEST

/* Keys that only some families read are refused by name, where another key makes them wrong. */
START_TEST(sizes_that_make_no_model_name_their_key)
{
    struct fixture f;
    static const struct {
        const char *model, *setting, *field;
    } cases[] = {
        {"llama3.3-70b", "mhc_expansion_rate=3", "mhc_expansion_rate"},
        {"llama2-13b", "attention_type=mla", "attention_type"},
        {"deepseek3-671b", "attention_type=global", "attention_type"},
        {"deepseek3-671b", "kv_lora_rank=0", "kv_lora_rank"},
        {"deepseek3-tiny", "v_head_dim=0", "v_head_dim"},
        {"deepseek3-tiny", "shared_experts=0", "shared_experts"},
        {"deepseek3-tiny", "qk_rope_head_dim=7", "qk_rope_head_dim"},
        {"llama2-7b", "head_dim=7", "head_dim"},
        {"mistral-7b", "decoder_block=qwen3_moe", "base_moe_mlp_dim"},
        {"qwen3-14b", "inhomogeneous_layer_cycle_interval=64",
         "inhomogeneous_layer_cycle_interval"},
    };

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct octet_graph_options size = {.batch_size = 1, .sequence_length = 128};
        const octet_config *config =
            fixture_config(&f, cases[i].model, SETTINGS("quantization=fp8_full", cases[i].setting));
        octet_plan *plan;
        ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &size, NULL, &plan, &f.err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.field, cases[i].field);
    }
    fixture_end(&f);
}
END_TEST

/* A sum that does not fit is the largest number, never a smaller one, and check says so. */
START_TEST(sums_that_do_not_fit_are_told)
{
    struct fixture f;
    struct octet_graph_options size = {.batch_size = 1 << 24, .sequence_length = 4096};
    const struct octet_finding *items;
    size_t count;

    fixture_begin(&f);
    const octet_config *config = fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full"));
    octet_plan *plan;
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &size, NULL, &plan, &f.err),
                     OCTET_OK);
    ck_assert_int_eq(octet_plan_totals(plan)->flops_forward, INT64_MAX);
    ck_assert_int_eq(
        octet_check(f.context, f.arena, config, plan, NULL, NULL, &items, &count, &f.err),
        OCTET_OK);
    struct found found = {items, count};
    ck_assert_ptr_nonnull(finding(found, "too-large"));
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

START_TEST(what_cannot_be_traced_is_a_finding)
{
    struct fixture f;

    fixture_begin(&f);
    struct found found = check_with(&f, "deepseek-custom", SETTINGS("quantization=fp8_full"), NULL);
    ck_assert_ptr_nonnull(strstr(finding(found, "unknown-layer")->message, "engram"));
    fixture_end(&f);
}
END_TEST

START_TEST(what_is_traced_and_not_run_is_told)
{
    static const struct {
        const char *model, *setting, *subject; /* subject NULL: it runs */
    } cases[] = {{"deepseek3.2-671b", "indexer_topk=127", "use_indexer"},
                 {"deepseek3.2-671b", "indexer_topk=128", NULL},
                 {"llama2-7b", "moba=true", "moba"},
                 {"deepseek3-tiny", "mhc_expansion_rate=4", "mhc_expansion_rate"},
                 {"deepseek3-tiny", "mhc_expansion_rate=1", NULL},
                 {"deepseek3-tiny", "dtype=float16", "dtype"},
                 {"deepseek3-tiny", "weight_dtype=float16", "weight_dtype"}};
    struct fixture f;

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found = check_with(&f, cases[i].model, SETTINGS(cases[i].setting), NULL);
        const struct octet_finding *told = finding(found, "trace-only");
        ck_assert_msg(!told == !cases[i].subject, "%s", cases[i].setting);
        if (told)
            ck_assert_str_eq(told->subject, cases[i].subject);
    }
    fixture_end(&f);
}
END_TEST

TCase *check_tests(void)
{
    TCase *tests = tcase_create("check");

    tcase_add_test(tests, a_sound_config_has_no_findings);
    tcase_add_test(tests, what_is_assumed_is_told);
    tcase_add_test(tests, sensitive_matmuls_are_told);
    tcase_add_test(tests, risks_of_a_mixture_of_experts_are_told);
    tcase_add_test(tests, settings_that_ragged_dot_ignores_are_told);
    tcase_add_test(tests, tiles_that_maxtext_asserts_on_are_predicted);
    tcase_add_test(tests, crashes_of_maxtext_are_predicted);
    tcase_add_test(tests, required_and_forbidden_modules_are_held);
    tcase_add_test(tests, a_bad_pattern_names_its_place);
    tcase_add_test(tests, settings_without_effect_and_overrides_are_listed);
    tcase_add_test(tests, sizes_that_make_no_model_name_their_key);
    tcase_add_test(tests, sums_that_do_not_fit_are_told);
    tcase_add_test(tests, what_cannot_be_traced_is_a_finding);
    tcase_add_test(tests, what_is_traced_and_not_run_is_told);
    return tests;
}
