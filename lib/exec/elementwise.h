/* Elementwise ops; see elementwise.c. */
#ifndef OCTET_EXEC_ELEMENTWISE_H
#define OCTET_EXEC_ELEMENTWISE_H

#include "exec/op.h"

oct_forward oct_add_forward, oct_multiply_forward, oct_scale_forward, oct_cast_forward,
    oct_stop_gradient_forward;
oct_vjp oct_add_vjp, oct_multiply_vjp, oct_scale_vjp, oct_cast_vjp;

#endif
