/* The methods on a session, over a tiny model. What could break: a retried request that is applied
 * twice or answered with other figures, a record that does not survive its text, a step that fails
 * half way and leaves half of itself, a stream that takes a hole for a tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/v1/octet.pb-c.h"
#include "test_wire.h"
#include "wire/held.h"

static octet_arena *arena;
static octet_context *context;
static octet_workers *workers;
static octet_held *held;
static struct octet_error err;
static struct octet_exchange exchange;
static const struct octet_server_facts facts = {.lanes = 1, .message_bytes_max = 1 << 30};

static octet_held *make_session(void)
{
    static const struct octet_pair settings[] = {
        {"base_emb_dim", "8"},          {"base_num_query_heads", "1"},
        {"base_num_kv_heads", "1"},     {"head_dim", "8"},
        {"base_mlp_dim", "8"},          {"base_num_decoder_layers", "1"},
        {"vocab_size", "16"},           {"max_target_length", "4"},
        {"per_device_batch_size", "1"}, {"decoder_block", "llama2"},
        {"dtype", "float32"},           {"learning_rate", "0.01"},
    };
    const struct octet_config_input input = {.overrides = settings,
                                             .override_count = sizeof settings / sizeof *settings};
    const struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    const struct octet_compute compute = {arena, workers, NULL};
    octet_session *session;

    ck_assert_int_eq(octet_session_create(context, &input, NULL, &options, &session, &err),
                     OCTET_OK);
    ck_assert_int_eq(octet_session_initialise(session, 5, &compute, &err), OCTET_OK);
    octet_held *made = octet_held_create(session);
    snprintf(made->id, sizeof made->id, "s");
    return made;
}

static void setup(void)
{
    memset(&err, 0, sizeof err);
    memset(&exchange, 0, sizeof exchange);
    arena = octet_arena_create(64 << 20);
    ck_assert_int_eq(octet_context_create(NULL, &context, &err), OCTET_OK);
    ck_assert_int_eq(octet_workers_create("scalar", 1, &workers, &err), OCTET_OK);
    held = make_session();
}

static void teardown(void)
{
    if (exchange.state_free)
        exchange.state_free(exchange.state);
    octet_held_destroy(held);
    octet_workers_destroy(workers);
    octet_context_destroy(context);
    octet_arena_destroy(arena);
}

static enum octet_status run(const char *name, const ProtobufCMessage *request, void *out)
{
    const struct octet_call call = {.context = context,
                                    .arena = arena,
                                    .facts = &facts,
                                    .workers = workers,
                                    .session = held,
                                    .exchange = &exchange};
    ProtobufCMessage *response = NULL;
    enum octet_status status = octet_method_find(name)->run(&call, request, &response, &err);

    if (out)
        *(ProtobufCMessage **)out = response;
    return status;
}

/* A step of one row of four tokens. */
struct step {
    Octet__V1__TrainStepRequest request;
    Octet__V1__Batch batch;
    Octet__V1__Tensor tokens;
    int64_t shape[2];
    int32_t ids[4];
    char id[32];
};

static const ProtobufCMessage *step_of(struct step *s, int64_t number, const char *id)
{
    octet__v1__train_step_request__init(&s->request);
    octet__v1__batch__init(&s->batch);
    octet__v1__tensor__init(&s->tokens);
    snprintf(s->id, sizeof s->id, "%s", id);
    s->shape[0] = 1;
    s->shape[1] = 4;
    for (int i = 0; i < 4; i++)
        s->ids[i] = (int32_t)((number * 5 + i * 3) % 16);
    s->tokens.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_S32;
    s->tokens.n_shape = 2;
    s->tokens.shape = s->shape;
    s->tokens.data = (ProtobufCBinaryData){sizeof s->ids, (uint8_t *)s->ids};
    s->batch.tokens = &s->tokens;
    s->request.session_id = (char *)(uintptr_t) "s";
    s->request.batch = &s->batch;
    s->request.step = number;
    s->request.request_id = s->id;
    return &s->request.base;
}

static void digest_of(char digest[33])
{
    octet_parameters_digest(octet_session_tensors(held->session, OCTET_SET_PARAMETER), digest);
}

