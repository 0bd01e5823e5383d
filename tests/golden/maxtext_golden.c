/* Models, run and trained, against the real MaxText: logits, losses, gradients, optimizer steps.
 *
 * What could break: any op's forward or backward pass, the order of casts, a rule's grip on an op,
 * the losses' weights, the optimizer; it shows as a number beyond its limit. A file is one run of
 * MaxText; tests/golden/data/README.md says what it holds. Prints what was compared and how near it
 * came, and what did not run and why.
 *
 * usage: maxtext_golden [--only TEXT] [--show DIFFERENCE] FOLDER...
 * --show 1e-4: lists gradients that are further off, relative to their largest number */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "maxtext_compare.h"
#include "maxtext_train.h"

struct bench {
    octet_context *context;
    octet_workers *workers;
    const char *only;
    double show; /* gradients further off than this are listed */
    int passed[MAXTEXT_KINDS], failed[MAXTEXT_KINDS], not_run;
    double logits[MAXTEXT_KINDS], losses[MAXTEXT_KINDS], l2[MAXTEXT_KINDS];
    size_t gradients, tokens, tokens_flipped;
    /* Files in FP8: logits, and gradients, without a flip anywhere, and with. */
    int exact_logits, flipped_logits, exact_gradients, flipped_gradients;
};

/* ---- one forward and backward pass ---- */

struct result {
    struct maxtext_difference logits;
    size_t tokens_beyond, tokens;
    double losses, grad_norm, acceptance;
    struct maxtext_tensors gradients;
    int counts_wrong;
    bool inference_differs;
};

static const float *stored(const octet_safetensors *file, const char *name)
{
    const struct octet_named_array *found = octet_safetensors_find(file, name);

    return found ? found->array.data : NULL;
}

static void compare_logits(const octet_safetensors *file, const struct octet_array *got,
                           double limit, struct result *out)
{
    const struct octet_named_array *want = octet_safetensors_find(file, "logits");
    size_t vocabulary = (size_t)got->dim[got->rank - 1], count = (size_t)octet_array_elements(got);
    struct maxtext_difference all = {0};

    if (!want || (size_t)octet_array_elements(&want->array) != count) {
        out->logits.most = INFINITY;
        return;
    }
    maxtext_add(&all, got->data, want->array.data, count, 0);
    for (size_t at = 0; at < count; at += vocabulary) {
        struct maxtext_difference token = {0};
        maxtext_add(&token, (const float *)got->data + at, (const float *)want->array.data + at,
                    vocabulary, limit * fmax(1, all.largest));
        out->tokens_beyond += token.beyond > 0;
        out->tokens++;
    }
    out->logits = all;
}

static double loss_difference(const octet_safetensors *file, const char *name, double got)
{
    const struct octet_named_array *found = octet_safetensors_find(file, name);

    if (!found)
        return 0;
    double want = found->array.dtype == OCTET_DTYPE_S32
                      ? (double)*(const int32_t *)found->array.data
                      : (double)*(const float *)found->array.data;
    return fabs(got - want) / fmax(1, fabs(want));
}

static void compare_losses(const octet_safetensors *file, const struct octet_losses *got,
                           struct result *out)
{
    const struct octet_named_array *weights = octet_safetensors_find(file, "loss/mtp_weights");
    double mtp_weights = 0;

    out->losses = loss_difference(file, "loss/total", got->total);
    out->losses = fmax(out->losses, loss_difference(file, "loss/main", got->main));
    out->losses = fmax(out->losses, loss_difference(file, "loss/mtp_scaled", got->mtp));
    out->losses = fmax(out->losses, loss_difference(file, "loss/moe_lb", got->load_balance));
    out->losses = fmax(out->losses, loss_difference(file, "loss/total_weights", got->weight_sum));
    for (int64_t i = 0; weights && i < octet_array_elements(&weights->array); i++)
        mtp_weights += (double)((const float *)weights->array.data)[i];
    if (weights)
        out->losses = fmax(out->losses, fabs(mtp_weights - got->mtp_weight_sum));
}

