/* The library's quantized arithmetic against the real Qwix's.
 *
 * What could break: a scale, a code, where a sum is rounded, which axes are reduced, what the
 * backward pass reuses; and the promise that bits depend neither on the kernel set nor on the
 * number of threads nor on the other rows of a batch. It shows as a line with file, tensor, index,
 * expected and found.
 *
 * Every file runs with each kernel set that this CPU has and with 1, 2 and 7 threads; all must give
 * the same bits, and those are compared with the file (qwix_compare.h says how). Rows of lhs are
 * run alone as well.
 *
 * usage: qwix_golden [--only TEXT] [--show-rounding] [FOLDER...]   without folders:
 * tests/golden/data/qwix. At the end the full reference folder, OCTET_GOLDEN/qwix or
 * ../shared/golden/qwix, where there is one. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "golden/qwix_compare.h"
#include "golden/qwix_errors.h"

#define SETS_MAX 16
static const int32_t thread_counts[] = {1, 2, 7};
enum { THREADS = sizeof thread_counts / sizeof thread_counts[0] };

/* Rows of the table. */
static const char *const kinds[] = {
    "quantize", "convert",    "decode", "dot_general",          "dot of quantized",
    "einsum",   "ragged_dot", "gmm",    "conv_general_dilated", "refused",
    "errors"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct bench {
    octet_context *context;
    char (*seen)[256]; /* names of files that ran: the full folder has them again */
    size_t seen_count;
    int64_t again;
    octet_workers *workers[SETS_MAX * THREADS];
    char label[SETS_MAX * THREADS][48];
    int count;
    const char *only;
    int64_t passed[KINDS], failed[KINDS], not_run[KINDS];
    int64_t rows_alone, runs;
    struct qwix_tally tally;
};

static int kind_of(const struct qwix_case *c)
{
    const char *op = c->op;

    if (qwix_case_get(c, "raises"))
        op = "refused";
    else if (qwix_case_get(c, "direct"))
        op = "dot of quantized";
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i], op))
            return i;
    return -1;
}

/* The same tensors, bit for bit (a NaN has one pattern in the library). */
static int differ(const struct qwix_case *c, const char *label, const struct qwix_tensors *a,
                  const struct qwix_tensors *b)
{
    for (size_t i = 0; i < a->count || i < b->count; i++) {
        const struct octet_named_array *x = &a->item[i], *y = &b->item[i];
        if (a->count != b->count || strcmp(x->name, y->name) != 0 ||
            x->array.dtype != y->array.dtype || x->array.rank != y->array.rank ||
            octet_array_bytes(&x->array) != octet_array_bytes(&y->array) ||
            memcmp(x->array.data, y->array.data, (size_t)octet_array_bytes(&x->array)) != 0) {
            printf("FAIL %s: %s: other bits with %s\n", c->path, x->name, label);
            return 1;
        }
    }
    return 0;
}

static enum octet_status run_all(const struct bench *bench, const struct qwix_case *c, int which,
                                 octet_arena *arena, struct qwix_tensors *out,
                                 struct octet_error *err)
{
    json_t *combos = qwix_case_get(c, "combos"), *combo;
    const char *name;

    if (!combos)
        return qwix_run(c, bench->context, bench->workers[which], arena, out, err);
    json_object_foreach(combos, name, combo)
    {
        bool raises = json_object_get(combo, "raises") != NULL;
        struct octet_error one = {0};
        enum octet_status status =
            qwix_run_combo(c, name, combo, bench->workers[which], arena, out, &one);
        if (status && !raises) {
            *err = one;
            return octet_error_within(err, name);
        }
        if (!status && raises)
            return octet_fail(
                err, OCTET_INTERNAL, name, "accepted; Qwix raises %s",
                json_string_value(json_object_get(json_object_get(combo, "raises"), "message")));
    }
    return OCTET_OK;
}

static int compare_all(struct bench *bench, const struct qwix_case *c, octet_arena *arena,
                       const struct qwix_tensors *ours)
{
    json_t *combos = qwix_case_get(c, "combos"), *combo;
    const char *name;
    int failures = 0;

    if (!combos)
        return qwix_compare(c, arena, ours, &bench->tally);
    json_object_foreach(combos, name, combo) if (!json_object_get(combo, "raises")) failures +=
        qwix_compare_combo(c, arena, name, combo, ours, &bench->tally);
    return failures;
}

