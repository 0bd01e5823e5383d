/* Training from the same start, on the same tokens, beside MaxText's curves.
 *
 * What could break: anything that only builds up over steps: the optimizer's moments, the schedule,
 * a gradient that is a little off; it shows as a curve that leaves MaxText's. Both curves start
 * equal; without quantization they stay together (2.2e-6 after 300 steps: the CSV's last digit),
 * while under FP8 values on a tie flip, so each arm has a limit of its own. The folder holds
 * config.json, init_params_seedN, train_tokens_seedN.u16.bin, eval_tokens.u16.bin and
 * curve_ragged_float32_ARM_seedN.csv.
 *
 * usage: maxtext_curves [--steps N] [--print] FOLDER... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "maxtext_case.h"

enum { SEEDS = 3, EVAL_BATCHES = 4, EVAL_EVERY = 10, DEFAULT_STEPS = 60 };

struct arm {
    const char *name;
    const char *settings[3][2];
    double limit; /* of losses, over the first steps; of means over them: a tenth */
};
static const struct arm arms[] = {
    {"none",
     {{"quantization", ""}, {"use_qwix_quantization", "false"}, {"quantize_mtp", "false"}},
     2e-5},
    {"fp8",
     {{"quantization", "fp8_full"}, {"use_qwix_quantization", "true"}, {"quantize_mtp", "false"}},
     5e-2},
    {"fp8mtp",
     {{"quantization", "fp8_full"}, {"use_qwix_quantization", "true"}, {"quantize_mtp", "true"}},
     5e-2},
};

struct bench {
    octet_context *context;
    octet_workers *workers;
    int steps, passed, failed;
    bool print;
};

/* A row of the CSV: the figures that are given, NAN for the others. */
struct point {
    double total, main, mtp, grad_norm, eval_main, eval_mtp;
};

struct curve {
    const char *folder;
    octet_arena *arena;
    json_t *config;
    const uint16_t *train, *eval; /* [step][rows][length + 1] */
    int64_t rows, length;
    struct point *points; /* [steps + 1] */
    int point_count;
};

