/* Patterns: Python's re.fullmatch through PCRE2.
 *
 * What could break: syntax that the two engines read differently, syntax of only one of them, a
 * pattern that matches a part, one that runs for ever. It would show as a layer that a rule takes
 * here and not in Qwix, or as a lane that hangs. patterns.txt says what CPython does
 * (make_patterns.py). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define PATTERNS OCTET_SOURCE_DIR "/tests/unit/rules/patterns.txt"

/* ---- against CPython ---- */

/* "%41b" -> "Ab", in place; "%" alone is nothing at all. */
static void decode(char *text)
{
    char *out = text;

    for (; *text; text++) {
        unsigned value;
        if (*text != '%')
            *out++ = *text;
        else if (sscanf(text + 1, "%2x", &value) == 1) {
            *out++ = (char)value;
            text += 2;
        }
    }
    *out = '\0';
}

struct counts {
    int accepted, refused, matches, misses;
};

static void check_texts(struct fixture *f, const octet_pattern *pattern, const char *source,
                        char *texts, bool wanted, struct counts *counts)
{
    char *rest;

    for (char *text = strtok_r(texts, " ", &rest); text; text = strtok_r(NULL, " ", &rest)) {
        bool matches;
        decode(text);
        enum octet_status status = octet_pattern_match(pattern, text, &matches, &f->err);
        ck_assert_msg(!status, "'%s' on '%s': %s", source, text, f->err.text);
        ck_assert_msg(matches == wanted, "'%s' on '%s': Python says %d", source, text, wanted);
        *(wanted ? &counts->matches : &counts->misses) += 1;
    }
}

static octet_pattern *check_pattern(struct fixture *f, const char *source, bool wanted,
                                    struct counts *counts)
{
    octet_pattern *pattern = NULL;
    enum octet_status status = octet_pattern_create(f->context, source, &pattern, &f->err);

    ck_assert_msg((status == OCTET_OK) == wanted, "'%s': Python %s it, and here: %s", source,
                  wanted ? "accepts" : "refuses", status ? f->err.text : "accepted");
    ck_assert(wanted || status == OCTET_INVALID_ARGUMENT);
    *(wanted ? &counts->accepted : &counts->refused) += 1;
    return pattern;
}

START_TEST(patterns_mean_what_they_mean_in_python)
{
    static char line[65536], source[65536];
    struct counts counts = {0};
    struct fixture f;
    octet_pattern *pattern = NULL;
    FILE *file = fopen(PATTERNS, "r");

    ck_assert_ptr_nonnull(file);
    fixture_begin(&f);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == 'P' || line[0] == 'R') {
            octet_pattern_destroy(pattern);
            decode(line + 2);
            snprintf(source, sizeof source, "%s", line + 2);
            pattern = check_pattern(&f, source, line[0] == 'P', &counts);
        } else {
            check_texts(&f, pattern, source, line + 2, line[0] == '+', &counts);
        }
    }
    octet_pattern_destroy(pattern);
    fclose(file);
    fixture_end(&f);
    printf("patterns.txt: %d patterns accepted, %d refused; %d texts match, %d do not\n",
           counts.accepted, counts.refused, counts.matches, counts.misses);
    ck_assert_int_gt(counts.accepted, 1000);
    ck_assert_int_gt(counts.refused, 900);
    ck_assert_int_gt(counts.matches, 2500);
    ck_assert_int_gt(counts.misses, 15000);
}
END_TEST

