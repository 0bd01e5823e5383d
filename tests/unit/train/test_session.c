/* Sessions: what a call changes, and that a failed one changes nothing; accumulation; memory; held
 * weights. Half-done calls would show as gradients or digests that moved. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fixture.h"
#include "train/session_private.h"

static struct fixture f;

static void begin(void)
{
    fixture_begin(&f);
}

static void end(void)
{
    fixture_end(&f);
}

static octet_session *create(const char *const *settings,
                             const struct octet_session_options *options)
{
    struct octet_config_input input = fixture_input(&f, "deepseek3-tiny", settings);
    octet_session *session;

    ck_assert_ok(&f, octet_session_create(f.context, &input, NULL, options, &session, &f.err));
    ck_assert_ok(&f, octet_session_initialise(session, 1, &f.compute, &f.err));
    return session;
}

static octet_session *create_train(const char *const *settings)
{
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN, .threads = 2};

    return create(settings, &options);
}

static const struct octet_pass_options mean = {.reduction = OCTET_REDUCTION_MEAN};

static struct octet_pass train(octet_session *session, const struct octet_batch *batch,
                               const struct octet_pass_options *options)
{
    struct octet_pass pass;

    ck_assert_ok(
        &f, octet_session_forward_backward(session, &f.compute, batch, options, &pass, &f.err));
    octet_plan_unref(pass.plan);
    return pass;
}

static struct octet_step step(octet_session *session)
{
    struct octet_optimizer optimizer;
    struct octet_step out;

    octet_session_optimizer(session, &optimizer);
    optimizer.learning_rate = 0.01;
    optimizer.steps = optimizer.learning_rate_schedule_steps = 100;
    optimizer.warmup_steps_fraction = 0;
    ck_assert_ok(&f, octet_session_optim_step(session, &f.compute, &optimizer, &out, &f.err));
    return out;
}

/* Of what a client reads: 16 hexadecimal digits. */
static void digest_of(const octet_session *session, enum octet_tensor_set set, char digest[33])
{
    const octet_parameters *p = octet_session_tensors(session, set);
    uint64_t hash = 0;

    for (size_t i = 0; i < p->count; i++) {
        uint64_t bytes = oct_parameters_elements(p, i) * p->entries[i].element_bytes;
        void *data = malloc(bytes);
        ck_assert_ok(&f, octet_session_get(session, set, i, 0, bytes, data, &f.err));
        hash = XXH3_64bits_withSeed(data, bytes, hash);
        free(data);
    }
    snprintf(digest, 33, "%016llx", (unsigned long long)hash);
}

START_TEST(training_on_one_batch_lowers_its_loss)
{
    octet_session *s = create_train(SETTINGS(TINY_SETTINGS, "quantization=fp8_full"));
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 1);
    double first = 0, last = 0;
    char before[33];

    octet_parameters_digest(octet_session_tensors(s, OCTET_SET_PARAMETER), before);
    for (int k = 0; k < 12; k++) {
        struct octet_pass pass = train(s, &batch, &mean);
        ck_assert_int_eq(octet_session_accumulated(s), 1);
        ck_assert(pass.losses.has_mtp && !pass.losses.has_load_balance);
        ck_assert_double_eq_tol(pass.losses.total, pass.losses.main + pass.losses.mtp, 1e-5);
        ck_assert(pass.grad_norm > 0);
        struct octet_step taken = step(s);
        ck_assert_int_eq(taken.step, k + 1);
        ck_assert_double_eq(taken.grad_norm, pass.grad_norm);
        ck_assert_int_eq(octet_session_accumulated(s), 0);
        ck_assert_str_ne(taken.digest, before);
        memcpy(before, taken.digest, sizeof before);
        octet_parameters_digest(octet_session_tensors(s, OCTET_SET_PARAMETER), taken.digest);
        ck_assert_str_eq(taken.digest, before);
        last = pass.losses.main;
        first = k ? first : last;
    }
    ck_assert_msg(last < 0.7 * first, "from %g to %g", first, last);
    octet_session_destroy(s);
}
END_TEST

