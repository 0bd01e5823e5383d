/* Acceptance of drafts, beside MaxText's own steps: everything shifted k times.
 * What could break: drafts held against the wrong token, targets beyond a document, padding that
 * counts. Rows 31 and 26 of the list of reported bugs. */
#include <string.h>

#include "exec/acceptance.h"
#include "suite.h"

enum { B = 2, S = 8, N = B * S };

static int32_t tokens[N], segments[N], mask[N], likely[N], draft[N];

static struct octet_array array(int32_t *data)
{
    return (struct octet_array){.dtype = OCTET_DTYPE_S32, .rank = 2, .dim = {B, S}, .data = data};
}

static struct octet_batch batch(void)
{
    static const int32_t documents[N] = {1, 1, 1, 2, 2, 2, 2, 0, 3, 3, 3, 3, 3, 3, 3, 3};

    for (int i = 0; i < N; i++) {
        segments[i] = documents[i];
        mask[i] = documents[i] != 0;
        likely[i] = 100 + i * i;
    }
    return (struct octet_batch){
        .tokens = array(tokens), .segment_ids = array(segments), .target_mask = array(mask)};
}

static void shift(const int32_t *x, const int32_t *segment, int32_t *out)
{
    for (int i = 0; i < N; i++) {
        bool inside = (i + 1) % S && (!segment || (segment[i] && segment[i] == segment[i + 1]));
        out[i] = inside ? x[i + 1] : 0;
    }
}

/* mask: inside of documents, with the ids of the turn; ids and the main head's tokens: plainly. */
static void expected(int k, int64_t *accepted, int64_t *drafted)
{
    int32_t m[N], ids[N], main[N], next[N];

    memcpy(m, mask, sizeof m);
    memcpy(ids, segments, sizeof ids);
    memcpy(main, likely, sizeof main);
    for (int i = 0; i < k; i++) {
        shift(m, ids, next);
        memcpy(m, next, sizeof m);
        shift(ids, NULL, next);
        memcpy(ids, next, sizeof ids);
        shift(main, NULL, next);
        memcpy(main, next, sizeof main);
    }
    *accepted = *drafted = 0;
    for (int i = 0; i < N; i++) {
        *drafted += m[i] != 0;
        *accepted += m[i] != 0 && main[i] == draft[i];
    }
}

static void expect(int k, int64_t accepted, int64_t drafted)
{
    const struct octet_batch given = batch();
    const struct octet_array main = array(likely), said = array(draft);
    int64_t a, d, a2, d2;

    oct_mtp_acceptance(&given, k, &main, &said, &a, &d);
    expected(k, &a2, &d2);
    ck_assert_int_eq(a, a2);
    ck_assert_int_eq(d, d2);
    ck_assert_int_eq(a, accepted);
    ck_assert_int_eq(d, drafted);
}

START_TEST(drafts_like_the_main_model_are_all_accepted)
{
    /* Of 3 + 4 tokens and 8: one fewer a document at k = 1. At k = 2 only the last step has to stay
     * inside of a document. */
    static const int64_t drafted[] = {2 + 3 + 7, 1 + 3 + 6, 3 + 5};

    for (int k = 1; k <= 3; k++) {
        batch();
        for (int i = 0; i < N; i++)
            draft[i] = i % S + k < S ? likely[i + k] : -1;
        const struct octet_batch given = batch();
        const struct octet_array main = array(likely), said = array(draft);
        int64_t a, d, a2, d2;
        oct_mtp_acceptance(&given, k, &main, &said, &a, &d);
        expected(k, &a2, &d2);
        ck_assert_int_eq(d, d2);
        ck_assert_int_eq(a, a2);
        ck_assert_int_eq(a, d);
        if (k == 1)
            ck_assert_int_eq(d, drafted[0]);
    }
}
END_TEST

START_TEST(drafts_off_by_one_are_all_refused)
{
    batch();
    for (int i = 0; i < N; i++)
        draft[i] = likely[i];
    expect(1, 0, 12);
    draft[9] = likely[10]; /* one right */
    expect(1, 1, 12);
    draft[2] = likely[3]; /* right, but of the next document */
    expect(1, 1, 12);
}
END_TEST

START_TEST(a_batch_of_single_tokens_drafts_nothing)
{
    struct octet_batch given = batch();
    const struct octet_array main = array(likely), said = array(draft);
    int64_t a, d;

    for (int i = 0; i < N; i++)
        segments[i] = i + 1;
    oct_mtp_acceptance(&given, 1, &main, &said, &a, &d);
    ck_assert_int_eq(d, 0);
    ck_assert_int_eq(a, 0);
}
END_TEST

TCase *acceptance_tests(void)
{
    TCase *tests = tcase_create("acceptance");

    tcase_add_test(tests, drafts_like_the_main_model_are_all_accepted);
    tcase_add_test(tests, drafts_off_by_one_are_all_refused);
    tcase_add_test(tests, a_batch_of_single_tokens_drafts_nothing);
    return tests;
}
