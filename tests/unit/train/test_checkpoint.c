/* Checkpoints: a session goes on from one bit for bit, on any kernel set; what is damaged is told;
 * a crash at any moment leaves the old one or the new one. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "train/session_private.h"

static struct fixture f;
static char folder[64];

static void begin(void)
{
    fixture_begin(&f);
    snprintf(folder, sizeof folder, "/tmp/octet-checkpoints-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *path_of(const char *name)
{
    return octet_arena_format(f.arena, "%s/%s", folder, name);
}

/* Calls visit for each entry; returns how many there are. */
static int each_entry(void (*visit)(const char *name))
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    ck_assert_ptr_nonnull(entries);
    while ((entry = readdir(entries)) != NULL)
        if (entry->d_name[0] != '.') {
            count++;
            if (visit)
                visit(entry->d_name);
        }
    closedir(entries);
    return count;
}

static void remove_one(const char *name)
{
    unlink(path_of(name));
}

static void end(void)
{
    each_entry(remove_one);
    rmdir(folder);
    fixture_end(&f);
}

#define FP8                                                                                        \
    TINY_SETTINGS, "quantization=fp8_full", "routed_bias=true", "routed_bias_update_rate=0.01"

static octet_session *create(const char *const *settings, octet_rules *rules)
{
    struct octet_config_input input = fixture_input(&f, "deepseek3-tiny", settings);
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    octet_session *session;

    ck_assert_ok(&f, octet_session_create(f.context, &input, rules, &options, &session, &f.err));
    ck_assert_ok(&f, octet_session_initialise(session, 1, &f.compute, &f.err));
    return session;
}

static const struct octet_pass_options mean = {.reduction = OCTET_REDUCTION_MEAN};

static void pass(octet_session *s, const struct octet_compute *compute, uint32_t seed)
{
    struct octet_batch batch = fixture_batch(&f, 2, 16, 64, seed);
    struct octet_pass out;

    ck_assert_ok(&f, octet_session_forward_backward(s, compute, &batch, &mean, &out, &f.err));
    octet_plan_unref(out.plan);
}

static void step(octet_session *s, const struct octet_compute *compute, char digest[33])
{
    struct octet_optimizer optimizer;
    struct octet_step out;

    octet_session_optimizer(s, &optimizer);
    optimizer.learning_rate = 0.01;
    optimizer.steps = optimizer.learning_rate_schedule_steps = 20;
    ck_assert_ok(&f, octet_session_optim_step(s, compute, &optimizer, &out, &f.err));
    memcpy(digest, out.digest, sizeof out.digest);
}

/* Step k: two passes, one step. */
static void train(octet_session *s, const struct octet_compute *compute, int k, char digest[33])
{
    if (octet_session_accumulated(s) == 0)
        pass(s, compute, (uint32_t)(2 * k));
    pass(s, compute, (uint32_t)(2 * k + 1));
    step(s, compute, digest);
}

static struct octet_checkpoint save(const octet_session *s, const char *name, const char *note)
{
    struct octet_checkpoint out;

    ck_assert_ok(&f, octet_session_save(s, folder, name, note, f.arena, &out, &f.err));
    return out;
}

static enum octet_status load(octet_session *s, const char *name, const char **note)
{
    struct octet_checkpoint out;

    return octet_session_load(s, folder, name, f.arena, note, &out, &f.err);
}

/* Saved in the middle of step 3, with a gradient waiting; steps 3 to 5 then have the digests of a
 * session that was never stopped. */