/* Every gradient of set b, times the factors, beside a's. */
static void compare_gradients(const octet_session *a, const octet_session *b, double tolerance)
{
    const octet_parameters *x = octet_session_tensors(a, OCTET_SET_GRADIENT);
    const octet_parameters *y = octet_session_tensors(b, OCTET_SET_GRADIENT);

    for (size_t i = 0; i < x->count; i++) {
        const float *p = oct_parameters_data(x, i), *q = oct_parameters_data(y, i);
        double largest = 1e-6;
        for (size_t e = 0; e < oct_parameters_elements(x, i); e++)
            largest = fmax(largest, fabs((double)p[e]));
        for (size_t e = 0; e < oct_parameters_elements(x, i); e++)
            ck_assert_msg(fabs((double)p[e] - (double)q[e]) <= tolerance * largest,
                          "%s[%zu]: %g and %g", x->entries[i].tensor->name, e, (double)p[e],
                          (double)q[e]);
    }
}

static struct octet_array rows(const struct octet_array *whole, int64_t first, int64_t count)
{
    struct octet_array part = *whole;

    part.dim[0] = count;
    part.data = (char *)whole->data + first * octet_array_bytes(whole) / whole->dim[0];
    return part;
}

START_TEST(summed_parts_are_the_whole)
{
    const char *const *settings =
        SETTINGS(TINY_SETTINGS, "dtype=float32", "load_balance_loss_weight=0.1");
    octet_session *one = create_train(settings), *parts = create_train(settings);
    struct octet_batch whole = fixture_batch(&f, 4, 16, 64, 2), part = {.tokens = {.rank = 0}};
    struct octet_pass_options sum = {.reduction = OCTET_REDUCTION_SUM, .denominator = 60};

    struct octet_pass all = train(one, &whole, &sum);
    double total = 0;
    struct octet_pass last = all;
    for (int64_t k = 0; k < 4; k += 2) {
        part.tokens = rows(&whole.tokens, k, 2);
        last = train(parts, &part, &sum);
        total += last.losses.total;
    }
    ck_assert_int_eq(octet_session_accumulated(parts), 2);
    ck_assert_double_eq_tol(total, all.losses.total, 1e-5 * total);
    ck_assert_double_eq_tol(last.grad_norm, all.grad_norm, 1e-5 * all.grad_norm);
    compare_gradients(one, parts, 2e-5);
    octet_session_destroy(one);
    octet_session_destroy(parts);
}
END_TEST

