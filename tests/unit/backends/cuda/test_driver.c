/* Opening, launches, and what goes wrong. */
#include "fixture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum octet_status try_open(const char *name, struct octet_error *err)
{
    struct octet_backend_options options = {.device = name};
    struct octet_backend_facts facts;
    void *context = NULL;

    memset(err, 0, sizeof *err);
    memset(&facts, 0, sizeof facts);
    enum octet_status status = oct_driver_cuda.open(&options, &context, &facts, err);
    if (status == OCTET_OK)
        oct_driver_cuda.close(context);
    return status;
}

START_TEST(without_library_or_kernels_open_says_what_is_missing)
{
    struct octet_error err;

    if (!oct_cuda_ptx()) {
        ck_assert_int_eq(try_open(NULL, &err), OCTET_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "built without CUDA kernels"));
        return;
    }
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
        if (!fake_control())
            not_run("no library", "this machine has one");
        return;
    }
    ck_assert_int_eq(try_open(NULL, &err), OCTET_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "libcuda.so.1"));
    ck_assert_str_eq(err.field, "backend");
}
END_TEST

START_TEST(facts_are_the_devices)
{
    struct fake_cuda *fake = fake_control();
    struct device device;

    fake_reset();
    if (!device_open(&device, "facts"))
        return;
    ck_assert_str_eq(device.facts.name, "cuda");
    ck_assert_int_ge(device.facts.devices, 1);
    ck_assert_uint_gt(device.facts.memory_bytes, 0);
    if (fake) {
        ck_assert_str_eq(device.facts.device, "Fake device 0");
        ck_assert_str_eq(device.facts.driver, "CUDA 13.0, compute capability 9.0");
        ck_assert_uint_eq(device.facts.memory_bytes, (size_t)1 << 30);
        ck_assert(device.facts.capabilities.fast);
    }
    device_close(&device);
}
END_TEST

/* What open answers, by what the driver says. */
START_TEST(open_refuses_politely)
{
    static const struct {
        const char *device;
        int devices, capability;
        unsigned init_result, load_result;
        enum octet_status status;
        const char *field, *text;
    } cases[] = {
        {"0", 1, 90, 0, 0, OCTET_OK, "", ""},
        {"", 1, 70, 0, 0, OCTET_OK, "", ""},
        {"2", 3, 90, 0, 0, OCTET_OK, "", ""},
        {"3", 3, 90, 0, 0, OCTET_INVALID_ARGUMENT, "device", "'3' is no CUDA device: there are 3"},
        {"-1", 3, 90, 0, 0, OCTET_INVALID_ARGUMENT, "device", "'-1'"},
        {"1x", 3, 90, 0, 0, OCTET_INVALID_ARGUMENT, "device", "'1x'"},
        {"99999999999999999999", 3, 90, 0, 0, OCTET_INVALID_ARGUMENT, "device", "9999"},
        {"0", 0, 90, 0, 0, OCTET_UNAVAILABLE, "backend", "no device: CUDA_ERROR_NO_DEVICE"},
        {"0", 1, 90, OCT_CUDA_NO_DEVICE, 0, OCTET_UNAVAILABLE, "backend", "CUDA_ERROR_NO_DEVICE"},
        {"0", 1, 90, OCT_CUDA_STUB_LIBRARY, 0, OCTET_UNAVAILABLE, "backend", "STUB_LIBRARY"},
        {"0", 1, 61, 0, 0, OCTET_UNIMPLEMENTED, "device", "6.1; 7.0 or newer"},
        {"0", 1, 90, 0, OCT_CUDA_UNSUPPORTED_PTX_VERSION, OCTET_UNIMPLEMENTED, "backend",
         "PTX_VERSION (222): ptxas fatal: a line"},
        {"0", 1, 90, 0, OCT_CUDA_OUT_OF_MEMORY, OCTET_RESOURCE_EXHAUSTED, "backend",
         "CUDA_ERROR_OUT_OF_MEMORY"},
        {"0", 1, 90, 0, OCT_CUDA_DEVICE_UNAVAILABLE, OCTET_UNAVAILABLE, "backend", "was lost"},
    };
    struct fake_cuda *fake = fake_control();
    struct octet_error err;

    if (!fake) {
        not_run("refusals of open", "needs the fake libcuda");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_reset();
        fake->devices = cases[i].devices;
        fake->capability = cases[i].capability;
        fake->init_result = cases[i].init_result;
        fake->load_result = cases[i].load_result;
        ck_assert_msg(try_open(cases[i].device, &err) == cases[i].status, "%zu: %s", i, err.text);
        ck_assert_str_eq(err.field, cases[i].field);
        ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%zu: %s", i, err.text);
        ck_assert_int_eq(fake->live_contexts, 0);
        ck_assert_int_eq(fake->live_modules, 0);
    }
    fake_reset();
}
END_TEST