START_TEST(a_restored_session_goes_on_bit_for_bit)
{
    octet_session *s = create(SETTINGS(FP8), NULL);
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    char expected[6][33], digest[33];
    const char *note;

    for (int k = 0; k < 6; k++) {
        if (k == 3) {
            pass(s, &f.compute, 6);
            save(s, "middle", "{\"requests\": [\"a\\\\b\"],\n\t\"snowman\": \"\u2603\u2028\"}");
        }
        train(s, &f.compute, k, expected[k]);
    }
    octet_session_destroy(s);
    int sets = 0;
    for (size_t set = 0; octet_kernel_set_name(set); set++) {
        struct octet_compute compute = f.compute;
        if (octet_kernel_set_obstacle(set))
            continue;
        ck_assert_ok(&f, octet_workers_create(octet_kernel_set_name(set), 1 + (int32_t)set % 2,
                                              &compute.workers, &f.err));
        ck_assert_ok(&f, octet_session_restore(f.context, folder, "middle", &options, f.arena,
                                               &note, &s, &f.err));
        ck_assert_str_eq(note, "{\"requests\": [\"a\\\\b\"],\n\t\"snowman\": \"\u2603\u2028\"}");
        ck_assert_int_eq(octet_session_step(s), 3);
        ck_assert_int_eq(octet_session_accumulated(s), 1);
        for (int k = 3; k < 6; k++) {
            train(s, &compute, k, digest);
            ck_assert_msg(strcmp(digest, expected[k]) == 0, "step %d with %s", k,
                          octet_kernel_set_name(set));
        }
        octet_session_destroy(s);
        octet_workers_destroy(compute.workers);
        sets++;
    }
    printf("checkpoints continued on %d kernel sets\n", sets);
}
END_TEST

START_TEST(the_model_and_its_rules_are_in_the_manifest)
{
    static const struct octet_pair additional[] = {{"disable_gradient_clipping", "true"}};
    static const char *const ops[] = {"dot_general", "gmm"};
    const struct octet_rule given[] = {
        {.module_path = "decoder/.*mlp/wi_[01]",
         .op_names = ops,
         .op_name_count = 2,
         .weight_qtype = "float8_e4m3fn",
         .act_qtype = "float8_e4m3fn",
         .bwd_qtype = "float8_e5m2",
         .weight_calibration_method = "absmax,0.8",
         .tile_size = "1/2",
         .sparsity = {2, 4, 5, 6},
         .additional_qt_config = additional,
         .additional_qt_config_count = 1},
        {.module_path = "x\\\\\"y"},
    };
    struct octet_session_options options = {.mode = OCTET_SESSION_TRAIN};
    octet_rules *rules;
    octet_session *s, *restored;
    uint64_t a[2], b[2];
    char one[33], two[33];

    ck_assert_ok(&f, octet_rules_create(f.context, given, 2, &rules, &f.err));
    s = create(SETTINGS(TINY_SETTINGS, "scan_layers=false"), rules);
    octet_rules_unref(rules);
    save(s, "ruled", NULL);
    const char *note;
    ck_assert_ok(&f, octet_session_restore(f.context, folder, "ruled", &options, f.arena, &note,
                                           &restored, &f.err));
    ck_assert_ptr_null(note);
    octet_rules_digest(octet_plan_rules(octet_session_plan(s)), a);
    octet_rules_digest(octet_plan_rules(octet_session_plan(restored)), b);
    ck_assert_mem_eq(a, b, sizeof a);
    octet_parameters_digest(octet_session_tensors(s, OCTET_SET_PARAMETER), one);
    octet_parameters_digest(octet_session_tensors(restored, OCTET_SET_PARAMETER), two);
    ck_assert_str_eq(one, two);
    octet_session_destroy(s);
    octet_session_destroy(restored);
}
END_TEST

/* Any reader of safetensors finds MaxText's names, shapes and layout. */
START_TEST(tensors_lie_in_maxtexts_layout)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS, "scan_layers=true"), NULL);
    struct octet_checkpoint out = save(s, "layout", NULL);
    const octet_parameters *p = octet_session_tensors(s, OCTET_SET_PARAMETER);
    const octet_safetensors *file;
    char name[64];

    snprintf(name, sizeof name, "layout-%.16s.safetensors", out.digest);
    ck_assert_ok(&f, octet_safetensors_open(f.arena, path_of(name), &file, &f.err));
    ck_assert_uint_eq(octet_safetensors_count(file), 3 * p->count);
    for (size_t i = 0; i < p->count; i++) {
        const char *parameter;
        struct octet_array array;
        octet_parameters_describe(p, i, &parameter, &array);
        const struct octet_named_array *saved = octet_safetensors_find(file, parameter);
        ck_assert_ptr_nonnull(saved);
        ck_assert_int_eq(saved->array.rank, array.rank);
        ck_assert_mem_eq(saved->array.dim, array.dim, (size_t)array.rank * sizeof *array.dim);
        size_t bytes = (size_t)octet_array_bytes(&array);
        void *data = malloc(bytes);
        ck_assert_ok(&f, octet_session_get(s, OCTET_SET_PARAMETER, i, 0, bytes, data, &f.err));
        ck_assert_mem_eq(saved->array.data, data, bytes);
        free(data);
    }
    octet_safetensors_close(file);
    octet_session_destroy(s);
}
END_TEST