/* Each line of the trace ran as often as the plan says. */
static int compare_counts(const struct octet_pass *pass)
{
    int wrong = 0;

    for (size_t i = 0; i < octet_plan_interception_count(pass->plan); i++) {
        const struct octet_interception *line = octet_plan_interception(pass->plan, i);
        if (pass->counts[i] != line->count) {
            printf("  %s %s: ran %lld times, planned %lld\n", line->module, line->op,
                   (long long)pass->counts[i], (long long)line->count);
            wrong++;
        }
    }
    return wrong;
}

/* A session that only infers keeps quantized weights as codes; its logits have the same bits. */
static enum octet_status infer(struct bench *bench, const struct maxtext_case *c,
                               const struct octet_array *logits, bool *differs,
                               struct octet_error *err)
{
    const struct octet_compute compute = {c->arena, bench->workers, NULL};
    const struct octet_pass_options options = {.return_logits = true};
    struct octet_pass pass;
    octet_session *session;
    enum octet_status status =
        maxtext_case_session(c, bench->context, OCTET_SESSION_INFER, &session, err);

    if (status)
        return status;
    status = octet_session_forward(session, &compute, &c->batch, &options, &pass, err);
    if (!status) {
        *differs = memcmp(pass.logits.data, logits->data, (size_t)octet_array_bytes(logits)) != 0;
        octet_plan_unref(pass.plan);
    }
    octet_session_destroy(session);
    return status;
}

static enum octet_status run(struct bench *bench, const struct maxtext_case *c,
                             const octet_safetensors *file, struct result *out,
                             struct octet_error *err)
{
    const struct maxtext_gates *gates = &maxtext_gates[maxtext_kind_of(c)];
    const struct octet_compute compute = {c->arena, bench->workers, NULL};
    const float *acceptance = stored(file, "acceptance"), *norm = stored(file, "grad_norm");
    const struct octet_pass_options options = {.return_logits = true,
                                               .return_acceptance = acceptance};
    struct octet_pass pass;
    octet_session *session;
    enum octet_status status =
        maxtext_case_session(c, bench->context, OCTET_SESSION_TRAIN, &session, err);

    if (status)
        return status;
    status = octet_session_forward_backward(session, &compute, &c->batch, &options, &pass, err);
    if (!status) {
        compare_logits(file, &pass.logits, gates->logits, out);
        compare_losses(file, &pass.losses, out);
        maxtext_compare_tensors(c, file, session, OCTET_SET_GRADIENT, "grad", INFINITY, bench->show,
                                &out->gradients);
        if (norm)
            out->grad_norm = fabs(pass.grad_norm - (double)*norm) / (double)*norm;
        if (acceptance) {
            size_t target = (size_t)maxtext_case_int(c, "mtp_eval_target_module", 1);
            out->acceptance = fabs(pass.mtp_acceptance[target - 1] * 100 - (double)*acceptance);
        }
        out->counts_wrong = compare_counts(&pass);
        octet_plan_unref(pass.plan);
    }
    octet_session_destroy(session);
    return status ? status : infer(bench, c, &pass.logits, &out->inference_differs, err);
}

static bool within(const struct result *r, const struct maxtext_gates *g, enum maxtext_kind kind)
{
    double share = r->tokens ? (double)r->tokens_beyond / (double)r->tokens : 0;

    return r->logits.most < INFINITY && share <= 1 - g->token_share && r->losses <= g->losses &&
           r->gradients.worst <= g->gradients && maxtext_l2(&r->gradients.all) <= g->l2 &&
           r->grad_norm <= g->grad_norm && r->gradients.norm <= fmax(g->grad_norm, g->l2) &&
           !r->gradients.missing && !r->counts_wrong && !r->inference_differs &&
           r->acceptance <= (kind == MAXTEXT_EXACT ? 1e-3 : 5);
}

static void tell(const struct maxtext_case *c, const struct result *r, bool good)
{
    printf("%s %-40s logits %.1e of %.1f (%zu of %zu tokens beyond), losses %.1e",
           good ? "ok  " : "FAIL", c->name, r->logits.most, r->logits.largest, r->tokens_beyond,
           r->tokens, r->losses);
    if (r->gradients.tensors)
        printf(", %zu gradients l2 %.1e worst %.1e %s", r->gradients.tensors,
               maxtext_l2(&r->gradients.all), r->gradients.worst, good ? "" : r->gradients.which);
    printf("%s\n", r->inference_differs ? ", INFER gives other logits" : "");
    if (!good && (r->grad_norm > 0 || r->acceptance > 0))
        printf("     norm of gradients %.1e, of one's %.1e, acceptance %.2f %%\n", r->grad_norm,
               r->gradients.norm, r->acceptance);
}

