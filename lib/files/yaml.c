/* libyaml's events -> a tree, without recursion: the open lists and maps are a stack of fixed
 * depth. */
#include "files/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
    const char *name;
    struct oct_yaml node; /* its value, once closed */
    size_t size;          /* nodes in it, aliases counted in full */
    bool open;
};

struct frame {
    struct oct_yaml *node;
    const struct oct_yaml **tail; /* where the next item is linked */
    const char *key;              /* map: the key that waits for its value */
    bool merge;                   /* map: that key is a plain "<<" */
    bool has_merge;               /* map: some key was */
    struct anchor *anchor;        /* NULL when it has none */
    size_t size_before;
};

struct reader {
    yaml_parser_t parser;
    octet_arena *arena;
    struct octet_error *err;
    struct frame stack[OCT_YAML_DEPTH_MAX];
    int depth;
    struct anchor *anchors;
    size_t anchor_count;
    size_t size; /* nodes so far, aliases counted in full */
    const struct oct_yaml *root;
};

static enum octet_status refuse(struct reader *r, const yaml_mark_t *mark, const char *what,
                                const char *name)
{
    return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "line %zu: %s%s%.100s%s",
                      mark->line + 1, what, name ? " '" : "", name ? name : "", name ? "'" : "");
}

static enum octet_status parser_error(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;

    if (p->error == YAML_MEMORY_ERROR)
        return octet_fail(r->err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: YAML reader");
    if (p->error == YAML_READER_ERROR)
        return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "byte %zu: %s", p->problem_offset,
                          p->problem);
    return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "line %zu, column %zu: %s",
                      p->problem_mark.line + 1, p->problem_mark.column + 1,
                      p->problem ? p->problem : "not YAML");
}

static enum octet_status count_nodes(struct reader *r, size_t more, const yaml_mark_t *mark)
{
    r->size += more;
    if (r->size > OCT_YAML_NODES_MAX)
        return refuse(r, mark, "more than 32768 values (each use of an alias counts in full)",
                      NULL);
    return OCTET_OK;
}

/* A new anchor, still open; a later one of the same name hides the earlier, as in PyYAML's composer
 * when the earlier is complete. */
static enum octet_status anchor_open(struct reader *r, const yaml_char_t *name,
                                     const yaml_mark_t *mark, struct anchor **out)
{
    *out = NULL;
    if (!name)
        return OCTET_OK;
    if (r->anchor_count == OCT_YAML_ANCHORS_MAX)
        return refuse(r, mark, "more than 256 anchors", NULL);
    if (!r->anchors)
        r->anchors = OCTET_NEW_ARRAY(r->arena, OCT_YAML_ANCHORS_MAX, struct anchor);
    char *copy = octet_arena_copy(r->arena, (const char *)name, strlen((const char *)name));
    if (!r->anchors || !copy)
        return octet_arena_exhausted(r->arena, r->err);
    *out = &r->anchors[r->anchor_count++];
    (*out)->name = copy;
    (*out)->open = true;
    return OCTET_OK;
}

static void anchor_close(struct anchor *anchor, const struct oct_yaml *node, size_t size)
{
    if (!anchor)
        return;
    anchor->node = *node;
    anchor->node.key = NULL;
    anchor->node.next = NULL;
    anchor->size = size;
    anchor->open = false;
}

/* Links a finished or freshly opened node under the top of the stack. */
static enum octet_status attach(struct reader *r, struct oct_yaml *node, const yaml_mark_t *mark)
{
    if (!r->depth) {
        r->root = node;
        return OCTET_OK;
    }
    struct frame *top = &r->stack[r->depth - 1];
    if (top->node->kind == OCT_YAML_MAP) {
        if (!top->key)
            return refuse(r, mark, "a key is a list, a mapping or an alias; expected a text", NULL);
        node->key = top->key;
        top->key = NULL;
    }
    *top->tail = node;
    top->tail = &node->next;
    top->node->count++;
    return OCTET_OK;
}

