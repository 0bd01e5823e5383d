/* Schedule: the learning rate of each step, as MaxText's. */
#ifndef OCTET_TRAIN_SCHEDULE_H
#define OCTET_TRAIN_SCHEDULE_H

#include "octet/session.h"

/* The rate of the step that `step` steps came before: linear from 0 over the first
 * warmup_steps_fraction of the schedule, then a cosine to learning_rate * final fraction ("wsd":
 * constant, then a decay over the last wsd_decay_steps_fraction), 0 from the schedule's end on.
 * Rounded to f32. Source: MaxText, maxtext_utils.create_learning_rate_schedule, which past the end
 * of a run goes on with the cosine; nothing is past the end there. The optimizer has passed
 * octet_session_optimizer_check. */
double oct_learning_rate(const struct octet_optimizer *optimizer, int64_t step);

#endif
