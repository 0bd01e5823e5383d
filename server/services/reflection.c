/* See reflection.h. Field numbers below are those of protobuf's descriptor.proto. */
#include "services/reflection.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const uint8_t octetd_descriptor_set[], octetd_descriptor_set_end[];

enum symbol_kind { SYMBOL_OTHER, SYMBOL_MESSAGE, SYMBOL_SERVICE };

struct symbol {
    char *name; /* "octet.v1.Octet.Trace" */
    int file;
    enum symbol_kind kind;
};

struct reflection {
    struct reflection_file files[REFLECTION_FILES_MAX];
    size_t file_count;
    struct symbol *symbols; /* as found; sorted is the same list by name */
    size_t count, capacity;
    struct symbol *sorted;
};

/* ---- Wire format ---- */

struct bytes {
    const uint8_t *at, *end;
};

static uint64_t varint(struct bytes *in)
{
    uint64_t value = 0;

    for (unsigned shift = 0; in->at < in->end && shift < 64; shift += 7) {
        uint8_t byte = *in->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            break;
    }
    return value;
}

/* The next field that is text, bytes or a message; others are skipped. Returns its number, 0 at the
 * end. */
static unsigned next_field(struct bytes *in, struct bytes *value)
{
    static const size_t fixed_bytes[8] = {[1] = 8, [5] = 4};

    while (in->at < in->end) {
        uint64_t tag = varint(in);
        unsigned type = tag & 7;
        size_t left, length;

        if (type == 0) {
            varint(in);
            continue;
        }
        length = type == 2 ? (size_t)varint(in) : fixed_bytes[type];
        left = (size_t)(in->end - in->at);
        if (length == 0 && type != 2)
            return 0; /* groups: not in descriptors */
        if (length > left)
            length = left;
        *value = (struct bytes){in->at, in->at + length};
        in->at += length;
        if (type == 2)
            return (unsigned)(tag >> 3);
    }
    return 0;
}

/* The text of the first field `number`; empty when there is none. */
static struct bytes text_field(struct bytes message, unsigned number)
{
    struct bytes value;

    for (unsigned field; (field = next_field(&message, &value)) != 0;)
        if (field == number)
            return value;
    return (struct bytes){NULL, NULL};
}

/* ---- The index ---- */

static bool add_symbol(struct reflection *r, const char *name, int file, enum symbol_kind kind)
{
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? r->capacity * 2 : 256;
        struct symbol *symbols = realloc(r->symbols, capacity * sizeof *symbols);
        if (!symbols)
            return false;
        r->symbols = symbols;
        r->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return false;
    r->symbols[r->count++] = (struct symbol){.name = copy, .file = file, .kind = kind};
    return true;
}

/* What a descriptor holds that has a name of its own: field number -> kind, and whether to look
 * inside. */
struct part {
    unsigned field;
    enum symbol_kind kind;
    const struct part *parts; /* of what is inside; NULL: nothing */
};

/* An enum's values are siblings of the enum by protobuf's rules, but clients ask for them under
 * either name; both are put in. */
static const struct part enum_parts[] = {{2, SYMBOL_OTHER, NULL}, {0}};
static const struct part service_parts[] = {{2, SYMBOL_OTHER, NULL}, {0}};
static const struct part message_parts[] = {
    {2, SYMBOL_OTHER, NULL},            /* field */
    {3, SYMBOL_MESSAGE, message_parts}, /* nested_type */
    {4, SYMBOL_OTHER, enum_parts},      /* enum_type */
    {8, SYMBOL_OTHER, NULL},            /* oneof_decl */
    {0},
};
static const struct part file_parts[] = {
    {4, SYMBOL_MESSAGE, message_parts},
    {5, SYMBOL_OTHER, enum_parts},
    {6, SYMBOL_SERVICE, service_parts},
    {7, SYMBOL_OTHER, NULL}, /* extension */
    {0},
};

static const struct part *part_of(const struct part *parts, unsigned field)
{
    for (; parts->field; parts++)
        if (parts->field == field)
            return parts;
    return NULL;
}

/* Adds the names in `message`, whose own full name is `scope`. Depth: as deep as our own files
 * nest. */
