/* FAST products beside sums in double precision: types, layouts, scales, batches, and what the
 * library does not take. */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ONE = -1, EACH = -2 }; /* how many scales: one; one for each row of all the batch */

struct fast_case {
    enum octet_dtype lhs, rhs, out;
    int64_t batch, m, n, k, lhs_scales, rhs_scales;
};

#define E4 OCTET_DTYPE_F8_E4M3FN
#define E5 OCTET_DTYPE_F8_E5M2
#define BF OCTET_DTYPE_BF16
#define F4 OCTET_DTYPE_F32

static const struct fast_case cases[] = {
    {E4, E4, F4, 1, 16, 16, 16, 0, 0},       {E4, E4, F4, 1, 7, 32, 48, ONE, ONE},
    {E4, E4, BF, 1, 33, 48, 64, EACH, EACH}, {E4, E5, F4, 1, 5, 16, 32, EACH, EACH},
    {E5, E4, BF, 1, 5, 16, 32, ONE, EACH},   {E4, E4, BF, 1, 5, 16, 32, EACH, ONE},
    {E4, E4, F4, 1, 1, 272, 16, EACH, EACH}, {E4, E4, F4, 1, 4, 16, 16, 0, EACH},
    {E4, E4, BF, 1, 4, 528, 16, EACH, 0},    {E4, E4, F4, 3, 5, 16, 32, ONE, ONE},
    {E4, E4, BF, 3, 5, 16, 32, EACH, EACH},  {E5, E4, F4, 3, 6, 32, 16, EACH, ONE},
    {BF, BF, F4, 1, 9, 16, 24, 0, 0},        {BF, BF, BF, 2, 3, 8, 40, 0, 0},
    {BF, BF, BF, 1, 3, 8, 8, EACH, EACH},    {F4, F4, F4, 2, 3, 12, 20, 0, 0},
    {F4, F4, F4, 1, 6, 8, 4, EACH, ONE},
};

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers that all the types have, in their bits: plus or minus 1, 1.5, 2, 3. */
static double number_of(enum octet_dtype dtype, unsigned pick, unsigned char *to)
{
    static const uint32_t bits[] = {0x3f800000, 0x3fc00000, 0x40000000, 0x40400000};
    uint32_t f32 = bits[pick & 3] | (pick & 4 ? 0x80000000u : 0);
    uint32_t exponent = f32 >> 23 & 255, fraction = f32 >> 20 & 7;
    float value;

    memcpy(&value, &f32, sizeof value);
    if (dtype == F4)
        memcpy(to, &f32, 4);
    else if (dtype == BF)
        memcpy(to, &(uint16_t){(uint16_t)(f32 >> 16)}, 2);
    else if (dtype == E4)
        *to = (unsigned char)((f32 >> 31 << 7) | (exponent - 127 + 7) << 3 | fraction);
    else
        *to = (unsigned char)((f32 >> 31 << 7) | (exponent - 127 + 15) << 2 | fraction >> 1);
    return (double)value;
}

struct side {
    unsigned char *bits;
    double *numbers;
    float *scales;
    int64_t count, scale_count;
    oct_device_buffer buffer, scale_buffer;
};

static struct side side_of(struct device *device, enum octet_dtype dtype, int64_t rows, int64_t k,
                           int64_t scales, uint32_t seed)
{
    size_t bytes = octet_dtype_bytes(dtype);
    struct side side = {.count = rows * k,
                        .scale_count = scales == EACH  ? rows
                                       : scales == ONE ? 1
                                                       : 0};

    side.bits = malloc((size_t)side.count * bytes);
    side.numbers = malloc((size_t)side.count * sizeof(double));
    side.scales = malloc((size_t)rows * sizeof(float));
    for (int64_t i = 0; i < side.count; i++)
        side.numbers[i] = number_of(dtype, next(&seed), side.bits + (size_t)i * bytes);
    for (int64_t i = 0; i < rows; i++)
        side.scales[i] = 0.25f + (float)(next(&seed) % 100) * 0.01f;
    side.buffer = device_buffer(device, side.bits, (size_t)side.count * bytes);
    side.scale_buffer = device_buffer(device, side.scales, (size_t)rows * sizeof(float));
    return side;
}

static void side_free(struct device *device, struct side *side)
{
    device->driver->release(device->context, side->buffer);
    device->driver->release(device->context, side->scale_buffer);
    free(side->bits);
    free(side->numbers);
    free(side->scales);
}

static double scale_at(const struct side *side, int64_t row)
{
    return !side->scale_count ? 1.0 : (double)side->scales[side->scale_count == 1 ? 0 : row];
}

