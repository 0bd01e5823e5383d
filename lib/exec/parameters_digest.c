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

struct hashing {
    const octet_parameters *parameters;
    XXH128_canonical_t *hashes; /* [pieces] */
};

static void hash_piece(const octet_parameters *parameters, size_t item, XXH128_canonical_t *out)
{
    struct oct_piece piece = oct_parameters_piece(parameters, item);
    size_t width = parameters->entries[piece.parameter].element_bytes;
    const char *data = oct_parameters_data(parameters, piece.parameter);

    XXH128_canonicalFromHash(out, XXH3_128bits(data + piece.begin * width, piece.count * width));
}

static void hash_item(void *user, size_t item, size_t thread)
{
    const struct hashing *h = user;

    (void)thread;
    hash_piece(h->parameters, item, &h->hashes[item]);
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

    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < parameters->count; i++)
        describe(&state, parameters, i);
    for (size_t item = 0; item < parameters->pieces; item++) {
        if (!hashes)
            hash_piece(parameters, item, &hash);
        XXH3_128bits_update(&state, hashes ? &hashes[item] : &hash, sizeof hash);
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&state));
    for (size_t k = 0; k < sizeof hash.digest; k++)
        snprintf(digest + 2 * k, 3, "%02x", hash.digest[k]);
}

void oct_parameters_digest(const octet_parameters *parameters, struct oct_pool *pool,
                           char digest[33])
{
    size_t count = parameters->pieces ? parameters->pieces : 1;
    struct hashing h = {parameters, calloc(count, sizeof *h.hashes)};

    if (h.hashes && oct_pool_run(pool, parameters->pieces, NULL, hash_item, &h, NULL) != OCTET_OK)
        *digest = '\0'; /* cannot be: nothing cancels it */
    combine(parameters, h.hashes, digest);
    free(h.hashes);
}

void octet_parameters_digest(const octet_parameters *parameters, char digest[33])
{
    oct_parameters_digest(parameters, NULL, digest);
}
