/* Layout: which scale goes with which element.
 *
 * For: walking an array and its scale together, whatever the channelwise and tiled axes are.
 * Decision: the axes are cut and merged into factors that alternate between "kept" (each index has
 * its own scale) and "reduced" (indices share one), so that the innermost loop is always a run of
 * consecutive elements: with one scale if the last factor is reduced, with consecutive scales if it
 * is kept. */
#ifndef OCTET_QUANT_LAYOUT_H
#define OCTET_QUANT_LAYOUT_H

#include <stdbool.h>

#include "octet/quant.h"

struct oct_factor {
    int64_t extent;
    int64_t stride; /* in scales; 0: reduced */
};

struct oct_layout {
    int32_t count;
    struct oct_factor factor[2 * OCTET_ARRAY_RANK_MAX];
    int64_t elements, scales;
    int64_t rows, row_length; /* a row is the last factor */
    bool is_kept;             /* the last factor is: a row has row_length consecutive scales */
};

/* scale_dim[i] divides dim[i]. */
struct oct_layout oct_layout_make(int32_t rank, const int64_t *dim, const int64_t *scale_dim);
/* Index of the (first) scale of a row. */
int64_t oct_layout_scale(const struct oct_layout *layout, int64_t row);

/* A run of elements within one row. */
struct oct_run {
    int64_t element, length; /* first element in the array */
    int64_t scale; /* its scale; of a kept row, those that follow it go with the next elements */
    size_t item;   /* of work: the runs of an item are visited by one thread, in order */
};

/* Has each row its own scale, and is it visited in one run? */
bool oct_layout_is_by_rows(const struct oct_layout *layout);
/* How many items oct_layout_each makes. */
size_t oct_layout_items(const struct oct_layout *layout);

/* Calls visit(user, run, thread) for runs that cover the array, each element once, shared by the
 * workers. Runs are cut at the same places whatever the number of threads. */
enum octet_status
oct_layout_each(const struct octet_compute *compute, const struct oct_layout *layout,
                void (*visit)(void *user, const struct oct_run *run, size_t thread), void *user,
                struct octet_error *err) OCTET_MUST_CHECK;
/* The same with one thread, in order of the elements. */
enum octet_status
oct_layout_in_order(const struct octet_compute *compute, const struct oct_layout *layout,
                    void (*visit)(void *user, const struct oct_run *run, size_t thread), void *user,
                    struct octet_error *err) OCTET_MUST_CHECK;

#endif