START_TEST(only_the_last_save_of_a_name_stays)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    const struct octet_checkpoint *list;
    size_t count;
    float number = 0;

    for (int k = 0; k < 3; k++) {
        number += 1;
        ck_assert_ok(
            &f, octet_session_put(s, OCTET_SET_PARAMETER, 0, 0, sizeof number, &number, &f.err));
        save(s, "a", NULL);
        save(s, "a-b.c", NULL);
    }
    ck_assert_int_eq(each_entry(NULL), 4);
    /* Left over from crashes; files of others stay. */
    const char *left[] = {"a-0123456789abcdef.safetensors", "a.77-1.tmp", "a-b.c.77-1.tmp",
                          "other.json"};
    for (size_t k = 0; k < 4; k++)
        fclose(fopen(path_of(left[k]), "w"));
    save(s, "a", NULL);
    ck_assert_int_ne(access(path_of(left[0]), F_OK), 0);
    ck_assert_int_ne(access(path_of(left[1]), F_OK), 0);
    ck_assert_int_eq(access(path_of(left[2]), F_OK), 0);
    ck_assert_int_eq(access(path_of(left[3]), F_OK), 0);
    ck_assert_ok(&f, octet_checkpoint_list(folder, f.arena, &list, &count, &f.err));
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(list[0].name, "a");
    ck_assert_str_eq(list[1].name, "a-b.c");
    ck_assert_str_eq(list[0].model, "deepseek3-tiny");
    ck_assert_uint_gt(list[0].bytes, 100000);
    ck_assert_ok(&f, load(s, "a-b.c", NULL));
    octet_session_destroy(s);
}
END_TEST

START_TEST(names_that_could_leave_the_folder_are_refused)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    static const char *const bad[] = {"", ".", "..", "../a", "a/b", ".a", "a b", "a\n", "\xc3\xa4"};
    struct octet_checkpoint out;
    char longest[130];

    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert_int_eq(octet_session_save(s, folder, bad[k], NULL, f.arena, &out, &f.err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_str_eq(f.err.field, "name");
        ck_assert_int_eq(load(s, bad[k], NULL), OCTET_INVALID_ARGUMENT);
    }
    memset(longest, 'x', 129);
    longest[129] = '\0';
    ck_assert_int_eq(octet_session_save(s, folder, longest, NULL, f.arena, &out, &f.err),
                     OCTET_INVALID_ARGUMENT);
    longest[128] = '\0';
    save(s, longest, NULL);
    ck_assert_int_eq(load(s, "absent", NULL), OCTET_NOT_FOUND);
    ck_assert_int_eq(octet_session_save(s, "/nonexistent", "a", NULL, f.arena, &out, &f.err),
                     OCTET_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.err.text, "/nonexistent"));
    ck_assert_int_eq(octet_session_save(s, folder, "a", "\xff", f.arena, &out, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "note");
    octet_session_destroy(s);
}
END_TEST

/* ---- Damage ---- */

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+");
    ck_assert_ptr_nonnull(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(c ^ 0x10, file);
    fclose(file);
}

static void check_lost(octet_session *s, const char *file)
{
    char before[33], after[33];

    octet_parameters_digest(octet_session_tensors(s, OCTET_SET_PARAMETER), before);
    ck_assert_int_eq(load(s, "d", NULL), OCTET_DATA_LOSS);
    ck_assert_msg(strstr(f.err.text, file) != NULL, "%s", f.err.text);
    octet_parameters_digest(octet_session_tensors(s, OCTET_SET_PARAMETER), after);
    ck_assert_str_eq(before, after);
}

