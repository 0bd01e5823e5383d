/* The YAML reader: values typed as MaxText's reader types them, and text that wants to hurt.
 *
 * What could break: a scalar that Python reads as a number and we as a text (then a setting is
 * refused or, worse, read as another value); hostile text that costs more than its limits; an
 * allocation failure that leaks, crashes or goes unnoticed. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/yaml.h"
#include "suites.h"

enum { BUDGET = 16 * 1024 * 1024, BYTES_MAX = 1024 * 1024 };

static octet_arena *arena;
static struct octet_error err;

static void setup(void)
{
    arena = octet_arena_create(BUDGET);
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    octet_arena_destroy(arena);
}

static enum octet_status parse_bytes(const char *text, size_t length, const struct oct_yaml **out)
{
    *out = NULL;
    return oct_yaml_parse(arena, text, length, BYTES_MAX, out, &err);
}

static const struct oct_yaml *parse(const char *text)
{
    const struct oct_yaml *tree;

    ck_assert_msg(!parse_bytes(text, strlen(text), &tree), "%s: %s", text, err.text);
    return tree;
}

/* The text must be refused with a message that holds `why`. */
static void refused(const char *text, size_t length, const char *why)
{
    const struct oct_yaml *tree;

    ck_assert_int_eq(parse_bytes(text, length, &tree), OCTET_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' does not say '%s'", err.text, why);
    ck_assert_str_eq(err.field, "");
}

static void check_scalar(const char *text, const char *kind, const char *value)
{
    struct oct_yaml got = {0};

    oct_yaml_resolve(text, &got);
    if (!strcmp(kind, "text")) {
        ck_assert_msg(got.kind == OCT_YAML_TEXT, "'%s' is a text", text);
    } else if (!strcmp(kind, "null")) {
        ck_assert_msg(got.kind == OCT_YAML_NULL, "'%s' is nothing", text);
    } else if (!strcmp(kind, "bool")) {
        ck_assert_msg(got.kind == OCT_YAML_BOOL, "'%s' is a bool", text);
        ck_assert_msg(got.boolean == !strcmp(value, "true"), "'%s' is %s", text, value);
    } else if (!strcmp(kind, "int")) {
        char printed[32];
        ck_assert_msg(got.kind == OCT_YAML_INT, "'%s' is an int", text);
        snprintf(printed, sizeof printed, "%lld", (long long)got.integer);
        /* Python's integers have no end; ours say that they left theirs. */
        ck_assert_msg(got.too_large != !strcmp(printed, value), "'%s' is %s, not %s", text, value,
                      printed);
    } else {
        double wanted = strtod(value, NULL); /* hexadecimal, "inf", "nan" */
        ck_assert_msg(got.kind == OCT_YAML_FLOAT, "'%s' is a float", text);
        if (isnan(wanted))
            ck_assert_msg(isnan(got.number), "'%s' is not a number", text);
        else
            ck_assert_msg(!memcmp(&wanted, &got.number, sizeof wanted), "'%s' is %a, not %a", text,
                          wanted, got.number);
    }
}

START_TEST(scalars_are_typed_as_python_does)
{
    FILE *file = fopen(OCTET_SOURCE_DIR "/tests/golden/data/yaml/scalars.tsv", "r");
    char line[512];
    int count = 0;

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        char *kind = strchr(line, '\t'), *value = kind ? strchr(kind + 1, '\t') : NULL;
        ck_assert_msg(value != NULL, "bad row: %s", line);
        *kind++ = '\0';
        *value++ = '\0';
        check_scalar(line, kind, value);
        count++;
    }
    fclose(file);
    printf("scalars: %d rows\n", count);
    ck_assert_int_gt(count, 1000);
}
END_TEST

