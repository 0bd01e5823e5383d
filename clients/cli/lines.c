/* Lists of Qwix's lines; see lines.h. */
#include "lines.h"

#include <stdlib.h>
#include <string.h>

#include "view.h"

void lines_start(struct line_list *list, octet_arena *arena)
{
    *list = (struct line_list){.arena = arena};
}

/* FNV-1a over module, a NUL and op. */
static uint64_t hash_of(const char *module, size_t module_length, const char *op, size_t op_length)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < module_length; i++)
        hash = (hash ^ (unsigned char)module[i]) * 0x100000001b3u;
    hash *= 0x100000001b3u;
    for (size_t i = 0; i < op_length; i++)
        hash = (hash ^ (unsigned char)op[i]) * 0x100000001b3u;
    return hash;
}

static bool text_equals(const char *text, const char *other, size_t length)
{
    return strncmp(text, other, length) == 0 && text[length] == '\0';
}

/* The slot of this line, or the free one where it would go. slot_count is a power of two and never
 * full. */
static size_t *slot_of(const struct line_list *list, const char *module, size_t module_length,
                       const char *op, size_t op_length)
{
    size_t mask = list->slot_count - 1;
    size_t at = (size_t)hash_of(module, module_length, op, op_length) & mask;

    for (; list->slots[at]; at = (at + 1) & mask) {
        const struct line *line = &list->items[list->slots[at] - 1];
        if (text_equals(line->module, module, module_length) &&
            text_equals(line->op, op, op_length))
            break;
    }
    return &list->slots[at];
}

/* Room for twice as many lines; the arena keeps the old tables, which together are smaller than the
 * new. */
static bool grow(struct line_list *list)
{
    size_t room = list->room ? 2 * list->room : 256;
    struct line *items = OCTET_NEW_ARRAY(list->arena, room, struct line);
    size_t *slots = OCTET_NEW_ARRAY(list->arena, 2 * room, size_t);

    if (!items || !slots)
        return false;
    if (list->count)
        memcpy(items, list->items, list->count * sizeof *items);
    list->items = items;
    list->room = room;
    list->slots = slots;
    list->slot_count = 2 * room;
    for (size_t i = 0; i < list->count; i++)
        *slot_of(list, items[i].module, strlen(items[i].module), items[i].op, strlen(items[i].op)) =
            i + 1;
    return true;
}

bool lines_add(struct line_list *list, const char *module, size_t module_length, const char *op,
               size_t op_length, int rule)
{
    if (list->count == list->room && !grow(list))
        return false;
    size_t *slot = slot_of(list, module, module_length, op, op_length);
    if (*slot) {
        struct line *line = &list->items[*slot - 1];
        list->repeated++;
        if (line->rule != rule && !line->torn) {
            line->torn = true;
            line->other_rule = rule;
        }
        return true;
    }
    struct line line = {.module = octet_arena_copy(list->arena, module, module_length),
                        .op = octet_arena_copy(list->arena, op, op_length),
                        .rule = rule};
    if (!line.module || !line.op)
        return false;
    list->items[list->count++] = line;
    *slot = list->count;
    return true;
}

const struct line *lines_find(const struct line_list *list, const char *module, const char *op)
{
    if (!list->slot_count)
        return NULL;
    size_t index = *slot_of(list, module, strlen(module), op, strlen(op));
    return index ? &list->items[index - 1] : NULL;
}

/* "None" or a number that ends where the word ends. */
static bool read_rule(const char *text, const char *end, int *rule)
{
    long value = 0;
    const char *at = text;

    if (end - text >= 4 && memcmp(text, "None", 4) == 0) {
        *rule = -1;
        return true;
    }
    for (; at < end && *at >= '0' && *at <= '9' && value < 1000000; at++)
        value = 10 * value + (*at - '0');
    *rule = (int)value;
    return at > text;
}

enum line_found lines_read(struct line_list *list, const char *text, size_t length)
{
    static const char before_module[] = "[QWIX] module='",
                      before_op[] = "' op=", before_rule[] = " rule=";
    const char *end = text + length;
    const char *module = memmem(text, length, before_module, sizeof before_module - 1);
    int rule;

    if (!module)
        return LINE_NONE;
    module += sizeof before_module - 1;
    const char *module_end =
        memmem(module, (size_t)(end - module), before_op, sizeof before_op - 1);
    if (!module_end)
        return LINE_NONE;
    const char *op = module_end + sizeof before_op - 1;
    const char *op_end = memmem(op, (size_t)(end - op), before_rule, sizeof before_rule - 1);
    if (!op_end || !read_rule(op_end + sizeof before_rule - 1, end, &rule))
        return LINE_NONE;
    return lines_add(list, module, (size_t)(module_end - module), op, (size_t)(op_end - op), rule)
               ? LINE_ADDED
               : LINE_NO_MEMORY;
}

bool lines_take_trace(struct line_list *list, const Octet__V1__Trace *trace, bool gmm)
{
    for (size_t i = 0; i < trace->n_interceptions; i++) {
        const Octet__V1__Interception *from = trace->interceptions[i];
        if (!(gmm ? view_is_line(from) : from->logged))
            continue;
        if (!lines_add(list, from->module, strlen(from->module), from->op, strlen(from->op),
                       from->rule))
            return false;
    }
    return true;
}

static void note(struct line_comparison *out, enum line_difference_kind kind,
                 const struct line *expected, const struct line *found)
{
    struct line_difference d = {.kind = kind, .expected = expected, .found = found};

    if (kind == LINE_CHANGED)
        d.found_rule = found->rule != expected->rule ? found->rule : found->other_rule;
    out->items[out->count++] = d;
}

bool lines_compare(octet_arena *arena, const struct line_list *expected,
                   const struct line_list *found, struct line_comparison *out)
{
    size_t last = 0;

    *out = (struct line_comparison){
        .items = OCTET_NEW_ARRAY(arena, expected->count + found->count, struct line_difference)};
    if (!out->items)
        return false;
    for (size_t i = 0; i < expected->count; i++) {
        const struct line *line = &expected->items[i];
        const struct line *other = lines_find(found, line->module, line->op);
        if (!other) {
            out->missing++;
            note(out, LINE_MISSING, line, NULL);
        } else if (other->rule != line->rule || other->torn) {
            out->changed++;
            note(out, LINE_CHANGED, line, other);
        } else {
            out->same++;
        }
        size_t place = other ? (size_t)(other - found->items) : last;
        if (other && place < last && !out->out_of_order)
            out->out_of_order = line;
        last = place;
    }
    for (size_t i = 0; i < found->count; i++)
        if (!lines_find(expected, found->items[i].module, found->items[i].op)) {
            out->extra++;
            note(out, LINE_EXTRA, NULL, &found->items[i]);
        }
    return true;
}

const char *line_text(octet_arena *arena, const struct line *line, int rule)
{
    const struct octet_interception from = {.module = line->module, .op = line->op, .rule = rule};
    char buffer[4096];

    octet_interception_line(&from, buffer, sizeof buffer);
    return octet_arena_copy(arena, buffer, strlen(buffer));
}
