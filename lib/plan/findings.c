/* The list of findings; see findings.h. */
#include "plan/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void oct_find(struct oct_findings *f, enum octet_severity severity, const char *id,
              const char *subject, const char *remedy, const char *format, ...)
{
    char text[2048];
    va_list arguments;

    if (f->status != OCTET_OK)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        struct octet_finding *larger = OCTET_NEW_ARRAY(f->arena, capacity, struct octet_finding);
        if (larger && f->count)
            memcpy(larger, f->items, f->count * sizeof *larger);
        if (larger) {
            f->items = larger;
            f->capacity = capacity;
        }
    }
    struct octet_finding finding = {severity, id,
                                    octet_arena_copy(f->arena, subject, strlen(subject)),
                                    octet_arena_copy(f->arena, text, strlen(text)),
                                    octet_arena_copy(f->arena, remedy, strlen(remedy))};
    if (f->count == f->capacity || !finding.subject || !finding.message || !finding.remedy)
        f->status = octet_arena_exhausted(f->arena, f->err);
    else
        f->items[f->count++] = finding;
}
