/* See numbers.h. */
#include "numbers.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "octet/array.h"
#include "octet/nearest.h"

bool number_parse(const char *text, size_t length, int64_t min, int64_t max, int64_t *out)
{
    char digits[24], *end;
    size_t sign = length > 0 && text[0] == '-';

    if (length == sign || length >= sizeof digits || !isdigit((unsigned char)text[sign]))
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    errno = 0;
    *out = strtoll(digits, &end, 10);
    return !*end && !errno && *out >= min && *out <= max;
}

enum octet_status axes_parse(octet_arena *arena, const char *option, const char *text, int32_t rank,
                             size_t *count, int32_t **out, struct octet_error *err)
{
    int64_t axis;

    *count = 0;
    *out = OCTET_NEW_ARRAY(arena, OCTET_ARRAY_RANK_MAX, int32_t);
    if (!*out)
        return octet_arena_exhausted(arena, err);
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (!number_parse(at, length, -rank, rank - 1, &axis) || *count == OCTET_ARRAY_RANK_MAX)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --%s: '%.*s' is none of the array's %d axes, 0 to %d", option,
                              length < 40 ? (int)length : 40, at, rank, rank - 1);
        axis += axis < 0 ? rank : 0;
        for (size_t i = 0; i < *count; i++)
            if ((*out)[i] == axis)
                return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                                  "option --%s: axis %d is given twice", option, (*out)[i]);
        (*out)[(*count)++] = (int32_t)axis;
    }
    return OCTET_OK;
}

static const char *dtype_name(const void *user, size_t i)
{
    (void)user;
    return octet_dtype_name((enum octet_dtype)(i + 1));
}

enum octet_status dtype_parse(const char *option, const char *text, Octet__V1__DataType *out,
                              struct octet_error *err)
{
    static const struct {
        const char *name;
        enum octet_dtype dtype;
    } short_names[] = {
        {"f32", OCTET_DTYPE_F32}, {"bf16", OCTET_DTYPE_BF16}, {"f16", OCTET_DTYPE_F16}};
    enum octet_dtype dtype = text ? octet_dtype_find(text) : OCTET_DTYPE_UNSPECIFIED;

    for (size_t i = 0; text && i < sizeof short_names / sizeof *short_names; i++)
        if (strcmp(text, short_names[i].name) == 0)
            dtype = short_names[i].dtype;
    *out = (Octet__V1__DataType)dtype;
    if (!text || dtype != OCTET_DTYPE_UNSPECIFIED)
        return OCTET_OK;
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, NULL,
        "option --%s: there is no type '%.60s'; the nearest is '%s'", option, text,
        dtype_name(NULL, octet_nearest(text, OCTET_DTYPE_COUNT - 1, dtype_name, NULL)));
}

void json_text(struct output *out, const char *text)
{
    output_text(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\')
            output_printf(out, "\\u%04x", c);
        else
            output_write(out, text, 1);
    }
    output_text(out, "\"");
}

void json_number(struct output *out, double value)
{
    if (isnan(value))
        output_text(out, "\"NaN\"");
    else if (isinf(value))
        output_text(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        output_printf(out, "%.9g", value);
}

void json_member(struct output *out, const char *name, double value)
{
    output_printf(out, "  \"%s\": ", name);
    json_number(out, value);
    output_text(out, ",\n");
}