/* A call that fails, whatever has accumulated, leaves the gradients' bits. */
static void check_failure(octet_session *s, const struct octet_compute *compute,
                          const struct octet_batch *batch, enum octet_status expected)
{
    struct octet_pass pass;
    char before[33], after[33];
    int64_t accumulated = octet_session_accumulated(s);

    digest_of(s, OCTET_SET_GRADIENT, before);
    ck_assert_int_eq(octet_session_forward_backward(s, compute, batch, &mean, &pass, &f.err),
                     expected);
    digest_of(s, OCTET_SET_GRADIENT, after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(octet_session_accumulated(s), accumulated);
}

START_TEST(a_call_that_fails_changes_nothing)
{
    octet_session *s = create_train(SETTINGS(TINY_SETTINGS, "quantization=fp8_full"));
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 3), bad = batch;
    struct octet_cancel cancel = {.cancelled = true};
    struct octet_compute cancelled = {f.arena, f.workers, &cancel};
    int32_t tokens[32] = {0};

    tokens[17] = 64;
    bad.tokens.data = tokens;
    for (int round = 0; round < 3; round++) {
        check_failure(s, &cancelled, &batch, OCTET_CANCELLED);
        check_failure(s, &f.compute, &bad, OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.field, "tokens[1,1]");
        train(s, &batch, &mean);
    }
    struct octet_optimizer optimizer;
    struct octet_step taken;
    char before[33], after[33];
    octet_session_optimizer(s, &optimizer);
    optimizer.adam_b1 = 2;
    digest_of(s, OCTET_SET_PARAMETER, before);
    ck_assert_int_eq(octet_session_optim_step(s, &f.compute, &optimizer, &taken, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "optimizer.adam_b1");
    optimizer.adam_b1 = 0.9;
    ck_assert_int_eq(octet_session_optim_step(s, &cancelled, &optimizer, &taken, &f.err),
                     OCTET_CANCELLED);
    digest_of(s, OCTET_SET_PARAMETER, after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(octet_session_step(s), 0);
    step(s);
    ck_assert_int_eq(octet_session_optim_step(s, &f.compute, &optimizer, &taken, &f.err),
                     OCTET_FAILED_PRECONDITION);
    octet_session_destroy(s);
}
END_TEST

START_TEST(running_out_of_memory_anywhere_changes_nothing)
{
    octet_session *s = create_train(SETTINGS(TINY_SETTINGS, "quantization=fp8_full"));
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 4);
    char before[33], after[33];
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;
    int failures = 0;

    train(s, &batch, &mean);
    digest_of(s, OCTET_SET_GRADIENT, before);
    for (uint64_t n = 1; status == OCTET_RESOURCE_EXHAUSTED; n++) {
        octet_arena *arena = octet_arena_create((size_t)1 << 30);
        struct octet_compute compute = {arena, f.workers, NULL};
        struct octet_pass pass = {.plan = NULL};
        octet_arena_fail_at(arena, n);
        status = octet_session_forward_backward(s, &compute, &batch, &mean, &pass, &f.err);
        digest_of(s, OCTET_SET_GRADIENT, after);
        if (status != OCTET_OK) {
            failures++;
            ck_assert_str_eq(before, after);
        } else {
            octet_plan_unref(pass.plan);
        }
        octet_arena_destroy(arena);
    }
    ck_assert_int_eq(status, OCTET_OK);
    ck_assert_str_ne(before, after);
    ck_assert_int_gt(failures, 3);
    octet_session_destroy(s);
}
END_TEST

START_TEST(recomputed_activations_give_the_same_bits)
{
    octet_session *kept = create_train(SETTINGS(TINY_SETTINGS, "quantization=fp8_full"));
    octet_session *again =
        create_train(SETTINGS(TINY_SETTINGS, "quantization=fp8_full", "remat_policy=full"));
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 5);
    char a[33], b[33];

    train(kept, &batch, &mean);
    train(again, &batch, &mean);
    digest_of(kept, OCTET_SET_GRADIENT, a);
    digest_of(again, OCTET_SET_GRADIENT, b);
    ck_assert_str_eq(a, b);
    ck_assert(again->recompute && !kept->recompute);
    ck_assert_uint_lt(octet_session_memory(again).activations,
                      octet_session_memory(kept).activations);
    octet_session_destroy(kept);
    octet_session_destroy(again);
}
END_TEST