/* Opens with a directory of ours; how many compilations that took. */
static int64_t compilations_with(const char *directory)
{
    struct fake_cuda *fake = fake_control();
    struct octet_backend_options options = {.cache_directory = directory};
    struct octet_backend_facts facts;
    struct octet_error err;
    void *context = NULL;

    fake->compilations = 0;
    ok(oct_driver_cuda.open(&options, &context, &facts, &err), err);
    oct_driver_cuda.close(context);
    ck_assert_int_eq(fake->live_modules, 0);
    ck_assert_int_eq(fake->live_links, 0);
    return fake->compilations;
}

/* The only file in a directory. */
static void file_in(const char *directory, char *path, size_t size)
{
    struct dirent *entry;
    DIR *listing = opendir(directory);
    int count = 0;

    ck_assert_ptr_nonnull(listing);
    while ((entry = readdir(listing)))
        if (entry->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", directory, entry->d_name);
            count++;
        }
    closedir(listing);
    ck_assert_int_eq(count, 1);
}

START_TEST(what_was_compiled_is_compiled_once)
{
    struct fake_cuda *fake = fake_control();
    char directory[] = "/tmp/octet-cuda-XXXXXX", path[600];

    if (!fake) {
        not_run("kept kernels", "needs the fake libcuda");
        return;
    }
    fake_reset();
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(compilations_with(directory), 1);
    ck_assert_int_eq(compilations_with(directory), 0);
    file_in(directory, path, sizeof path);
    ck_assert_int_eq(truncate(path, 1000), 0); /* a bad file is made anew */
    ck_assert_int_eq(compilations_with(directory), 1);
    ck_assert_int_eq(compilations_with(directory), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(directory), 0);
    ck_assert_int_eq(compilations_with(directory), 1); /* no directory: works without */
    ck_assert_int_eq(compilations_with(""), 1);
    ck_assert_int_eq(compilations_with(NULL), 1);
}
END_TEST

START_TEST(the_end_of_memory_names_the_bytes_and_passes)
{
    struct fake_cuda *fake = fake_control();
    oct_device_buffer buffer = 0;
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "end of memory"))
        return;
    ck_assert_int_eq(device.driver->alloc(device.context, (size_t)1 << 60, &buffer, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "1152921504606846976 bytes"));
    if (fake) {
        fake->fail_alloc = 1;
        ck_assert_int_eq(device.driver->alloc(device.context, 10, &buffer, &err),
                         OCTET_RESOURCE_EXHAUSTED);
    }
    ck_assert(buffer == 0);
    buffer = device_buffer(&device, "0123456789", 10);
    device.driver->release(device.context, buffer);
    device_close(&device);
}
END_TEST

/* cast: F32 to BF16, of `count` numbers. */
static enum octet_status cast(struct device *device, oct_device_buffer from, oct_device_buffer to,
                              int64_t count, size_t groups, struct octet_error *err)
{
    struct oct_device_grid grid = {{groups, 1}, {64, 1}};
    struct oct_device_argument arguments[] = {
        {OCT_ARGUMENT_INTEGER, .integer = count},
        {OCT_ARGUMENT_BUFFER, .buffer = from},
        {OCT_ARGUMENT_INTEGER, .integer = OCTET_DTYPE_F32},
        {OCT_ARGUMENT_INTEGER, .integer = OCTET_DTYPE_BF16},
        {OCT_ARGUMENT_BUFFER, .buffer = to},
    };

    return device->driver->launch(device->queue, OCT_KERNEL_cast, &grid, arguments, 5, err);
}

