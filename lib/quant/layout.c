/* See layout.h. */
#include "quant/layout.h"

#include "base/pool.h"
#include "kernels/kernels.h"

static void add_factor(struct oct_layout *layout, int64_t extent, int64_t stride)
{
    struct oct_factor *last = layout->count ? &layout->factor[layout->count - 1] : NULL;

    if (extent == 1)
        return;
    if (last && (last->stride == 0) == (stride == 0)) {
        last->extent *= extent;
        last->stride = stride; /* scales are row-major, so neighbours' strides agree */
    } else {
        layout->factor[layout->count++] = (struct oct_factor){extent, stride};
    }
}

struct oct_layout oct_layout_make(int32_t rank, const int64_t *dim, const int64_t *scale_dim)
{
    struct oct_layout layout = {.elements = 1, .scales = 1};

    for (int32_t i = 0; i < rank; i++) {
        layout.elements *= dim[i];
        layout.scales *= scale_dim[i];
    }
    int64_t stride = layout.scales;
    for (int32_t i = 0; i < rank && layout.elements; i++) {
        stride /= scale_dim[i];
        add_factor(&layout, scale_dim[i], stride);
        add_factor(&layout, dim[i] / scale_dim[i], 0);
    }
    if (layout.count == 0)
        layout.factor[layout.count++] = (struct oct_factor){layout.elements ? 1 : 0, 0};
    struct oct_factor *last = &layout.factor[layout.count - 1];
    layout.row_length = last->extent;
    layout.is_kept = last->stride != 0;
    layout.rows = layout.row_length ? layout.elements / layout.row_length : 0;
    return layout;
}

int64_t oct_layout_scale(const struct oct_layout *layout, int64_t row)
{
    int64_t scale = 0;

    for (int32_t i = layout->count - 2; i >= 0; i--) {
        scale += row % layout->factor[i].extent * layout->factor[i].stride;
        row /= layout->factor[i].extent;
    }
    return scale;
}

enum { RUN_ELEMENTS = 1 << 16 }; /* an item of work: some 20 to 100 us */

struct each {
    const struct oct_layout *layout;
    int64_t rows_an_item; /* when a row is short */
    int64_t pieces_a_row; /* when it is long: 2 or more */
    void (*visit)(void *user, const struct oct_run *run, size_t thread);
    void *user;
};

static void each_item(void *user, size_t item, size_t thread)
{
    const struct each *each = user;
    const struct oct_layout *layout = each->layout;
    int64_t length = layout->row_length;

    if (each->pieces_a_row > 1) {
        int64_t row = (int64_t)item / each->pieces_a_row;
        int64_t begin = (int64_t)item % each->pieces_a_row * RUN_ELEMENTS;
        int64_t rest = length - begin;
        struct oct_run run = {.element = row * length + begin,
                              .length = rest < RUN_ELEMENTS ? rest : RUN_ELEMENTS,
                              .scale =
                                  oct_layout_scale(layout, row) + (layout->is_kept ? begin : 0),
                              .item = item};
        each->visit(each->user, &run, thread);
        return;
    }
    int64_t row = (int64_t)item * each->rows_an_item, end = row + each->rows_an_item;
    for (; row < end && row < layout->rows; row++) {
        struct oct_run run = {row * length, length, oct_layout_scale(layout, row), item};
        each->visit(each->user, &run, thread);
    }
}

/* How the items are cut: the same whatever the number of threads. */
static struct each cut(const struct oct_layout *layout, size_t *items)
{
    struct each each = {.layout = layout, .pieces_a_row = 1};

    if (layout->elements == 0) {
        *items = 0;
    } else if (layout->row_length >= 2 * RUN_ELEMENTS) {
        each.pieces_a_row = (layout->row_length + RUN_ELEMENTS - 1) / RUN_ELEMENTS;
        *items = (size_t)(layout->rows * each.pieces_a_row);
    } else {
        each.rows_an_item = (RUN_ELEMENTS + layout->row_length - 1) / layout->row_length;
        *items = (size_t)((layout->rows + each.rows_an_item - 1) / each.rows_an_item);
    }
    return each;
}

bool oct_layout_is_by_rows(const struct oct_layout *layout)
{
    return !layout->is_kept && layout->rows == layout->scales &&
           layout->row_length < 2 * RUN_ELEMENTS;
}

size_t oct_layout_items(const struct oct_layout *layout)
{
    size_t items;

    cut(layout, &items);
    return items;
}

static enum octet_status each_run(const struct octet_compute *compute, struct oct_pool *pool,
                                  const struct oct_layout *layout,
                                  void (*visit)(void *user, const struct oct_run *run,
                                                size_t thread),
                                  void *user, struct octet_error *err)
{
    size_t items;
    struct each each = cut(layout, &items);

    each.visit = visit;
    each.user = user;
    return oct_pool_run(pool, items, compute->cancel, each_item, &each, err);
}

enum octet_status
oct_layout_each(const struct octet_compute *compute, const struct oct_layout *layout,
                void (*visit)(void *user, const struct oct_run *run, size_t thread), void *user,
                struct octet_error *err)
{
    return each_run(compute, compute->workers->pool, layout, visit, user, err);
}

enum octet_status
oct_layout_in_order(const struct octet_compute *compute, const struct oct_layout *layout,
                    void (*visit)(void *user, const struct oct_run *run, size_t thread), void *user,
                    struct octet_error *err)
{
    return each_run(compute, NULL, layout, visit, user, err);
}
