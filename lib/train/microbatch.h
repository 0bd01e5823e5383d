/* Microbatches: a batch in equal parts, and what their runs gave as that of one run.
 *
 * Source: MaxText, utils/gradient_accumulation.py. */
#ifndef OCTET_TRAIN_MICROBATCH_H
#define OCTET_TRAIN_MICROBATCH_H

#include "exec/program.h"

/* Part j of `count`: rows j, j + count, j + 2 count, ... of a complete batch, whose rows divide. */
enum octet_status oct_microbatch_take(const struct octet_batch *whole, int64_t j, int64_t count,
                                      octet_arena *arena, struct octet_batch *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* Part j's results into those of the call: rows where they came from, sums added up. Counts
 * are of one forward pass, so one part's. Parts come in order, from 0. */
enum octet_status oct_microbatch_collect(const struct oct_run_result *part, int64_t j,
                                         int64_t count, octet_arena *arena,
                                         struct oct_run_result *all,
                                         struct octet_error *err) OCTET_MUST_CHECK;

#endif