START_TEST(a_launch_runs_before_its_result_is_read)
{
    enum { COUNT = 1000 };
    static float numbers[COUNT];
    static uint16_t got[COUNT];
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "a launch"))
        return;
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(i - 500) * 0.5f; /* exact in BF16 below 128 */
    oct_device_buffer from = device_buffer(&device, numbers, sizeof numbers);
    oct_device_buffer to = device_buffer(&device, NULL, sizeof got);
    ok(device.driver->fill(device.queue, to, 0, sizeof got, 0, &err), err);
    ok(cast(&device, from, to, COUNT, 3, &err), err);
    ok(device.driver->read(device.queue, to, 0, got, sizeof got, &err), err);
    for (int i = 250; i < 750; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        ck_assert_uint_eq(got[i], bits >> 16);
    }
    ok(cast(&device, from, to, COUNT, 0, &err), err); /* nothing to do is fine */
    ok(device.driver->wait(device.queue, &err), err);
    device.driver->release(device.context, from);
    device.driver->release(device.context, to);
    device_close(&device);
}
END_TEST

START_TEST(grids_that_cuda_does_not_have_are_refused)
{
    static const struct oct_device_grid grids[] = {
        {{(size_t)1 << 31, 1}, {1, 1}},
        {{1, 65536}, {1, 1}},
        {{1, 1}, {257, 1}},
        {{1, 1}, {16, 17}},
        {{1, 1}, {1, 257}},
    };
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "grids"))
        return;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        ck_assert_int_eq(
            device.driver->launch(device.queue, OCT_KERNEL_cast, &grids[i], NULL, 0, &err),
            OCTET_UNIMPLEMENTED);
        ck_assert_ptr_nonnull(strstr(err.text, "cast on"));
    }
    device_close(&device);
}
END_TEST

/* At the first launch, or a later one: who waits learns it, all calls are refused from then on,
 * another device's context is as it was, and a new open works. */
START_TEST(a_lost_device_is_unavailable_until_it_is_opened_again)
{
    struct fake_cuda *fake = fake_control();
    static float numbers[100];
    oct_device_buffer from, to, more = 0;
    struct octet_error err;
    struct device device;

    if (!fake) {
        not_run("a lost device", "needs the fake libcuda");
        return;
    }
    for (int64_t n = 1; n <= 3; n++) {
        fake_reset();
        ck_assert(device_open(&device, "a lost device"));
        from = device_buffer(&device, numbers, sizeof numbers);
        to = device_buffer(&device, NULL, sizeof numbers);
        fake->lose_launch = n;
        for (int64_t i = 0; i < n; i++)
            ok(cast(&device, from, to, 100, 2, &err), err);
        ck_assert_int_eq(device.driver->read(device.queue, to, 0, numbers, 4, &err),
                         OCTET_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "was lost (CUDA_ERROR_LAUNCH_FAILED, 719)"));
        ck_assert_int_eq(cast(&device, from, to, 100, 2, &err), OCTET_UNAVAILABLE);
        int64_t asked = fake->allocs;
        ck_assert_int_eq(device.driver->alloc(device.context, 8, &more, &err), OCTET_UNAVAILABLE);
        ck_assert_int_eq(fake->allocs, asked);
        ck_assert_int_eq(device.driver->wait(device.queue, &err), OCTET_UNAVAILABLE);
        ck_assert_int_eq(device.driver->write(device.queue, to, 0, numbers, 4, &err),
                         OCTET_UNAVAILABLE);
        device.driver->release(device.context, from);
        device.driver->release(device.context, to);
        device_close(&device);
        ck_assert(device_open(&device, "a lost device"));
        device_close(&device);
    }
}
END_TEST

void driver_cases(Suite *suite)
{
    TCase *tests = tcase_create("driver");

    tcase_add_test(tests, without_library_or_kernels_open_says_what_is_missing);
    tcase_add_test(tests, facts_are_the_devices);
    tcase_add_test(tests, open_refuses_politely);
    tcase_add_test(tests, what_was_compiled_is_compiled_once);
    tcase_add_test(tests, the_end_of_memory_names_the_bytes_and_passes);
    tcase_add_test(tests, a_launch_runs_before_its_result_is_read);
    tcase_add_test(tests, grids_that_cuda_does_not_have_are_refused);
    tcase_add_test(tests, a_lost_device_is_unavailable_until_it_is_opened_again);
    suite_add_tcase(suite, tests);
}
