/* Arena, errors, nearest names, cancellation, pool.
 * What could break: a budget that is passed, memory that overlaps or is not zero, a failed
 * allocation that leaves the arena unusable, an error text that overruns; an item of a pool's loop
 * that runs twice or never. It would show here or under a sanitizer. */
#include <check.h>
#include <unistd.h>
#include <signal.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
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

/* Large enough to get blocks of its own, in the way that leaves old blocks to be used again. */
START_TEST(unset_pieces_are_aligned_and_apart)
{
    octet_arena *arena = octet_arena_create(1 << 24);
    unsigned char *pieces[40];

    for (size_t i = 0; i < 40; i++) {
        size_t size = i % 3 ? i : 20000 * i;
        pieces[i] = octet_arena_alloc_unset(arena, size);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i + 1, size);
        unsigned char *zeroed = octet_arena_alloc(arena, 100);
        for (int k = 0; k < 100; k++)
            ck_assert_uint_eq(zeroed[k], 0);
    }
    for (size_t i = 0; i < 40; i++)
        for (size_t k = 0; k < (i % 3 ? i : 20000 * i); k++)
            ck_assert_uint_eq(pieces[i][k], i + 1);
    ck_assert_ptr_null(octet_arena_alloc_unset(arena, SIZE_MAX));
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(a_childs_blocks_count_against_its_parent)
{
    octet_arena *parent = octet_arena_create(1 << 20);
    octet_arena *child = octet_arena_create_within(parent);
    octet_arena *grandchild = octet_arena_create_within(child);

    ck_assert_ptr_nonnull(octet_arena_alloc(parent, 300000));
    size_t own = octet_arena_held(parent);
    ck_assert_ptr_nonnull(octet_arena_alloc(child, 300000));
    ck_assert_uint_eq(octet_arena_held(parent), own + octet_arena_held(child));
    ck_assert_ptr_nonnull(octet_arena_alloc(grandchild, 300000));
    ck_assert_uint_ge(octet_arena_held(parent), 900000);
    ck_assert_uint_ge(octet_arena_held(child), 600000);
    ck_assert_ptr_null(octet_arena_alloc(grandchild, 300000));
    ck_assert_ptr_null(octet_arena_alloc(child, 300000));
    ck_assert_ptr_null(octet_arena_alloc(parent, 300000));
    octet_arena_destroy(grandchild);
    ck_assert_ptr_nonnull(octet_arena_alloc(parent, 300000)); /* what it held is free again */
    octet_arena_reset(child);
    ck_assert_uint_eq(octet_arena_held(child), 0);
    ck_assert_ptr_nonnull(octet_arena_alloc(child, 300000));
    octet_arena_destroy(child);
    ck_assert_uint_ge(octet_arena_held(parent), 600000);
    ck_assert_uint_lt(octet_arena_held(parent), 700000);
    octet_arena_destroy(parent);
}
END_TEST

START_TEST(a_childs_allocation_is_its_parents_nth)
{
    octet_arena *parent = octet_arena_create(1 << 20);
    octet_arena *child = octet_arena_create_within(parent);

    octet_arena_fail_at(parent, 3);
    ck_assert_ptr_nonnull(octet_arena_alloc(child, 8));
    ck_assert_ptr_nonnull(octet_arena_alloc(parent, 8));
    ck_assert_ptr_null(octet_arena_alloc_unset(child, 8));
    ck_assert_ptr_nonnull(octet_arena_alloc(child, 8));
    octet_arena_destroy(child);
    octet_arena_destroy(parent);
}
END_TEST

/* Working memory that is used again and again: nothing is malloc'ed while it fits. */
START_TEST(an_arena_over_memory_hands_it_out_again)
{
    static _Alignas(64) unsigned char memory[1 << 18];
    const unsigned char *end = memory + sizeof memory;
    octet_arena *arena = octet_arena_create_over(memory, sizeof memory, (size_t)1 << 30);

    for (int round = 0; round < 3; round++) {
        unsigned char *outer = octet_arena_alloc(arena, 100000), *last = NULL;
        ck_assert(outer >= memory && outer + 100000 <= end);
        ck_assert(outer[0] == 0 && outer[99999] == 0);
        memset(outer, 1, 100000);
        for (int i = 0; i < 100; i++) { /* 50,000 bytes a hundred times, one after the other */
            octet_arena *inner = octet_arena_create_within(arena);
            unsigned char *piece = octet_arena_alloc(inner, 50000);
            ck_assert(piece >= memory && piece + 50000 <= end && (!last || piece == last));
            ck_assert(piece[0] == 0 && piece[49999] == 0);
            memset(piece, 2, 50000);
            last = piece;
            octet_arena_destroy(inner);
        }
        unsigned char *elsewhere = octet_arena_alloc(arena, 2 * sizeof memory);
        ck_assert(elsewhere && (elsewhere >= end || elsewhere < memory));
        ck_assert_int_eq(outer[99999], 1);
        octet_arena_reset(arena);
        ck_assert_uint_eq(octet_arena_held(arena), 0);
    }
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

/* ---- pool ---- */

enum { ITEMS = 5000, THREADS_MAX = 8 };

struct loop {
    _Atomic int runs[ITEMS];
    _Atomic int busy[THREADS_MAX]; /* a thread's number is used by one task at a time */
    _Atomic int conflicts, foreign_env;
    struct octet_cancel *cancel; /* set by item 100; NULL: never */
};

static void loop_task(void *user, size_t item, size_t thread)
{
    struct loop *loop = user;
    volatile float tiny = 0x1p-126f;

    if (thread >= THREADS_MAX || atomic_fetch_add(&loop->busy[thread], 1) != 0)
        atomic_fetch_add(&loop->conflicts, 1);
    if (tiny / 2 != 0) /* subnormal results are zero in the pool's environment */
        atomic_fetch_add(&loop->foreign_env, 1);
    atomic_fetch_add(&loop->runs[item], 1);
    if (loop->cancel && item == 100)
        atomic_store(&loop->cancel->cancelled, true);
    atomic_fetch_sub(&loop->busy[thread], 1);
}

static void read_mask(void *user, size_t item, size_t thread)
{
    sigset_t mask;
    int *open = user;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    open[item] = thread > 0 && !sigismember(&mask, SIGTERM);
    usleep(1000); /* so that every thread gets some */
}

/* A signal that lands on a thread which sleeps in the pool's lock may be heard late, or by nobody.
 */
START_TEST(threads_leave_signals_to_the_program)
{
    enum { COUNT = 64 };
    int open[COUNT] = {0};
    sigset_t mask;
    struct oct_pool *pool = oct_pool_create(4);

    ck_assert_ptr_nonnull(pool);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGTERM)); /* the caller's is as before */
    ck_assert_int_eq(oct_pool_run(pool, COUNT, NULL, read_mask, open, NULL), OCTET_OK);
    for (int i = 0; i < COUNT; i++)
        ck_assert_int_eq(open[i], 0);
    oct_pool_destroy(pool);
}
END_TEST