static double out_at(const struct fast_case *c, const unsigned char *out, int64_t i)
{
    uint32_t bits = 0;
    float value;

    if (c->out == BF) {
        memcpy((unsigned char *)&bits + 2, out + i * 2, 2);
        memcpy(&value, &bits, sizeof value);
    } else {
        memcpy(&value, out + i * 4, sizeof value);
    }
    return (double)value;
}

static void check(const struct fast_case *c, const struct side *lhs, const struct side *rhs,
                  const unsigned char *out)
{
    double tolerance = c->out == BF ? 0x1p-8 : 1e-6;

    for (int64_t row = 0; row < c->batch * c->m; row++)
        for (int64_t j = 0; j < c->n; j++) {
            int64_t column = row / c->m * c->n + j;
            double sum = 0;
            for (int64_t l = 0; l < c->k; l++)
                sum += lhs->numbers[row * c->k + l] * rhs->numbers[column * c->k + l];
            sum *= scale_at(lhs, row) * scale_at(rhs, column);
            ck_assert_double_le(fabs(out_at(c, out, row * c->n + j) - sum),
                                tolerance * fabs(sum) + 1e-30);
        }
}

static enum octet_status multiply(struct device *device, const struct fast_case *c,
                                  struct octet_error *err)
{
    struct side lhs = side_of(device, c->lhs, c->batch * c->m, c->k, c->lhs_scales, 1);
    struct side rhs = side_of(device, c->rhs, c->batch * c->n, c->k, c->rhs_scales, 2);
    size_t bytes = (size_t)(c->batch * c->m * c->n) * octet_dtype_bytes(c->out);
    unsigned char *out = malloc(bytes);
    oct_device_buffer buffer = device_buffer(device, NULL, bytes);
    struct oct_fast_product product = {
        .lhs_dtype = c->lhs,
        .rhs_dtype = c->rhs,
        .out_dtype = c->out,
        .batch = c->batch,
        .m = c->m,
        .n = c->n,
        .k = c->k,
        .lhs = lhs.buffer,
        .rhs = rhs.buffer,
        .out = buffer,
        .lhs_scale = lhs.scale_count ? lhs.scale_buffer : 0,
        .rhs_scale = rhs.scale_count ? rhs.scale_buffer : 0,
        .lhs_scales = lhs.scale_count,
        .rhs_scales = rhs.scale_count,
    };
    enum octet_status status = device->driver->fast_product(device->queue, &product, err);

    if (status == OCTET_OK) {
        ok(device->driver->read(device->queue, buffer, 0, out, bytes, err), *err);
        check(c, &lhs, &rhs, out);
    }
    device->driver->release(device->context, buffer);
    free(out);
    side_free(device, &lhs);
    side_free(device, &rhs);
    return status;
}

static void all_cases(int capability, bool knows_vectors, const char *name)
{
    struct fake_cuda *fake = fake_control();
    struct octet_error err;
    struct device device;

    fake_reset();
    if (fake) {
        fake->capability = capability;
        fake->knows_vectors = knows_vectors;
    }
    if (!device_open(&device, name))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum octet_status status = multiply(&device, &cases[i], &err);
        if (status == OCTET_UNIMPLEMENTED && !fake)
            not_run(name, err.text);
        else
            ck_assert_msg(status == OCTET_OK, "case %zu: %s", i, err.text);
    }
    device_close(&device);
}

START_TEST(products_are_the_sums)
{
    all_cases(90, true, "FAST products");
}
END_TEST

/* Other devices, and a library before 12.9: scales come after the product. */
START_TEST(products_without_outer_vectors_are_the_same)
{
    if (!fake_control()) {
        not_run("FAST products without outer vectors", "needs the fake libcuda");
        return;
    }
    all_cases(89, true, "FAST products on 8.9");
    all_cases(100, true, "FAST products on 10.0");
    all_cases(90, false, "FAST products before cuBLAS 12.9");
}
END_TEST

