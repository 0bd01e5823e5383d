/* Piece: stretches of an array as f32, and loops over ranges that threads share.
 *
 * For: ops that go through their operands element by element or row by row, in F32 and BF16 alike.
 * Decision: F32 arrays are read and written in place; only BF16 goes through a buffer, a piece at a
 * time, so that one body serves both and F32 pays nothing. */
#ifndef OCTET_EXEC_PIECE_H
#define OCTET_EXEC_PIECE_H

#include "exec/op.h"
#include "kernels/kernels.h"

enum { OCT_PIECE = 2048 }; /* elements of a buffer: 8 KiB, which stay in the first cache */

/* What the blocks of an arena may lose between an op's pieces: part of each bound of scratch. */
enum { OCT_SCRATCH_LOSS = 64 << 10 };

/* Elements [at, at + n) of x, of any type that decode takes: in place when it is F32, else in the
 * buffer [n]. */
static inline const float *oct_piece_read(const struct oct_kernels *kernels,
                                          const struct octet_array *x, int64_t at, int64_t n,
                                          float *buffer)
{
    if (x->dtype == OCTET_DTYPE_F32)
        return (const float *)x->data + at;
    kernels->decode(x->dtype, (size_t)n,
                    (const char *)x->data + at * (int64_t)octet_dtype_bytes(x->dtype), buffer);
    return buffer;
}

/* The same after a cast to `dtype`, which is F32 or BF16: how an op sees a parameter. */
const float *oct_piece_read_as(const struct oct_kernels *kernels, const struct octet_array *x,
                               enum octet_dtype dtype, int64_t at, int64_t n, float *buffer);

/* Where to leave elements from `at` on for oct_piece_write: in x itself when it is F32. */
static inline float *oct_piece_place(const struct octet_array *x, int64_t at, float *buffer)
{
    return x->dtype == OCTET_DTYPE_F32 ? (float *)x->data + at : buffer;
}

/* Rounds n values to x's type; does nothing when they lie where they belong. */
static inline void oct_piece_write(const struct oct_kernels *kernels, const struct octet_array *x,
                                   int64_t at, int64_t n, const float *values)
{
    char *to = (char *)x->data + at * (int64_t)octet_dtype_bytes(x->dtype);

    if ((const void *)values != to)
        kernels->cast(x->dtype, (size_t)n, values, to);
}

/* n elements of x from `from` on, to y's from `to` on, with a cast where the types differ. */
void oct_piece_copy(const struct oct_kernels *kernels, const struct octet_array *x, int64_t from,
                    const struct octet_array *y, int64_t to, int64_t n);

static inline const struct oct_kernels *oct_call_kernels(const struct oct_op_call *call)
{
    return call->execution->compute->workers->kernels;
}

/* Product of the dimensions before and behind an axis, and of all but the last. */
int64_t oct_dims_before(const struct octet_array *x, int axis);
int64_t oct_dims_behind(const struct octet_array *x, int axis);
static inline int64_t oct_rows(const struct octet_array *x)
{
    return oct_dims_before(x, x->rank - 1);
}

/* body(user, first, end) over [0, count), in ranges of at most `grain`; threads share them when
 * `cost`, in elements touched, is worth waking them. No result may depend on how it is split. */
enum octet_status oct_ranges(const struct oct_op_call *call, int64_t count, int64_t grain,
                             int64_t cost, void (*body)(void *user, int64_t first, int64_t end),
                             void *user, struct octet_error *err) OCTET_MUST_CHECK;

/* NULL with an error when the call's scratch is used up. Zeroed. */
void *oct_call_scratch(const struct oct_op_call *call, int64_t count, size_t size,
                       struct octet_error *err);

#endif
