/* Configs against what the real MaxText has and does.
 *
 * What could break: a default or a model's value that differs from MaxText's; text that MaxText
 * reads as another value, or refuses; any of them would make a trace of another model than the
 * user's. The facts in tests/golden/data/maxtext were recorded from the real MaxText; rows where
 * Octet deliberately differs say how and why ("octet", "why"). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config_fixture.h"
#include "files/yaml.h"
#include "models/value.h"

#define DATA OCTET_SOURCE_DIR "/tests/golden/data/maxtext/"

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);

    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    return root;
}

static bool list_equals(const struct oct_yaml *node, const json_t *wanted);

/* Does YAML text say the same as JSON? Numbers by value, the rest by kind too. */
static bool node_equals(const struct oct_yaml *node, const json_t *wanted)
{
    if (json_is_array(wanted))
        return list_equals(node, wanted);
    if (json_is_object(wanted)) /* only empty ones are recorded */
        return node->kind == OCT_YAML_MAP && node->count == json_object_size(wanted);
    if (json_is_boolean(wanted))
        return node->kind == OCT_YAML_BOOL && node->boolean == json_is_true(wanted);
    if (json_is_null(wanted))
        return node->kind == OCT_YAML_NULL;
    if (json_is_string(wanted)) {
        const char *text = json_string_value(wanted);
        if (!strcmp(text, ".inf"))
            return node->kind == OCT_YAML_FLOAT && isinf(node->number) && node->number > 0;
        return node->kind == OCT_YAML_TEXT && !strcmp(node->text, text);
    }
    if (json_is_integer(wanted) && node->kind == OCT_YAML_INT)
        return node->integer == json_integer_value(wanted);
    return (node->kind == OCT_YAML_INT || node->kind == OCT_YAML_FLOAT) && json_is_number(wanted) &&
           node->number == json_number_value(wanted);
}

static bool list_equals(const struct oct_yaml *node, const json_t *wanted)
{
    size_t i = 0;

    if (node->kind != OCT_YAML_LIST || node->count != json_array_size(wanted))
        return false;
    for (const struct oct_yaml *item = node->first; item; item = item->next)
        if (!node_equals(item, json_array_get(wanted, i++)))
            return false;
    return true;
}

static bool setting_equals(const octet_config *config, const char *key, const json_t *wanted)
{
    struct octet_setting setting = setting_of(config, key);
    const struct oct_yaml *node;

    ck_assert_msg(!oct_yaml_parse(arena, setting.text, strlen(setting.text), 1 << 20, &node, &err),
                  "%s: '%s' is no YAML: %s", key, setting.text, err.text);
    return node_equals(node, wanted);
}

static void expect(const octet_config *config, const char *whose, const char *key,
                   const json_t *wanted)
{
    if (setting_equals(config, key, wanted))
        return;
    char *shown = json_dumps(wanted, JSON_ENCODE_ANY | JSON_COMPACT);
    ck_abort_msg("%s: %s is '%s', MaxText has %s", whose, key, setting_of(config, key).text, shown);
}

static size_t count_from_model(const octet_config *config)
{
    size_t count = 0;

    for (int key = 0; key < OCT_KEY_COUNT; key++)
        count += oct_config_origin(config, (enum oct_key)key) == OCTET_FROM_MODEL;
    return count;
}

/* Qwen3 MoE models get their dense width from their experts', as MaxText does after reading. */
static bool is_derived_width(const octet_config *config, const char *key)
{
    return !strcmp(key, "base_mlp_dim") &&
           oct_config_text_is(config, OCT_KEY_decoder_block, "qwen3_moe");
}