static bool waits_for_key(const struct reader *r)
{
    return r->depth && r->stack[r->depth - 1].node->kind == OCT_YAML_MAP &&
           !r->stack[r->depth - 1].key;
}

static enum octet_status scalar_text(struct reader *r, const yaml_event_t *event, char **out)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;

    if (memchr(value, 0, length))
        return refuse(r, &event->start_mark, "a text holds a NUL character", NULL);
    *out = octet_arena_copy(r->arena, value, length);
    return *out ? OCTET_OK : octet_arena_exhausted(r->arena, r->err);
}

/* Tags other than "a text" could name types of Python; none is needed. */
static enum octet_status tag_check(struct reader *r, const yaml_char_t *tag,
                                   const yaml_mark_t *mark, bool *is_text)
{
    *is_text = tag && (!strcmp((const char *)tag, YAML_STR_TAG) || !strcmp((const char *)tag, "!"));
    return tag && !*is_text ? refuse(r, mark, "unsupported tag", (const char *)tag) : OCTET_OK;
}

static enum octet_status on_scalar(struct reader *r, const yaml_event_t *event)
{
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE, tagged_text;
    struct anchor *anchor;
    char *text;
    enum octet_status status =
        tag_check(r, event->data.scalar.tag, &event->start_mark, &tagged_text);

    if (!status)
        status = count_nodes(r, 1, &event->start_mark);
    if (!status)
        status = scalar_text(r, event, &text);
    if (!status)
        status = anchor_open(r, event->data.scalar.anchor, &event->start_mark, &anchor);
    if (status)
        return status;

    struct oct_yaml *node = OCTET_NEW(r->arena, struct oct_yaml);
    if (!node)
        return octet_arena_exhausted(r->arena, r->err);
    node->line = (int)event->start_mark.line + 1;
    node->quoted = !plain || tagged_text;
    node->kind = OCT_YAML_TEXT;
    node->text = text;
    if (!node->quoted)
        oct_yaml_resolve(text, node);
    anchor_close(anchor, node, 1);
    if (!waits_for_key(r))
        return attach(r, node, &event->start_mark);

    struct frame *top = &r->stack[r->depth - 1];
    top->key = text;
    top->merge = plain && !tagged_text && !strcmp(text, "<<");
    top->has_merge |= top->merge;
    return OCTET_OK;
}

static enum octet_status on_open(struct reader *r, const yaml_event_t *event)
{
    bool is_map = event->type == YAML_MAPPING_START_EVENT, tagged_text;
    const yaml_char_t *tag =
        is_map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    const yaml_char_t *name =
        is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    struct anchor *anchor;
    enum octet_status status = tag_check(r, tag, &event->start_mark, &tagged_text);

    if (!status && tagged_text)
        status = refuse(r, &event->start_mark, "a list or mapping is tagged as a text", NULL);
    if (!status && r->depth == OCT_YAML_DEPTH_MAX)
        status = refuse(r, &event->start_mark, "nested deeper than 32 levels", NULL);
    if (!status)
        status = count_nodes(r, 1, &event->start_mark);
    if (!status)
        status = anchor_open(r, name, &event->start_mark, &anchor);
    if (status)
        return status;

    struct oct_yaml *node = OCTET_NEW(r->arena, struct oct_yaml);
    if (!node)
        return octet_arena_exhausted(r->arena, r->err);
    node->kind = is_map ? OCT_YAML_MAP : OCT_YAML_LIST;
    node->line = (int)event->start_mark.line + 1;
    node->text = "";
    status = attach(r, node, &event->start_mark);
    if (status)
        return status;
    r->stack[r->depth++] = (struct frame){
        .node = node, .tail = &node->first, .anchor = anchor, .size_before = r->size - 1};
    return OCTET_OK;
}

