/* One digest over a set of parameters.
 *
 * Decision: the bytes are hashed in pieces of a fixed size, and the digest is the hash of what
 * describes the parameters and of the pieces' hashes: threads share the work and the result does
 * not depend on them. Bytes are taken as they lie, each layer's slice after the other. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "exec/parameters_private.h"

enum { PIECE_BYTES = 1 << 20 };

struct hashing {
    const octet_parameters *parameters;
    size_t *first_piece; /* [count + 1] */
    XXH128_canonical_t *hashes;
};

static void hash_piece(const octet_parameters *parameters, size_t i, size_t piece,
                       XXH128_canonical_t *out)
{
    const struct oct_parameter *p = &parameters->entries[i];
    size_t bytes = oct_parameters_elements(parameters, i) * p->element_bytes;
    size_t begin = piece * PIECE_BYTES;
    size_t size = bytes - begin < PIECE_BYTES ? bytes - begin : PIECE_BYTES;

    XXH128_canonicalFromHash(
        out, XXH3_128bits((const char *)oct_parameters_data(parameters, i) + begin, size));
}

static size_t pieces_of(const octet_parameters *parameters, size_t i)
{
    size_t bytes = oct_parameters_elements(parameters, i) * parameters->entries[i].element_bytes;

    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

static void hash_item(void *user, size_t item, size_t thread)
{
    const struct hashing *h = user;
    size_t low = 0, high = h->parameters->count;

    (void)thread;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(h->first_piece[middle] <= item ? &low : &high) = middle;
    }
    hash_piece(h->parameters, low, item - h->first_piece[low], &h->hashes[item]);
}

/* "name [dims] dtype": what the bytes are of. */
static void describe(XXH3_state_t *state, const octet_parameters *parameters, size_t i)
{
    const char *name;
    struct octet_array array;
    char shape[256];

    octet_parameters_describe(parameters, i, &name, &array);
    XXH3_128bits_update(state, name, strlen(name) + 1);
    octet_array_shape_text(&array, shape, sizeof shape);
    XXH3_128bits_update(state, shape, strlen(shape) + 1);
    const char *dtype = octet_dtype_name(array.dtype);
    XXH3_128bits_update(state, dtype, strlen(dtype) + 1);
}

/* hashes NULL: there was no memory to keep them, and each is made here. */
static void combine(const octet_parameters *parameters, const XXH128_canonical_t *hashes,
                    char digest[33])
{
    _Alignas(64) XXH3_state_t state;
    XXH128_canonical_t hash;
    size_t piece = 0;

    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < parameters->count; i++) {
        describe(&state, parameters, i);
        for (size_t k = 0; k < pieces_of(parameters, i); k++, piece++) {
            if (!hashes)
                hash_piece(parameters, i, k, &hash);
            XXH3_128bits_update(&state, hashes ? &hashes[piece] : &hash, sizeof hash);
        }
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&state));
    for (size_t k = 0; k < sizeof hash.digest; k++)
        snprintf(digest + 2 * k, 3, "%02x", hash.digest[k]);
}

void oct_parameters_digest(const octet_parameters *parameters, struct oct_pool *pool,
                           char digest[33])
{
    struct hashing h = {parameters, calloc(parameters->count + 1, sizeof *h.first_piece), NULL};

    if (h.first_piece) {
        for (size_t i = 0; i < parameters->count; i++)
            h.first_piece[i + 1] = h.first_piece[i] + pieces_of(parameters, i);
        size_t count = h.first_piece[parameters->count];
        h.hashes = calloc(count ? count : 1, sizeof *h.hashes);
        if (h.hashes && oct_pool_run(pool, count, NULL, hash_item, &h, NULL) != OCTET_OK)
            *digest = '\0'; /* cannot be: nothing cancels it */
    }
    combine(parameters, h.hashes, digest);
    free(h.hashes);
    free(h.first_piece);
}

void octet_parameters_digest(const octet_parameters *parameters, char digest[33])
{
    oct_parameters_digest(parameters, NULL, digest);
}
