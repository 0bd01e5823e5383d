/* Ops that move numbers and change none; see layout.c. */
#ifndef OCTET_EXEC_LAYOUT_H
#define OCTET_EXEC_LAYOUT_H

#include "exec/op.h"

oct_forward oct_slice_forward, oct_concat_forward, oct_reshape_forward, oct_transpose_forward,
    oct_broadcast_forward, oct_one_hot_forward;
oct_vjp oct_slice_vjp, oct_concat_vjp, oct_reshape_vjp, oct_transpose_vjp, oct_broadcast_vjp;

#endif