START_TEST(a_retry_is_answered_from_memory)
{
    struct step s;
    Octet__V1__TrainStepResponse *first, *again;
    char before[33], after[33];

    ck_assert_int_eq(run("TrainStep", step_of(&s, 0, "a"), &first), OCTET_OK);
    ck_assert(!first->replayed && isfinite(first->losses->total) && first->step == 1);
    digest_of(before);
    ck_assert_str_eq(before, first->digest);
    ck_assert_int_eq(run("TrainStep", step_of(&s, 0, "a"), &again), OCTET_OK);
    digest_of(after);
    ck_assert_str_eq(before, after);
    ck_assert(again->replayed && again->step == 1);
    ck_assert_mem_eq(&again->losses->total, &first->losses->total, sizeof(double));
    ck_assert_uint_eq(again->logprobs->data.len, 16);
    ck_assert_mem_eq(again->logprobs->data.data, first->logprobs->data.data, 16);
}
END_TEST

START_TEST(an_id_is_for_one_request)
{
    struct step s;

    ck_assert_int_eq(run("TrainStep", step_of(&s, 0, "a"), NULL), OCTET_OK);
    ck_assert_int_eq(run("TrainStep", step_of(&s, 1, "a"), NULL), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "request_id");
    ck_assert_int_eq(run("TrainStep", step_of(&s, 0, "b"), NULL), OCTET_FAILED_PRECONDITION);
    ck_assert_str_eq(err.field, "step");
    ck_assert_int_eq(run("TrainStep", step_of(&s, 5, ""), NULL), OCTET_FAILED_PRECONDITION);
    ck_assert_int_eq(run("TrainStep", step_of(&s, 0, ""), NULL), OCTET_OK); /* any step */
    ck_assert_int_eq(octet_session_step(held->session), 2);
}
END_TEST

/* Only so many are kept, the oldest go first, and all that are kept survive a checkpoint's text. */
START_TEST(the_record_is_bounded_and_survives_as_text)
{
    enum { MORE = OCT_WIRE_APPLIED_MAX + 7 };
    const struct oct_wire_applied *found;
    struct oct_wire_applied a = {.losses = {.has_mtp = true}};
    octet_held *other = make_session();

    for (int i = 0; i < MORE; i++) {
        snprintf(a.id, sizeof a.id, "id-%d", i);
        snprintf(a.method, sizeof a.method, "%s", "TrainStep");
        snprintf(a.digest, sizeof a.digest, "%032d", i);
        a.step = i;
        a.step_after = i + 1;
        a.losses.total = 1.0 / (i + 3);
        a.losses.mtp = i == 8 ? NAN : -0.0;
        a.grad_norm = i == 9 ? INFINITY : 5e-324;
        a.acceptance_count = 2;
        a.acceptance[1] = 0.1 * i;
        oct_wire_add_applied(held, &a);
    }
    char *note = oct_wire_applied_note(held, arena);
    oct_wire_read_note(other, note);
    ck_assert_uint_eq(other->applied_count, OCT_WIRE_APPLIED_MAX);
    for (int i = 0; i < MORE; i++) {
        snprintf(a.id, sizeof a.id, "id-%d", i);
        enum octet_status status =
            oct_wire_find_applied(other, "TrainStep", a.id, i, 0, &found, &err);
        if (i < MORE - OCT_WIRE_APPLIED_MAX) {
            ck_assert_ptr_null(found);
            continue;
        }
        ck_assert_int_eq(status, OCTET_OK);
        const struct oct_wire_applied *was = NULL;
        ck_assert_int_eq(oct_wire_find_applied(held, "TrainStep", a.id, i, 0, &was, &err),
                         OCTET_OK);
        ck_assert_str_eq(found->digest, was->digest);
        ck_assert(found->step_after == i + 1 && found->losses.has_mtp &&
                  !found->losses.has_load_balance);
        ck_assert_mem_eq(&found->losses.total, &was->losses.total, sizeof(double));
        ck_assert(signbit(found->losses.mtp) == signbit(was->losses.mtp));
        ck_assert(isnan(found->losses.mtp) == isnan(was->losses.mtp));
        ck_assert_mem_eq(&found->grad_norm, &was->grad_norm, sizeof(double));
        ck_assert_mem_eq(found->acceptance, was->acceptance, 2 * sizeof(double));
    }
    octet_held_destroy(other);
}
END_TEST

