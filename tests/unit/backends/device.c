/* See device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

octet_backend *device;
static const struct oct_driver *driver;

bool device_probe(const char *name)
{
    octet_backend *probe;
    struct octet_error err;

    if (octet_backend_open(name, NULL, &probe, &err) != OCTET_OK) {
        printf("not run: %s (%s)\n", name, err.text);
        if (err.status == OCTET_UNAVAILABLE)
            return false;
        exit(EXIT_FAILURE);
    }
    const struct octet_backend_facts *facts = octet_backend_facts(probe);
    printf("%s: %s, %s\n", facts->name, facts->device, facts->driver);
    driver = counting_driver(probe->driver);
    octet_backend_close(probe);
    return true;
}

void device_begin(void)
{
    bench_begin();
    if (!device)
        device = device_open_another(NULL);
}

octet_backend *device_open_another(const struct octet_backend_options *options)
{
    octet_backend *backend = NULL;

    bench_ok(oct_backend_open_driver(driver, options, &backend, &bench.err));
    return backend;
}

void device_close(void)
{
    octet_backend_close(device);
}

static bool is_nan_code(const unsigned char *at, enum octet_dtype dtype)
{
    uint32_t bits = 0;

    memcpy(&bits, at, octet_dtype_bytes(dtype));
    if (dtype == OCTET_DTYPE_F32)
        return (bits & 0x7fffffff) > 0x7f800000;
    return dtype == OCTET_DTYPE_BF16 && (bits & 0x7fff) > 0x7f80;
}

void check_same_bits(const struct octet_array *expected, const struct octet_array *got,
                     const char *what)
{
    size_t size = octet_dtype_bytes(expected->dtype);

    ck_assert_msg(expected->dtype == got->dtype && expected->rank == got->rank, "%s: %s: %s[%d]",
                  bench.label, what, octet_dtype_name(got->dtype), got->rank);
    for (int32_t i = 0; i < got->rank; i++)
        ck_assert_int_eq(expected->dim[i], got->dim[i]);
    for (int64_t i = 0; i < octet_array_elements(got); i++) { /* an assertion writes to a file */
        const unsigned char *a = (const unsigned char *)expected->data + (size_t)i * size;
        const unsigned char *b = (const unsigned char *)got->data + (size_t)i * size;
        uint32_t x = 0, y = 0;
        memcpy(&x, a, size);
        memcpy(&y, b, size);
        if (x != y && !(is_nan_code(a, got->dtype) && is_nan_code(b, got->dtype)))
            ck_abort_msg("%s: %s[%lld] is 0x%x, not 0x%x", bench.label, what, (long long)i, y, x);
    }
}

void check_same_stats(const struct octet_operand_stats *a, const struct octet_operand_stats *b,
                      const char *what)
{
    ck_assert_msg(
        a->is_quantized == b->is_quantized && a->amax == b->amax && a->scale_min == b->scale_min &&
            a->scale_max == b->scale_max && a->saturated == b->saturated &&
            a->underflowed == b->underflowed && a->nonfinite == b->nonfinite &&
            a->destroyed == b->destroyed &&
            (a->sqnr_db == b->sqnr_db || (a->sqnr_db != a->sqnr_db && b->sqnr_db != b->sqnr_db)),
        "%s: figures of %s differ", bench.label, what);
}