/* Where Octet refuses on purpose what Python takes: it must say so, not match something else. */
START_TEST(what_is_not_supported_is_refused_by_name)
{
    static const struct {
        const char *pattern, *word;
    } rows[] = {
        {"\\N{EM DASH}", "not supported"},
        {"(?P<\xc3\xa9>a)", "no name for a group"},
        {"a{65536}", "65535"},
        {"(?t)a", "'(?t' begins no group"},
    };
    struct fixture f;

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        octet_pattern *pattern;
        ck_assert_int_eq(octet_pattern_create(f.context, rows[i].pattern, &pattern, &f.err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_msg(strstr(f.err.text, rows[i].word) != NULL, "%s", f.err.text);
    }
    fixture_end(&f);
}
END_TEST

START_TEST(messages_tell_what_and_where)
{
    static const struct {
        const char *pattern, *text;
    } rows[] = {
        {"decoder/(a", "'(' without its ')', at position 8 of 'decoder/(a'"},
        {"\xc3\xa9*+*", "'*' repeats what is repeated already, at position 3 of '\xc3\xa9*+*'"},
        {"a\\", "a backslash ends the pattern, at position 1 of 'a\\'"},
        {"a)", "')' without its '(', at position 1 of 'a)'"},
        {"*\n", "'*' with nothing before it to repeat, at position 0 of '* '"},
        {"\\Qa", "\\Q is no escape of Python's, at position 0 of '\\Qa'"},
        {"(?<n>a)", "'(?<' is followed by neither '=' nor '!' (a named group is (?P<name>...)), "
                    "at position 0 of '(?<n>a)'"},
        {"(?P=n)", "no group before this is named 'n', at position 4 of '(?P=n)'"},
        {"a\xff", "byte 1 of the pattern is not UTF-8"},
        {"\xed\xa0\x80", "byte 0 of the pattern is not UTF-8"},
    };
    struct fixture f;

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        octet_pattern *pattern;
        ck_assert_int_eq(octet_pattern_create(f.context, rows[i].pattern, &pattern, &f.err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.text, rows[i].text);
        ck_assert_str_eq(f.err.field, "");
    }
    fixture_end(&f);
}
END_TEST

/* ---- hostile ---- */

START_TEST(hostile_patterns_end_with_an_error_soon)
{
    static const char *const patterns[] = {
        "(a+)+$",      "(a|a)*b",   "(a|aa)+$",           "(?:a*)*b",
        "(.*)*x",      "(a?){60}b", "(\\w+\\s?)*!",       "(?=(a+))*(a|a)*\\1b",
        "(.*){1,99}b", "((a*)*)*b", "(?>(a|a)*b|(a+)+c)", "((((((a*)*)*)*)*)*)*b",
    };
    struct fixture f;
    char text[4000];
    int limited = 0, count = (int)(sizeof patterns / sizeof *patterns);

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fixture_begin(&f);
    for (int i = 0; i < count; i++) {
        octet_pattern *pattern;
        bool matches;
        ck_assert_int_eq(octet_pattern_create(f.context, patterns[i], &pattern, &f.err), OCTET_OK);
        for (size_t length = 20; length < sizeof text; length = length * 5 + 3) {
            uint64_t begin = octet_now_ns();
            enum octet_status status =
                octet_pattern_match(pattern, text + sizeof text - 1 - length, &matches, &f.err);
            ck_assert_msg(octet_now_ns() - begin < UINT64_C(5000000000), "'%s'", patterns[i]);
            if (status == OCTET_OK)
                continue;
            ck_assert_int_eq(status, OCTET_INVALID_ARGUMENT);
            ck_assert_msg(strstr(f.err.text, "100000 steps") &&
                              strstr(f.err.text, "pattern_match_steps"),
                          "%s", f.err.text);
            limited++;
        }
        octet_pattern_destroy(pattern);
    }
    ck_assert_int_ge(limited, count); /* at least the longest text of each */
    fixture_end(&f);
}
END_TEST

START_TEST(steps_are_limited_as_the_context_says)
{
    struct octet_limits limits = {.pattern_match_steps = 50, .pattern_bytes = 20};
    struct octet_error err;
    octet_context *context;
    octet_pattern *pattern;
    bool matches;

    ck_assert_int_eq(octet_context_create(&limits, &context, &err), OCTET_OK);
    ck_assert_int_eq(octet_pattern_create(context, "(a|b)*c", &pattern, &err), OCTET_OK);
    ck_assert_int_eq(octet_pattern_match(pattern, "abac", &matches, &err), OCTET_OK);
    ck_assert(matches);
    ck_assert_int_eq(octet_pattern_match(pattern,
                                         "abababababababababababababababababababababababababababab",
                                         &matches, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.text, "50 steps") != NULL, "%s", err.text);
    octet_pattern_destroy(pattern);
    ck_assert_int_eq(octet_pattern_create(context, "aaaaaaaaaaaaaaaaaaaa", &pattern, &err),
                     OCTET_OK);
    octet_pattern_destroy(pattern);
    ck_assert_int_eq(octet_pattern_create(context, "aaaaaaaaaaaaaaaaaaaaa", &pattern, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.text, "a pattern of 21 bytes; at most 20 are allowed");
    octet_context_destroy(context);
}
END_TEST

/* depth groups around an 'a', each opened by `open`. */
static char *nested(const char *open, const char *close, int depth)
{
    size_t step = strlen(open), end = strlen(close);
    char *text = calloc(1, (size_t)depth * (step + end) + 2), *p = text;

    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < depth; i++, p += step)
        memcpy(p, open, step);
    *p++ = 'a';
    for (int i = 0; i < depth; i++, p += end)
        memcpy(p, close, end);
    return text;
}

START_TEST(nesting_and_size_are_bounded)
{
    static const struct {
        const char *open, *close;
        int depth;
        bool accepted;
    } rows[] = {
        {"(", ")", 200, true},         {"(", ")", 201, false},    {"(?:", ")", 200, true},
        {"(?=", ")*", 200, true},      {"(?i:", ")?", 200, true}, {"(?>", ")", 201, false},
        {"(?:(?=", ")*)", 101, false}, {"(", ")++", 200, true},   {"(", "){2,}+", 8, true},
    };
    struct fixture f;

    fixture_begin(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *source = nested(rows[i].open, rows[i].close, rows[i].depth);
        octet_pattern *pattern = NULL;
        enum octet_status status = octet_pattern_create(f.context, source, &pattern, &f.err);
        ck_assert_msg((status == OCTET_OK) == rows[i].accepted, "row %zu: %s", i,
                      status ? f.err.text : "accepted");
        octet_pattern_destroy(pattern);
        free(source);
    }
    /* Small to write, large when compiled: an error, not a compilation without end. */
    octet_pattern *pattern;
    ck_assert_int_eq(
        octet_pattern_create(f.context, "((((a{99}){99}){99}){99}){99}", &pattern, &f.err),
        OCTET_INVALID_ARGUMENT);
    ck_assert_msg(strstr(f.err.text, "too large") != NULL, "%s", f.err.text);
    fixture_end(&f);
}
END_TEST

START_TEST(large_classes_are_refused_and_no_room_is_overrun)
{
    char source[4000] = "[", *p = source + 1;
    struct fixture f;
    octet_pattern *pattern;

    /* Every second character from U+100 on, so that no two touch: 400 ranges of 2 bytes. */
    for (int i = 0; i < 400; i++) {
        *p++ = (char)(0xc4 + i * 2 / 64);
        *p++ = (char)(0x80 + i * 2 % 64);
    }
    *p = ']';
    fixture_begin(&f);
    ck_assert_int_eq(octet_pattern_create(f.context, source, &pattern, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_msg(strstr(f.err.text, "more than 250 ranges") != NULL, "%s", f.err.text);
    fixture_end(&f);
}
END_TEST

START_TEST(text_must_be_utf8)
{
    struct fixture f;
    octet_pattern *pattern;
    bool matches;

    fixture_begin(&f);
    ck_assert_int_eq(octet_pattern_create(f.context, ".*", &pattern, &f.err), OCTET_OK);
    ck_assert_int_eq(octet_pattern_match(pattern, "a\xff", &matches, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.text, "the text to match is not UTF-8");
    octet_pattern_destroy(pattern);
    fixture_end(&f);
}
END_TEST

/* ---- threads ---- */

static void *match_many(void *user)
{
    const octet_pattern *pattern = user;
    long wrong = 0;

    for (int i = 0; i < 2000; i++) {
        struct octet_error err;
        bool yes, no;
        if (octet_pattern_match(pattern, "decoder/layers_3/mlp/wi_0", &yes, &err) ||
            octet_pattern_match(pattern, "mtp_block/mtp_layer_1/mlp", &no, &err) || !yes || no)
            wrong++;
    }
    return (void *)wrong;
}

START_TEST(one_pattern_serves_many_threads)
{
    struct fixture f;
    octet_pattern *pattern;
    pthread_t threads[4];

    fixture_begin(&f);
    ck_assert_int_eq(octet_pattern_create(f.context, "(\\w+)/.*(layers).*", &pattern, &f.err),
                     OCTET_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, match_many, pattern), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    octet_pattern_destroy(pattern);
    fixture_end(&f);
}
END_TEST

TCase *pattern_tests(void)
{
    TCase *tests = tcase_create("pattern");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, patterns_mean_what_they_mean_in_python);
    tcase_add_test(tests, what_is_not_supported_is_refused_by_name);
    tcase_add_test(tests, messages_tell_what_and_where);
    tcase_add_test(tests, hostile_patterns_end_with_an_error_soon);
    tcase_add_test(tests, steps_are_limited_as_the_context_says);
    tcase_add_test(tests, nesting_and_size_are_bounded);
    tcase_add_test(tests, large_classes_are_refused_and_no_room_is_overrun);
    tcase_add_test(tests, text_must_be_utf8);
    tcase_add_test(tests, one_pattern_serves_many_threads);
    return tests;
}