/* MaxText's split of rows and its losses, from single passes. */
START_TEST(microbatches_are_maxtexts)
{
    octet_session *split = create_train(SETTINGS(TINY_SETTINGS, "gradient_accumulation_steps=2"));
    octet_session *single = create_train(SETTINGS(TINY_SETTINGS));
    struct octet_batch whole = fixture_batch(&f, 4, 16, 64, 6);
    struct octet_pass_options options = {.return_logprobs = true};
    int32_t halves[2][32];
    double main_sum = 0, mtp = 0, weights = 0;
    float logprobs[2][32];

    for (int64_t row = 0; row < 4; row++)
        memcpy(&halves[row % 2][row / 2 * 16], (int32_t *)whole.tokens.data + row * 16,
               16 * sizeof(int32_t));
    for (int k = 0; k < 2; k++) {
        struct octet_batch half = {.tokens = whole.tokens};
        half.tokens.dim[0] = 2;
        half.tokens.data = halves[k];
        struct octet_pass pass = train(single, &half, &options);
        main_sum += pass.losses.main * pass.losses.weight_sum;
        weights += pass.losses.weight_sum;
        mtp += pass.losses.mtp / 2;
        memcpy(logprobs[k], pass.logprobs.data, sizeof logprobs[k]);
    }
    struct octet_pass pass = train(split, &whole, &options);
    ck_assert_double_eq_tol(pass.losses.main, main_sum / weights, 1e-6 * pass.losses.main);
    ck_assert_double_eq_tol(pass.losses.mtp, mtp, 1e-6);
    ck_assert_double_eq(pass.losses.weight_sum, weights);
    const octet_plan *plan = octet_session_plan(single);
    for (size_t i = 0; i < octet_plan_interception_count(plan); i++)
        ck_assert_int_eq(pass.counts[i], octet_plan_interception(plan, i)->count);
    for (int64_t row = 0; row < 4; row++)
        ck_assert_mem_eq((float *)pass.logprobs.data + row * 16, &logprobs[row % 2][row / 2 * 16],
                         16 * sizeof(float));
    ck_assert_int_eq(octet_session_accumulated(split), 1);

    whole.tokens.dim[0] = 3;
    struct octet_pass refused;
    ck_assert_int_eq(
        octet_session_forward_backward(split, &f.compute, &whole, &mean, &refused, &f.err),
        OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "tokens");
    octet_session_destroy(split);
    octet_session_destroy(single);
}
END_TEST

START_TEST(a_limit_is_refused_with_both_numbers)
{
    struct octet_config_input input = fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS));
    const octet_config *config = fixture_config(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS));
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN, .threads = 2};
    struct octet_session_memory memory;
    octet_session *s;
    char number[32];

    ck_assert_ok(&f, octet_session_estimate(f.context, config, NULL, &options, &memory, &f.err));
    ck_assert_uint_eq(memory.peak, memory.parameters + memory.gradients + memory.moments +
                                       memory.activations + memory.scratch);
    options.memory_limit_bytes = memory.peak - 1;
    ck_assert_int_eq(octet_session_create(f.context, &input, NULL, &options, &s, &f.err),
                     OCTET_RESOURCE_EXHAUSTED);
    snprintf(number, sizeof number, "%llu", (unsigned long long)memory.peak);
    ck_assert_ptr_nonnull(strstr(f.err.text, number));
    snprintf(number, sizeof number, "%llu", (unsigned long long)memory.peak - 1);
    ck_assert_ptr_nonnull(strstr(f.err.text, number));

    options.memory_limit_bytes = memory.peak;
    s = create(SETTINGS(TINY_SETTINGS), &options);
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 7);
    train(s, &batch, &mean);
    struct octet_batch large = fixture_batch(&f, 64, 16, 64, 7);
    check_failure(s, &f.compute, &large, OCTET_RESOURCE_EXHAUSTED);
    step(s);
    train(s, &batch, &mean);
    octet_session_destroy(s);
}
END_TEST

struct account {
    uint64_t taken, most;
};

static enum octet_status account_take(void *user, uint64_t bytes, struct octet_error *err)
{
    struct account *account = user;

    if (account->taken + bytes > account->most)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "%llu bytes are too many",
                          (unsigned long long)bytes);
    account->taken += bytes;
    return OCTET_OK;
}

static void account_give(void *user, uint64_t bytes)
{
    struct account *account = user;

    ck_assert_uint_le(bytes, account->taken);
    account->taken -= bytes;
}

/* What was planned needs no more; a larger batch and gradients over calls do, for as long as they
 * are there. */
