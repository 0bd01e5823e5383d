/* Every allocation fails once: the answer must be RESOURCE_EXHAUSTED, and nothing may leak (the
 * build with the address sanitizer sees to that).
 *
 * From malloc's n-th call on all fail, since an arena that gets no large block asks for a small
 * one. Arenas fail at their n-th piece through octet_arena_fail_at; what is asked of malloc itself
 * (the arenas, a pattern by itself, a match that backtracks deeply) through the linker's --wrap. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "rules/rules_private.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static atomic_ulong mallocs_left; /* 0: no end; 1: the next one and all later fail */

void fixture_fail_malloc(unsigned long n)
{
    atomic_store(&mallocs_left, n);
}

static bool fails_now(void)
{
    unsigned long left = atomic_load(&mallocs_left);

    if (left > 1)
        atomic_fetch_sub(&mallocs_left, 1);
    return left == 1;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

static const char *const ops[] = {"dot_general", "gmm"};
static const int32_t axes[] = {0, 1};
static const struct octet_pair additional[] = {{"lhs_calibration_method", "absmax,0.5"},
                                               {"drhs_tile_size", "1/8"}};
static const struct octet_rule rules_given[] = {
    {.module_path = "(?i)decoder/(?:dense|moe)_layers(_\\d+)?/[^/\\s]+.*(?<!norm)",
     .op_names = ops,
     .op_name_count = 2,
     .weight_qtype = "float8_e4m3fn",
     .weight_calibration_method = "fixed,-224,224",
     .tile_size = "0.25",
     .bwd_weight_grad_tile_size = "128",
     .act_batch_axes = axes,
     .act_batch_axis_count = 2,
     .sparsity = {2, 4, 0, 0},
     .additional_qt_config = additional,
     .additional_qt_config_count = 2},
    {.module_path = "(?P<a>x)*(?(a)y|z)\\B"},
};
static const char yaml_given[] =
    "rules:\n"
    "- &a {module_path: 'decoder/.*', op_names: [gmm], tile_size: 1/4}\n"
    "- {<<: *a, weight_qtype: int8, act_batch_axes: [1],\n"
    "   additional_qt_config: {lhs_qtype: int8}}\n";

/* Runs `attempt` with the n-th piece of arena `which` failing, n = 1, 2, ... until it succeeds. */
static unsigned fail_arenas(struct fixture *f, int which, int arenas)
{
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;
    unsigned n = 0;

    while (status) {
        octet_arena *a[3];
        octet_rules *out = NULL;
        for (int i = 0; i < 3; i++) {
            a[i] = octet_arena_create(8 << 20);
            ck_assert_ptr_nonnull(a[i]);
        }
        octet_arena_fail_at(a[which], ++n);
        if (arenas == 2)
            status = oct_rules_create_in(f->context, a[0], a[1], rules_given, 2, &out, &f->err);
        else
            status = oct_rules_parse_in(f->context, a[0], a[1], a[2], yaml_given,
                                        strlen(yaml_given), &out, &f->err);
        ck_assert_msg(!status || status == OCTET_RESOURCE_EXHAUSTED, "n=%u: %s", n, f->err.text);
        ck_assert_int_eq(status != OCTET_OK, out == NULL);
        octet_rules_unref(out);
        octet_arena_destroy(a[1]);
        octet_arena_destroy(a[2]);
        ck_assert_uint_lt(n, 10000);
    }
    return n - 1;
}

START_TEST(each_piece_of_an_arena_may_fail)
{
    struct fixture f;

    fixture_begin(&f);
    ck_assert_uint_gt(fail_arenas(&f, 0, 2), 15);
    ck_assert_uint_gt(fail_arenas(&f, 1, 2), 3);
    ck_assert_uint_gt(fail_arenas(&f, 0, 3), 15);
    ck_assert_uint_gt(fail_arenas(&f, 1, 3), 1);
    ck_assert_uint_gt(fail_arenas(&f, 2, 3), 20);
    fixture_end(&f);
}
END_TEST

static enum octet_status make_rules(struct fixture *f)
{
    octet_rules *out = NULL;
    enum octet_status status = octet_rules_create(f->context, rules_given, 2, &out, &f->err);

    octet_rules_unref(out);
    return status;
}

static enum octet_status parse_rules(struct fixture *f)
{
    octet_rules *out = NULL;
    enum octet_status status =
        octet_rules_parse(f->context, yaml_given, strlen(yaml_given), &out, &f->err);

    octet_rules_unref(out);
    return status;
}

/* (No ck_assert in these: it asks malloc too.) Backtracks deeply enough to outgrow the buffer on
 * the stack. */
static enum octet_status match_deeply(struct fixture *f)
{
    octet_pattern *pattern = NULL;
    char text[801];
    bool matches = false;
    enum octet_status status = octet_pattern_create(f->context, "(a|b)*(c|d)*", &pattern, &f->err);

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    if (!status)
        status = octet_pattern_match(pattern, text, &matches, &f->err);
    octet_pattern_destroy(pattern);
    return !status && !matches ? OCTET_INTERNAL : status;
}

static unsigned long fail_mallocs(struct fixture *f,
                                  enum octet_status (*attempt)(struct fixture *f))
{
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;
    unsigned long n = 0;

    while (status) {
        fixture_fail_malloc(++n);
        status = attempt(f);
        fixture_fail_malloc(0);
        ck_assert_msg(!status || status == OCTET_RESOURCE_EXHAUSTED, "n=%lu: %s", n, f->err.text);
        ck_assert_uint_lt(n, 1000);
    }
    return n - 1;
}

START_TEST(each_malloc_may_fail)
{
    struct fixture f;

    fixture_begin(&f);
    ck_assert_uint_ge(fail_mallocs(&f, make_rules), 4);
    ck_assert_uint_ge(fail_mallocs(&f, parse_rules), 5);
    ck_assert_uint_ge(fail_mallocs(&f, match_deeply), 6);
    fixture_end(&f);
}
END_TEST

TCase *torture_tests(void)
{
    TCase *tests = tcase_create("torture");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, each_piece_of_an_arena_may_fail);
    tcase_add_test(tests, each_malloc_may_fail);
    return tests;
}
