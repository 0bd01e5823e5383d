/* Where parameters lie in memory; for exec and train. Outside liboctet, octet/parameters.h. */
#ifndef OCTET_EXEC_PARAMETERS_PRIVATE_H
#define OCTET_EXEC_PARAMETERS_PRIVATE_H

#include "base/pool.h"
#include "graph/graph_private.h"
#include "octet/parameters.h"

/* A parameter is `layers` slices of outer * inner elements, one behind the other; in MaxText's
 * array the layers' axis stands between outer and inner. */
struct oct_parameter {
    const struct octet_tensor *tensor;
    enum octet_dtype dtype;
    size_t element_bytes;
    size_t offset; /* in the block, 64-aligned */
    size_t layers, outer, inner;
    size_t first_piece;
    bool dropped; /* the numbers are gone; whoever dropped them has them in another form */
};

struct octet_parameters {
    octet_plan *plan; /* one reference */
    struct oct_parameter *entries;
    size_t count;
    char *block;
    size_t block_bytes;
    uint64_t bytes; /* of all parameters that are not dropped */
    size_t pieces;
};

/* All parameters are cut into pieces of OCT_PIECE_ELEMENTS, the last of each into what is left:
 * the items of a loop that threads share. Piece `item` is elements [begin, begin + count) of a
 * parameter, in the order in which they lie. */
enum { OCT_PIECE_ELEMENTS = 1 << 16 };
struct oct_piece {
    size_t parameter, begin, count;
};
struct oct_piece oct_parameters_piece(const octet_parameters *parameters, size_t item);

/* One layer's slice, in the shape that a node sees; layer 0 of what is not stacked. */
struct octet_array oct_parameters_slice(const octet_parameters *parameters, size_t i,
                                        int64_t layer);
/* All slices of parameter i, and how many elements those are. */
void *oct_parameters_data(const octet_parameters *parameters, size_t i);
size_t oct_parameters_elements(const octet_parameters *parameters, size_t i);
/* Gives the memory of parameter i back to the system; taking it again makes it zeros. */
void oct_parameters_drop(octet_parameters *parameters, size_t i);
void oct_parameters_take(octet_parameters *parameters, size_t i);
/* octet_parameters_digest, shared by the pool's threads. */
void oct_parameters_digest(const octet_parameters *parameters, struct oct_pool *pool,
                           char digest[33]);
/* What octet_parameters_create would take, block and tables. */
uint64_t oct_parameters_bytes_of(const octet_plan *plan, enum octet_dtype dtype);

/* Elements [first, first + count) of parameter i in MaxText's order, copied to or from `outside`.
 * within: a slice-first array of its elements in any type of element_bytes (the parameter's own
 * data, or codes made from it). */
void oct_parameter_gather(const struct oct_parameter *parameter, size_t element_bytes,
                          const void *within, size_t first, size_t count, void *outside);
void oct_parameter_scatter(const struct oct_parameter *parameter, size_t element_bytes,
                           void *within, size_t first, size_t count, const void *outside);
/* The range as elements; errors: INVALID_ARGUMENT "offset". */
enum octet_status oct_parameter_range(const struct oct_parameter *parameter, uint64_t offset,
                                      uint64_t size, size_t *first, size_t *count,
                                      struct octet_error *err) OCTET_MUST_CHECK;

#endif
