/* Sessions on a backend: the numbers are those of the CPU, to the bit; the plan says what runs
 * where; a device without memory fails a call and no more. Runs on every backend that this machine
 * has, and says which it has not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static struct fixture f;
static octet_backend *backend; /* of the case under way */

static octet_session *create(const char *const *settings, enum octet_session_mode mode,
                             octet_backend *on)
{
    struct octet_config_input input = fixture_input(&f, "deepseek3-tiny", settings);
    struct octet_session_options options = {.mode = mode, .threads = 2, .backend = on};
    octet_session *session;

    ck_assert_ok(&f, octet_session_create(f.context, &input, NULL, &options, &session, &f.err));
    ck_assert_ok(&f, octet_session_initialise(session, 1, &f.compute, &f.err));
    return session;
}

static int placed_lines(const octet_plan *plan)
{
    int count = 0;

    for (size_t i = 0; i < octet_plan_interception_count(plan); i++)
        count += strcmp(octet_plan_interception(plan, i)->backend, "cpu") != 0;
    return count;
}

/* Parameters after two steps, and the losses of both. */
struct course {
    double main[2], mtp[2], grad_norm[2];
    char digest[33];
    const struct octet_line_figures *figures; /* of the last pass */
    size_t lines;
};

static struct course train(octet_session *session)
{
    const struct octet_pass_options options = {.reduction = OCTET_REDUCTION_MEAN, .numerics = true};
    struct octet_optimizer optimizer;
    struct course course = {.lines = 0};

    octet_session_optimizer(session, &optimizer);
    optimizer.steps = optimizer.learning_rate_schedule_steps = 100;
    for (int k = 0; k < 2; k++) {
        struct octet_batch batch = fixture_batch(&f, 2, 16, 64, (uint32_t)k);
        struct octet_pass pass;
        struct octet_step step;
        ck_assert_ok(&f, octet_session_forward_backward(session, &f.compute, &batch, &options,
                                                        &pass, &f.err));
        course.main[k] = pass.losses.main;
        course.mtp[k] = pass.losses.mtp;
        course.grad_norm[k] = pass.grad_norm;
        course.figures = pass.figures;
        course.lines = octet_plan_interception_count(pass.plan);
        octet_plan_unref(pass.plan);
        ck_assert_ok(&f, octet_session_optim_step(session, &f.compute, &optimizer, &step, &f.err));
        memcpy(course.digest, step.digest, sizeof course.digest);
    }
    return course;
}

static void compare_courses(const struct course *a, const struct course *b)
{
    for (int k = 0; k < 2; k++) {
        ck_assert_double_eq(a->main[k], b->main[k]);
        ck_assert_double_eq(a->mtp[k], b->mtp[k]);
        ck_assert_double_eq(a->grad_norm[k], b->grad_norm[k]);
    }
    ck_assert_str_eq(a->digest, b->digest);
    ck_assert_uint_eq(a->lines, b->lines);
    for (size_t i = 0; i < a->lines; i++) {
        ck_assert_str_eq(a->figures[i].digest, b->figures[i].digest);
        ck_assert_int_eq(a->figures[i].lhs.saturated, b->figures[i].lhs.saturated);
        ck_assert_int_eq(a->figures[i].lhs.underflowed, b->figures[i].lhs.underflowed);
        ck_assert_float_eq(a->figures[i].rhs.scale_max, b->figures[i].rhs.scale_max);
        ck_assert_float_eq(a->figures[i].cotangent.amax, b->figures[i].cotangent.amax);
    }
}

#define FP8 "quantization=fp8_full", "quantize_mtp=true"