static void tally_flips(struct bench *bench, const struct result *r)
{
    bool exact = maxtext_l2(&r->gradients.all) <= maxtext_gates[MAXTEXT_EXACT].l2;

    bench->tokens_flipped += r->tokens_beyond;
    bench->exact_logits += !r->tokens_beyond;
    bench->flipped_logits += r->tokens_beyond > 0;
    if (r->tokens_beyond || !r->gradients.tensors)
        return;
    bench->exact_gradients += exact;
    bench->flipped_gradients += !exact;
}

static void tally(struct bench *bench, const struct result *r, enum maxtext_kind kind, bool good)
{
    bench->passed[kind] += good;
    bench->failed[kind] += !good;
    bench->gradients += r->gradients.tensors;
    bench->tokens += r->tokens;
    if (kind == MAXTEXT_FP8)
        tally_flips(bench, r);
    bench->logits[kind] = fmax(bench->logits[kind], r->logits.most);
    bench->losses[kind] = fmax(bench->losses[kind], r->losses);
    bench->l2[kind] = fmax(bench->l2[kind], maxtext_l2(&r->gradients.all));
}

static void check_pass(struct bench *bench, octet_arena *arena, const char *folder,
                       const char *file_name)
{
    const octet_safetensors *file;
    const struct octet_pair *pairs;
    struct octet_error err = {0};
    struct result result = {0};
    char text[1400];
    json_t *overrides = NULL;
    char *path = octet_arena_format(arena, "%s/%s", folder, file_name);
    char *name = octet_arena_copy(arena, file_name, strlen(file_name) - strlen(".out.safetensors"));

    if (octet_safetensors_open(arena, path, &file, &err)) {
        printf("FAIL %s: %s\n", path, err.text);
        bench->failed[0]++;
        return;
    }
    size_t count = octet_safetensors_metadata(file, &pairs);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(pairs[i].key, "overrides"))
            overrides = json_loads(pairs[i].value, 0, NULL);
    struct maxtext_case *c = maxtext_case_open(arena, folder, name, overrides, NULL);
    enum maxtext_kind kind = c ? maxtext_kind_of(c) : MAXTEXT_EXACT;
    enum octet_status status = c ? run(bench, c, file, &result, &err) : OCTET_NOT_FOUND;
    if (!c) {
        bench->failed[0]++;
    } else if (status == OCTET_UNIMPLEMENTED) {
        printf("not run: %s (%s)\n", name, octet_error_message(&err, text, sizeof text));
        bench->not_run++;
    } else if (status) {
        printf("FAIL %s: %s\n", name, octet_error_message(&err, text, sizeof text));
        bench->failed[kind]++;
    } else {
        bool good = within(&result, &maxtext_gates[kind], kind);
        tell(c, &result, good);
        tally(bench, &result, kind, good);
    }
    maxtext_case_close(c);
    octet_safetensors_close(file);
}

/* ---- training ---- */

static void check_training(struct bench *bench, octet_arena *arena, const char *folder,
                           const char *file_name)
{
    struct maxtext_training result;
    struct octet_error err = {0};
    char text[1400];
    char *path = octet_arena_format(arena, "%s/%s", folder, file_name);
    char *name = octet_arena_copy(arena, file_name, strlen(file_name) - strlen(".opt.json"));
    json_t *json = json_load_file(path, 0, NULL);
    struct maxtext_case *c =
        maxtext_case_open(arena, folder, name, json_incref(json_object_get(json, "config")),
                          json_incref(json_object_get(json, "optimizer")));
    enum maxtext_kind kind = c ? maxtext_kind_of(c) : MAXTEXT_EXACT;
    enum octet_status status = c ? maxtext_train(c, json_object_get(json, "per_step"),
                                                 bench->context, bench->workers, &result, &err)
                                 : OCTET_NOT_FOUND;

    if (status == OCTET_UNIMPLEMENTED) {
        printf("not run: %s, training (%s)\n", name, octet_error_message(&err, text, sizeof text));
        bench->not_run++;
    } else if (status) {
        printf("FAIL %s, training: %s\n", name, octet_error_message(&err, text, sizeof text));
        bench->failed[kind]++;
    } else {
        bool good = maxtext_training_within(&result, &maxtext_gates[kind]);
        printf("%s %-40s %d steps: losses %.1e, norm of gradients %.1e, learning rate %.1e; %zu "
               "parameters after steps: %.1e learning rates, %zu beyond\n",
               good ? "ok  " : "FAIL", name, result.steps, result.losses, result.grad_norm,
               result.learning_rate, result.parameters.count, result.most_rates,
               result.parameters.beyond);
        bench->passed[kind] += good;
        bench->failed[kind] += !good;
        bench->losses[kind] = fmax(bench->losses[kind], result.losses);
    }
    maxtext_case_close(c);
    json_decref(json);
}