START_TEST(tree_has_the_documents_shape)
{
    const struct oct_yaml *tree =
        parse("# head\na: 1\nb: [x, 'y', [2.5]]\n\"c d\": {e: ~, f: yes}\n");

    ck_assert_int_eq(tree->kind, OCT_YAML_MAP);
    ck_assert_uint_eq(tree->count, 3);
    const struct oct_yaml *a = tree->first, *b = a->next, *c = b->next;
    ck_assert_str_eq(a->key, "a");
    ck_assert_int_eq(a->line, 2);
    ck_assert_int_eq(a->integer, 1);
    ck_assert_int_eq(b->kind, OCT_YAML_LIST);
    ck_assert_uint_eq(b->count, 3);
    ck_assert_str_eq(b->first->text, "x");
    ck_assert(!b->first->quoted && b->first->next->quoted);
    ck_assert_ptr_null(b->first->key);
    ck_assert_double_eq(b->first->next->next->first->number, 2.5);
    ck_assert_str_eq(c->key, "c d");
    ck_assert_ptr_null(c->next);
    ck_assert_int_eq(oct_yaml_get(c, "e")->kind, OCT_YAML_NULL);
    ck_assert(oct_yaml_get(c, "f")->boolean);
    ck_assert_ptr_null(oct_yaml_get(c, "g"));
    ck_assert_ptr_null(oct_yaml_get(a, "g"));
}
END_TEST

START_TEST(quotes_and_tags_make_texts)
{
    const struct oct_yaml *tree = parse("[\"1\", '', !!str 2, ! 3, 5]");
    const struct oct_yaml *item = tree->first;
    const char *const texts[] = {"1", "", "2", "3"};

    for (size_t i = 0; i < 4; i++, item = item->next) {
        ck_assert_int_eq(item->kind, OCT_YAML_TEXT);
        ck_assert_str_eq(item->text, texts[i]);
    }
    ck_assert_int_eq(parse("a: |\n  4\n")->first->kind, OCT_YAML_TEXT);
    refused("!!python/object/apply:os.system ['true']", 40, "unsupported tag");
    refused("!!int 4", 7, "unsupported tag");
    refused("!!str [4]", 9, "tagged as a text");
}
END_TEST

START_TEST(empty_text_is_nothing)
{
    ck_assert_int_eq(parse("")->kind, OCT_YAML_NULL);
    ck_assert_int_eq(parse("# only words\n")->kind, OCT_YAML_NULL);
    ck_assert_int_eq(parse("---\n")->kind, OCT_YAML_NULL);
}
END_TEST

START_TEST(aliases_share_and_merge_keys_resolve)
{
    const struct oct_yaml *tree =
        parse("base: &b {x: 1, y: 2}\nc: &c {y: 3, z: 4}\nd: {<<: [*b, *c], x: 5}\ne: *b\n");
    const struct oct_yaml *d = oct_yaml_get(tree, "d"), *e = oct_yaml_get(tree, "e");

    ck_assert_uint_eq(d->count, 3);
    ck_assert_int_eq(oct_yaml_get(d, "x")->integer, 5); /* its own key wins */
    ck_assert_int_eq(oct_yaml_get(d, "y")->integer, 2); /* then the earlier map */
    ck_assert_int_eq(oct_yaml_get(d, "z")->integer, 4);
    ck_assert_int_eq(oct_yaml_get(e, "x")->integer, 1);
    ck_assert_str_eq(e->key, "e");
    refused("a: *nobody", 10, "unknown alias 'nobody'");
    refused("a: &a [*a]", 10, "holds itself");
    refused("a: {<<: 3}", 10, "merge key");
}
END_TEST

START_TEST(mistakes_are_named_with_their_line)
{
    refused("a: 1\nb: 2\na: 3\n", 15, "line 3: key 'a' stands twice (first in line 1)");
    refused("a: [1, 2\n", 9, "line 2, column 1: did not find expected");
    refused("a: 1\n\tb: 2\n", 11, "line 2");
    refused("[a, b]: 1", 9, "a key is a list");
    refused("a: 1\n---\nb: 2\n", 14, "second document");
}
END_TEST