/* How often the library is asked: vectors go one by one through a batch, the rest at once. */
START_TEST(the_library_is_called_no_more_than_needed)
{
    static const struct {
        struct fast_case c;
        int64_t products, launches;
    } counts[] = {
        {{E4, E4, BF, 1, 32, 32, 32, EACH, EACH}, 1, 0},
        {{E4, E4, BF, 3, 32, 32, 32, EACH, EACH}, 3, 0},
        {{E4, E4, BF, 3, 32, 32, 32, ONE, ONE}, 1, 0},
        {{E4, E4, BF, 3, 32, 32, 32, EACH, ONE}, 1, 1},
    };
    struct fake_cuda *fake = fake_control();
    struct octet_error err;
    struct device device;

    if (!fake) {
        not_run("calls of cuBLASLt", "needs the fake libcuda");
        return;
    }
    fake_reset();
    ck_assert(device_open(&device, "calls"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fake->products = fake->launches = 0;
        ok(multiply(&device, &counts[i].c, &err), err);
        ck_assert_int_eq(fake->products, counts[i].products);
        ck_assert_int_eq(fake->launches, counts[i].launches);
    }
    device_close(&device);
}
END_TEST

START_TEST(what_the_library_does_not_take_is_unimplemented)
{
    static const struct fast_case refused[] = {
        {E5, E5, F4, 1, 16, 16, 16, ONE, ONE}, {E4, E4, F4, 1, 16, 16, 24, ONE, ONE},
        {E4, E4, F4, 1, 16, 20, 16, ONE, ONE}, {E4, BF, F4, 1, 16, 16, 16, 0, 0},
        {F4, F4, BF, 1, 16, 16, 16, 0, 0},     {BF, BF, F4, 1, 16, 16, 12, 0, 0},
    };
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "refusals of FAST products"))
        return;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        ck_assert_int_eq(multiply(&device, &refused[i], &err), OCTET_UNIMPLEMENTED);
    device_close(&device);
    if (!fake_control())
        return;
    fake_control()->capability = 80;
    ck_assert(device_open(&device, "an older device"));
    ck_assert_int_eq(multiply(&device, &cases[1], &err), OCTET_UNIMPLEMENTED);
    ck_assert_ptr_nonnull(strstr(err.text, "8.0 has no 8-bit floats"));
    device_close(&device);
}
END_TEST

/* No room for the workspace: works without; none for the sums: says so, and works later. */
START_TEST(memory_that_ends_within_a_product)
{
    static const struct fast_case c = {E4, E4, BF, 1, 32, 32, 32, EACH, ONE};
    struct fake_cuda *fake = fake_control();
    struct octet_error err;
    struct device device;

    if (!fake) {
        not_run("memory that ends within a product", "needs the fake libcuda");
        return;
    }
    fake_reset();
    ck_assert(device_open(&device, "memory"));
    fake->fail_alloc = 6; /* after five buffers of the case's own */
    ok(multiply(&device, &c, &err), err);
    device_close(&device);
    ck_assert(device_open(&device, "memory"));
    fake->fail_alloc = 7;
    ck_assert_int_eq(multiply(&device, &c, &err), OCTET_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "4096 bytes"));
    ok(multiply(&device, &c, &err), err);
    device_close(&device);
}
END_TEST

/* Three sides, a warm-up and `repeats` turns of eight products each; the fake's clock says 0.5 ms
 * for anything. */
START_TEST(the_peer_is_timed_by_turns)
{
    struct octet_backend_peer peer = {0};
    struct fake_cuda *fake = fake_control();
    struct octet_error err;
    struct device device;

    fake_reset();
    if (!device_open(&device, "the peer"))
        return;
    enum octet_status status = device.driver->peer(device.queue, 32, 48, 64, 3, &peer, &err);
    if (status == OCTET_UNIMPLEMENTED && !fake) {
        not_run("the peer", err.text);
    } else {
        ck_assert_msg(status == OCTET_OK, "%s", err.text);
        ck_assert(peer.own > 0 && peer.fp8 > 0 && peer.bf16 > 0);
        ck_assert_int_eq(device.driver->peer(device.queue, 32, 48, 64, 0, &peer, &err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_int_eq(device.driver->peer(device.queue, 32, 48, 60, 3, &peer, &err),
                         OCTET_UNIMPLEMENTED);
    }
    if (fake) {
        ck_assert_double_eq_tol(peer.own, 0.0005 / 8, 1e-12);
        ck_assert_int_eq(fake->products, 3 * (1 + 3) * 8);
    }
    device_close(&device);
}
END_TEST

void fast_cases(Suite *suite)
{
    TCase *tests = tcase_create("fast");

    tcase_add_test(tests, products_are_the_sums);
    tcase_add_test(tests, products_without_outer_vectors_are_the_same);
    tcase_add_test(tests, the_library_is_called_no_more_than_needed);
    tcase_add_test(tests, what_the_library_does_not_take_is_unimplemented);
    tcase_add_test(tests, memory_that_ends_within_a_product);
    tcase_add_test(tests, the_peer_is_timed_by_turns);
    suite_add_tcase(suite, tests);
}