static size_t check_models(const char *path)
{
    json_t *root = load(path), *keys, *value;
    const char *name, *key;
    size_t values = 0, models = 0;

    json_object_foreach(json_object_get(root, "models"), name, keys)
    {
        octet_arena_reset(arena);
        const octet_config *config = config_of(name, NULL, NULL, NULL);
        ck_assert_str_eq(octet_config_model_name(config), name);
        json_object_foreach(keys, key, value)
        {
            if (!is_derived_width(config, key))
                expect(config, name, key, value);
            values++;
        }
        /* Nothing but what MaxText has, and the name. */
        ck_assert_uint_eq(count_from_model(config), json_object_size(keys) + 1);
        ck_assert_str_eq(octet_model_name(models), name); /* the file is sorted too */
        models++;
    }
    json_decref(root);
    ck_assert_uint_eq(models, octet_model_count());
    ck_assert_ptr_null(octet_model_name(models));
    printf("models: %zu models, %zu values\n", models, values);
    return models;
}

START_TEST(every_model_reads_back_equal)
{
    ck_assert_uint_eq(check_models(DATA "models.json"), 54);
}
END_TEST

START_TEST(defaults_are_maxtexts)
{
    json_t *root = load(DATA "base_defaults.json"), *value;
    const octet_config *config = config_of(NULL, NULL, NULL, NULL);
    const char *key;
    size_t count = 0, i;

    json_object_foreach(json_object_get(root, "defaults"), key, value)
    {
        count++;
        if (!strcmp(key, "attention"))
            ck_assert_str_eq(setting_of(config, key).text, "dot_product");
        else if (!strcmp(key, "use_qwix_quantization"))
            ck_assert_str_eq(setting_of(config, key).text, "true");
        else if (json_is_string(value) && !strcasecmp(json_string_value(value), "none"))
            expect(config, "defaults", key, json_null());
        else if (!strcmp(key, "attn_logits_soft_cap") || !strcmp(key, "final_logits_soft_cap"))
            ck_assert_str_eq(setting_of(config, key).text, "null"); /* 0 means none */
        else if (!strcmp(key, "mu_dtype"))
            ck_assert_str_eq(setting_of(config, key).text, "float32"); /* '' means weight_dtype */
        else if (!strcmp(key, "learning_rate_schedule_steps"))
            expect(
                config, "defaults", key,
                json_object_get(json_object_get(root, "defaults"), "steps")); /* -1 means steps */
        else if (!strcmp(key, "quantization_local_shard_count"))
            ck_assert_str_eq(setting_of(config, key).text, "1"); /* -1 means devices */
        else if (!strcmp(key, "eval_per_device_batch_size"))
            ck_assert_str_eq(setting_of(config, key).text, "12.0"); /* 0 means the training one */
        else
            expect(config, "defaults", key, value);
    }
    ck_assert_uint_eq(count, 515);
    json_array_foreach(json_object_get(root, "all_keys"), i, value)
    {
        const char *name = json_string_value(value);
        ck_assert_str_eq(setting_of(config, name).key, name);
    }
    ck_assert_uint_eq(i, 697);
    printf("defaults: %zu values, %zu keys\n", count, i);
    json_decref(root);
}
END_TEST

/* The settings that the recorded runs had, and MaxText's own defaults where Octet's differ. */
static size_t recorded_base(const char **words)
{
    static const char *const base[] = {"run_name=r",
                                       "base_output_directory=/tmp/o",
                                       "skip_jax_distributed_system=true",
                                       "hardware=cpu",
                                       "dataset_type=synthetic",
                                       "log_config=false",
                                       "attention=autoselected",
                                       "use_qwix_quantization=false"};

    memcpy(words, base, sizeof base);
    return sizeof base / sizeof base[0];
}

static enum octet_status run_row(const json_t *row, const octet_config **config)
{
    const char *words[PAIRS_MAX], *variables[PAIRS_MAX], *key;
    const json_t *args = json_object_get(row, "args");
    json_t *value;
    size_t count = recorded_base(words), n = 0;