/* Where the library is not Qwix on purpose (docs/decisions/0009-arithmetic.md). */
static int on_purpose(struct bench *bench, const struct qwix_case *c, const char *why)
{
    bench->tally.lost++;
    printf("not run: %s (%s)\n", c->path, why);
    return 0;
}

static int refused(struct bench *bench, const struct qwix_case *c, enum octet_status status,
                   const struct octet_error *err)
{
    if (strstr(err->field, "bwd_qtype") && strstr(err->text, "tiles"))
        return on_purpose(bench, c, "block-scaled gradients are refused");
    if (strstr(err->text, "no quantized backward") && !qwix_case_get(c, "weight_operand"))
        return on_purpose(bench, c, "a rule is refused for its weights although the op has none");
    printf("FAIL %s: %s: field '%s': %s\n", c->path, octet_status_name(status), err->field,
           err->text);
    return 1;
}

static int accepted(struct bench *bench, const struct qwix_case *c)
{
    const char *message = json_string_value(json_object_get(qwix_case_get(c, "raises"), "message"));

    if (strstr(message, "Cannot transpose"))
        return on_purpose(bench, c, "tiles of one element work in the backward pass");
    if (strstr(message, "(size 0)"))
        return on_purpose(bench, c, "an empty result is one");
    printf("FAIL %s: accepted; Qwix raises %s\n", c->path, message);
    return 1;
}

static int check_products(struct bench *bench, const struct qwix_case *c, octet_arena *arena)
{
    static struct qwix_tensors first, other;
    bool raises = qwix_case_get(c, "raises") != NULL;
    int failures = 0;

    for (int i = 0; i < bench->count; i++) {
        struct qwix_tensors *out = i ? &other : &first;
        struct octet_error err = {0};
        octet_arena *own = octet_arena_create((size_t)1 << 30);
        out->count = 0;
        enum octet_status status = run_all(bench, c, i, i ? own : arena, out, &err);
        bench->runs++;
        failures += status && !raises ? refused(bench, c, status, &err) : 0;
        failures += !status && raises ? accepted(bench, c) : 0;
        if (!status && !raises && i)
            failures += differ(c, bench->label[i], &first, &other);
        octet_arena_destroy(own);
        if (failures || status || raises)
            return failures;
    }
    failures = compare_all(bench, c, arena, &first);
    const struct octet_array *out = qwix_tensors_find(&first, "out");
    if (out && strcmp(c->op, "einsum") != 0 && strcmp(c->op, "conv_general_dilated") != 0) {
        int64_t wrong = qwix_run_rows_alone(c, bench->context, bench->workers[0], arena, out);
        bench->rows_alone += wrong >= 0;
        if (wrong > 0)
            printf("FAIL %s: %lld rows give other bits when they are alone\n", c->path,
                   (long long)wrong);
        failures += wrong > 0;
    }
    return failures;
}

/* A file of a name that ran before is the same file: a generated name says what made it. */
static bool is_seen(struct bench *bench, const char *name)
{
    for (size_t i = 0; i < bench->seen_count; i++)
        if (!strcmp(bench->seen[i], name))
            return true;
    bench->seen = realloc(bench->seen, (bench->seen_count + 1) * sizeof *bench->seen);
    if (!bench->seen)
        exit(1);
    snprintf(bench->seen[bench->seen_count++], sizeof *bench->seen, "%s", name);
    return false;
}