static void *read_file(octet_arena *arena, const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    char *bytes = NULL;

    if (file && !fstat(fileno(file), &status)) {
        *size = (size_t)status.st_size;
        bytes = octet_arena_alloc(arena, *size + 1);
        if (bytes && fread(bytes, 1, *size, file) != *size)
            bytes = NULL;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* step,train_total,train_main,train_mtp_unscaled,raw_grad_norm,eval_main,eval_mtp_unscaled */
static void read_points(struct curve *curve, char *text)
{
    char *rest = text, *line;
    int lines = 0;

    for (char *c = text; *c; c++)
        lines += *c == '\n';
    curve->points = OCTET_NEW_ARRAY(curve->arena, lines + 1, struct point);
    strsep(&rest, "\n");
    while ((line = strsep(&rest, "\n")) && *line) {
        struct point *p = &curve->points[curve->point_count++];
        double *to[] = {&p->total, &p->main, &p->mtp, &p->grad_norm, &p->eval_main, &p->eval_mtp};
        strsep(&line, ",");
        for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
            const char *field = strsep(&line, ",");
            *to[i] = field && *field ? strtod(field, NULL) : (double)NAN;
        }
    }
}

/* ---- the same run here ---- */

static json_t *overrides_of(const struct curve *curve, const struct arm *arm)
{
    json_t *all = json_copy(curve->config);

    for (size_t i = 0; i < sizeof arm->settings / sizeof *arm->settings; i++)
        json_object_set_new(all, arm->settings[i][0], json_string(arm->settings[i][1]));
    return all;
}

static enum octet_status make_batch(const struct curve *curve, octet_arena *arena,
                                    const uint16_t *tokens, struct octet_batch *out,
                                    struct octet_error *err)
{
    const int64_t dim[] = {curve->rows, curve->length};
    enum octet_status status =
        octet_array_create(arena, OCTET_DTYPE_S32, 2, dim, &out->tokens, err);

    if (!status)
        status = octet_array_create(arena, OCTET_DTYPE_S32, 2, dim, &out->targets, err);
    if (!status)
        status = octet_array_create(arena, OCTET_DTYPE_S32, 2, dim, &out->target_mask, err);
    for (int64_t b = 0; b < curve->rows && !status; b++)
        for (int64_t s = 0; s < curve->length; s++) {
            int64_t from = b * (curve->length + 1) + s, to = b * curve->length + s;
            ((int32_t *)out->tokens.data)[to] = tokens[from];
            ((int32_t *)out->targets.data)[to] = tokens[from + 1];
            ((int32_t *)out->target_mask.data)[to] = 1;
        }
    return status;
}

static enum octet_status evaluate(const struct bench *bench, const struct curve *curve,
                                  const octet_session *session, double scaling, struct point *out,
                                  struct octet_error *err)
{
    const struct octet_pass_options options = {.reduction = OCTET_REDUCTION_MEAN};
    enum octet_status status = OCTET_OK;

    out->eval_main = out->eval_mtp = 0;
    for (int i = 0; i < EVAL_BATCHES && !status; i++) {
        octet_arena *arena = octet_arena_create((size_t)1 << 30);
        const struct octet_compute compute = {arena, bench->workers, NULL};
        struct octet_batch batch = {0};
        struct octet_pass pass;
        status = make_batch(curve, arena, curve->eval + i * curve->rows * (curve->length + 1),
                            &batch, err);
        if (!status)
            status = octet_session_forward(session, &compute, &batch, &options, &pass, err);
        if (!status) {
            out->eval_main += pass.losses.main / EVAL_BATCHES;
            out->eval_mtp += pass.losses.mtp / scaling / EVAL_BATCHES;
            octet_plan_unref(pass.plan);
        }
        octet_arena_destroy(arena);
    }
    return status;
}

static enum octet_status train_step(const struct bench *bench, const struct curve *curve,
                                    octet_session *session, int step, double scaling,
                                    struct point *out, struct octet_error *err)
{
    const struct octet_pass_options options = {.reduction = OCTET_REDUCTION_MEAN};
    octet_arena *arena = octet_arena_create((size_t)1 << 30);
    const struct octet_compute compute = {arena, bench->workers, NULL};
    struct octet_batch batch = {0};
    struct octet_optimizer optimizer;
    struct octet_step done;
    struct octet_pass pass;
    enum octet_status status = make_batch(
        curve, arena, curve->train + (step - 1) * curve->rows * (curve->length + 1), &batch, err);

    octet_session_optimizer(session, &optimizer);
    if (!status)
        status = octet_session_forward_backward(session, &compute, &batch, &options, &pass, err);
    if (!status) {
        *out = (struct point){.total = pass.losses.total,
                              .main = pass.losses.main,
                              .mtp = pass.losses.mtp / scaling,
                              .grad_norm = pass.grad_norm};
        octet_plan_unref(pass.plan);
        status = octet_session_optim_step(session, &compute, &optimizer, &done, err);
    }
    octet_arena_destroy(arena);
    return status;
}

/* Difference of what both have. */
static double apart(const struct point *got, const struct point *want)
{
    const double pairs[][2] = {{got->total, want->total},
                               {got->main, want->main},
                               {got->mtp, want->mtp},
                               {got->eval_main, want->eval_main},
                               {got->eval_mtp, want->eval_mtp}};
    double most = 0;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!isnan(pairs[i][1]))
            most = fmax(most, fabs(pairs[i][0] - pairs[i][1]));
    return most;
}

static enum octet_status follow(struct bench *bench, const struct curve *curve,
                                octet_session *session, double *most, double *mean,
                                double *grad_norm, struct octet_error *err)
{
    const double scaling = 0.1; /* MaxText's mtp_loss_scaling_factor */
    int steps = bench->steps < curve->point_count - 1 ? bench->steps : curve->point_count - 1;
    enum octet_status status = OCTET_OK;

    *most = *mean = *grad_norm = 0;
    for (int i = 0; i <= steps && !status; i++) {
        const struct point *want = &curve->points[i];
        struct point got = {0};
        if (i)
            status = train_step(bench, curve, session, i, scaling, &got, err);
        if (!status && i % EVAL_EVERY == 0)
            status = evaluate(bench, curve, session, scaling, &got, err);
        if (status)
            break;
        if (bench->print)
            printf("  %d: total %.6f (%.6f) grad norm %.6f (%.6f) eval %.6f (%.6f)\n", i, got.total,
                   want->total, got.grad_norm, want->grad_norm, got.eval_main, want->eval_main);
        *most = fmax(*most, apart(&got, want));
        if (i) {
            *mean += (got.total - want->total) / steps;
            *grad_norm = fmax(*grad_norm, fabs(got.grad_norm - want->grad_norm) / want->grad_norm);
        }
    }
    return status;
}