START_TEST(a_pool_runs_each_item_once)
{
    static const size_t threads[] = {0, 1, 2, 7}, counts[] = {0, 1, 2, 6, 7, 8, ITEMS};
    volatile float tiny = 0x1p-126f;

    for (size_t t = 0; t < 4; t++) {
        struct oct_pool *pool = threads[t] ? oct_pool_create(threads[t]) : NULL;
        ck_assert_uint_eq(oct_pool_threads(pool), threads[t] ? threads[t] : 1);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct loop loop = {.cancel = NULL};
            struct octet_error err;
            ck_assert_int_eq(oct_pool_run(pool, counts[c], NULL, loop_task, &loop, &err), OCTET_OK);
            for (size_t i = 0; i < ITEMS; i++)
                ck_assert_int_eq(atomic_load(&loop.runs[i]), i < counts[c]);
            ck_assert_int_eq(atomic_load(&loop.conflicts), 0);
            ck_assert_int_eq(atomic_load(&loop.foreign_env), 0);
            ck_assert(tiny / 2 != 0); /* the caller has its own environment again */
        }
        oct_pool_destroy(pool);
    }
}
END_TEST

START_TEST(a_pool_stops_when_it_is_cancelled)
{
    static const size_t threads[] = {0, 1, 2, 7};

    for (size_t t = 0; t < 4; t++) {
        struct oct_pool *pool = threads[t] ? oct_pool_create(threads[t]) : NULL;
        struct octet_cancel cancel = {.deadline_ns = 0};
        struct loop loop = {.cancel = &cancel};
        struct octet_error err;
        int runs = 0;
        ck_assert_int_eq(oct_pool_run(pool, ITEMS, &cancel, loop_task, &loop, &err),
                         OCTET_CANCELLED);
        for (size_t i = 0; i < ITEMS; i++) {
            ck_assert_int_le(atomic_load(&loop.runs[i]), 1);
            runs += atomic_load(&loop.runs[i]);
        }
        ck_assert_int_ge(runs, 1);
        if (threads[t] < 2) /* items come in order */
            ck_assert_int_eq(runs, 101);
        memset(&loop, 0, sizeof loop); /* set before the loop begins: nothing runs */
        ck_assert_int_eq(oct_pool_run(pool, ITEMS, &cancel, loop_task, &loop, &err),
                         OCTET_CANCELLED);
        ck_assert_int_eq(atomic_load(&loop.runs[0]), 0);
        cancel.cancelled = false;
        cancel.deadline_ns = 1;
        ck_assert_int_eq(oct_pool_run(pool, 0, &cancel, loop_task, &loop, &err),
                         OCTET_DEADLINE_EXCEEDED);
        oct_pool_destroy(pool);
    }
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
    tcase_add_test(tests, threads_leave_signals_to_the_program);
    tcase_add_test(tests, unset_pieces_are_aligned_and_apart);
    tcase_add_test(tests, a_childs_blocks_count_against_its_parent);
    tcase_add_test(tests, a_childs_allocation_is_its_parents_nth);
    tcase_add_test(tests, an_arena_over_memory_hands_it_out_again);
    tcase_add_test(tests, long_texts_are_formatted_whole);
    tcase_add_test(tests, errors_name_the_field_and_never_overrun);
    tcase_add_test(tests, status_names_are_grpcs);
    tcase_add_test(tests, the_nearest_name_is_found);
    tcase_add_test(tests, cancellation_and_deadline_are_seen);
    tcase_add_test(tests, a_pool_runs_each_item_once);
    tcase_add_test(tests, a_pool_stops_when_it_is_cancelled);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
