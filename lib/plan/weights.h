/* Which parameters stand behind an operand, and which rules quantize. */
#ifndef OCTET_PLAN_WEIGHTS_H
#define OCTET_PLAN_WEIGHTS_H

#include "graph/graph_private.h"
#include "octet/rules.h"

/* Is what `rule` (an index, -1 none) takes quantized? A rule without weight_qtype only excludes. */
bool oct_rule_quantizes(const octet_rules *rules, int rule);

/* Calls visit(user, parameter) for each parameter that `tensor` is made from by slices, casts,
 * transpositions, reshapes and concatenation alone. Returns how many there are. visit may be NULL.
 */
int oct_plan_weights(const octet_graph *graph, uint32_t tensor,
                     void (*visit)(void *user, uint32_t parameter), void *user);

#endif