static void check_file(struct bench *bench, const char *path)
{
    octet_arena *arena = octet_arena_create((size_t)2 << 30);
    struct qwix_case *c = qwix_case_open(arena, path);
    int64_t lost = bench->tally.lost;
    int failures = 0;

    if (!c) {
        bench->failed[0]++;
        octet_arena_destroy(arena);
        return;
    }
    int kind = kind_of(c);
    if (kind < 0) {
        printf("FAIL %s: op '%s' is not known\n", path, c->op);
        bench->failed[0]++;
    } else {
        if (!strcmp(c->op, "convert") || !strcmp(c->op, "decode"))
            for (int i = 0; i < bench->count; i += THREADS)
                failures += qwix_compare_casts(c, arena, octet_workers_kernels(bench->workers[i]),
                                               &bench->tally);
        else
            failures = check_products(bench, c, arena);
        (failures                    ? bench->failed
         : bench->tally.lost == lost ? bench->passed
                                     : bench->not_run)[kind]++;
    }
    qwix_case_close(c);
    octet_arena_destroy(arena);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool check_folder(struct bench *bench, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, by_name);
    char path[4096];

    if (count < 0)
        return false;
    printf("%s\n", folder);
    for (int i = 0; i < count; i++) {
        size_t length = strlen(entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (bench->only && !strstr(path, bench->only))
            ;
        else if (length > 5 && is_seen(bench, entries[i]->d_name))
            bench->again++;
        else if (length > 12 && !strcmp(entries[i]->d_name + length - 12, ".safetensors"))
            check_file(bench, path);
        else if (!strcmp(entries[i]->d_name, "errors.json"))
            qwix_errors_check(path, bench->context, bench->workers[0], &bench->passed[KINDS - 1],
                              &bench->failed[KINDS - 1], &bench->not_run[KINDS - 1]);
        free(entries[i]);
    }
    free(entries);
    return true;
}

static void make_workers(struct bench *bench)
{
    struct octet_error err;

    for (size_t s = 0; octet_kernel_set_name(s); s++) {
        const char *name = octet_kernel_set_name(s), *obstacle = octet_kernel_set_obstacle(s);
        if (obstacle) {
            printf("not run: %s (%s)\n", name, obstacle);
            continue;
        }
        for (int t = 0; t < THREADS; t++) {
            int i = bench->count++;
            if (octet_workers_create(name, thread_counts[t], &bench->workers[i], &err)) {
                printf("FAIL workers %s: %s\n", name, err.text);
                exit(1);
            }
            snprintf(bench->label[i], sizeof bench->label[i], "%s, %d threads", name,
                     thread_counts[t]);
        }
    }
}

static int report(const struct bench *bench)
{
    const struct qwix_tally *t = &bench->tally;
    int64_t passed = 0, failed = 0;

    printf("%-22s %8s %8s %8s\n", "kind", "passed", "failed", "not run");
    for (int i = 0; i < KINDS; i++) {
        printf("%-22s %8lld %8lld %8lld\n", kinds[i], (long long)bench->passed[i],
               (long long)bench->failed[i], (long long)bench->not_run[i]);
        passed += bench->passed[i], failed += bench->failed[i];
    }
    printf(
        "%lld codes (%lld excused), %lld scales (%lld tensors excused), %lld outputs; of %lld in "
        "bfloat16 %lld have Qwix's bits\n",
        (long long)t->codes, (long long)t->codes_excused, (long long)t->scales,
        (long long)t->scales_excused, (long long)t->outputs, (long long)t->brains,
        (long long)t->brains_same);
    printf("%lld runs; %lld files with each row alone; %lld files were there again\n",
           (long long)bench->runs, (long long)bench->rows_alone, (long long)bench->again);
    printf("%lld passed, %lld failed\n", (long long)passed, (long long)failed);
    return failed || !passed;
}

/* The folder of all reference files, where somebody has it. */
static const char *full_folder(char *path, size_t size)
{
    const char *golden = getenv("OCTET_GOLDEN");
    struct stat status;

    if (golden)
        snprintf(path, size, "%s/qwix", golden);
    else
        snprintf(path, size, "%s/../shared/golden/qwix", OCTET_SOURCE_DIR);
    return stat(path, &status) ? NULL : path;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char path[4096];
    int folders = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (octet_context_create(NULL, &bench.context, NULL))
        return 1;
    make_workers(&bench);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            bench.only = argv[++i];
        } else if (!strcmp(argv[i], "--show-rounding")) {
            bench.tally.show = true;
        } else if (!check_folder(&bench, argv[i])) {
            printf("FAIL %s: cannot be read\n", argv[i]);
            bench.failed[0]++;
        } else {
            folders++;
        }
    }
    if (!folders)
        bench.failed[0] += !check_folder(&bench, OCTET_SOURCE_DIR "/tests/golden/data/qwix");
    if (!full_folder(path, sizeof path))
        printf("not run: the full reference folder (OCTET_GOLDEN is not set, ../shared/golden is "
               "absent)\n");
    else
        check_folder(&bench, path);
    int result = report(&bench);
    for (int i = 0; i < bench.count; i++)
        octet_workers_destroy(bench.workers[i]);
    octet_context_destroy(bench.context);
    free(bench.seen);
    return result;
}
