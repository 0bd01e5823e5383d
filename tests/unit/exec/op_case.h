/* One op at a time: a node of its own graph, run forward and backward as a program would.
 *
 * A test makes inputs, builds one node of them with the words of graph/builder.h and asks for what
 * must hold for every op: outputs and gradients written whole, gradients as differences say, the
 * same bits whatever the kernel set and the number of threads.
 *
 *     struct op_case c;
 *     op_case_begin(&c);
 *     op_case_random(&c, OCTET_DTYPE_F32, 2, (int64_t[]){3, 5}, 1);
 *     oct_scale(&c.b, c.x[0], 0.5);
 *     op_case_made(&c);
 *     op_case_check_gradients(&c, 1e-2, 1e-4);
 *     op_case_check_bits(&c);
 *     op_case_end(&c);
 */
#ifndef OCTET_TESTS_EXEC_OP_CASE_H
#define OCTET_TESTS_EXEC_OP_CASE_H

#include <check.h>

#include "exec/op.h"
#include "graph/builder.h"

struct op_case {
    octet_context *context;
    octet_arena *arena;
    struct oct_builder b;
    struct octet_compute compute;   /* the best set, one thread, until op_case_check_bits */
    struct oct_execution execution; /* to be changed at will */
    const struct octet_rule *rule;
    oct_tensor x[OCTET_NODE_INPUTS_MAX]; /* the inputs made so far */
    struct octet_array in[OCTET_NODE_INPUTS_MAX];
    int inputs;
    const struct oct_node *node;
    struct octet_array out[2], cotangent[2]; /* cotangents: random; data NULL: nothing flows */
    struct octet_array gradient[OCTET_NODE_INPUTS_MAX]; /* of wanted inputs */
    unsigned wanted; /* bit i: the gradient of input i; all F32 and BF16 ones unless changed */
    struct oct_report *report;
    void *saved;
    size_t saved_bytes;
    void *scratch; /* of the call at hand */
    struct octet_error err;
    uint64_t dice;
};

void op_case_begin(struct op_case *c);
void op_case_end(struct op_case *c);
/* Kept until op_case_close. set: as octet_kernel_set_name gives it, or NULL: the best. */
octet_workers *op_case_workers(const char *set, int32_t threads);
void op_case_close(void); /* at the end of the program */

/* An input [dims] of zeros. Returns its array, to be filled. */
struct octet_array *op_case_input(struct op_case *c, enum octet_dtype dtype, int rank,
                                  const int64_t *dims);
/* Normal numbers of that deviation, rounded to dtype. */
struct octet_array *op_case_random(struct op_case *c, enum octet_dtype dtype, int rank,
                                   const int64_t *dims, double deviation);
/* The same as a parameter: its gradient is F32 whatever its dtype. */
struct octet_array *op_case_parameter(struct op_case *c, enum octet_dtype dtype, int rank,
                                      const int64_t *dims, double deviation);
struct octet_array *op_case_values(struct op_case *c, enum octet_dtype dtype, int rank,
                                   const int64_t *dims, const double *values);

/* The builder has made the node: outputs and cotangents. */
void op_case_made(struct op_case *c);

/* Outputs (gradients) hold NaN or nonsense before and must be written whole. */
void op_case_forward(struct op_case *c);
void op_case_backward(struct op_case *c); /* after a forward */
struct octet_array op_case_zeros(struct op_case *c, enum octet_dtype dtype, int rank,
                                 const int64_t *dims);

/* Each element of F32, BF16, S32 and BOOL arrays as a number. */
double op_case_get(const struct octet_array *array, int64_t i);
void op_case_set(struct octet_array *array, int64_t i, double value);
double op_case_normal(struct op_case *c); /* mean 0, deviation 1 */
uint64_t op_case_roll(struct op_case *c);

/* |value - expected| <= tolerance * max(1, |expected|), or the test fails and says where. */
void op_case_near(double value, double expected, double tolerance, const char *what, int64_t i);

/* Gradients of all wanted inputs against central differences with that step of
 * sum(out * cotangent), taken in double; tolerance relative to the largest of the gradient. */
void op_case_check_gradients(struct op_case *c, double step, double tolerance);
/* Forward and backward give the same bits with 1, 2 and 7 threads of every kernel set. */
void op_case_check_bits(struct op_case *c);

#endif