START_TEST(memory_beyond_the_peak_is_asked_for)
{
    struct account account = {0, 0};
    struct octet_session_account asked = {&account, account_take, account_give};
    struct octet_session_options options = {
        .mode = OCTET_SESSION_TRAIN, .account = &asked, .threads = 2};
    octet_session *s = create(SETTINGS(TINY_SETTINGS), &options);
    struct octet_batch planned = fixture_batch(&f, 2, 16, 64, 2);
    struct octet_batch large = fixture_batch(&f, 32, 64, 64, 2);
    struct octet_pass pass;

    train(s, &planned, &mean);
    ck_assert_int_eq(octet_session_forward_backward(s, &f.compute, &planned, &mean, &pass, &f.err),
                     OCTET_RESOURCE_EXHAUSTED); /* a second set of gradients */
    ck_assert_int_eq(octet_session_accumulated(s), 1);
    step(s);
    ck_assert_int_eq(octet_session_forward_backward(s, &f.compute, &large, &mean, &pass, &f.err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(octet_session_forward(s, &f.compute, &large, &mean, &pass, &f.err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(account.taken, 0);
    account.most = UINT64_MAX / 2;
    train(s, &large, &mean);
    ck_assert_uint_eq(account.taken, 0); /* and its block is not kept */
    train(s, &planned, &mean);
    ck_assert_uint_eq(account.taken, octet_session_memory(s).gradients);
    step(s);
    train(s, &planned, &mean);
    ck_assert_uint_eq(account.taken, 0);
    train(s, &planned, &mean);
    octet_session_destroy(s);
    ck_assert_uint_eq(account.taken, 0);
}
END_TEST

START_TEST(numbers_go_in_and_come_out)
{
    octet_session *s = create_train(SETTINGS(TINY_SETTINGS));
    const enum octet_tensor_set sets[] = {OCTET_SET_PARAMETER, OCTET_SET_GRADIENT,
                                          OCTET_SET_OPTIMIZER_MU, OCTET_SET_OPTIMIZER_NU};
    float in[3] = {1, 2, 3}, out[3];

    for (size_t k = 0; k < 4; k++) {
        ck_assert_ok(&f, octet_session_put(s, sets[k], 2, 8, sizeof in, in, &f.err));
        ck_assert_ok(&f, octet_session_get(s, sets[k], 2, 8, sizeof out, out, &f.err));
        ck_assert_mem_eq(in, out, sizeof in);
        in[0] += 10;
    }
    ck_assert_int_eq(octet_session_accumulated(s), 1); /* a gradient was put */
    ck_assert_int_eq(octet_session_put(s, OCTET_SET_PARAMETER, 10000, 0, 4, in, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "name");
    octet_session_destroy(s);
}
END_TEST

static struct octet_pass forward(const octet_session *s, const struct octet_batch *batch)
{
    struct octet_pass_options options = {.return_logits = true, .return_acceptance = true};
    struct octet_pass pass;

    ck_assert_ok(&f, octet_session_forward(s, &f.compute, batch, &options, &pass, &f.err));
    octet_plan_unref(pass.plan);
    return pass;
}

static void copy_parameters(const octet_session *from, octet_session *to)
{
    const octet_parameters *p = octet_session_tensors(from, OCTET_SET_PARAMETER);

    for (size_t i = 0; i < p->count; i++) {
        uint64_t bytes = oct_parameters_elements(p, i) * p->entries[i].element_bytes;
        void *data = malloc(bytes);
        ck_assert_ok(&f, octet_session_get(from, OCTET_SET_PARAMETER, i, 0, bytes, data, &f.err));
        ck_assert_ok(&f, octet_session_put(to, OCTET_SET_PARAMETER, i, 0, bytes, data, &f.err));
        free(data);
    }
}

/* Matrices large enough that scales and alignment are a small part. */
START_TEST(the_estimate_counts_held_weights_as_codes)
{
    const char *const *settings =
        SETTINGS(TINY_SETTINGS, "quantization=fp8_full", "base_emb_dim=128", "base_mlp_dim=512",
                 "base_moe_mlp_dim=256", "num_experts=8");
    const octet_config *config = fixture_config(&f, "deepseek3-tiny", settings);
    struct octet_session_options options = {.mode = OCTET_SESSION_INFER};
    struct octet_session_memory planned;
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 8);

    ck_assert_ok(&f, octet_session_estimate(f.context, config, NULL, &options, &planned, &f.err));
    octet_session *s = create(settings, &options);
    uint64_t floats = octet_session_memory(s).parameters;
    ck_assert_uint_lt(planned.parameters, floats / 2);
    ck_assert_uint_ge(planned.peak, floats + planned.scratch);
    forward(s, &batch);
    uint64_t held = octet_session_memory(s).parameters;
    ck_assert_msg(held > planned.parameters * 9 / 10 && held < planned.parameters * 11 / 10,
                  "%llu held, %llu planned", (unsigned long long)held,
                  (unsigned long long)planned.parameters);
    octet_session_destroy(s);
}
END_TEST

START_TEST(held_weights_give_the_logits_of_floats)
{
    static const char *const scans[] = {"scan_layers=true", "scan_layers=false"};

    for (int k = 0; k < 2; k++) {
        const char *const *settings = SETTINGS(TINY_SETTINGS, "quantization=fp8_full", scans[k]);
        struct octet_session_options options = {.mode = OCTET_SESSION_INFER};
        octet_session *floats = create_train(settings), *codes = create(settings, &options);
        struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 8);

        copy_parameters(floats, codes);
        uint64_t before = octet_session_memory(codes).parameters;
        struct octet_pass a = forward(floats, &batch), b = forward(codes, &batch);
        ck_assert_mem_eq(a.logits.data, b.logits.data, (size_t)octet_array_bytes(&a.logits));
        ck_assert_double_eq(a.losses.total, b.losses.total);
        ck_assert_uint_lt(octet_session_memory(codes).parameters, before);

        /* Reading gives codes * scale: written back, the same logits. */
        const octet_parameters *p = octet_session_tensors(codes, OCTET_SET_PARAMETER);
        size_t held = 0;
        for (size_t i = 0; i < p->count; i++)
            held += p->entries[i].dropped;
        ck_assert_uint_gt(held, 10);
        copy_parameters(codes, codes);
        struct octet_pass c = forward(codes, &batch);
        float largest = 0;
        for (int64_t e = 0; e < octet_array_elements(&a.logits); e++)
            largest =
                fmaxf(largest, fabsf(((float *)a.logits.data)[e] - ((float *)c.logits.data)[e]));
        ck_assert_msg(largest < 0.05F, "%g", (double)largest);

        struct octet_pass pass;
        ck_assert_int_eq(
            octet_session_forward_backward(codes, &f.compute, &batch, &mean, &pass, &f.err),
            OCTET_FAILED_PRECONDITION);
        ck_assert_int_eq(octet_session_put(codes, OCTET_SET_GRADIENT, 0, 0, 0, "", &f.err),
                         OCTET_FAILED_PRECONDITION);
        octet_session_destroy(floats);
        octet_session_destroy(codes);
    }
}
END_TEST

/* Codes and scales, as arrays in MaxText's layout, are what reading multiplies. */
START_TEST(held_codes_times_scale_is_what_get_returns)
{
    struct octet_session_options options = {.mode = OCTET_SESSION_INFER};
    octet_session *s = create(SETTINGS(TINY_SETTINGS, "quantization=fp8_full"), &options);
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 9);
    const octet_parameters *p = octet_session_tensors(s, OCTET_SET_PARAMETER);
    size_t seen = 0;

    forward(s, &batch);
    for (size_t i = 0; i < p->count; i++) {
        struct octet_quantized q;
        struct octet_array whole;
        bool held;
        ck_assert_ok(&f, octet_session_quantized(s, i, f.arena, &held, &q, &f.err));
        if (!held)
            continue;
        seen++;
        ck_assert_ok(&f, octet_dequantize(&f.compute, &q, OCTET_DTYPE_F32, &whole, &f.err));
        size_t bytes = (size_t)octet_array_bytes(&whole);
        ck_assert_uint_eq(bytes, oct_parameters_elements(p, i) * sizeof(float));
        float *got = malloc(bytes);
        for (size_t at = 0; at < bytes; at += 4096) /* in chunks */
            ck_assert_ok(&f, octet_session_get(s, OCTET_SET_PARAMETER, i, at,
                                               bytes - at < 4096 ? bytes - at : 4096,
                                               (char *)got + at, &f.err));
        ck_assert_mem_eq(got, whole.data, bytes);
        free(got);
    }
    ck_assert_uint_gt(seen, 10);
    octet_session_destroy(s);
}
END_TEST

struct reading {
    octet_session *session;
    size_t index, count;
    float *numbers;
    atomic_bool end;
    size_t bad;
};

static void *read_on(void *user)
{
    struct reading *r = user;
    struct octet_error err;

    while (!atomic_load(&r->end)) {
        if (octet_session_get(r->session, OCTET_SET_PARAMETER, r->index, 0,
                              r->count * sizeof *r->numbers, r->numbers, &err) != OCTET_OK)
            r->bad++;
        for (size_t i = 0; i < r->count; i++)
            r->bad += fabsf(r->numbers[i] - 1) > 0.01f;
    }
    return NULL;
}

/* The first pass makes codes and frees the floats while somebody reads them: 16 MiB of ones. */
START_TEST(floats_are_not_freed_under_a_reader)
{
    struct octet_session_options options = {.mode = OCTET_SESSION_INFER};
    struct octet_config_input input =
        fixture_input(&f, "deepseek3-tiny",
                      SETTINGS("vocab_size=64", "base_num_decoder_layers=2", "base_emb_dim=512",
                               "base_mlp_dim=8192", "quantization=fp8_full", "scan_layers=false"));
    struct octet_batch batch = fixture_batch(&f, 1, 4, 64, 2);
    struct octet_pass pass;
    struct octet_array array;
    const char *name;

    for (int round = 0; round < 5; round++) {
        struct reading r = {.end = false};
        pthread_t thread;
        ck_assert_ok(&f,
                     octet_session_create(f.context, &input, NULL, &options, &r.session, &f.err));
        r.index = octet_parameters_find(octet_session_tensors(r.session, OCTET_SET_PARAMETER),
                                        "decoder/dense_layers_0/mlp/wi_1/kernel");
        ck_assert_uint_ne(r.index, SIZE_MAX);
        octet_parameters_describe(octet_session_tensors(r.session, OCTET_SET_PARAMETER), r.index,
                                  &name, &array);
        r.count = (size_t)octet_array_elements(&array);
        r.numbers = malloc(r.count * sizeof *r.numbers);
        for (size_t i = 0; i < r.count; i++)
            r.numbers[i] = 1;
        ck_assert_ok(&f, octet_session_put(r.session, OCTET_SET_PARAMETER, r.index, 0,
                                           r.count * sizeof *r.numbers, r.numbers, &f.err));
        ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &r), 0);
        ck_assert_ok(&f,
                     octet_session_forward(r.session, &f.compute, &batch, &mean, &pass, &f.err));
        atomic_store(&r.end, true);
        pthread_join(thread, NULL);
        ck_assert_uint_eq(r.bad, 0);
        octet_plan_unref(pass.plan);
        octet_session_destroy(r.session);
        free(r.numbers);
    }
}
END_TEST

