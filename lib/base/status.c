/* Status names and the writing of errors. */
#include "octet/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *octet_status_name(enum octet_status status)
{
    switch (status) {
#define NAME(name, number)                                                                         \
    case OCTET_##name:                                                                             \
        return #name;
        OCTET_STATUSES(NAME)
#undef NAME
    }
    return "UNKNOWN";
}

enum octet_status octet_fail(struct octet_error *err, enum octet_status status, const char *field,
                             const char *format, ...)
{
    if (err) {
        err->status = status;
        snprintf(err->field, sizeof err->field, "%s", field ? field : "");
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(err->text, sizeof err->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

enum octet_status octet_error_within(struct octet_error *err, const char *outer)
{
    char inner[sizeof err->field];

    if (!err)
        return OCTET_UNKNOWN;
    memcpy(inner, err->field, sizeof inner);
    const char *joint = inner[0] && inner[0] != '[' ? "." : "";
    int length = snprintf(err->field, sizeof err->field, "%s%s", outer, joint);
    if (length >= 0 && (size_t)length < sizeof err->field)
        snprintf(err->field + length, sizeof err->field - (size_t)length, "%s", inner);
    return err->status;
}

const char *octet_error_message(const struct octet_error *err, char *buffer, size_t size)
{
    if (err->field[0])
        snprintf(buffer, size, "field '%s': %s", err->field, err->text);
    else
        snprintf(buffer, size, "%s", err->text);
    /* What a user wrote may stand in it, and must not move a terminal's cursor or begin a line. */
    for (char *c = buffer; size && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return buffer;
}
