/* Schedule and optimizer against MaxText's values and an independent computation in double. A wrong
 * order of clipping, decay and bias correction would show in the first steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtypes/codes.h"
#include "exec/parameters_private.h"
#include "fixture.h"
#include "train/optimizer.h"
#include "train/schedule.h"

static struct fixture f;

static void begin(void)
{
    fixture_begin(&f);
}

static void end(void)
{
    fixture_end(&f);
}

static struct octet_optimizer defaults(void)
{
    return (struct octet_optimizer){.opt_type = "adamw",
                                    .learning_rate = 3e-3,
                                    .cosine_learning_rate_final_fraction = 0.1,
                                    .warmup_steps_fraction = 0.1,
                                    .steps = 120,
                                    .learning_rate_schedule_steps = 100,
                                    .gradient_clipping_threshold = 1,
                                    .adam_b1 = 0.9,
                                    .adam_b2 = 0.95,
                                    .adam_eps = 1e-8,
                                    .adam_weight_decay = 0.1};
}

struct rate {
    int64_t step;
    double rate;
};

static void check_rates(const struct octet_optimizer *o, const struct rate *rates, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double got = oct_learning_rate(o, rates[i].step);
        ck_assert_msg(fabs(got - rates[i].rate) <= 3e-7 * o->learning_rate,
                      "step %d: %.10g, expected %.10g", (int)rates[i].step, got, rates[i].rate);
    }
}

/* Values of MaxText's create_learning_rate_schedule under JAX; the second list stands in
 * golden/ds_tiny.f32.gmm.nowarm.none.opt.json too. */
START_TEST(rates_are_maxtexts)
{
    struct octet_optimizer o = defaults();
    static const struct rate cosine[] = {{0, 0},
                                         {1, 0.00030000018887221813},
                                         {5, 0.001500000013038516},
                                         {9, 0.0027000000700354576},
                                         {10, 0.003000000026077032},
                                         {11, 0.0029991588089615107},
                                         {29, 0.002707591513171792},
                                         {50, 0.0018635394517332315},
                                         {99, 0.0003000000142492354},
                                         {100, 0},
                                         {119, 0},
                                         {100000, 0}};
    check_rates(&o, cosine, sizeof cosine / sizeof *cosine);

    o.learning_rate = 1e-3;
    o.steps = 30;
    o.learning_rate_schedule_steps = -1;
    o.warmup_steps_fraction = 0;
    static const struct rate cold[] = {{0, 0.0010000000474974513},  {1, 0.0009973621927201748},
                                       {2, 0.0009894792456179857},  {10, 0.0007607837906107306},
                                       {29, 9.999999747378752e-05}, {30, 0}};
    check_rates(&o, cold, sizeof cold / sizeof *cold);

    o = defaults();
    o.learning_rate = 2e-4;
    o.cosine_learning_rate_final_fraction = 0.25;
    o.steps = 60;
    o.learning_rate_schedule_steps = 50;
    o.lr_schedule_type = "wsd";
    o.wsd_decay_steps_fraction = 0.2;
    static const struct rate linear[] = {{1, 3.9999998989515007e-05},  {5, 2e-4},  {39, 2e-4},
                                         {45, 0.00011666666250675917}, {49, 5e-5}, {50, 0}};
    check_rates(&o, linear, sizeof linear / sizeof *linear);
    o.wsd_decay_style = "cosine";
    static const struct rate round[] = {{39, 2e-4}, {45, 0.00011197637650184333}, {49, 5e-5}};
    check_rates(&o, round, sizeof round / sizeof *round);
}
END_TEST