START_TEST(damage_is_found_and_changes_nothing)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    struct octet_checkpoint out = save(s, "d", "note");
    char tensors[64];
    const char *manifest = path_of("d.json");
    float number = 7;

    snprintf(tensors, sizeof tensors, "d-%.16s.safetensors", out.digest);
    ck_assert_ok(&f, octet_session_put(s, OCTET_SET_PARAMETER, 0, 0, 4, &number, &f.err));
    static const long places[] = {0, 9, 3000, 100000, -1};
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        flip(path_of(tensors), places[k]);
        check_lost(s, tensors);
        flip(path_of(tensors), places[k]);
    }
    struct stat about;
    ck_assert_int_eq(stat(manifest, &about), 0);
    for (long at = 0; at < about.st_size; at += 7) {
        flip(manifest, at);
        check_lost(s, "d.json");
        flip(manifest, at);
    }
    ck_assert_int_eq(truncate(manifest, about.st_size / 2), 0);
    check_lost(s, "d.json");
    ck_assert_int_eq(truncate(manifest, 0), 0);
    check_lost(s, "d.json");
    out = save(s, "d", NULL);
    snprintf(tensors, sizeof tensors, "d-%.16s.safetensors", out.digest);
    number = 8;
    ck_assert_ok(&f, octet_session_put(s, OCTET_SET_PARAMETER, 0, 0, 4, &number, &f.err));
    ck_assert_int_eq(truncate(path_of(tensors), (off_t)out.bytes - 1), 0);
    check_lost(s, tensors);
    unlink(path_of(tensors));
    check_lost(s, tensors);
    octet_session_destroy(s);
}
END_TEST

START_TEST(another_model_is_told_by_its_first_difference)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    octet_session *wider = create(SETTINGS(TINY_SETTINGS, "base_moe_mlp_dim=28"), NULL);
    octet_session *without = create(SETTINGS(TINY_SETTINGS, "mtp_num_layers=0"), NULL);

    save(s, "m", NULL);
    ck_assert_int_eq(load(wider, "m", NULL), OCTET_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.err.text, "wi_0"));
    ck_assert_int_eq(load(without, "m", NULL), OCTET_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.err.text, "mtp_block"));
    save(without, "m", NULL);
    ck_assert_int_eq(load(s, "m", NULL), OCTET_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.err.text, "mtp_block"));
    octet_session_destroy(s);
    octet_session_destroy(wider);
    octet_session_destroy(without);
}
END_TEST

START_TEST(a_full_disk_leaves_the_old_checkpoint)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    struct octet_checkpoint out;
    struct rlimit before, limit;
    float number = 9, kept;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);

    struct octet_checkpoint old = save(s, "full", NULL);
    ck_assert_ok(&f, octet_session_get(s, OCTET_SET_PARAMETER, 0, 0, 4, &kept, &f.err));
    ck_assert_ok(&f, octet_session_put(s, OCTET_SET_PARAMETER, 0, 0, 4, &number, &f.err));
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    for (rlim_t size = 0; size < old.bytes; size += old.bytes / 5) {
        limit.rlim_cur = size;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        enum octet_status status =
            octet_session_save(s, folder, "full", NULL, f.arena, &out, &f.err);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
        ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        ck_assert_int_eq(each_entry(NULL), 2);
    }
    signal(SIGXFSZ, handler);
    ck_assert_ok(&f, load(s, "full", NULL));
    ck_assert_ok(&f, octet_session_get(s, OCTET_SET_PARAMETER, 0, 0, 4, &number, &f.err));
    ck_assert_float_eq(number, kept);
    octet_session_destroy(s);
}
END_TEST

/* ---- Crashes ---- */

/* Saves with a number as the first parameter's first element and as the note, until it is killed.
 */