    for (size_t i = 0; i < json_array_size(args); i++)
        words[count++] = json_string_value(json_array_get(args, i));
    words[count] = NULL;
    json_object_foreach(json_object_get(row, "env"), key, value)
    {
        variables[n++] = octet_arena_format(arena, "%s=%s", key, json_string_value(value));
    }
    variables[n] = NULL;
    return try_config(NULL, NULL, variables, words, config);
}

/* The key that the row is about must be the field of the error, as far as one is named. */
static void check_refusal(const json_t *row, const char *shown)
{
    const char *arg = json_string_value(json_array_get(json_object_get(row, "args"), 0));

    ck_assert_msg(err.status == OCTET_INVALID_ARGUMENT || err.status == OCTET_NOT_FOUND, "%s: %s",
                  shown, octet_status_name(err.status));
    ck_assert_msg(err.text[0] != '\0', "%s: no reason is given", shown);
    ck_assert_msg(err.field[0] != '\0' || !arg, "%s: no field is named (%s)", shown, err.text);
}

/* What is wrong with a quantization is said when its rules are made. */
static void check_rules_refuse(const octet_config *config, const char *shown)
{
    octet_rules *rules = NULL;
    enum octet_status status = octet_rules_from_config(context, config, &rules, &err);

    ck_assert_msg(status == OCTET_INVALID_ARGUMENT && err.field[0], "%s: rules are made", shown);
    ck_assert_ptr_null(rules);
}

static void check_row(const json_t *row, const char *shown)
{
    const char *octet = json_string_value(json_object_get(row, "octet"));
    bool accepted_there = !json_object_get(row, "error");
    bool wanted = octet ? !strcmp(octet, "accepts") : accepted_there;
    const octet_config *config;
    json_t *value;
    const char *key;
    enum octet_status status = run_row(row, &config);

    if (octet) /* a difference that is none would hide others */
        ck_assert_msg(wanted != accepted_there && json_object_get(row, "why"), "%s", shown);
    ck_assert_msg(!status == wanted, "%s: Octet %s (%s: %s)", shown, status ? "refuses" : "accepts",
                  err.field, err.text);
    if (status) {
        check_refusal(row, shown);
        return;
    }
    if (!accepted_there) {
        const char *why = json_string_value(json_object_get(row, "why"));
        if (strstr(why, "octet_rules_from_config"))
            check_rules_refuse(config, shown);
        return;
    }
    json_object_foreach(json_object_get(row, "values"), key, value)
    {
        expect(config, shown, key, value);
    }
}

START_TEST(words_are_read_as_maxtext_reads_them)
{
    json_t *root = load(DATA "config_probe.json"), *row;
    size_t i, differ = 0;

    json_array_foreach(root, i, row)
    {
        char *shown = json_dumps(row, JSON_COMPACT);
        octet_arena_reset(arena);
        check_row(row, shown);
        differ += json_object_get(row, "octet") != NULL;
        free(shown);
    }
    printf("words: %zu rows, in %zu of them Octet differs on purpose\n", i, differ);
    ck_assert_uint_gt(i, 300);
    json_decref(root);
}
END_TEST

/* ---- single conversions: every key, 87 words, as pydantic takes them ---- */

/* Sizes are bounded here and not there. */
static bool is_sized(enum oct_key key)
{
    return oct_keys[key].limit >= OCT_LIMIT_WIDTH;
}

static bool value_equals(enum oct_key key, const struct oct_value *value, const json_t *wanted)
{
    const struct oct_yaml *node;
    const char *text = oct_value_text(arena, key, value);

    if (json_is_object(wanted) && json_object_get(wanted, "float")) {
        const char *special = json_string_value(json_object_get(wanted, "float"));
        return isnan(value->as.number)
                   ? !strcmp(special, "nan")
                   : isinf(value->as.number) && (*special == '-') == (value->as.number < 0);
    }
    if (json_is_object(wanted) && json_object_get(wanted, "big"))
        return oct_keys[key].kind == OCT_KIND_FLOAT &&
               value->as.number == strtod(json_string_value(json_object_get(wanted, "big")), NULL);
    if (json_is_object(wanted)) /* a mapping: kept as text */
        return oct_keys[key].kind == OCT_KIND_MAP;
    ck_assert_int_eq(oct_yaml_parse(arena, text, strlen(text), 1 << 20, &node, &err), OCTET_OK);
    return node_equals(node, wanted);
}

