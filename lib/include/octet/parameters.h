/* Parameters: numbers for each parameter of a model; also its gradients, or an optimizer's moments.
 *
 * For: keeping, filling and reading them under MaxText's names, in MaxText's layout.
 * Not for: what they are used for (session.h).
 * Decision: a parameter of a scanned stack is one array [.., layers, ..] to the outside; inside,
 * each layer's slice is contiguous, since an op reads one slice. Reading and writing turn one into
 * the other.
 *
 * Life: a set owns its memory and has one owner; readers may share it while nobody writes. It keeps
 * the plan's parameter list alive (a reference). */
#ifndef OCTET_PARAMETERS_H
#define OCTET_PARAMETERS_H

#include "octet/array.h"
#include "octet/plan.h"
#include "octet/quant.h"

typedef struct octet_parameters octet_parameters;

/* Zeros. dtype: F32, BF16; unspecified: each parameter's own (weight_dtype). The i-th parameter is
 * octet_plan_parameter(plan, i). Errors: RESOURCE_EXHAUSTED. */
OCTET_API enum octet_status octet_parameters_create(octet_plan *plan, enum octet_dtype dtype,
                                                    octet_parameters **out,
                                                    struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_parameters_destroy(octet_parameters *parameters); /* NULL is fine */
OCTET_API size_t octet_parameters_count(const octet_parameters *parameters);
OCTET_API uint64_t octet_parameters_bytes(const octet_parameters *parameters);
/* Index of a name, or SIZE_MAX. */
OCTET_API size_t octet_parameters_find(const octet_parameters *parameters, const char *name);
/* name, stored shape, dtype, bytes. data is not set: the layout inside is another. */
OCTET_API void octet_parameters_describe(const octet_parameters *parameters, size_t i,
                                         const char **name, struct octet_array *out);

/* Bytes [offset, offset + size) of parameter i as MaxText lays it out, row-major; offset and size
 * are multiples of the element's. Errors of write: INVALID_ARGUMENT with field "offset" or "data".
 */
OCTET_API enum octet_status octet_parameters_write(octet_parameters *parameters, size_t i,
                                                   uint64_t offset, uint64_t size, const void *data,
                                                   struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API enum octet_status octet_parameters_read(const octet_parameters *parameters, size_t i,
                                                  uint64_t offset, uint64_t size, void *data,
                                                  struct octet_error *err) OCTET_MUST_CHECK;
/* All zeros. */
OCTET_API void octet_parameters_clear(octet_parameters *parameters);
/* Draws from MaxText's initialisers; the same seed gives the same bits on every machine (they are
 * not JAX's own bits). */
OCTET_API enum octet_status octet_parameters_initialise(octet_parameters *parameters, uint64_t seed,
                                                        const struct octet_compute *compute,
                                                        struct octet_error *err) OCTET_MUST_CHECK;
/* XXH3, 128 bits, hexadecimal, over names, shapes and bytes. */
OCTET_API void octet_parameters_digest(const octet_parameters *parameters, char digest[33]);

#endif
