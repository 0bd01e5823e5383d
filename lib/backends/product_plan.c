/* See product_plan.h. */
#include "backends/product_plan.h"

#include <stdlib.h>
#include <string.h>

#include "backends/kernels/plan.h"

enum { ROOM = 256, LATER_GROUPS_MAX = 65535 };

static int64_t *grow(struct oct_product_plan *plan, size_t more)
{
    if (plan->at && plan->count + more > plan->room) {
        size_t room = 2 * plan->room > plan->count + more ? 2 * plan->room : plan->count + more;
        int64_t *at = realloc(plan->at, room * sizeof *at);
        if (!at)
            free(plan->at);
        plan->at = at;
        plan->room = room;
    }
    if (!plan->at)
        return NULL;
    plan->count += more;
    return plan->at + plan->count - more;
}

void oct_plan_begin(struct oct_product_plan *plan)
{
    *plan = (struct oct_product_plan){.at = malloc(ROOM * sizeof(int64_t)), .room = ROOM};
    int64_t *head = grow(plan, PRODUCT_HEAD);
    if (head)
        memset(head, 0, PRODUCT_HEAD * sizeof *head);
}

void oct_plan_end(struct oct_product_plan *plan)
{
    free(plan->at);
}

void oct_plan_set(struct oct_product_plan *plan, int place, int64_t value)
{
    if (plan->at)
        plan->at[place] = value;
}

void oct_plan_stride(struct oct_product_plan *plan, int place, int64_t stride)
{
    oct_plan_set(plan, place, stride);
    oct_plan_set(plan, place + 1, 0);
}

void oct_plan_offsets(struct oct_product_plan *plan, int place, int32_t rank, const int64_t *extent,
                      const int64_t *divisor, const int64_t *stride)
{
    int64_t count = 1, digit[OCTET_ARRAY_RANK_MAX] = {0};
    size_t table = plan->count;
    bool is_even = true;

    for (int32_t i = 0; i < rank; i++)
        count *= extent[i];
    int64_t *entries = grow(plan, (size_t)count);
    if (!entries)
        return;
    for (int64_t at = 0; at < count; at++) {
        int64_t offset = 0;
        for (int32_t i = 0; i < rank; i++)
            offset += digit[i] / (divisor ? divisor[i] : 1) * stride[i];
        entries[at] = offset;
        is_even = is_even && offset == at * entries[count > 1];
        for (int32_t i = rank - 1; i >= 0 && ++digit[i] == extent[i]; i--)
            digit[i] = 0;
    }
    if (is_even) {
        oct_plan_stride(plan, place, count > 1 ? entries[1] : 1);
        plan->count = table;
    } else {
        oct_plan_set(plan, place + 1, (int64_t)table);
    }
}

static void record(struct oct_product_plan *plan, const struct oct_plan_panel *panel)
{
    int64_t *at = grow(plan, PANEL_SIZE);

    if (!at)
        return;
    at[PANEL_FIRST] = plan->tiles;
    at[PANEL_ROWS] = panel->rows;
    at[PANEL_DEPTH] = panel->depth;
    at[PANEL_LHS] = panel->lhs;
    at[PANEL_RHS] = panel->rhs;
    at[PANEL_LHS_SCALE] = panel->lhs_scale;
    at[PANEL_RHS_SCALE] = panel->rhs_scale;
    at[PANEL_OUT] = panel->out;
}

void oct_plan_panel(struct oct_product_plan *plan, const struct oct_plan_panel *panel)
{
    if (!plan->at || !panel->rows)
        return;
    if (!plan->at[PRODUCT_PANEL])
        plan->at[PRODUCT_PANEL] = (int64_t)plan->count;
    plan->at[PRODUCT_PANELS]++;
    record(plan, panel);
    plan->tiles += (panel->rows + PRODUCT_TILE - 1) / PRODUCT_TILE;
}

static struct oct_device_argument buffer(const struct oct_block *block)
{
    return (struct oct_device_argument){.kind = OCT_ARGUMENT_BUFFER,
                                        .buffer = block ? block->buffer : 0};
}

static bool is_code(enum octet_dtype dtype)
{
    return dtype != OCTET_DTYPE_F32 && dtype != OCTET_DTYPE_BF16;
}

enum octet_status oct_plan_run(struct oct_work *work, struct oct_product_plan *plan,
                               const struct oct_device_array *lhs,
                               const struct oct_device_array *rhs, int64_t columns,
                               const struct oct_device_array *out, struct octet_error *err)
{
    int64_t later = (columns + PRODUCT_TILE - 1) / PRODUCT_TILE;
    struct oct_block *values;

    oct_plan_set(plan, PRODUCT_COLUMNS, columns);
    oct_plan_set(plan, PRODUCT_LHS_TYPE, lhs->array.dtype);
    oct_plan_set(plan, PRODUCT_RHS_TYPE, rhs->array.dtype);
    oct_plan_set(plan, PRODUCT_OUT_TYPE, out->array.dtype);
    oct_plan_set(plan, PRODUCT_HAS_LHS_SCALE, lhs->is_quantized);
    oct_plan_set(plan, PRODUCT_HAS_RHS_SCALE, rhs->is_quantized);
    record(plan, &(struct oct_plan_panel){0});
    if (!plan->at)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a product's plan");
    if (!plan->tiles || !columns)
        return OCTET_OK;
    if (later > LATER_GROUPS_MAX)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "rhs.shape",
                          "%lld columns; up to %d are supported on a device", (long long)columns,
                          LATER_GROUPS_MAX * PRODUCT_TILE);
    enum octet_status status = oct_work_plan(work, plan->at, plan->count, &values, err);
    if (status != OCTET_OK)
        return status;
    struct oct_device_grid grid = {{(size_t)plan->tiles, (size_t)later}, {PRODUCT_ITEMS, 1}};
    struct oct_device_argument arguments[] = {buffer(values),      buffer(lhs->data),
                                              buffer(rhs->data),   buffer(lhs->scales),
                                              buffer(rhs->scales), buffer(out->data)};
    bool both = is_code(lhs->array.dtype) && is_code(rhs->array.dtype);
    return oct_work_launch(work, both ? OCT_KERNEL_gemm_codes : OCT_KERNEL_gemm_numbers, &grid,
                           arguments, 6, err);
}
