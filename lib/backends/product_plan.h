/* A product's plan while it is written (kernels/plan.h): numbers that grow, in the heap. */
#ifndef OCTET_BACKENDS_PRODUCT_PLAN_H
#define OCTET_BACKENDS_PRODUCT_PLAN_H

#include "backends/memory.h"

struct oct_product_plan {
    int64_t *at; /* NULL: no memory was left */
    size_t count, room;
    int64_t tiles; /* of rows, of the panels so far */
};

void oct_plan_begin(struct oct_product_plan *plan);
void oct_plan_end(struct oct_product_plan *plan);
void oct_plan_set(struct oct_product_plan *plan, int place, int64_t value);
/* Offsets of entries whose mixed-radix digits over `extent` are d: the sum of (d / divisor) *
 * stride. divisor NULL: 1. */
void oct_plan_offsets(struct oct_product_plan *plan, int place, int32_t rank, const int64_t *extent,
                      const int64_t *divisor, const int64_t *stride);
/* Evenly: entry i is i * stride. */
void oct_plan_stride(struct oct_product_plan *plan, int place, int64_t stride);

/* One panel: bases in elements. Panels come after all offsets. */
struct oct_plan_panel {
    int64_t rows, depth, lhs, rhs, lhs_scale, rhs_scale, out;
};
void oct_plan_panel(struct oct_product_plan *plan, const struct oct_plan_panel *panel);

/* Ends the list of panels, brings the plan to the device and starts the kernel, if there is
 * anything to compute. columns: of the result. */
enum octet_status oct_plan_run(struct oct_work *work, struct oct_product_plan *plan,
                               const struct oct_device_array *lhs,
                               const struct oct_device_array *rhs, int64_t columns,
                               const struct oct_device_array *out,
                               struct octet_error *err) OCTET_MUST_CHECK;

#endif