START_TEST(what_cannot_be_done_is_said_at_creation)
{
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    octet_session *s;
    struct octet_config_input input =
        fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS, "skip_step_on_spikes=true"));

    ck_assert_int_eq(octet_session_create(f.context, &input, NULL, &options, &s, &f.err),
                     OCTET_UNIMPLEMENTED);
    ck_assert_str_eq(f.err.field, "skip_step_on_spikes");
    input = fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS, "vocab_size=none"));
    ck_assert_int_eq(octet_session_create(f.context, &input, NULL, &options, &s, &f.err),
                     OCTET_INVALID_ARGUMENT);
}
END_TEST

START_TEST(what_is_traced_only_makes_no_session)
{
    static const struct {
        const char *setting, *field;
    } cases[] = {{"dtype=float16", "dtype"},
                 {"weight_dtype=float16", "weight_dtype"},
                 {"mu_dtype=float16", "mu_dtype"},
                 {"mu_dtype=bool", "mu_dtype"},
                 {"mu_dtype=float8_e4m3fn", "mu_dtype"},
                 {"mu_dtype=half", "mu_dtype"},
                 {"quantization=fp8_gpu", "quantization"},
                 {"quantization=fp8_nanoo", "quantization"}};
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    octet_session *s;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct octet_config_input input =
            fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS, cases[i].setting));
        ck_assert_msg(octet_session_create(f.context, &input, NULL, &options, &s, &f.err) ==
                          OCTET_UNIMPLEMENTED,
                      "%s", cases[i].setting);
        ck_assert_str_eq(f.err.field, cases[i].field);
    }
}
END_TEST

