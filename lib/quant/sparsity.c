/* See sparsity.h. Both ways of cutting the array into groups are the same over row-major memory. */
#include "quant/sparsity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"

enum { M_MAX = 1024, ITEM_ELEMENTS = 1 << 14 };

struct cutting {
    const struct oct_kernels *kernels;
    const struct octet_array *array;
    struct octet_array *x;
    int32_t n, m;
    int64_t groups, groups_an_item;
};

/* Is a larger than b? NaN is larger than all numbers, as jax.lax.top_k has it. */
static bool is_larger(float a, float b)
{
    if (b != b)
        return false;
    return a != a || a > b;
}

struct ranked {
    float magnitude;
    int32_t index;
};

/* The largest first, of equal ones the first in memory. */
static int compare_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (is_larger(x->magnitude, y->magnitude))
        return -1;
    if (is_larger(y->magnitude, x->magnitude))
        return 1;
    return x->index < y->index ? -1 : 1;
}

static void cut_group(const struct cutting *c, int64_t group)
{
    size_t bytes = octet_dtype_bytes(c->array->dtype), x_bytes = octet_dtype_bytes(c->x->dtype);
    size_t first = (size_t)(group * c->m);
    float values[M_MAX];
    struct ranked ranked[M_MAX];

    c->kernels->decode(c->array->dtype, (size_t)c->m, (const char *)c->array->data + first * bytes,
                       values);
    for (int32_t i = 0; i < c->m; i++)
        ranked[i] = (struct ranked){fabsf(values[i]), i};
    qsort(ranked, (size_t)c->m, sizeof *ranked, compare_rank);
    for (int32_t i = c->n; i < c->m; i++)
        memset((char *)c->x->data + (first + (size_t)ranked[i].index) * x_bytes, 0, x_bytes);
}

static void cut_item(void *user, size_t item, size_t thread)
{
    const struct cutting *c = user;
    int64_t group = (int64_t)item * c->groups_an_item, end = group + c->groups_an_item;

    (void)thread;
    for (; group < end && group < c->groups; group++)
        cut_group(c, group);
}

enum octet_status oct_mask_sparse(const struct octet_compute *compute,
                                  const struct octet_array *array,
                                  const struct octet_sparsity *sparsity, struct octet_array *x,
                                  struct octet_error *err)
{
    struct cutting c = {.kernels = compute->workers->kernels,
                        .array = array,
                        .x = x,
                        .n = sparsity->n,
                        .m = sparsity->m};
    int64_t elements = octet_array_elements(array);
    char shape[160];

    if (sparsity->m > M_MAX || elements % sparsity->m != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rule.sparsity",
                          "groups of m = %d do not divide the %" PRId64 " elements of %s%s",
                          sparsity->m, elements, octet_array_shape_text(array, shape, sizeof shape),
                          sparsity->m > M_MAX ? ", or are longer than 1024" : "");
    c.groups = elements / sparsity->m;
    c.groups_an_item = ITEM_ELEMENTS / c.m;
    size_t items = (size_t)((c.groups + c.groups_an_item - 1) / c.groups_an_item);
    return oct_pool_run(compute->workers->pool, items, compute->cancel, cut_item, &c, err);
}

enum octet_status oct_sparsify(const struct octet_compute *compute, const struct octet_array *array,
                               const struct octet_sparsity *sparsity, struct octet_array *out,
                               struct octet_error *err)
{
    struct octet_array made;
    enum octet_status status = oct_array_like(compute, array, array->dtype, &made, err);

    if (status != OCTET_OK)
        return status;
    if (octet_array_bytes(array))
        memcpy(made.data, array->data, (size_t)octet_array_bytes(array));
    *out = made;
    return oct_mask_sparse(compute, array, sparsity, out, err);
}
