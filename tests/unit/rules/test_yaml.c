/* Rules files.
 *
 * What could break: a misspelt key that is ignored, a value of another type that is taken, a
 * message without its line, a file that costs more than its size. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define EXAMPLES OCTET_SOURCE_DIR "/configs/rules"

static octet_rules *parse(struct fixture *f, const char *yaml)
{
    octet_rules *rules;
    enum octet_status status = octet_rules_parse(f->context, yaml, strlen(yaml), &rules, &f->err);

    ck_assert_msg(status == OCTET_OK, "%s: %s", f->err.field, f->err.text);
    return rules;
}

START_TEST(a_file_says_what_its_rules_say)
{
    static const char yaml[] = "# comment\n"
                               "rules:\n"
                               "- module_path: 'decoder/.*layers.*'\n"
                               "  op_names: [dot_general, gmm]\n"
                               "  weight_qtype: float8_e4m3fn\n"
                               "  act_qtype: float8_e4m3fn\n"
                               "  bwd_qtype: float8_e5m2\n"
                               "  weight_calibration_method: fixed,-224,224\n"
                               "  act_calibration_method: absmax, 0.5\n"
                               "  bwd_calibration_method: ~\n"
                               "  tile_size: 128\n"
                               "  bwd_weight_grad_tile_size: 0.25\n"
                               "  act_static_scale: yes\n"
                               "  disable_channelwise_axes: true\n"
                               "  bwd_stochastic_rounding: uniform\n"
                               "  act_batch_axes: [0, 1]\n"
                               "  channelwise_noise_axes: [1]\n"
                               "  sparsity: {n: 2, m: 4, start_step: 5, update_step: 6}\n"
                               "  additional_qt_config:\n"
                               "    disable_gradient_clipping: true\n"
                               "    dlhs_residual_qtype: null\n"
                               "    drhs_tile_size: 1/8\n"
                               "- {tile_size: 1/4, weight_qtype: int8}\n";
    static const char *const ops[] = {"dot_general", "gmm"};
    static const int32_t batch[] = {0, 1}, noise[] = {1};
    static const struct octet_pair additional[] = {{"disable_gradient_clipping", "true"},
                                                   {"dlhs_residual_qtype", ""},
                                                   {"drhs_tile_size", "1/8"}};
    static const struct octet_rule wanted[] = {
        {.module_path = "decoder/.*layers.*",
         .op_names = ops,
         .op_name_count = 2,
         .weight_qtype = "float8_e4m3fn",
         .act_qtype = "float8_e4m3fn",
         .bwd_qtype = "float8_e5m2",
         .weight_calibration_method = "fixed,-224,224",
         .act_calibration_method = "absmax,0.5",
         .tile_size = "128",
         .bwd_weight_grad_tile_size = "1/4",
         .act_static_scale = true,
         .disable_channelwise_axes = true,
         .bwd_stochastic_rounding = "uniform",
         .act_batch_axes = batch,
         .act_batch_axis_count = 2,
         .channelwise_noise_axes = noise,
         .channelwise_noise_axis_count = 1,
         .sparsity = {2, 4, 5, 6},
         .additional_qt_config = additional,
         .additional_qt_config_count = 3},
        {.tile_size = "1/4", .weight_qtype = "int8"},
    };
    uint64_t digest[2], wanted_digest[2];
    struct fixture f;

    fixture_begin(&f);
    octet_rules *rules = parse(&f, yaml), *same = fixture_rules(&f, wanted, 2);
    octet_rules_digest(rules, digest);
    octet_rules_digest(same, wanted_digest);
    ck_assert_mem_eq(digest, wanted_digest, sizeof digest);
    octet_rules_unref(same);
    octet_rules_unref(rules);
    fixture_end(&f);
}
END_TEST

START_TEST(anchors_and_merge_keys_work)
{
    static const char yaml[] = "rules:\n"
                               "- &fp8 {weight_qtype: float8_e4m3fn, op_names: &ops [gmm]}\n"
                               "- {<<: *fp8, module_path: a, op_names: [einsum]}\n"
                               "- {op_names: *ops}\n"
                               "- *fp8\n";
    struct fixture f;

    fixture_begin(&f);
    octet_rules *rules = parse(&f, yaml);
    ck_assert_uint_eq(octet_rules_count(rules), 4);
    ck_assert_str_eq(octet_rules_get(rules, 1)->weight_qtype, "float8_e4m3fn");
    ck_assert_str_eq(octet_rules_get(rules, 1)->op_names[0], "einsum");
    ck_assert_str_eq(octet_rules_get(rules, 2)->op_names[0], "gmm");
    ck_assert_str_eq(octet_rules_get(rules, 3)->op_names[0], "gmm");
    octet_rules_unref(rules);
    rules = parse(&f, "rules: []");
    ck_assert_uint_eq(octet_rules_count(rules), 0);
    octet_rules_unref(rules);
    fixture_end(&f);
}
END_TEST

static const struct {
    const char *yaml, *field, *text;
} refused[] = {
    {"", "", "line 1: nothing where a mapping, rules: [...], is expected"},
    {"- a\n", "", "line 1: a list where a mapping"},
    {"{}", "", "line 1: a mapping where the key 'rules' is expected"},
    {"\nrule: []\n", "", "line 2: 'rule' is no key of a rules file; the nearest is 'rules'"},
    {"rules: []\nother: 1\n", "", "line 2: 'other' is no key"},
    {"rules:\n", "rules", "line 1: nothing where a list of rules is expected"},
    {"rules: 3\n", "rules", "line 1: a whole number where a list"},
    {"rules:\n- 3\n", "rules[0]", "line 2: a whole number where a rule"},
    {"rules:\n- {}\n- module_pth: a\n", "rules[1]",
     "line 3: 'module_pth' is no key of a rule; the nearest is 'module_path'"},
    {"rules:\n- module_path: 12\n", "rules[0].module_path",
     "line 2: a whole number where a text (write it in quotes) is expected"},
    {"rules:\n- weight_qtype: [int8]\n", "rules[0].weight_qtype", "line 2: a list where a text"},
    {"rules:\n- op_names: dot_general\n", "rules[0].op_names",
     "line 2: a text where a list of ops such as [dot_general] is expected"},
    {"rules:\n- op_names:\n  - gmm\n  - 7\n", "rules[0].op_names", "line 4: a whole number where"},
    {"rules:\n- tile_size: true\n", "rules[0].tile_size", "line 2: true or false where a tile"},
    {"rules:\n- act_static_scale: 1\n", "rules[0].act_static_scale", "line 2: a whole number"},
    {"rules:\n- act_batch_axes: 0\n", "rules[0].act_batch_axes", "line 2: a whole number where"},
    {"rules:\n- act_batch_axes: []\n", "rules[0].act_batch_axes", "line 2: an empty list of axes"},
    {"rules:\n- act_batch_axes: [4294967296]\n", "rules[0].act_batch_axes", "beyond 32 bits"},
    {"rules:\n- sparsity: {k: 2}\n", "rules[0].sparsity", "line 2: 'k' is no key of a sparsity"},
    {"rules:\n- sparsity: {n: x}\n", "rules[0].sparsity.n", "line 2: a text where a whole number"},
    {"rules:\n- additional_qt_config: [a]\n", "rules[0].additional_qt_config", "line 2: a list"},
    {"rules:\n- additional_qt_config: {lhs_qtype: [a]}\n", "rules[0].additional_qt_config",
     "line 2: a list where one value"},
    /* Checks that come after reading lead back to their line. */
    {"rules:\n- {}\n- weight_qtype: int8\n  act_qtype: int9\n", "rules[1].act_qtype",
     "line 4: 'int9' is no quantized type"},
    {"rules:\n- sparsity:\n    n: 5\n    m: 4\n", "rules[0].sparsity.n", "line 3: 5 is outside"},
    {"rules:\n- module_path: a\n  additional_qt_config:\n    lhs_qtype: x\n",
     "rules[0].additional_qt_config[lhs_qtype]", "line 4: 'x' is no quantized type"},
    {"rules:\n- {}\n- module_path: a(\n", "rules[1].module_path", "line 3: '(' without its ')'"},
    {"rules:\n- weight_qtype: mxfp8\n", "rules[0].tile_size",
     "line 2: is not set: the tiles of weight_qtype 'mxfp8' have 32 elements"},
    /* The YAML itself. */
    {"rules: [\n", "", "line 2"},
    {"rules:\n- {a: 1}\n  b\n", "", "line "},
    {"rules:\n- {tile_size: 1, tile_size: 2}\n", "", "line 2: key 'tile_size' stands twice"},
    {"rules:\n- module_path: !!python/object:os.system x\n", "", "line 2: unsupported tag"},
    {"rules:\n- module_path: \"a\\0b\"\n", "", "line 2: a text holds a NUL character"},
    {"\"a\\nb\": 1\n\"a\\nb\": 2\n", "", "line 2: key 'a b' stands twice"},
    {"rules: []\n---\nrules: []\n", "", "line 2: a second document"},
    {"rules: &a [*a]\n", "", "line 1: a value holds itself"},
    {"\xff", "", ""},
};