static void trains_alike(void)
{
    const char *const *const cases[] = {
        SETTINGS(TINY_SETTINGS, FP8, "dtype=float32"),
        SETTINGS(TINY_SETTINGS, FP8, "dtype=bfloat16"),
        SETTINGS(TINY_SETTINGS, FP8, "dtype=float32", "remat_policy=full"),
        SETTINGS(TINY_SETTINGS, FP8, "dtype=float32", "scan_layers=false",
                 "gradient_accumulation_steps=2"),
        SETTINGS(TINY_SETTINGS, "quantization=int8", "dtype=float32"),
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        octet_session *here = create(cases[i], OCTET_SESSION_TRAIN, NULL);
        octet_session *there = create(cases[i], OCTET_SESSION_TRAIN, backend);
        struct course a = train(here), b = train(there);
        ck_assert_int_eq(placed_lines(octet_session_plan(here)), 0);
        ck_assert_int_gt(placed_lines(octet_session_plan(there)), 0);
        compare_courses(&a, &b);
        octet_session_destroy(here);
        octet_session_destroy(there);
    }
}

static void infers_alike(void)
{
    const struct octet_pass_options options = {.return_logits = true};
    octet_session *here = create(SETTINGS(TINY_SETTINGS, FP8), OCTET_SESSION_INFER, NULL);
    octet_session *there = create(SETTINGS(TINY_SETTINGS, FP8), OCTET_SESSION_INFER, backend);

    for (int64_t length = 1; length <= 16; length += 5) { /* weights stay on the device */
        struct octet_batch batch = fixture_batch(&f, 2, length, 64, (uint32_t)length);
        struct octet_pass a, b;
        ck_assert_ok(&f, octet_session_forward(here, &f.compute, &batch, &options, &a, &f.err));
        ck_assert_ok(&f, octet_session_forward(there, &f.compute, &batch, &options, &b, &f.err));
        ck_assert_int_gt(placed_lines(b.plan), 0);
        ck_assert_mem_eq(a.logits.data, b.logits.data, (size_t)octet_array_bytes(&a.logits));
        octet_plan_unref(a.plan);
        octet_plan_unref(b.plan);
    }
    octet_session_destroy(here);
    octet_session_destroy(there);
}

/* A backend with less memory than one product needs. */
static void fails_without_memory(const char *name)
{
    struct octet_backend_options poor = {.memory_limit_bytes = 3000};
    const struct octet_pass_options options = {.reduction = OCTET_REDUCTION_MEAN};
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, 1);
    octet_backend *small;
    struct octet_pass pass;

    ck_assert_ok(&f, octet_backend_open(name, &poor, &small, &f.err));
    octet_session *session = create(SETTINGS(TINY_SETTINGS, FP8), OCTET_SESSION_TRAIN, small);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(
            octet_session_forward_backward(session, &f.compute, &batch, &options, &pass, &f.err),
            OCTET_RESOURCE_EXHAUSTED);
        ck_assert_int_eq(octet_session_accumulated(session), 0);
    }
    octet_session_destroy(session);
    octet_backend_close(small);
}

START_TEST(a_session_on_a_backend_has_the_numbers_of_the_cpu)
{
    const char *name;

    fixture_begin(&f);
    for (size_t i = 0; (name = octet_backend_name(i)) != NULL; i++) {
        uint64_t held, peak;
        enum octet_status status = octet_backend_open(name, NULL, &backend, &f.err);
        if (status != OCTET_OK) {
            ck_assert_int_eq(status, OCTET_UNAVAILABLE);
            printf("not run: sessions on %s: %s\n", name, f.err.text);
            continue;
        }
        trains_alike();
        infers_alike();
        fails_without_memory(name);
        octet_backend_memory(backend, &held, &peak);
        ck_assert_uint_le(held, peak);
        ck_assert_uint_gt(peak, 0);
        octet_backend_close(backend);
        printf("run: sessions on %s\n", name);
    }
    fixture_end(&f);
}
END_TEST

TCase *placed_tests(void)
{
    TCase *tests = tcase_create("placed");

    tcase_add_test(tests, a_session_on_a_backend_has_the_numbers_of_the_cpu);
    tcase_set_timeout(tests, 240);
    return tests;
}