static enum octet_status on_alias(struct reader *r, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    const struct anchor *anchor = NULL;

    for (size_t i = r->anchor_count; i-- && !anchor;)
        if (!strcmp(r->anchors[i].name, name))
            anchor = &r->anchors[i];
    if (!anchor)
        return refuse(r, &event->start_mark, "unknown alias", name);
    if (anchor->open)
        return refuse(r, &event->start_mark, "a value holds itself through alias", name);
    enum octet_status status = count_nodes(r, anchor->size, &event->start_mark);
    if (status)
        return status;
    struct oct_yaml *node = OCTET_NEW(r->arena, struct oct_yaml);
    if (!node)
        return octet_arena_exhausted(r->arena, r->err);
    *node = anchor->node;
    return attach(r, node, &event->start_mark);
}

/* An entry of a map while its keys are made unique: rank 0 is written in the map itself, the others
 * come from merge keys, smaller first. */
struct entry {
    struct oct_yaml *node;
    size_t rank;
    bool dropped;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *const *a = left, *const *b = right;
    int order = strcmp((*a)->node->key, (*b)->node->key);

    if (order)
        return order;
    return ((*a)->rank > (*b)->rank) - ((*a)->rank < (*b)->rank);
}

/* Copies the entries of a merge key's value behind those of the map itself. */
static enum octet_status merge_map(struct reader *r, const struct oct_yaml *source,
                                   struct entry *entries, size_t *count, const yaml_mark_t *mark)
{
    if (source->kind != OCT_YAML_MAP)
        return refuse(r, mark, "a merge key ('<<') takes a mapping or a list of them", NULL);
    for (const struct oct_yaml *item = source->first; item; item = item->next) {
        struct oct_yaml *copy = OCTET_NEW(r->arena, struct oct_yaml);
        if (!copy)
            return octet_arena_exhausted(r->arena, r->err);
        *copy = *item;
        entries[*count] = (struct entry){copy, *count, false};
        ++*count;
    }
    return OCTET_OK;
}

static enum octet_status merge_value(struct reader *r, const struct oct_yaml *value,
                                     struct entry *entries, size_t *count, const yaml_mark_t *mark)
{
    if (value->kind != OCT_YAML_LIST)
        return merge_map(r, value, entries, count, mark);
    enum octet_status status = OCTET_OK;
    for (const struct oct_yaml *item = value->first; item && !status; item = item->next)
        status = merge_map(r, item, entries, count, mark);
    return status;
}

static bool is_merge(const struct frame *top, const struct oct_yaml *item)
{
    /* A quoted "<<" is an ordinary key; a map that has both kinds is beyond sense and merges both.
     */
    return top->has_merge && !strcmp(item->key, "<<");
}

static size_t entries_most(const struct frame *top)
{
    size_t most = top->node->count;

    for (const struct oct_yaml *item = top->node->first; item; item = item->next) {
        if (!is_merge(top, item))
            continue;
        if (item->kind == OCT_YAML_MAP)
            most += item->count;
        for (const struct oct_yaml *map = item->kind == OCT_YAML_LIST ? item->first : NULL; map;
             map = map->next)
            most += map->count;
    }
    return most;
}

/* All entries of the map, its own first, merge keys replaced by what they bring. */
static enum octet_status entries_collect(struct reader *r, struct frame *top, struct entry *entries,
                                         size_t *count, const yaml_mark_t *mark)
{
    enum octet_status status = OCTET_OK;

    *count = 0;
    for (const struct oct_yaml *item = top->node->first; item; item = item->next)
        if (!is_merge(top, item))
            entries[(*count)++] = (struct entry){(struct oct_yaml *)item, 0, false};
    for (const struct oct_yaml *item = top->node->first; item && !status; item = item->next)
        if (is_merge(top, item))
            status = merge_value(r, item, entries, count, mark);
    return status;
}

