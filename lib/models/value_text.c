/* Values -> text as YAML prints it, in flow style.
 *
 * Decision: a text is left bare only when it is surely read back as the same text; else it stands
 * in single quotes, or, with control characters in it, in double ones. Writing runs twice, to
 * measure and to write. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "files/decimal.h"
#include "models/value.h"

struct writer {
    char *out; /* NULL while measuring */
    size_t length;
};

static void put(struct writer *w, const char *text, size_t length)
{
    if (w->out)
        memcpy(w->out + w->length, text, length);
    w->length += length;
}

static void put_text(struct writer *w, const char *text)
{
    put(w, text, strlen(text));
}

static bool is_word_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_bare(const char *text)
{
    struct oct_yaml node = {0};

    if (!is_word_character(*text) && *text != '/' && *text != '.' && *text != '<')
        return false;
    for (const char *p = text; *p; p++)
        if (!is_word_character(*p) && !strchr("-+./<>()|*^$=@;~", *p))
            return false;
    oct_yaml_resolve(text, &node);
    return node.kind == OCT_YAML_TEXT && strcasecmp(text, "none") && strcmp(text, "...") &&
           strcmp(text, "<<");
}

/* One character of UTF-8 text that is known to be well-formed. */
static uint32_t next_character(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    int more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
    uint32_t point = more ? *p & (0x3fu >> more) : *p;

    for (p++; more && (*p & 0xc0) == 0x80; more--)
        point = point << 6 | (*p++ & 0x3fu);
    *text = (const char *)p;
    return point;
}

/* What cannot stand in a YAML text as it is, or would be read as the end of a line. */
static bool needs_escape(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
           point == 0xfeff || point == 0xfffe || point == 0xffff;
}

static void put_double_quoted(struct writer *w, const char *text)
{
    put_text(w, "\"");
    while (*text) {
        const char *start = text;
        uint32_t point = next_character(&text);
        char escaped[16];
        if (needs_escape(point)) {
            snprintf(escaped, sizeof escaped, point < 0x100 ? "\\x%02X" : "\\u%04X", point);
            put_text(w, escaped);
            continue;
        }
        if (point == '"' || point == '\\')
            put_text(w, "\\");
        put(w, start, (size_t)(text - start));
    }
    put_text(w, "\"");
}

static void put_scalar(struct writer *w, const char *text)
{
    if (is_bare(text)) {
        put_text(w, text);
        return;
    }
    for (const char *p = text; *p;)
        if (needs_escape(next_character(&p))) {
            put_double_quoted(w, text);
            return;
        }
    put_text(w, "'");
    for (; *text; text++)
        put(w, *text == '\'' ? "''" : text, *text == '\'' ? 2 : 1);
    put_text(w, "'");
}

static void put_int(struct writer *w, int64_t value)
{
    char buffer[24];

    snprintf(buffer, sizeof buffer, "%" PRId64, value);
    put_text(w, buffer);
}

static void put_number(struct writer *w, double value)
{
    char buffer[OCT_DECIMAL_SIZE];

    put_text(w, oct_decimal_print(value, buffer));
}

/* Recursion is bounded by OCT_YAML_DEPTH_MAX. */
static void put_node(struct writer *w, const struct oct_yaml *node)
{
    switch (node->kind) {
    case OCT_YAML_NULL:
        put_text(w, "null");
        return;
    case OCT_YAML_BOOL:
        put_text(w, node->boolean ? "true" : "false");
        return;
    case OCT_YAML_INT:
        if (node->too_large)
            put_text(w, node->text);
        else
            put_int(w, node->integer);
        return;
    case OCT_YAML_FLOAT:
        put_number(w, node->number);
        return;
    case OCT_YAML_TEXT:
        put_scalar(w, node->text);
        return;
    case OCT_YAML_LIST:
    case OCT_YAML_MAP:
        break;
    }
    put_text(w, node->kind == OCT_YAML_LIST ? "[" : "{");
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        if (node->kind == OCT_YAML_MAP) {
            put_scalar(w, item->key);
            put_text(w, ": ");
        }
        put_node(w, item);
        put_text(w, item->next ? ", " : "");
    }
    put_text(w, node->kind == OCT_YAML_LIST ? "]" : "}");
}

const char *oct_yaml_flow(octet_arena *arena, const struct oct_yaml *node)
{
    struct writer w = {0};

    if (node->kind == OCT_YAML_TEXT)
        return node->text;
    put_node(&w, node);
    w.out = octet_arena_alloc(arena, w.length + 1);
    w.length = 0;
    if (w.out)
        put_node(&w, node);
    return w.out;
}

static void put_value(struct writer *w, enum oct_key key, const struct oct_value *value)
{
    switch ((enum oct_kind)oct_keys[key].kind) {
    case OCT_KIND_BOOL:
        put_text(w, value->as.boolean ? "true" : "false");
        return;
    case OCT_KIND_INT:
        put_int(w, value->as.integer);
        return;
    case OCT_KIND_FLOAT:
        put_number(w, value->as.number);
        return;
    case OCT_KIND_TEXT:
        put_scalar(w, value->as.text);
        return;
    case OCT_KIND_MAP:
    case OCT_KIND_ANY:
        if (value->raw == OCT_YAML_TEXT)
            put_scalar(w, value->as.text);
        else
            put_text(w, value->as.text);
        return;
    case OCT_KIND_LIST:
    case OCT_KIND_INTS:
        break;
    }
    put_text(w, "[");
    for (uint32_t i = 0; i < value->count; i++) {
        put_text(w, i ? ", " : "");
        if (oct_keys[key].kind == OCT_KIND_LIST)
            put_scalar(w, value->as.texts[i]);
        else
            put_int(w, value->as.integers[i]);
    }
    put_text(w, "]");
}

const char *oct_value_text(octet_arena *arena, enum oct_key key, const struct oct_value *value)
{
    struct writer w = {0};

    if (value->is_null)
        return "null";
    put_value(&w, key, value);
    w.out = octet_arena_alloc(arena, w.length + 1);
    w.length = 0;
    if (w.out)
        put_value(&w, key, value);
    return w.out;
}
