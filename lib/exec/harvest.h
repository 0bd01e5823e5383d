/* What a run brings in beside gradients: losses, outputs, counts, figures, times. */
#ifndef OCTET_EXEC_HARVEST_H
#define OCTET_EXEC_HARVEST_H

#include "exec/run_private.h"

/* Makes the result's arrays in the compute's arena. */
enum octet_status oct_harvest_begin(struct oct_execute *x,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* Asks a step for what is wanted of it; takes it. */
void oct_harvest_before(struct oct_execute *x, const struct oct_step *step,
                        struct oct_op_call *call);
enum octet_status oct_harvest_after(struct oct_execute *x, const struct oct_step *step,
                                    const struct oct_op_call *call,
                                    struct octet_error *err) OCTET_MUST_CHECK;
void oct_harvest_time(struct oct_execute *x, const struct oct_step *step, double seconds);
void oct_harvest_end(struct oct_execute *x);

#endif