START_TEST(bytes_that_are_no_text_are_refused)
{
    refused("a: \"x\\0y\"", 9, "NUL");
    refused("a: x\0y", 6, "control characters");
    refused("a: \xff\xfe", 5, "UTF-8");
    refused("a: \xc0\xaf", 5, "UTF-8");
    refused("\xff\xfe"
            "a\0:\0",
            6, "UTF-8"); /* UTF-16 */
}
END_TEST

static char *repeat(const char *piece, size_t times, size_t *length)
{
    size_t n = strlen(piece);
    char *text = malloc(n * times + 1);

    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, piece, n);
    text[n * times] = '\0';
    *length = n * times;
    return text;
}

START_TEST(hostile_text_costs_at_most_its_limits)
{
    static const struct {
        const char *piece;
        size_t times;
        const char *why;
    } rows[] = {
        {"[", 100000, "nested deeper than 32"},
        {"{a: ", 50000, "nested deeper than 32"},
        {"- ", 100000, "nested deeper than 32"},
        {"- 1\n", 40000, "more than 32768 values"},
        {"&a ", 1000, "line 1"},
        {"- &a 1\n", 300, "more than 256 anchors"},
        {"? ", 100000, "a key is a list, a mapping"},
        {"a", 1100000, "at most 1048576"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length;
        char *text = repeat(rows[i].piece, rows[i].times, &length);
        refused(text, length, rows[i].why);
        free(text);
        ck_assert_uint_le(octet_arena_held(arena), BUDGET);
    }
}
END_TEST

START_TEST(a_bomb_of_aliases_is_refused)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");

    for (int i = 1; i < 12; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1,
                      i - 1, i - 1, i - 1);
    refused(text, (size_t)n, "more than 32768 values");
}
END_TEST

START_TEST(long_keys_and_texts_are_kept_whole)
{
    size_t length;
    char *key = repeat("k", 1000, &length);
    char *text = malloc(2 * length + 3);
    snprintf(text, 2 * length + 3, "%s: %s", key, key);
    const struct oct_yaml *tree = parse(text);

    ck_assert_str_eq(tree->first->key, key);
    ck_assert_str_eq(tree->first->text, key);
    free(text);
    free(key);
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    static const char text[] = "a: &a {x: [1, 2]}\nb: {<<: *a, y: 'z'}\nc: *a\n";
    uint64_t n = 1;

    for (;; n++) {
        const struct oct_yaml *tree = NULL;
        octet_arena_reset(arena);
        octet_arena_fail_at(arena, n);
        enum octet_status status =
            oct_yaml_parse(arena, text, strlen(text), BYTES_MAX, &tree, &err);
        octet_arena_fail_at(arena, 0);
        if (!status)
            break;
        ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        ck_assert_ptr_null(tree);
    }
    ck_assert_uint_gt(n, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("files");
    TCase *yaml = tcase_create("yaml");

    tcase_add_checked_fixture(yaml, setup, teardown);
    tcase_add_test(yaml, scalars_are_typed_as_python_does);
    tcase_add_test(yaml, tree_has_the_documents_shape);
    tcase_add_test(yaml, quotes_and_tags_make_texts);
    tcase_add_test(yaml, empty_text_is_nothing);
    tcase_add_test(yaml, aliases_share_and_merge_keys_resolve);
    tcase_add_test(yaml, mistakes_are_named_with_their_line);
    tcase_add_test(yaml, bytes_that_are_no_text_are_refused);
    tcase_add_test(yaml, hostile_text_costs_at_most_its_limits);
    tcase_add_test(yaml, a_bomb_of_aliases_is_refused);
    tcase_add_test(yaml, long_keys_and_texts_are_kept_whole);
    tcase_add_test(yaml, every_failed_allocation_is_reported);
    suite_add_tcase(suite, yaml);
    suite_add_tcase(suite, safetensors_case());
    suite_add_tcase(suite, safetensors_write_case());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