/* Gradients that are added over more calls than the record holds. */
START_TEST(a_call_of_a_long_accumulation_counts_once)
{
    enum { CALLS = OCT_WIRE_APPLIED_MAX + 3 };
    const struct oct_wire_applied *found;
    struct oct_wire_applied a = {.method = "ForwardBackward"};
    octet_held *other = make_session();

    for (int i = 0; i < CALLS; i++) {
        snprintf(a.id, sizeof a.id, "id-%d", i);
        oct_wire_add_applied(held, &a);
    }
    oct_wire_read_note(other, oct_wire_applied_note(held, arena)); /* a checkpoint knows, too */
    for (int i = 0; i < CALLS + 1; i++) {
        bool forgotten = i < CALLS - OCT_WIRE_APPLIED_MAX, known = i < CALLS && !forgotten;
        snprintf(a.id, sizeof a.id, "id-%d", i);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(oct_wire_find_applied(k ? other : held, "ForwardBackward", a.id, 0, 0,
                                                   &found, &err),
                             forgotten ? OCTET_FAILED_PRECONDITION : OCTET_OK);
            ck_assert_int_eq(found != NULL, known);
        }
    }
    for (int i = 0; i < OCT_WIRE_FORGOTTEN_MAX; i++) {
        snprintf(a.id, sizeof a.id, "more-%d", i);
        oct_wire_add_applied(held, &a);
    }
    ck_assert_int_eq(oct_wire_find_applied(held, "ForwardBackward", "new", 0, 0, &found, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(oct_wire_find_applied(held, "ForwardBackward", "", 0, 0, &found, &err),
                     OCTET_OK);
    octet_held_destroy(other);
}
END_TEST

START_TEST(what_is_no_record_is_none)
{
    static const char *const notes[] = {"", "{", "[]", "{\"applied\": 3}",
                                        "{\"applied\": [1, {}, {\"id\": \"x\"}]}"};

    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        oct_wire_read_note(held, notes[i]);
        ck_assert_uint_eq(held->applied_count, 0);
    }
    oct_wire_read_note(held, NULL);
    ck_assert_uint_eq(held->applied_count, 0);
}
END_TEST

/* The n-th allocation fails, for every n: the step has been done whole, and is answered when it is
 * asked for again, or it has not been done. */
START_TEST(a_step_without_memory_is_whole_or_not_at_all)
{
    struct step s;
    char before[33], after[33];
    int failures = 0;

    for (uint64_t n = 1;; n++) {
        octet_held_destroy(held);
        octet_arena_reset(arena);
        held = make_session();
        memset(&exchange, 0, sizeof exchange);
        digest_of(before);
        octet_arena_fail_at(arena, n);
        enum octet_status status = run("TrainStep", step_of(&s, 0, "a"), NULL);
        octet_arena_fail_at(arena, 0);
        digest_of(after);
        if (status == OCTET_OK)
            break;
        failures++;
        ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        Octet__V1__TrainStepResponse *reply;
        if (exchange.has_changed) {
            ck_assert_int_eq(octet_session_step(held->session), 1);
            ck_assert_int_eq(run("TrainStep", step_of(&s, 0, "a"), &reply), OCTET_OK);
            ck_assert(reply->replayed && strcmp(reply->digest, after) == 0);
        } else {
            ck_assert_str_eq(before, after);
            ck_assert_int_eq(octet_session_step(held->session), 0);
            ck_assert_int_eq(octet_session_accumulated(held->session), 0);
        }
    }
    ck_assert_int_gt(failures, 10);
}
END_TEST

START_TEST(chunks_must_be_whole_and_in_order)
{
    static const struct {
        int64_t offset;
        size_t length;
        enum octet_status status;
    } chunks[] = {{4, 8, OCTET_INVALID_ARGUMENT},  {0, 8, OCTET_OK},
                  {4, 8, OCTET_INVALID_ARGUMENT},  {12, 4, OCTET_INVALID_ARGUMENT},
                  {8, 6, OCTET_INVALID_ARGUMENT},  {8, 28, OCTET_INVALID_ARGUMENT},
                  {-8, 8, OCTET_INVALID_ARGUMENT}, {8, 20, OCTET_OK}};
    Octet__V1__PutTensorsRequest put = OCTET__V1__PUT_TENSORS_REQUEST__INIT;
    Octet__V1__PutTensorsResponse *reply;
    int64_t shape[] = {8};
    float data[16], got[8];

    for (int i = 0; i < 16; i++)
        data[i] = (float)i;
    put.session_id = (char *)(uintptr_t) "s";
    put.name = (char *)(uintptr_t) "decoder/decoder_norm/scale";
    put.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
    put.shape = shape;
    put.n_shape = 1;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        put.offset = chunks[i].offset;
        put.data = (ProtobufCBinaryData){chunks[i].length,
                                         (uint8_t *)data + (put.offset > 0 ? put.offset : 0)};
        ck_assert_int_eq(run("PutTensors", &put.base, NULL), chunks[i].status);
    }
    ck_assert_int_eq(run("PutTensors", NULL, NULL), OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "bytes 28 to 32"));
    put.offset = 28;
    put.data = (ProtobufCBinaryData){4, (uint8_t *)&data[7]};
    ck_assert_int_eq(run("PutTensors", &put.base, NULL), OCTET_OK);
    ck_assert_int_eq(run("PutTensors", NULL, &reply), OCTET_OK);
    ck_assert(reply->tensors == 1 && reply->bytes == 32);
    const octet_parameters *all = octet_session_tensors(held->session, OCTET_SET_PARAMETER);
    size_t index = octet_parameters_find(all, put.name);
    ck_assert_int_eq(octet_session_get(held->session, OCTET_SET_PARAMETER, index, 0, 32, got, &err),
                     OCTET_OK);
    ck_assert_mem_eq(got, data, 32);
}
END_TEST

