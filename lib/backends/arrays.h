/* What the device does to one array: quantize it, scale it, cast it, mask it. Each as lib/quant's
 * function of that name, to the bit. */
#ifndef OCTET_BACKENDS_ARRAYS_H
#define OCTET_BACKENDS_ARRAYS_H

#include "backends/memory.h"
#include "quant/operand.h"

/* The forms that a key's array may have, beside hashes of settings (which set the highest bit). */
enum oct_form {
    OCT_FORM_NUMBERS,
    OCT_FORM_GIVEN, /* codes and scales, as an operand brought them */
    OCT_FORM_SAVED_LHS,
    OCT_FORM_SAVED_RHS
};

/* The host's array on the device, found under its key or uploaded and kept. */
enum octet_status oct_device_numbers(struct oct_work *work, uint64_t key,
                                     const struct octet_array *array, struct oct_device_array *out,
                                     struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_device_given(struct oct_work *work, uint64_t key,
                                   const struct octet_quantized *quantized,
                                   struct oct_device_array *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* calibration: its shape, as oct_calibration_shape gives it; method: in normal form. */
enum octet_status oct_device_quantize(struct oct_work *work, const struct oct_device_array *x,
                                      const struct oct_qtype *qtype, const char *method,
                                      const struct oct_calibration *calibration,
                                      struct oct_device_array *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* y = x's numbers (or codes) * scales in `dtype`. scale_dim, scale_stride: for each axis of x, how
 * many scales, and how far apart; stride NULL: row-major. */
enum octet_status oct_device_multiply(struct oct_work *work, const struct octet_array *shape,
                                      const struct oct_block *x, const int64_t *scale_dim,
                                      const int64_t *scale_stride, const struct oct_block *scales,
                                      enum octet_dtype dtype, struct oct_device_array *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* What codes stand for; numbers as they are. */
enum octet_status oct_device_dequantize(struct oct_work *work, const struct oct_device_array *x,
                                        struct oct_device_array *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_device_cast(struct oct_work *work, const struct oct_device_array *x,
                                  enum octet_dtype dtype, struct oct_device_array *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;
/* x = 0 where `array` lies outside of `bounds`' range. */
enum octet_status oct_device_mask(struct oct_work *work, const struct oct_device_array *array,
                                  const struct oct_device_array *bounds,
                                  const struct oct_device_array *x,
                                  struct octet_error *err) OCTET_MUST_CHECK;

/* Codes and scales in the host's memory, of `compute`'s arena. */
enum octet_status oct_device_fetch(struct oct_work *work, const struct octet_compute *compute,
                                   const struct oct_device_array *x, struct octet_quantized *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

#endif
