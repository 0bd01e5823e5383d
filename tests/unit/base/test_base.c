/* Arena, errors, nearest names, cancellation.
 * What could break: a budget that is passed, memory that overlaps or is not zero, a failed
 * allocation that leaves the arena unusable, an error text that overruns; it would show here or
 * under ASan. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "octet/nearest.h"
#include "octet/octet.h"

START_TEST(pieces_are_zeroed_aligned_and_apart)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    unsigned char *pieces[100];

    for (size_t i = 0; i < 100; i++) {
        pieces[i] = octet_arena_alloc(arena, i + 1);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % 16, 0);
        for (size_t k = 0; k <= i; k++)
            ck_assert_uint_eq(pieces[i][k], 0);
        memset(pieces[i], (int)i + 1, i + 1);
    }
    for (size_t i = 0; i < 100; i++)
        for (size_t k = 0; k <= i; k++)
            ck_assert_uint_eq(pieces[i][k], i + 1);
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(the_budget_holds_and_small_pieces_still_fit)
{
    octet_arena *arena = octet_arena_create(100000);
    size_t pieces = 0;

    ck_assert_ptr_null(octet_arena_alloc(arena, 100001));
    ck_assert_ptr_null(octet_arena_alloc(arena, SIZE_MAX));
    ck_assert_ptr_null(octet_arena_array(arena, SIZE_MAX / 2, 3));
    while (octet_arena_alloc(arena, 1000))
        pieces++;
    ck_assert_uint_ge(pieces, 60);
    ck_assert_uint_le(octet_arena_held(arena), 100000);
    octet_arena_reset(arena);
    ck_assert_uint_eq(octet_arena_held(arena), 0);
    ck_assert_ptr_nonnull(octet_arena_alloc(arena, 90000));
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(the_nth_allocation_fails_once)
{
    octet_arena *arena = octet_arena_create(1 << 20);

    octet_arena_fail_at(arena, 3);
    ck_assert_ptr_nonnull(octet_arena_alloc(arena, 8));
    ck_assert_ptr_nonnull(octet_arena_copy(arena, "abc", 3));
    ck_assert_ptr_null(octet_arena_format(arena, "%d", 7));
    ck_assert_str_eq(octet_arena_format(arena, "%d", 7), "7");
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(long_texts_are_formatted_whole)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    char expected[1001];

    memset(expected, 'x', 1000);
    expected[1000] = '\0';
    ck_assert_str_eq(octet_arena_format(arena, "%s", expected), expected);
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(errors_name_the_field_and_never_overrun)
{
    struct octet_error err;
    char message[64], big[5000];

    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    ck_assert_int_eq(octet_fail(&err, OCTET_NOT_FOUND, "shape", "%d is not %d", 1, 2), 5);
    ck_assert_int_eq(octet_error_within(&err, "rhs"), OCTET_NOT_FOUND);
    ck_assert_str_eq(octet_error_message(&err, message, sizeof message),
                     "field 'rhs.shape': 1 is not 2");
    octet_fail(&err, OCTET_INTERNAL, "[3]", "x");
    octet_error_within(&err, "rules");
    ck_assert_str_eq(err.field, "rules[3]");
    octet_fail(&err, OCTET_INTERNAL, big, "%s", big);
    octet_error_within(&err, big);
    ck_assert_uint_eq(strlen(err.field), sizeof err.field - 1);
    ck_assert_uint_eq(strlen(err.text), sizeof err.text - 1);
    ck_assert_uint_eq(strlen(octet_error_message(&err, message, sizeof message)),
                      sizeof message - 1);
    ck_assert_int_eq(octet_fail(NULL, OCTET_ABORTED, NULL, "nobody listens"), OCTET_ABORTED);
}
END_TEST

START_TEST(status_names_are_grpcs)
{
    ck_assert_str_eq(octet_status_name(OCTET_OK), "OK");
    ck_assert_str_eq(octet_status_name((enum octet_status)16), "UNAUTHENTICATED");
    ck_assert_str_eq(octet_status_name((enum octet_status)99), "UNKNOWN");
}
END_TEST

static const char *name_at(const void *user, size_t i)
{
    return ((const char *const *)user)[i];
}

START_TEST(the_nearest_name_is_found)
{
    static const char *const names[] = {"scan_layers", "base_emb_dim", "quantize_mtp", "dtype"};

    ck_assert_uint_eq(octet_nearest("scan_layer", 4, name_at, names), 0);
    ck_assert_uint_eq(octet_nearest("base_emd_bim", 4, name_at, names), 1);
    ck_assert_uint_eq(octet_nearest("qauntize_mtp", 4, name_at, names), 2);
    ck_assert_uint_eq(octet_nearest("QUANTIZE_MTP", 4, name_at, names), 2);
    ck_assert_uint_eq(octet_nearest("", 4, name_at, names), 3); /* the shortest */
}
END_TEST

START_TEST(cancellation_and_deadline_are_seen)
{
    struct octet_cancel cancel = {.deadline_ns = 0};
    struct octet_error err;

    atomic_init(&cancel.cancelled, false);
    ck_assert_int_eq(octet_cancel_check(NULL, &err), OCTET_OK);
    ck_assert_int_eq(octet_cancel_check(&cancel, &err), OCTET_OK);
    cancel.deadline_ns = octet_now_ns() + 3600u * 1000000000u;
    ck_assert_int_eq(octet_cancel_check(&cancel, &err), OCTET_OK);
    cancel.deadline_ns = 1;
    ck_assert_int_eq(octet_cancel_check(&cancel, &err), OCTET_DEADLINE_EXCEEDED);
    atomic_store(&cancel.cancelled, true);
    ck_assert_int_eq(octet_cancel_check(&cancel, &err), OCTET_CANCELLED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, pieces_are_zeroed_aligned_and_apart);
    tcase_add_test(tests, the_budget_holds_and_small_pieces_still_fit);
    tcase_add_test(tests, the_nth_allocation_fails_once);
    tcase_add_test(tests, long_texts_are_formatted_whole);
    tcase_add_test(tests, errors_name_the_field_and_never_overrun);
    tcase_add_test(tests, status_names_are_grpcs);
    tcase_add_test(tests, the_nearest_name_is_found);
    tcase_add_test(tests, cancellation_and_deadline_are_seen);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
