/* Figures of a run: what its ops did to numbers, and how long they took.
 *
 * For: users of a session who ask for numerics or times. Not for: figures of one product alone
 * (quant.h). */
#ifndef OCTET_FIGURES_H
#define OCTET_FIGURES_H

#include "octet/quant.h"

/* Time that all executions of a kind of op took. */
struct octet_op_time {
    const char *op; /* "dot_general"; "attention" */
    double forward_s, backward_s;
};
/* Of one line of the trace, over all its executions. */
struct octet_line_figures {
    struct octet_operand_stats lhs, rhs, cotangent;
    char digest[33];
};

#endif
