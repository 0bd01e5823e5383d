/* One run under way. */
#ifndef OCTET_EXEC_RUN_PRIVATE_H
#define OCTET_EXEC_RUN_PRIVATE_H

#include "exec/program_private.h"

struct oct_execute {
    const oct_program *program;
    const struct oct_run *run;
    struct oct_run_result *result;
    struct oct_execution execution;
    struct octet_array inputs[OCT_INPUT_COUNT];
    unsigned char *block;
    octet_arena *scratch;
    struct oct_op_keys keys;     /* of the step under way */
    struct oct_report *reports;  /* [loss_count], of the cross entropies */
    struct oct_figures figures;  /* of the step under way */
    struct octet_op_time *times; /* [OCT_OP_COUNT + 1], the last of attention */
    double sums[2], weights[2];  /* loss and weight sums: main, MTP */
};

#endif