static enum octet_status entries_unique(struct reader *r, struct entry *entries, size_t count)
{
    struct entry **sorted = OCTET_NEW_ARRAY(r->arena, count, struct entry *);

    if (!sorted)
        return octet_arena_exhausted(r->arena, r->err);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    qsort(sorted, count, sizeof sorted[0], compare_entries);
    for (size_t i = 1; i < count; i++) {
        const struct oct_yaml *before = sorted[i - 1]->node, *here = sorted[i]->node;
        if (strcmp(before->key, here->key))
            continue;
        if (!sorted[i]->rank) {
            int first = before->line < here->line ? before->line : here->line;
            int second = before->line < here->line ? here->line : before->line;
            return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL,
                              "line %d: key '%.100s' stands twice (first in line %d)", second,
                              here->key, first);
        }
        sorted[i]->dropped = true;
    }
    return OCTET_OK;
}

static enum octet_status map_finish(struct reader *r, struct frame *top, const yaml_mark_t *mark)
{
    size_t most = entries_most(top), count;

    if (most < 2 && !top->has_merge)
        return OCTET_OK;
    struct entry *entries = OCTET_NEW_ARRAY(r->arena, most, struct entry);
    if (!entries)
        return octet_arena_exhausted(r->arena, r->err);
    enum octet_status status = entries_collect(r, top, entries, &count, mark);
    if (!status)
        status = entries_unique(r, entries, count);
    if (status || !top->has_merge)
        return status;

    top->tail = &top->node->first;
    top->node->count = 0;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].dropped)
            continue;
        *top->tail = entries[i].node;
        top->tail = &entries[i].node->next;
        top->node->count++;
    }
    *top->tail = NULL;
    return OCTET_OK;
}

static enum octet_status on_close(struct reader *r, const yaml_event_t *event)
{
    struct frame *top = &r->stack[r->depth - 1];

    if (top->node->kind == OCT_YAML_MAP) {
        enum octet_status status = map_finish(r, top, &event->start_mark);
        if (status)
            return status;
    }
    anchor_close(top->anchor, top->node, r->size - top->size_before);
    r->depth--;
    return OCTET_OK;
}

static enum octet_status on_event(struct reader *r, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->root
                   ? refuse(r, &event->start_mark, "a second document starts; expected one", NULL)
                   : OCTET_OK;
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return on_open(r, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(r, event);
    case YAML_ALIAS_EVENT:
        return on_alias(r, event);
    default:
        return OCTET_OK;
    }
}

static enum octet_status read_all(struct reader *r)
{
    for (bool last = false; !last;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event))
            return parser_error(r);
        last = event.type == YAML_STREAM_END_EVENT;
        enum octet_status status = on_event(r, &event);
        yaml_event_delete(&event);
        if (status)
            return status;
    }
    return OCTET_OK;
}

enum octet_status oct_yaml_parse(octet_arena *arena, const char *text, size_t length,
                                 size_t bytes_max, const struct oct_yaml **out,
                                 struct octet_error *err)
{
    static const struct oct_yaml nothing = {.kind = OCT_YAML_NULL, .line = 1, .text = ""};

    if (length > bytes_max)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "%zu bytes of YAML; at most %zu are read", length, bytes_max);
    struct reader *r = OCTET_NEW(arena, struct reader);
    if (!r)
        return octet_arena_exhausted(arena, err);
    r->arena = arena;
    r->err = err;
    if (!yaml_parser_initialize(&r->parser))
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: YAML reader");
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, length);
    enum octet_status status = read_all(r);
    yaml_parser_delete(&r->parser);
    if (!status)
        *out = r->root ? r->root : &nothing;
    return status;
}

const struct oct_yaml *oct_yaml_get(const struct oct_yaml *map, const char *key)
{
    for (const struct oct_yaml *item = map->kind == OCT_YAML_MAP ? map->first : NULL; item;
         item = item->next)
        if (!strcmp(item->key, key))
            return item;
    return NULL;
}