START_TEST(a_download_ends_after_its_last_chunk)
{
    Octet__V1__GetTensorsRequest get = OCTET__V1__GET_TENSORS_REQUEST__INIT;
    Octet__V1__GetTensorsResponse *chunk;
    char *names[] = {(char *)(uintptr_t) "decoder/.*scale"};
    size_t bytes = 0, wanted = 0;
    const octet_parameters *all = octet_session_tensors(held->session, OCTET_SET_PARAMETER);

    for (size_t i = 0; i < octet_parameters_count(all); i++) {
        struct octet_array array;
        const char *name;
        octet_parameters_describe(all, i, &name, &array);
        if (strncmp(name, "decoder/", 8) == 0 && strstr(name, "scale"))
            wanted += (size_t)octet_array_bytes(&array);
    }
    get.session_id = (char *)(uintptr_t) "s";
    get.names = names;
    get.n_names = 1;
    get.chunk_bytes = 15; /* 8: whole elements */
    const ProtobufCMessage *request = &get.base;
    do {
        ck_assert_int_eq(run("GetTensors", request, &chunk), OCTET_OK);
        ck_assert_uint_le(chunk->data.len, 8);
        bytes += chunk->data.len;
        request = NULL;
    } while (exchange.has_more);
    ck_assert_uint_eq(bytes, wanted);
}
END_TEST

START_TEST(a_session_that_was_not_lent_is_wanted)
{
    static const struct octet_host host = {.lease_ms = 1};
    Octet__V1__DescribeSessionRequest request = OCTET__V1__DESCRIBE_SESSION_REQUEST__INIT;
    struct octet_call call = {.context = context, .arena = arena, .facts = &facts, .session = held};
    ProtobufCMessage *response;

    request.session_id = (char *)(uintptr_t) "another";
    const struct octet_method *method = octet_method_find("DescribeSession");
    ck_assert_int_eq(method->run(&call, &request.base, &response, &err), OCTET_NOT_FOUND);
    call.host = &host;
    call.exchange = &exchange;
    ck_assert_int_eq(method->run(&call, &request.base, &response, &err), OCTET_UNAVAILABLE);
    ck_assert_str_eq(exchange.wanted_session, "another");
}
END_TEST

START_TEST(names_are_no_paths)
{
    static const char *const good[] = {"a", "step-10", "A_b.3"};
    static const char *const bad[] = {"", ".", "..", ".a", "a/b", "a b", "a\n", "\xc3\xa4"};
    char longest[OCTET_NAME_BYTES + 1];

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_int_eq(oct_wire_check_checkpoint(good[i], "name", &err), OCTET_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(oct_wire_check_checkpoint(bad[i], "name", &err), OCTET_INVALID_ARGUMENT);
    memset(longest, 'x', sizeof longest);
    longest[OCTET_NAME_BYTES] = '\0';
    ck_assert_int_eq(oct_wire_check_id(longest, &err), OCTET_INVALID_ARGUMENT);
    longest[OCTET_NAME_BYTES - 1] = '\0';
    ck_assert_int_eq(oct_wire_check_id(longest, &err), OCTET_OK);
}
END_TEST

TCase *session_cases(void)
{
    TCase *cases = tcase_create("session");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, a_retry_is_answered_from_memory);
    tcase_add_test(cases, an_id_is_for_one_request);
    tcase_add_test(cases, the_record_is_bounded_and_survives_as_text);
    tcase_add_test(cases, what_is_no_record_is_none);
    tcase_add_test(cases, a_call_of_a_long_accumulation_counts_once);
    tcase_add_test(cases, a_step_without_memory_is_whole_or_not_at_all);
    tcase_add_test(cases, chunks_must_be_whole_and_in_order);
    tcase_add_test(cases, a_download_ends_after_its_last_chunk);
    tcase_add_test(cases, a_session_that_was_not_lent_is_wanted);
    tcase_add_test(cases, names_are_no_paths);
    return cases;
}
