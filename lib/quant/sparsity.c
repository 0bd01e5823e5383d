/* See sparsity.h. Both ways of cutting the array into groups are the same over row-major memory. */
#include "quant/sparsity.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"

enum { M_MAX = 1024, GROUPS_AN_ITEM = 4096 };

struct cutting {
    const struct oct_kernels *kernels;
    const struct octet_array *array;
    struct octet_array *x;
    int32_t n, m;
    int64_t groups;
};

/* Is a larger than b? NaN is larger than all numbers, as jax.lax.top_k has it. */
static bool is_larger(float a, float b)
{
    if (b != b)
        return false;
    return a != a || a > b;
}

/* keep[i]: among the n largest, of equal ones the first. Counts who comes before i: m is small. */
static bool stays(const float *magnitude, int32_t m, int32_t n, int32_t i)
{
    int32_t before = 0;

    for (int32_t j = 0; j < m; j++)
        before += is_larger(magnitude[j], magnitude[i]) ||
                  (j < i && !is_larger(magnitude[i], magnitude[j]));
    return before < n;
}

static void cut_group(const struct cutting *c, int64_t group)
{
    size_t bytes = octet_dtype_bytes(c->array->dtype), x_bytes = octet_dtype_bytes(c->x->dtype);
    size_t first = (size_t)(group * c->m);
    float magnitude[M_MAX];

    c->kernels->decode(c->array->dtype, (size_t)c->m, (const char *)c->array->data + first * bytes,
                       magnitude);
    for (int32_t i = 0; i < c->m; i++)
        magnitude[i] = fabsf(magnitude[i]);
    for (int32_t i = 0; i < c->m; i++)
        if (!stays(magnitude, c->m, c->n, i))
            memset((char *)c->x->data + (first + (size_t)i) * x_bytes, 0, x_bytes);
}

static void cut_item(void *user, size_t item, size_t thread)
{
    const struct cutting *c = user;
    int64_t group = (int64_t)item * GROUPS_AN_ITEM, end = group + GROUPS_AN_ITEM;

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
    size_t items = (size_t)((c.groups + GROUPS_AN_ITEM - 1) / GROUPS_AN_ITEM);
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
