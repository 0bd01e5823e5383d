/* Batches: what is refused, what is made, and weights.
 * What could break: a range that is not checked reaches an op's memory; a default that crosses a
 * document; a segment id that becomes a weight. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "exec/batch.h"
#include "suite.h"

enum { B = 2, S = 6, N = B * S, VOCAB = 30 };

static int32_t tokens[N], targets[N], positions[N], segments[N], mask[N];
static float weights[N];

static struct octet_array array(enum octet_dtype dtype, void *data)
{
    return (struct octet_array){.dtype = dtype, .rank = 2, .dim = {B, S}, .data = data};
}

static struct octet_batch whole(void)
{
    static const int32_t ids[N] = {11, 12, 13, 21, 22, 0, 1, 2, 3, 4, 5, 6};
    static const int32_t documents[N] = {1, 1, 1, 2, 2, 0, 7, 7, 7, 7, 7, 7};

    for (int i = 0; i < N; i++) {
        tokens[i] = ids[i];
        targets[i] = (ids[i] + 1) % VOCAB;
        positions[i] = i % S;
        segments[i] = documents[i];
        mask[i] = documents[i];
        weights[i] = 0.5f * (float)i - 1;
    }
    return (struct octet_batch){.tokens = array(OCTET_DTYPE_S32, tokens),
                                .targets = array(OCTET_DTYPE_S32, targets),
                                .positions = array(OCTET_DTYPE_S32, positions),
                                .segment_ids = array(OCTET_DTYPE_S32, segments),
                                .target_mask = array(OCTET_DTYPE_S32, mask),
                                .weights = array(OCTET_DTYPE_F32, weights)};
}

static void expect(const struct octet_array *out, const int32_t *expected)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(((const int32_t *)out->data)[i] == expected[i], "[%d] is %d, expected %d", i,
                      ((const int32_t *)out->data)[i], expected[i]);
}

START_TEST(what_is_left_out_is_made)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    struct octet_batch given = whole(), out;
    struct octet_error err;

    given.targets.data = given.positions.data = given.target_mask.data = NULL;
    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    ck_assert_ptr_eq(out.tokens.data, tokens);
    expect(&out.targets, (int32_t[]){12, 13, 0, 22, 0, 0, 2, 3, 4, 5, 6, 0});
    expect(&out.positions, (int32_t[]){0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 5});
    expect(&out.target_mask, (int32_t[]){1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 0});
    /* No documents: one a row. */
    given.segment_ids.data = given.weights.data = NULL;
    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    expect(&out.segment_ids, (int32_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    expect(&out.targets, (int32_t[]){12, 13, 21, 22, 0, 0, 2, 3, 4, 5, 6, 0});
    expect(&out.positions, (int32_t[]){0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
    expect(&out.target_mask, (int32_t[]){1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0});
    ck_assert_ptr_null(out.weights.data);
    octet_arena_destroy(arena);
}
END_TEST

START_TEST(given_targets_count_in_all_of_a_document)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    struct octet_batch given = whole(), out;
    struct octet_error err;

    given.target_mask.data = NULL;
    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    ck_assert_ptr_eq(out.targets.data, targets);
    expect(&out.target_mask, (int32_t[]){1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1});
    octet_arena_destroy(arena);
}
END_TEST

/* Row 27: documents 1, 2, 7 as a mask weigh 1 each. */
START_TEST(a_mask_is_no_weight)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    struct octet_batch given = whole(), out;
    struct octet_error err;
    float factor[N];

    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    oct_batch_target_weights(&out, factor);
    for (int i = 0; i < N; i++)
        ck_assert(factor[i] == (i == 5 ? 0 : weights[i]));
    given.weights.data = NULL;
    mask[0] = -3;
    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    oct_batch_target_weights(&out, factor);
    for (int i = 0; i < N; i++)
        ck_assert(factor[i] == (i == 5 ? 0 : 1));
    octet_arena_destroy(arena);
}
END_TEST

static void refused(const struct octet_batch *given, const char *field, const char *part)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    struct octet_batch out;
    struct octet_error err = {0};

    ck_assert_int_eq(octet_batch_complete(given, VOCAB, arena, &out, &err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, field);
    ck_assert_msg(strstr(err.text, part), "'%s' says nothing of '%s'", err.text, part);
    octet_arena_destroy(arena);
}

START_TEST(shapes_and_types_are_checked)
{
    struct octet_batch given = whole();

    given.tokens.data = NULL;
    refused(&given, "tokens", "missing");
    given = whole();
    given.tokens.rank = 1;
    refused(&given, "tokens.shape", "[2]");
    given = whole();
    given.tokens.dim[1] = 0;
    refused(&given, "tokens.shape", "[2, 0]");
    given = whole();
    given.tokens.dtype = OCTET_DTYPE_F32;
    refused(&given, "tokens.dtype", "int32");
    given = whole();
    given.targets.dim[1] = 5;
    refused(&given, "targets.shape", "[2, 6]");
    given = whole();
    given.positions.rank = 3;
    given.positions.dim[2] = 1;
    refused(&given, "positions.shape", "[2, 6, 1]");
    given = whole();
    given.weights.dtype = OCTET_DTYPE_S32;
    refused(&given, "weights.dtype", "float32");
    given = whole();
    given.target_mask.dtype = OCTET_DTYPE_BOOL;
    refused(&given, "target_mask.dtype", "int32");
}
END_TEST

START_TEST(values_are_checked)
{
    struct octet_batch given = whole();

    tokens[7] = VOCAB;
    refused(&given, "tokens[1,1]", "30; 0 to 29");
    given = whole();
    tokens[0] = -1;
    refused(&given, "tokens[0,0]", "-1");
    given = whole();
    targets[N - 1] = INT32_MAX;
    refused(&given, "targets[1,5]", "2147483647");
    given = whole();
    positions[2] = -4;
    refused(&given, "positions[0,2]", "-4");
    given = whole();
    segments[3] = INT32_MIN;
    refused(&given, "segment_ids[0,3]", "0 or more");
    given = whole();
    weights[4] = NAN;
    refused(&given, "weights[0,4]", "finite");
    given = whole();
    weights[6] = -INFINITY;
    refused(&given, "weights[1,0]", "finite");
}
END_TEST

START_TEST(no_memory_is_an_error)
{
    octet_arena *arena = octet_arena_create(1 << 20);
    struct octet_batch given = whole(), out;
    struct octet_error err;

    given.targets.data = given.positions.data = NULL;
    given.segment_ids.data = given.target_mask.data = NULL;
    for (uint64_t n = 1; n <= 4; n++) {
        octet_arena_fail_at(arena, n);
        ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err),
                         OCTET_RESOURCE_EXHAUSTED);
    }
    octet_arena_fail_at(arena, 0);
    ck_assert_int_eq(octet_batch_complete(&given, VOCAB, arena, &out, &err), OCTET_OK);
    octet_arena_destroy(arena);
}
END_TEST

TCase *batch_tests(void)
{
    TCase *tests = tcase_create("batch");

    tcase_add_test(tests, what_is_left_out_is_made);
    tcase_add_test(tests, given_targets_count_in_all_of_a_document);
    tcase_add_test(tests, a_mask_is_no_weight);
    tcase_add_test(tests, shapes_and_types_are_checked);
    tcase_add_test(tests, values_are_checked);
    tcase_add_test(tests, no_memory_is_an_error);
    return tests;
}
