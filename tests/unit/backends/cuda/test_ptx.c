/* The embedded text: the arithmetic that EXACT_ORDER is made of, and nothing else. Where ptxas is,
 * it compiles for a Hopper GPU, without spills. */
#include "fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What there may be of f32 arithmetic, as the instruction's whole name. Contraction would show as
 * an fma that the text has not (counted below), approximation as another name. */
static bool is_exact(const char *name)
{
    static const char *const exact[] = {"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32",
                                        "rcp.rn.f32", "fma.rn.f32", "neg.f32",    "abs.f32",
                                        "min.f32",    "max.f32",    "mov.f32",    "selp.f32"};

    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strcmp(name, exact[i]) == 0)
            return true;
    return strncmp(name, "ld.", 3) == 0 || strncmp(name, "st.", 3) == 0 ||
           strncmp(name, "setp.", 5) == 0 || strncmp(name, "cvt.rn.f32.", 11) == 0 ||
           strncmp(name, "cvt.rzi.", 8) == 0;
}

/* The next instruction's name, from the line at *text, which moves on. */
static bool next_instruction(const char **text, char *name, size_t size)
{
    while (**text) {
        const char *at = *text, *end = strchr(at, '\n');
        size_t used = 0;

        *text = end ? end + 1 : at + strlen(at);
        while (*at == ' ' || *at == '\t')
            at++;
        if (*at == '@') /* a predicate */
            at += strcspn(at, " \t\n"), at += strspn(at, " \t");
        while (used + 1 < size && (isalnum((unsigned char)*at) || *at == '.' || *at == '_'))
            name[used++] = *at++;
        name[used] = '\0';
        if (used && name[0] != '.')
            return true;
    }
    return false;
}

START_TEST(arithmetic_is_rounded_to_nearest_and_never_flushed)
{
    const char *text = oct_cuda_ptx();
    char name[64];
    int numbers = 0;

    if (!text) {
        not_run("the kernels' PTX", "this build has none");
        return;
    }
    while (next_instruction(&text, name, sizeof name)) {
        ck_assert_msg(!strstr(name, ".ftz") && !strstr(name, ".approx") && !strstr(name, ".full") &&
                          !strstr(name, ".f64") && !strstr(name, ".f16"),
                      "%s", name);
        if (!strstr(name, "f32"))
            continue;
        ck_assert_msg(is_exact(name), "%s", name);
        numbers++;
    }
    ck_assert_int_gt(numbers, 100);
}
END_TEST

START_TEST(every_kernel_is_an_entry_for_an_old_device)
{
    const char *text = oct_cuda_ptx(), *target = text ? strstr(text, ".target sm_") : NULL;
    char entry[64];

    if (!text)
        return;
    ck_assert_ptr_nonnull(target);
    ck_assert_int_le(strtol(target + strlen(".target sm_"), NULL, 10), 75);
#define ENTRY(name)                                                                                \
    snprintf(entry, sizeof entry, ".entry %s(", #name);                                            \
    ck_assert_ptr_nonnull(strstr(text, entry));
    OCT_DEVICE_KERNELS(ENTRY)
#undef ENTRY
}
END_TEST

/* Contraction: kernels that have no fma in their text have none in the PTX. */
START_TEST(no_product_and_sum_became_an_fma)
{
    static const char *const without[] = {"amax_rows", "amax_columns", "scale",
                                          "cast",      "mask",         "rescale"};
    const char *text = oct_cuda_ptx();
    char entry[64];

    for (size_t i = 0; text && i < sizeof without / sizeof *without; i++) {
        snprintf(entry, sizeof entry, ".entry %s(", without[i]);
        const char *from = strstr(text, entry);
        ck_assert_ptr_nonnull(from);
        const char *to = strstr(from + 1, ".entry "), *fma = strstr(from, "fma.");
        ck_assert_msg(!fma || (to && fma > to), "%s has an fma", without[i]);
    }
}
END_TEST

static const char *find_ptxas(void)
{
    static const char *const places[] = {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

START_TEST(ptxas_compiles_it_for_hopper_without_spills)
{
    const char *text = oct_cuda_ptx(), *ptxas = find_ptxas();
    char path[] = "/tmp/octet-ptx-XXXXXX", command[256], line[512];
    int kernels = 0;

    if (!text || !ptxas) {
        not_run("ptxas for sm_90", "no ptxas, or no PTX");
        return;
    }
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH= %s -arch=sm_90 -v -o /dev/null %s 2>&1",
             ptxas, path);
    FILE *report = popen(command, "r");
    ck_assert_ptr_nonnull(report);
    while (fgets(line, sizeof line, report)) {
        if (strstr(line, "spill"))
            ck_assert_msg(strstr(line, "0 bytes stack frame, 0 bytes spill stores"), "%s", line);
        kernels += strstr(line, "Compiling entry function") != NULL;
    }
    ck_assert_int_eq(pclose(report), 0);
    ck_assert_int_eq(kernels, OCT_KERNEL_COUNT);
    unlink(path);
}
END_TEST

void ptx_cases(Suite *suite)
{
    TCase *tests = tcase_create("ptx");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, arithmetic_is_rounded_to_nearest_and_never_flushed);
    tcase_add_test(tests, every_kernel_is_an_entry_for_an_old_device);
    tcase_add_test(tests, no_product_and_sum_became_an_fma);
    tcase_add_test(tests, ptxas_compiles_it_for_hopper_without_spills);
    suite_add_tcase(suite, tests);
}
