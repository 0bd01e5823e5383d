/* See cache.h. */
#include "backends/cache.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct head {
    char magic[8];
    uint64_t bytes;
    uint64_t hash[2]; /* XXH3 of what follows */
};
static const char magic[8] = "octetbin";
enum { PATH_BYTES = 4096 };
static const size_t binary_bytes_max = (size_t)256 << 20;

struct oct_program_key oct_program_key(const char *driver, const char *directory,
                                       const char *const *parts, size_t count)
{
    struct oct_program_key key = {.directory = directory && directory[0] ? directory : NULL};
    XXH3_state_t *state = XXH3_createState();

    if (!state || XXH3_128bits_reset(state) != XXH_OK)
        key.directory = NULL;
    for (size_t i = 0; i < count && key.directory; i++) /* with their ends */
        XXH3_128bits_update(state, parts[i], strlen(parts[i]) + 1);
    if (key.directory) {
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        snprintf(key.name, sizeof key.name, "%.31s-%016" PRIx64 "%016" PRIx64 ".bin", driver,
                 (uint64_t)hash.high64, (uint64_t)hash.low64);
    }
    XXH3_freeState(state);
    return key;
}

static bool matches(const struct head *head, const unsigned char *binary)
{
    XXH128_hash_t hash = XXH3_128bits(binary, (size_t)head->bytes);

    return hash.low64 == head->hash[0] && hash.high64 == head->hash[1];
}

unsigned char *oct_program_read(const struct oct_program_key *key, size_t *bytes)
{
    char path[PATH_BYTES];
    unsigned char *binary = NULL;
    struct head head;

    if (!key->directory ||
        (size_t)snprintf(path, sizeof path, "%s/%s", key->directory, key->name) >= sizeof path)
        return NULL;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return NULL;
    if (fread(&head, sizeof head, 1, file) == 1 && memcmp(head.magic, magic, sizeof magic) == 0 &&
        head.bytes > 0 && head.bytes <= binary_bytes_max)
        binary = malloc((size_t)head.bytes);
    if (binary && (fread(binary, (size_t)head.bytes, 1, file) != 1 || fgetc(file) != EOF ||
                   !matches(&head, binary))) {
        free(binary);
        binary = NULL;
    }
    fclose(file);
    if (binary)
        *bytes = (size_t)head.bytes;
    return binary;
}

void oct_program_write(const struct oct_program_key *key, const unsigned char *binary, size_t bytes)
{
    char path[PATH_BYTES], beside[PATH_BYTES];
    XXH128_hash_t hash = XXH3_128bits(binary, bytes);
    struct head head = {.bytes = bytes, .hash = {hash.low64, hash.high64}};

    if (!key->directory ||
        (size_t)snprintf(path, sizeof path, "%s/%s", key->directory, key->name) >= sizeof path ||
        (size_t)snprintf(beside, sizeof beside, "%s/%s.XXXXXX", key->directory, key->name) >=
            sizeof beside)
        return;
    memcpy(head.magic, magic, sizeof magic);
    int handle = mkstemp(beside);
    FILE *file = handle < 0 ? NULL : fdopen(handle, "wb");
    if (!file) {
        if (handle >= 0)
            close(handle);
        return;
    }
    bool is_whole = fwrite(&head, sizeof head, 1, file) == 1 && fwrite(binary, bytes, 1, file) == 1;
    is_whole = fclose(file) == 0 && is_whole;
    if (!is_whole || rename(beside, path) != 0)
        unlink(beside);
}