static void check_arm(struct bench *bench, struct curve *curve, const struct arm *arm, int seed)
{
    struct octet_error err;
    octet_session *session = NULL;
    double most = INFINITY, mean = INFINITY, grad_norm = INFINITY;
    char text[1400];
    struct maxtext_case *c = maxtext_case_open(
        curve->arena, curve->folder, octet_arena_format(curve->arena, "init_params_seed%d", seed),
        overrides_of(curve, arm), NULL);
    enum octet_status status =
        c ? maxtext_case_session(c, bench->context, OCTET_SESSION_TRAIN, &session, &err)
          : octet_fail(&err, OCTET_NOT_FOUND, "folder", "the case cannot be opened");

    if (!status) {
        status = follow(bench, curve, session, &most, &mean, &grad_norm, &err);
        octet_session_destroy(session);
    }
    bool good = !status && most <= arm->limit && fabs(mean) <= arm->limit / 10;
    if (status)
        printf("FAIL %s seed %d: %s\n", arm->name, seed,
               octet_error_message(&err, text, sizeof text));
    else
        printf("%s %-7s seed %d: losses within %.1e of MaxText's over %d steps (limit %.0e), their "
               "mean %+.1e, norms of gradients %.1e\n",
               good ? "ok  " : "FAIL", arm->name, seed, most, bench->steps, arm->limit, mean,
               grad_norm);
    bench->passed += good;
    bench->failed += !good;
    maxtext_case_close(c);
}

static bool open_curve(struct curve *curve, const char *folder, const struct arm *arm, int seed)
{
    octet_arena *a = curve->arena;
    size_t size;
    char *text = read_file(
        a, octet_arena_format(a, "%s/curve_ragged_float32_%s_seed%d.csv", folder, arm->name, seed),
        &size);
    json_t *json = json_load_file(octet_arena_format(a, "%s/config.json", folder), 0, NULL);

    curve->folder = folder;
    curve->config = json_incref(json_object_get(json, "config"));
    if (!curve->config)
        curve->config = json_incref(json);
    json_decref(json);
    curve->train =
        read_file(a, octet_arena_format(a, "%s/train_tokens_seed%d.u16.bin", folder, seed), &size);
    curve->eval = read_file(a, octet_arena_format(a, "%s/eval_tokens.u16.bin", folder), &size);
    if (!text || !curve->config || !curve->train || !curve->eval)
        return false;
    curve->rows = json_integer_value(json_object_get(curve->config, "per_device_batch_size"));
    curve->length = json_integer_value(json_object_get(curve->config, "max_target_length"));
    read_points(curve, text);
    return true;
}

static int check_folder(struct bench *bench, const char *folder)
{
    int found = 0;

    for (int seed = 0; seed < SEEDS; seed++)
        for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
            struct curve curve = {.arena = octet_arena_create((size_t)1 << 30)};
            if (open_curve(&curve, folder, &arms[i], seed)) {
                check_arm(bench, &curve, &arms[i], seed);
                found++;
            }
            json_decref(curve.config);
            octet_arena_destroy(curve.arena);
        }
    return found;
}

int main(int argc, char **argv)
{
    struct bench bench = {.steps = DEFAULT_STEPS};
    const char *golden = getenv("OCTET_GOLDEN");
    struct octet_error err;
    char path[4096];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (octet_context_create(NULL, &bench.context, &err) ||
        octet_workers_create(NULL, 2, &bench.workers, &err)) {
        printf("FAIL %s\n", err.text);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--steps") && i + 1 < argc)
            bench.steps = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--print"))
            bench.print = true;
        else
            bench.failed += !check_folder(&bench, argv[i]);
    }
    if (golden)
        snprintf(path, sizeof path, "%s/maxtext/convergence", golden);
    else
        snprintf(path, sizeof path, "%s/../shared/golden/maxtext/convergence", OCTET_SOURCE_DIR);
    if (!check_folder(&bench, path))
        printf("not run: the full reference folder (OCTET_GOLDEN is not set, ../shared/golden is "
               "absent)\n");
    printf("%d passed, %d failed\n", bench.passed, bench.failed);
    octet_workers_destroy(bench.workers);
    octet_context_destroy(bench.context);
    return bench.failed || !bench.passed;
}