/* ---- folders ---- */

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

static bool check_folder(struct bench *bench, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);

    if (count < 0)
        return false;
    printf("-- %s\n", folder);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        octet_arena *arena = octet_arena_create((size_t)1 << 32);
        if (bench->only && !strstr(name, bench->only))
            ;
        else if (ends(name, ".out.safetensors"))
            check_pass(bench, arena, folder, name);
        else if (ends(name, ".opt.json"))
            check_training(bench, arena, folder, name);
        octet_arena_destroy(arena);
        free(entries[i]);
    }
    free(entries);
    return true;
}

static int report(const struct bench *bench)
{
    int passed = 0, failed = 0;

    printf("%-18s %7s %7s %10s %10s %10s\n", "arithmetic", "passed", "failed", "logits", "losses",
           "gradients");
    for (int k = 0; k < MAXTEXT_KINDS; k++) {
        printf("%-18s %7d %7d %10.1e %10.1e %10.1e\n", maxtext_kind_name(k), bench->passed[k],
               bench->failed[k], bench->logits[k], bench->losses[k], bench->l2[k]);
        passed += bench->passed[k], failed += bench->failed[k];
    }
    printf("%zu gradients; %zu tokens, of which a flipped FP8 value reached %zu\n",
           bench->gradients, bench->tokens, bench->tokens_flipped);
    printf(
        "FP8: logits of %d files equal MaxText's as float32 does, in %d a value on a tie flipped; "
        "of the former's gradients %d and %d\n",
        bench->exact_logits, bench->flipped_logits, bench->exact_gradients,
        bench->flipped_gradients);
    if (bench->flipped_logits > bench->exact_logits / 8 + 1 ||
        bench->flipped_gradients > bench->exact_gradients * 2 + 2) {
        printf("FAIL that are too many for ties\n");
        failed++;
    }
    printf("%d passed, %d failed, %d not run\n", passed, failed, bench->not_run);
    return failed || !passed;
}

/* The folders of all reference files, where somebody has them. */
static void check_full(struct bench *bench)
{
    const char *golden = getenv("OCTET_GOLDEN"), *more = getenv("OCTET_GOLDEN_MORE");
    char path[4096];

    if (golden)
        snprintf(path, sizeof path, "%s/maxtext/golden", golden);
    else
        snprintf(path, sizeof path, "%s/../shared/golden/maxtext/golden", OCTET_SOURCE_DIR);
    if (!check_folder(bench, path))
        printf("not run: the full reference folder (OCTET_GOLDEN is not set, ../shared/golden is "
               "absent)\n");
    if (more && !check_folder(bench, more))
        printf("not run: %s (OCTET_GOLDEN_MORE) cannot be read\n", more);
}

int main(int argc, char **argv)
{
    static struct bench bench = {.show = INFINITY};
    struct octet_error err;
    int folders = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (octet_context_create(NULL, &bench.context, &err) ||
        octet_workers_create(NULL, 2, &bench.workers, &err)) {
        printf("FAIL %s\n", err.text);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc)
            bench.only = argv[++i];
        else if (!strcmp(argv[i], "--show") && i + 1 < argc)
            bench.show = strtod(argv[++i], NULL);
        else
            argv[1 + folders++] = argv[i];
    }
    for (int i = 1; i <= folders; i++)
        if (!check_folder(&bench, argv[i])) {
            printf("FAIL %s: cannot be read\n", argv[i]);
            bench.failed[0]++;
        }
    if (!folders || !bench.only)
        check_full(&bench);
    int result = report(&bench);
    octet_workers_destroy(bench.workers);
    octet_context_destroy(bench.context);
    return result;
}