START_TEST(bad_files_are_refused_with_line_and_field)
{
    struct fixture f;

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        octet_rules *rules = NULL;
        enum octet_status status =
            octet_rules_parse(f.context, refused[i].yaml, strlen(refused[i].yaml), &rules, &f.err);
        ck_assert_msg(status == OCTET_INVALID_ARGUMENT, "row %zu is accepted", i);
        ck_assert_msg(!strcmp(f.err.field, refused[i].field) && strstr(f.err.text, refused[i].text),
                      "row %zu: field '%s': %s", i, f.err.field, f.err.text);
        ck_assert_int_eq(
            octet_rules_parse(f.context, refused[i].yaml, strlen(refused[i].yaml), &rules, NULL),
            OCTET_INVALID_ARGUMENT);
    }
    fixture_end(&f);
}
END_TEST

static void refuse_text(struct fixture *f, const char *yaml, size_t length)
{
    octet_rules *rules = NULL;

    ck_assert_int_eq(octet_rules_parse(f->context, yaml, length, &rules, &f->err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_null(rules);
}

/* 9^11 texts, if aliases were copied. */
static void write_bomb(FILE *out)
{
    fprintf(out, "a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 12; i++) {
        fprintf(out, "a%d: &a%d [", i, i);
        for (int k = 0; k < 9; k++)
            fprintf(out, "%s*a%d", k ? ", " : "", i - 1);
        fprintf(out, "]\n");
    }
    fprintf(out, "rules: *a11\n");
}

START_TEST(hostile_files_cost_little)
{
    struct fixture f;
    char *text = NULL, *large = malloc(2 << 20);
    size_t length;

    ck_assert_ptr_nonnull(large);
    fixture_begin(&f);
    uint64_t begin = octet_now_ns();
    FILE *out = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(out);
    write_bomb(out);
    fclose(out);
    refuse_text(&f, text, length);
    memset(large, '[', 1 << 20);
    refuse_text(&f, large, 1 << 20);
    memset(large, ' ', 2 << 20);
    refuse_text(&f, large, (1 << 20) + 1);
    snprintf(large, 2 << 20, "rules: [{}");
    for (size_t i = 0; i < 256; i++)
        memcpy(large + 10 + 4 * i, ", {}", 5);
    large[10 + 4 * 256] = ']';
    refuse_text(&f, large, 10 + 4 * 256 + 1);
    ck_assert_str_eq(f.err.field, "rules");
    ck_assert_str_eq(f.err.text, "257 rules; at most 256 are allowed");
    ck_assert_uint_lt(octet_now_ns() - begin, UINT64_C(5000000000));
    free(text);
    free(large);
    fixture_end(&f);
}
END_TEST

static size_t parse_example(struct fixture *f, const char *name)
{
    char path[4096], text[16384];

    snprintf(path, sizeof path, "%s/%s", EXAMPLES, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    octet_rules *rules = parse(f, text);
    size_t count = octet_rules_count(rules);
    octet_rules_unref(rules);
    return count;
}

START_TEST(the_examples_are_good)
{
    struct fixture f;
    struct dirent **entries;
    int count = scandir(EXAMPLES, &entries, NULL, alphasort), examples = 0;

    ck_assert_int_gt(count, 0);
    fixture_begin(&f);
    for (int i = 0; i < count; i++) {
        if (strstr(entries[i]->d_name, ".yml")) {
            ck_assert_uint_gt(parse_example(&f, entries[i]->d_name), 0);
            examples++;
        }
        free(entries[i]);
    }
    free(entries);
    fixture_end(&f);
    printf("configs/rules: %d examples\n", examples);
    ck_assert_int_ge(examples, 3);
}
END_TEST

TCase *yaml_tests(void)
{
    TCase *tests = tcase_create("yaml");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_file_says_what_its_rules_say);
    tcase_add_test(tests, anchors_and_merge_keys_work);
    tcase_add_test(tests, bad_files_are_refused_with_line_and_field);
    tcase_add_test(tests, hostile_files_cost_little);
    tcase_add_test(tests, the_examples_are_good);
    return tests;
}
