/* What reading and writing safetensors have in common: names of types, sizes, order, errors. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "safetensors_private.h"

/* The format's names; S4 has none and is written as I8. */
static const struct {
    const char *name;
    enum octet_dtype dtype;
} dtypes[] = {
    {"F32", OCTET_DTYPE_F32},         {"BF16", OCTET_DTYPE_BF16},
    {"F16", OCTET_DTYPE_F16},         {"F8_E4M3", OCTET_DTYPE_F8_E4M3FN},
    {"F8_E5M2", OCTET_DTYPE_F8_E5M2}, {"F8_E8M0", OCTET_DTYPE_F8_E8M0FNU},
    {"F4", OCTET_DTYPE_F4_E2M1FN},    {"I8", OCTET_DTYPE_S8},
    {"I32", OCTET_DTYPE_S32},         {"I64", OCTET_DTYPE_S64},
    {"U8", OCTET_DTYPE_U8},           {"BOOL", OCTET_DTYPE_BOOL},
};

const char *oct_safetensors_dtype_name(enum octet_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return dtype == OCTET_DTYPE_S4 ? "I8" : NULL;
}

enum octet_dtype oct_safetensors_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return OCTET_DTYPE_UNSPECIFIED;
}

int64_t oct_safetensors_bytes(const struct octet_array *array)
{
    int64_t bytes = octet_array_bytes(array);

    if (array->dtype != OCTET_DTYPE_F4_E2M1FN || bytes == INT64_MAX)
        return bytes;
    return bytes % 2 ? -1 : bytes / 2;
}

size_t oct_safetensors_utf8(const uint8_t *at, const uint8_t *end)
{
    static const struct {
        uint8_t lead_first, lead_last, second_first, second_last, length;
    } forms[] = {
        {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; at < end && i < sizeof forms / sizeof *forms; i++) {
        if (*at < forms[i].lead_first || *at > forms[i].lead_last)
            continue;
        size_t length = forms[i].length;
        if ((size_t)(end - at) < length)
            return 0;
        if (length > 1 && (at[1] < forms[i].second_first || at[1] > forms[i].second_last))
            return 0;
        for (size_t k = 2; k < length; k++)
            if ((at[k] & 0xc0) != 0x80)
                return 0;
        return length;
    }
    return 0;
}

enum octet_status oct_safetensors_fail(struct octet_error *err, const char *name, const char *part,
                                       const char *format, ...)
{
    enum { NAME_BYTES_MAX = 200 };
    char text[512], field[NAME_BYTES_MAX + 50];
    const uint8_t *begin = (const uint8_t *)name, *at = begin, *end = begin + strlen(name);
    size_t length;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    while ((length = oct_safetensors_utf8(at, end)) && at + length - begin <= NAME_BYTES_MAX)
        at += length;
    snprintf(field, sizeof field, "tensors[%.*s%s]%s%s", (int)(at - begin), name,
             at < end ? "..." : "", part[0] ? "." : "", part);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "%s", text);
}

int oct_safetensors_by_name(const void *a, const void *b)
{
    const struct octet_named_array *x = a, *y = b;

    return strcmp(x->name, y->name);
}

int oct_safetensors_by_key(const void *a, const void *b)
{
    const struct octet_pair *x = a, *y = b;

    return strcmp(x->key, y->key);
}