static bool add_names(struct reflection *r, struct bytes message, const struct part *parts,
                      const char *scope, int file)
{
    struct bytes value;
    char name[512];

    for (unsigned field; (field = next_field(&message, &value)) != 0;) {
        const struct part *part = part_of(parts, field);
        if (!part)
            continue;
        struct bytes own = text_field(value, 1);
        snprintf(name, sizeof name, "%s%s%.*s", scope, scope[0] ? "." : "", (int)(own.end - own.at),
                 (const char *)own.at);
        if (!add_symbol(r, name, file, part->kind))
            return false;
        if (part->parts && !add_names(r, value, part->parts, name, file))
            return false;
        if (part->parts == enum_parts && !add_names(r, value, enum_parts, scope, file))
            return false;
    }
    return true;
}

static bool add_file(struct reflection *r, struct bytes file)
{
    struct bytes name = text_field(file, 1), package = text_field(file, 2);
    char scope[256];
    int index = (int)r->file_count;

    if (r->file_count == REFLECTION_FILES_MAX)
        return false;
    r->files[r->file_count++] = (struct reflection_file){
        .bytes = file.at,
        .length = (size_t)(file.end - file.at),
        .name = (const char *)name.at,
        .name_length = (size_t)(name.end - name.at),
    };
    snprintf(scope, sizeof scope, "%.*s", (int)(package.end - package.at),
             (const char *)package.at);
    return add_names(r, file, file_parts, scope, index);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

enum octet_status reflection_create(struct reflection **out, struct octet_error *err)
{
    struct bytes set = {octetd_descriptor_set, octetd_descriptor_set_end}, file;
    struct reflection *r = calloc(1, sizeof *r);

    if (!r)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    for (unsigned field; (field = next_field(&set, &file)) != 0;)
        if (field == 1 && !add_file(r, file))
            goto failed;
    r->sorted = malloc((r->count + 1) * sizeof *r->sorted);
    if (!r->sorted)
        goto failed;
    memcpy(r->sorted, r->symbols, r->count * sizeof *r->sorted);
    qsort(r->sorted, r->count, sizeof *r->sorted, by_name);
    *out = r;
    return OCTET_OK;

failed:
    reflection_free(r);
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "no memory for the index of descriptors, or more than %d files",
                      REFLECTION_FILES_MAX);
}

void reflection_free(struct reflection *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        free(r->symbols[i].name);
    free(r->symbols);
    free(r->sorted);
    free(r);
}

/* ---- Questions ---- */

static int file_named(const struct reflection *r, const char *name, size_t length)
{
    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].name_length == length && memcmp(r->files[i].name, name, length) == 0)
            return (int)i;
    return -1;
}

int reflection_file_named(const struct reflection *r, const char *name)
{
    return file_named(r, name, strlen(name));
}

static const struct symbol *symbol_find(const struct reflection *r, const char *name)
{
    /* Some clients write a full name with a leading dot, as descriptors do. */
    struct symbol key = {.name = (char *)(uintptr_t)(name[0] == '.' ? name + 1 : name)};

    return bsearch(&key, r->sorted, r->count, sizeof *r->sorted, by_name);
}

int reflection_file_with(const struct reflection *r, const char *name)
{
    const struct symbol *symbol = symbol_find(r, name);

    return symbol ? symbol->file : -1;
}

int reflection_is_message(const struct reflection *r, const char *name)
{
    const struct symbol *symbol = symbol_find(r, name);

    return symbol && symbol->kind == SYMBOL_MESSAGE;
}

const struct reflection_file *reflection_file(const struct reflection *r, int index)
{
    return &r->files[index];
}

size_t reflection_closure(const struct reflection *r, int index, int out[REFLECTION_FILES_MAX])
{
    size_t count = 0;
    bool taken[REFLECTION_FILES_MAX] = {false};

    out[count++] = index;
    taken[index] = true;
    for (size_t i = 0; i < count; i++) {
        const struct reflection_file *file = &r->files[out[i]];
        struct bytes in = {file->bytes, file->bytes + file->length}, value;
        for (unsigned field; (field = next_field(&in, &value)) != 0;) {
            if (field != 3) /* dependency */
                continue;
            int import = file_named(r, (const char *)value.at, (size_t)(value.end - value.at));
            if (import >= 0 && !taken[import]) {
                out[count++] = import;
                taken[import] = true;
            }
        }
    }
    return count;
}

const char *reflection_service(const struct reflection *r, size_t index)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->symbols[i].kind == SYMBOL_SERVICE && index-- == 0)
            return r->symbols[i].name;
    return NULL;
}
