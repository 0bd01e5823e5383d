/* MaxText's quantization keys -> rules, against the rules of the providers that the real MaxText
 * made.
 *
 * What could break: a value with other rules than MaxText's, a key that MaxText would refuse and
 * that passes here (or the other way round), a message that names the wrong key. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/octet.h"

#define DATA OCTET_SOURCE_DIR "/tests/golden/data/rules/maxtext.json"

static octet_context *context;
static octet_arena *arena;
static struct octet_error err;

static void begin(void)
{
    ck_assert_int_eq(octet_context_create(NULL, &context, &err), OCTET_OK);
    arena = octet_arena_create(64 << 20);
    ck_assert_ptr_nonnull(arena);
}

static void end(void)
{
    octet_arena_destroy(arena);
    octet_context_destroy(context);
}

/* settings: "key=value", up to NULL. */
static enum octet_status rules_of(const char *model, const char *const *settings, octet_rules **out)
{
    struct octet_pair pairs[32];
    struct octet_config_input input = {.name = model, .overrides = pairs};
    const octet_config *config;

    for (; *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        pairs[input.override_count++] = (struct octet_pair){
            octet_arena_copy(arena, *settings, (size_t)(equals - *settings)), equals + 1};
    }
    enum octet_status status = octet_config_build(context, arena, &input, &config, &err);
    return status ? status : octet_rules_from_config(context, config, out, &err);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- against MaxText ---- */

static void expect_text(const json_t *wanted, const char *key, const char *text)
{
    const json_t *value = json_object_get(wanted, key);
    const char *string = json_is_string(value) ? json_string_value(value) : "";

    ck_assert_msg(!strcmp(string, text), "%s is '%s', MaxText has '%s'", key, text, string);
}

/* A whole number is an int there, "1/4" a float. */
static void expect_tile(const json_t *wanted, const char *key, const char *text)
{
    const json_t *value = json_object_get(wanted, key);

    if (json_is_null(value))
        ck_assert_str_eq(text, "");
    else if (json_is_integer(value))
        ck_assert_int_eq(strtoll(text, NULL, 10), json_integer_value(value));
    else
        ck_assert_msg(!strncmp(text, "1/", 2) &&
                          1.0 / strtod(text + 2, NULL) == json_real_value(value),
                      "%s is %s, MaxText has %g", key, text, json_real_value(value));
}

static void expect_axes(const json_t *wanted, const char *key, const int32_t *axes, size_t count)
{
    const json_t *list = json_object_get(wanted, key);

    ck_assert_uint_eq(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(json_integer_value(json_array_get(list, i)), axes[i]);
}

static void expect_sparsity(const json_t *wanted, const struct octet_sparsity *sparsity)
{
    const json_t *value = json_object_get(wanted, "sparsity");

    ck_assert_int_eq(json_is_null(value), sparsity->m == 0);
    if (json_is_null(value))
        return;
    ck_assert_int_eq(json_integer_value(json_object_get(value, "n")), sparsity->n);
    ck_assert_int_eq(json_integer_value(json_object_get(value, "m")), sparsity->m);
    ck_assert_int_eq(json_integer_value(json_object_get(value, "start_step")),
                     sparsity->start_step);
    ck_assert_int_eq(json_integer_value(json_object_get(value, "update_step")),
                     sparsity->update_step);
}

/* The count of keys sees to it that no field of MaxText's is passed over. */
static void expect_rule(const json_t *wanted, const struct octet_rule *rule)
{
    const json_t *ops = json_object_get(wanted, "op_names");

    ck_assert_uint_eq(json_object_size(wanted), 17);
    expect_text(wanted, "module_path", rule->module_path);
    expect_text(wanted, "weight_qtype", rule->weight_qtype);
    expect_text(wanted, "act_qtype", rule->act_qtype);
    expect_text(wanted, "bwd_qtype", rule->bwd_qtype);
    expect_text(wanted, "weight_calibration_method", rule->weight_calibration_method);
    expect_text(wanted, "act_calibration_method", rule->act_calibration_method);
    expect_text(wanted, "bwd_calibration_method", rule->bwd_calibration_method);
    expect_text(wanted, "bwd_stochastic_rounding", rule->bwd_stochastic_rounding);
    expect_tile(wanted, "tile_size", rule->tile_size);
    expect_tile(wanted, "bwd_weight_grad_tile_size", rule->bwd_weight_grad_tile_size);
    expect_axes(wanted, "act_batch_axes", rule->act_batch_axes, rule->act_batch_axis_count);
    expect_axes(wanted, "channelwise_noise_axes", rule->channelwise_noise_axes,
                rule->channelwise_noise_axis_count);
    expect_sparsity(wanted, &rule->sparsity);
    ck_assert(json_is_true(json_object_get(wanted, "act_static_scale")) == rule->act_static_scale);
    ck_assert(json_is_true(json_object_get(wanted, "disable_channelwise_axes")) ==
              rule->disable_channelwise_axes);
    ck_assert(json_is_null(json_object_get(wanted, "additional_qt_config")));
    ck_assert_uint_eq(rule->additional_qt_config_count, 0);
    ck_assert_uint_eq(json_array_size(ops), rule->op_name_count);
    for (size_t i = 0; i < rule->op_name_count; i++)
        ck_assert_str_eq(json_string_value(json_array_get(ops, i)), rule->op_names[i]);
}

/* "key=value" as a person types it. */
static const char *setting_text(const char *key, const json_t *value)
{
    const char *text;

    if (json_is_string(value))
        text = octet_arena_format(arena, "%s=%s", key, json_string_value(value));
    else if (json_is_integer(value))
        text = octet_arena_format(arena, "%s=%lld", key, (long long)json_integer_value(value));
    else
        text = octet_arena_format(arena, "%s=%s", key,
                                  json_is_null(value)   ? "null"
                                  : json_is_true(value) ? "true"
                                                        : "false");
    ck_assert_ptr_nonnull(text);
    return text;
}

static bool check_case(json_t *row)
{
    const char *settings[32] = {"use_qwix_quantization=false"}, *key;
    const json_t *wanted = json_object_get(row, "rules");
    bool accepts = !strcmp(json_string_value(json_object_get(row, "octet")), "accepts");
    octet_rules *rules = NULL;
    size_t count = 1;
    json_t *value;

    json_object_foreach(json_object_get(row, "config"), key, value) settings[count++] =
        setting_text(key, value);
    enum octet_status status = rules_of(NULL, settings, &rules);
    char *shown = json_dumps(json_object_get(row, "config"), JSON_COMPACT);
    ck_assert_msg((status == OCTET_OK) == accepts, "%s: %s", shown, status ? err.text : "accepted");
    if (status) {
        ck_assert_int_eq(status, OCTET_INVALID_ARGUMENT);
        ck_assert_msg(err.field[0] && !strstr(err.field, "rules["), "%s: %s", shown, err.field);
    } else {
        ck_assert_uint_eq(octet_rules_count(rules), json_array_size(wanted));
        for (size_t i = 0; i < octet_rules_count(rules); i++)
            expect_rule(json_array_get(wanted, i), octet_rules_get(rules, i));
    }
    free(shown);
    octet_rules_unref(rules);
    return accepts && json_array_size(wanted);
}

START_TEST(rules_are_maxtexts)
{
    json_error_t error;
    json_t *root = json_load_file(DATA, 0, &error);
    json_t *cases = json_object_get(root, "cases");
    size_t with_rules = 0;

    ck_assert_msg(root != NULL, "%s", error.text);
    for (size_t i = 0; i < json_array_size(cases); i++)
        with_rules += check_case(json_array_get(cases, i));
    printf("maxtext.json: %zu configs, %zu of them with rules\n", json_array_size(cases),
           with_rules);
    ck_assert_uint_ge(json_array_size(cases), 97);
    ck_assert_uint_ge(with_rules, 50);
    json_decref(root);
}
END_TEST

/* ---- what MaxText refuses ---- */

static const struct {
    const char *settings[8];
    const char *field, *text; /* field NULL: accepted */
} checks[] = {
    {{"quantize_mtp=true", "quantization=fp8_full"}, "quantize_mtp", "mtp_num_layers is 0"},
    {{"quantize_mtp=true", "mtp_num_layers=1", "quantization=fp8"},
     "quantize_mtp",
     "quantization is 'fp8'"},
    {{"quantize_mtp=true", "mtp_num_layers=1"}, "quantize_mtp", "quantization is ''"},
    {{"quantize_mtp=true", "mtp_num_layers=2", "quantization=fp8_full"}, NULL, NULL},
    {{"use_sliced_mla_proj=true", "quantization=int8", "use_qwix_quantization=false"},
     "use_sliced_mla_proj",
     "use_qwix_quantization=false"},
    {{"use_sliced_mla_proj=true", "quantization=fp8_full", "use_batch_split_schedule=true"},
     "use_sliced_mla_proj",
     "use_batch_split_schedule=true"},
    {{"use_sliced_mla_proj=true", "use_batch_split_schedule=true", "use_qwix_quantization=true"},
     "use_sliced_mla_proj",
     "use_batch_split_schedule=true"},
    {{"use_sliced_mla_proj=true", "use_batch_split_schedule=true"}, NULL, NULL},
    {{"use_sliced_mla_proj=true", "quantization=fp8_full"}, NULL, NULL},
    {{"use_sliced_mla_proj=true", "quantization=int8"}, NULL, NULL},
    {{"use_batch_split_schedule=true", "quantization=int8"}, "quantization", "only fp8_full does"},
    {{"use_manual_quantization=true"}, "use_manual_quantization", "use_batch_split_schedule=true"},
    {{"use_manual_quantization=true", "use_batch_split_schedule=true"}, NULL, NULL},
    {{"quantization=fp8", "gradient_accumulation_steps=2"},
     "gradient_accumulation_steps",
     "quantization=fp8"},
    {{"quantization=fp8_gpu", "gradient_accumulation_steps=2"},
     "gradient_accumulation_steps",
     "quantization=fp8_gpu"},
    {{"quantization=fp8_full", "gradient_accumulation_steps=2"}, NULL, NULL},
    {{"quantize_kvcache=true", "kv_quant_axis=''"}, "kv_quant_axis", "an axis is needed"},
    {{"experimental_sa_quant_q_fp8=true"}, "experimental_sa_quant_q_fp8", "attention_type=mla"},
    {{"experimental_sa_quant_k_fp8=true"}, "experimental_sa_quant_k_fp8", "attention_type=mla"},
    {{"quantization=nanoo_fp8"},
     "quantization",
     "'nanoo_fp8' is not carried out by Qwix; Octet knows int4, int8, fp4"},
    {{"quantization=te_mxfp8"}, "quantization", "'te_mxfp8'"},
    {{"quantization=intmp"}, "quantization", "'intmp'"},
    {{"quantization=int8", "use_qwix_quantization=false"},
     "use_qwix_quantization",
     "quantization=int8"},
    {{"quantization=int8", "quantization_local_shard_count=0"},
     "quantization_local_shard_count",
     "0; 1 or more"},
    {{"quantization=int8", "quantization_local_shard_count=-3"},
     "quantization_local_shard_count",
     "-3; 1 or more"},
    {{"quantization=fp8_full", "quantization_local_shard_count=0"}, NULL, NULL},
    {{"quantization=fp8_full", "act_quantization_calibration_method=median"},
     "act_quantization_calibration_method",
     "unknown calibration method"},
    {{"quantization=int8", "act_quantization_calibration_method=median"}, NULL, NULL},
    {{"quantization=fp8_full", "weight_sparsity_n=5", "weight_sparsity_m=4"},
     "weight_sparsity_n",
     "outside of 1 to m = 4"},
    {{"quantization=fp8_full", "weight_sparsity_n=2", "weight_sparsity_m=-4"},
     "weight_sparsity_m",
     "-4"},
    {{"quantization=int8", "weight_sparsity_n=5", "weight_sparsity_m=4"}, NULL, NULL},
};

START_TEST(what_maxtext_refuses_is_refused)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        octet_rules *rules = NULL;
        bool mla = !checks[i].field || !strstr(checks[i].field, "experimental");
        enum octet_status status =
            rules_of(mla ? "deepseek3-tiny" : "llama2-7b", checks[i].settings, &rules);
        if (!checks[i].field) {
            ck_assert_msg(!status, "row %zu: %s: %s", i, err.field, err.text);
            octet_rules_unref(rules);
            continue;
        }
        ck_assert_msg(status == OCTET_INVALID_ARGUMENT, "row %zu is accepted", i);
        ck_assert_msg(!strcmp(err.field, checks[i].field) && strstr(err.text, checks[i].text),
                      "row %zu: field '%s': %s", i, err.field, err.text);
    }
}
END_TEST

/* MaxText's base_url of the docs says "number of slices"; its code counts local devices. One is
 * known. */
START_TEST(the_shard_count_is_the_weight_gradients_tile)
{
    static const struct {
        const char *setting, *tile;
    } rows[] = {
        {"quantization_local_shard_count=-1", "1/1"},
        {"quantization_local_shard_count=1", "1/1"},
        {"quantization_local_shard_count=3", "1/3"},
        {"quantization_local_shard_count=256", "1/256"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        octet_rules *rules;
        enum octet_status status =
            rules_of("llama2-7b", SETTINGS("quantization=int8", rows[i].setting), &rules);
        ck_assert_int_eq(status, OCTET_OK);
        ck_assert_str_eq(octet_rules_get(rules, 0)->bwd_weight_grad_tile_size, rows[i].tile);
        octet_rules_unref(rules);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quantization");
    TCase *tests = tcase_create("quantization");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, rules_are_maxtexts);
    tcase_add_test(tests, what_maxtext_refuses_is_refused);
    tcase_add_test(tests, the_shard_count_is_the_weight_gradients_tile);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
