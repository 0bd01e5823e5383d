/* Fuzz target of the safetensors reader: any bytes as a file.
 *
 * Holds: reading fails only with the two statuses it promises, a known field and a sentence; what
 * is accepted has every name once and in order, shapes whose bytes can all be read, and together
 * they fill the data; memory stays within a small multiple of the file's size. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

static void check_error(const struct octet_error *err)
{
    require(err->status == OCTET_INVALID_ARGUMENT, "a file costs a small multiple of its size");
    require(err->text[0] != '\0', "an error says something");
    require(strcmp(err->field, "header") == 0 || strcmp(err->field, "metadata") == 0 ||
                strncmp(err->field, "tensors[", 8) == 0,
            "an error names the header, the metadata or a tensor");
}

/* Bytes in the file; reads them all. */
static size_t check_array(const struct octet_array *array)
{
    int64_t bytes = octet_array_bytes(array);
    const uint8_t *data = array->data;
    unsigned sum = 0;

    require(array->dtype != OCTET_DTYPE_UNSPECIFIED, "a type is known");
    require(array->rank >= 0 && array->rank <= OCTET_ARRAY_RANK_MAX, "a rank is in its range");
    require(bytes >= 0 && bytes < INT64_MAX, "an array's size is a number");
    require((uintptr_t)data % octet_dtype_bytes(array->dtype) == 0, "an array is aligned");
    for (int64_t i = 0; i < bytes; i++)
        sum |= data[i];
    if (array->dtype != OCTET_DTYPE_F4_E2M1FN)
        return (size_t)bytes;
    require(sum < 16, "four bits are four bits");
    return (size_t)bytes / 2;
}

static void check_file(const octet_safetensors *file, size_t size)
{
    size_t total = 8, count = octet_safetensors_count(file);
    const struct octet_pair *pairs;
    const char *before = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct octet_named_array *named = octet_safetensors_get(file, i);
        require(!before || strcmp(before, named->name) < 0, "names are in order, each once");
        require(octet_safetensors_find(file, named->name) == named, "an array is found");
        before = named->name;
        total += check_array(&named->array);
    }
    require(total <= size, "arrays are no larger than the file");
    count = octet_safetensors_metadata(file, &pairs);
    for (size_t i = 1; i < count; i++)
        require(strcmp(pairs[i - 1].key, pairs[i].key) < 0, "keys are in order, each once");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const octet_safetensors *file = NULL;
    struct octet_error err = {0};
    octet_arena *arena = octet_arena_create(64 * 1024 + 8 * size);

    require(arena != NULL, "there is memory for an arena");
    if (octet_safetensors_parse(arena, bytes, size, &file, &err))
        check_error(&err);
    else
        check_file(file, size);
    octet_arena_destroy(arena);
    return 0;
}
