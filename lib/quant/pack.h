/* Packed codes: weights laid out for the products that they are multiplied in, beside their codes
 * or instead of them (qvalue.data and packed.codes NULL).
 *
 * Contracted are the first axes of an array; or the last one of a matrix; or one of the last two of
 * three, where the first is that of groups, of which each is a matrix by itself. */
#ifndef OCTET_QUANT_PACK_H
#define OCTET_QUANT_PACK_H

#include "octet/quant.h"

/* Bytes of an array's packed codes, its data not read; 0: it is not packed for these axes. */
size_t oct_packed_bytes(const struct octet_array *codes, int32_t axis, int32_t axis_count);
/* Fills quantized->packed, in the compute's arena. Programmer's error where the bytes are 0. */
enum octet_status oct_pack(const struct octet_compute *compute, struct octet_quantized *quantized,
                           int32_t axis, int32_t axis_count,
                           struct octet_error *err) OCTET_MUST_CHECK;
/* Is it packed for just these axes? */
bool oct_is_packed(const struct octet_quantized *quantized, const int32_t *axes,
                   int32_t axis_count);
/* Where there are packed codes alone, the codes again, in the compute's arena. */
enum octet_status oct_unpack(const struct octet_compute *compute, struct octet_quantized *quantized,
                             struct octet_error *err) OCTET_MUST_CHECK;

#endif
