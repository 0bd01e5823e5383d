/* Prepared weights: those that a rule quantizes, quantized once and kept as codes and scales.
 *
 * For: sessions that only infer: about one byte a parameter. Not for: training, where weights
 * change.
 *
 * Life: immutable once made; readers share it. It belongs to the parameters that it was made from
 * and serves every program with `prepares` of the same model, whatever its batch shape. */
#ifndef OCTET_EXEC_PREPARED_H
#define OCTET_EXEC_PREPARED_H

#include "exec/program.h"

/* compute: workers and cancel; its arena gives working memory back. Errors: RESOURCE_EXHAUSTED;
 * what a rule's settings say; what cancel says. */
enum octet_status oct_prepared_create(const oct_program *program,
                                      const octet_parameters *parameters,
                                      const struct octet_compute *compute, oct_prepared **out,
                                      struct octet_error *err) OCTET_MUST_CHECK;
void oct_prepared_destroy(oct_prepared *prepared); /* NULL is fine */
uint64_t oct_prepared_bytes(const oct_prepared *prepared);

/* Before any is made: bytes of the codes (scales are a small part more), and of the parameters that
 * would be held as codes alone. */
enum octet_status oct_prepared_estimate(const oct_program *program, uint64_t *code_bytes,
                                        uint64_t *held_bytes,
                                        struct octet_error *err) OCTET_MUST_CHECK;

/* Are all numbers of parameter i held as codes, and read by nothing else? */
bool oct_prepared_holds(const oct_prepared *prepared, size_t i);
/* The pieces of parameter i: slice of which layer, cut along `axis` from `start` (axis -1: whole).
 * The codes may be packed alone (quant/pack.h). */
struct oct_prepared_piece {
    size_t parameter;
    int64_t layer;
    int32_t axis;
    int64_t start;
    struct octet_quantized weight;
};
size_t oct_prepared_count(const oct_prepared *prepared);
const struct oct_prepared_piece *oct_prepared_piece(const oct_prepared *prepared, size_t i);
/* Makes a copy of a piece's weight one whose codes are in order, in the compute's arena. */
enum octet_status oct_prepared_unpack(const struct octet_compute *compute,
                                      struct octet_quantized *weight,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* codes * scale of one layer of parameter i, as f32, in a slice's own order. out: a slice's
 * elements.
 */
enum octet_status oct_prepared_read(const oct_prepared *prepared, size_t i, int64_t layer,
                                    const struct octet_compute *compute, float *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;

#endif