static void check_conversion(const char *name, const char *word, const json_t *wanted)
{
    enum oct_key key = oct_key_find(name);
    const struct oct_yaml *node;
    struct oct_value value;

    ck_assert_msg(key < OCT_KEY_COUNT, "%s", name);
    ck_assert_int_eq(oct_yaml_parse(arena, word, strlen(word), 1 << 20, &node, &err), OCTET_OK);
    enum octet_status status = oct_value_convert(arena, key, node, &value, &err);
    bool refused_there = json_object_get(wanted, "error") != NULL;
    bool huge = json_object_get(wanted, "big") || (is_sized(key) && !refused_there);
    if (status && huge)
        ck_assert_msg(strstr(err.text, "outside") || strstr(err.text, "64 bits"), "%s=%s: %s", name,
                      word, err.text);
    else
        ck_assert_msg(!status != refused_there, "%s=%s: MaxText %s it, Octet does not (%s)", name,
                      word, refused_there ? "refuses" : "takes", status ? err.text : "");
    if (!status)
        ck_assert_msg(value_equals(key, &value, wanted), "%s=%s is '%s'", name, word,
                      oct_value_text(arena, key, &value));
}

START_TEST(every_key_converts_as_pydantic_does)
{
    json_t *root = load(DATA "conversions.json"), *group, *name, *word;
    const json_t *words = json_object_get(root, "words");
    size_t i, k, w, count = 0;

    json_array_foreach(json_object_get(root, "groups"), i, group)
    {
        json_array_foreach(json_object_get(group, "keys"), k, name)
        {
            enum oct_key key = oct_key_find(json_string_value(name));
            if (key < OCT_KEY_COUNT && oct_keys[key].kind == OCT_KIND_ANY)
                continue; /* kept as text, whatever it is */
            if (key == OCT_KEY_model_name)
                continue; /* a list of names there, the known models here */
            if (key == OCT_KEY_dpo || key == OCT_KEY_lora)
                continue; /* mappings whose own keys are checked there, and not looked at here */
            octet_arena_reset(arena);
            json_array_foreach(words, w, word)
            {
                check_conversion(json_string_value(name), json_string_value(word),
                                 json_array_get(json_object_get(group, "results"), w));
                count++;
            }
        }
    }
    printf("conversions: %zu\n", count);
    ck_assert_uint_gt(count, 60000);
    json_decref(root);
}
END_TEST

/* The reference folder beside the project, where there is one, may hold more than our copy. */
static const char *reference_models(void)
{
    static char path[4096];
    const char *folder = getenv("OCTET_GOLDEN");

    snprintf(path, sizeof path, "%s/maxtext/models.json",
             folder ? folder : OCTET_SOURCE_DIR "/../shared/golden");
    return path;
}

START_TEST(the_reference_folder_agrees_too)
{
    check_models(reference_models());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_golden");
    TCase *golden = tcase_create("golden");

    tcase_add_checked_fixture(golden, config_setup, config_teardown);
    tcase_set_timeout(golden, 120);
    tcase_add_test(golden, every_model_reads_back_equal);
    tcase_add_test(golden, defaults_are_maxtexts);
    tcase_add_test(golden, words_are_read_as_maxtext_reads_them);
    tcase_add_test(golden, every_key_converts_as_pydantic_does);
    if (access(reference_models(), R_OK) == 0)
        tcase_add_test(golden, the_reference_folder_agrees_too);
    else
        printf("not run: the_reference_folder_agrees_too (no %s)\n", reference_models());
    suite_add_tcase(suite, golden);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