START_TEST(a_rule_that_fits_no_shape_makes_no_session)
{
    static const struct octet_rule list[] = {
        {.module_path = "nothing", .weight_qtype = "int8"},
        {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .tile_size = "7"}};
    octet_rules *rules;
    octet_session *s;
    struct octet_config_input input = fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS));

    ck_assert_ok(&f, octet_rules_create(f.context, list, 2, &rules, &f.err));
    for (int mode = 0; mode < 2; mode++) {
        struct octet_session_options options = {.mode = mode ? OCTET_SESSION_INFER
                                                             : OCTET_SESSION_TRAIN};
        ck_assert_int_eq(octet_session_create(f.context, &input, rules, &options, &s, &f.err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.field, "rules[1].tile_size");
    }
    octet_rules_unref(rules);
}
END_TEST

/* A rule that takes attention's einsums too: each of its ops then runs by itself. */
START_TEST(rules_that_take_every_op_train)
{
    static const struct octet_rule rule = {
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    struct octet_config_input input =
        fixture_input(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS, "warmup_steps_fraction=0.0"));
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 3);
    octet_rules *rules;
    octet_session *s;

    ck_assert_ok(&f, octet_rules_create(f.context, &rule, 1, &rules, &f.err));
    ck_assert_ok(&f, octet_session_create(f.context, &input, rules, &options, &s, &f.err));
    ck_assert_ok(&f, octet_session_initialise(s, 1, &f.compute, &f.err));
    double first = train(s, &batch, &mean).losses.total, last = first;
    for (int i = 0; i < 20; i++) {
        step(s);
        struct octet_pass pass = train(s, &batch, &mean);
        last = pass.losses.total;
        ck_assert_double_finite(pass.grad_norm);
    }
    ck_assert_double_lt(last, first - 0.01);
    octet_session_destroy(s);
    octet_rules_unref(rules);
}
END_TEST

