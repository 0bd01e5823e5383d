/* Copies: every size around a stage, at offsets, many in flight, with and without pinned memory. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

enum { STAGE = 4 << 20 }; /* copy.c's */

static unsigned char *bytes_of(size_t count, unsigned seed)
{
    unsigned char *bytes = malloc(count + 1);

    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i <= count; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
    return bytes;
}

static void there_and_back(struct device *device, size_t count, size_t offset)
{
    unsigned char *from = bytes_of(count, (unsigned)count), *to = bytes_of(count, 77);
    oct_device_buffer buffer = device_buffer(device, NULL, count + offset + 1);
    unsigned char guard = to[count];
    struct octet_error err;

    ok(device->driver->write(device->queue, buffer, offset, from, count, &err), err);
    memset(from, 0, count); /* the driver has taken them */
    ok(device->driver->read(device->queue, buffer, offset, to, count, &err), err);
    free(from);
    from = bytes_of(count, (unsigned)count);
    ck_assert_mem_eq(to, from, count);
    ck_assert_uint_eq(to[count], guard);
    device->driver->release(device->context, buffer);
    free(from);
    free(to);
}

START_TEST(copies_bring_the_bytes_that_were_written)
{
    static const size_t counts[] = {0,     1,         15,        4096,          STAGE - 1,
                                    STAGE, STAGE + 1, 2 * STAGE, 2 * STAGE + 3, 5 * STAGE + 7};
    struct device device;

    fake_reset();
    if (!device_open(&device, "copies"))
        return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        there_and_back(&device, counts[i], 0);
        there_and_back(&device, counts[i], 13);
    }
    device_close(&device);
}
END_TEST

/* Written one after another without a wait, then all read. */
START_TEST(writes_in_flight_do_not_disturb_each_other)
{
    enum { COUNT = 23, BYTES = STAGE / 3 };
    oct_device_buffer buffers[COUNT];
    unsigned char *got = malloc(BYTES);
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "writes in flight")) {
        free(got);
        return;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned char *bytes = bytes_of(BYTES, i);
        buffers[i] = device_buffer(&device, bytes, BYTES);
        free(bytes);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned char *bytes = bytes_of(BYTES, i);
        ok(device.driver->read(device.queue, buffers[i], 0, got, BYTES, &err), err);
        ck_assert_mem_eq(got, bytes, BYTES);
        device.driver->release(device.context, buffers[i]);
        free(bytes);
    }
    free(got);
    device_close(&device);
}
END_TEST

START_TEST(fills_reach_their_bytes_only)
{
    unsigned char got[64], want[64];
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "fills"))
        return;
    memset(want, 3, sizeof want);
    oct_device_buffer buffer = device_buffer(&device, want, sizeof want);
    memset(want + 5, 0xee, 20);
    ok(device.driver->fill(device.queue, buffer, 5, 20, 0xee, &err), err);
    ok(device.driver->fill(device.queue, buffer, 40, 0, 0xee, &err), err);
    ok(device.driver->read(device.queue, buffer, 0, got, sizeof got, &err), err);
    ck_assert_mem_eq(got, want, sizeof got);
    device.driver->release(device.context, buffer);
    device_close(&device);
}
END_TEST

START_TEST(without_pinned_memory_copies_are_slower_not_wrong)
{
    struct fake_cuda *fake = fake_control();
    struct device device;

    if (!fake) {
        not_run("no pinned memory", "needs the fake libcuda");
        return;
    }
    for (int64_t n = 1; n <= 2; n++) { /* the first stage, the second */
        fake_reset();
        fake->fail_pinned = n;
        ck_assert(device_open(&device, "no pinned memory"));
        there_and_back(&device, 0, 0);
        there_and_back(&device, STAGE + 99, 3);
        ck_assert_int_eq(fake->live_pinned, 0);
        device_close(&device);
    }
}
END_TEST

void copy_cases(Suite *suite)
{
    TCase *tests = tcase_create("copy");

    tcase_add_test(tests, copies_bring_the_bytes_that_were_written);
    tcase_add_test(tests, writes_in_flight_do_not_disturb_each_other);
    tcase_add_test(tests, fills_reach_their_bytes_only);
    tcase_add_test(tests, without_pinned_memory_copies_are_slower_not_wrong);
    suite_add_tcase(suite, tests);
}