START_TEST(settings_out_of_range_are_named)
{
    struct octet_optimizer good = defaults(), o = good;
    ck_assert_ok(&f, octet_session_optimizer_check(&good, &f.err));
#define REFUSED(member, bad)                                                                       \
    o = good;                                                                                      \
    o.member = bad;                                                                                \
    ck_assert_int_eq(octet_session_optimizer_check(&o, &f.err), OCTET_INVALID_ARGUMENT);           \
    ck_assert_str_eq(f.err.field, "optimizer." #member)
    REFUSED(opt_type, "muon");
    REFUSED(opt_type, NULL);
    REFUSED(learning_rate, -1);
    REFUSED(learning_rate, (double)NAN);
    REFUSED(learning_rate, (double)INFINITY);
    REFUSED(warmup_steps_fraction, 1.5);
    REFUSED(gradient_clipping_threshold, -0.5);
    REFUSED(adam_b1, 1);
    REFUSED(adam_b2, -0.1);
    REFUSED(adam_eps, (double)NAN);
    REFUSED(lr_schedule_type, "linear");
    REFUSED(wsd_decay_style, "step");
#undef REFUSED
    o = good;
    o.steps = o.learning_rate_schedule_steps = -1;
    ck_assert_int_eq(octet_session_optimizer_check(&o, &f.err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "optimizer.steps");
}
END_TEST

/* ---- Steps ---- */

/* A set for the optimizer and the same numbers in double. */
struct twin {
    struct oct_optimizer_sets sets;
    size_t n;
    double *p, *g, *mu, *nu;
};

static octet_parameters *make(octet_plan *plan, enum octet_dtype dtype)
{
    octet_parameters *parameters;

    ck_assert_ok(&f, octet_parameters_create(plan, dtype, &parameters, &f.err));
    return parameters;
}

static void twin_begin(struct twin *t, enum octet_dtype dtype, enum octet_dtype mu_dtype)
{
    octet_plan *plan = fixture_plan(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS));

    t->sets = (struct oct_optimizer_sets){make(plan, dtype), make(plan, OCTET_DTYPE_F32),
                                          make(plan, mu_dtype), make(plan, dtype)};
    octet_plan_unref(plan);
    ck_assert_ok(&f, octet_parameters_initialise(t->sets.parameters, 3, &f.compute, &f.err));
    t->n = 0;
    for (size_t i = 0; i < t->sets.parameters->count; i++)
        t->n += oct_parameters_elements(t->sets.parameters, i);
    t->p = calloc(t->n, sizeof(double));
    t->g = calloc(t->n, sizeof(double));
    t->mu = calloc(t->n, sizeof(double));
    t->nu = calloc(t->n, sizeof(double));
}

static void twin_end(struct twin *t)
{
    octet_parameters_destroy(t->sets.parameters);
    octet_parameters_destroy(t->sets.gradients);
    octet_parameters_destroy(t->sets.mu);
    octet_parameters_destroy(t->sets.nu);
    free(t->p);
    free(t->g);
    free(t->mu);
    free(t->nu);
}

static double element(const octet_parameters *set, size_t i, size_t e)
{
    const void *data = oct_parameters_data(set, i);

    return set->entries[i].dtype == OCTET_DTYPE_BF16
               ? (double)oct_bf16_decode(((const uint16_t *)data)[e])
               : (double)((const float *)data)[e];
}

static void copy_out(const octet_parameters *set, double *to)
{
    for (size_t i = 0; i < set->count; i++)
        for (size_t e = 0; e < oct_parameters_elements(set, i); e++)
            *to++ = element(set, i, e);
}

/* The same pattern each time, `size` large. */
static void set_gradients(struct twin *t, double size, uint32_t seed)
{
    for (size_t i = 0; i < t->sets.gradients->count; i++) {
        float *g = oct_parameters_data(t->sets.gradients, i);
        for (size_t e = 0; e < oct_parameters_elements(t->sets.gradients, i); e++) {
            seed = seed * 1664525 + 1013904223;
            g[e] = (float)(((double)(seed >> 8) / 8388608 - 1) * size);
        }
    }
    copy_out(t->sets.gradients, t->g);
}

static double norm_of(const struct twin *t)
{
    double sum = 0;

    for (size_t k = 0; k < t->n; k++)
        sum += t->g[k] * t->g[k];
    return sqrt(sum);
}

/* Loshchilov and Hutter's algorithm with decoupled decay, as optax chains it. */
static void reference_step(struct twin *t, const struct octet_optimizer *o, const bool *decayed,
                           int64_t step, double rate)
{
    double norm = norm_of(t),
           scale = norm >= o->gradient_clipping_threshold && o->gradient_clipping_threshold > 0
                       ? o->gradient_clipping_threshold / norm
                       : 1;
    double c1 = 1 - pow(o->adam_b1, (double)step + 1), c2 = 1 - pow(o->adam_b2, (double)step + 1);
    size_t k = 0;

    for (size_t i = 0; i < t->sets.parameters->count; i++)
        for (size_t e = 0; e < oct_parameters_elements(t->sets.parameters, i); e++, k++) {
            double g = t->g[k] * scale;
            t->mu[k] = o->adam_b1 * t->mu[k] + (1 - o->adam_b1) * g;
            t->nu[k] = o->adam_b2 * t->nu[k] + (1 - o->adam_b2) * g * g;
            double update = t->mu[k] / c1 / (sqrt(t->nu[k] / c2 + o->adam_eps_root) + o->adam_eps);
            t->p[k] -= rate * (update + (decayed[i] ? o->adam_weight_decay : 0) * t->p[k]);
        }
}

static double step(struct twin *t, const struct octet_optimizer *o, const bool *decayed,
                   int64_t number, double rate)
{
    double sums[400], norm;

    ck_assert_uint_le(t->sets.gradients->pieces, 400);
    norm = oct_global_norm(t->sets.gradients, f.workers, sums);
    ck_assert_double_eq_tol(norm, norm_of(t), 1e-12 * norm);
    oct_optimizer_step(&t->sets, o, decayed, number, rate, norm, f.workers);
    return norm;
}

/* Check notes every assertion that passes; millions would take minutes. */
static void compare(const octet_parameters *set, const double *expected, double tolerance)
{
    for (size_t i = 0; i < set->count; i++)
        for (size_t e = 0; e < oct_parameters_elements(set, i); e++, expected++)
            if (!(fabs(element(set, i, e) - *expected) <= tolerance * (fabs(*expected) + 1e-2)))
                ck_abort_msg("%s[%zu]: %.9g, expected %.9g", set->entries[i].tensor->name, e,
                             element(set, i, e), *expected);
}

static void run_adamw(enum octet_dtype dtype, enum octet_dtype mu_dtype, double tolerance)
{
    struct twin t;
    struct octet_optimizer o = defaults();
    const char *mask[] = {"scale$", "^token"};
    bool decayed[200];

    o.adamw_mask = mask;
    o.adamw_mask_count = 2;
    twin_begin(&t, dtype, mu_dtype);
    copy_out(t.sets.parameters, t.p);
    ck_assert_ok(&f, oct_decay_mask(f.context, &o, t.sets.parameters, decayed, &f.err));
    for (int64_t k = 0; k < 4; k++) {
        /* Clipped, and not. */
        set_gradients(&t, k % 2 ? 1e-4 : 0.1, (uint32_t)k);
        ck_assert(k % 2 ? norm_of(&t) < 1 : norm_of(&t) > 1);
        reference_step(&t, &o, decayed, k, 0.01);
        step(&t, &o, decayed, k, 0.01);
        compare(t.sets.parameters, t.p, tolerance);
        compare(t.sets.mu, t.mu, mu_dtype == OCTET_DTYPE_BF16 ? 0.02 : 1e-5);
    }
    twin_end(&t);
}

START_TEST(adamw_takes_the_steps_of_its_formula)
{
    run_adamw(OCTET_DTYPE_F32, OCTET_DTYPE_F32, 5e-6);
    run_adamw(OCTET_DTYPE_F32, OCTET_DTYPE_BF16, 2e-2);
    run_adamw(OCTET_DTYPE_BF16, OCTET_DTYPE_BF16, 3e-2);
}
END_TEST

START_TEST(sgd_subtracts_the_clipped_gradient)
{
    struct twin t;
    struct octet_optimizer o = defaults();
    bool decayed[200] = {false};

    o.opt_type = "sgd";
    twin_begin(&t, OCTET_DTYPE_F32, OCTET_DTYPE_F32);
    copy_out(t.sets.parameters, t.p);
    set_gradients(&t, 0.1, 5);
    double norm = norm_of(&t);
    step(&t, &o, decayed, 0, 0.5);
    for (size_t k = 0; k < t.n; k++)
        t.p[k] -= 0.5 * t.g[k] / norm;
    compare(t.sets.parameters, t.p, 2e-6);
    compare(t.sets.mu, t.mu, 0);
    twin_end(&t);
}
END_TEST

START_TEST(a_mask_is_searched_in_names)
{
    octet_plan *plan = fixture_plan(&f, "deepseek3-tiny", SETTINGS(TINY_SETTINGS));
    octet_parameters *p = make(plan, OCTET_DTYPE_F32);
    struct octet_optimizer o = defaults();
    bool decayed[200];
    const char *mask[] = {"norm|bias", "^decoder/logits", "("};

    octet_plan_unref(plan);
    o.adamw_mask = mask;
    o.adamw_mask_count = 2;
    ck_assert_ok(&f, oct_decay_mask(f.context, &o, p, decayed, &f.err));
    for (size_t i = 0; i < p->count; i++) {
        const char *name = p->entries[i].tensor->name;
        bool masked = strstr(name, "norm") || strstr(name, "bias") ||
                      strncmp(name, "decoder/logits", 14) == 0;
        ck_assert_msg(decayed[i] != masked, "%s", name);
    }
    o.adamw_mask_count = 3;
    ck_assert_int_eq(oct_decay_mask(f.context, &o, p, decayed, &f.err), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "optimizer.adamw_mask[2]");
    mask[2] = "a)(b"; /* a pattern only inside of another one's parentheses */
    ck_assert_int_eq(oct_decay_mask(f.context, &o, p, decayed, &f.err), OCTET_INVALID_ARGUMENT);
    mask[2] = "(?i)LOGITS";
    ck_assert_ok(&f, oct_decay_mask(f.context, &o, p, decayed, &f.err));
    for (size_t i = 0; i < p->count; i++)
        ck_assert(!decayed[i] || !strstr(p->entries[i].tensor->name, "logits"));
    octet_parameters_destroy(p);
}
END_TEST

/* Every kernel set, any number of threads: the same bits. */
START_TEST(steps_do_not_depend_on_cpu_or_threads)
{
    char first[33] = "", digest[33];
    struct octet_optimizer o = defaults();
    bool decayed[200];

    for (size_t set = 0; octet_kernel_set_name(set); set++) {
        struct twin t;
        struct octet_compute compute = f.compute;
        double norm, sums[400];
        if (octet_kernel_set_obstacle(set))
            continue;
        ck_assert_ok(&f, octet_workers_create(octet_kernel_set_name(set), 1 + (int32_t)set % 3,
                                              &compute.workers, &f.err));
        twin_begin(&t, OCTET_DTYPE_F32, OCTET_DTYPE_BF16);
        ck_assert_ok(&f, oct_decay_mask(f.context, &o, t.sets.parameters, decayed, &f.err));
        for (int64_t k = 0; k < 3; k++) {
            set_gradients(&t, 0.1, (uint32_t)k);
            norm = oct_global_norm(t.sets.gradients, compute.workers, sums);
            oct_optimizer_step(&t.sets, &o, decayed, k, 0.01, norm, compute.workers);
        }
        octet_parameters_digest(t.sets.parameters, digest);
        if (!*first)
            memcpy(first, digest, sizeof first);
        ck_assert_str_eq(first, digest);
        twin_end(&t);
        octet_workers_destroy(compute.workers);
    }
}
END_TEST

TCase *optimizer_tests(void)
{
    TCase *tests = tcase_create("optimizer");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, rates_are_maxtexts);
    tcase_add_test(tests, settings_out_of_range_are_named);
    tcase_add_test(tests, adamw_takes_the_steps_of_its_formula);
    tcase_add_test(tests, sgd_subtracts_the_clipped_gradient);
    tcase_add_test(tests, a_mask_is_searched_in_names);
    tcase_add_test(tests, steps_do_not_depend_on_cpu_or_threads);
    return tests;
}
