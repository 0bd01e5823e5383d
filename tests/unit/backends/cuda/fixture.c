#include "fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct fake_cuda *fake_control(void)
{
    void *library = oct_cuda_ptx() ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;

    return library ? dlsym(library, "fake_cuda") : NULL;
}

void fake_reset(void)
{
    struct fake_cuda *fake = fake_control();

    if (!fake)
        return;
    fake->devices = 1;
    fake->capability = 90;
    fake->init_result = fake->load_result = 0;
    fake->memory_bytes = (size_t)1 << 30;
    fake->fail_alloc = fake->fail_pinned = fake->lose_launch = 0;
    fake->allocs = fake->launches = fake->products = fake->compilations = 0;
    fake->knows_vectors = 1;
}

static int missing, opened;

void not_run(const char *name, const char *why)
{
    printf("not run: %s (%s)\n", name, why);
    missing++;
}

int not_run_count(void)
{
    return missing;
}

int devices_opened(void)
{
    return opened;
}

bool device_open(struct device *device, const char *name)
{
    struct octet_error err = {0};

    memset(device, 0, sizeof *device);
    device->driver = &oct_driver_cuda;
    enum octet_status status = device->driver->open(NULL, &device->context, &device->facts, &err);
    if (status == OCTET_UNAVAILABLE && !fake_control()) {
        not_run(name, err.text);
        return false;
    }
    ck_assert_msg(status == OCTET_OK, "%s", err.text);
    ok(device->driver->queue_create(device->context, &device->queue, &err), err);
    opened++;
    return true;
}

void device_close(struct device *device)
{
    device->driver->queue_destroy(device->queue);
    device->driver->close(device->context);
    struct fake_cuda *fake = fake_control();
    if (!fake)
        return;
    ck_assert_int_eq(fake->live_buffers, 0);
    ck_assert_int_eq(fake->live_pinned, 0);
    ck_assert_int_eq(fake->live_streams, 0);
    ck_assert_int_eq(fake->live_events, 0);
    ck_assert_int_eq(fake->live_modules, 0);
    ck_assert_int_eq(fake->live_links, 0);
    ck_assert_int_eq(fake->live_contexts, 0);
}

oct_device_buffer device_buffer(struct device *device, const void *from, size_t bytes)
{
    struct octet_error err;
    oct_device_buffer buffer = 0;

    ok(device->driver->alloc(device->context, bytes, &buffer, &err), err);
    ck_assert(buffer != 0);
    if (from)
        ok(device->driver->write(device->queue, buffer, 0, from, bytes, &err), err);
    return buffer;
}