TCase *session_tests(void)
{
    TCase *tests = tcase_create("session");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, training_on_one_batch_lowers_its_loss);
    tcase_add_test(tests, summed_parts_are_the_whole);
    tcase_add_test(tests, a_call_that_fails_changes_nothing);
    tcase_add_test(tests, running_out_of_memory_anywhere_changes_nothing);
    tcase_add_test(tests, recomputed_activations_give_the_same_bits);
    tcase_add_test(tests, microbatches_are_maxtexts);
    tcase_add_test(tests, a_limit_is_refused_with_both_numbers);
    tcase_add_test(tests, memory_beyond_the_peak_is_asked_for);
    tcase_add_test(tests, numbers_go_in_and_come_out);
    tcase_add_test(tests, the_estimate_counts_held_weights_as_codes);
    tcase_add_test(tests, held_weights_give_the_logits_of_floats);
    tcase_add_test(tests, held_codes_times_scale_is_what_get_returns);
    tcase_add_test(tests, floats_are_not_freed_under_a_reader);
    tcase_add_test(tests, what_cannot_be_done_is_said_at_creation);
    tcase_add_test(tests, what_is_traced_only_makes_no_session);
    tcase_add_test(tests, a_rule_that_fits_no_shape_makes_no_session);
    tcase_add_test(tests, rules_that_take_every_op_train);
    return tests;
}