static void save_forever(octet_session *s, int number)
{
    struct octet_checkpoint out;
    char note[16];

    for (;; number++) {
        float value = (float)number;
        snprintf(note, sizeof note, "%d", number);
        if (octet_session_put(s, OCTET_SET_PARAMETER, 0, 0, 4, &value, &f.err) ||
            octet_session_save(s, folder, "k", note, f.arena, &out, &f.err))
            _exit(3);
    }
}

START_TEST(a_kill_at_any_moment_leaves_the_old_or_the_new)
{
    enum { KILLS = 100 };
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    uint32_t random = 1;
    int number = 0, moved = 0;

    save(s, "k", "0");
    uint64_t begun = octet_now_ns();
    save(s, "k", "0");
    uint64_t save_us = (octet_now_ns() - begun) / 1000;
    for (int k = 0; k < KILLS; k++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            save_forever(s, number + 1);
        random = random * 1664525 + 1013904223;
        usleep((useconds_t)((random >> 8) % (4 * save_us + 1)));
        kill(child, SIGKILL);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        const char *note;
        float value;
        ck_assert_ok(&f, load(s, "k", &note));
        ck_assert_ok(&f, octet_session_get(s, OCTET_SET_PARAMETER, 0, 0, 4, &value, &f.err));
        int found = (int)strtol(note, NULL, 10);
        ck_assert_msg(found == 0 || (float)found == value, "note %d, value %g", found,
                      (double)value);
        ck_assert_int_ge(found, number);
        moved += found > number;
        number = found;
    }
    printf("killed %d times, %d saves survived\n", KILLS, number);
    ck_assert_int_gt(moved, 0);
    save(s, "k", NULL);
    ck_assert_int_eq(each_entry(NULL), 2); /* what crashes left is gone */
    octet_session_destroy(s);
}
END_TEST

/* Errors on the way are told, and leave neither files nor a changed session. */
START_TEST(running_out_of_memory_anywhere_is_told)
{
    octet_session *s = create(SETTINGS(TINY_SETTINGS), NULL);
    struct octet_checkpoint out;
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;
    int failures = 0;

    for (uint64_t n = 1; status == OCTET_RESOURCE_EXHAUSTED; n += n / 8 + 1) {
        octet_arena *arena = octet_arena_create((size_t)1 << 30);
        octet_arena_fail_at(arena, n);
        status = octet_session_save(s, folder, "o", NULL, arena, &out, &f.err);
        octet_arena_destroy(arena);
        failures += status != OCTET_OK;
        if (status != OCTET_OK)
            ck_assert_int_eq(each_entry(NULL), 0);
    }
    ck_assert_int_eq(status, OCTET_OK);
    ck_assert_int_gt(failures, 5);
    status = OCTET_RESOURCE_EXHAUSTED;
    for (uint64_t n = 1; status == OCTET_RESOURCE_EXHAUSTED; n += n / 8 + 1) {
        octet_arena *arena = octet_arena_create((size_t)1 << 30);
        octet_arena_fail_at(arena, n);
        status = octet_session_load(s, folder, "o", arena, NULL, &out, &f.err);
        octet_arena_destroy(arena);
    }
    ck_assert_int_eq(status, OCTET_OK);
    octet_session_destroy(s);
}
END_TEST

TCase *checkpoint_tests(void)
{
    TCase *tests = tcase_create("checkpoint");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, a_restored_session_goes_on_bit_for_bit);
    tcase_add_test(tests, the_model_and_its_rules_are_in_the_manifest);
    tcase_add_test(tests, tensors_lie_in_maxtexts_layout);
    tcase_add_test(tests, only_the_last_save_of_a_name_stays);
    tcase_add_test(tests, names_that_could_leave_the_folder_are_refused);
    tcase_add_test(tests, damage_is_found_and_changes_nothing);
    tcase_add_test(tests, another_model_is_told_by_its_first_difference);
    tcase_add_test(tests, a_full_disk_leaves_the_old_checkpoint);
    tcase_add_test(tests, a_kill_at_any_moment_leaves_the_old_or_the_new);
    tcase_add_test(tests, running_out_of_memory_anywhere_is_told);
    return tests;
}
